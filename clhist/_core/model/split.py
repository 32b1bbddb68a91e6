"""Pairs grouped by ranges of bins (a multisplit): how, and which ranges are shared out among work-groups.

Notes [A range for each compute unit] and [Shares by cost], docs/decisions/0008.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

# A range is shared out if it costs more than 1.5 fair shares of a work-group: 3 of 2 pieces.
SHARED = 3  # pieces
PIECES = 2  # for each work-group
_LEAST_PIECE = 1024  # least cost of a piece, in pairs


class Split(NamedTuple):
    """A grouping of pairs by ranges of bins.

    Attributes
    ----------
    elements : int
        Of the map, each of which emits one pair at most.
    ranges : int
        Of `width` bins each.
    width : int
        Bins of a range.
    work_groups : int
        Among which ranges with many pairs are shared out.
    slots : int
        Tasks that are listed, at most: pieces of ranges that are shared out, and where results are made of copies
        whole ranges.
    segment_cost : int
        What the pairs of a range in one tile cost besides, in pairs, at most.
    most_pairs : int
        Pairs of a range that is not shared out, all others being; 0 if that is as `work_groups` says.
    """

    elements: int
    ranges: int
    width: int
    work_groups: int
    slots: int
    segment_cost: int
    most_pairs: int = 0

    @property
    def even_pieces(self) -> int:
        """Pieces of all ranges, if they have equally many pairs: none where each is one task."""
        (piece, _), pairs = self._replace(segment_cost=0).piece(1), self.elements / self.ranges
        return self.ranges * ceil(pairs / piece) if pairs > SHARED * piece else 0

    def piece(self, tile: int) -> tuple[int, int]:
        """Return the cost of a piece, and that of a segment besides its pairs, with tiles of so many elements."""
        # A range beyond `most_pairs` is shared out whatever its share is, since it exceeds local memory.
        if self.most_pairs:
            return self.most_pairs // SHARED, 0
        segments = self.ranges * ceil(self.elements / tile)
        # A segment costs no more than the mean number of its pairs.
        cost = min(self.segment_cost, max(1, self.elements // segments))
        # With fewer elements than segments, most segments are empty and cost nothing.
        whole = self.elements + cost * min(self.elements, segments)
        return max(_LEAST_PIECE, ceil(whole / (PIECES * self.work_groups))), cost


def shared_pieces(pieces: int) -> int:
    """Return how many pieces ranges make that are shared out, at most, where all pairs make so many."""
    # A shared range has c > SHARED pieces. Rounded up these are less than c + 1 < (1 + 1 / SHARED) c.
    return ceil((1 + 1 / SHARED) * pieces) + 1
