"""Guesses of the bin of an element: bins of one width by a multiplication, others by a table of cells.

The host computes the guesses as the device does, so that their errors are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from clhist._core.keys import Array, from_key, from_keys
from clhist.axes.block_search import LINEAR
from clhist.axes.thresholds import Thresholds

# Part of a bin by which a guess of even bins may be wrong; beyond, a table is better.
FARTHEST = 0.25
# Part of a bin by which an upper bound of that may exceed it: in so many bins elements are compared for nothing.
_SLACK = 2.0**-8
# Rounding error of a guess, in bins, for each bin: an upper bound for any compiler.
ROUNDED = 2.0**-22
# Cells of a table: as int32, the most take 256 KiB.
_LEAST_CELLS, _MOST_CELLS = 256, 2**16
# The parts of a smaller extent may be subnormal, which devices may flush to 0.
SMALLEST = 2.0**-100


def table_of(bins: Thresholds, kind: str) -> tuple[str, Array, tuple[Any, ...]] | None:
    """Return a table of cells with the arguments that say where these are, or None of linear ones if they cannot be.

    It is as large as makes the search short: a step less is worth twice the cells.
    """
    best: tuple[str, Array, tuple[Any, ...]] | None = None
    num_cells = max(_LEAST_CELLS, 1 << len(bins.keys).bit_length())
    while best is None or (steps_of(best[1]) > 1 and num_cells <= _MOST_CELLS):
        if kind == LINEAR:
            extent = _extent(bins)
            guess = Guess.of(bins, num_cells / extent, extent)
            cells = None if guess is None else guess.cells(bins, num_cells)
            if guess is None or cells is None:
                return None
            table: tuple[str, Array, tuple[Any, ...]] = (kind, cells, (num_cells, guess.low, guess.scale))
        else:
            cells, shift = _keyed_cells(bins, num_cells)
            table = (kind, cells, (shift,))
        if best is None or steps_of(table[1]) < steps_of(best[1]):
            best = table
        num_cells *= 2
    return best


def steps_of(cells: Array) -> int:
    """Return the steps of a binary search in the fullest cell."""
    return int(np.diff(cells).max()).bit_length()


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

    def cells(self, bins: Thresholds, num_cells: int) -> Array | None:
        """Return the table of linear cells, or None if there are guesses that are not finite."""
        guesses = self.at(bins.keys, bins.dtype)
        if not np.isfinite(guesses).all():
            return None
        return _table(np.clip(guesses, 0, num_cells - 1).astype(np.int64), num_cells)


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


def _keyed_cells(bins: Thresholds, most: int) -> tuple[Array, int]:
    """Return a table of at most so many cells that are even in key, and the power of two of keys that each has."""
    # Python's integers, which do not overflow.
    start, span = int(bins.keys[0]), bins.last - int(bins.keys[0])
    # `most` is a power of two: after this shift the span has at most so many cells.
    shift = max(0, span.bit_length() - most.bit_length() + 1)
    unsigned = np.dtype(f"u{bins.keys.dtype.itemsize}")
    steps = bins.keys.astype(unsigned) - np.array(start % 2 ** (8 * unsigned.itemsize), unsigned)
    return _table((steps >> unsigned.type(shift)).astype(np.int64), (span >> shift) + 1), shift


def _table(cell_of_bin: Array, num_cells: int) -> Array:
    """Return the first bin of each cell, and of one more behind."""
    # Thresholds in earlier cells, counted: the number of the bin that reaches into a cell.
    begun = np.bincount(cell_of_bin[1:], minlength=num_cells)
    return np.concatenate([[0], np.cumsum(begun)]).astype(np.int32)
