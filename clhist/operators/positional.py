"""Operators on (value, index) pairs: argmin, argmax, first and last."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clhist.operators import equivalents as lifts
from clhist.operators import host
from clhist.operators.c_types import dtype_of_kind, largest_of, real_dtype, smallest_of
from clhist.operators.halves import number_of
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def argmin(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the smallest value; see `argmax`.

    Examples
    --------
    >>> operator = clhist.operators.argmin(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))["index"]
    array([1, 2], dtype=int32)
    """
    return _arg("argmin", dtype, index_dtype, "<")


def argmax(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the largest value; of equal values the one of the lowest index, as `numpy.argmax`.

    Parameters
    ----------
    dtype : dtype-like
        Type of a value: an integer or a float; one of half precision is held as float32. A NaN counts as larger than
        every number, as in NumPy.
    index_dtype : dtype-like
        Type of an index: an integer.

    Returns
    -------
    Operator
        Over the structured dtype with fields ``value`` and ``index``. A bin that gets no pair holds the value that
        every other beats (or equals) and the largest index of its type.

    Notes
    -----
    Pairs of 32 bits each are compared as one integer of 64 where that is faster; the winner's -0 is then returned as 0,
    and its NaN as the one of `numpy.nan`.

    Examples
    --------
    >>> operator = clhist.operators.argmax(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))["index"]
    array([0, 2], dtype=int32)
    """
    return _arg("argmax", dtype, index_dtype, ">")


def first(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the lowest index; see `argmax`. A bin that gets none holds 0 and the largest index.

    Indices must differ: of several pairs that have the lowest one, any is taken, also if one of them is of `dest`.

    Examples
    --------
    >>> operator = clhist.operators.first(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))["value"]
    array([3., 2.], dtype=float32)
    """
    return _positional("first", dtype, index_dtype, "<")


def last(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the highest index; see `argmax`. A bin that gets none holds 0 and the least index.

    Indices must differ, as in `first`.

    Examples
    --------
    >>> operator = clhist.operators.last(np.float32)
    >>> clhist.reduce_by_index(2, operator, [0, 0, 1], np.array([3, 1, 2], np.float32))["value"]
    array([1., 2.], dtype=float32)
    """
    return _positional("last", dtype, index_dtype, ">")


def _arg(name: str, dtype: DTypeLike, index_dtype: DTypeLike, better: str) -> Operator:
    value = number_of(real_dtype(dtype))
    index = dtype_of_kind(index_dtype, "iu", "an integer", "index_dtype")
    # The identity element loses against each pair: by its value, or by its index if values are equal.
    worst = smallest_of(value) if better == ">" else largest_of(value)
    same = "a.value == b.value"
    wins = f"b.value {better} a.value"
    if value.kind == "f":
        # Compare instead of isnan, which is slow in PoCL.
        a_nan, b_nan = "a.value != a.value", "b.value != b.value"
        # NaN wins over numbers, and between two of them the index decides.
        same = f"({same} || ({a_nan} && {b_nan}))"
        wins = f"(a.value == a.value && ({wins} || {b_nan}))"
    pair = np.dtype([("value", value), ("index", index)], align=True)
    combine = f"({wins} || ({same} && b.index < a.index)) ? b : a"
    neutral = worst, np.iinfo(index).max
    packed = lifts.arg(name, pair, neutral)
    # Quick to test, and false with a NaN on either side, where only the whole condition decides.
    loses = f"b.value {'<' if better == '>' else '>'} a.value"
    operator = Operator(pair, combine, neutral, name, equivalents=packed, positional=True, verified=True)
    extreme = np.maximum if better == ">" else np.minimum
    return operator.changed(kept_if=loses, host=partial(host.extreme_pair, extreme))


def _positional(name: str, dtype: DTypeLike, index_dtype: DTypeLike, better: str) -> Operator:
    value = number_of(real_dtype(dtype))
    index = dtype_of_kind(index_dtype, "iu", "an integer", "index_dtype")
    pair = np.dtype([("value", value), ("index", index)], align=True)
    neutral = 0, np.iinfo(index).max if better == "<" else np.iinfo(index).min
    # Only the neutral element has the index of another pair, and then that pair wins.
    combine = f"(b.index {better} a.index || (b.index == a.index && b.value != 0)) ? b : a"
    packed = lifts.position(name, pair, neutral)
    operator = Operator(pair, combine, neutral, name, equivalents=packed, positional=True, verified=True)
    return operator.changed(host=partial(host.positioned_pair, np.minimum if better == "<" else np.maximum))
