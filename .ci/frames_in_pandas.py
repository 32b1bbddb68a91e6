"""A plugin of pytest for pandas' tests: statistics of groups by columns are computed by `clhist.group_by` as well.

A call that the frame API has is computed twice; a difference from pandas' result fails the test. `LEFT_OUT` says of
which other calls there is no comparison, and why; how many there are is printed.
"""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pandas
from pandas.core.groupby import DataFrameGroupBy, SeriesGroupBy

import clhist

STATISTICS = (
    "count", "sum", "prod", "mean", "median", "var", "std", "sem", "skew", "kurt", "min", "max", "first", "last",
    "nunique", "any", "all",
)  # fmt: skip
LEFT_OUT = {
    "keys": "keys are functions, levels, groupers or arrays, not columns of the table or beside it with a name",
    "options": "dropna=False, engine= and other options that the frame API does not have, or options by position",
    "categories": "observed=False has groups for categories that do not occur",
    "names": "columns have no text names, or the same",
    "empty": "there are no rows or columns of values",
    "types": "objects, periods, complex numbers and other types, or a statistic that the type does not have",
    "failed": "pandas raises an error",
}
compared: Counter[str] = Counter()
left_out: Counter[str] = Counter()


def keys_of(groups):
    """Return the keys of groups as a list; empty if they are neither names nor columns."""
    keys = groups.keys if isinstance(groups.keys, list) else [groups.keys]
    return keys if all(isinstance(key, str | pandas.Series) for key in keys) else []


def name_of(key):
    return key.name if isinstance(key, pandas.Series) else key


def reason(groups, name, args, options):
    """Return why a call is not compared, as in `LEFT_OUT`; nothing if it is."""
    frame, keys = groups.obj, keys_of(groups)
    if type(frame) is not pandas.DataFrame or not keys or not all(isinstance(name_of(key), str) for key in keys):
        return "keys"
    if any(isinstance(key, pandas.Series) and not key.index.equals(frame.index) for key in keys):
        return "keys"
    if not groups.as_index and not all(isinstance(key, str) for key in keys):
        return "options"
    of_spread = {"ddof"} if name in ("var", "std", "sem") else set()
    if args or {*options} - {"numeric_only", "skipna", "min_count"} - of_spread or not groups.dropna:
        return "options"
    if not options.get("skipna", True) or (options.get("min_count", 0) > 0 and name not in ("sum", "prod")):
        return "options"
    names = [*frame.columns]
    if len({*names}) < len(names) or not all(isinstance(each, str) for each in names):
        return "names"
    if len({*map(name_of, keys)}) < len(keys) or not all(
        isinstance(key, pandas.Series) or key in names for key in keys
    ):
        return "names"
    columns = [key if isinstance(key, pandas.Series) else frame[key] for key in keys]
    if any(isinstance(column.dtype, pandas.CategoricalDtype) for column in columns) and not groups.observed:
        return "categories"
    return "" if len(frame) else "empty"


def has_type(column, name):
    """Whether clhist has a statistic of the type of a column, with pandas' type of the result."""
    dtype = column.dtype
    if isinstance(dtype, pandas.StringDtype):
        return name in ("count", "min", "max", "first", "last", "nunique")
    if not isinstance(dtype, np.dtype) and type(dtype).__module__ != "pandas.core.arrays.integer":
        return False
    kind = dtype.kind
    if kind in "mM":
        return name in ("count", "min", "max", "first", "last", "nunique")
    if kind == "b":
        return name in ("count", "sum", "min", "max", "first", "last", "any", "all", "nunique")
    return kind in "iu" or (kind == "f" and dtype != np.float16)


def wrapped(name, theirs):
    @functools.wraps(theirs)
    def statistic(groups, *args, **options):
        result = theirs(groups, *args, **options)  # which raises what pandas raises
        expected = result.to_frame() if isinstance(result, pandas.Series) else result
        why = reason(groups, name, args, options)
        names = [] if why else [name_of(key) for key in keys_of(groups)]
        columns = [each for each in expected.columns if groups.as_index or each not in names]
        if not why and not columns:
            why = "empty"
        if not why and not all(each in groups.obj.columns and has_type(groups.obj[each], name) for each in columns):
            why = "types"
        if why:
            left_out[why] += 1
            return result
        agg = clhist.group_by(groups.obj, *keys_of(groups), sort=groups.sort).agg
        given = {option: options[option] for option in ("ddof", "min_count") if option in options}
        ours = agg(**{"ddof": 1, **given}, **{f"column {n}": (each, name) for n, each in enumerate(columns)})
        compared[name] += 1
        expected = pandas.DataFrame(expected if groups.as_index else expected.set_index(names))
        pandas.testing.assert_frame_equal(
            ours.set_axis(expected.columns, axis=1), expected, rtol=1e-9, atol=1e-12, check_column_type=False,
            check_flags=False, check_dtype="equiv", check_index_type=False, check_names=groups.as_index,
        )  # fmt: skip
        return result

    return statistic


for kind in (DataFrameGroupBy, SeriesGroupBy):
    for each in STATISTICS:
        if hasattr(kind, each):
            setattr(kind, each, wrapped(each, getattr(kind, each)))


def pytest_terminal_summary(terminalreporter):
    for what, number in sorted(compared.items()):
        terminalreporter.write_line(f"ours: {number} {what}")
    for what, number in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {number} since {LEFT_OUT[what]}")
