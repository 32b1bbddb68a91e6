"""Samples of N points with D coordinates: D columns, or one array (N, D)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.runtime.missing import any_missing
from clhist.binned.inputs import are_usable, check_kinds, shape_of_bins, split_array

# Bound at import: a program may replace NumPy's function by ours, which would then call itself.
_histogramdd = np.histogramdd


def numpy_histogramdd(sample: Any, bins: Any, range: Any = None, *options: Any) -> Any:
    """Call `numpy.histogramdd`; name the argument that is not numeric in errors."""
    try:
        return _histogramdd(sample, bins, range, *options)
    except (TypeError, ValueError):
        check_kinds(bins if isinstance(bins, list | tuple) else [bins], range)
        raise


class Points(NamedTuple):
    """N points of D coordinates.

    Attributes
    ----------
    columns : tuple of array
        The coordinates, one-dimensional; empty if `rows` holds the points.
    rows : array of shape (N, D), or None
        The points, contiguous; None if `columns` holds them.
    size, dims : int
        N and D.
    dtype : numpy.dtype
        The common dtype in which NumPy compares the coordinates.
    missing : numpy.ndarray of bool, or None
        True for points that lack a coordinate.
    """

    columns: tuple[Array, ...]
    rows: Array | None
    size: int
    dims: int
    dtype: np.dtype
    missing: np.ndarray | None = None

    @property
    def on_device(self) -> bool:
        """Whether the arrays are PyOpenCL's; they are never mixed."""
        return bool(self.arrays) and is_device_array(self.arrays[0])

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that hold the points: the columns, or the single array of rows."""
        return self.columns if self.rows is None else (self.rows,)

    @property
    def as_given(self) -> Any:
        """The argument `sample` for functions of NumPy and SciPy: a list of columns, or an array (N, D)."""
        return list(self.columns) if self.rows is None else self.rows

    def without(self, missing: np.ndarray) -> Points:
        """Return the points on the host that are not missing."""
        present = ~missing
        columns = tuple(column[present] for column in self.columns)
        rows = None if self.rows is None else self.rows[present]
        return Points(columns, rows, int(present.sum()), self.dims, self.dtype)

    def check_edges(self, bins: Sequence[Any]) -> None:
        """Raise ValueError if kernels cannot count device arrays by the edges in `bins`, one entry for a dimension."""
        edges = {n: np.asarray(one) for n, one in enumerate(bins) if type(one) is not int and np.ndim(one) == 1}
        for n, axis_edges in edges.items():
            # A single edge makes no bin, and the histogram is empty, as NumPy's.
            if not are_usable(axis_edges, fewest=1):
                raise ValueError(f"bins[{n}]: expected one edge or more, none of them NaN, got {bins[n]!r:.60}")
            if self._has_no_integer_of_both(axis_edges):
                raise ValueError(f"bins[{n}]: expected edges of {self.dtype} as of the sample, got {axis_edges.dtype}")
        shape = shape_of_bins(bins)
        if shape is not None and prod(shape) >= 2**31:
            raise ValueError(f"bins: expected fewer than 2**31 in all dimensions together, got shape {shape}")

    def are_countable(self, edges: Sequence[np.ndarray]) -> bool:
        """Return whether kernels can count the points by these edges."""
        comparable = all(are_usable(one, fewest=1) and not self._has_no_integer_of_both(one) for one in edges)
        return comparable and prod(len(axis_edges) - 1 for axis_edges in edges) < 2**31

    def _has_no_integer_of_both(self, axis_edges: np.ndarray) -> bool:
        """Return whether points and edges are integers that no integer type has both of, such as uint64 and int64."""
        # NumPy compares these in two ways, exactly and as float64, which no kernel follows.
        both = self.dtype, axis_edges.dtype
        return all(dtype.kind in "iu" for dtype in both) and np.result_type(*both).kind == "f"


def points_of(sample: Any) -> Points | None:
    """Read a sample as NumPy does; return None if NumPy would not make an array of two dimensions of it.

    Raises
    ------
    TypeError, ValueError
        If some columns are NumPy's and some PyOpenCL's, or device arrays have another shape.
    """
    if is_device_array(sample):
        if sample.ndim > 2:
            raise ValueError(f"sample: expected shape (N, D), got {sample.shape}")
        return _points_of_columns((sample,)) if sample.ndim == 1 else _points_of_rows(sample)
    if isinstance(sample, list | tuple):
        if any(map(is_device_array, sample)):
            return _points_of_device_columns(sample)
        try:
            pairs = [split_array("sample", column) for column in sample]
        except ValueError:  # rows of different lengths
            return None
        if pairs and {(1, pairs[0][0].size)} == {(column.ndim, column.size) for column, _ in pairs}:
            return _points_of_columns(tuple([column for column, _ in pairs]), any_missing(*[mask for _, mask in pairs]))
    points, missing = split_array("sample", sample)
    if missing is not None:
        missing = np.asarray(missing.reshape(len(missing), -1).any(1))
    if points.ndim != 2 or not hasattr(sample, "shape"):
        # As NumPy: what has no shape is a sequence of D columns.
        points = np.atleast_2d(points).T
    return _points_of_rows(points, missing) if points.ndim == 2 else None


def _points_of_device_columns(columns: Sequence[Any]) -> Points:
    for n, column in enumerate(columns):
        if not is_device_array(column):
            raise TypeError(f"sample[{n}]: expected a PyOpenCL array as the others, got {type(column).__name__}")
        if column.ndim != 1 or column.shape != columns[0].shape:
            raise ValueError(f"sample[{n}]: expected shape {columns[0].shape[:1]}, got {column.shape}")
    return _points_of_columns(tuple(columns))


def _points_of_columns(columns: tuple[Array, ...], missing: np.ndarray | None = None) -> Points:
    dtype = columns[0].dtype
    for column in columns[1:]:
        dtype = dtype if dtype == column.dtype else np.result_type(dtype, column.dtype)
    return Points(columns, None, columns[0].shape[0], len(columns), dtype, missing)


def _points_of_rows(points: Array, missing: np.ndarray | None = None) -> Points:
    size, dims = points.shape
    if dims == 1 and is_device_array(points):
        return _points_of_columns((points.reshape(-1),))
    # Contiguous rows are read in place; other layouts are split into columns, which can be made contiguous.
    if is_device_array(points) or (points.flags.c_contiguous and dims > 1):
        return Points((), points, size, dims, points.dtype, missing)
    columns = tuple(points[:, n] for n in range(dims))
    return Points(columns, None, size, dims, points.dtype, missing)
