"""Statistics of groups by NumPy on the host, for few elements; the results agree with those of the kernels."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from clhist.statistics.outputs import Column
from clhist.statistics.quantiles import fraction_of
from clhist.statistics.variance import CANCELLED, variance

Array = np.ndarray
# From so many elements a group on average, sorting each group is faster than one sort of all; on an EPYC of Zen 2.
_LONG = 32
# From so many elements, up to so many a group on average and cells for each, groups are sorted as rows of a table:
# 10,000 elements in 2,000 groups take 0.2 ms, and 0.4 ms by one sort of all; on an EPYC of Zen 4.
_LEAST, _ROW, _CELLS = 1 << 11, 64, 3


class Grouped:
    """The values of one column that count, and their groups, in the order of the elements.

    Parameters
    ----------
    keys, values : array of one dimension
        Groups, and as many values. Elements of groups outside [0, number) do not count.
    column : Column
        What is asked of them.
    number : int
        How many groups there are.
    nan : {"skipped", "propagated", "greatest"}, optional
        What a NaN is; by default as the column says.
    """

    def __init__(self, keys: Array, values: Array, column: Column, number: int, nan: str = "") -> None:
        self.column, self.number, self.nan = column, number, nan or ("skipped" if column.skipna else "propagated")
        groups = keys.astype(np.intp, copy=False)
        # NumPy's own dtype object: `ufunc.at` has a loop for it that is thirty times as fast.
        values = values.astype(column.dtype, copy=False).view(column.dtype.type)
        # Viewed as unsigned, negative groups are out of range as well.
        counts: Any = groups.view(np.uintp) < number
        if column.dates is not None:
            # NaT is the least integer.
            counts &= values != np.iinfo(values.dtype).min
        elif self.nan == "skipped" and values.dtype.kind in "fc":
            counts &= values == values
        self.positions: Array | None = None
        if np.count_nonzero(counts) < counts.size:  # which takes a fraction of the time of `all`
            self.positions = np.flatnonzero(counts)
            groups, values = groups[self.positions], values[self.positions]
        self.groups, self.values = groups, values

    def added(self, values: Array) -> Array:
        """Return sums of values of each group, in float64."""
        if values.dtype.kind != "c":
            return np.bincount(self.groups, values, self.number).astype(np.float64, copy=False)
        sums = np.empty(self.number, np.complex128)
        sums.real, sums.imag = self.added(values.real), self.added(values.imag)
        return sums

    def folded(self, ufunc: np.ufunc, neutral: Any, dtype: np.dtype) -> Array:
        """Return the values of each group combined by a ufunc; `neutral` for an empty one."""
        result = np.full(self.number, neutral, np.dtype(dtype.type))
        ufunc.at(result, self.groups, self.values.astype(dtype, copy=False))
        return result

    @cached_property
    def counts(self) -> Array:
        """Numbers of values of each group."""
        return np.bincount(self.groups, minlength=self.number)

    @cached_property
    def total(self) -> Array:
        """Sums of floats, in float64."""
        return self.added(self.values)

    @cached_property
    def mean(self) -> Array:
        """Means, in float64."""
        if self.total.dtype.kind != "c":
            return self.total / self.counts
        # Divide both parts by real counts: division by a complex number turns infinities into NaN.
        means = np.empty_like(self.total)
        means.real, means.imag = self.total.real / self.counts, self.total.imag / self.counts
        return means

    @cached_property
    def deviations(self) -> Array:
        """Deviations of the values from the mean of their group."""
        return self.values - self.mean[self.groups]

    @cached_property
    def moments(self) -> tuple[Array, Array, Array]:
        """Numbers of values, and sums of their deviations and of the squares of these."""
        squares = self.added(self.deviations * self.deviations)
        return self.counts.astype(np.float64), self.added(self.deviations), squares

    @cached_property
    def order(self) -> Array:
        """Values sorted by group, and within a group by value; NaN is the greatest."""
        # NumPy sorts integers of 16 bits by radix sort.
        narrow = self.groups.astype(np.uint16) if self.number <= 1 << 16 else self.groups
        size, kind = self.values.size, self.values.dtype.kind
        is_table = kind in "iuf" and _LEAST <= size <= self.number * _ROW
        if is_table and self.number * (longest := int(self.counts.max())) <= _CELLS * size:
            by_group = np.argsort(narrow, kind="stable")
            greatest = np.nan if kind == "f" else np.iinfo(self.values.dtype).max
            rows = np.full((self.number, longest), greatest, self.values.dtype)
            is_value = np.arange(longest) < self.counts[:, None]
            rows[is_value] = self.values[by_group]
            # What fills the rows equals the greatest value, and stays behind.
            rows.sort(axis=1)
            return rows[is_value]
        # Few long groups: gather each, and sort it alone. Many short ones: one sort by value, a stable one by group.
        if self.number <= size // _LONG:
            by_group = np.argsort(narrow, kind="stable")
            values, ends = self.values[by_group], np.cumsum(self.counts).tolist()
            for begin, end in zip([0, *ends], ends, strict=False):
                values[begin:end].sort()
            return values
        by_value = np.argsort(self.values)
        return self.values[by_value[np.argsort(narrow[by_value], kind="stable")]]

    def placed(self, positions: Array | None, values: Array, none: Any, *, first: bool) -> Array:
        """Return the first or the last of `values` in each group; `positions` selects their elements, None all."""
        result = np.full(self.number, none, values.dtype)
        step = -1 if first else 1
        groups = self.groups if positions is None else self.groups[positions]
        result[groups[::step]] = values[::step]  # of repeated indices NumPy keeps the last assignment
        return result


def total(grouped: Grouped) -> Array:
    """Return sums; of integers modulo 2^64."""
    column = grouped.column
    # In float64 sums of integers beyond 2^53 would round.
    if column.is_exact:
        return grouped.folded(np.add, 0, column.total)
    return grouped.total.astype(column.total)


def product(grouped: Grouped) -> Array:
    """Return products, in float64 of floats; of integers modulo 2^64."""
    wanted = grouped.column.total
    accumulator_dtype = wanted if wanted.kind in "iu" else np.dtype(np.complex128 if wanted.kind == "c" else np.float64)
    return grouped.folded(np.multiply, 1, accumulator_dtype).astype(wanted)


def least(grouped: Grouped) -> Array:
    """Return the least values."""
    return _extreme(grouped, np.minimum)


def largest(grouped: Grouped) -> Array:
    """Return the largest values."""
    return _extreme(grouped, np.maximum)


def _extreme(grouped: Grouped, ufunc: np.ufunc) -> Array:
    dtype = grouped.column.dtype
    result = grouped.folded(ufunc, _neutral(ufunc, dtype), dtype)
    if dtype.kind == "f":
        # The identity element is an infinity, which a group may have as a value.
        result[grouped.counts == 0] = np.nan
    return result


def _neutral(ufunc: np.ufunc, dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return ufunc is np.minimum
    if dtype.kind == "f":
        return np.inf if ufunc is np.minimum else -np.inf
    return np.iinfo(dtype).max if ufunc is np.minimum else np.iinfo(dtype).min


def place_of_least(grouped: Grouped) -> Array:
    """Return the positions of the least values, the first of several; -1 of none."""
    return _place_of(grouped, np.minimum)


def place_of_largest(grouped: Grouped) -> Array:
    """Return the positions of the largest values, the first of several; -1 of none."""
    return _place_of(grouped, np.maximum)


def _place_of(grouped: Grouped, ufunc: np.ufunc) -> Array:
    values, dtype = grouped.values, grouped.column.dtype
    best = grouped.folded(ufunc, _neutral(ufunc, dtype), dtype)
    matches = np.flatnonzero((values == best[grouped.groups]) | (values != values))  # a NaN is the extreme of its group
    positions = matches if grouped.positions is None else grouped.positions[matches]
    return grouped.placed(matches, positions.astype(np.int64, copy=False), -1, first=True)


def first(grouped: Grouped) -> Array:
    """Return the first values; NaN or 0 of none."""
    return grouped.placed(None, grouped.values, _none(grouped.column.dtype), first=True)


def last(grouped: Grouped) -> Array:
    """Return the last values; NaN or 0 of none."""
    return grouped.placed(None, grouped.values, _none(grouped.column.dtype), first=False)


def _none(dtype: np.dtype) -> Any:
    return np.nan if dtype.kind == "f" else 0


def any_of(grouped: Grouped) -> Array:
    """Return whether any value is not zero."""
    result = np.zeros(grouped.number, bool)
    result[grouped.groups[grouped.values != 0]] = True
    return result


def all_of(grouped: Grouped) -> Array:
    """Return whether all values are not zero."""
    result = np.ones(grouped.number, bool)
    result[grouped.groups[grouped.values == 0]] = False
    return result


def spread(name: str, grouped: Grouped) -> Array:
    """Return "var", "std", "sem", "skew" or "kurt", around the mean; the last two without bias, as pandas."""
    number, shift, squares = grouped.moments
    if name in ("skew", "kurt"):
        return _shape(name, grouped).astype(grouped.column.result)
    result = variance(number, shift, squares, grouped.column.ddof)
    if name != "var":
        result = np.sqrt(result if name == "std" else result / number)
    return result.astype(grouped.column.result)


def _shape(name: str, grouped: Grouped) -> Array:
    n, shift, squares = grouped.moments
    powers = grouped.deviations**3
    cubes, fourths = grouped.added(powers), grouped.added(powers * grouped.deviations)
    # Deviations are from the rounded mean, off by `d`: shift the moments to the exact mean.
    d = shift / n
    second = squares - d * shift
    # Equal values leave nothing but rounding errors, by which skewness must not be divided.
    second = np.where(second > squares * CANCELLED, second, 0)
    if name == "skew":
        third = cubes - 3 * d * squares + 2 * n * d**3
        return np.where((n < 3) | (second == 0), np.nan, n * np.sqrt(n - 1) / (n - 2) * third / second**1.5)
    fourth = fourths - 4 * d * cubes + 6 * d * d * squares - 3 * n * d**4
    numerator = n * (n + 1) * (n - 1) * fourth / (second * second) - 3 * (n - 1) * (n - 1)
    return np.where((n < 4) | (second == 0), np.nan, numerator / ((n - 2) * (n - 3)))


def quantile(grouped: Grouped, q: float | None = None, method: str = "linear") -> Array:
    """Return the median, or the quantile of probability `q`: as kernels interpolate, of dates in integers."""
    values = grouped.order
    counts, result = grouped.counts, grouped.column.result
    none = np.iinfo(np.int64).min if result.kind == "i" else np.nan
    if not values.size:
        return np.full(grouped.number, none, result)
    ends = np.cumsum(counts)
    if q is None and result.kind == "f":
        # Both middle values, of which an odd number has one. Empty groups read some value, too.
        places = ends - counts + (counts - 1) // 2, ends - counts + counts // 2
        low, high = (values.take(place, mode="clip").astype(result) for place in places)
        return _finished(grouped, np.where(low == high, low, (low + high) / 2), none)
    # The rank of the lower neighbour in each group, and the share of the way to the next value.
    if q is None:
        rank, share = (counts - 1) // 2, np.where(counts % 2, 0, 0.5)
    else:
        place = q * (counts - 1)
        rounded = {"higher": np.ceil, "nearest": np.rint}.get(method, np.trunc)(place)
        rank = rounded.astype(np.int64)
        share = place - rank if method in ("linear", "midpoint") else np.zeros(place.shape)
        share = np.where(share > 0, 0.5, 0) if method == "midpoint" else share
    whole = 2  # of which the share is a part, in integers
    if result.kind == "i":
        share = (2 * share).astype(np.int64)
        if q is not None and method == "linear":
            part, whole = fraction_of(q)
            rank, share = np.divmod(part * (counts - 1), whole)
    # Empty groups read some value, too, which is replaced below.
    low = np.minimum(ends - counts + np.maximum(rank, 0), values.size - 1)
    # Without a share both neighbours are one: 0 times an infinite difference would be NaN.
    a, b = values[low], values[np.where(share > 0, np.minimum(low + 1, values.size - 1), low)]
    if result.kind == "i":
        quantiles = _between_integers(a.astype(np.int64), b.astype(np.int64), share, whole)
    else:
        a, b = a.astype(np.float64), b.astype(np.float64)
        # From the nearer neighbour, as NumPy interpolates; equal infinities have no difference.
        quantiles = np.where(share < 0.5, a + (b - a) * share, b - (b - a) * (1 - share))
        quantiles = np.where((share == 0) | (a == b), a, quantiles)
    return _finished(grouped, quantiles, none)


def _finished(grouped: Grouped, quantiles: Array, none: Any) -> Array:
    """Return quantiles in the dtype of the result, `none` of empty groups and NaN where that is propagated."""
    if not grouped.counts.all():
        quantiles = np.where(grouped.counts == 0, none, quantiles)
    quantiles = quantiles.astype(grouped.column.result, copy=False)
    if grouped.nan == "propagated" and grouped.values.dtype.kind == "f":
        quantiles[grouped.groups[grouped.values != grouped.values]] = np.nan
    return quantiles


def _between_integers(a: Array, b: Array, share: Array, whole: int) -> Array:
    """Return the integers at `share / whole` of the way, rounded toward zero."""
    # Differences are unsigned, as they may exceed 63 bits; by parts no product exceeds 64 bits.
    high, low = np.divmod(b.view(np.uint64) - a.view(np.uint64), np.uint64(whole))
    unsigned = share.astype(np.uint64)
    part, rest = np.divmod(low * unsigned, np.uint64(whole))
    value = a + (high * unsigned + part).view(np.int64)
    return value + ((value < 0) & (rest > 0))


def mode(grouped: Grouped) -> Array:
    """Return the most frequent values, the least of several; NaN or 0 of none."""
    values = grouped.order
    groups = np.repeat(np.arange(grouped.number), grouped.counts)
    is_new = np.ones(values.size, bool)
    # Runs of equal values in sorted order; all NaN are one value.
    same = (values[1:] == values[:-1]) | ((values[1:] != values[1:]) & (values[:-1] != values[:-1]))
    is_new[1:] = (groups[1:] != groups[:-1]) | ~same
    begins = np.flatnonzero(is_new)
    lengths, owners = np.diff(begins, append=values.size), groups[begins]
    most = np.zeros(grouped.number, np.intp)
    np.maximum.at(most, owners, lengths)
    # Assigned in descending order, so that the least of equally frequent values remains.
    wins = np.flatnonzero(lengths == most[owners])[::-1]
    result = np.full(grouped.number, _none(values.dtype), values.dtype)
    result[owners[wins]] = values[begins[wins]]
    return result + 0 if values.dtype.kind == "f" else result  # one zero
