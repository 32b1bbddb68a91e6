"""Planning of histograms: strategies, copies and passes. Pure: no OpenCL."""
