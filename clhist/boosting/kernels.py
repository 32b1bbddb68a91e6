"""The kernels that grow trees of gradient boosting: what they are made from, and their tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clhist._core.spi import render

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


SUM_BITS = {"packed": 23, "narrow": 31}
"""Bits of the sums of a layout: all sums are less than 2 to this power; in the narrow one, those of gradients."""

MOST_ROWS = 65535
"""Rows that are added up before cells are emptied, at most: 16 bits of a cell count them."""


@dataclass(frozen=True)
class BoostingSpec:
    """The parameters of the kernels.

    Attributes
    ----------
    sweeps : tuple
        Layouts of sums in local memory, each with the features that one work-group adds up, a multiple of 4. The first
        one that `has_room` is used.
    words : int
        Of 4 bins, of each row.
    bins : int
        Of a feature.
    lanes : int
        Work-items of a work-group; one, on CPUs, has cells of its own.
    values : tuple of str
        C types of gradients and, unless all are 1, of hessians: floats, or integers.
    doubles : bool
        Whether the device has float64, and so can find the best splits.
    """

    sweeps: tuple[tuple[str, int], ...]
    words: int
    bins: int
    lanes: int
    values: tuple[str, ...]
    doubles: bool

    @property
    def seekers(self) -> int:
        """Work-items that look for the best split of a feature."""
        return min(self.lanes, 32)

    @property
    def hessians(self) -> bool:
        """Whether rows have hessians, or 1 each."""
        return len(self.values) > 1

    @property
    def whole(self) -> bool:
        """Whether values are integers, which are added up as they are."""
        return "float" not in self.values

    @property
    def sums(self) -> int:
        """The number of sums of a bin: the count of its rows, and one for each value."""
        return 1 + len(self.values)


def sweeps_of(
    words: int, bins: int, lanes: int, hessians: bool, whole: bool, local_memory: int
) -> tuple[tuple[str, int], ...]:
    """Return the layouts that sums may have, those of the fewest bytes first, with the features that fit local memory.

    The features are a multiple of 4, and shared out evenly among work-groups. Without hessians, gradients and the count
    share 64 bits, whatever their values are. With hessians all three do (`packed`), or gradients have a word of their
    own: of 32 bits (`narrow`), which GPUs add to with one atomic, or of 64 (`wide`).
    """
    bytes_of = {"packed": 8, "narrow": 12, "wide": 8 * (1 + hessians)}
    if not (whole and hessians):
        # Floats in units have up to 30 bits, too many for the sums of the smaller layouts.
        bytes_of = {"wide": bytes_of["wide"]}
    elif lanes == 1:
        # The narrow layout replaces a 64-bit atomic, which one work-item per work-group does not need.
        del bytes_of["narrow"]
    most = {layout: max(1, local_memory // (4 * bins * size)) for layout, size in bytes_of.items()}
    return tuple((layout, 4 * -(-words // -(-words // features))) for layout, features in most.items())


def has_room(layout: str, largest: Sequence[int], rows: int) -> bool:
    """Return whether no sum of so many rows is too large for a layout, by the largest absolute value of each kind."""
    most = max(largest) if layout == "packed" else largest[0]
    return layout not in SUM_BITS or most * rows < 1 << SUM_BITS[layout]


FEATURES_AT_ONCE = 8
"""Features whose bins a work-item searches for at once: their thresholds fill 16 KiB of local memory."""

TABLE = 256
"""Places for the thresholds of a feature, of which scikit-learn has at most 255."""


def render_feature_bins(lanes: int, value: str) -> str:
    """Return the OpenCL C program that finds the bins of features of a type, by `lanes` work-items in a work-group."""
    return render("boosting/feature_bins.mako", lanes=lanes, value=value, features=FEATURES_AT_ONCE, table=TABLE)


def render_boosting(spec: BoostingSpec) -> str:
    """Return the OpenCL C program that grows trees of gradient boosting."""
    derived = {name: getattr(spec, name) for name in ("seekers", "hessians", "whole")}
    return render("boosting/boosting.mako", most_rows=MOST_ROWS, sum_bits=SUM_BITS, **derived, **vars(spec))
