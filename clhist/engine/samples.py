"""Some elements of an array, for guesses that the computation itself then checks."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist.opencl.arrays import Array, is_device_array

_MOST = 2048


def evenly_spread(x: Array, queue: cl.CommandQueue) -> np.ndarray:
    """Return some elements of `x`, evenly spread."""
    step = max(1, x.size // _MOST)
    if not is_device_array(x):
        return x[::step]
    found = np.empty(x.size // step, x.dtype)
    cl.enqueue_copy(
        queue,
        found,
        x.base_data,  # type: ignore[call-overload]
        buffer_origin=(x.offset, 0, 0),
        host_origin=(0, 0, 0),
        region=(x.dtype.itemsize, found.size, 1),
        buffer_pitches=(step * x.dtype.itemsize,),
        host_pitches=(x.dtype.itemsize,),
        wait_for=x.events,
    )
    return found
