"""Binned statistics computed by SciPy: for few elements that need checks, and for arguments that no kernel supports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from clhist._core.opencl.halves import as_numbers
from clhist._core.runtime.reading import check_width
from clhist.binned.inputs import mask_array
from clhist.binned.points import Points
from clhist.binned.statistic_results import BinnedStatisticddResult
from clhist.operators.halves import number_of
from clhist.statistics.table import TABLE

SCIPY_STATISTICS = frozenset({"mean", "std", "median", "count", "sum", "min", "max"})
"""The statistics that SciPy has by name. Kernels compute all others, however few the elements."""


@lru_cache(maxsize=1)
def scipy_functions() -> Any:
    """Return SciPy's module of binned statistics.

    The functions are taken from the private module, since a program may have replaced the public ones by ours.
    """
    try:
        from scipy.stats import _binned_statistic
    except ImportError as error:
        raise ImportError("clhist.stats needs SciPy, which computes few elements: pip install scipy") from error
    return _binned_statistic


def rounds(names: Sequence[str] | None) -> bool:
    """Return whether a statistic may depend on the order of the values: it adds them up, or is a callable (None)."""
    return names is None or any(TABLE[name].rounds for name in names)


def unknown(names: Sequence[str] | None) -> str | None:
    """Return the first statistic that SciPy does not have by name, or None."""
    return next((name for name in names or () if name not in SCIPY_STATISTICS), None)


def _numbers(result: Any, sample: Any, where: np.ndarray | None, again: Any, expand: bool) -> Any:
    """Return the bin numbers of all points, including those that `where` excludes."""
    if where is None:
        return result.binnumber
    return numbers_by_scipy(sample, result.bin_edges, expand) if again is None else again.binnumber


def _check_widths(points: Points | None, values: Any) -> None:
    """Raise ValueError if a Python integer exceeds 64 bits."""
    for array in () if points is None else points.arrays:
        check_width("sample", array, array)
    if values is not None:
        array = np.asarray(values)
        check_width("values", array, array)


def by_scipy(  # noqa: PLR0913  # SciPy's arguments, and what was read of them
    points: Points | None,
    sample: Any,
    values: Any,
    statistic: Any,
    names: Sequence[str] | None,
    bins: Any,
    range: Any,
    edges: Sequence[np.ndarray] | None,
    *,
    expand: bool,
    again: Any,
    where: Any,
    binnumber: bool,
) -> Any:
    """Compute `clhist.stats.binned_statistic_dd` by SciPy, for arrays on the host.

    Parameters
    ----------
    points : Points or None
        The validated `sample`; None if it is not an array of two dimensions.
    sample, values, bins, range, where, binnumber
        As of `clhist.stats.binned_statistic_dd`.
    statistic : str, callable, or sequence of str
        As the caller passed it.
    names : sequence of str, or None
        The statistics by name; None for a callable that has no name.
    edges : sequence of array, or None
        Of each dimension, for binnable points; else SciPy makes them of `bins` and `range`.
    expand : bool
        SciPy's `expand_binnumbers`.
    again : result, optional
        SciPy's `binned_statistic_result`, whose bins are reused.
    """
    coordinates = sample if points is None else _numbers_of(points)
    counts_only = are_counts(names)
    _check_widths(points, None if counts_only else values)
    # Counts need the shape of the values only.
    values = np.zeros((*np.shape(values)[:-1], 1)) if counts_only else np.asarray(values)
    leading_shape = values.shape[:-1]
    values = values if counts_only or names is None else _as_kernels(values)
    # SciPy has no mask, so pass it the chosen points; `whole` keeps the bin numbers of all points.
    whole, chosen = again, coordinates
    if where is not None:
        where = mask_array(where, (_size(points, coordinates),))
        chosen, again = _chosen(coordinates, where), again and again._replace(binnumber=again.binnumber[where])
        values = values if counts_only else values[..., where]
    # SciPy takes at most two dimensions of values.
    rows = values.reshape(prod(leading_shape), values.shape[-1]) if values.ndim > 2 else values
    if edges is not None:
        bins, range = [as_numbers(axis_edges) for axis_edges in edges], _ends(edges)
    several = isinstance(statistic, list | tuple)
    requested = statistic if several else [statistic]

    compute = scipy_functions().binned_statistic_dd
    results = [
        (_std if one in ("std", np.std) else compute)(chosen, rows, one, bins, range, expand, again)
        for one in requested
    ]
    number = _numbers(results[0], coordinates, where, whole, expand) if binnumber else None
    of_edges = {} if edges is None else {"bin_edges": list(edges)}
    statistics = [result.statistic.reshape(*leading_shape, *map(_bins, result.bin_edges)) for result in results]
    one_or_all = dict(zip(names or (), statistics, strict=True)) if several else statistics[0]
    made = BinnedStatisticddResult(*results[0])
    return made._replace(statistic=one_or_all, binnumber=number, **of_edges)


def _std(sample: Any, values: np.ndarray, name: Any, bins: Any, range: Any, expand: bool, again: Any) -> Any:
    """Return standard deviations by SciPy that are exact for large values with a small spread as well.

    SciPy adds up the values themselves. Here the first value of each bin is subtracted before.
    """
    function = scipy_functions().binned_statistic_dd
    bins_of = function(sample, values, "count", bins, range, False, again)
    numbers = bins_of.binnumber
    # All other arguments are left to SciPy, which computes them or raises.
    if not np.size(numbers) or values.dtype.kind not in "iuf" or values.shape[-1] != len(numbers):
        return function(sample, values, name, bins, range, expand, again)
    # The first element of each bin, and the bin of each element among those that occur.
    _, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    values = values.astype(np.float64)
    return function(sample, values - values[..., first][..., places], name, bins, range, expand, bins_of)


def _numbers_of(points: Points) -> Any:
    """Return a sample in types that SciPy computes with: bytes for booleans, float32 for halves, which overflow."""

    def converted(array: Any) -> Any:
        return array.view(np.uint8) if array.dtype.kind == "b" else as_numbers(array)

    sample = points.as_given
    for column in sample if isinstance(sample, list) else [sample]:
        # Booleans and halves have at most 2 bytes.
        if column.dtype.itemsize <= 2:
            return [converted(column) for column in sample] if isinstance(sample, list) else converted(sample)
    return sample


def are_counts(names: Sequence[str] | None) -> bool:
    """Return whether all statistics are counts, which need no values."""
    return names is not None and set(names) == {"count"}


def _chosen(sample: Any, where: np.ndarray) -> Any:
    return [column[where] for column in sample] if isinstance(sample, list) else np.asarray(sample)[where]


def _size(points: Points | None, sample: Any) -> int:
    return int(np.shape(sample)[-1 if isinstance(sample, list | tuple) else 0]) if points is None else points.size


def numbers_by_scipy(sample: Any, edges: Sequence[np.ndarray], expand: bool) -> np.ndarray:
    """Return the bin number of each point of a sample on the host."""
    result = scipy_functions().binned_statistic_dd(sample, np.zeros(1), "count", list(edges), _ends(edges), expand)
    return np.asarray(result.binnumber)


def _ends(edges: Sequence[np.ndarray]) -> list[tuple[Any, Any]]:
    """Return a range for SciPy, which without one takes the minimum of the sample and fails if that is empty."""
    return [(axis_edges[0], axis_edges[-1]) for axis_edges in edges]


def _bins(edges: np.ndarray) -> int:
    return len(edges) - 1


def _as_kernels(values: np.ndarray) -> np.ndarray:
    """Return values in the dtype of the kernels; SciPy would average medians in the values' own dtype."""
    dtype = values.dtype
    if dtype.kind in "biu":
        return values.astype(np.float64)
    return values.astype(number_of(dtype.newbyteorder("=")), copy=False)
