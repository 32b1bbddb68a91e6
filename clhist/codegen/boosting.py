"""The kernels that grow trees of gradient boosting: what they are made from, and their tables. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROWS = np.dtype([(name, np.uint64) for name in ("begin", "end", "first", "groups", "slot", "odd")])
"""Rows of a node: where they are, which work-groups share them, where their sums go, and whether its depth is odd."""

SPLIT = np.dtype([*((name, np.uint64) for name in ("left", "feature", "bin", "missing")), ("set", np.uint32, (8,))])
"""How a node is split: how many rows go to the left, and which; a `bin` of 256 is for those in the set."""

CHILD = np.dtype(
    [("slot", np.uint64), *((name, np.int64) for name in ("rows", "gradients", "hessians")), ("value", np.float64)]
)
"""A node whose best split is asked for."""

FOUND = np.dtype([("gain", np.float64), *((name, np.int64) for name in ("bin", "rows", "gradients", "hessians"))])
"""The best split of one feature, and what is left of it; 256 is added to `bin` where missing values are."""


@dataclass(frozen=True)
class BoostingSpec:
    """What the kernels are made from.

    Attributes
    ----------
    features : int
        That one work-group adds up, a multiple of 4.
    words : int
        Of 4 bins, of each row.
    bins : int
        Of a feature.
    lanes : int
        Work-items of a work-group; one, on CPUs, has cells of its own.
    hessians : bool
        Whether rows have hessians, or 1 each.
    doubles : bool
        Whether the device has float64, and so can find the best splits.
    """

    features: int
    words: int
    bins: int
    lanes: int
    hessians: bool
    doubles: bool

    @property
    def seekers(self) -> int:
        """Work-items that look for the best split of a feature."""
        return min(self.lanes, 32)

    @property
    def sums(self) -> int:
        """Of a bin: its rows, and what they add up to."""
        return 3 if self.hessians else 2


def features_at_once(words: int, bins: int, lanes: int, hessians: bool, local_memory: int) -> int:
    """Return how many features fit local memory, a multiple of 4, of as many each time as of all words are."""
    cell = 8 * (1 + hessians) if lanes == 1 else 4 * (3 + 2 * hessians)
    most = max(1, local_memory // (4 * bins * cell))
    return 4 * -(-words // -(-words // most))
