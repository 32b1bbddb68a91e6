"""Statistics by bins of few plain numbers, by NumPy: bins and results are SciPy's, which takes a second to import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clhist.binned.inputs import are_plain
from clhist.statistics.host import Grouped, quantile
from clhist.statistics.outputs import Column

Array = np.ndarray
_FLOAT64, _NUMBERS = np.dtype(np.float64), frozenset({int, float})
_COLUMN = Column(_FLOAT64, ("median",), False, 0, _FLOAT64, _FLOAT64)


def _mean(numbers: Array, values: Array, size: int) -> Array:
    return np.bincount(numbers, values, size) / np.bincount(numbers, minlength=size)


def _median(numbers: Array, values: Array, size: int) -> Array:
    return quantile(Grouped(numbers, values, _COLUMN, size, "greatest"))


def _least(numbers: Array, values: Array, size: int) -> Array:
    result = np.full(size, np.nan)
    np.fmin.at(result, numbers, values)  # which takes any value in the place of NaN
    return result


def _largest(numbers: Array, values: Array, size: int) -> Array:
    result = np.full(size, -np.inf)
    np.maximum.at(result, numbers, values)
    result[np.bincount(numbers, minlength=size) == 0] = np.nan
    return result


def _deviation(numbers: Array, values: Array, size: int) -> Array:
    """Return standard deviations, those of large values with a small spread, too: around a value of the bin."""
    first = np.empty(size, np.intp)
    # NumPy keeps the last assignment to repeated indices: the first element of each bin.
    first[numbers[::-1]] = np.arange(numbers.size)[::-1]
    values = values - values[first[numbers]]
    counts = np.bincount(numbers, minlength=size)
    deviations = values - (np.bincount(numbers, values, size) / counts)[numbers]
    return np.sqrt(np.bincount(numbers, deviations * deviations, size) / counts)


_STATISTICS: dict[str, Callable[[Array, Array, int], Array]] = {
    "count": lambda numbers, values, size: np.bincount(numbers, minlength=size).astype(np.float64),
    "sum": lambda numbers, values, size: np.bincount(numbers, values, size),
    "mean": _mean,
    "median": _median,
    "min": _least,
    "max": _largest,
    "std": _deviation,
}


def are_plain_statistics(sample: Any, values: Any, statistic: Any, bins: Any, range: Any) -> bool:
    """Whether these need no checks: plain columns, in bins of one width between finite ends, and float64 values."""
    if type(statistic) is not str or statistic not in _STATISTICS or type(sample) is not list or len(sample) > 2:
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


def few_statistics(
    sample: Sequence[Array], values: Array, statistic: str, bins: int, range: Any, *, expand: bool
) -> tuple[Array, list[Array], Array] | None:
    """Return a statistic of plain columns, the edges of each dimension, and the number of the bin of each point.

    None where SciPy raises: of points that are not finite, and of bins without a width.
    """
    dtype = sample[0].dtype if sample[0].dtype.kind == "f" else _FLOAT64
    edges, numbers, width = [], [], bins + 2  # points below and above the edges have a bin, too
    for n, column in enumerate(sample):
        if not np.isfinite(column).all():
            return None
        low, high = (float(column.min()), float(column.max())) if range is None else range[n]
        if low == high:
            # A bin of no width would be an error: widen the range as SciPy does.
            low, high = low - 0.5, high + 0.5
        axis = np.linspace(low, high, bins + 1, dtype=dtype)
        least = np.diff(axis).min()
        if not least > 0:
            return None
        # Numbers from 0, below all edges, to bins + 1, above all.
        places = np.digitize(column, axis)
        # The last bin has its upper edge, and what rounds to it.
        decimals = int(-np.log10(least)) + 6
        on_edge = np.flatnonzero(column >= axis[-1])
        places[on_edge[np.around(column[on_edge], decimals) == np.around(axis[-1], decimals)]] -= 1
        edges.append(axis)
        numbers.append(places)
    flat = numbers[0] if len(numbers) == 1 else numbers[0] * width + numbers[1]
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN, infinities of both signs, bins without values
        table = _STATISTICS[statistic](flat, values, width ** len(sample)).reshape((width,) * len(sample))
    # Without the bins outside of the edges.
    core = table[(slice(1, -1),) * len(sample)]
    return core, edges, np.stack(numbers) if expand and len(sample) > 1 else flat
