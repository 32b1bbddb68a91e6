"""Axes whose bins count what lies outside as well: any piecewise constant function from numbers to bins.

An axis is given as `Pieces`: keys where the bin changes, and the bin of each piece, or -1 where an element is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clhist._core.elements import kernel_dtype
from clhist._core.keys import Array, from_keys, key_dtype, key_range
from clhist.axes.axis import Axis, axis_of
from clhist.axes.edges import EdgesKind
from clhist.axes.kinds import FlowKind, WrappedKind
from clhist.axes.thresholds import Thresholds

_NEAR = 64  # keys beside an edge among which a threshold mostly is
_AROUND = _NEAR + np.arange(-2, 3)  # of 2 * _NEAR keys, those among which the threshold of a regular axis mostly is


@dataclass(frozen=True)
class Pieces:
    """The numbers at which the bin changes.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the data.
    keys : array
        Least key of each piece, ascending; the first is that of the least number.
    bins : array of int
        Bin of each piece, or -1.
    none : int
        Bin of NaN, or -1.
    """

    dtype: np.dtype
    keys: Array
    bins: Array
    none: int


def joined(pieces: Pieces) -> Pieces:
    """Return `pieces` without empty ones, and neighbours of one bin as one."""
    keys, bins = pieces.keys, pieces.bins
    filled = np.append(keys[1:] != keys[:-1], True)
    keys, bins = keys[filled], bins[filled]
    changes = np.insert(bins[1:] != bins[:-1], 0, True)
    return Pieces(pieces.dtype, keys[changes], bins[changes], pieces.none)


def flow_axis(pieces: Pieces, extent: int, *, fp64: bool) -> Axis:
    """Return the axis of these pieces, for a device that has double precision or has not (`fp64`)."""
    pieces = joined(pieces)
    keys, bins, last = pieces.keys, pieces.bins.astype(np.int32), key_range(pieces.dtype)[1]
    below, above = int(bins[0]), int(bins[-1])
    # Compare once with the ends, instead of searching elements outside of them.
    if len(keys) > 2:
        last = int(keys[-1]) - 1
        keys, bins = keys[1:-1], bins[1:-1]
    axis = axis_of(Thresholds(pieces.dtype, len(keys), keys, last), fp64=fp64)
    assert isinstance(axis.kind, EdgesKind)
    # Bins that ascend by one need only the first; others are listed for each piece.
    first = int(bins[0])
    listed = bool(first < 0 or (bins != np.arange(first, first + len(bins))).any())
    outside = (below, above, pieces.none)
    if listed:
        return Axis(
            FlowKind(axis.kind, True), (bins, *axis.tables), (*axis.scalars, *outside), extent, cells=axis.cells
        )
    return Axis(FlowKind(axis.kind, False), axis.tables, (*axis.scalars, *outside, first), extent, cells=axis.cells)


def wrapped_axis(pieces: Pieces, dtype: np.dtype, origin: float, period: float, extent: int) -> Axis:
    """Return the axis of pieces of float64 that repeat, for data of `dtype`."""
    axis = flow_axis(pieces, extent, fp64=True)
    assert isinstance(axis.kind, FlowKind)
    kind = WrappedKind(kernel_dtype(dtype), axis.kind)
    scalars = *axis.scalars, np.float64(origin), np.float64(period)
    return Axis(kind, axis.tables, scalars, extent, cells=axis.cells)


def pieces_by(index: Any, dtype: np.dtype, bounds: tuple[int, int], near: Array | None = None) -> tuple[Array, Array]:
    """Return keys and numbers of the pieces of a monotone function of numbers, between two keys (both included).

    Parameters
    ----------
    index : callable
        Gives an integer for each element of an array of `dtype`; ascends or descends.
    dtype : numpy.dtype
        Of the data.
    bounds : (int, int)
        Keys of the first and the last number.
    near : array of int64 or uint64, optional
        Keys near which changes are looked for first, one for each number from the least on.
    """
    key = key_dtype(dtype)

    def at(keys: Array) -> Array:
        return np.asarray(index(from_keys(keys, dtype)), np.int64)

    ends = np.array(bounds, key)
    begin, end = at(ends).tolist()
    # A descending function is searched as an ascending one, with both sides negated.
    step = 1 if end >= begin else -1
    numbers = np.arange(begin + step, end + step, step) if begin != end else np.zeros(0, np.int64)
    low, high = np.full(len(numbers), ends[0]), np.full(len(numbers), ends[1])

    def reached(keys: Array, these: Array) -> Array:
        return at(keys) * step >= these * step

    if near is not None and len(near) == len(numbers):
        # Clamp before an offset is applied, so that no key wraps.
        floor = np.maximum(near, ends[0] + key.type(_NEAR)) - key.type(_NEAR)
        roof = np.minimum(near, ends[1] - key.type(_NEAR)) + key.type(_NEAR)
        around = floor + _AROUND.astype(key)[:, None]
        # Usually all changes are near these keys: test several neighbours at once.
        are_reached = reached(around.reshape(-1), np.tile(numbers, len(around))).reshape(around.shape)
        if bool((are_reached[-1] > are_reached[0]).all()):
            low = high = around[0] + are_reached.argmax(0).astype(key)
        else:
            # Only where the change lies between both is the search that short.
            fits = (floor <= roof) & ~reached(floor, numbers) & reached(roof, numbers)
            low, high = np.where(fits, floor, low), np.where(fits, roof, high)
    unsigned = np.dtype(f"u{key.itemsize}")
    while (low < high).any():
        # Differences as unsigned integers: those of signed ones overflow.
        half = ((high.astype(unsigned) - low.astype(unsigned)) >> unsigned.type(1)).astype(unsigned)
        middle = (low.astype(unsigned) + half).astype(key)
        is_reached = reached(middle, numbers)
        high = np.where(is_reached, middle, high)
        low = np.where(is_reached | (low == high), low, (middle.astype(unsigned) + unsigned.type(1)).astype(key))
        low = np.minimum(low, high)
    return np.insert(low, 0, ends[0]), np.insert(numbers, 0, begin)
