"""Samples of points: D columns, or one array (N, D)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.runtime.missing import any_missing
from clhist.binned.inputs import are_usable, check_kinds, shape_of_bins, split_array

# As it is now: if a program replaced it by ours, ours would call itself.
_histogramdd = np.histogramdd


def numpy_histogramdd(sample: Any, bins: Any, range: Any = None, *options: Any) -> Any:
    """Return what `numpy.histogramdd` does; raise what names the argument that has no numbers."""
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
        The coordinates, one-dimensional; empty if the points are `rows`.
    rows : array of shape (N, D), or None
        The points, contiguous.
    size, dims : int
        N and D.
    dtype : numpy.dtype
        What NumPy converts the coordinates to before it compares them.
    missing : numpy.ndarray of bool, or None
        Which points lack a coordinate.
    """

    columns: tuple[Array, ...]
    rows: Array | None
    size: int
    dims: int
    dtype: np.dtype
    missing: np.ndarray | None = None

    @property
    def on_device(self) -> bool:
        """Whether it is PyOpenCL's."""
        return bool(self.arrays) and is_device_array(self.arrays[0])  # all are of one kind

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that hold it."""
        return self.columns if self.rows is None else (self.rows,)

    @property
    def as_given(self) -> Any:
        """It as NumPy's and SciPy's functions take it."""
        return list(self.columns) if self.rows is None else self.rows

    def without(self, missing: np.ndarray) -> Points:
        """Return the points on the host that are not missing."""
        present = ~missing
        columns = tuple(column[present] for column in self.columns)
        rows = None if self.rows is None else self.rows[present]
        return Points(columns, rows, int(present.sum()), self.dims, self.dtype)

    def check_edges(self, bins: Sequence[Any]) -> None:
        """Raise ValueError if kernels cannot count device arrays by the edges among the bins of each dimension."""
        edges = {n: np.asarray(one) for n, one in enumerate(bins) if np.ndim(one) == 1}
        for n, each in edges.items():
            if not are_usable(each):
                raise ValueError(f"bins[{n}]: expected two edges or more, none of them NaN, got {bins[n]!r:.60}")
            if {self.dtype.kind, each.dtype.kind} == {"i", "u"}:
                raise ValueError(f"bins[{n}]: expected edges of {self.dtype} as of the sample, got {each.dtype}")
        shape = shape_of_bins(bins)
        if shape is not None and prod(shape) >= 2**31:
            raise ValueError(f"bins: expected fewer than 2**31 in all dimensions together, got shape {shape}")

    def are_countable(self, edges: Sequence[np.ndarray]) -> bool:
        """Whether kernels count it by these edges; NumPy compares integers with and without sign in two ways."""
        mixed = {self.dtype.kind, *(each.dtype.kind for each in edges)} == {"i", "u"}
        return all(map(are_usable, edges)) and not mixed and prod(len(each) - 1 for each in edges) < 2**31


def points_of(given: Any) -> Points | None:
    """Return the sample that `given` is as NumPy reads it, or None of what is no array of two dimensions to it.

    Raises
    ------
    TypeError, ValueError
        If some columns are NumPy's and some PyOpenCL's, or device arrays have another shape.
    """
    if is_device_array(given):
        if given.ndim > 2:
            raise ValueError(f"sample: expected shape (N, D), got {given.shape}")
        return _points_of_columns((given,)) if given.ndim == 1 else _points_of_rows(given)
    if isinstance(given, list | tuple):
        if any(map(is_device_array, given)):
            return _points_of_device_columns(given)
        try:
            pairs = [split_array("sample", each) for each in given]
        except ValueError:  # rows of different lengths
            return None
        if pairs and {(1, pairs[0][0].size)} == {(column.ndim, column.size) for column, _ in pairs}:
            return _points_of_columns(tuple([column for column, _ in pairs]), any_missing(*[mask for _, mask in pairs]))
    points, missing = split_array("sample", given)
    if missing is not None:
        missing = np.asarray(missing.reshape(len(missing), -1).any(1))
    if points.ndim != 2 or not hasattr(given, "shape"):
        points = np.atleast_2d(points).T
    return _points_of_rows(points, missing) if points.ndim == 2 else None


def _points_of_device_columns(given: Sequence[Any]) -> Points:
    for n, each in enumerate(given):
        if not is_device_array(each):
            raise TypeError(f"sample[{n}]: expected a PyOpenCL array as the others, got {type(each).__name__}")
        if each.ndim != 1 or each.shape != given[0].shape:
            raise ValueError(f"sample[{n}]: expected shape {given[0].shape[:1]}, got {each.shape}")
    return _points_of_columns(tuple(given))


def _points_of_columns(columns: tuple[Array, ...], missing: np.ndarray | None = None) -> Points:
    dtype = columns[0].dtype
    for column in columns[1:]:
        dtype = dtype if dtype == column.dtype else np.result_type(dtype, column.dtype)
    return Points(columns, None, columns[0].shape[0], len(columns), dtype, missing)


def _points_of_rows(points: Array, missing: np.ndarray | None = None) -> Points:
    size, dims = points.shape
    if dims == 1 and is_device_array(points):
        return _points_of_columns((points.reshape(-1),))
    if is_device_array(points) or (points.flags.c_contiguous and dims > 1):
        return Points((), points, size, dims, points.dtype, missing)
    columns = tuple(points[:, n] for n in range(dims))
    return Points(columns, None, size, dims, points.dtype, missing)
