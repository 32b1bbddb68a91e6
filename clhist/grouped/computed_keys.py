"""Keys that are computed from a column of a table: intervals, parts of dates, and dates rounded down."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, cast

import numpy as np

from clhist._core.runtime.columns import read_column
from clhist.grouped.frames import library_of

_DAY = np.timedelta64(1, "D")
_ORIGIN = np.datetime64("1970-01-05", "D")  # a Monday
_POLARS = {"dayofyear": "ordinal_day"}  # what the libraries call a part otherwise
_PANDAS = {"dayofyear": "day_of_year", "weekday": "day_of_week"}
_ARROW = {"dayofyear": "day_of_year", "week": "iso_week", "weekday": "day_of_week"}
# Units of NumPy by the names that widths have.
_UNITS = {
    **{unit: unit for unit in ("ns", "us", "ms", "s", "m", "h", "D", "W")},
    **{"µs": "us", "min": "m", "H": "h", "d": "D", "day": "D", "days": "D", "w": "W", "week": "W"},
}
PARTS = ("year", "quarter", "month", "week", "day", "weekday", "dayofyear", "hour", "minute", "second")


def interval_key(name: Any, column: Any, edges: np.ndarray, codes: np.ndarray, right: bool, labels: Any) -> Any:
    """Return the intervals with the numbers `codes`, -1 where there is none, as ordered categories."""
    texts = labels or _texts(edges, right)
    if hasattr(column, "dictionary_encode"):
        pyarrow = import_module("pyarrow")
        indices = pyarrow.array(codes.astype(np.int32), mask=codes < 0)
        return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(texts, pyarrow.string()), ordered=True)
    if hasattr(column, "to_physical"):
        polars = import_module("polars")
        places = polars.Series(codes).set(polars.Series(codes < 0), None)
        return polars.Series(name, texts, polars.Enum(texts)).gather(places)
    pandas = import_module("pandas")
    intervals = labels or pandas.IntervalIndex.from_arrays(edges[:-1], edges[1:], "right" if right else "left")
    values = pandas.Categorical.from_codes(codes, intervals, ordered=True)
    return pandas.Series(values, index=column.index, name=name)


def _texts(edges: np.ndarray, right: bool) -> list[str]:
    """Return texts of intervals, with as many digits as they need to differ."""
    begin, end = "(]" if right else "[)"
    for digits in range(6, 18):
        numbers = [f"{edge:.{digits}g}" for edge in edges.tolist()]
        if len({*numbers}) == len(numbers):
            break
    return [f"{begin}{low}, {high}{end}" for low, high in pairwise(numbers)]


def numbers_of(argument: str, column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of real numbers, and which of them are missing or NaN."""
    data = read_column(column)
    values = np.asarray(column) if data is None else data.values
    if values.dtype.kind not in "iuf":
        kind = getattr(column, "dtype", getattr(column, "type", "none"))
        hint = "; clhist.date_bin bins dates" if values.dtype.kind in "mM" else ""
        raise TypeError(f"{argument}: expected a column of numbers, got {kind}{hint}")
    is_missing = values != values
    return values, is_missing if data is None or data.missing is None else is_missing | data.missing


def part_of_dates(column: Any, part: str) -> Any:
    """Return a part of the dates of a column, in its time zone; Monday is weekday 0."""
    _check_dates(column)
    if hasattr(column, "dictionary_encode"):
        return getattr(import_module("pyarrow.compute"), _ARROW.get(part, part))(column)
    if hasattr(column, "to_physical"):
        values = getattr(column.dt, _POLARS.get(part, part))()
        return values - 1 if part == "weekday" else values
    values = column.dt.isocalendar().week if part == "week" else getattr(column.dt, _PANDAS.get(part, part))
    return values.astype("Int32") if values.dtype.kind == "f" else values  # of NaT, which has none


def bin_of_dates(column: Any, width: np.timedelta64, origin: np.datetime64 | None) -> Any:
    """Return the begin of the bin of each date, in its time zone, of bins of `width` from `origin` on."""
    _check_dates(column)
    library = library_of(column) or ""
    column, zone = _with_time(column, library)
    local = _localized(column, library, zone)
    data = read_column(local)
    dates = np.asarray(local) if data is None else data.values
    unit, _ = np.datetime_data(dates.dtype)
    ticks, remainder = divmod(width, np.timedelta64(1, cast(Any, unit)))
    if not ticks or remainder:
        raise ValueError(f"width: expected a multiple of the unit of the column, {unit}, got {width}")
    first = (_ORIGIN if origin is None else origin).astype(dates.dtype).astype(np.int64)
    beyond = (dates.view(np.int64) - first) % np.int64(ticks)
    beyond = np.where(np.isnat(dates), 0, beyond).view(f"m8[{unit}]")
    begin = _minus(local, beyond, library)
    if zone is None:
        return begin
    by_instant = _minus(column, beyond, library)  # which has the offset of the date
    return by_instant if width % _DAY else _in_zone(begin, by_instant, library, zone)


def _check_dates(column: Any) -> None:
    data = read_column(column)
    values = getattr(column, "dtype", None) if data is None else data.values.dtype
    if getattr(values, "kind", "") != "M":
        kind = getattr(column, "dtype", getattr(column, "type", "none"))
        raise TypeError(f"column: expected dates, got {kind}")


def _with_time(column: Any, library: str) -> tuple[Any, Any]:
    """Return a column of dates as one of date and time, and its time zone."""
    if library == "pyarrow":
        pyarrow = import_module("pyarrow")
        if pyarrow.types.is_date(column.type):
            column = column.cast(pyarrow.timestamp("s" if pyarrow.types.is_date32(column.type) else "ms"))
        return column, column.type.tz
    if library == "polars":
        column = column.cast(import_module("polars").Datetime("ms")) if str(column.dtype) == "Date" else column
        return column, column.dtype.time_zone
    if hasattr(column.dtype, "pyarrow_dtype") and str(column.dtype).startswith("date"):
        column = column.astype("timestamp[ms][pyarrow]")
    return column, column.dt.tz


def _localized(column: Any, library: str, zone: Any) -> Any:
    """Return dates as the clocks of their time zone show them."""
    if zone is None:
        return column
    if library == "pyarrow":
        return import_module("pyarrow.compute").local_timestamp(column)
    return column.dt.tz_localize(None) if library == "pandas" else column.dt.replace_time_zone(None)


def _minus(column: Any, durations: np.ndarray, library: str) -> Any:
    if library == "pyarrow":
        return import_module("pyarrow.compute").subtract(column, import_module("pyarrow").array(durations))
    if library == "polars":
        return column - import_module("polars").Series(durations)
    return column - import_module("pandas").Series(durations, index=column.index)


def _in_zone(local: Any, by_instant: Any, library: str, zone: Any) -> Any:
    """Return the first instant at which clocks show a date, or where they skip it the next one."""
    if library == "pyarrow":
        compute = import_module("pyarrow.compute")
        return compute.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
    if library == "polars":
        begin = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        return begin.fill_null(by_instant) if begin.null_count() > local.null_count() else begin
    return local.dt.tz_localize(zone, ambiguous=np.ones(len(local), bool), nonexistent="shift_forward")


def width_of(width: Any) -> np.timedelta64:
    """Return a width as a positive duration.

    Raises
    ------
    TypeError, ValueError
        If it is no duration, or not positive.
    """
    expected = "width: expected a positive duration such as '15min', '1h', '1D', '1W', or a timedelta"
    if isinstance(width, str):
        digits = width.rstrip("abcdefghijklmnopqrstuvwxyzµDWH ")
        unit = _UNITS.get(width[len(digits) :].strip())
        if unit is None or (digits and not digits.isdecimal()):
            raise ValueError(f"{expected}, got {width!r:.60}; months and years are parts of dates: clhist.date_part")
        result: Any = np.timedelta64(int(digits or 1), cast(Any, unit))
    else:
        try:
            result = np.timedelta64(width)
        except (TypeError, ValueError):
            raise TypeError(f"{expected}, got {width!r:.60}") from None
    unit, _ = np.datetime_data(result.dtype)
    if unit in ("Y", "M", "generic") or np.isnat(result) or result <= np.timedelta64(0, cast(Any, unit)):
        raise ValueError(f"{expected}, got {width!r:.60}")
    return cast(np.timedelta64, result)


def probabilities(q: int | Sequence[float]) -> np.ndarray:
    """Return the probabilities of quantiles: of `q` equal parts, or given.

    Raises
    ------
    TypeError, ValueError
        If it is neither a positive number of parts nor increasing probabilities.
    """
    expected = "q: expected a positive number of parts, or increasing probabilities from 0 to 1"
    if isinstance(q, int | np.integer) and not isinstance(q, bool):
        if q < 1:
            raise ValueError(f"{expected}, got {q}")
        return np.linspace(0, 1, int(q) + 1)
    try:
        values = np.asarray(q, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{expected}, got {q!r:.60}") from None
    if values.ndim != 1 or len(values) < 2 or not (values[0] >= 0 and values[-1] <= 1 and (np.diff(values) > 0).all()):
        raise ValueError(f"{expected}, got {q!r:.60}")
    return values
