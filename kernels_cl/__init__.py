"""Mako templates of the OpenCL kernels; clhist.render fills them in."""
