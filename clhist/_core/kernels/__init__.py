"""Generation of OpenCL C from a plan. Pure: no OpenCL."""
