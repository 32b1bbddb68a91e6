"""Numbers, places, ranks and running values of groups on the host, for few elements."""

from __future__ import annotations

import numpy as np

from clhist.grouped.dates import NAT
from clhist.grouped.keys import in_first_order, sorted_distinct
from clhist.grouped.running import Running

Array = np.ndarray


def joined(a: Array, num_a: int, b: Array, num_b: int, outside: int = -1) -> Array:
    """Return numbers of two columns as one in the order of both, -1 where either has none; the second has `outside`."""
    a, b = (each.reshape(-1).astype(np.intp) for each in (a, b))
    has_both = a.view(np.uintp) < num_a
    b = np.where(b.view(np.uintp) < num_b, b, outside)
    return np.where(has_both & (b >= 0), a * num_b + b, -1)


def numbered(numbers: Array, most: int, *, sort: bool) -> tuple[Array, Array]:
    """Return numbers in [0, most), of which some may be -1, as numbers of those that occur, and these."""
    if most <= max(1 << 16, numbers.size):  # marks take less time than a sort
        marks = np.zeros(most + 1, bool)
        marks[numbers] = True  # the last is that of -1
        keys = np.flatnonzero(marks[:most])
        ranks = np.full(most + 1, -1, np.int32)
        ranks[keys] = np.arange(keys.size)
        found = ranks[numbers]
    else:
        keys, found = np.unique(numbers, return_inverse=True)
        if keys.size and keys[0] < 0:
            keys, found = keys[1:], found - 1
    return (found, keys) if sort else in_first_order(found, keys)[:2]


def number_of_different(keys: Array, num_groups: int, numbers: Array, num_values: int, skipna: bool) -> Array:
    """Return how many different values each group has, of the numbers of the values; others are one more, or none."""
    values = num_values + (not skipna)
    pairs = sorted_distinct(joined(keys, num_groups, numbers, values, -1 if skipna else num_values))
    return np.bincount(pairs[pairs >= 0] // max(1, values), minlength=num_groups)


class Ordered:
    """The elements that are in a group, in the order of their groups; of a group by value if there are values.

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
            if descending:  # equal ones stay in their order
                positions = positions[::-1]
            # A sort that is not stable takes a third of the time.
            positions = positions[np.argsort(values[positions], kind="stable" if stable else None)]
            if descending:
                positions = positions[::-1]
        groups = groups if positions is None else groups[positions]
        narrow = groups.astype(np.uint16) if number <= 1 << 16 else groups  # which NumPy sorts by digits
        order = np.argsort(narrow, kind="stable")
        self.positions, self.groups = order if positions is None else positions[order], groups[order]
        counts = np.bincount(groups, minlength=number)
        self.ends = np.cumsum(counts)
        self.begins = self.ends - counts


def place_of_each(keys: Array, num_groups: int, ascending: bool = True) -> Array:
    """Return how many elements of its group come before each element, or after it; -1 of one that is in no group."""
    order, found = Ordered(keys, num_groups), np.full(keys.size, -1, np.int64)
    at = np.arange(order.positions.size)
    found[order.positions] = at - order.begins[order.groups] if ascending else order.ends[order.groups] - 1 - at
    return found


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
        keys = np.where(values == np.iinfo(values.dtype).min, -1, keys.astype(np.intp))
    order, found = Ordered(keys, num_groups, values, not ascending, method == "first"), np.full(keys.size, np.nan, real)
    number, groups = order.positions.size, order.groups
    if not number:
        return found
    ordered = values[order.positions]
    is_new = np.ones(number, bool)
    is_new[1:] = (groups[1:] != groups[:-1]) | (ordered[1:] != ordered[:-1])
    runs, firsts = np.cumsum(is_new) - 1, np.append(np.flatnonzero(is_new), number)
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
    most = (runs[ends - 1] - runs[begins] + 1 if method == "dense" else ends - begins) if pct else 1
    found[order.positions] = ranks[method] / most
    return found


def running_of_each(keys: Array, num_groups: int, values: Array, of: Running) -> Array:
    """Return what the elements of its group up to each element are combined to."""
    none = np.nan if of.result.kind == "f" else 0
    if of.missing:  # NaN, or NaT
        none = none if of.dtype.kind == "f" else NAT
        keys = np.where(values != values if of.dtype.kind == "f" else values == NAT, -1, keys.astype(np.intp))
    order, ufunc = Ordered(keys, num_groups), of.ufunc
    held = values[order.positions].astype(of.accumulator)
    counts = order.ends - order.begins
    longest = int(counts.max(initial=0))
    with np.errstate(all="ignore"):
        if num_groups * longest <= 4 * keys.size:  # along the rows of a table, one for each group
            table = np.zeros((num_groups, longest), held.dtype)
            places = np.arange(held.size) - order.begins[order.groups]
            table[order.groups, places] = held
            held = ufunc.accumulate(table, 1)[order.groups, places] if longest else held
        elif np.count_nonzero(counts) <= longest:  # along each group
            for group in np.flatnonzero(counts).tolist():
                part = held[order.begins[group] : order.ends[group]]
                ufunc.accumulate(part, out=part)
        else:  # along all groups side by side
            for step in range(1, longest):
                at = order.begins[counts > step] + step
                held[at] = ufunc(held[at - 1], held[at])
        found = np.full(keys.size, none, of.result)
        found[order.positions] = held.astype(of.result)
    return found


def nth_of_groups(keys: Array, num_groups: int, values: Array, n: int, none: object) -> Array:
    """Return the n-th value of each group, from its end if `n` is negative; `none` where there are fewer."""
    order, found = Ordered(keys, num_groups), np.full(num_groups, none, values.dtype)
    at = (order.ends if n < 0 else order.begins) + n
    there = (at >= order.begins) & (at < order.ends)
    found[there] = values[order.positions[at[there]]]
    return found
