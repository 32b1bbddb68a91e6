"""NumPy arrays of forms that a call has to take or refuse."""

from __future__ import annotations

import numpy as np


def strided(array: np.ndarray) -> np.ndarray:
    """Return the same values, not next to each other."""
    return np.repeat(array, 2)[::2]


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a copy that cannot be written."""
    array = array.copy()
    array.flags.writeable = False
    return array
