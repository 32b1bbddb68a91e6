"""What a device is: its profile and its atomics. Pure: no OpenCL."""
