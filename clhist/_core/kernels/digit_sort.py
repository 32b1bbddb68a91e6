"""The kernels that sort by digits: their sizes. Pure."""

from __future__ import annotations

import numpy as np

from clhist._core.model.sort import DIGIT_BITS

EACH = 6
"""Keys of a tile for each work-item, whose ranks have 4 bits each in a word. Eight spill registers on Intel's GPUs."""

VALUES = 1 << DIGIT_BITS
"""How many a digit has; a multiple of the work-items of a work-group."""


def lanes_of(word: np.dtype, most: int, local_memory: int) -> int:
    """Return the work-items of a work-group: so many at most, and as many as local memory has room for."""
    # A work-item has its keys and their numbers, with one more for padding, 18 counters of 16 bits, and a sum.
    item_bytes = (EACH + 1) * (word.itemsize + 4) + 18 * 2 + 4
    return 1 << (min(VALUES, most, (local_memory - 2 * VALUES * 4) // item_bytes).bit_length() - 1)
