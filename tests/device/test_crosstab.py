"""Counts of values and cross tabulations of tables, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas
import pyarrow
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

import clhist

pytestmark = pytest.mark.usefixtures("without_optimizer")


def trips(size):
    """Return a table with keys of several types, some of them missing."""
    rng = np.random.default_rng(size)
    frame = pandas.DataFrame(
        {
            "zone": rng.choice(["b", "a", "c"], size),
            "hour": rng.integers(0, 4, size).astype("int8"),
            "level": pandas.Categorical(rng.choice(["x", "y"], size), ["y", "x", "w"], ordered=True),
            "fare": np.round(rng.random(size), 2),
            "seats": rng.integers(1, 5, size),
            "day": pandas.Timestamp("2026-01-01") + pandas.to_timedelta(rng.integers(0, 3, size), "D"),
        }
    )
    frame.loc[::9, "zone"] = None
    frame.loc[1::9, "level"] = None
    frame.index = frame.index[::-1]
    return frame


FRAME = trips(300)


@pytest.mark.parametrize("columns", [["zone"], ["level"], ["day"], ["zone", "hour"], ["hour", "level", "day"]])
def test_counts(columns):
    found = clhist.value_counts(FRAME, *columns)
    expected = FRAME.groupby(columns).size().sort_values(ascending=False, kind="stable").to_frame("count")
    assert_frame_equal(found, expected)
    shares = clhist.value_counts(FRAME, columns, normalize=True, sort=False)
    by_pandas = FRAME[columns].dropna().groupby(columns).size()
    assert_series_equal(shares["proportion"], (by_pandas / by_pandas.sum()).rename("proportion"))
    one = FRAME[columns].value_counts(normalize=True).rename_axis(columns)
    np.testing.assert_allclose(np.sort(shares["proportion"]), np.sort(one[one > 0]))  # pandas counts unused categories


def test_counts_of_one_column():
    expected = clhist.value_counts(FRAME, "zone")
    assert_frame_equal(clhist.value_counts(FRAME["zone"]), expected)
    assert_frame_equal(clhist.value_counts(FRAME[["zone"]]), expected)
    found = clhist.value_counts(pyarrow.table({"zone": ["b", "a", "b", None]}), "zone")
    assert found.equals(pyarrow.table({"zone": ["b", "a"], "count": [2, 1]}))
    assert clhist.value_counts(pyarrow.array([3, 3, 1])).to_pydict() == {"value": [3, 1], "count": [2, 1]}
    assert clhist.value_counts(FRAME[:0], "zone").shape == (0, 1)


@pytest.mark.parametrize("bins", [4, [0, 0.25, 0.5, 1]])
def test_counts_by_bins(bins):
    numbers = FRAME["fare"].astype("Float64").mask(FRAME["fare"] > 0.9)
    counts, edges = np.histogram(numbers.dropna().to_numpy(float), bins)
    found = clhist.value_counts(numbers, bins=bins, sort=False)
    assert found["count"].tolist() == counts.tolist()
    assert found.index.equals(pandas.IntervalIndex.from_breaks(edges, closed="left"))
    assert found.index.name == "fare"
    by_size = clhist.value_counts(pyarrow.table({"x": numbers}), "x", bins=bins, normalize=True).to_pydict()
    order = np.argsort(-counts, kind="stable")
    assert by_size["x_left"] == edges[:-1][order].tolist()
    assert by_size["x_right"] == edges[1:][order].tolist()
    np.testing.assert_allclose(by_size["proportion"], counts[order] / counts.sum())


@pytest.mark.parametrize("margins", [False, True])
@pytest.mark.parametrize(("index", "columns"), [("zone", "hour"), (["zone", "day"], "hour"), ("hour", "zone")])
def test_numbers_of_rows(index, columns, margins):
    names = index if isinstance(index, list) else [index]
    rows = [FRAME[name] for name in names]
    for normalize in (False, True, "index", "columns"):
        found = clhist.crosstab(FRAME, index, columns, margins=margins, normalize=normalize)
        expected = pandas.crosstab(rows, FRAME[columns], margins=margins, normalize=normalize)
        assert found.index.tolist() == expected.index.tolist()
        assert found.columns.tolist() == expected.columns.tolist()
        np.testing.assert_allclose(found.to_numpy(float), expected.to_numpy(float))
    assert clhist.crosstab(FRAME, index, columns).columns.name == columns


@pytest.mark.parametrize("statistic", ["sum", "mean", "max", "median", "std", "nunique"])
def test_statistics_with_margins(statistic):
    some = FRAME[(FRAME["zone"] != "a") | (FRAME["hour"] != 2)].dropna(subset=["zone"])  # an empty cell
    for values in ("fare", "seats"):
        found = clhist.crosstab(
            some, "zone", "hour", values, statistic, margins=True, **({"ddof": 1} if statistic == "std" else {})
        )
        cells = some.groupby(["zone", "hour"])[values].agg(statistic).unstack()
        if statistic == "nunique":
            cells = cells.fillna(0)
        np.testing.assert_allclose(found.iloc[:-1, :-1].astype(float).to_numpy(float, na_value=np.nan), cells)
        np.testing.assert_allclose(found["All"][:-1].astype(float), some.groupby("zone")[values].agg(statistic))
        np.testing.assert_allclose(found.loc["All"][:-1].astype(float), some.groupby("hour")[values].agg(statistic))
        np.testing.assert_allclose(float(found.loc["All", "All"]), some[values].agg(statistic))
    assert found.index.tolist() == ["b", "c", "All"] or found.index.tolist() == ["a", "b", "c", "All"]


def test_types():
    found = clhist.crosstab(FRAME, "level", "zone", "level", "max")
    assert found.index.dtype == FRAME["level"].dtype
    assert found.index.tolist() == ["y", "x"]
    assert found["a"].dtype == FRAME["level"].dtype
    dates = clhist.crosstab(FRAME, "zone", "hour", "day", "min")
    expected = FRAME.pivot_table(index="zone", columns="hour", values="day", aggfunc="min")
    assert_frame_equal(dates, expected, check_column_type=False)
    table = pyarrow.table({"k": ["a", "b", "b"], "n": [1, 1, 2], "x": [3, 4, 5]})
    assert clhist.crosstab(table, "k", "n").equals(pyarrow.table({"k": ["a", "b"], "1": [1, 1], "2": [0, 1]}))
    sums = clhist.crosstab(table, "k", "n", "x", "sum", margins=True).to_pydict()
    assert sums == {"k": ["a", "b", "All"], "1": [3, 4, 7], "2": [None, 5, 5], "All": [3, 9, 12]}


ARROW = pyarrow.table({"k": [1], "x": [1]})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: clhist.value_counts(FRAME, "zome"), KeyError, "did you mean 'zone'"),
        (lambda: clhist.value_counts(np.arange(3)), TypeError, r"^table: .* got ndarray; clhist.unique\(x, return_c"),
        (lambda: clhist.value_counts(FRAME, "zone", "hour", bins=3), TypeError, "^bins: expected none with 2 columns"),
        (
            lambda: clhist.value_counts(FRAME, "zone", bins=3),
            TypeError,
            "^bins: expected none, since 'zone' has no num",
        ),
        (lambda: clhist.value_counts(FRAME, "day", bins=3), TypeError, "^bins: expected none, since 'day' has no numb"),
        (lambda: clhist.value_counts(FRAME, "fare", bins=[2, 1]), ValueError, "bins. must increase"),
        (
            lambda: clhist.crosstab(FRAME, "zone", "hour", min_count=2),
            TypeError,
            "^min_count: .* of the options skipna",
        ),
        (lambda: clhist.crosstab(FRAME, "zone", "zone"), ValueError, "^columns: expected the name of one column"),
        (lambda: clhist.crosstab(FRAME, "zone", ["hour", "day"]), ValueError, "^columns: expected the name of one"),
        (lambda: clhist.crosstab(FRAME, "zone", "hour", "fare"), TypeError, "^values: expected a column .* 'fare'"),
        (lambda: clhist.crosstab(FRAME, "zone", "hour", None, "mean"), TypeError, "^values: expected a column of the"),
        (lambda: clhist.crosstab(FRAME, "zone", "hour", "fare", "meen"), ValueError, "^values: .*write 'mean'"),
        (lambda: clhist.crosstab(FRAME, "zone", "hour", ARROW["x"], "mean"), TypeError, "^values: .*of pyarrow"),
        (lambda: clhist.crosstab(FRAME, "zone", "hour", FRAME["fare"][::-1], "mean"), ValueError, "^values: .* index"),
        (lambda: clhist.crosstab(FRAME, "zone", "hour", normalize="rows"), ValueError, "^normalize: expected True, F"),
        (
            lambda: clhist.crosstab(FRAME, "zone", "hour", "fare", "sum", normalize=True),
            ValueError,
            "^normalize: .*sum",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
