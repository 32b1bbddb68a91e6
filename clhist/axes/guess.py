"""Guesses of the bin of an element: bins of one width by a multiplication, others by a table of cells.

The host computes the guesses as the device does, so that their errors are known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
    def of(
        cls, bins: Thresholds, kind: str, most: int = _MOST_CELLS, steps: Iterable[int] = range(1, 64)
    ) -> Cells | None:
        """Return the fewest of up to `most` cells with the shortest search that these allow; None if there are none.

        The search takes one of the numbers of `steps`, the last of which suffices for all bins. There are more cells
        than `most` if bins are more than half of that.
        """
        least = max(_LEAST_CELLS, 1 << len(bins.keys).bit_length())
        most = max(least, most)
        # The cells of all smaller numbers are those of the greatest one without their last bits.
        if kind == LINEAR:
            extent = _extent(bins)
            guess = Guess.of(bins, most / extent, extent)
            guesses = None if guess is None else guess.at(bins.keys, bins.dtype, ascending=True)
            # A difference of float32 may overflow though that of float64 does not.
            if guess is None or guesses is None or not guesses[-1] < np.inf:
                return None
            # In float32, as the device clips.
            if guesses[-1] > np.float32(most - 1):
                guesses = np.minimum(guesses, np.float32(most - 1))
            cells = guesses.astype(np.intp)
            number, bits = _search(cells, steps, (most // least).bit_length() - 1)
            scale = guess.scale.dtype.type((most >> bits) / extent)
            return cls(LINEAR, cells >> bits, most >> bits, (most >> bits, guess.low, scale), number)
        keys, unsigned = bins.keys, np.dtype(f"u{bins.keys.dtype.itemsize}")
        span = bins.last - int(keys[0])  # a number of Python, which does not overflow
        # The span has at most so many cells after such a shift.
        shift, greatest = (max(0, span.bit_length() - n.bit_length() + 1) for n in (most, least))
        cells = ((keys.view(unsigned) - keys[:1].view(unsigned)) >> unsigned.type(shift)).astype(np.intp)
        number, bits = _search(cells, steps, greatest - shift)
        return cls(KEYED, cells >> bits, (span >> shift + bits) + 1, (shift + bits,), number)

    @property
    def table(self) -> Array:
        """The first bin of each cell, and of one more behind."""
        return np.repeat(np.arange(len(self.cell_of_bin), dtype=np.int32), self._counts(1)[1:])

    def packed(self, keys: Array) -> Array:
        """Return the packed table of int64, for a search of one step; `keys` are those of bins.

        An entry is a bin `k` and a key `limit`: keys above that are in bin ``k + 1``. They are one number
        if both have 32 bits, else two. The first entry is for what lies outside.
        """
        # Entries by bin, which each cell then gets.
        bins, greatest = len(keys), np.iinfo(keys.dtype).max
        entries = np.empty((bins + 1, 2), keys.dtype)
        # The low half of a number comes first on most hosts.
        k, limit = entries.T if keys.dtype.itemsize == 8 or sys.byteorder == "little" else entries.T[::-1]
        k[:] = np.arange(-1, bins)
        np.subtract(keys[1:], keys.dtype.type(1), limit[1:bins])
        # No key is above the limit of the last bin, nor of what lies outside.
        limit[0] = limit[bins] = greatest
        # No key is in a bin whose next one begins with the least of all keys.
        if bins > 1 and keys[1] == np.iinfo(keys.dtype).min:
            all_above = np.flatnonzero(keys[1:] == keys[1]) + 1
            k[all_above] += 1
            limit[all_above] = greatest
        return np.repeat(entries, self._counts(0), 0).view(np.int64).reshape(-1)

    def _counts(self, more: int) -> Array:
        """Return 1, and the number of cells that begin in each bin, `more` of the last one."""
        # A bin reaches from behind the cell of its threshold into that of the next one.
        cells, bins = self.cell_of_bin, len(self.cell_of_bin)
        counts = np.empty(bins + 1, np.intp)
        counts[0], end = 1, max(self.number, cells.item(bins - 1) + 1) + more
        if bins == 1:
            counts[1] = end
        else:
            counts[1], counts[bins] = cells.item(1) + 1, end - 1 - cells.item(bins - 1)
            np.subtract(cells[2:], cells[1:-1], counts[2:bins])
        return counts


def _search(cells: Array, steps: Iterable[int], most: int) -> tuple[int, int]:
    """Return the steps of a binary search in the fullest cell, and how many bits of cells, `most` or less, it spares.

    `cells` are those of bins, ascending.
    """
    # The first bin is that of the first cell, where no threshold is.
    behind = cells[1:]
    if not len(behind):
        return 0, most
    for number in steps:
        # So many steps find one of these thresholds in a cell; one more must lie in the next cell.
        run = 2**number - 1
        if len(behind) <= run:
            break
        # Numbers that differ in a bit are in different cells unless that bit is spared.
        differences = behind[run:] ^ behind[:-run]
        # The index is found in a third of the time of the minimum itself.
        if least := differences.item(differences.argmin()):
            return number, min(most, least.bit_length() - 1)
    return number, most


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

    def at(self, keys: Array, dtype: np.dtype, *, ascending: bool = False) -> Array:
        """Return the guesses for these keys, as float32."""
        if dtype.kind == "f":
            # Keys of numbers that are not negative are their bits.
            numbers = keys.view(dtype) if ascending and keys[0] >= 0 else from_keys(keys, dtype)
            return ((numbers - self.low) * self.scale).astype(np.float32, copy=False)
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
