"""Ranges of bins whose rows a work-group of a GPU counts, and places, in local memory; see `model.rows`."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from clhist._core.model.partition import MOST_PARTITION_BINS, Split, most_partitions, power_of_two, shared_pieces
from clhist._core.model.workload import LARGE_LOCAL_MEMORY, Workload

MOST_TILE = 2**16  # elements, whose numbers in a tile have 16 bits
LEAST_PIECE = 64  # rows of a bin that are never shared out
# Of a range, where there need not be more bins and elements; and of the room for its elements, where all have as many.
# Of the kernels of note [Ranges of rows in local memory] below, without figures.
_LEAST_WIDTH, _LEAST_ELEMENTS, _FILLED = 8, 1024, 0.75
_MORE_BYTES = 512  # of local memory, kept free besides the room for elements and bins
_LEAST_ROOM = 4096  # bytes: with less local memory rows are not grouped by ranges
# Sizes of rows that are grouped themselves, not by number: gathered, they would use a quarter of each line that a GPU
# fetches. Note [Ranges of rows in local memory], docs/decisions/0018.
_CARRIED_BYTES = 8, 12, 16


class RowRanges(NamedTuple):
    """Ranges of bins, by which the numbers of rows are grouped before.

    Attributes
    ----------
    split : Split
        How they are grouped.
    most_width : int
        Bins of a range that a work-group has room for.
    carried_bytes : int
        Of a row that is grouped itself, in the place of its number; else 0.
    """

    split: Split
    most_width: int
    carried_bytes: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of pairs, and of counts of pieces, about."""
        split = self.split
        return split.elements * (2 + (self.carried_bytes or 2)) * 9 // 8 + 4 * split.slots * split.width


def row_ranges(load: Workload, elements: int, bins: int) -> RowRanges:
    """Return ranges of bins whose rows local memory has room for, if so many there may be."""
    # A word for each row, and two for each bin that has very many.
    most = int((_room(load) - 4 * _width(load)) / (4 + 8 / LEAST_PIECE)) // LEAST_PIECE * LEAST_PIECE
    # As few ranges as local memory allows, rounded up to equal shares of the work-groups.
    # Ranges with few elements or bins do not pay off, so `worth` limits the rounding.
    groups = ceil(min(load.profile.hardware_threads, elements) / placing_group(load))
    least = max(_least_ranges(load), ceil(elements / (_FILLED * most)))
    worth = min(elements // _LEAST_ELEMENTS, bins // _LEAST_WIDTH, most_partitions(load))
    width = max(2, ceil(bins / max(_least_ranges(load), min(ceil(least / groups) * groups, worth))))
    split = Split(elements, ceil(bins / width), width, groups, 0, 0, most)
    # The size of a piece follows from the split, and the number of slots from the piece.
    split = split._replace(slots=shared_pieces(ceil(elements / split.piece(1)[0])))
    assert load.rows is not None
    # Of rows so narrow a GPU would read several others with each, and no cache has so many.
    size, profile = load.rows.components * (load.value_bytes or load.bin_bytes[0]), load.profile
    is_large = profile.local_memory >= LARGE_LOCAL_MEMORY and elements * size > profile.l2_cache
    return RowRanges(split, _width(load), size if is_large and size in _CARRIED_BYTES else 0)


def cannot_range(load: Workload) -> Exception | None:
    """Return why there can be no such ranges, if so."""
    if _room(load) < _LEAST_ROOM:
        return ValueError(f"update: 'gather' needs more than {load.profile.local_memory} bytes of local memory")
    if _least_ranges(load) > most_partitions(load):
        assert load.rows is not None
        return ValueError(
            f"update: 'gather' takes at most {most_partitions(load) * _width(load)} bins of rows on "
            f"{load.profile.name}, got {load.num_bins // load.rows.components}"
        )
    return None


def placing_group(load: Workload) -> int:
    """Return the work-items of a work-group that counts and places."""
    return load.choices.work_group_size or load.profile.work_group_size


def _room(load: Workload) -> int:
    """Return the bytes of local memory of a work-group, besides a word for each work-item."""
    # Two work-groups are resident where local memory is large, so each may use half of it.
    most = load.profile.local_memory
    return (most // 2 if most >= LARGE_LOCAL_MEMORY else most) - placing_group(load) * 4 - _MORE_BYTES


def _width(load: Workload) -> int:
    # A word for each bin takes a third of the room at most; the rest is for rows.
    return power_of_two(max(2, min(MOST_PARTITION_BINS, _room(load) // 12)))


def _least_ranges(load: Workload) -> int:
    assert load.rows is not None
    return ceil(load.num_bins // load.rows.components / _width(load))
