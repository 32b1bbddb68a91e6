"""Edges and axes for points whose coordinates are binned on a device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array
from clhist.axes.thresholds import Thresholds, are_exact, numpy_bins
from clhist.binned.counts import flat
from clhist.binned.device_inputs import numpy_axis
from clhist.binned.extent import extent
from clhist.binned.host import counted_edges
from clhist.binned.inputs import are_ascending, range_ends
from clhist.binned.points import Points, numpy_histogramdd
from clhist.binned.sweep import Binned


def extent_of(points: Points, n: int, where: Any, queue: cl.CommandQueue) -> tuple[Any, Any] | None:
    """Return the least and the greatest coordinate `n` in the points' common dtype; None if no point counts."""
    data = (points.columns[n], None) if points.rows is None else (points.rows, n)
    ends = extent(data[0], where, queue, data[1])
    return None if ends is None else (points.dtype.type(ends[0]), points.dtype.type(ends[1]))


def binned_points(
    points: Points,
    edges: Sequence[Array],
    where: Any,
    queue: cl.CommandQueue,
    bins_of: Callable[..., Thresholds] = numpy_bins,
    are_even: Sequence[bool] = (),
    most: int = 0,
) -> Binned | None:
    """Return points with an axis for each dimension; None if the bins of a dimension are empty.

    Parameters
    ----------
    points, edges, where
        The points, NumPy's edges of each dimension, and the mask.
    queue : pyopencl.CommandQueue
        A queue of the device.
    bins_of : callable
        Turns edges into bins: NumPy's rule, or `rounded_bins` for SciPy's.
    are_even : sequence of bool
        Whether the edges of each dimension were made of a number of bins; empty if no dimension's were.
    most : int
        As of `numpy_axis`.
    """
    dtypes = [array.dtype for array in points.columns] or [points.dtype] * points.dims
    axes = []
    for axis_edges, dtype, is_even in zip(edges, dtypes, are_even or [False] * len(edges), strict=True):
        # Kernels read booleans as uint8, of which int8, the common dtype of some points, lacks the upper half.
        via = None if points.dtype == dtype else np.result_type(points.dtype, kernel_dtype(dtype))
        ends = (axis_edges[0], axis_edges[-1]) if is_even else None
        axis = numpy_axis(axis_edges, kernel_dtype(dtype), queue, via=via, ends=ends, bins_of=bins_of, most=most)
        if axis is None:
            return None
        axes.append(axis)
    data = tuple(flat(column) for column in points.columns) if points.rows is None else (points.rows,)
    return Binned(tuple(axes), data, where, points.size)


def edges_of(sample: Points, bins: Any, range_: Any, where: Any, queue: cl.CommandQueue) -> list[np.ndarray]:
    """Return NumPy's edges of each dimension.

    Raises
    ------
    TypeError, ValueError
        What `numpy.histogramdd` raises.
    """
    dims = sample.dims
    try:
        axis_bins = list(bins)
    except TypeError:
        axis_bins = [bins] * dims
    try:
        ranges = [None] * dims if range_ is None else list(range_)
    except TypeError:
        ranges = []
    if sample.on_device:
        sample.check_edges(axis_bins)
    # Edges that do not depend on the data come first, so that errors are raised before it is read.
    is_whole = len(axis_bins) == dims == len(ranges)
    pairs = list(zip(axis_bins, ranges, strict=is_whole))
    fixed = {n: _plain_edges(*pair, None) for n, pair in enumerate(pairs) if pair[1] is not None or _ndim(pair[0])}
    if is_whole and len(fixed) == dims and all(fixed.values()):
        return [edges for (edges,) in fixed.values()]
    numbers = [number for n, number in enumerate(axis_bins) if n not in fixed]
    # Two points in the place of the data: NumPy's checks read nothing but their extent.
    stub = np.zeros((2, dims), sample.dtype)
    stub[1] = 1
    if not (is_whole and all(fixed.values()) and all(map(_is_positive, numbers))):
        numpy_histogramdd(stub, bins, range_)  # raises NumPy's own error, before the data is read
    edges: list[np.ndarray] = []
    for n, (number, _) in enumerate(pairs):
        if n in fixed:
            edges += fixed[n]
            continue
        # A number of bins without a range: the least and the greatest coordinate decide the edges.
        ends = extent_of(sample, n, where, queue)
        stub[:, n] = (0, 1) if ends is None else ends
        edges += _plain_edges(number, None, ends)
    # A dimension may lack edges, as with infinite or NaN extremes: NumPy then decides, or raises.
    return edges if len(edges) == dims else list(numpy_histogramdd(stub, bins, range_)[1])


def _ndim(bins: Any) -> int:
    """Return the dimensions of bins; NumPy's function takes ten times as long for a number."""
    return 0 if type(bins) is int else np.ndim(bins)


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | np.integer) and int(number) > 0


def _plain_edges(bins: Any, requested: Any, data_extent: Any) -> list[np.ndarray]:
    """Return [NumPy's edges of one dimension]; [] if NumPy must decide, since an argument is unusual or wrong."""
    if are_ascending(bins):
        return [bins]
    if _ndim(bins) > 0:
        edges = np.asarray(bins)
        fine = edges.ndim == 1 and edges.dtype.kind in "biuf" and not np.any(edges[:-1] > edges[1:])
        return [edges] if fine else []
    try:
        number = operator.index(bins)
        low, high = range_ends(data_extent, requested)
        fine = number > 0 and isfinite(low) and isfinite(high) and bool(low < high)
    except (OverflowError, TypeError, ValueError):
        return []
    if not fine:
        return []
    even = counted_edges(number, low, high) if are_exact(low, high) else None
    return [np.linspace(low, high, number + 1) if even is None else even]
