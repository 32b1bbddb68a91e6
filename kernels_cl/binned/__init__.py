"""Templates of the range of data and of its even bins."""
