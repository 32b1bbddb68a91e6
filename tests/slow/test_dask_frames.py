"""Dataframes of Dask grouped by columns, beside the same in memory: values, types, partitions, categories."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

import clhist

dataframe = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
da = pytest.importorskip("dask.array")
pytestmark = pytest.mark.slow

AGGREGATIONS = {"mean": ("x", "mean"), "total": ("i", "sum"), "some": ("i", ["min", "nunique"]), "n": "size"}


def trips(size=1000):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "k": rng.choice(["a", "b", "c", None], size),
            "h": rng.integers(0, 3, size),
            "x": rng.random(size),
            "i": rng.integers(0, 9, size),
            "c": pandas.Categorical(rng.choice(["u", "v"], size), ["v", "u", "w"]),
        }
    )
    frame.index = frame.index * 2
    return frame


@pytest.mark.parametrize("keys", [["k"], ["h"], ["k", "h"], ["c"], ["c", "k"]], ids="-".join)
def test_frames(keys):
    frame = trips()
    lazy = dataframe.from_pandas(frame, npartitions=4)
    frame = lazy.compute()  # whose text has Dask's type
    groups, expected = clhist.group_by(lazy, *keys), clhist.group_by(frame, *keys)
    result, in_memory = groups.agg(**AGGREGATIONS), expected.agg(**AGGREGATIONS)
    assert_frame_equal(result.compute(), in_memory)
    assert [*result.columns] == [*in_memory.columns]
    assert result.dtypes.tolist() == in_memory.dtypes.tolist()
    assert_frame_equal(groups.size("n").compute(), expected.size("n"))
    column = groups.transform("x", "mean")
    assert column.npartitions == 4
    assert_series_equal(column.compute(), expected.transform("x", "mean"))


def test_min_count_and_errors():
    lazy = dataframe.from_pandas(trips(), npartitions=3)
    groups = clhist.group_by(lazy, "h")
    count = trips().groupby("h").size()
    found = groups.agg(mean=("x", "mean"), n="size", min_count=int(count.max())).compute()
    assert found["mean"].notna().tolist() == (count == count.max()).tolist()
    assert found["n"].tolist() == count.tolist()
    with pytest.raises(KeyError, match="got 'kk'; did you mean 'k'"):
        clhist.group_by(lazy, "kk")
    with pytest.raises(KeyError, match="got 'xx'"):
        groups.agg(mean=("xx", "mean"))
    with pytest.raises(ValueError, match="mid: expected statistics that can be merged, got 'median'"):
        groups.agg(mid=("x", "median"))
    with pytest.raises(TypeError, match="keys: expected a dataframe"):
        clhist.dask.group_by(lazy["h"], "h")


def test_values_of_elements_by_blocks():
    frame = trips()
    keys, x = da.from_array(frame["h"].to_numpy(), chunks=300), da.from_array(frame["x"].to_numpy(), chunks=300)
    for groups, expected in (
        (clhist.group_by(keys), frame.groupby("h")["x"].transform("sum")),
        (clhist.group_by(keys, 2), frame.groupby("h")["x"].transform("sum").where(frame["h"] < 2)),
    ):
        found = groups.transform(x, "sum")
        assert found.chunks == keys.chunks
        np.testing.assert_allclose(found.compute(), expected)
    lazy = dataframe.from_pandas(frame, npartitions=4)
    found = clhist.group_by([lazy["k"], lazy["h"]]).transform(lazy["x"], "max")
    np.testing.assert_allclose(found.compute(), frame.groupby(["k", "h"])["x"].transform("max"))


@pytest.mark.parametrize("known", [True, False])
def test_partitions_with_other_categories(known):
    categories = [["x", "y", "z"], ["z", "y", "q"] if not known else ["y", "z", "x"]]
    parts = [
        pandas.DataFrame({"k": pandas.Categorical(keys, own), "v": values})
        for keys, own, values in zip((["x", "y"], ["z", "y"]), categories, ([1.0, 2.0], [3.0, 4.0]), strict=True)
    ]
    meta = dataframe.from_pandas(parts[0], npartitions=1)
    meta = (meta if known else meta.assign(k=meta["k"].cat.as_unknown())).head(0)
    lazy = dataframe.from_map(lambda n: parts[n], [0, 1], meta=meta)
    lazy = lazy if known else lazy.assign(k=lazy["k"].cat.as_unknown())
    groups = clhist.group_by(lazy["k"])
    assert groups.sum(lazy["v"]).compute().tolist() == [1.0, 6.0, 3.0]
    assert groups.nunique(lazy["v"]).compute().tolist() == [1, 2, 1]
    assert np.asarray(groups.keys).tolist() == ["x", "y", "z"]
    found = clhist.group_by(lazy, "k").agg(total=("v", "sum")).compute()
    assert found["total"].to_dict() == {"x": 1.0, "y": 6.0, "z": 3.0}


def test_a_value_outside_the_categories_is_refused():
    parts = [pandas.DataFrame({"k": pandas.Categorical([key], [key]), "v": [1.0]}) for key in "xy"]
    lazy = dataframe.from_map(lambda n: parts[n], [0, 1], meta=parts[0].iloc[:0])
    with pytest.raises(ValueError, match="keys: expected values of the column's categories in all partitions, got 'y'"):
        clhist.group_by(lazy["k"]).sum(lazy["v"]).compute()
