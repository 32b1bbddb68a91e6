"""Resolves the queue of a call on bins, and turns NumPy's edges into axes of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, check_context, common_kind
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.device import device_kind, has_fp64
from clhist._core.runtime.call import queue_for as queue_of_call
from clhist._core.runtime.call import queue_of
from clhist.axes.axis import Axis, axis_of, even_axis, searched_axis
from clhist.axes.thresholds import Thresholds, numpy_bins, within_range

_MOST_CACHED = 2**18  # bytes of edges whose axis is cached


def queue_for(queue: cl.CommandQueue | None, named: Sequence[tuple[str, Any]]) -> cl.CommandQueue:
    """Return the queue of a call on these arrays: `queue`, that of one of them, or the default one.

    Raises
    ------
    TypeError, ValueError
        As of `runtime.call.queue_for`; also if NumPy's and PyOpenCL's arrays are mixed, or one has another context.
    """
    call_queue = queue_of_call(queue, None, queue_of(*(array for _, array in named)))
    if common_kind(named):
        check_context(named, call_queue.context)
    return call_queue


def numpy_axis(
    edges: Array,
    dtype: np.dtype,
    queue: cl.CommandQueue,
    *,
    via: np.dtype | None = None,
    ends: tuple[Any, Any] | None = None,
    bins_of: Callable[..., Thresholds] = numpy_bins,
    most: int = 0,
) -> Axis | None:
    """Return the axis of bins between NumPy's edges, or None if no number of `dtype` lies in a bin.

    It is cached, unless it takes little time.

    Parameters
    ----------
    edges : array
        NumPy's, and `are_usable`.
    dtype : numpy.dtype
        Of the data.
    queue : pyopencl.CommandQueue
        A queue of the device that uses the axis.
    via : numpy.dtype, optional
        See `clhist.axes.thresholds.numpy_bins`.
    ends : pair of scalars, optional
        See `clhist.axes.thresholds.within_range`.
    bins_of : callable
        `numpy_bins`, or `rounded_bins` for SciPy's.
    most : int
        That of `most_cells`, for uneven bins.
    """
    # Even bins take a few microseconds, and so does a look into the cache.
    if ends is not None and via is None and edges.dtype == dtype and bins_of is numpy_bins:
        axis = even_axis(edges, dtype, *ends, fp64=has_fp64(queue.device))
        if axis is not None:
            return axis
    if most and ends is None:
        bins = bins_of(edges, dtype, via)
        axis = None if bins.is_empty else searched_axis(bins, most, fp64=has_fp64(queue.device))
        if axis is not None:
            return axis
    # The cache compares edges by their bytes; larger ones are not worth the memory of keys.
    key = edges.tobytes() if edges.nbytes <= _MOST_CACHED else None
    axis_key = key, edges.dtype, dtype, via, *(ends or (None, None)), has_fp64(queue.device), bins_of
    return _axis.__wrapped__(*axis_key, edges) if key is None else _axis(*axis_key)


def most_cells(size: int, queue: cl.CommandQueue, earlier: Any) -> int:
    """Return the most cells of the table of edges that no earlier call had; 0 of as many as speed up the search.

    Only few elements are searched in less time than it takes to make a large table; see `searched_axis`. Edges of the
    first call get one, since most programs have one set of edges, and so do edges of many calls. `earlier` is what
    other calls stored. A replay on CUDA does not count calls.
    """
    if earlier is None or cuda_device_of(queue) is not None or not are_few_to_search(size, queue):
        return 0
    if device_kind(queue.device) == "gpu":
        return 1
    # CPUs: 8 bytes of a table take as long as a longer search of two to eight elements.
    return 1 << min(max(_FEWEST_CELLS, (size // 4).bit_length() - 1), _FEW_CELLS)


def are_few_to_search(size: int, queue: cl.CommandQueue) -> bool:
    """Return whether a search over all edges takes so many elements less time than the host takes to make a table."""
    return size <= _MOST_SEARCHED[device_kind(queue.device)]


_FEWEST_CELLS, _FEW_CELLS = 10, 14  # powers of 2: 8 and 128 KiB of a packed table
# Elements. CPUs: 100 bins, Intel's runtime on two cores of an EPYC. GPUs: 10^7 elements in 10 to 4,000 bins take an
# H200 5 to 210 µs longer without a table, and 10^6 at most 40, while the host takes 250 to 500 µs for a table.
_MOST_SEARCHED = {"cpu": 2**20, "gpu": 2**22}


@lru_cache(maxsize=64, typed=True)
def _axis(
    raw: bytes | None,
    edge_dtype: np.dtype,
    dtype: np.dtype,
    via: np.dtype | None,
    low: Any,
    high: Any,
    fp64: bool,
    bins_of: Callable[..., Thresholds],
    edges: Array | None = None,
) -> Axis | None:
    if edges is None:
        assert raw is not None
        # The bytes of the key are the edges, so the cache stores no second copy.
        edges = np.frombuffer(raw, edge_dtype)
    # Even bins of edges that are wider than the data.
    if low is not None and via is None and bins_of is numpy_bins:
        axis = even_axis(edges, dtype, low, high, fp64=fp64)
        if axis is not None:
            return axis
    bins = bins_of(edges, dtype, via)
    if low is not None:
        bins = within_range(bins, low, high)
    return None if bins.is_empty else axis_of(bins, fp64=fp64)
