"""Histograms of gradients by the bins of many features, of all rows or of nodes: what growers of trees need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.spi import Array, OnDevice, check_array, default_queue, extremes, is_device_array, refuse_missing
from clhist.boosting.binned_rows import FLOAT, BinnedRows, Node

_MOST_BINS = 256


class FeatureHistograms(NamedTuple):
    """Histograms of each feature, of shape (features, n_bins), or of as many as there are nodes.

    Attributes
    ----------
    counts : int64 array
        Rows of each bin.
    gradients : float64 or int64 array
        What their gradients add up to, exactly: floats as these were rounded, integers as they are.
    hessians : float64 or int64 array, optional
        The same of hessians, if there are any.

    Examples
    --------
    >>> from clhist.boosting import BinnedFeatures
    >>> features = BinnedFeatures(np.array([[0, 2], [1, 2]], np.uint8), n_bins=3)
    >>> features.histograms(np.array([0.5, 1], np.float32)).counts
    array([[1, 1, 0],
           [0, 0, 2]])
    """

    counts: Array
    gradients: Array
    hessians: Array | None


class BinnedFeatures(OnDevice, instead="the arrays that it was made of can be"):
    """Features as bins of 8 bits, on a device, of which many histograms are made.

    Parameters
    ----------
    X_binned : array of shape (rows, features), uint8
        Of NumPy or PyOpenCL, contiguous by row or by feature.
    n_bins : int
        How many bins a feature has, at most 256.
    queue : pyopencl.CommandQueue, optional
        Where. Defaults to that of `X_binned`, or the default one.

    Raises
    ------
    ValueError
        If an argument is of another shape, or a bin is not below `n_bins`.
    TypeError
        If `X_binned` is of another type.
    MemoryError
        If the device has no room.

    Examples
    --------
    >>> from clhist.boosting import BinnedFeatures
    >>> features = BinnedFeatures(np.array([[0, 2], [1, 2], [1, 0]], np.uint8), n_bins=3)
    >>> found = features.histograms(np.array([0.5, 1, 2], np.float32))
    >>> found.gradients
    array([[0.5, 3. , 0. ],
           [2. , 0. , 1.5]])
    """

    def __init__(self, X_binned: Array, n_bins: int = _MOST_BINS, *, queue: cl.CommandQueue | None = None) -> None:
        X_binned = _array("X_binned", X_binned)
        if X_binned.dtype != np.uint8:
            raise TypeError(f"X_binned: expected uint8, got {X_binned.dtype}")
        if X_binned.ndim != 2 or not X_binned.size:
            raise ValueError(f"X_binned: expected rows and features, got an array of shape {X_binned.shape}")
        if isinstance(n_bins, bool | np.bool_) or not isinstance(n_bins, int | np.integer):
            raise TypeError(f"n_bins: expected an int, got {n_bins!r}")
        n_bins = int(n_bins)
        if not 1 <= n_bins <= _MOST_BINS:
            raise ValueError(f"n_bins: expected 1 to {_MOST_BINS}, got {n_bins}")
        self.queue = queue or default_queue(X_binned)
        if is_device_array(X_binned) and not (X_binned.flags.c_contiguous or X_binned.flags.f_contiguous):
            raise ValueError("X_binned: expected an array that is contiguous, got one with gaps")
        # Every uint8 is a bin if there are 256 of them: then the data is not read.
        if n_bins < _MOST_BINS:
            most, _ = extremes(X_binned, self.queue)
            if most >= n_bins:
                raise ValueError(f"X_binned: expected bins below n_bins={n_bins}, got {most}")
        self.n_bins, self.shape = n_bins, X_binned.shape
        self._rows: dict[tuple[np.dtype, ...], BinnedRows] = {}
        self._rows[FLOAT, FLOAT] = BinnedRows(self.queue, X_binned, n_bins, (FLOAT, FLOAT))
        # When the constructor returns, the caller may change the array.
        cl.wait_for_events(self._rows[FLOAT, FLOAT].chain.events)
        self._lock = Lock()  # of the memory that calls share

    def histograms(
        self,
        gradients: Array,
        hessians: Array | None = None,
        *,
        rows: Array | None = None,
        offsets: Sequence[int] | None = None,
    ) -> FeatureHistograms:
        """Return the sums of gradients and hessians of the rows in each bin of each feature.

        Before they are added up they are rounded to a unit, which is at most 2**-30 of the largest of all rows, or
        2**-52 of it times their number: float64 has all sums of such numbers exactly, in whatever order. Integers, as
        of quantized training, are added up as they are, to int64; the smaller they are, the less time it takes.

        Parameters
        ----------
        gradients, hessians : array of shape (rows,), float32, or both integers of int8 to int32 or uint8 to uint32
            Of NumPy or PyOpenCL. Those of uint32 must be less than 2**31.
        rows : array of integers, optional
            Those that are added up; some may be there more than once. Without, all are.
        offsets : sequence of int, optional
            Nodes: the n-th has ``rows[offsets[n]:offsets[n + 1]]``, or the rows with these numbers.

        Returns
        -------
        FeatureHistograms
            Arrays of shape (features, n_bins) or (nodes, features, n_bins), of PyOpenCL if `gradients` is.

        Raises
        ------
        ValueError
            If an array has another shape or, on the device, gaps, a number is not finite or too large, or offsets do
            not ascend within the rows.
        TypeError
            If an array is of another type.
        IndexError
            If a row is not there.
        MemoryError
            If the device has no room.
        """
        number, features = self.shape
        gradients = _checked_values("gradients", gradients, number)
        if hessians is not None:
            hessians = _checked_values("hessians", hessians, number)
            if (hessians.dtype == FLOAT) != (gradients.dtype == FLOAT):
                raise TypeError(f"hessians: expected floats or integers as gradients are, got {hessians.dtype}")
        dtypes = tuple(array.dtype for array in (gradients, hessians) if array is not None)
        lists: list[Any] = [None, None]
        size = number
        if rows is not None:
            rows = self._checked_rows(rows)
            size = rows.size
        # Slot n receives the sums of node n.
        nodes = [Node(begin, end, 0, n, 0, 0, 0.0) for n, (begin, end) in enumerate(_ranges(offsets, size))]
        shape = (features, self.n_bins) if offsets is None else (len(nodes), features, self.n_bins)
        with self._lock:
            of = self._of(dtypes)
            if rows is not None:
                memory = of.chain.place(rows)[0] if is_device_array(rows) else of.sent(rows)
                # Kernels take a list for even and one for odd depths; all nodes here have depth 0.
                lists = [memory, memory]
            of.take(gradients, hessians)
            sums = of.chain.new(max(1, len(nodes)) * of.size, np.int64)
            of.sweep(nodes, sums, lists)
            # Within the lock: the results are scaled by units that the next call overwrites.
            return _as_arrays(of, sums, len(nodes), shape, not is_device_array(gradients))

    def _of(self, dtypes: tuple[np.dtype, ...]) -> BinnedRows:
        if dtypes not in self._rows:
            # Memory for all rows: of floats, whose bins all share, and of the integers that came last.
            self._rows = {(FLOAT, FLOAT): self._rows[FLOAT, FLOAT]}
            self._rows[dtypes] = BinnedRows(self.queue, self, self.n_bins, dtypes, self._rows[FLOAT, FLOAT])
        return self._rows[dtypes]

    def _checked_rows(self, rows: Array) -> Array:
        rows = _array("rows", rows)
        if not rows.size and rows.ndim == 1 and not is_device_array(rows):
            # An empty list is an array of float64, which the check of the dtype would refuse.
            return np.empty(0, np.uint32)
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise TypeError(f"rows: expected integers of one dimension, got {rows.dtype} of shape {rows.shape}")
        rows = check_array("rows", rows, rows.dtype.newbyteorder("="), written=False)
        if rows.size:
            most, least = extremes(rows, self.queue)
            if least < 0 or most >= self.shape[0]:
                wrong = least if least < 0 else most
                raise IndexError(f"rows: expected numbers of {self.shape[0]} rows, got {wrong}")
        if is_device_array(rows):
            return rows.astype(np.uint32, queue=self.queue) if rows.offset or rows.dtype != np.uint32 else rows
        return np.ascontiguousarray(rows, np.uint32)


def _array(name: str, array: Any) -> Array:
    return array if is_device_array(array) else refuse_missing(name, array)


def _checked_values(name: str, values: Array, number: int) -> Array:
    values = _array(name, values)
    dtype = values.dtype.newbyteorder("=")
    if dtype != FLOAT and not (dtype.kind in "iu" and dtype.itemsize <= 4):
        raise TypeError(f"{name}: expected an array of float32 or of integers of at most 32 bits, got one of {dtype}")
    return check_array(name, values, dtype, written=False, shape=(number,))


def _ranges(offsets: Sequence[int] | None, size: int) -> list[tuple[int, int]]:
    if offsets is None:
        return [(0, size)]
    array = refuse_missing("offsets", offsets)
    if array.ndim != 1 or array.size < 1 or array.dtype.kind not in "iu":
        raise ValueError(f"offsets: expected integers, one more than nodes, got {array.dtype} of shape {array.shape}")
    bounds = array.tolist()
    if bounds[0] < 0 or bounds[-1] > size or any(end < begin for begin, end in pairwise(bounds)):
        raise ValueError(f"offsets: expected numbers that ascend from 0 to {size} at most, got {offsets}")
    return list(pairwise(bounds))


def _as_arrays(of: BinnedRows, sums: Any, nodes: int, shape: tuple[int, ...], is_host: bool) -> FeatureHistograms:
    """Return sums, of floats in units, as arrays of a shape."""
    if is_host:
        of.find_units()
        whole = of.chain.fetched(sums, nodes * of.size, np.int64)
        whole = whole.reshape(nodes, of.spec.sums, of.features * of.n_bins)
        counts, *others = (part.copy() for part in np.moveaxis(whole, 1, 0).reshape(of.spec.sums, *shape))
        if not of.whole:
            # Exact: a power of two only changes the exponent.
            others = [np.ldexp(part.astype(np.float64), unit) for part, unit in zip(others, of.units, strict=True)]
    else:
        queue, dtype = of.chain.queue, np.int64 if of.whole else np.float64
        counts = cl_array.empty(queue, shape, np.int64)
        others = [cl_array.empty(queue, shape, dtype) for _ in range(of.spec.sums - 1)]
        if nodes:
            of.write_apart(sums, nodes, counts, others)
        of.find_units()
    return FeatureHistograms(counts, others[0], others[1] if len(others) > 1 else None)
