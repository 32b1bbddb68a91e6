"""A checked call becomes launches."""
