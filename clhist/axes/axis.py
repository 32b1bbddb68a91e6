"""One axis of bins, ready for a kernel: what its C depends on, and the arguments that this takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from clhist._core.elements import has_no_type
from clhist._core.keys import Array, from_key
from clhist.axes.block_search import EVEN, KEYED, LINEAR
from clhist.axes.edges import EdgesKind
from clhist.axes.guess import ROUNDED, SMALLEST, Cells, even_guess
from clhist.axes.kinds import FlowKind, Kind
from clhist.axes.thresholds import GREATEST, Thresholds, are_exact, rounded_up

_EPSILONS = {char: float(np.finfo(char).eps) for char in "fd"}
_NARROW = 2.0**-12  # of a margin, in bins: a block of elements then rarely has one so near to an edge


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of bins for data of one dtype.

    Attributes
    ----------
    kind : Kind
        What its C depends on.
    tables : tuple of array
        The first arguments of its parameters, but for those that follow from `cells`; None of what each call has anew.
    scalars : tuple
        The other ones.
    extent : int
        Number of bins, those of what lies outside included where the kind has some.
    is_searched : bool
        Whether it is one of `searched_axis`.
    cells : Cells, optional
        Those of the table that follows the keys, the last of `tables`.
    """

    kind: Kind
    tables: tuple[Any, ...]
    scalars: tuple[Any, ...]
    extent: int
    is_searched: bool = False
    cells: Cells | None = None

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The first arguments of its parameters: keys, and cells where there are."""
        if self.cells is None:
            return self.tables
        *listed, keys = self.tables
        return (*listed, _padded(keys, self.cells.steps), self.cells.table)

    @cached_property
    def packed(self) -> Axis:
        """The axis with a packed table, if it can have one: a CPU then loads once for each element, not three times."""
        kind = self.kind.with_packed_table
        if kind is None:
            return self
        assert self.cells is not None
        *listed, keys = self.tables
        table = self.cells.packed(keys)
        # Kernels do not read the keys: those of the same memory need no upload.
        return Axis(kind, (*listed, table.view(keys.dtype), table), self.scalars, self.extent, self.is_searched)


def numbered_axis(axis: Axis) -> Axis:
    """Return the axis of edges with `numpy.digitize`'s numbers: 0 below all edges, and their number above all."""
    assert isinstance(axis.kind, EdgesKind)
    above = axis.extent + 1  # NaN is above all edges, too
    scalars = *axis.scalars, 0, above, above, 1
    return Axis(_numbered(axis.kind), axis.tables, scalars, above + 1, axis.is_searched, axis.cells)


@cache
def _numbered(kind: EdgesKind) -> FlowKind:
    return FlowKind(kind, False)


def found_axis(dtype: np.dtype, num_bins: int) -> Axis:
    """Return the axis of bins of one width whose range is found on the device; it has no arrays but those of a call."""
    return Axis(EdgesKind(dtype, EVEN, False, from_data=True), (None, None), (num_bins,), num_bins)


def even_axis(edges: Array, dtype: np.dtype, low: Any, high: Any, *, fp64: bool) -> Axis | None:
    """Return the axis of NumPy's even bins for data of `dtype`; None unless it follows from the range.

    The axis equals that of `axis_of`, but its margin is a bound from scalars, which takes a tenth of the time. Edges
    are of the dtype of the data, or of float64 if they are all that NumPy compares the data with.
    """
    number = len(edges) - 1
    if dtype.char not in "fd" or has_no_type(dtype, fp64):
        return None
    least, most = edges.item(0), edges.item(number)  # the range in the dtype of the edges, as NumPy compares it
    # Other scalars of NumPy keep their dtype, in which it compares the data with them.
    if edges.dtype == dtype:
        is_plain = all(type(end) is dtype.type or are_exact(end) for end in (low, high))
    else:
        is_plain = edges.dtype.char == "d" and (low, high) == (least, most)
    extent = most - least
    if not is_plain or not SMALLEST < extent < np.inf:
        return None
    scale, greatest = number / extent, max(abs(least), abs(most))
    # Roundings of an edge, in bins: of its distance from `low` and of itself; and those of the guess.
    margin = _EPSILONS[dtype.char] * (2 * scale * greatest + 4 * number)
    # Beyond, edges may be equal, or a measured margin is narrower.
    if not margin < _NARROW or greatest > GREATEST[dtype.char]:
        return None
    keys = rounded_up(edges, dtype)
    start, last, first = keys[0], keys[number], edges[0]
    if edges.dtype != dtype:
        last -= dtype.type(most).item() != most  # which rounds up to a number above the last bin
        first = from_key(int(start), dtype)
        scale = number / (from_key(int(last), dtype).item() - first.item())
    if most == 0:  # the last bin contains both zeros
        last = keys.dtype.type(0)
    if not 0 < (factor := dtype.type(scale)) < np.inf:
        return None
    scalars = number, start, last, first, factor, np.float32(margin + number * ROUNDED)
    return Axis(_even_kind(dtype), (keys[:number],), scalars, number)


@cache
def _even_kind(dtype: np.dtype) -> EdgesKind:
    return EdgesKind(dtype, EVEN, False)


def searched_axis(bins: Thresholds, most: int, *, fp64: bool) -> Axis | None:
    """Return the axis of bins with a table of at most so many cells, after which kernels may search longer.

    A large table may take the host and the upload 500 µs. With `most` of 1, kernels search all bins, which takes GPUs
    less time than an upload. None of too many bins.
    """
    if len(bins.keys) > 2 ** _SEARCHES[-1]:
        return None
    if most > 1:
        return _axis_of_cells(bins, fp64=fp64, is_searched=True, most=most, steps=_SEARCHES)
    # A table of one entry, in two or three cells since a shift is less than the bits of a key.
    shift = max(0, (bins.last - int(bins.keys[0])).bit_length() - 1)
    steps = next(steps for steps in _SEARCHES[1:] if len(bins.keys) <= 2**steps)
    kind = _kind_of_table(bins.dtype, KEYED, has_no_type(bins.dtype, fp64), steps)
    tables = _padded(bins.keys, steps), _FIRST_BIN
    return Axis(kind, tables, (len(bins.keys), shift, *_ends(bins)), bins.num_bins, is_searched=True)


_SEARCHES = 1, 3, 8, 12  # steps of the searches: few numbers, since each is a program
_FIRST_BIN = np.zeros(4, np.int32)


def _axis_of_cells(bins: Thresholds, *, fp64: bool, is_searched: bool = False, **options: Any) -> Axis:
    """Return the axis of bins with a table of cells; `options` are those of `Cells.of`."""
    # Linear cells need numbers, keyed ones only keys. The table with the shorter search wins.
    cells = None
    if bins.dtype.kind in "iuf" and not has_no_type(bins.dtype, fp64):
        with np.errstate(all="ignore"):
            cells = Cells.of(bins, LINEAR, **options)
    # Keyed cells mostly save many steps or none: to try them for two takes as long as these.
    if cells is None or cells.steps > (_SEARCHES[1] if is_searched else 1):
        keyed = Cells.of(bins, KEYED, **options)
        cells = keyed if cells is None or (keyed is not None and keyed.steps < cells.steps) else cells
    assert cells is not None
    kind = _kind_of_table(bins.dtype, cells.kind, has_no_type(bins.dtype, fp64), cells.steps)
    scalars = (len(bins.keys), cells.scalars[0], *_ends(bins), *cells.scalars[1:])
    return Axis(kind, (bins.keys,), scalars, bins.num_bins, is_searched, cells)


# One object for all axes of a kind is compared sooner.
_kind_of_table = cache(EdgesKind)


def _padded(keys: Array, steps: int) -> Array:
    """Return keys with as many behind the last as a search may look at."""
    number = len(keys)
    padded = np.empty(number + 2**steps, keys.dtype)
    padded[:number], padded[number:] = keys, np.iinfo(keys.dtype).max
    return padded


def _ends(bins: Thresholds) -> tuple[Any, Any]:
    """Return the least and the greatest key in the bins."""
    return bins.keys[0], bins.keys.dtype.type(bins.last)


def axis_of(bins: Thresholds, *, fp64: bool) -> Axis:
    """Return the axis of these bins, of which there is at least one; `fp64`: the device has double precision."""
    as_bits = has_no_type(bins.dtype, fp64)
    with np.errstate(all="ignore"):
        guess = even_guess(bins) if bins.dtype.kind in "iuf" and not as_bits else None
        margin = None if guess is None else guess.margin(bins)
        # Bins of one width whose guesses err by little need no table.
        if guess is not None and margin is not None:
            scalars = (len(bins.keys), *_ends(bins), guess.low, guess.scale, np.float32(margin))
            return Axis(EdgesKind(bins.dtype, EVEN, as_bits), (bins.keys,), scalars, bins.num_bins)
    return _axis_of_cells(bins, fp64=fp64)
