"""Dates and durations as values of groups: exact, without NaT, in their unit and time zone."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import clhist

NAT = np.iinfo(np.int64).min
ZONE = "Europe/Oslo"


def data(size, dtype):
    """Return keys and dates on both sides of 1970, or durations of both signs; a group has NaT alone."""
    rng = np.random.default_rng(size)
    keys = rng.integers(-1, max(4, size // 50), size)
    ticks = rng.integers(-(2**62), 2**62, size) if "ns" in dtype else rng.integers(-30, 30, size)
    ticks[(rng.random(size) < 0.3) | (keys == 2)] = NAT
    return keys, ticks, ticks.view(dtype)


def parts_of(keys, ticks):
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(keys.max() + 2))
    parts = [ticks[order[a:b]] for a, b in itertools.pairwise(bounds)]
    return [[int(each) for each in part if each != NAT] for part in parts]


def kind_of(column):
    return str(column.type if isinstance(column, pyarrow.Array | pyarrow.ChunkedArray) else column.dtype)


def quantile(part, q):
    place = Fraction(str(q)) * (len(part) - 1)
    below, part = math.floor(place), sorted(part)
    value = part[below] + (place - below) * (part[math.ceil(place)] - part[below])
    return toward_zero(value.numerator, value.denominator)


def toward_zero(numerator, denominator):
    return abs(numerator) // denominator * (1 if numerator >= 0 else -1)


def mean(part):
    return toward_zero(sum(part), len(part))


def median(part):
    part = sorted(part)
    return toward_zero(part[(len(part) - 1) // 2] + part[len(part) // 2], 2)


def mode(part):
    different, counts = np.unique(part, return_counts=True)
    return int(different[counts.argmax()])


EXACT = {"mean": mean, "median": median, "mode": mode, "min": min, "max": max, "first": lambda part: part[0],
         "last": lambda part: part[-1]}  # fmt: skip


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("dtype", ["M8[ns]", "M8[D]", "m8[s]", "m8[25ns]"])
def test_exact_statistics(dtype, size):
    keys, ticks, dates = data(size, dtype)
    groups, parts = clhist.group_by(keys, int(keys.max()) + 1), parts_of(keys, ticks)
    table = groups.agg(x=(dates, *EXACT, "count"))["x"]
    for name, exact in EXACT.items():
        expected = np.array([exact(part) if part else NAT for part in parts]).view(dtype)
        assert table[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(table[name], expected, err_msg=name)
        rows = np.where(keys < 0, np.array("NaT", dtype), expected[keys])
        found = groups.transform(dates, name)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(table["count"], [len(part) for part in parts])
    lower = [sorted(part)[int((len(part) - 1) * 0.25)] if part else NAT for part in parts]
    upper = [sorted(part)[-int(-(len(part) - 1) * 0.25 // 1)] if part else NAT for part in parts]
    quantiles = groups.quantile(dates, [0.25, 0, 1])
    assert quantiles.dtype == dtype
    assert quantiles.shape == (3, len(parts))
    ticks = quantiles.view(np.int64)
    assert ((ticks[0] >= lower) & (ticks[0] <= upper)).all()
    np.testing.assert_array_equal(quantiles[1:], [table["min"], table["max"]])
    if dtype[0] == "m":
        with np.errstate(over="ignore"):
            sums = np.array([sum(np.array(part, np.int64)) if part else 0 for part in parts], np.int64)
        np.testing.assert_array_equal(groups.sum(dates), sums.view(dtype))
        np.testing.assert_array_equal(groups.transform(dates, "sum")[keys >= 0], sums.view(dtype)[keys[keys >= 0]])


@pytest.mark.parametrize("groups", [3, 5_000])
@pytest.mark.parametrize("size", [60, 30_000])
@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[s]"])
def test_quantiles_are_exact(groups, size, dtype, queue):
    rng = np.random.default_rng(size)
    keys = rng.integers(0, groups, size)
    ticks = rng.integers(-(2**62), 2**62, size) if "ns" in dtype else rng.integers(-30, 30, size)
    for where in (None, queue):
        by = clhist.group_by(keys, groups, queue=where)
        for q in (0, 0.01, 0.1, 0.29, 0.3, 1 / 3, 0.57, 0.7, 0.9, 0.99, 0.999, 1):
            found = by.quantile(ticks.view(dtype), q).view(np.int64)
            exact = Fraction(1, 3) if q == 1 / 3 else q
            expected = [
                quantile(part, exact) if part else NAT
                for part in parts_of(np.append(keys, groups), np.append(ticks, 0))
            ]
            assert found.tolist() == expected[:groups]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_quantiles_as_pandas(unit):
    # Dates of such units are exact as float64, in which pandas interpolates.
    rng = np.random.default_rng(3)
    keys, dates = np.repeat(np.arange(100), np.arange(1, 101)), rng.integers(1_700_000_000, 1_700_000_040, 5050)
    dates = dates.astype("M8[s]").astype(f"M8[{unit}]")
    groups, theirs = clhist.group_by(keys), pandas.Series(dates).groupby(keys)
    for q in (0, 0.1, 0.29, 0.5, 0.7, 0.9, 0.99, 1):
        for method in ("linear", "lower", "higher", "nearest"):
            expected = theirs.quantile(q, interpolation=method)
            np.testing.assert_array_equal(groups.quantile(dates, q, method=method), expected)


@pytest.mark.parametrize("size", [10, 200_000])
def test_as_pandas_rounds(size):
    rng = np.random.default_rng(size)
    keys = rng.integers(0, max(2, size // 40), size)
    dates = rng.integers(1_600_000_000, 1_700_000_000, size).astype("M8[s]")
    dates[rng.random(size) < 0.2] = "NaT"
    for given in (dates, dates - np.datetime64("2022-01-01", "s")):
        groups, theirs = clhist.group_by(keys), pandas.Series(given).groupby(keys)
        for name in ("mean", "median", "min", "last", "nunique", "count"):
            np.testing.assert_array_equal(getattr(groups, name)(given), getattr(theirs, name)(), err_msg=name)
        difference = groups.std(given, ddof=1) - theirs.std().to_numpy()
        assert np.abs(difference[~np.isnat(difference)].astype(int)).max() <= 1
        np.testing.assert_array_equal(groups.transform(given, "mean"), theirs.transform("mean"))


def test_columns_of_libraries():
    dates = np.array(["2020-01-02", "NaT", "2020-03-01", "2020-07-05", "NaT"], "M8[us]")
    keys = [0, 0, 0, 1, 2]
    groups, series = clhist.group_by(keys), pandas.Series(dates)
    zoned = series.dt.tz_localize("UTC").dt.tz_convert(ZONE)
    arrow = pyarrow.array(dates)
    in_zone = arrow.cast(pyarrow.timestamp("us", ZONE))
    for name in ("mean", "median", "mode", "min", "max", "first", "last"):
        expected = getattr(groups, name)(dates)
        for x in (series, arrow, pyarrow.chunked_array([arrow[:2], arrow[2:]]), polars.Series(dates),
                  series.astype("timestamp[us][pyarrow]"), np.ma.array(dates, mask=np.isnat(dates))):  # fmt: skip
            found = getattr(groups, name)(x)
            assert found.dtype == "M8[us]"
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(groups.transform(x, name), groups.transform(dates, name))
        for x in (zoned, zoned.array, in_zone, polars.Series(in_zone), zoned.astype(pandas.ArrowDtype(in_zone.type))):
            for found, wanted in (
                (getattr(groups, name)(x), expected),
                (groups.transform(x, name), groups.transform(dates, name)),
            ):
                assert kind_of(found) == kind_of(x)
                same = pandas.Series(found if not hasattr(found, "to_pandas") else found.to_pandas())
                np.testing.assert_array_equal(same.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("M8[us]"), wanted)
    assert groups.cummax(zoned).dtype == zoned.dtype
    assert groups.nth(zoned, 1).isna().tolist() == [True, True, True]
    assert groups.quantile(zoned, 0.5).dtype == zoned.dtype
    assert groups.count(zoned).tolist() == groups.nunique(zoned).tolist() == [2, 1, 0]
    frame = groups.agg(t=(zoned, "min", "mean")).to_pandas()
    pandas.testing.assert_series_equal(frame["t"]["min"], zoned.groupby(keys).min(), check_names=False)
    table = groups.agg(t=(zoned, "min")).to_arrow()
    assert table["t_min"].type == in_zone.type
    assert clhist.unique(zoned).dtype == clhist.factorize(zoned)[1].dtype == zoned.dtype
    durations = polars.Series(dates - np.datetime64("2020-01-01"))
    np.testing.assert_array_equal(groups.sum(durations).astype(int), [61 * 86_400_000_000, 186 * 86_400_000_000, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda groups, x: groups.var(x),
        lambda groups, x: groups.sum(x),
        lambda groups, x: groups.any(x),
        lambda groups, x: groups.mean(x, dtype=np.float32),
        lambda groups, x: groups.weighted_mean(x, [1, 1]),
        lambda groups, x: groups.quantile(x, 0.5, weights=[1, 1]),
        lambda groups, x: groups.cumsum(x),
    ],
)
def test_refused(call):
    x = np.array(["2020", "2021"], "M8[ms]")
    for given in (x, pandas.Series(x).dt.tz_localize(ZONE), polars.Series(x)):
        with pytest.raises((TypeError, ValueError), match=r"^(x|skipna|dtype|weights): expected"):
            call(clhist.group_by([0, 0]), given)


@pytest.mark.parametrize("size", [60, 60_000])
def test_nat_that_is_not_skipped(size):
    keys, ticks, dates = data(size, "M8[s]")
    ticks[keys == 0] = 7  # a group without NaT
    groups, is_nat = clhist.group_by(keys, int(keys.max()) + 1), np.isnat(dates)
    names = ("count", "min", "max", "mean", "median", "std", "mode", "q25", "first", "last", "argmin", "argmax")
    for x in (dates, pandas.Series(dates), pyarrow.array(dates), polars.Series(dates.astype("M8[ms]"))):
        skipped, table = groups.agg(x=(x, *names))["x"], groups.agg(x=(x, *names), skipna=False)["x"]
        for group in range(len(groups)):
            rows = np.flatnonzero(keys == group)
            nats = is_nat[rows]
            assert table["count"][group] == rows.size
            for name in names[1:8]:
                assert nats.any() or table[name][group] == skipped[name][group] or not rows.size, name
                assert np.isnat(table[name][group]) == (nats.any() or not rows.size), name
            if rows.size:
                ends = {"first": rows[0], "last": rows[-1]}
                assert all(np.isnat(table[name][group]) == is_nat[row] for name, row in ends.items())
                first = rows[nats][0] if nats.any() else None
                assert all(table[name][group] == (first if nats.any() else skipped[name][group]) for name in names[10:])
    expected = pandas.Series(groups.mean(dates, skipna=False)).reindex(np.where(keys < 0, -1, keys))
    np.testing.assert_array_equal(groups.transform(dates, "mean", skipna=False), expected)


@pytest.mark.parametrize("unit", ["D", "h", "m"])
def test_deviations_of_dates_without_seconds(unit):
    dates = np.array([0, 1, 1, 5], f"M8[{unit}]")
    seconds = np.timedelta64(1, unit).astype("m8[s]").astype(int)
    table = clhist.group_by([0, 0, 1, 1]).agg(x=(dates, "std", "min"))
    np.testing.assert_array_equal(table["x"]["std"], (np.array([0.5, 2]) * seconds).astype("m8[s]"))
    assert table.to_arrow()["x_std"].type == pyarrow.duration("s")
    assert table.to_polars()["x_std"].to_list() == (np.array([0.5, 2]) * seconds).astype("m8[s]").tolist()
    frame = polars.DataFrame({"k": [0, 0, 1, 1], "x": dates.astype("M8[s]").tolist()})
    frame = frame.with_columns(polars.col("x").cast(polars.Date)) if unit == "D" else frame
    found = clhist.group_by(frame, "k").agg(s=("x", "std"))["s"].to_list()
    assert found == (np.array([0.5, 2]) * seconds).astype("m8[s]").tolist()


def test_no_dates():
    nothing = np.array([], "M8[s]")
    groups = clhist.group_by(np.array([], int), 2)
    for name in ("mean", "median", "mode", "max", "std"):
        assert np.isnat(getattr(groups, name)(nothing)).tolist() == [True, True], name
    assert groups.transform(nothing, "mean").shape == (0,)
