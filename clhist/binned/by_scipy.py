"""SciPy's own statistics by bins: of few elements, and of what no kernel can."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from clhist._core.opencl.elementwise import as_numbers
from clhist._core.runtime.reading import check_width
from clhist.binned.inputs import are_plain, mask_array
from clhist.binned.points import Points
from clhist.binned.statistic_results import BinnedStatisticddResult
from clhist.operators.halves import number_of
from clhist.statistics.table import TABLE

KNOWN = frozenset({"mean", "std", "median", "count", "sum", "min", "max"})
"""The statistics that SciPy has by name. Kernels compute all others, of however few elements."""


@lru_cache(maxsize=1)
def scipy_functions() -> Any:
    """Return SciPy's functions as they are now: if a program replaced them by ours, ours would call themselves."""
    try:
        from scipy.stats import _binned_statistic
    except ImportError as error:
        raise ImportError("clhist.stats needs SciPy, which computes few elements: pip install scipy") from error
    return _binned_statistic


def are_plain_statistics(sample: Any, values: Any, statistic: Any, bins: Any, range: Any) -> bool:
    """Whether SciPy does as kernels do without checks: plain columns in bins of one width between finite ends."""
    if type(statistic) is not str or statistic not in _AS_SCIPY or type(sample) is not list or len(sample) > 2:
        return False
    if not are_plain(sample, bins) or sample[0].ndim != 1 or type(values) is not np.ndarray or not values.size:
        return False
    if values.shape != sample[0].shape or values.dtype != _FLOAT64:
        return False
    if range is None:
        return True
    if type(range) not in (list, tuple) or len(range) != len(sample):
        return False
    return all(
        type(ends) in (list, tuple)
        and len(ends) == 2
        and _NUMBERS.issuperset(map(type, ends))
        and -np.inf < ends[0] < ends[1] < np.inf
        for ends in range
    )


_AS_SCIPY = KNOWN - {"std"}  # std subtracts a value of the bin first, which SciPy does not
_FLOAT64, _NUMBERS = np.dtype(np.float64), frozenset({int, float})


def rounds(names: Sequence[str] | None) -> bool:
    """Whether one of these statistics adds up values, so that it may depend on their order; so may any callable."""
    return names is None or any(TABLE[name].rounds for name in names)


def unknown(names: Sequence[str] | None) -> str | None:
    """Return the first of these statistics that SciPy does not have by name, if there is one."""
    return next((name for name in names or () if name not in KNOWN), None)


def _numbers(result: Any, given: Any, where: np.ndarray | None, again: Any, expand: bool) -> Any:
    """Return the bin numbers of all points, also of those that were not chosen."""
    if where is None:
        return result.binnumber
    return numbers_by_scipy(given, result.bin_edges, expand) if again is None else again.binnumber


def _check_widths(points: Points | None, values: Any) -> None:
    """Raise ValueError for Python's integers beyond 64 bits."""
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
    """Return SciPy's own result for arrays on the host, as `clhist.stats.binned_statistic_dd` has it.

    Parameters
    ----------
    points : Points or None
        The `sample`; None of what is no array of two dimensions.
    statistic : str, callable, or sequence of str
        As of the caller.
    names : sequence of str, or None
        The statistics by name; None of another callable.
    edges : sequence of array, or None
        Of each dimension, for binnable points; else SciPy makes them of `bins` and `range`.
    """
    given = sample if points is None else _numbers_of(points)
    counts_only = are_counts(names)
    _check_widths(points, None if counts_only else values)
    values = np.zeros((*np.shape(values)[:-1], 1)) if counts_only else np.asarray(values)  # counts: a shape alone
    kept = values.shape[:-1]
    values = values if counts_only or names is None else _as_kernels(values)
    whole, chosen = again, given
    if where is not None:
        where = mask_array(where, (_size(points, given),))
        chosen, again = _chosen(given, where), again and again._replace(binnumber=again.binnumber[where])
        values = values if counts_only else values[..., where]
    rows = values.reshape(prod(kept), values.shape[-1]) if values.ndim > 2 else values
    if edges is not None:
        bins, range = [as_numbers(each) for each in edges], _ends(edges)
    each = statistic if isinstance(statistic, list | tuple) else [statistic]

    compute = scipy_functions().binned_statistic_dd
    results = [
        (_std if one in ("std", np.std) else compute)(chosen, rows, one, bins, range, expand, again) for one in each
    ]
    number = _numbers(results[0], given, where, whole, expand) if binnumber else None
    of_edges = {} if edges is None else {"bin_edges": list(edges)}
    found = [each.statistic.reshape(*kept, *map(_bins, each.bin_edges)) for each in results]
    several = isinstance(statistic, list | tuple)
    one_or_all = dict(zip(names or (), found, strict=True)) if several else found[0]
    made = BinnedStatisticddResult(*results[0])
    return made._replace(statistic=one_or_all, binnumber=number, **of_edges)


def _std(sample: Any, values: np.ndarray, name: Any, bins: Any, range: Any, expand: bool, again: Any) -> Any:
    """Return SciPy's standard deviations; those of large values with a small spread are exact, too.

    SciPy adds up the values themselves. Here each bin's are relative to one of them.
    """
    function = scipy_functions().binned_statistic_dd
    bins_of = function(sample, values, "count", bins, range, False, again)
    numbers = bins_of.binnumber
    if not np.size(numbers) or values.dtype.kind not in "iuf" or values.shape[-1] != len(numbers):
        return function(sample, values, name, bins, range, expand, again)
    _, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    values = values.astype(np.float64)
    return function(sample, values - values[..., first][..., places], name, bins, range, expand, bins_of)


def _numbers_of(points: Points) -> Any:
    """Return a sample in types that SciPy computes with: bytes for booleans, float32 for halves, which it overflows."""

    def converted(array: Any) -> Any:
        return array.view(np.uint8) if array.dtype.kind == "b" else as_numbers(array)

    given = points.as_given
    for each in given if isinstance(given, list) else [given]:
        if each.dtype.itemsize <= 2:
            return [converted(each) for each in given] if isinstance(given, list) else converted(given)
    return given


def are_counts(names: Sequence[str] | None) -> bool:
    """Whether statistics need no values: all are counts."""
    return names is not None and set(names) == {"count"}


def _chosen(sample: Any, where: np.ndarray) -> Any:
    return [each[where] for each in sample] if isinstance(sample, list) else np.asarray(sample)[where]


def _size(points: Points | None, sample: Any) -> int:
    return int(np.shape(sample)[-1 if isinstance(sample, list | tuple) else 0]) if points is None else points.size


def numbers_by_scipy(sample: Any, edges: Sequence[np.ndarray], expand: bool) -> np.ndarray:
    """Return the number of the bin of each point of a sample on the host."""
    found = scipy_functions().binned_statistic_dd(sample, np.zeros(1), "count", list(edges), _ends(edges), expand)
    return np.asarray(found.binnumber)


def _ends(edges: Sequence[np.ndarray]) -> list[tuple[Any, Any]]:
    """Return a range, without which SciPy looks for the least element, of none as well."""
    return [(each[0], each[-1]) for each in edges]


def _bins(edges: np.ndarray) -> int:
    return len(edges) - 1


def _as_kernels(values: np.ndarray) -> np.ndarray:
    """Return values in the type in which kernels combine them: SciPy adds up the two in the middle in their own."""
    dtype = values.dtype
    if dtype.kind in "biu":
        return values.astype(np.float64)
    return values.astype(number_of(dtype.newbyteorder("=")), copy=False)
