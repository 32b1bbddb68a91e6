"""Histograms of 8- and 16-bit data: count each bit pattern on the device, then bin the patterns by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, is_device_array, on_host
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.reading import into
from clhist.bincount import bincount
from clhist.binned.host import numpy_histogram


def are_few_kinds(a: Any, weights: Any, where: Any) -> bool:
    """Return whether data has at most 2^16 different values, and neither weights nor a mask."""
    return where is None and weights is None and a.dtype.itemsize <= 2 and a.size > 0


def of_bits(
    data: Any, bins: Any, range: Any, density: bool | None, queue: cl.CommandQueue, out: Array | None
) -> tuple[Array, np.ndarray]:
    """Return the histogram of flat `data` and its edges, from counts of its bit patterns."""
    bits = np.dtype(f"u{data.dtype.itemsize}")
    counts: Any = bincount(
        data if data.dtype.kind == "b" else data.view(bits), minlength=2 ** (8 * bits.itemsize), queue=queue
    )
    counts = on_host(counts, queue)
    there = np.flatnonzero(counts)
    # The bit patterns that occur, as numbers of the dtype of the data, with their counts as weights.
    hist, edges = numpy_histogram(there.astype(bits).view(data.dtype), bins, range, density, counts[there])
    return into(out, to_device(queue, hist) if is_device_array(data) else hist), edges
