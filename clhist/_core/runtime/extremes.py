"""The largest and the smallest element of a device array."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import is_processor
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist.operators.c_types import c_name


def extremes(x: Array, queue: cl.CommandQueue) -> tuple[int, int]:
    """Wait for the queue and return the largest and the smallest integer of an array that is not empty."""
    if is_device_array(x) and not is_cuda(x):
        # An array in Fortran's order is contiguous once transposed.
        x = x.reshape(1) if not x.ndim else x if x.flags.c_contiguous else x.T
    # On a CPU, one million int64 take 1.3 ms by clhist and 12 ms by PyOpenCL's reductions (Zen 2), which build four
    # programs.
    if is_cuda(x) or (is_device_array(x) and is_processor(queue.device)):
        engine = _engine(queue.context, np.dtype(x.dtype).newbyteorder("="))
        results = engine.run([x], Call(1, queue=queue)).results
        largest, smallest = (
            int((result.get() if is_cuda(result) else fetched(result, queue))[0]) for result in results
        )
        return largest, smallest
    if is_device_array(x):
        return int(fetched(cl_array.max(x, queue), queue)), int(fetched(cl_array.min(x, queue), queue))
    return int(x.max()), int(x.min())


@kept_by_context
def _engine(context: cl.Context, dtype: np.dtype) -> Engine:
    forms = (operators.maximum(dtype), operators.minimum(dtype))
    return Engine.of(context, forms, f"const {c_name(dtype)} *x", "EMIT0(0, x[i]); EMIT1(0, x[i])")
