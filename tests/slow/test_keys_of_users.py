"""Keys as users give them: frames with a name twice, names in the place of columns, large integers, mixed lists."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import clhist

X = np.array([1.0, 2.0, 4.0, 8.0])


@pytest.mark.parametrize("size", [4, 200_000])
def test_two_columns_of_one_name(size):
    rng = np.random.default_rng(size)
    first, second, x = rng.integers(0, 3, size), rng.integers(0, 3, size), rng.random(size)
    expected = pandas.Series(x).groupby([first, second]).sum()
    frame = pandas.DataFrame(np.stack([first, second], 1), columns=["k", "k"])
    table = pyarrow.Table.from_arrays([pyarrow.array(first), pyarrow.array(second)], ["k", "k"])
    for keys in (frame, table):
        groups = clhist.group_by(keys)
        np.testing.assert_allclose(groups.sum(x), expected)
        found = groups.agg(x=(x, "sum")).to_pandas()
        assert found.index.names == ["k", "k"]
        assert found.index.tolist() == expected.index.tolist()
    with pytest.raises(ValueError, match="columns: expected names that differ, got 'k' twice"):
        groups.agg(x=(x, "sum")).to_arrow()


@pytest.mark.parametrize("keys", ["k", b"k", 5, np.str_("k"), (k for k in "ab"), iter([1, 2]), {"a": [1]}, {1, 2}, len])
def test_no_columns(keys):
    with pytest.raises(TypeError, match=r"^keys: expected columns of keys, got "):
        clhist.group_by(keys)


def test_integers_beyond_int64():
    big = 2**63
    for keys, dtype in (([big, 1, big + 1, big], np.uint64), ([2 * big, -1, 2 * big + 1, 2 * big], object),
                        ([big, -1, big + 1, big], object)):  # fmt: skip
        expected, codes = sorted({*keys}), [sorted({*keys}).index(key) for key in keys]
        for given in (keys, np.array(keys, object), pandas.Series(keys, dtype=object)):
            groups = clhist.group_by(given)
            assert groups.keys.tolist() == expected
            assert groups.keys.dtype == (dtype if given is keys else object)
            assert groups.sum(X).tolist() == np.bincount(codes, X).tolist()
            assert clhist.unique(given).tolist() == expected
            assert clhist.factorize(given, sort=True)[0].tolist() == codes
            assert clhist.group_by([0] * 4).nunique(given).tolist() == [3]
    large = clhist.group_by(polars.Series([2**100, None, 1, 2**100], dtype=polars.Int128))
    assert (large.keys.tolist(), large.size().tolist()) == ([1, 2**100], [1, 2])
    many = [2**64 + k % 7 for k in range(100_000)]
    assert clhist.group_by(many).size().tolist() == np.bincount(np.arange(100_000) % 7).tolist()


@pytest.mark.parametrize("missing", [float("nan"), None, np.nan, pandas.NA])
def test_lists_of_text_with_missing_ones(missing):
    keys = ["b", missing, "a", "b"]
    groups = clhist.group_by(keys)
    assert (groups.keys.tolist(), groups.sum(X).tolist()) == (["a", "b"], [4.0, 9.0])
    assert clhist.factorize(keys)[0].tolist() == [0, -1, 1, 0]
    assert clhist.group_by([0] * 4).nunique(keys).tolist() == [2]
    assert clhist.group_by([0] * 5).nunique([1, "a", 1, missing, 2]).tolist() == [3]
    with pytest.raises(TypeError, match=r"^keys: expected values that can be hashed and sorted"):
        clhist.group_by([1, "a", 1, "b"])


def test_frames_keep_names_types_and_order():
    values = ["b", "a", None, "b"]
    zoned = pandas.Series(pandas.date_range("2020", periods=4, tz="Europe/Oslo"))
    for keys in (
        pandas.Series(values), pandas.Series(values, dtype="string"), pandas.Series([3, 1, None, 3], dtype="Int8"),
        pandas.Series(values, dtype=pandas.CategoricalDtype(["b", "a", "z"], ordered=True)), zoned,
        pandas.Series([3, 1, 2, 3], dtype="int8"), pandas.Series([True, None, False, True], dtype="boolean"),
    ):  # fmt: skip
        keys = keys.rename("k")
        found = clhist.group_by(keys).agg(x=(X, "sum")).to_pandas()["x"]["sum"]
        pandas.testing.assert_series_equal(
            found, pandas.Series(X).groupby(keys, observed=False).sum(), check_names=False
        )
        assert found.index.name == "k"
    for keys in (
        polars.Series("k", values), polars.Series("k", values, dtype=polars.Enum(["b", "a", "z"])),
        polars.Series("k", values, dtype=polars.Categorical), polars.Series("k", [3, 1, None, 3], dtype=polars.Int8),
        polars.Series("k", zoned), polars.Series("k", [1.5, float("nan"), None, 1.5]),
        polars.Series("k", [True, None, False, True]), polars.Series("k", zoned.dt.date),
    ):  # fmt: skip
        frame = polars.DataFrame([keys, polars.Series("x", X)])
        expected = frame.drop_nulls("k").group_by("k").agg(polars.col("x").sum().alias("x_sum")).sort("k")
        found = clhist.group_by(keys).agg(x=(X, "sum")).to_polars()
        assert found.schema == expected.schema
        assert found.equals(expected)
    arrow = pyarrow.table({"z": pyarrow.array(zoned), "k": values})
    found = clhist.group_by(arrow).agg(x=(X, "sum")).to_arrow()
    assert found.column_names == ["z", "k", "x_sum"]
    assert found["z"].type == arrow["z"].type


def test_quantiles_by_name():
    rng = np.random.default_rng(0)
    keys, x = rng.integers(0, 9, 5000), rng.normal(size=5000)
    groups, theirs = clhist.group_by(keys), pandas.Series(x).groupby(keys)
    found = groups.agg(x=(x, "mean", "q90", "count", "q2.5", "q0", "nunique"), n=(keys, "q100"))
    assert [*found["x"]] == ["mean", "q90", "count", "q2.5", "q0", "nunique"]
    for name, q in (("q90", 0.9), ("q2.5", 0.025), ("q0", 0)):
        np.testing.assert_allclose(found["x"][name], theirs.quantile(q), rtol=1e-12)
    np.testing.assert_array_equal(found["n"]["q100"], range(9))
    np.testing.assert_array_equal(groups.transform(x, "q90"), found["x"]["q90"][keys])
    some = pandas.Series(x, dtype="Float64").where(x > -1)
    frame = groups.agg(x=(some, "q90", "max")).to_pandas()
    pandas.testing.assert_series_equal(frame["x"]["q90"], some.groupby(keys).quantile(0.9), check_names=False)
    for name in ("q101", "q", "q9 0", "p90"):
        with pytest.raises(ValueError, match=r"^x: expected statistics"):
            groups.agg(x=(x, name))
    with pytest.raises((TypeError, ValueError), match=r"^price: expected"):
        groups.agg(price=(x.astype(complex), "q90"))


def test_a_series_has_the_index_of_the_keys():
    frame = pandas.DataFrame({"k": [1, 0, 1, 0], "x": X}, index=[3, 2, 1, 0])
    other, groups = frame["x"].sort_index(), clhist.group_by(frame["k"])
    assert groups.sum(frame["x"].copy()).tolist() == groups.sum(other.to_numpy()[::-1]).tolist() == [10.0, 5.0]
    for call in (
        lambda: groups.sum(other), lambda: groups.agg(x=(other, "nunique")), lambda: groups.transform(other, "max"),
        lambda: groups.quantile(other, 0.5), lambda: groups.weighted_mean(other, other), lambda: groups.cumsum(other),
        lambda: groups.rank(other), lambda: groups.nth(other, 0), lambda: clhist.group_by(frame[["k"]]).sum(other),
        lambda: groups.quantile(frame["x"], 0.5, weights=other), lambda: clhist.group_by([frame["k"], other]),
        lambda: groups.sum(other.astype("Float64")), lambda: groups.first(other.astype(str)),
        lambda: groups.transform(other.astype(str), "first"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^(x|weights|keys\[1\]): expected the index of the keys"):
            call()
    assert clhist.group_by([1, 0, 1, 0]).sum(other).tolist() == [5.0, 10.0]


def test_the_rows_of_the_largest_values():
    frame = pandas.DataFrame({"k": [0, 1, 0, 2], "x": [1.0, np.nan, 3.0, 2.0]})
    best = clhist.group_by(frame["k"]).argmax(frame["x"])
    assert best.tolist() == [2, -1, 3]
    assert frame.iloc[best[best >= 0]].index.tolist() == [2, 3]
    nullable = clhist.group_by(frame["k"]).argmax(frame["x"].astype("Float64"))
    assert nullable.tolist() == [2, None, 3]
    for some in (nullable.compressed(), nullable[nullable >= 0]):
        assert frame.iloc[some].index.tolist() == [2, 3]
    with pytest.raises(IndexError):
        frame.iloc[nullable]
