"""Keys that are computed from a column of a table: intervals, parts of dates, and dates rounded down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from itertools import pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

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


def interval_key(name: Any, column: Any, edges: Any, codes: np.ndarray, right: bool, labels: Any) -> Any:
    """Return the intervals with the numbers `codes`, -1 where there is none, as ordered categories.

    The edges are numbers, or dates as an index of pandas, or their texts of a column of another library.
    """
    texts = labels or _texts(edges, right)
    if hasattr(column, "dictionary_encode"):
        pyarrow = import_module("pyarrow")
        # PyArrow: a dictionary has no index -1, so a mask marks numbers without an interval.
        indices = pyarrow.array(codes.astype(np.int32), mask=codes < 0)
        return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(texts, pyarrow.string()), ordered=True)
    if hasattr(column, "to_physical"):
        polars = import_module("polars")
        # Polars: gathering a null index yields a null; the Enum keeps the order of the intervals.
        places = polars.Series(codes).set(polars.Series(codes < 0), None)
        return polars.Series(name, texts, polars.Enum(texts)).gather(places)
    pandas = import_module("pandas")
    # Pandas: code -1 is a missing category.
    intervals = labels or pandas.IntervalIndex.from_arrays(edges[:-1], edges[1:], "right" if right else "left")
    values = pandas.Categorical.from_codes(codes, intervals, ordered=True)
    return pandas.Series(values, index=column.index, name=name)


def _texts(edges: Any, right: bool) -> list[str]:
    """Return texts of intervals; edges that are numbers have as many digits as they need to differ."""
    begin, end = "(]" if right else "[)"
    texts = edges if isinstance(edges, list) else edges.tolist()
    # 17 significant digits distinguish any two float64 numbers.
    for digits in range(6, 18) if isinstance(edges, np.ndarray) else ():
        texts = [f"{edge:.{digits}g}" for edge in edges.tolist()]
        if len({*texts}) == len(texts):
            break
    return [f"{begin}{low}, {high}{end}" for low, high in pairwise(texts)]


def numbers_of(argument: str, column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of real numbers, and which of them are missing or NaN."""
    data = read_column(column)
    values = np.asarray(column) if data is None else data.values
    if values.dtype.kind not in "iuf":
        kind = getattr(column, "dtype", getattr(column, "type", "none"))
        raise TypeError(f"{argument}: expected a column of numbers or dates, got {kind}")
    is_missing = values != values
    return values, is_missing if data is None or data.missing is None else is_missing | data.missing


def part_of_dates(column: Any, part: str) -> Any:
    """Return a part of the dates of a column, in its time zone; Monday is weekday 0."""
    column = checked_dates(column)
    if hasattr(column, "dictionary_encode"):
        return getattr(import_module("pyarrow.compute"), _ARROW.get(part, part))(column)
    if hasattr(column, "to_physical"):
        # Polars counts weekdays from 1.
        values = getattr(column.dt, _POLARS.get(part, part))()
        return values - 1 if part == "weekday" else values
    values = column.dt.isocalendar().week if part == "week" else getattr(column.dt, _PANDAS.get(part, part))
    return values.astype("Int32") if values.dtype.kind == "f" else values  # of NaT, which has none


def bin_of_dates(column: Any, width: np.timedelta64, origin: datetime | np.datetime64 | np.timedelta64 | None) -> Any:
    """Return the begin of the bin of each date or duration, in its time zone, of bins of `width` from `origin` on.

    Raises
    ------
    TypeError, ValueError
        If the column has no dates or durations, or no time zone though `origin` has one, or `origin` is of the other
        kind, or `width` or `origin` is no multiple of the unit.
    """
    column = checked_dates(column, "mM")
    # A pandas column stored by PyArrow is binned by PyArrow and stored by it again.
    if hasattr(getattr(column, "dtype", None), "pyarrow_dtype"):
        pandas = import_module("pandas")
        begin = bin_of_dates(import_module("pyarrow").array(column), width, origin)
        return pandas.Series(begin, index=column.index, name=column.name, dtype=pandas.ArrowDtype(begin.type))
    library = library_of(column) or ""
    is_duration = as_dates(column).dtype.kind == "m"
    if origin is not None and isinstance(origin, np.timedelta64) != is_duration:
        expected = "duration" if is_duration else "date"
        raise TypeError(f"origin: expected a {expected}, as the column has, got {origin!r}")
    column, zone = (column, None) if is_duration else with_time(column, library)
    if isinstance(origin, datetime) and origin.tzinfo is not None:
        if zone is None:
            raise TypeError(f"origin: expected a date without time zone, as those of the column are, got {origin}")
        # The time that the clocks of the column show at the instant of the origin.
        origin = origin.astimezone(as_zone(zone)).replace(tzinfo=None)
    # Bins follow the clocks of the zone, so that a day begins at midnight there.
    local = _localized(column, library, zone)
    dates = as_dates(local)
    unit, _ = np.datetime_data(dates.dtype)
    # Integers in the unit of the column are exact; a width between two of them has no such form.
    ticks, remainder = divmod(width, np.timedelta64(1, cast(Any, unit)))
    if not ticks or remainder:
        raise ValueError(f"width: expected a multiple of the unit of the column, {unit}, got {width}")
    if origin is None:
        origin = np.timedelta64(0) if is_duration else _ORIGIN
    origin = exact_date(origin)
    first = np.asarray(origin, dates.dtype)
    if first != origin:  # it has a finer unit, or is NaT
        raise ValueError(f"origin: expected a multiple of the unit of the column, {unit}, got {origin}")
    # By a positive divisor a remainder of NumPy is not negative, so dates before the origin are rounded down as well.
    beyond = (dates.view(np.int64) - first.astype(np.int64)) % np.int64(ticks)
    # NaT, the least integer, wraps in the subtraction: NaT minus 0 remains NaT.
    beyond = np.where(np.isnat(dates), 0, beyond).view(f"m8[{unit}]")
    begin = _minus(local, beyond, library)
    if zone is None:
        return begin
    if width % _DAY == 0:  # days are whole though clocks show an hour twice
        return _in_zone(begin, library, zone)
    # Clocks that show an hour twice are in two bins if these begin in that hour: each has the offset of its dates.
    by_instant = _minus(column, beyond, library)
    shown = as_dates(_localized(by_instant, library, zone))
    is_between = (shown != dates - beyond) & ~np.isnat(dates)  # a change of the offset is between begin and date
    return _chosen(is_between, _in_zone(begin, library, zone), by_instant, library) if is_between.any() else by_instant


def as_date(argument: str, value: Any) -> datetime | np.datetime64 | np.timedelta64:
    """Return a date, with its time zone if it has one, or a duration.

    Raises
    ------
    TypeError
        If it is neither; the message names the argument.
    """
    if isinstance(value, timedelta | np.timedelta64):
        return exact_date(value)
    try:
        date = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:  # NumPy reads months, as "2026-01"
        date = value
    if isinstance(date, datetime) and date.tzinfo is not None:
        return date
    try:
        return exact_date(date)
    except (TypeError, ValueError):
        raise TypeError(f"{argument}: expected a date or a timedelta, got {value!r:.60}") from None


def exact_date(date: Any) -> np.datetime64 | np.timedelta64:
    """Return a date or duration of Python, NumPy or pandas as NumPy's, with the nanoseconds that pandas' has."""
    if isinstance(date, timedelta | np.timedelta64):
        return date.to_timedelta64() if hasattr(date, "to_timedelta64") else np.timedelta64(date)
    return date.to_datetime64() if hasattr(date, "to_datetime64") else np.datetime64(date)


def as_dates(column: Any) -> np.ndarray:
    data = read_column(column)
    return np.asarray(column) if data is None else data.values


def _chosen(mask: np.ndarray, column: Any, other: Any, library: str) -> Any:
    """Return the dates of a column where the mask is set, and those of the other elsewhere."""
    if library == "pyarrow":
        return import_module("pyarrow.compute").if_else(import_module("pyarrow").array(mask), column, other)
    if library == "polars":
        return column.zip_with(import_module("polars").Series(mask), other)
    return other.where(~mask, column)


def checked_dates(column: Any, kinds: str = "M") -> Any:
    """Return a column of dates, with kinds "mM" or durations; Python's own in a column of pandas become pandas'.

    Raises
    ------
    TypeError
        If it has others.
    """
    if hasattr(column, "infer_objects") and column.dtype.kind == "O":
        # Method infer_objects converts datetime and timedelta objects, but no date objects.
        kind = import_module("pandas").api.types.infer_dtype(column)
        column = column.astype("datetime64[s]") if kind == "date" else column.infer_objects()
    data = read_column(column)
    values = getattr(column, "dtype", None) if data is None else data.values.dtype
    if getattr(values, "kind", None) not in [*kinds]:
        expected = "dates or durations" if "m" in kinds else "dates"
        raise TypeError(f"column: expected {expected}, got {getattr(column, 'dtype', getattr(column, 'type', 'none'))}")
    return column


def with_time(column: Any, library: str) -> tuple[Any, Any]:
    """Return a column of dates as one of date and time, and its time zone."""
    if library == "pyarrow":
        pyarrow = import_module("pyarrow")
        if pyarrow.types.is_date(column.type):
            column = column.cast(pyarrow.timestamp("s" if pyarrow.types.is_date32(column.type) else "ms"))
        return column, column.type.tz
    if library == "polars":
        column = column.cast(import_module("polars").Datetime("ms")) if str(column.dtype) == "Date" else column
        return column, column.dtype.time_zone
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


def _in_zone(local: Any, library: str, zone: Any) -> Any:
    """Return the first instant at which clocks show a date, or where they skip it the next one."""
    if library == "pyarrow":
        compute = import_module("pyarrow.compute")
        return compute.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
    if library == "polars":
        begin = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        # Clock times in a gap are null here: replace them by the instant of the transition.
        skipped = (begin.is_null() & local.is_not_null()).arg_true()
        if not len(skipped):
            return begin
        clocks = local.gather(skipped).to_list()
        instants = {clock: _end_of_gap(clock, as_zone(zone)) for clock in {*clocks}}
        return begin.scatter(skipped, [instants[clock] for clock in clocks])
    # True chooses daylight saving time, the first one, for an hour that occurs twice.
    begin = local.dt.tz_localize(zone, ambiguous=np.ones(len(local), bool), nonexistent="NaT")
    skipped = np.flatnonzero(begin.isna() & local.notna())
    if skipped.size:  # "shift_forward" of pandas takes each gap for an hour
        clocks = local.iloc[skipped].dt.to_pydatetime()
        instants = {clock: _end_of_gap(clock, as_zone(zone)) for clock in {*clocks}}
        begin = begin.copy()
        begin.iloc[skipped] = (
            import_module("pandas").Series([instants[clock] for clock in clocks], dtype=begin.dtype).array
        )
    return begin


def as_zone(zone: Any) -> tzinfo:
    """Return a time zone of a column, which may be a name or an offset such as "+02:00"."""
    if isinstance(zone, tzinfo):
        return zone
    if zone[0] in "+-":
        return cast(tzinfo, datetime.fromisoformat(f"2000-01-01T00:00{zone}").tzinfo)
    return ZoneInfo(zone)


def _end_of_gap(clock: datetime, zone: tzinfo) -> datetime:
    """Return the instant at which the clocks of a zone skip a time."""
    # PEP 495: of a time that is skipped `fold` chooses between the offsets before and after the gap.
    offset = {fold: cast(timedelta, clock.replace(tzinfo=zone, fold=fold).utcoffset()) for fold in (0, 1)}
    low, high = ((clock - offset[fold]).replace(tzinfo=UTC) for fold in (1, 0))
    # Bisection: the transition lies after `low`, and not after `high`.
    while high - low > timedelta.resolution:
        middle = low + (high - low) / 2
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset[0] else (low, middle)
    return high.astimezone(zone)


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
    # Years and months have no fixed length, and a generic unit has none at all.
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
