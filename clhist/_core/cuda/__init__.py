"""CUDA beside OpenCL: programs that NVIDIA's OpenCL compiled, launched on memory and streams of CUDA's libraries.

Knows no PyOpenCL and no histogram; nothing of CUDA is loaded before an array of it is given.
"""
