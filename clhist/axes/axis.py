"""One axis of bins, ready for a kernel: what its C depends on, and the arguments that this takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from clhist._core.elements import has_no_type
from clhist._core.keys import Array, keys_of
from clhist.axes.block_search import EVEN, KEYED, LINEAR
from clhist.axes.edges import EdgesKind
from clhist.axes.guess import ROUNDED, SMALLEST, Cells, even_guess
from clhist.axes.kinds import FlowKind, Kind
from clhist.axes.thresholds import Thresholds, are_exact

_EPSILONS = {char: float(np.finfo(char).eps) for char in "fd"}
_NARROW = 2.0**-12  # of a margin, in bins: a block of elements then rarely has one so near to an edge


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of bins for data of one dtype.

    Attributes
    ----------
    kind : Kind
        What its C depends on.
    arrays : tuple of array
        The first arguments of its parameters: keys, and cells where there are; None of what each call has anew.
    scalars : tuple
        The other ones.
    extent : int
        Number of bins, those of what lies outside included where the kind has some.
    is_searched : bool
        Whether it is one of `searched_axis`.
    """

    kind: Kind
    arrays: tuple[Any, ...]
    scalars: tuple[Any, ...]
    extent: int
    is_searched: bool = False

    @cached_property
    def packed(self) -> Axis:
        """The axis with a packed table, if it can have one: a CPU then loads once for each element, not three times."""
        kind = self.kind.with_packed_table()
        if kind is None:
            return self
        *listed, keys, cells = self.arrays
        table = packed_table(keys, cells, int(self.scalars[0]))
        return replace(self, kind=kind, arrays=(*listed, keys, table))


def numbered_axis(axis: Axis) -> Axis:
    """Return the axis of edges with `numpy.digitize`'s numbers: 0 below all edges, and their number above all."""
    assert isinstance(axis.kind, EdgesKind)
    above = axis.extent + 1  # NaN is above all edges, too
    scalars = *axis.scalars, 0, above, above, 1
    return Axis(FlowKind(axis.kind, False), axis.arrays, scalars, above + 1, axis.is_searched)


def found_axis(dtype: np.dtype, num_bins: int) -> Axis:
    """Return the axis of bins of one width whose range is found on the device; it has no arrays but those of a call."""
    return Axis(EdgesKind(dtype, EVEN, False, from_data=True), (None, None), (num_bins,), num_bins)


def packed_table(keys: Array, cells: Array, num_bins: int) -> Array:
    """Return the packed table of int64 for a table of cells.

    An entry is a bin `k` and a key `limit`: keys above that are in bin ``k + 1``. Of 32 bits each they are one number,
    else two. The first entry is for what lies outside.
    """
    # Entries by bin, which each cell then gets. Keys are padded behind, so that the last bin has a next one.
    bounds, starts, k = np.iinfo(keys.dtype), keys[1:], np.arange(len(keys) - 1)
    # No key of the cell is in bin `k`.
    all_above = starts == bounds.min
    k += all_above
    all_below = all_above | (k == num_bins - 1)
    limit = np.where(all_below, bounds.max, starts - keys.dtype.type(1))
    k, limit = np.append(-1, k), np.append(keys.dtype.type(bounds.max), limit).astype(np.uint64).view(np.int64)
    entries = (limit << 32) | (k & 0xFFFFFFFF) if keys.dtype.itemsize == 4 else np.stack([k, limit], 1)
    table = np.empty((len(cells), *entries.shape[1:]), np.int64)
    table[0] = entries[0]
    np.take(entries[1:], cells[:-1], 0, table[1:], "clip")  # which needs no buffer
    return table.ravel()


def even_axis(edges: Array, low: Any, high: Any, *, fp64: bool) -> Axis | None:
    """Return the axis of NumPy's even bins for data of the dtype of `edges`; None unless it follows from the range.

    The axis equals that of `axis_of`, but its margin is a bound from scalars, which takes a tenth of the time.
    """
    dtype, number = edges.dtype, len(edges) - 1
    if dtype.char not in "fd" or has_no_type(dtype, fp64):
        return None
    # Other scalars of NumPy keep their dtype, in which it compares the data with them.
    if not all(type(end) is dtype.type or are_exact(end) for end in (low, high)):
        return None
    least, most = edges.item(0), edges.item(number)  # the range in the dtype of the data, as NumPy compares it
    extent = most - least
    if not SMALLEST < extent < np.inf:
        return None
    scale = number / extent
    # Roundings of an edge, in bins: of its distance from `low` and of itself; and those of the guess.
    margin = _EPSILONS[dtype.char] * (2 * scale * max(abs(least), abs(most)) + 4 * number)
    # Beyond, edges may be equal, or a measured margin is narrower.
    if not margin < _NARROW or not 0 < (factor := dtype.type(scale)) < np.inf:
        return None
    keys = keys_of(edges)
    # -0.0 equals 0.0, and its key is just below. The last bin contains both zeros.
    if least <= 0 <= most and (zero := round(-least * scale)) <= number and edges.item(zero) == 0:
        keys[zero] = -1 if zero < number else 0
    scalars = number, keys[0], keys[number], edges[0], factor, np.float32(margin + number * ROUNDED)
    return Axis(_even_kind(dtype), (keys[:number],), scalars, number)


@cache
def _even_kind(dtype: np.dtype) -> EdgesKind:
    return EdgesKind(dtype, EVEN, False)


def searched_axis(bins: Thresholds, device: str, *, fp64: bool) -> Axis | None:
    """Return the axis of bins whose table takes the host little time, after which kernels search longer.

    The host takes 200 to 300 µs for the table of `axis_of`. For a "cpu" it takes 30 µs for a small table; a "gpu"
    searches all bins in less than these. None of too many bins.
    """
    if len(bins.keys) > 2 ** _SEARCHES[-1]:
        return None
    if device == "gpu":
        # A table of one entry, in two or three cells since a shift is less than the bits of a key.
        shift = max(0, (bins.last - int(bins.keys[0])).bit_length() - 1)
        steps = next(steps for steps in _SEARCHES if len(bins.keys) <= 2**steps)
        return _axis_of_table(bins, KEYED, steps, _FIRST_BIN, (shift,), fp64=fp64, is_searched=True)
    is_linear = bins.dtype.kind == "f" and not has_no_type(bins.dtype, fp64)
    # Cells even in value suit most edges, and those even in key edges that grow by factors.
    with np.errstate(all="ignore"):
        cells = Cells.few(bins, _SEARCHES[0], is_linear=True) if is_linear else None
    keyed = (Cells.few(bins, steps, is_linear=False) for steps in _SEARCHES)
    cells = cells or next(few for few in keyed if few is not None)
    return _axis_of_table(bins, cells.kind, cells.steps, cells.table, cells.scalars, fp64=fp64, is_searched=True)


_SEARCHES = 3, 8, 12  # steps of the searches: few numbers, since each is a program
_FIRST_BIN = np.zeros(4, np.int32)


def _axis_of_table(
    bins: Thresholds,
    kind: str,
    steps: int,
    table: np.ndarray,
    numbers: tuple[Any, ...],
    *,
    fp64: bool,
    is_searched: bool = False,
) -> Axis:
    """Return the axis of bins with a table of cells of a kind, which have these numbers."""
    keys, number = bins.keys, len(bins.keys)
    # The search may look so far behind the last key.
    padded = np.empty(number + 2**steps, keys.dtype)
    padded[:number], padded[number:] = keys, np.iinfo(keys.dtype).max
    ends = keys.dtype.type(keys[0]), keys.dtype.type(bins.last)
    scalars = (number, numbers[0], *ends, *numbers[1:])
    of_edges = EdgesKind(bins.dtype, kind, has_no_type(bins.dtype, fp64), steps)
    return Axis(of_edges, (padded, table), scalars, bins.num_bins, is_searched)


def axis_of(bins: Thresholds, *, fp64: bool) -> Axis:
    """Return the axis of these bins, of which there is at least one; `fp64`: the device has double precision."""
    ends = bins.keys.dtype.type(bins.keys[0]), bins.keys.dtype.type(bins.last)
    as_bits = has_no_type(bins.dtype, fp64)
    guessed = bins.dtype.kind in "iuf" and not as_bits
    with np.errstate(all="ignore"):
        guess = even_guess(bins) if guessed else None
        margin = None if guess is None else guess.margin(bins)
        # Bins of one width whose guesses err by little need no table.
        if guess is not None and margin is not None:
            scalars = (len(bins.keys), *ends, guess.low, guess.scale, np.float32(margin))
            return Axis(EdgesKind(bins.dtype, EVEN, as_bits), (bins.keys,), scalars, bins.num_bins)
        # Linear cells need numbers, keyed ones only keys. The table with the shorter search wins.
        cells = Cells.of(bins, LINEAR) if guessed else None
        if cells is None or cells.steps > 1:
            keyed = Cells.of(bins, KEYED)
            cells = keyed if cells is None or (keyed is not None and keyed.steps < cells.steps) else cells
        assert cells is not None
        return _axis_of_table(bins, cells.kind, cells.steps, cells.table, cells.scalars, fp64=fp64)
