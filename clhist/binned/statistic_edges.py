"""Edges as in `scipy.stats.binned_statistic_dd`, with its errors."""

from __future__ import annotations

from math import isfinite
from operator import index
from typing import Any

import numpy as np

from clhist.binned.device_points import extent_of
from clhist.binned.inputs import check_ends, check_number
from clhist.binned.points import Points

Extents = list[tuple[Any, Any] | None]


def statistic_edges(points: Points, sample: Any, bins: Any, range: Any, where: Any, queue: Any) -> list[np.ndarray]:
    """Return SciPy's edges of each dimension; `queue` is used for device arrays only."""
    check_bins(points, bins, range)
    return edges_of_extents(points, bins, range, where, extents_of(points, sample, bins, range, where, queue))


def check_length(values: Any, size: int) -> None:
    """Raise AttributeError, as SciPy does, if there are values for another number of points."""
    if values is not None and values.shape[-1:] != (size,):
        raise AttributeError("The number of `values` elements must match the length of each `sample` dimension.")


def check_bins(points: Points, bins: Any, range: Any) -> None:
    """Raise SciPy's errors of bins and range, for any data."""
    is_number, axis_bins = _bins_per_axis(bins, points.dims)
    check_number(axis_bins, points.dims)
    _check_range(range, points.dims)
    needs_data = is_number or any(_needs_data(number, range) for number in axis_bins)
    for n, number in enumerate(axis_bins):
        if needs_data and not (isinstance(number, int | np.integer) and number > 0 and range is None):
            _edges(number, (0, 1), None if range is None else range[n], _dtype(points))


def extents_of(points: Points, sample: Any, bins: Any, range: Any, where: Any, queue: Any) -> Extents:
    """Return the least and the greatest coordinate of each dimension; None if it has edges, or if no point counts.

    Raises
    ------
    ValueError
        If a coordinate is not finite, and `bins` is a number: SciPy checks the points then.
    """
    is_number, axis_bins = _bins_per_axis(bins, points.dims)
    extents: Extents = []
    for n, number in enumerate(axis_bins):
        ends = extent_of(points, n, where, queue) if is_number or _needs_data(number, range) else None
        if is_number and ends is not None and not (isfinite(ends[0]) and isfinite(ends[1])):
            raise ValueError(f"{sample!r} contains non-finite values.")
        extents.append(ends)
    return extents


def edges_of_extents(points: Points, bins: Any, range: Any, where: Any, extents: Extents) -> list[np.ndarray]:
    """Return SciPy's edges of each dimension for points of these extents."""
    _, axis_bins = _bins_per_axis(bins, points.dims)
    # Without points that count, the range is that of NumPy's histograms of no data.
    default = (0, 1) if where is not None and points.size else None
    return [
        _edges(number, ends or default, None if range is None else range[n], _dtype(points))
        for n, (number, ends) in enumerate(zip(axis_bins, extents, strict=True))
    ]


def _needs_data(number: Any, range: Any) -> bool:
    """Return whether the bins of a dimension depend on the points: they are a number, without a range."""
    return range is None and np.ndim(number) == 0


def _dtype(points: Points) -> np.dtype:
    """Return SciPy's dtype of edges."""
    return points.dtype if points.dtype.kind == "f" else np.dtype(np.float64)


def _edges(number: Any, extent: Any, requested: Any, real: np.dtype) -> np.ndarray:
    """Return the edges of one dimension: `number` itself if it is an array of edges, or equal-width ones."""
    try:
        edges = np.asarray(number, real) if np.ndim(number) > 0 else None
        count = int(number) if edges is None else edges.size - 1
    except (TypeError, ValueError) as error:
        raise type(error)(f"bins: expected a number of bins or edges, got {number!r:.60}") from error
    if count < 1:
        expected = "at least one bin" if edges is None else "two edges or more"
        raise ValueError(f"bins: expected {expected}, got {number!r:.60}")
    if edges is None:
        edges = np.linspace(*_ends(extent, requested), count + 1, dtype=real)
    least = np.diff(edges).min()
    if least == 0:
        raise ValueError("The smallest edge difference is numerically 0.")
    # The negation also catches NaN, for which every comparison is false.
    if not least > 0:
        raise ValueError("bins must be monotonically increasing or decreasing")
    return edges


def _bins_per_axis(bins: Any, dims: int) -> tuple[bool, list[Any]]:
    """Return whether `bins` is a single number, and the bins (number or edges) of each dimension."""
    try:
        return True, [index(bins)] * dims
    except TypeError:
        axis_bins = list(bins) if hasattr(bins, "__len__") else [bins] * dims
    if len(axis_bins) != dims:
        raise AttributeError("The dimension of bins must be equal to the dimension of the sample x.")
    return False, axis_bins


def _check_range(range: Any, dims: int) -> None:
    if range is None:
        return
    if not hasattr(range, "__len__"):
        raise TypeError(f"range: expected two numbers for each dimension, got {range!r:.60}")
    if len(range) != dims:
        raise ValueError(f"range given for {len(range)} dimensions; {dims} required")
    for k, ends in enumerate(range):
        check_ends(f"range[{k}]", ends)
        low, high = ends
        if not np.isfinite([low, high]).all():
            raise ValueError(f"range[{k}]: expected finite numbers, got {ends!r:.60}")
        if high < low:
            place = f"dimension {k + 1} of " if dims > 1 else ""
            raise ValueError(f"In {place}range, start must be <= stop")


def _ends(extent: Any, requested: Any) -> tuple[float, float]:
    if requested is not None:
        low, high = requested
    elif extent is None:
        raise ValueError("zero-size array to reduction operation minimum which has no identity")
    else:
        low, high = extent
    low, high = float(low), float(high)
    return (low - 0.5, high + 0.5) if low == high else (low, high)
