"""Group numbers, places, ranks and running values on the host, for few elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clhist._core.runtime import small
from clhist.grouped.dates import NAT
from clhist.grouped.keys import in_first_order, sorted_distinct
from clhist.grouped.running import Running

Array = np.ndarray
RANKS = ("average", "min", "max", "dense", "first")
"""The methods of ranks, by pandas' names."""


def joined(a: Array, num_a: int, b: Array, num_b: int, outside: int = -1) -> Array:
    """Return the numbers of the pairs of two columns, in the order of both; -1 where either number is out of range.

    Numbers of `b` that are out of range count as `outside`.
    """
    a, b = (column.reshape(-1).astype(np.intp) for column in (a, b))
    # Viewed as unsigned, negative numbers are out of range as well: one comparison instead of two.
    has_both = a.view(np.uintp) < num_a
    b = np.where(b.view(np.uintp) < num_b, b, outside)
    return np.where(has_both & (b >= 0), a * num_b + b, -1)


def numbered(numbers: Array, most: int, *, sort: bool) -> tuple[Array, Array]:
    """Return numbers in [0, most) or -1 as codes of the numbers that occur, and these numbers."""
    # For a small range, marks take less time than a sort.
    if most <= max(1 << 16, numbers.size):
        marks = np.zeros(most + 1, bool)
        marks[numbers] = True  # -1 marks the last entry
        keys = np.flatnonzero(marks[:most])
        ranks = np.full(most + 1, -1, np.int32)
        ranks[keys] = np.arange(keys.size)
        codes = ranks[numbers]
    else:
        keys, codes = np.unique(numbers, return_inverse=True)
        # Number -1, of no pair, sorts first: without it all codes fall by one, and its own is -1 again.
        if keys.size and keys[0] < 0:
            keys, codes = keys[1:], codes - 1
    return (codes, keys) if sort else in_first_order(codes, keys)[:2]


def number_of_different(keys: Array, num_groups: int, numbers: Array, num_values: int, skipna: bool) -> Array:
    """Return the number of distinct values of each group; missing values count as one more unless `skipna`."""
    values = num_values + (not skipna)
    # Each distinct pair counts once for its group, the quotient.
    pairs = sorted_distinct(joined(keys, num_groups, numbers, values, -1 if skipna else num_values))
    return np.bincount(pairs[pairs >= 0] // max(1, values), minlength=num_groups)


class Ordered:
    """The elements that are in a group, sorted by group, and within a group by value if there are values.

    Attributes
    ----------
    positions, groups : array
        Where the elements are, and their groups.
    begins, ends : array
        Where each group begins and ends in this order.
    """

    def __init__(
        self, keys: Array, number: int, values: Array | None = None, descending: bool = False, stable: bool = False
    ) -> None:
        groups = keys.astype(np.intp, copy=False)
        inside = groups.view(np.uintp) < number
        if values is not None:
            inside &= values == values
        positions = None if inside.all() else np.flatnonzero(inside)
        if values is not None:
            positions = np.arange(keys.size) if positions is None else positions
            # Reversed before and after a stable sort, equal values stay in their order.
            if descending:
                positions = positions[::-1]
            # A sort that need not be stable takes a third of the time.
            positions = positions[np.argsort(values[positions], kind="stable" if stable else None)]
            if descending:
                positions = positions[::-1]
        groups = groups if positions is None else groups[positions]
        # NumPy sorts integers of 16 bits by radix sort.
        narrow = groups.astype(np.uint16) if number <= 1 << 16 else groups
        order = np.argsort(narrow, kind="stable")
        self.positions, self.groups = order if positions is None else positions[order], groups[order]
        counts = np.bincount(groups, minlength=number)
        self.ends = np.cumsum(counts)
        self.begins = self.ends - counts


def place_of_each(keys: Array, num_groups: int, ascending: bool = True) -> Array:
    """Return how many elements of its group come before each element, or after it; -1 of one that is in no group."""
    order, places = Ordered(keys, num_groups), np.full(keys.size, -1, np.int64)
    at = np.arange(order.positions.size)
    places[order.positions] = at - order.begins[order.groups] if ascending else order.ends[order.groups] - 1 - at
    return places


def rank_of_each(
    keys: Array,
    num_groups: int,
    values: Array,
    method: str,
    ascending: bool,
    pct: bool,
    is_date: bool,
    real: np.dtype,
) -> Array:
    """Return the rank of each value in its group, from 1 on, or its part of the largest; NaN of NaN and NaT."""
    if is_date:
        # NaT, the least integer, is in no group.
        keys = np.where(values == np.iinfo(values.dtype).min, -1, keys.astype(np.intp))
    order = Ordered(keys, num_groups, values, not ascending, method == "first")
    result = np.full(keys.size, np.nan, real)
    number, groups = order.positions.size, order.groups
    if not number:
        return result
    ordered = values[order.positions]
    # Runs of equal values in a group: their first elements, then the run of each element.
    is_new = np.ones(number, bool)
    is_new[1:] = (groups[1:] != groups[:-1]) | (ordered[1:] != ordered[:-1])
    runs, firsts = np.cumsum(is_new) - 1, np.append(np.flatnonzero(is_new), number)
    # Ranks count from the begin of the group; all elements of a run share `low` and `high`.
    begins = order.begins[groups]
    dense = runs - runs[begins] + 1
    low, high = firsts[runs] - begins + 1, firsts[runs + 1] - begins
    ranks = {
        "average": (low + high) / 2,
        "min": low,
        "max": high,
        "dense": dense,
        "first": np.arange(number) - begins + 1,
    }
    ends = order.ends[groups]
    # The largest rank of the group: its number of runs if dense, else of values.
    most = (runs[ends - 1] - runs[begins] + 1 if method == "dense" else ends - begins) if pct else 1
    result[order.positions] = ranks[method] / most
    return result


def running_of_each(keys: Array, num_groups: int, values: Array, of: Running) -> Array:
    """Return for each element the combination of the values of its group up to this one."""
    none = np.nan if of.result.kind == "f" else 0
    if of.missing:  # NaN, or NaT
        none = none if of.dtype.kind == "f" else NAT
        # Values that are left out belong to no group: they do not count, and get `none`.
        keys = np.where(values != values if of.dtype.kind == "f" else values == NAT, -1, keys.astype(np.intp))
    order = Ordered(keys, num_groups)
    values = values[order.positions].astype(of.ufunc_dtype)
    with np.errstate(all="ignore"):
        items = _accumulated(values, order, of.ufunc)
        if of.is_compensated:
            items = _compensated(items, values, order)
        result = np.full(keys.size, none, of.result)
        result[order.positions] = items.astype(of.result)
    return result


def _accumulated(values: Array, order: Ordered, ufunc: np.ufunc) -> Array:
    """Return the running combination of the ordered values of each group by a ufunc."""
    counts = order.ends - order.begins
    num_groups, longest = len(counts), int(counts.max(initial=0))
    # Take the loop with the fewest steps in Python: over groups, none, or over places in groups.
    if np.count_nonzero(counts) <= longest:  # along each group
        items = np.empty_like(values)
        for begin, end in zip(order.begins.tolist(), order.ends.tolist(), strict=True):
            if begin < end:
                ufunc.accumulate(values[begin:end], out=items[begin:end])
        return items
    if num_groups * longest <= 4 * values.size:  # along the rows of a table, one for each group
        is_value = np.arange(longest) < counts[:, None]  # a mask of rows selects in order, faster than two indices
        table = np.zeros((num_groups, longest), values.dtype)
        table[is_value] = values
        return ufunc.accumulate(table, 1)[is_value] if longest else values
    items = values.copy()
    for step in range(1, longest):  # along all groups side by side
        at = order.begins[counts > step] + step
        items[at] = ufunc(items[at - 1], items[at])
    return items


def _compensated(sums: Array, values: Array, order: Ordered) -> Array:
    """Return running sums corrected by the sums of their rounding errors (TwoSum), as the kernels compute them."""
    before = np.zeros_like(sums)
    before[1:] = sums[:-1]
    # A group starts from 0, not from the sum of the group before; an empty one has no first element.
    before[order.begins[order.ends > order.begins]] = 0
    rest = sums - before
    errors = _accumulated((before - (sums - rest)) + (values - rest), order, np.add)
    return np.where(errors == errors, sums + errors, sums)  # an infinite sum has no errors


def nth_of_groups(keys: Array, num_groups: int, values: Array, n: int, none: object) -> Array:
    """Return the n-th value of each group, from its end if `n` is negative; `none` where there are fewer."""
    order, result = Ordered(keys, num_groups), np.full(num_groups, none, values.dtype)
    at = (order.ends if n < 0 else order.begins) + n
    there = (at >= order.begins) & (at < order.ends)
    result[there] = values[order.positions[at[there]]]
    return result


_ROWS = {running_of_each: "running", rank_of_each: "rank"}


def rows_pay_off(function: Callable[..., Array], size: int) -> bool:
    """Return whether a device computes a function sooner, though the host computes other statistics of these groups."""
    if function not in _ROWS or not small.pays_off(_ROWS[function], size):
        return False
    from clhist._core.opencl.device import default_queue, has_fp64  # PyOpenCL, which few elements do without

    return has_fp64(default_queue().device)  # as results of groups on the host have


def result_of_each(keys: Array, results: Array, none: Any = None) -> Array:
    """Return the result of the group of each element; `none`, or NaN, 0 or False, of one that is in no group."""
    # Numbers outside of the groups, also negative ones, select the entry behind the results.
    places = np.minimum(keys.astype(np.intp, copy=False).view(np.uintp), np.uintp(len(results)))
    return np.append(results, value_of_none(results.dtype, none)).take(places.view(np.intp))


def value_of_none(dtype: np.dtype, none: Any) -> Any:
    """Return the result of an element that is in no group, as a scalar of `dtype`: by default NaN, 0 or False."""
    if none is None:
        none = np.nan if dtype.kind in "fc" else 0
    return dtype.type(none)
