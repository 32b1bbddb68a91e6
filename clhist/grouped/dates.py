"""Dates and durations as values of groups: their integers, of which NaT is the least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from clhist.statistics.table import OF_COLUMN, OF_ORDER, TABLE

NAT = int(np.iinfo(np.int64).min)
SWEPT = tuple(name for name in OF_ORDER if not TABLE[name].is_apart)  # sweeps compute these from the integers
FILLED = tuple(name for name in SWEPT if name in OF_COLUMN)  # results that are dates; NaT for a group without values


def as_integers(x: Any) -> tuple[Any, np.dtype | None]:
    """Return dates or durations as int64, with their dtype; anything else as it is, and None."""
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "mM":
        return x, None
    array = x if isinstance(x, np.ndarray) else np.asarray(x)  # a masked array keeps its mask
    # Native byte order first: the view below reinterprets the bytes.
    dtype = dtype.newbyteorder("=")
    return array.astype(dtype, copy=False).view(np.int64), dtype


def dates_of(results: Mapping[str, np.ndarray], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return the results that are dates, with NaT for groups without values."""
    date_results = {name: array.view(dtype) for name, array in results.items() if name in FILLED}
    for dates in date_results.values():
        dates[results["count"] == 0] = "NaT"
    return date_results


def halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper and the lower 32 bits of int64, whose sums do not wrap."""
    return values >> 32, values & 0xFFFFFFFF


def mean_of_halves(upper: np.ndarray, lower: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return exact means from sums of `halves`, as int64 rounded toward zero as in pandas; NaT without values."""
    number = np.maximum(count, 1)
    # Long division in base 2^32: floor division leaves a remainder in [0, number), which unsigned arithmetic can shift.
    whole, rest = np.divmod(upper, number)
    rest = (rest.astype(np.uint64) << np.uint64(32)) + lower.astype(np.uint64)
    part, remainder = np.divmod(rest, number.astype(np.uint64))
    mean = (whole << 32) + part.astype(np.int64)
    # Floor division rounds negative means down; add one to round toward zero.
    mean += (mean < 0) & (remainder > 0)
    return np.where(count > 0, mean, NAT)


def as_durations(spread: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Return standard deviations, floats in the unit of `dtype`, as durations; NaT of NaN.

    Those of weeks, days, hours and minutes are in seconds: half a day is no whole number of days.
    """
    assert dtype is not None
    unit, number = np.datetime_data(dtype)
    if unit in ("W", "D", "h", "m"):
        spread = spread * (np.timedelta64(number, cast(Any, unit)) / np.timedelta64(1, "s"))
        unit, number = "s", 1
    # The cast of NaN to an integer is undefined, so NaN is replaced first.
    ticks = np.where(np.isfinite(spread), spread, 0).astype(np.int64)
    return np.where(np.isfinite(spread), ticks, NAT).view("m8" if unit == "generic" else f"m8[{number}{unit}]")
