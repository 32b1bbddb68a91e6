"""Files that anyone may have written: read within bounds, and never run."""
