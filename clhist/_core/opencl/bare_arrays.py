"""PyOpenCL arrays over existing memory, without the checks and allocations of their constructor."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clhist._core.opencl.arrays import Array, strides_of

# Attributes that `array_in` sets by its arguments.
_SET = {"queue", "context", "shape", "dtype", "strides", "events", "nbytes", "size", "allocator", "base_data", "offset"}
# Other attributes of an array, whatever the version of PyOpenCL.
_OTHERS = [pair for pair in vars(cl_array.Array(None, (0,), np.dtype(np.uint8))).items() if pair[0] not in _SET]


def array_in(
    queue: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    memory: Any,
    allocator: Any = None,
    offset: int = 0,
    kind: type[cl_array.Array] = cl_array.Array,
) -> Array:
    """Return a contiguous device array over this memory; the constructor takes ten times as long."""
    new: Any = object.__new__(kind)
    itemsize = dtype.itemsize
    if len(shape) == 1:
        (size,) = shape
        new.strides = (itemsize,)
    else:
        size = prod(shape)
        new.strides = strides_of(shape, itemsize)
    # One by one: an update of `__dict__` takes twice as long, and slows down each later access.
    new.queue, new.context = queue, None if queue is None else queue.context
    new.shape, new.dtype, new.size, new.nbytes = shape, dtype, size, size * itemsize
    new.base_data, new.offset, new.events, new.allocator = memory, offset, [], allocator
    for name, value in _OTHERS:
        setattr(new, name, value)
    return new
