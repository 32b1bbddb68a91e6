"""Thresholds of bins: for each edge the least number of the data's dtype that is not below it.

Libraries compare data with edges in a common type, with roundings of their own. The same comparison, done on the host,
turns edges into keys of the data's dtype (`clhist._core.keys`); a kernel that compares keys finds the same bins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clhist._core.keys import Array, bits_dtype, from_keys, key_dtype, key_of, key_range, keys_of
from clhist.operators.halves import number_of

EXACT = 2.0**53  # float64 holds all integers up to here
GREATEST = {char: float(np.finfo(char).max) for char in "efd"}
_NEAR = 64  # keys: a decimal that a rounding begins at is known to a few


@dataclass(frozen=True)
class Thresholds:
    """Bins of one axis for data of one dtype.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the data.
    num_bins : int
        Bins of the axis. The last ones have no keys if their edges are above every number of `dtype`.
    keys : array
        Least key of each bin that a number can be in, ascending.
    last : int
        Greatest key within the last bin.
    """

    dtype: np.dtype
    num_bins: int
    keys: Array
    last: int

    @property
    def is_empty(self) -> bool:
        """Whether no number of the dtype lies in any bin."""
        return not len(self.keys) or self.last < int(self.keys[0])


def are_exact(*numbers: Any) -> bool:
    """Whether numbers are Python's, and float64 holds them: NumPy then treats integers as it treats floats."""
    return all(type(x) is float or (type(x) is int and -EXACT <= x <= EXACT) for x in numbers)


def numpy_bins(edges: Array, dtype: np.dtype, via: np.dtype | None = None) -> Thresholds:
    """Return thresholds of bins that are closed on the left, the last one on both sides, as NumPy's.

    Parameters
    ----------
    edges : array
        Ascending, without NaN; two or more.
    dtype : numpy.dtype
        Of the data.
    via : numpy.dtype, optional
        What the data is converted to before it is compared, as a sample of several dtypes is.
    """
    if via is None and edges.dtype.kind == dtype.kind == "f":
        last = _last_key(edges[-1], dtype)
    else:
        stop = first_keys(edges[-1:], dtype, via, strict=True)
        # Without a number above the last edge, the last bin ends with the greatest key.
        last = int(stop[0]) - 1 if len(stop) else key_range(dtype)[1]
    return Thresholds(dtype, len(edges) - 1, first_keys(edges[:-1], dtype, via), last)


def rounded_bins(edges: Array, dtype: np.dtype, via: np.dtype | None = None) -> Thresholds:
    """Return thresholds of bins as SciPy's: the last one also has what is not below its upper edge and rounds to it."""
    # Round in float32: half precision would overflow.
    number = number_of(dtype if via is None else via)
    exact = edges.astype(number_of(edges.dtype), copy=False)
    # SciPy's number of decimals, from the least width of a bin.
    decimals = int(-np.log10(np.diff(exact).min())) + 6
    end = exact[-1]
    with np.errstate(all="ignore"):
        rounded = np.around(end, decimals)

        def is_behind(x: Array) -> Array:
            x = x.astype(number, copy=False)
            return (x >= end) & (np.around(x, decimals) != rounded)

        # What rounds to another number begins half a decimal behind the rounded edge.
        near = number.type(rounded + 0.5 * 10.0**-decimals)
        stop = _bisect(is_behind, dtype, 1, near)
    last = int(stop[0]) - 1 if len(stop) else key_range(dtype)[1]
    return Thresholds(dtype, len(edges) - 1, first_keys(edges[:-1], dtype, via), last)


def within_range(bins: Thresholds, low: Any, high: Any) -> Thresholds:
    """Return `bins` whose ends are those of ``x >= low`` and ``x <= high``, as NumPy compares an array with scalars.

    NumPy's uniform bins ignore what is outside of the range before looking at the edges, which may be rounded.
    """
    start, last = keys_within(low, high, bins.dtype)
    if start > last or not len(bins.keys):
        return replace(bins, keys=bins.keys[:0])
    keys = np.maximum(bins.keys, bins.keys.dtype.type(start))
    # The range decides where the first bin begins, also if its rounded edge is above `low`.
    keys[0] = start
    return Thresholds(bins.dtype, bins.num_bins, keys, last)


def keys_within(low: Any, high: Any, dtype: np.dtype) -> tuple[int, int]:
    """Return the keys of the least and the greatest x with ``x >= low`` and ``x <= high``; in no order if none is."""
    start, greatest = _scalar_key(low, dtype, strict=False), key_range(dtype)[1]
    return (greatest, greatest - 1) if start is None else (start, _last_key(high, dtype))


def first_keys(edges: Array, dtype: np.dtype, via: np.dtype | None = None, *, strict: bool = False) -> Array:
    """Return for each edge the key of the least x with ``x >= edge``, or ``x > edge`` if `strict`.

    There are fewer keys than edges if the last edges are above every number of `dtype`.
    """
    kinds = edges.dtype.kind, dtype.kind
    # The most frequent case: no comparison rounds.
    if via is None and kinds == ("f", "f") and dtype.itemsize <= edges.dtype.itemsize <= 8:
        return rounded_up(edges, dtype, strict)
    middle = dtype if via is None else via
    common = np.result_type(middle, edges.dtype)
    with np.errstate(all="ignore"):
        compared = edges.astype(common)
        # Floats: each edge is rounded up to the data's dtype.
        if common.kind == dtype.kind == "f" and common.itemsize <= 8 and middle.kind == "f":
            return rounded_up(compared, dtype, strict)
        # Edges are numbers of the data's dtype, so no comparison rounds.
        if common == dtype and dtype.kind in "iumM":
            return _step(keys_of(compared), dtype, strict)
        # Integers of another dtype: those within the data's are numbers of it.
        if edges.dtype.kind in "iu" and dtype.kind in "iu" and common.kind in "iu":
            return _clipped(compared, dtype, strict)
        # Integers that float64 holds: the comparison is exact, and a ceiling does.
        if dtype.kind in "iu" and common == np.float64 and _holds(compared, dtype):
            return _ceiling(compared, dtype, strict)
        # All other comparisons round in their own ways, so search for the least number for which they hold.
        compare = np.greater if strict else np.greater_equal
        return _bisect(lambda x: compare(x.astype(middle).astype(common), compared), dtype, len(edges))


def _step(keys: Array, dtype: np.dtype, strict: bool) -> Array:
    """Return first keys from those of the edges themselves, which are numbers of `dtype` but no floats."""
    if strict:
        # Nothing is above the greatest number; its key plus 1 would wrap.
        reachable = int(np.searchsorted(keys, key_range(dtype)[1], "left"))
        return keys[:reachable] + 1
    return keys


def _clipped(edges: Array, dtype: np.dtype, strict: bool) -> Array:
    """Return first keys of integers for ascending edges that are integers of a wider dtype."""
    low, high = key_range(dtype)
    keys = edges[: bisect_left(edges, high) if strict else bisect_right(edges, high)]
    if edges.dtype.kind == "i":  # unsigned edges are not below any unsigned number
        keys = np.maximum(keys, low - strict)
    return (keys + 1 if strict else keys).astype(key_dtype(dtype))


def rounded_up(edges: Array, dtype: np.dtype, strict: bool = False) -> Array:
    """Return `first_keys` of floats that are not wider than the edges, which ascend."""
    below: Any = strict
    are_wider = edges.dtype != dtype
    if are_wider:
        with np.errstate(all="ignore"):
            rounded = edges.astype(dtype)
        # Rounding to nearest may go down: then the next number is the first one.
        below = rounded <= edges if strict else rounded < edges
    else:
        rounded = edges.copy()
    bits = rounded.view(bits_dtype(dtype))
    # The keys of positive numbers are their bits. A scalar tells most edges from those that need more.
    if len(edges) and (first := edges.item(0)) <= 0:
        negative = bisect_left(edges, 0) if first < 0 else 0
        if negative:
            bits[:negative] ^= np.iinfo(bits.dtype).max
        # -0.0 equals 0.0, and its key is just below.
        while negative < len(edges) and edges.item(negative) == 0:
            bits[negative] = 0 if strict else -1
            negative += 1
    keys = bits.astype(key_dtype(dtype), copy=False)
    if strict or are_wider:
        keys += below
    # Nothing is greater than infinity.
    return keys[: int(np.searchsorted(edges, np.inf, "left"))] if strict and edges[-1:] == np.inf else keys


def _holds(edges: Array, dtype: np.dtype) -> bool:
    """Whether integers of `dtype` near the edges are exact in float64."""
    return dtype.itemsize < 8 or bool(len(edges) and edges[0] > -EXACT and edges[-1] < EXACT)


def _ceiling(edges: Array, dtype: np.dtype, strict: bool) -> Array:
    """Return first keys of integers, for edges of float64."""
    low, high = key_range(dtype)
    least = np.floor(edges) + 1 if strict else np.ceil(edges)
    reachable = int(np.searchsorted(least, high, "right"))
    return np.maximum(least[:reachable], low).astype(key_dtype(dtype))


def _last_key(value: Any, dtype: np.dtype) -> int:
    """Return the key of the greatest x with ``x <= value``, a scalar; that of the least number minus 1 if none is."""
    stop = _scalar_key(value, dtype, strict=True)
    return key_range(dtype)[1] if stop is None else stop - 1


def _scalar_key(value: Any, dtype: np.dtype, *, strict: bool) -> int | None:
    """Return the first key for a scalar; None if it is above every number."""
    # Integers compare exactly, whatever their size.
    if dtype.kind in "iu" and isinstance(value, int | np.integer):
        low, high = key_range(dtype)
        least = max(int(value) + strict, low)
        return least if least <= high else None
    kind = type(value)
    # A finite float of the data's dtype, or one that is rounded to it, has its key without a search.
    is_rounded = kind is dtype.type or kind is np.float64 or (kind is float and dtype == np.float64)
    if is_rounded and dtype.kind == "f" and abs(value) <= GREATEST[dtype.char]:
        number = dtype.type(value)
        is_next = bool(number <= value if strict else number < value)
        return key_of(number, after_zero=is_next) + is_next
    # As in NumPy: Python scalars take the dtype of an array, NumPy scalars keep theirs.
    if dtype.kind == "f":
        own = isinstance(value, np.generic | np.ndarray)
        keys = first_keys(np.asarray(value, None if own else dtype).reshape(1), dtype, strict=strict)
    else:
        keys = _bisect(lambda x: x > value if strict else x >= value, dtype, 1)
    return int(keys[0]) if len(keys) else None


def _bisect(reached: Callable[[Array], Any], dtype: np.dtype, count: int, near: Any = None) -> Array:
    """Return the keys of the least numbers that `reached` holds for; it is given `count` numbers at once.

    `near` is a number close to all of them, if one is known: the search then begins there.
    """
    lowest, highest = key_range(dtype)
    # Arithmetic modulo 2^64, in which no key overflows.
    offset = np.uint64(lowest % 2**64)
    signed = np.uint64 if lowest >= 0 else np.int64

    def numbers(steps: Array) -> Array:
        return from_keys((steps + offset).view(signed).astype(key_dtype(dtype)), dtype)

    low, high = np.zeros(count, np.uint64), np.full(count, highest - lowest, np.uint64)
    reachable = int(np.count_nonzero(reached(numbers(high))))
    if near is not None and reachable:
        # Usually the key is among those around, which are looked at together.
        steps = keys_of(np.array([near]).astype(dtype)).astype(signed).view(np.uint64) - offset
        step = min(int(steps[0]), highest - lowest)
        around = np.arange(max(0, step - _NEAR), min(step + _NEAR, highest - lowest) + 1, dtype=np.uint64)
        are_reached = reached(numbers(around))
        if are_reached[-1] > are_reached[0]:
            low[:] = high[:] = around[are_reached.argmax()]
    # Invariant: no number before `low` is reached, and `high` is, if any is.
    while (low < high).any():
        middle = low + (high - low) // np.uint64(2)
        is_reached = reached(numbers(middle))
        high = np.where(is_reached, middle, high)
        low = np.where(is_reached, low, np.minimum(middle + np.uint64(1), high))
    return (low + offset).view(signed).astype(key_dtype(dtype))[:reachable]
