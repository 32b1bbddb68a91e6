"""Points in bins on a device, and NumPy's edges for them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array
from clhist.axes.thresholds import Thresholds, numpy_bins
from clhist.binned.counts import flat
from clhist.binned.device_inputs import numpy_axis
from clhist.binned.extent import extent
from clhist.binned.inputs import range_ends
from clhist.binned.points import Points, numpy_histogramdd
from clhist.binned.sweep import Binned


def extent_of(points: Points, n: int, where: Any, queue: cl.CommandQueue) -> tuple[Any, Any] | None:
    """Return the least and the greatest of coordinate `n` of points, in the common dtype."""
    data = (points.columns[n], None) if points.rows is None else (points.rows, n)
    found = extent(data[0], where, queue, data[1])
    return None if found is None else (points.dtype.type(found[0]), points.dtype.type(found[1]))


def binned_points(
    points: Points,
    edges: Sequence[Array],
    where: Any,
    queue: cl.CommandQueue,
    bins_of: Callable[..., Thresholds] = numpy_bins,
) -> Binned | None:
    """Return points with the axes of bins of these edges, NumPy's or others, or None if no number lies in them."""
    dtypes = [array.dtype for array in points.columns] or [points.dtype] * points.dims
    axes = []
    for each, given in zip(edges, dtypes, strict=True):
        via = None if points.dtype == given else points.dtype
        axis = numpy_axis(each, kernel_dtype(given), queue, via=via, bins_of=bins_of)
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
        each_bins = list(bins)
    except TypeError:
        each_bins = [bins] * dims
    try:
        ranges = [None] * dims if range_ is None else list(range_)
    except TypeError:
        ranges = []
    if sample.on_device:
        sample.check_edges(each_bins)
    is_whole = len(each_bins) == dims == len(ranges)
    pairs = list(zip(each_bins, ranges, strict=is_whole))
    fixed = {n: _plain_edges(*pair, None) for n, pair in enumerate(pairs) if np.ndim(pair[0]) or pair[1] is not None}
    numbers = [number for n, number in enumerate(each_bins) if n not in fixed]
    stub = np.zeros((2, dims), sample.dtype)
    stub[1] = 1
    if not (is_whole and all(fixed.values()) and all(map(_is_positive, numbers))):
        numpy_histogramdd(stub, bins, range_)  # raises what is wrong, before the data is read
    found: list[np.ndarray] = []
    for n, (number, _) in enumerate(pairs):
        if n in fixed:
            found += fixed[n]
            continue
        ends = extent_of(sample, n, where, queue)
        stub[:, n] = (0, 1) if ends is None else ends
        found += _plain_edges(number, None, ends)
    return found if len(found) == dims else list(numpy_histogramdd(stub, bins, range_)[1])


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | np.integer) and int(number) > 0


def _plain_edges(bins: Any, given: Any, found: Any) -> list[np.ndarray]:
    """Return NumPy's edges of one dimension in a list, which is empty if something is unusual."""
    if np.ndim(bins) > 0:
        edges = np.asarray(bins)
        fine = edges.ndim == 1 and edges.dtype.kind in "biuf" and not np.any(edges[:-1] > edges[1:])
        return [edges] if fine else []
    try:
        number = operator.index(bins)
        low, high = range_ends(found, given)
        fine = number > 0 and bool(np.isfinite(low) and np.isfinite(high) and low < high)
    except (TypeError, ValueError):
        return []
    return [np.linspace(low, high, number + 1)] if fine else []
