"""Tables of pandas, polars and PyArrow: `value_counts`, `crosstab`, and keys that are computed from a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from clhist._core.host_spi import read_column, refuse_missing
from clhist.digitize import digitize
from clhist.groupby import group_by, group_frame
from clhist.grouped.host_spi import (
    COUNTS,
    OPTIONS,
    PARTS,
    ComputedKey,
    DateEdges,
    Frame,
    FrameGroupBy,
    Ticks,
    as_date,
    bin_of_dates,
    date_edges,
    even_edges,
    interval_key,
    key_columns,
    key_values,
    numbers_of,
    part_of_dates,
    picked_or_missing,
    probabilities,
    quantile_edges,
    read_frame,
    ticks_of,
    width_of,
)
from clhist.histogram import histogram
from clhist.operators.c_types import check_booleans
from clhist.statistics.spi import named_statistics

_NORMALIZED = ("all", "index", "columns")
_FLAGS = ("skipna", "reproducible")  # of `OPTIONS`


def value_counts(
    table: Any, *columns: Any, normalize: bool = False, bins: int | Sequence[float] | None = None, sort: bool = True
) -> Any:
    """Count the rows of each value of a column, or of each combination of values of several columns.

    Parameters
    ----------
    table : table or column of pandas, polars or PyArrow
        Rows whose value is missing are not counted.
    *columns : str, or column or expression of the table's library
        Columns of the table by name or as in `group_by`, or one list of them; all of them by default.
    normalize : bool
        Whether to return shares of the rows that are counted, as "proportion".
    bins : int or sequence of float, optional
        Count values by bins, as `histogram` does: a number of bins, or their edges. Of one column of numbers.
    sort : bool
        Whether the largest counts come first; equal ones, and all if False, are in the order of the values.

    Returns
    -------
    pandas.DataFrame, polars.DataFrame or pyarrow.Table
        A row for each value that occurs, with the column "count" or "proportion". Of pandas the values are the index,
        bins are intervals there; of others they are the first columns, bins are ``<column>_left`` and
        ``<column>_right``.

    Raises
    ------
    KeyError
        If the table has no such column.
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> import pandas
    >>> clhist.value_counts(pandas.DataFrame({"zone": ["a", "b", "b"]}), "zone")
          count
    zone
    b         2
    a         1
    """
    check_booleans(normalize=normalize, sort=sort)
    frame = _as_frame(table)
    keys_of_rows = key_columns(frame, *(columns or frame.names))
    names = list(keys_of_rows)
    if bins is not None:
        if len(names) > 1:
            raise TypeError(f"bins: expected none with {len(names)} columns, got {bins!r:.60}")
        counts, keys = _binned(keys_of_rows, bins)
    else:
        groups = group_frame(frame, keys_of_rows)
        counts, keys = groups.groups.size(), _labels(groups, names)
    # Stable, so that equal counts stay in the order of the values.
    order = np.argsort(-counts, kind="stable") if sort else np.arange(len(counts))
    counts, title = counts[order], "count"
    if normalize:
        counts, title = counts / max(1, counts.sum()), "proportion"
    # Only pandas has a type for intervals of numbers; other libraries get two columns of edges.
    if bins is not None and frame.library == "pandas":
        intervals = import_module("pandas").IntervalIndex.from_arrays(
            *(edges[order] for edges in keys.values()), "left"
        )
        return frame.with_keys({names[0]: intervals}, {title: counts})
    like = {
        name: labels[order] if bins is not None else key_values(keys_of_rows[name], labels[order])
        for name, labels in keys.items()
    }
    return frame.with_keys(like, {title: counts})


def crosstab(
    table: Any,
    index: Any,
    columns: Any,
    values: Any = None,
    statistic: Any = "size",
    *,
    margins: bool = False,
    normalize: bool | str = False,
    **options: Any,
) -> Any:
    """Return a statistic of each combination of values of two columns, as a table with a column for each value.

    Parameters
    ----------
    table : table of pandas, polars or PyArrow
        Rows whose key is missing are left out.
    index : str or column, or list of them
        Columns, by name or as in `group_by`, whose values are the rows of the result.
    columns : str or column
        Column whose values are the columns of the result.
    values : str or array, optional
        Column of the values of `statistic`; by default rows are counted.
    statistic : str
        One of those of `FrameGroupBy.agg`.
    margins : bool
        Whether a last row and column "All" have the statistic of all rows.
    normalize : bool or str
        Whether counts are divided by the number of all rows (True or "all"), of each row of the result ("index"), or of
        each column ("columns").
    **options
        `skipna`, `ddof`, `dtype` and `reproducible`, as of `FrameGroupBy.agg`.

    Returns
    -------
    pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Combinations that do not occur have count 0, and a missing value of other statistics.

    Raises
    ------
    KeyError
        If the table has no such column.
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> import pandas
    >>> trips = pandas.DataFrame({"zone": ["a", "b", "b"], "hour": [8, 8, 9], "fare": [3.0, 4.0, 5.0]})
    >>> clhist.crosstab(trips, "zone", "hour", "fare", "mean", margins=True)
    hour    8    9  All
    zone
    a     3.0  NaN  3.0
    b     4.0  5.0  4.5
    All   3.5  5.0  4.0
    """
    check_booleans(margins=margins, **{name: options[name] for name in _FLAGS if name in options})
    if not isinstance(normalize, str):
        check_booleans(normalize=normalize)
    elif normalize not in _NORMALIZED:
        raise ValueError(f"normalize: expected True, False, 'all', 'index' or 'columns', got {normalize!r:.60}")
    frame = _as_frame(table)
    row_keys, column_keys = key_columns(frame, index), key_columns(frame, columns)
    names, by = list(row_keys), list(column_keys)
    (name,) = named_statistics([statistic])
    if wrong := next((option for option in options if option not in OPTIONS), None):
        raise TypeError(f"{wrong}: expected one of the options {', '.join(OPTIONS)}, got {options[wrong]!r:.60}")
    if normalize and name != "size":
        raise ValueError(f"normalize: expected False with the statistic {name!r}, got {normalize!r}")
    if len(by) != 1 or by[0] in names:
        raise ValueError(f"columns: expected the name of one column that is not in index, got {columns!r:.60}")
    if (values is None) != (name == "size"):
        raise TypeError(f"values: expected a column of the table for {name!r}, and none for 'size', got {values!r:.60}")
    # Sizes do not read the values, so any column with a value for each row will do.
    x = row_keys[names[0]] if values is None else frame.values_of("values", values)
    # Number the rows and the columns of the result; elements without one of both keys are in no cell.
    rows, across = group_frame(frame, row_keys), group_frame(frame, column_keys)
    numbers = rows.groups.ngroup(), across.groups.ngroup()
    shape = len(rows), len(across)
    inside = (numbers[0] >= 0) & (numbers[1] >= 0)
    cell = np.where(inside, numbers[0] * shape[1] + numbers[1], -1)
    # Each cell is a group. Margins are groups of their own: medians or means of cells cannot be combined.
    parts: list[Any] = [group_by(cell, shape[0] * shape[1])]
    if margins or normalize:
        margin_keys = zip((*numbers, np.zeros_like(cell)), (*shape, 1), strict=True)
        parts += [group_by(np.where(inside, keys, -1), number) for keys, number in margin_keys]
    sizes = parts[0].size().reshape(shape)
    # A key that occurs only beside a missing one has no row or column.
    used = np.flatnonzero(sizes.any(1)), np.flatnonzero(sizes.any(0))
    row_labels = {key: labels[used[0]] for key, labels in _labels(rows, names).items()}
    column_labels = _labels(across, by)[by[0]][used[1]]
    results = [groups.agg(**options, values=(x, name))["values"][name] for groups in parts]
    # The number of the result in each cell, of those in `parts` one after the other; -1 where there is none.
    places = np.where((sizes > 0) | (name in COUNTS), np.arange(sizes.size).reshape(shape), -1)[np.ix_(*used)]
    if len(parts) > 1:
        # Results of the margins follow those of the cells: rows, columns, and one of all.
        of_rows, of_columns = sizes.size + used[0], sizes.size + shape[0] + used[1]
        total = np.full((1, 1), sizes.size + sum(shape))
        places = np.block([[places, of_rows[:, None]], [of_columns[None], total]])
    cells = _picked(results, places.T)
    if normalize:
        # The margins are the sums by which counts are divided.
        cells = _normalized(np.stack(cells, 1), normalize, margins)
    cells = [frame.values(x, name, column) for column in cells]
    return _laid_out(frame, row_keys, row_labels, column_keys, column_labels, cells)


def cut(
    column: Any,
    bins: int | Sequence[Any],
    *,
    right: bool = True,
    labels: Sequence[str] | None = None,
    name: str | None = None,
) -> ComputedKey:
    """Return a key of `group_by`, `value_counts` and `crosstab`: the interval in which each number or date lies.

    Parameters
    ----------
    column : str or column
        Name of a column of numbers, dates or durations, or such a column beside the table.
    bins : int or sequence of float, date or timedelta
        Number of intervals of equal width from the least to the largest value, or their increasing edges. Rows beyond
        the edges belong to no group. Edges of a column with a time zone are dates with a time zone, as in pandas; texts
        such as "2026-01-05 08:30" are dates. Edges of a number of intervals of dates are rounded down to the unit.
    right : bool
        Whether intervals include their right edge, as in pandas and polars, rather than the left one. The first one
        includes its left edge as well, as with `include_lowest` of pandas, or the last one its right edge.
    labels : sequence of str, optional
        Keys in the place of intervals.
    name : str, optional
        Name of the keys; defaults to that of the column.

    Returns
    -------
    ComputedKey
        Its keys are ordered categories: intervals of pandas; of polars an Enum and of PyArrow a dictionary of texts
        such as "(0, 5]". Edges of dates are in the time zone of the column.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named. What depends on the table is checked by the function that takes the key.

    Examples
    --------
    >>> import pandas
    >>> trips = pandas.DataFrame({"fare": [3.0, 8.0, 9.0]})
    >>> clhist.group_by(trips, clhist.cut("fare", [0, 5, 10])).size()
             size
    fare
    (0, 5]      1
    (5, 10]     2
    """
    check_booleans(right=right)
    is_number = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    edges = None if is_number else date_edges(bins) or refuse_missing("bins", bins, "edges")
    if edges is not None:
        values: Any = np.array(edges.nanoseconds, object) if isinstance(edges, DateEdges) else edges
        if values.ndim and not isinstance(edges, DateEdges) and values.dtype.kind not in "biuf":
            raise TypeError(f"bins: expected edges that are numbers, dates or durations, got {bins!r:.60}")
        # Compared, since differences of unsigned edges would wrap.
        if values.ndim != 1 or len(values) < 2 or not (values[1:] > values[:-1]).all():
            raise ValueError(
                f"bins: expected a number of intervals, or at least two increasing edges, got {bins!r:.60}"
            )
    if edges is None and bins < 1:  # type: ignore[operator]
        raise ValueError(f"bins: expected at least one interval, got {bins}")
    if labels is not None:
        _check_labels(labels)
    compute = partial(_cut, bins=bins if edges is None else edges, right=right, labels=labels, name=name)
    return ComputedKey(column, compute, name)


def _cut(title: Any, values: Any, bins: Any, right: bool, labels: Sequence[str] | None, name: str | None) -> Any:
    is_number = np.ndim(bins) == 0 and not isinstance(bins, DateEdges)
    if (ticks := ticks_of(values, partial(even_edges, number=int(bins)) if is_number else bins, right)) is not None:
        return _intervals(name or title, values, *ticks[:3], right, labels, ticks)
    numbers, is_missing = numbers_of("column", values)
    if isinstance(bins, DateEdges):
        raise TypeError("bins: expected numbers as edges, as the column has, got dates or durations")
    if is_number:
        present = numbers[~is_missing]
        # Edges depend on the extremes alone, so these two stand for all values.
        ends = (present.min(), present.max()) if present.size else (0, 1)
        bins = np.histogram_bin_edges(np.array(ends), bins)
    return _intervals(name or title, values, numbers, is_missing, bins, right, labels)


def qcut(
    column: Any, q: int | Sequence[float], *, labels: Sequence[str] | None = None, name: str | None = None
) -> ComputedKey:
    """Return a key of `group_by`, `value_counts` and `crosstab`: between which quantiles each number or date lies.

    Parameters
    ----------
    column : str or column
        As of `cut`.
    q : int or sequence of float
        Number of intervals with equally many values, or increasing probabilities. Equal quantiles are one edge.
    labels, name
        As of `cut`.

    Returns
    -------
    ComputedKey
        As of `cut`; intervals include their right edge, and the first one its left edge.

    Examples
    --------
    >>> import pandas
    >>> trips = pandas.DataFrame({"fare": [3.0, 8.0, 9.0, 20.0]})
    >>> clhist.group_by(trips, clhist.qcut("fare", 2, labels=["low", "high"])).agg(mean=("fare", "mean"))
          mean
    fare
    low    5.5
    high  14.5
    """
    shares = probabilities(q)
    if labels is not None:
        _check_labels(labels)
    return ComputedKey(column, partial(_qcut, shares=shares, labels=labels, name=name), name)


def _qcut(title: Any, values: Any, shares: np.ndarray, labels: Sequence[str] | None, name: str | None) -> Any:
    if (ticks := ticks_of(values, partial(quantile_edges, shares=shares.tolist()), right=True)) is not None:
        return _intervals(name or title, values, *ticks[:3], True, labels, ticks)
    numbers, is_missing = numbers_of("column", values)
    present = numbers[~is_missing]
    # Equal quantiles become one edge; a single edge is repeated, since an interval needs two.
    edges = np.unique(np.quantile(present, shares)) if present.size else np.zeros(2)
    edges = np.repeat(edges, 2) if len(edges) == 1 else edges
    return _intervals(name or title, values, numbers, is_missing, edges, True, labels)


def date_part(column: Any, part: str, *, name: str | None = None) -> ComputedKey:
    """Return a key of `group_by`, `value_counts` and `crosstab`: a part of dates, such as the hour of the day.

    Parameters
    ----------
    column : str or column
        Name of a column of dates, or such a column beside the table. Of dates with a time zone parts are local.
    part : str
        "year", "quarter", "month", "week" (of ISO 8601), "day", "weekday" (0 is Monday), "dayofyear", "hour", "minute"
        or "second".
    name : str, optional
        Name of the keys; defaults to `part`.

    Returns
    -------
    ComputedKey

    Examples
    --------
    >>> import pandas
    >>> trips = pandas.DataFrame({"time": pandas.to_datetime(["2026-01-05 08:30", "2026-01-06 08:45"])})
    >>> clhist.group_by(trips, clhist.date_part("time", "hour")).size()
          size
    hour
    8        2
    """
    if part not in PARTS:
        raise ValueError(f"part: expected one of {', '.join(PARTS)}, got {part!r:.60}")
    return ComputedKey(column, partial(_date_part, part=part), name or part)


def date_bin(column: Any, width: Any, *, origin: Any = None, name: str | None = None) -> ComputedKey:
    """Return a key of `group_by`, `value_counts` and `crosstab`: dates or durations rounded down to a fixed width.

    Parameters
    ----------
    column : str or column
        Dates as of `date_part`, or durations. With a time zone bins follow its clocks: days begin at midnight there.
    width : str or timedelta
        Width of a bin, such as "15min", "1h", "1D" or "1W". Where clocks show an hour twice, bins of less than a day
        that begin in that hour are two.
    origin : str, date or timedelta, optional
        Where a bin begins, by default on a Monday at midnight; ``origin=df["time"].min().normalize()`` has the bins of
        pandas' `resample`. With a time zone it is an instant; else it is what clocks show. Of durations a timedelta, by
        default 0.
    name : str, optional
        Name of the keys; defaults to that of the column.

    Returns
    -------
    ComputedKey
        Keys are the begins of the bins that have rows, of the type of the column; dates without time get one.

    Examples
    --------
    >>> import pandas
    >>> trips = pandas.DataFrame({"time": pandas.to_datetime(["2026-01-05 08:30", "2026-01-05 08:50"])})
    >>> clhist.group_by(trips, clhist.date_bin("time", "15min")).size()
                         size
    time
    2026-01-05 08:30:00     1
    2026-01-05 08:45:00     1
    """
    duration = width_of(width)
    first = None if origin is None else as_date("origin", origin)
    return ComputedKey(column, partial(_date_bin, width=duration, origin=first), name)


def _date_part(name: Any, dates: Any, part: str) -> Any:
    return part_of_dates(dates, part)


def _date_bin(
    name: Any, dates: Any, width: np.timedelta64, origin: datetime | np.datetime64 | np.timedelta64 | None
) -> Any:
    return bin_of_dates(dates, width, origin)


def _check_labels(labels: Sequence[str]) -> None:
    """Raise TypeError or ValueError if labels are no texts, or two are equal."""
    is_sequence = hasattr(labels, "__len__") and not isinstance(labels, str)
    if not is_sequence or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"labels: expected a sequence of texts, got {labels!r:.60}")
    if len({*labels}) < len(labels):
        raise ValueError(f"labels: expected texts that differ, got {labels!r:.60}")


def _intervals(
    name: Any,
    column: Any,
    numbers: np.ndarray,
    is_missing: np.ndarray,
    edges: np.ndarray,
    right: bool,
    labels: Sequence[str] | None,
    ticks: Ticks | None = None,
) -> Any:
    """Return the interval of each number as a category; the outer edges belong to intervals."""
    if labels is not None and len(labels) != len(edges) - 1:
        raise ValueError(f"labels: expected {len(edges) - 1}, as there are intervals, got {len(labels)}")
    # Function digitize counts from 1 and leaves out one of the outer edges, which belongs to an interval here.
    codes = np.asarray(digitize(numbers, edges, right)).astype(np.int64) - 1
    if ticks is None or ticks.has_end:
        codes[numbers == (edges[0] if right else edges[-1])] = 0 if right else len(edges) - 2
    # Numbers below all edges have -1 already.
    codes[is_missing | (codes > len(edges) - 2)] = -1
    shown = edges if ticks is None else ticks.shown
    return interval_key(name, column, shown, codes, right, None if labels is None else [*labels])


def _as_frame(table: Any) -> Frame:
    """Return a table, or a column as a table of one column."""
    if hasattr(table, "to_frame") and hasattr(table, "name"):
        table = table.to_frame(table.name or "value")
    elif hasattr(table, "dictionary_encode"):
        table = import_module("pyarrow").table({"value": table})
    frame = read_frame(table)
    if frame is None:
        hint = "; clhist.unique(x, return_counts=True) counts the values of an array" * isinstance(table, np.ndarray)
        raise TypeError(f"table: expected a table of pandas, polars or PyArrow, got {type(table).__name__}{hint}")
    return frame


def _labels(groups: FrameGroupBy, names: Sequence[Any]) -> dict[Any, np.ndarray]:
    """Return the keys of the groups by the names of their columns."""
    keys = groups.groups.keys
    return dict(zip(names, keys if isinstance(keys, tuple) else (keys,), strict=True))


def _binned(keys: Mapping[str, Any], bins: int | Sequence[float]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return counts of a column by bins, and the edges of these."""
    ((name, column),) = keys.items()
    data = read_column(column)
    values = np.asarray(column) if data is None else data.present
    # NaN is in no bin, and would make the range of the bins NaN.
    values = values[values == values] if values.dtype.kind == "f" else values
    if values.dtype.kind not in "biuf":
        hint = "; clhist.cut makes keys of dates" if values.dtype.kind in "mM" else ""
        raise TypeError(f"bins: expected none, since {name!r} has no numbers, got {bins!r:.60}{hint}")
    counts, edges = histogram(values, bins)
    return counts, {f"{name}_left": edges[:-1], f"{name}_right": edges[1:]}


def _picked(results: Sequence[Any], columns: np.ndarray) -> list[Any]:
    """Return for each column the results at its places, counted over all results; at -1 they are missing."""
    data = [None if isinstance(array, np.ndarray) else read_column(array) for array in results]
    arrays = [array if one is None else one.values for array, one in zip(results, data, strict=True)]
    is_masked = any(isinstance(array, np.ma.MaskedArray) for array in arrays)
    # Function numpy.concatenate would drop the masks.
    joined = np.ma.concatenate(arrays) if is_masked else np.concatenate(arrays)
    picks = [picked_or_missing(joined, column) for column in columns]
    like = next((one.like for one in data if one is not None), None)  # of dates with a time zone
    return picks if like is None else [like(pick) for pick in picks]


def _normalized(counts: np.ndarray, by: bool | str, margins: bool) -> list[np.ndarray]:
    """Return shares of counts, whose last row and column are sums, with those margins that have shares."""
    # Counts have both margins here: divide by that of the rows, of the columns, or of all.
    whole = {"index": counts[:, -1:], "columns": counts[-1:]}.get(str(by), counts[-1:, -1:])
    shares = counts / np.maximum(whole, 1)
    # Shares of columns sum to 1 in each, so a last row would say nothing; likewise for rows.
    rows = len(counts) - (by == "columns" or not margins)
    return [*shares[:rows, : counts.shape[1] - (by == "index" or not margins)].T]


def _laid_out(
    frame: Frame,
    row_keys: Mapping[str, Any],
    row_labels: Mapping[Any, np.ndarray],
    column_keys: Mapping[str, Any],
    column_labels: np.ndarray,
    cells: Sequence[Any],
) -> Any:
    """Return a table of columns with a label each; "All" stands for those and the row that have no label."""
    first, *others = row_labels
    has_all = bool(cells) and len(cells[0]) > len(row_labels[first])
    is_pandas, titles = frame.library == "pandas", [*column_labels, *["All"] * (len(cells) - len(column_labels))]
    keys: dict[Any, Any] = {}
    for key, labels in row_labels.items():
        if has_all:
            # "All" is text: a column of another library must then be text altogether.
            texts = [*(labels if is_pandas else map(str, labels)), "" if key in others else "All"]
            # The additional None keeps NumPy from making two dimensions of labels that are tuples.
            keys[key] = np.array([*texts, None], object)[:-1]
        else:
            keys[key] = key_values(row_keys[key], labels)
    if not is_pandas:
        return frame.with_keys(keys, dict(zip(map(str, titles), cells, strict=True)))
    pandas = import_module("pandas")
    plain = len(titles) == len(column_labels)
    ((by, column),) = column_keys.items()
    axis = pandas.Index(key_values(column, column_labels) if plain else pandas.Index(titles, dtype=object), name=by)
    # Numbers as names at first, since labels of columns may be equal to names of keys.
    table = frame.with_keys(keys, dict(enumerate(cells)))
    return table.set_axis(axis, axis=1)
