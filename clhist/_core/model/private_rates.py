"""Measured rates of private copies on a CPU: how fast work-items update copies of so many cells."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import NamedTuple

from clhist._core.model.times import CELLS, COUNT

# Kinds of cells that are measured: counts in 32 bits, and accumulators of at most so many bytes, of values in memory.
KINDS = (COUNT, "4 bytes", "8 bytes", "16 bytes")
_MOST_BYTES = 16  # of a cell, of the largest of these
# Cells that all copies of a work-item have together.
GRID = tuple(8**k for k in range(1, 8))
WORK_ITEMS = "work-items of private copies"  # with which they were measured


def cells_name(kind: str, cells: int) -> str:
    """Return the name of a rate in a profile, such as "count, private, 512 cells"."""
    return f"{kind}, private, {cells} cells"


def tiles_name(kind: str) -> str:
    """Return the name of the rate of pairs that are split by tiles first: `clhist._core.model.partition`."""
    return f"{kind}, private, by tiles"


def kind_of(counts: bool, bin_bytes: int) -> str:
    """Return which of `KINDS` accumulators of `bin_bytes` are; `counts` says that no values are read."""
    return (
        COUNT
        if counts and bin_bytes <= 4
        else next((f"{size} bytes" for size in (4, 8) if bin_bytes <= size), KINDS[-1])
    )


class PrivateRates(NamedTuple):
    """Measured rates of one kind of cells on one CPU.

    Attributes
    ----------
    updates : tuple of (int, float)
        Cells of a work-item, ascending, and updates of the device in a nanosecond.
    filling : float
        Cells of 4 bytes that the device initialises and combines in a nanosecond.
    cell_bytes : int
        Of a cell.
    tiles : float
        Updates in a nanosecond of many cells where pairs are split by tiles first; 0 if not known. Splitting moves
        values, accumulation touches cells: where their sizes differ it is the harmonic mean of both rates.
    """

    updates: tuple[tuple[int, float], ...]
    filling: float
    cell_bytes: int
    tiles: float = 0.0

    @classmethod
    def of(cls, rates: Mapping[str, float], value_bytes: int, bin_bytes: int) -> PrivateRates | None:
        """Return the rates of a profile for values of so many bytes (counts: 0); None if one is missing."""
        kind = kind_of(not value_bytes, bin_bytes)
        grid_rates = tuple((cells, rates.get(cells_name(kind, cells), 0.0)) for cells in GRID)
        filling = rates.get(CELLS, 0.0)
        # Accumulation depends on the size of a bin, splitting on that of a value.
        tile_rates = [rates.get(tiles_name(of), 0.0) for of in (kind, kind_of(not value_bytes, value_bytes))]
        tiles = 2 / sum(1 / rate for rate in tile_rates) if all(tile_rates) else 0.0
        return cls(grid_rates, filling, bin_bytes, tiles) if filling and all(rate for _, rate in grid_rates) else None

    def rate(self, cells: float) -> float:
        """Return the updates in a nanosecond with so many cells.

        Larger cells than those that were measured count as so many of those as take the same memory. Between measured
        numbers rates change with the logarithm. Beyond the last one it is the time of an update that goes on growing
        as it did before: more and more of it is spent on caches and pages that miss.
        """
        cells = cells * max(1.0, self.cell_bytes / _MOST_BYTES)
        if cells <= self.updates[0][0]:
            return self.updates[0][1]
        for (few, fast), (many, slow) in zip(self.updates, self.updates[1:], strict=False):
            if cells <= many:
                return fast + (slow - fast) * log2(cells / few) / log2(many / few)
        # A rate that rises at the end of the grid is noise: extrapolated, times would become negative.
        (few, fast), (many, slow) = self.updates[-2:]
        growth = max(0.0, 1 / slow - 1 / fast) / log2(many / few)
        return 1 / (1 / slow + growth * log2(cells / many))

    def nanoseconds(self, elements: int, bins: int, work_items: int, turns: int) -> float:
        """Return how long a sweep takes where each work-item updates `turns` copies of `bins` bins in turn."""
        # Turns divide the updates of a bin, but enlarge the memory of a work-item: its cells decide the rate.
        cells = turns * bins
        return elements / self.rate(cells) + work_items * cells * self.cell_bytes / 4 / self.filling
