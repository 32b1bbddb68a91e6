"""`clhist hist`: histograms and statistics of columns of files, read in chunks."""
