"""The largest and the smallest integer of an array."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.engine import Engine
from clhist.operators.c_types import c_name


def extremes(x: Array, queue: cl.CommandQueue) -> tuple[int, int]:
    """Wait for the queue and return the largest and the smallest integer, or boolean, of an array that is not empty."""
    if not is_device_array(x):
        return int(x.max()), int(x.min())
    if not is_cuda(x):
        # An array in Fortran's order is contiguous once transposed.
        x = x.reshape(1) if not x.ndim else x if x.flags.c_contiguous else x.T
    engine = _engine(queue.context, np.dtype(x.dtype).newbyteorder("="))
    result = engine.run([x], Call(2, queue=queue)).results[0]
    largest, complement = result.get() if is_cuda(result) else fetched(result, queue)
    return int(largest), int(~complement)


@kept_by_context
def _engine(context: cl.Context, dtype: np.dtype) -> Engine:
    # The least number has the greatest complement, so that one array of two bins, which is read once, has both.
    c_type = c_name(dtype)
    pairs = f"EMIT(0, x[i]); EMIT(1, ({c_type}){'!' if dtype.kind == 'b' else '~'}x[i])"
    return Engine.of(context, operators.maximum(dtype), f"const {c_type} *x", pairs)
