"""Dates and durations as values of groups: the integers that they are stored as, in which NaT is the least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

FILLED = ("min", "max", "first", "last")  # which are dates, and NaT of a group without any


def as_integers(x: Any) -> tuple[Any, np.dtype | None]:
    """Return dates or durations as int64, with their dtype; anything else as it is, and None."""
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "mM":
        return x, None
    array = x if isinstance(x, np.ndarray) else np.asarray(x)  # a masked array keeps its mask
    dtype = dtype.newbyteorder("=")
    return array.astype(dtype, copy=False).view(np.int64), dtype


def dates_of(results: Mapping[str, np.ndarray], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return those of the results that are dates, NaT of the groups without values."""
    found = {name: each.view(dtype) for name, each in results.items() if name in FILLED}
    for dates in found.values():
        dates[results["count"] == 0] = "NaT"
    return found
