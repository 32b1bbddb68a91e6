"""The description of a device: its profile and its atomics. Pure: no OpenCL."""
