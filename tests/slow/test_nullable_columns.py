"""Columns with missing values in groups, beside pandas and polars: nothing passes through float64, and NA stays NA."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import clhist

BIG = 2**60
SIZES = [10, 200_000]
SOURCES = ["Int64", "int64[pyarrow]", "arrow", "chunked", "dictionary", "polars", "masked"]


def column(source, values, missing, dtype="int64"):
    """Return values of a NumPy dtype as a column of which some are missing."""
    values, missing = np.asarray(values, dtype), np.asarray(missing, bool)
    if source == "masked":
        return np.ma.array(values, mask=missing)
    arrow = pyarrow.array(values, mask=missing)
    if source == "arrow":
        return arrow
    if source == "chunked":
        return pyarrow.chunked_array([arrow[: len(arrow) // 3], arrow[len(arrow) // 3 :]])
    if source == "dictionary":
        return arrow.dictionary_encode()
    if source == "polars":
        return polars.Series(arrow)
    dtypes = {"bool": "boolean", "int64": "Int64", "uint64": "UInt64", "int8": "Int8", "float32": "Float32"}
    series = pandas.Series(values).astype(pandas.ArrowDtype(arrow.type) if "[" in source else dtypes[dtype])
    series[missing] = pandas.NA
    return series


def data(size, dtype="int64"):
    rng = np.random.default_rng(size)
    keys, values = rng.integers(-1, max(3, size // 50), size), rng.integers(0, 40, size)
    values = values % 2 if dtype == "bool" else values + (BIG if dtype.endswith("64") else 0)
    return keys, values.astype(dtype), (rng.random(size) < 0.3) | (keys == 1)


def grouped(keys, values, missing, dtype):
    """Return pandas' groups of the same values."""
    names = {"bool": "boolean", "int64": "Int64", "uint64": "UInt64", "int8": "Int8", "float32": "Float32"}
    series = pandas.Series(values).astype(names[dtype])
    series[missing] = pandas.NA
    return series, series.groupby(np.where(keys < 0, np.nan, keys))


def same(found, expected, kind=None):
    """Assert that a masked array has the values of a nullable column of pandas, and its missing ones."""
    assert isinstance(found, np.ma.MaskedArray)
    assert kind is None or found.dtype == kind
    expected = pandas.array(expected)
    mask = np.asarray(pandas.isna(expected))
    np.testing.assert_array_equal(np.ma.getmaskarray(found), mask)
    np.testing.assert_array_equal(found.data[~mask], expected[~mask].to_numpy(found.dtype))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("source", SOURCES)
def test_large_integers(source, size):
    keys, values, missing = data(size)
    x, (_, theirs) = column(source, values, missing), grouped(keys, values, missing, "int64")
    groups = clhist.group_by(keys, int(keys.max()) + 1)
    wanted = range(groups.num_groups)
    for name in ("min", "max", "first", "last"):
        same(getattr(groups, name)(x), getattr(theirs, name)().reindex(wanted), "int64")
        same(groups.transform(x, name), theirs.transform(name), "int64")
    for name in ("cummin", "cummax"):
        same(getattr(groups, name)(x), getattr(theirs, name)(), "int64")
        same(groups.transform(x, name), getattr(theirs, name)(), "int64")
    same(groups.rank(x), theirs.rank().astype("Float64"))
    for n in (0, 2, -1):
        at = theirs.nth(n)
        at.index = keys[at.index]
        same(groups.nth(x, n), at.reindex(wanted), "int64")
    codes, uniques = clhist.factorize(x, sort=True)
    expected = pandas.factorize(np.where(missing, -1, values), sort=True)
    np.testing.assert_array_equal(uniques, expected[1][1:])
    np.testing.assert_array_equal(codes, expected[0] - 1)
    different, counts = clhist.unique(x, return_counts=True)
    assert different.dtype == "int64"
    assert different.mask.tolist() == [False] * len(uniques) + [True]
    np.testing.assert_array_equal(different.data[:-1], uniques)
    np.testing.assert_array_equal(counts, [*np.bincount(codes[codes >= 0]), missing.sum()])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
def test_other_types(dtype, size):
    keys, values, missing = data(size, dtype)
    _, theirs = grouped(keys, values, missing, dtype)
    groups = clhist.group_by(keys, int(keys.max()) + 1)
    for source in ("Int64", "masked", "polars"):
        x = column(source, values, missing, dtype)
        same(groups.transform(x, "max"), theirs.transform("max"), dtype)
        expected = theirs.transform("cummax").astype("boolean") if dtype == "bool" else theirs.cummax()
        same(groups.cummax(x), expected, dtype)
        kept = clhist.factorize(x, use_na_sentinel=False)[1]
        assert kept.dtype == dtype
        assert kept.mask.sum() == 1
    if dtype != "bool":
        found, expected = groups.cumsum(x), theirs.cumsum()
        np.testing.assert_array_equal(np.ma.getmaskarray(found), expected.isna())
        if dtype != "uint64":
            np.testing.assert_allclose(found.compressed(), expected.dropna().to_numpy(float), rtol=1e-5)
        half = groups.quantile(x, [0.5, 0.25])
        expected = theirs.quantile([0.5, 0.25]).unstack().T.reindex(columns=range(groups.num_groups))
        np.testing.assert_array_equal(np.ma.getmaskarray(half), expected.isna())
        np.testing.assert_allclose(half.filled(0), expected.fillna(0).to_numpy(float), rtol=1e-6)


def test_different_integers_stay_different():
    values = BIG + np.arange(100_000)
    x = pandas.Series(values, dtype="Int64")
    x[7] = pandas.NA
    assert len(clhist.factorize(x)[1]) == len(clhist.group_by(x)) == 99_999
    assert clhist.group_by(np.zeros(100_000, int)).nunique(x).tolist() == [99_999]


def test_unsorted_uniques():
    for source in SOURCES:
        x = column(source, [5, 3, 0, 5, 0, 9], [0, 0, 1, 0, 1, 0])
        values, first, inverse = clhist.unique(x, return_index=True, return_inverse=True, sorted=False)
        assert values.tolist() == [5, 3, None, 9]
        assert (first.tolist(), inverse.tolist()) == ([0, 1, 2, 5], [0, 1, 2, 0, 2, 3])
        codes, values = clhist.factorize(column(source, [], []))
        assert (codes.tolist(), values.tolist()) == ([], [])


@pytest.mark.parametrize("source", SOURCES)
def test_missing_values_propagate(source):
    keys, x = [0, 0, 1, 1, 2], column(source, [4, 0, 3, 5, 0], [0, 1, 0, 0, 1])
    groups = clhist.group_by(keys)
    for name, expected in (
        ("sum", [None, 8, None]), ("min", [None, 3, None]), ("mean", [None, 4.0, None]), ("first", [4, 3, None]),
        ("last", [None, 5, None]), ("any", [True, True, None]), ("all", [None, True, None]),
        ("argmax", [None, 3, None]),
    ):  # fmt: skip
        assert getattr(groups, name)(x, skipna=False).tolist() == expected, name
    assert groups.cumsum(x, skipna=False).tolist() == [4, None, 3, 8, None]
    assert groups.cumsum(x).tolist() == [4, None, 3, 8, None]
    assert groups.argmax(x).tolist() == [0, 3, None]
    assert groups.weighted_mean(x, np.ones(5)).tolist() == [4.0, 4.0, None]
    assert groups.weighted_mean(np.arange(5.0), x).tolist() == [0.0, pytest.approx(21 / 8), None]
    assert groups.quantile(x, 0.5, skipna=False).tolist() == [None, 4.0, None]
    assert groups.quantile(np.arange(5.0), 0.5, weights=x).tolist() == [0.0, 3.0, None]


def test_nan_of_polars_is_a_value():
    values = [1.0, float("nan"), None, 3.0, None, float("nan"), 5.0]
    keys = [0, 0, 0, 1, 2, 3, 1]
    frame = polars.DataFrame({"k": keys, "x": values})
    x, groups = frame["x"], clhist.group_by(keys)
    theirs = frame.group_by("k", maintain_order=True).agg(
        polars.col("x").sum().alias("sum"), polars.col("x").mean().alias("mean"), polars.col("x").min().alias("min"),
        polars.col("x").max().alias("max"), polars.col("x").count().alias("count"),
        polars.col("x").drop_nulls().n_unique().alias("nunique"),
    )  # fmt: skip
    for name in ("sum", "mean", "min", "max", "count", "nunique"):
        expected = theirs[name].to_list()
        found = getattr(groups, name)(x).tolist()
        assert str(found) == str(expected), name
    more = frame.group_by("k", maintain_order=True).agg(
        polars.col("x").median().alias("median"), polars.col("x").std().alias("std"),
        polars.col("x").quantile(0.5, "linear").alias("q50"),
    )  # fmt: skip
    found = groups.agg(x=(x, "median", "std", "q50"), skipna=True, ddof=1)["x"]
    for name in ("median", "q50", "std"):
        assert str(found[name].tolist()) == str(more[name].to_list()), name
    over = {
        "rank": polars.col("x").rank(), "cummax": polars.col("x").cum_max(), "cummin": polars.col("x").cum_min(),
        "cumsum": polars.col("x").cum_sum(),
    }  # fmt: skip
    for name, expression in over.items():
        expected = frame.select(expression.over("k"))["x"].to_list()
        assert str(getattr(groups, name)(x).tolist()) == str(expected), name
    keys = clhist.group_by(x)
    assert (str(keys.keys.tolist()), keys.size().tolist()) == ("[1.0, 3.0, 5.0, nan]", [1, 1, 1, 2])
    codes, values = clhist.factorize(x)
    assert (codes.tolist(), str(values.tolist())) == ([0, 1, -1, 2, -1, 1, 3], "[1.0, nan, 3.0, 5.0]")


def test_nulls_of_a_dictionary():
    x = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, 2, None, 0]), pyarrow.array([BIG + 5, None, BIG + 7]))
    for each in (x, pyarrow.chunked_array([x])):
        groups = clhist.group_by(each)
        assert (groups.keys.tolist(), groups.size().tolist()) == ([BIG + 5, BIG + 7], [2, 1])
        assert groups.cumcount().tolist() == [0, -1, 0, -1, 1]
        assert clhist.group_by([0, 0, 1, 1, 1]).max(each).tolist() == [BIG + 5, BIG + 7]


def test_texts_and_categories():
    values = ["b", None, "a", "c", "a", None]
    keys = [0, 0, 0, 1, 1, 2]
    objects = np.array(values, object)
    groups = clhist.group_by(keys)
    for x in (objects, values, pandas.Series(values), pandas.Series(values, dtype="string"), polars.Series(values),
              pyarrow.array(values), pyarrow.array(values).dictionary_encode()):  # fmt: skip
        assert groups.first(x).tolist() == ["b", "c", None]
        assert groups.last(x).tolist() == ["a", "a", None]
        assert groups.min(x).tolist() == groups.mode(x).tolist() == ["a", "a", None]
        assert groups.max(x).tolist() == ["b", "c", None]
        assert groups.nth(x, 1).tolist() == [None, "a", None]
        assert groups.transform(x, "first").tolist() == ["b", "b", "b", "c", "c", None]
        assert groups.count(x).tolist() == [2, 2, 0]
    categories = pandas.Series(pandas.Categorical(values, ["c", "b", "a"], ordered=True))
    found = groups.min(categories)
    assert found.dtype == categories.dtype
    assert found.tolist()[:2] == ["b", "c"]
    assert pandas.isna(found[2])
    assert groups.first(categories.cat.as_unordered()).tolist()[:2] == ["b", "c"]
    with pytest.raises(TypeError, match=r"^x: expected values that have an order, got unordered categories"):
        groups.max(categories.cat.as_unordered())
    prices = [Decimal("0.35"), Decimal("1.05"), None, Decimal("0.1"), None, None]
    for x in (np.array(prices, object), pyarrow.array(prices), polars.Series(prices)):
        assert groups.max(x).tolist() == [Decimal("1.05"), Decimal("0.1"), None]
        with pytest.raises(TypeError, match=r"^x: OpenCL has no type for .*Decimal"):
            groups.sum(x)
    assert groups.first([datetime.date(2020, 1, 1)] * 6).tolist() == [datetime.date(2020, 1, 1)] * 3
