"""The chain of kernels on a queue: by OpenCL, or by CUDA, whose modules are imported only then."""

from __future__ import annotations

import pyopencl as cl

from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.runtime.chain import Chain


def chain_on(queue: cl.CommandQueue, purpose: str) -> Chain:
    """Return a chain on a queue, or on the CUDA device that the queue stands for."""
    if cuda_device_of(queue) is None:
        return Chain(queue, purpose)
    from clhist._core.runtime.cuda_chain import CudaChain

    return CudaChain(queue, purpose)
