"""Guesses of the bin of an element: bins of one width by a multiplication, others by a table of cells.

The host computes the guesses as the device does, so that their errors are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from clhist._core.keys import Array, from_key, from_keys
from clhist.axes.block_search import KEYED, LINEAR
from clhist.axes.thresholds import Thresholds

# Part of a bin by which a guess of even bins may be wrong; beyond, a table is better.
FARTHEST = 0.25
# Part of a bin by which an upper bound of that may exceed it: in so many bins elements are compared for nothing.
_SLACK = 2.0**-8
# Rounding error of a guess, in bins, for each bin: an upper bound for any compiler.
ROUNDED = 2.0**-22
# Cells of a table: as int32, the most take 256 KiB.
_LEAST_CELLS, _MOST_CELLS = 256, 2**16
_FEW_CELLS = 2**10  # a search of three steps then suffices for nearly all sets of edges
# The parts of a smaller extent may be subnormal, which devices may flush to 0.
SMALLEST = 2.0**-100


@dataclass(frozen=True)
class Cells:
    """The cells of a table that is not built yet: whose search it would shorten to how many steps.

    Attributes
    ----------
    kind : str
        Of the guess.
    cell_of_bin : array
        The cell that each bin begins in, ascending.
    number : int
        Number of cells.
    scalars : tuple
        The arguments that say where these are.
    steps : int
        Steps of a binary search in the fullest cell.
    """

    kind: str
    cell_of_bin: Array
    number: int
    scalars: tuple[Any, ...]
    steps: int

    @classmethod
    def of(cls, bins: Thresholds, kind: str) -> Cells | None:
        """Return the fewest cells that make the search as short as any number of them, or None if they cannot be."""
        # A step less is worth twice the cells.
        numbers = [max(_LEAST_CELLS, 1 << len(bins.keys).bit_length())]
        while 2 * numbers[-1] <= _MOST_CELLS:
            numbers.append(2 * numbers[-1])
        rows, scalars = (_linear_cells if kind == LINEAR else _keyed_cells)(bins, numbers)
        steps = _steps(rows)
        # Larger tables are not tried once a search has one step. If one of those tried cannot be, no table can.
        best = int(steps.argmin()) if len(rows) else 0
        if len(rows) < len(numbers) and not (len(rows) and steps[best] <= 1):
            return None
        number, *rest = scalars[best]
        return cls(kind, rows[best], number, tuple(rest), int(steps[best]))

    @classmethod
    def few(cls, bins: Thresholds, steps: int, *, is_linear: bool) -> Cells | None:
        """Return few cells, even in value if `is_linear`, else in key, in a tenth of the time of `of`.

        None if a search of so many `steps` does not suffice, or floats cannot be cells even in value.
        """
        keys, most = bins.keys, max(_FEW_CELLS, 4 << len(bins.keys).bit_length())
        scalars: tuple[Any, ...]
        if is_linear:
            extent = _extent(bins)
            guess = Guess.of(bins, most / extent, extent)
            guesses = None if guess is None else guess.at(keys, bins.dtype)
            # A difference of float32 may overflow though that of float64 does not.
            if guess is None or guesses is None or not guesses[-1] < np.inf:
                return None
            number, scalars = most, (most, guess.low, guess.scale)
            cells = np.minimum(guesses, np.float32(most - 1)).astype(np.int64)
        else:
            span = bins.last - int(keys[0])
            shift = max(0, span.bit_length() - most.bit_length() + 1)
            unsigned = np.dtype(f"u{keys.dtype.itemsize}")
            cells = ((keys.view(unsigned) - keys[:1].view(unsigned)) >> unsigned.type(shift)).astype(np.int64)
            number, scalars = (span >> shift) + 1, (shift,)
        # The first bin is that of the first cell, where no threshold is.
        run = 2**steps
        is_too_full = (cells[run:] == cells[1 : 1 - run]).any()
        return None if is_too_full else cls(LINEAR if is_linear else KEYED, cells, number, scalars, steps)

    @property
    def table(self) -> Array:
        """The first bin of each cell, and of one more behind."""
        # A bin reaches from behind the cell of its threshold into that of the next one.
        cells, bins = self.cell_of_bin, len(self.cell_of_bin)
        ends = np.empty(bins + 1, np.int64)
        ends[0], ends[bins] = 0, max(self.number, int(cells[-1]) + 1) + 1
        np.add(cells[1:], 1, ends[1:bins])
        return np.repeat(np.arange(bins, dtype=np.int32), ends[1:] - ends[:-1])


def _steps(rows: Array) -> Array:
    """Return the steps of a binary search in the fullest cell of each row, which has the cells of bins, ascending."""
    # The first bin is that of the first cell, where no threshold is.
    rows, run = rows[:, 1:], 2
    width = rows.shape[1]
    steps = np.full(len(rows), min(width, 1))
    # So many thresholds in one cell take as many steps as their number has bits.
    while run <= width and (is_fuller := (rows[:, run - 1 :] == rows[:, : width - run + 1]).any(1)).any():
        steps += is_fuller
        run *= 2
    return steps


@dataclass(frozen=True)
class Guess:
    """The multiplication that guesses a bin or a cell, as the device does it."""

    low: Any
    scale: Any

    @classmethod
    def of(cls, bins: Thresholds, scale: float, extent: np.float64) -> Guess | None:
        """Return the guess of so many parts for each 1 of the `_extent`, or None if the device cannot compute it."""
        # The device multiplies floats in their own type, and integers in float32.
        real = bins.dtype.type if bins.dtype.kind == "f" else np.float32
        safe = SMALLEST < extent < np.inf and 0 < real(scale) < np.inf
        return cls(from_key(int(bins.keys[0]), bins.dtype), real(scale)) if safe else None

    def at(self, keys: Array, dtype: np.dtype) -> Array:
        """Return the guesses for these keys, as float32."""
        if dtype.kind == "f":
            return ((from_keys(keys, dtype) - self.low) * self.scale).astype(np.float32)
        # The unsigned difference is right even where the signed one overflows.
        unsigned = np.dtype(f"u{keys.dtype.itemsize}")
        steps = keys.astype(unsigned) - self.low.astype(keys.dtype).astype(unsigned)
        return (steps.astype(np.float32) + np.float32(0.5)) * self.scale

    def margin(self, bins: Thresholds) -> float | None:
        """Return how near to a whole number a guess may be wrong, or None if it may be far off.

        Guesses grow with the number, those of integers also where a step from the greatest leads to the least. So the
        first and the last number of each bin, and the first one behind all, tell of all numbers.
        """
        number, one = len(bins.keys), bins.keys.dtype.type(1)
        if bins.dtype.kind == "f" and (bound := self._bound(bins)) < _SLACK:
            return bound + number * ROUNDED
        # One evaluation of all keys takes a third of the time of separate ones.
        keys = np.empty(2 * number + 1, bins.keys.dtype)
        keys[:number], keys[number : 2 * number - 1], keys[2 * number - 1] = bins.keys, bins.keys[1:] - one, bins.last
        keys[2 * number :] = keys[2 * number - 1 : -1] + one
        guesses, count = self.at(keys, bins.dtype), np.arange(1, number + 1)
        # How far the first number of a bin falls short of it, and its last number reaches beyond.
        off = [count - 1 - guesses[:number], guesses[number : 2 * number] - count]
        if keys[-1] != bins.keys[0]:  # else there is none
            off.append(count[-1:] - guesses[2 * number :])
        farthest = max(float(np.fmax.reduce(distances)) for distances in off)
        # The negation also refuses NaN.
        if not farthest < FARTHEST:
            return None
        return max(0.0, farthest) + len(bins.keys) * ROUNDED

    def _bound(self, bins: Thresholds) -> float:
        """Return an upper bound of how near to a whole number a guess for floats is wrong, in a third of the time.

        The last number of a bin has no greater guess than the first one of the next.
        """
        number = len(bins.keys)
        keys = np.empty(number + 1, bins.keys.dtype)
        keys[:number], keys[number] = bins.keys, bins.last
        off = self.at(keys, bins.dtype) - _numbers(number + 1)
        return float(np.abs(off, out=off).max())  # NaN is not below any bound


@lru_cache(maxsize=16)
def _numbers(number: int) -> Array:
    return np.arange(number, dtype=np.float64)


def _extent(bins: Thresholds) -> np.float64:
    """Return the difference of the greatest and the least number in bins; of integers one more."""
    low, high = from_key(int(bins.keys[0]), bins.dtype), from_key(bins.last, bins.dtype)
    if bins.dtype.kind == "f":
        return np.float64(high) - np.float64(low)
    return np.float64(int(high) - int(low) + 1)


def even_guess(bins: Thresholds) -> Guess | None:
    """Return the guess for bins of one width."""
    many = len(bins.keys) - 1
    if bins.dtype.kind == "f" or many == 0:
        extent = _extent(bins)
        return Guess.of(bins, (many + 1) / extent, extent)
    # Between the first keys of bins, since the last bin may be cut.
    spread = int(bins.keys[-1]) - int(bins.keys[0])
    return Guess.of(bins, many / spread, _extent(bins)) if spread else None


def _linear_cells(bins: Thresholds, numbers: Sequence[int]) -> tuple[Array, list[tuple[Any, ...]]]:
    """Return the cells of bins, a row for each of these numbers of cells that are even in value, and their scalars.

    The first row whose guesses the device cannot compute, and those behind, are missing.
    """
    extent = _extent(bins)
    # The first is also that of fewest cells; the others have the same low, and larger scales.
    first = Guess.of(bins, numbers[0] / extent, extent)
    if first is None:
        return np.empty((0, len(bins.keys)), np.int64), []
    scales = (np.array(numbers) / extent).astype(first.scale.dtype)
    # All rows at once: separate guesses take four times as long for few bins.
    cells = Guess(first.low, scales[:, None]).at(bins.keys, bins.dtype)
    is_valid = np.isfinite(scales) & np.isfinite(cells).all(1)
    valid = len(numbers) if is_valid.all() else int(is_valid.argmin())
    # In float32, as the device clips.
    most = np.array(numbers[:valid], np.float32)[:, None] - 1
    rows = np.clip(cells[:valid], 0, most).astype(np.int64)
    return rows, [(number, number, first.low, scale) for number, scale in zip(numbers, scales[:valid], strict=False)]


def _keyed_cells(bins: Thresholds, numbers: Sequence[int]) -> tuple[Array, list[tuple[Any, ...]]]:
    """Return the cells of bins, a row for each of these most numbers of cells that are even in key, and their scalars.

    The scalar is the power of two of keys that each cell has.
    """
    # Python's integers, which do not overflow.
    start, span = int(bins.keys[0]), bins.last - int(bins.keys[0])
    # `most` is a power of two: after this shift the span has at most so many cells.
    shifts = [max(0, span.bit_length() - most.bit_length() + 1) for most in numbers]
    unsigned = np.dtype(f"u{bins.keys.dtype.itemsize}")
    steps = bins.keys.astype(unsigned) - np.array(start % 2 ** (8 * unsigned.itemsize), unsigned)
    rows = (steps >> np.array(shifts, unsigned)[:, None]).astype(np.int64)
    return rows, [((span >> shift) + 1, shift) for shift in shifts]
