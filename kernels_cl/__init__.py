"""Mako templates of the OpenCL kernels; clhist.codegen.render fills them in."""
