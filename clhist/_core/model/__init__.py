"""How a histogram is computed. Pure: no OpenCL."""
