"""The kernels of GPUs that number keys by ranges of them, or by few that some elements have: their sizes. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clhist._core.model.workload import LARGE_LOCAL_MEMORY

CHUNK = 2048
"""Words of a sample that a work-group sorts."""

MOST_LANES = 256
"""Work-items of a work-group without a tile, at most."""

MERGING = 4
"""Work-items that find the place of a word of a sample among all."""

KNOWN = 1024
"""Words that all elements are looked up among, at most.

Each work-group has a table of four times as many slots. Work-items wait for the longest search among them: with half as
many they took a third longer. With words and first positions that is 28 KB of local memory, of which each device of
OpenCL 1.2 has 32.
"""

_MORE_KNOWN = 8192  # the same of work-groups that have much local memory, and twice as many slots
PIECES = 8
"""Pieces of a range, at most, a power of two."""

BITS = 1 << 22
"""Bits that are set by keys of elements, to count those that differ."""

BLOCKS = 1024
"""Blocks of a range's words that know in which tile they begin."""

_LANES, _NUMBERING_LANES = 1024, 512
_ELEMENTS = 16, 8  # of a work-item in a tile, at most and at least
_CELLS = 4096
_FILLED = 3, 4  # of the slots of a range, at most
_MORE = 1024  # bytes of local memory
_GROUPS = 8  # that look keys up at once, at most, on a compute unit


class KeySizes(NamedTuple):
    """The capacity of work-groups.

    Attributes
    ----------
    lanes, per_lane : int
        Work-items of a work-group that has a tile, and elements of one of them.
    most_ranges, cells : int
        Ranges, at most, and cells that are told apart to find them.
    numbering_lanes, slots : int
        Work-items that number the keys of a range, and slots of their table.
    more_known : int
        Words that all elements are looked up among by work-groups of so many `lanes`; 0 if there is no room for many.
    groups : int
        Work-groups that look up few words, on a compute unit: those for which it has room, or there were more turns.
    """

    lanes: int
    per_lane: int
    most_ranges: int
    cells: int
    numbering_lanes: int
    slots: int
    more_known: int = 0
    groups: int = _GROUPS

    @property
    def stages(self) -> tuple[str, ...]:
        """The programs of these kernels: a call builds the first, and of the others those that it needs."""
        return ("sample", "find", *["find_more"] * (self.more_known > 0), "ranges")

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return self.lanes * self.per_lane

    @property
    def most_keys(self) -> int:
        """Different keys of a range, at most."""
        return self.slots * _FILLED[0] // _FILLED[1]

    @property
    def shared(self) -> int:
        """Words of local memory that are of tiles before they are of keys."""
        return max(self.numbering_lanes + BLOCKS // 2 + 1, self.most_keys // 2)


def key_sizes(word: np.dtype, local_memory: int, most_lanes: int, *, first: bool) -> KeySizes:
    """Return the sizes for words of this type, where a work-group has so many bytes of local memory, and work-items."""
    lanes = 1 << (min(_LANES, most_lanes, local_memory // 128).bit_length() - 1)
    numbering_lanes, size, is_large = min(_NUMBERING_LANES, lanes), word.itemsize, local_memory >= LARGE_LOCAL_MEMORY
    # Cells are an index of the ranges' first words. They and the sums of work-items are taken from the room first.
    cells = 1 << (min(_CELLS, local_memory // 64).bit_length() - 1)
    room, per_lane = local_memory - _MORE - 4 * lanes - 4 * cells, _ELEMENTS[0]
    # Words of a tile, with 16 bits each beside them, must leave room for the ranges.
    while per_lane > _ELEMENTS[1] and lanes * per_lane * (size + 2) > room * (92 if is_large else 60) // 100:
        per_lane //= 2
    most_ranges = max(1, min(2**13, (room - lanes * per_lane * (size + 2)) // (size + 4)))
    most = (local_memory // 2 if is_large else local_memory) - _MORE - 4 * numbering_lanes
    # The largest table whose slots have a word and four bytes, and whose keys have two bytes more.
    slots = 1
    while 2 * slots * (size + 4 + 2 * _FILLED[0] / _FILLED[1]) <= most:
        slots *= 2
    groups = local_memory // (KNOWN * (16 + size + 4 * first) + _MORE) if is_large else _GROUPS
    more_known, numbering_lanes = is_large * _MORE_KNOWN, min(numbering_lanes, slots // 2)
    return KeySizes(lanes, per_lane, most_ranges, cells, numbering_lanes, slots, more_known, min(groups, _GROUPS))
