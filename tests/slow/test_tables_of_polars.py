"""Tables of polars grouped by columns, beside polars: values, types and order."""

from __future__ import annotations

import datetime

import numpy as np
import pandas
import polars
import pytest
from polars.testing import assert_frame_equal, assert_series_equal

import clhist

LEVELS = polars.Enum(["y", "x", "w"])


def trips(size):
    """Return a table with a column of each type."""
    rng = np.random.default_rng(size)
    seats = [None if n % 7 == 0 else int(n) for n in rng.integers(0, 30, size)]
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return polars.DataFrame(
        {
            "zone": rng.choice(["b", "a", "c"], size).tolist(),
            "hour": rng.integers(0, 4, size).astype("i1"),
            "fare": rng.random(size),
            "level": polars.Series(rng.choice(["x", "y"], size).tolist(), dtype=LEVELS),
            "kind": polars.Series(rng.choice(["p", "q"], size).tolist(), dtype=polars.Categorical),
            "seats": polars.Series(seats, dtype=polars.Int32),
            "time": polars.Series(
                [start + datetime.timedelta(minutes=int(n)) for n in rng.integers(0, 10_000, size)],
                dtype=polars.Datetime("us", "Europe/Oslo"),
            ),
            "date": polars.Series(
                [datetime.date(2026, 1, 1 + int(n)) for n in rng.integers(0, 9, size)], dtype=polars.Date
            ),
        }
    )


@pytest.mark.parametrize("size", [1, 300, 30_000])
@pytest.mark.parametrize(
    "keys", [["zone"], ["level", "hour"], ["kind"], ["time"], ["date", "zone"], ["hour"]], ids="-".join
)
def test_as_polars_has_them(keys, size):
    frame = trips(size)
    columns = polars.col
    expected = (
        frame.group_by(keys)
        .agg(
            mean=columns("fare").mean(),
            n=columns("fare").len(),
            most=columns("seats").max(),
            mean_seats=columns("seats").mean(),
            first_level=columns("level").first(),
            top_level=columns("level").max(),
            last_kind=columns("kind").last(),
            latest=columns("time").max(),
            day=columns("date").min(),
            last_zone=columns("zone").last(),
        )
        .sort(keys)
    )
    found = clhist.group_by(frame, *keys).agg(
        mean=("fare", "mean"),
        n="size",
        most=("seats", "max"),
        mean_seats=("seats", "mean"),
        first_level=("level", "first"),
        top_level=("level", "max"),
        last_kind=("kind", "last"),
        latest=("time", "max"),
        day=("date", "min"),
        last_zone=("zone", "last"),
    )
    assert found.columns == expected.columns
    assert_frame_equal(found.with_columns(polars.col("n").cast(polars.UInt32)), expected)


def test_rows_and_errors():
    frame = trips(300)
    groups = clhist.group_by(frame, "hour")
    for column, statistic in (("fare", "mean"), ("seats", "max"), ("level", "min")):
        expected = frame.select(getattr(polars.col(column), statistic)().over("hour"))[column]
        assert_series_equal(groups.transform(column, statistic), expected)
    with pytest.raises(TypeError, match=r"got a LazyFrame; pass frame\.collect"):
        clhist.group_by(frame.lazy(), "hour")
    with pytest.raises(TypeError, match=r"^x: expected a column of polars, as the table is, got one of pandas"):
        groups.agg(x=(frame["fare"].to_pandas(), "sum"))
    with pytest.raises(KeyError, match="did you mean 'fare'"):
        groups.agg(x=("fares", "sum"))


@pytest.mark.parametrize("values", [[{"a": 1}, {"a": 2}], polars.Series([[1, 2], [3, 4]], dtype=polars.Array(int, 2))])
def test_nested_columns_are_refused(values):
    frame = polars.DataFrame({"k": values, "v": [1, 2]})
    kind = type(frame["k"].dtype).__name__
    with pytest.raises(TypeError, match=rf"^keys: expected a column of numbers, .*, got {kind}\("):
        clhist.group_by(frame["k"])
    with pytest.raises(TypeError, match=rf"^keys: expected a column of numbers, .*, got {kind}\("):
        clhist.group_by(frame, "k").size()
    with pytest.raises(TypeError, match=rf"^k: expected a column of numbers, .*, got {kind}\("):
        clhist.group_by(frame, "v").agg(first=("k", "first"))
    column = pandas.Series(frame["k"].to_arrow(), dtype=pandas.ArrowDtype(frame["k"].to_arrow().type))
    with pytest.raises(TypeError, match=r"^keys: expected a column of numbers"):
        clhist.group_by(column)


def test_values_and_weights_may_be_expressions():
    table = polars.DataFrame({"k": [1, 1, 2], "x": [1.0, 3.0, 5.0], "w": [1, 2, 3]})
    twice, groups = polars.col("x") * 2, clhist.group_by(table, "k")
    found = groups.agg(weights=polars.col("w"), sum=(twice, "sum"), mean=(twice, "mean"), count=(twice, "count"))
    sums = (twice * polars.col("w")).sum()
    expected = table.group_by("k").agg(sum=sums, mean=sums / polars.col("w").sum(), count=twice.count()).sort("k")
    assert_frame_equal(found, expected, check_dtypes=False)
    assert_series_equal(groups.transform(twice, "max"), polars.Series("max", [6.0, 6.0, 10.0]))
    assert_frame_equal(groups.nlargest(1, -polars.col("x")), table[[0, 2]])
    with pytest.raises(ValueError, match=r"^s: expected an expression of one column, got 2$"):
        groups.agg(s=(polars.col("x", "w"), "sum"))
    with pytest.raises(ValueError, match=r"^keys: expected an expression of one column, got 2$"):
        clhist.group_by(table, polars.col("x", "w"))
