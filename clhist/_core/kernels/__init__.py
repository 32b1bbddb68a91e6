"""From a plan to OpenCL C. Pure: no OpenCL."""
