"""Dates and durations as values of groups: the integers that they are stored as, in which NaT is the least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NAT = int(np.iinfo(np.int64).min)
FILLED = ("min", "max", "first", "last")  # which are dates, and NaT of a group without any
SWEPT = ("count", "argmin", "argmax", *FILLED)  # which sweeps compute of the integers, by the least of which is NaT


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


def halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper and the lower 32 bits of int64, whose sums do not wrap."""
    return values >> 32, values & 0xFFFFFFFF


def mean_of_halves(upper: np.ndarray, lower: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return exact means as int64, rounded toward zero as pandas does, of sums of `halves`; NaT of none."""
    number = np.maximum(count, 1)
    whole, rest = np.divmod(upper, number)
    rest = (rest.astype(np.uint64) << np.uint64(32)) + lower.astype(np.uint64)
    part, remainder = np.divmod(rest, number.astype(np.uint64))
    mean = (whole << 32) + part.astype(np.int64)
    mean += (mean < 0) & (remainder > 0)
    return np.where(count > 0, mean, NAT)


def as_durations(spread: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Return standard deviations, floats in the unit of `dtype`, as durations; NaT of NaN."""
    ticks = np.where(np.isfinite(spread), spread, 0).astype(np.int64)
    assert dtype is not None
    unit, number = np.datetime_data(dtype)
    return np.where(np.isfinite(spread), ticks, NAT).view("m8" if unit == "generic" else f"m8[{number}{unit}]")
