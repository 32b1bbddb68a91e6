"""The kernels that sort by digits: their parameters. Pure."""

from __future__ import annotations

import numpy as np

from clhist.planning.feature import UINT, Parameter

EACH = 6
"""Keys of a tile for each work-item, whose ranks have 4 bits each in a word."""

VALUES = 256
"""How many a digit has; a multiple of the work-items of a work-group."""


def lanes_of(word: np.dtype, most: int, local_memory: int) -> int:
    """Return the work-items of a work-group: so many at most, and as many as local memory has room for."""
    each = (EACH + 1) * (word.itemsize + 4) + 18 * 2 + 4
    return 1 << (min(VALUES, most, (local_memory - 2 * VALUES * 4) // each).bit_length() - 1)


def _buffers(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter("__global", name, None) for name in names)


def _uints(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter("const uint", name, UINT) for name in names)


PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "sort_tile": (*_buffers("keys", "values"), *_uints("size", "bits")),
    "count_digits": (*_buffers("keys"), *_uints("size", "share", "shift"), *_buffers("counts")),
    "scan_digits": (*_buffers("counts"), *_uints("groups")),
    "move_digits": (
        *(*_buffers("keys", "values"), *_uints("size", "share", "shift")),
        *_buffers("counts", "to_keys", "to_values"),
    ),
}
"""The parameters of each kernel of ``digits.mako``, in order."""
