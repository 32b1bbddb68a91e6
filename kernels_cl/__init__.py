"""Mako templates of the OpenCL kernels; clhist._core.kernels.render fills them in."""
