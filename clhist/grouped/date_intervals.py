"""Intervals of dates and durations: their edges as exact integers, and as columns or texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from typing import Any, NamedTuple, cast

import numpy as np

from clhist._core.runtime.columns import read_column
from clhist.grouped.computed_keys import as_date, as_dates, as_zone, checked_dates, exact_date, with_time
from clhist.grouped.dates import NAT
from clhist.grouped.frames import library_of
from clhist.statistics.quantiles import fraction_of

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # the units of columns with date and time


@dataclass(frozen=True)
class DateEdges:
    """Increasing dates or durations.

    Attributes
    ----------
    nanoseconds : sequence of int
        Integers of Python, since those of the year 9999 exceed 64 bits; dates with a time zone in UTC.
    kind : str
        "M" of dates, "m" of durations.
    unit : str
        The unit in which they are shown.
    has_zone : bool
        Whether they are dates with a time zone.
    """

    nanoseconds: Sequence[int]
    kind: str
    unit: str
    has_zone: bool


class Ticks(NamedTuple):
    """A column of dates as integers, and edges of intervals in the same unit.

    Attributes
    ----------
    values, is_missing : array of shape (N,)
        Ticks, of int64, and which of them are NaT.
    edges : array of int64 of shape (H + 1,)
        Edges of the intervals, rounded so that no tick changes its interval.
    has_end : bool
        Whether the outer edge that intervals exclude is a tick.
    shown : pandas.Index or list of str
        The edges, for `interval_key`.
    """

    values: np.ndarray
    is_missing: np.ndarray
    edges: np.ndarray
    has_end: bool
    shown: Any


def date_edges(bins: Any) -> DateEdges | None:
    """Return edges that are dates or durations; None of numbers.

    Raises
    ------
    TypeError
        If dates and durations, or dates with and without a time zone, are mixed.
    """
    data = read_column(bins)
    values = np.asarray(bins) if data is None else data.values
    if values.ndim != 1 or not values.size or values.dtype.kind not in "mMOU":
        return None
    has_zone = data is not None and data.like is not None
    if values.dtype.kind in "mM":
        dates = [*values]
    else:
        # The caller's elements: NumPy would make microseconds of the nanoseconds of pandas.
        elements = [*bins]
        if not isinstance(elements[0], str | date | timedelta | np.datetime64 | np.timedelta64):
            return None
        instants = [as_date("bins", element) for element in elements]
        zones = {isinstance(element, datetime) and element.tzinfo is not None for element in instants}
        has_zone = True in zones
        dates = [exact_date(_in_utc(element)) for element in instants]
        if len(zones) > 1 or len({element.dtype.kind for element in dates}) > 1:
            raise TypeError(f"bins: expected dates with a time zone, dates without one, or durations, got {bins!r:.60}")
    units = {np.datetime_data(element.dtype)[0] for element in dates}
    unit = next((unit for unit in ("ns", "us", "ms") if unit in units), "s")
    return DateEdges([*map(_nanoseconds, dates)], dates[0].dtype.kind, unit, has_zone)


def ticks_of(
    column: Any, bins: np.ndarray | DateEdges | Callable[[np.ndarray, str], Sequence[int]], right: bool
) -> Ticks | None:
    """Return dates or durations and the edges of their intervals; None of a column of others.

    Parameters
    ----------
    column : column of pandas, polars or PyArrow
        The dates.
    bins : edges or callable
        Edges of the intervals, or a function that returns them, in ticks, of the ticks of a column and their unit.
    right : bool
        Whether intervals include their right edge, rather than the left one.

    Raises
    ------
    TypeError, ValueError
        If the edges are of another kind than the column, or the column has too few ticks for so many intervals.
    """
    try:
        column = checked_dates(column, "mM")
    except TypeError:
        return None
    library = library_of(column) or ""
    # A column of pandas in Arrow's memory is read by Arrow.
    is_arrow = hasattr(getattr(column, "dtype", None), "pyarrow_dtype")
    stored = import_module("pyarrow").array(column) if is_arrow else column
    is_duration = as_dates(stored).dtype.kind == "m"
    stored, zone = (stored, None) if is_duration else with_time(stored, "pyarrow" if is_arrow else library)
    dates = as_dates(stored)
    values, unit = dates.view(np.int64), np.datetime_data(dates.dtype)[0]
    tick, is_missing = _NANOSECONDS[unit], values == NAT
    if callable(bins):
        nanoseconds = [edge * tick for edge in bins(values[~is_missing], unit)]
        bins = DateEdges(nanoseconds, dates.dtype.kind, unit, zone is not None)
    kind = "durations" if is_duration else "dates"
    if not isinstance(bins, DateEdges) or bins.kind != dates.dtype.kind:
        raise TypeError(f"bins: expected {kind} as edges, as the column has, got {_described(bins)}")
    if bins.has_zone != (zone is not None):
        raise TypeError(f"bins: expected dates {'with a' if zone else 'without'} time zone, as those of the column are")
    edges = [edge // tick if right else -(-edge // tick) for edge in bins.nanoseconds]
    end = bins.nanoseconds[0 if right else -1]
    return Ticks(values, is_missing, _clipped(edges), end % tick == 0, _shown(bins, library, zone))


def _described(bins: np.ndarray | DateEdges) -> str:
    return "numbers" if isinstance(bins, np.ndarray) else "dates" if bins.kind == "M" else "durations"


def _in_utc(element: Any) -> Any:
    """Return a date with a time zone in UTC, without one; others unchanged."""
    has_zone = isinstance(element, datetime) and element.tzinfo is not None
    return element.astimezone(UTC).replace(tzinfo=None) if has_zone else element


def _nanoseconds(element: Any) -> int:
    unit, number = np.datetime_data(element.dtype)
    if np.isnat(element):
        raise ValueError("bins: expected increasing edges, got NaT")
    if unit in ("Y", "M") and element.dtype.kind == "M":
        element, unit, number = element.astype("M8[D]"), "D", 1  # their first days
    tick = np.timedelta64(number, cast(Any, unit)) // np.timedelta64(1, "ns")
    return int(element.astype(np.int64)) * int(tick)


def even_edges(values: np.ndarray, unit: str, number: int) -> list[int]:
    """Return edges of intervals of equal width, rounded down to ticks.

    Raises
    ------
    ValueError
        If there are fewer ticks than intervals.
    """
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if low == high:
        second = _NANOSECONDS["s"] // _NANOSECONDS[unit]  # as in pandas
        low, high = low - second, high + second
    if number > high - low:
        raise ValueError(f"bins: expected at most {high - low} intervals of dates in units of {unit}, got {number}")
    # Integers of Python are exact, and do not overflow.
    return [low + (high - low) * place // number for place in range(number + 1)]


def quantile_edges(values: np.ndarray, unit: str, shares: Sequence[float]) -> list[int]:
    """Return quantiles that differ, rounded down to ticks; a single one twice, since an interval has two edges."""
    ordered, edges = np.sort(values).tolist() or [0], set()
    for share in shares:
        part, whole = fraction_of(share)
        place, rest = divmod(part * (len(ordered) - 1), whole)
        low, high = ordered[place], ordered[min(place + 1, len(ordered) - 1)]
        edges.add(low + (high - low) * rest // whole)
    return [*sorted(edges)] if len(edges) > 1 else [*edges] * 2


def _clipped(ticks: Sequence[int]) -> np.ndarray:
    """Return integers as int64, those beyond its range at its ends; the least of int64 is NaT."""
    return np.array([min(max(tick, NAT + 1), -NAT - 1) for tick in ticks], np.int64)


def _shown(edges: DateEdges, library: str, zone: Any) -> Any:
    """Return edges as an index of pandas, or as texts, in a time zone."""
    ticks = _clipped([edge // _NANOSECONDS[edges.unit] for edge in edges.nanoseconds])
    dates = ticks.view(f"{edges.kind}8[{edges.unit}]")
    if library == "pandas":
        index = import_module("pandas").Index(dates)
        return index if zone is None else index.tz_localize("UTC").tz_convert(zone)
    if edges.kind == "m":
        return [_duration_text(edge, edges.unit) for edge in edges.nanoseconds]
    if zone is None:
        days = 24 * 3600 * _NANOSECONDS["s"]
        unit = "D" if all(edge % days == 0 for edge in edges.nanoseconds) else edges.unit
        return [text.replace("T", " ") for text in np.datetime_as_string(dates, cast(Any, unit)).tolist()]
    texts = []
    for edge in dates:
        instant = edge.astype("M8[s]").item().replace(tzinfo=UTC).astimezone(as_zone(zone))
        clock = edge + np.timedelta64(cast(timedelta, instant.utcoffset()))
        text = np.datetime_as_string(clock.astype(dates.dtype))
        texts.append(f"{text.replace('T', ' ')}{instant.isoformat()[-6:]}")
    return texts


def _duration_text(nanoseconds: int, unit: str) -> str:
    """Return a duration as pandas shows it, such as "1 days 02:30:00"."""
    seconds, fraction = divmod(nanoseconds, _NANOSECONDS["s"])
    days, seconds = divmod(seconds, 24 * 3600)
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    decimals = f".{fraction:09d}"[: digits + 1] if digits else ""
    return f"{days} days {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{decimals}"
