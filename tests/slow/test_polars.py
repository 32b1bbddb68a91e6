"""Keys of groups that are columns of polars, with and without the libraries that number keys."""

from __future__ import annotations

import datetime
import math
import sys

import numpy
import polars
import pytest

import clhist
from clhist.grouped import keys as grouping_keys
from clhist.grouped.groups import numbers_of


def numbers_and_labels(keys):
    """Return the numbers of one column, and its keys; integers are numbers."""
    return numbers_of(keys, are_numbers=True, sort=True, queue=None)[:2]


def check(expected, keys, order=()):
    codes, labels = numbers_and_labels(keys)
    distinct = sorted({key for key in expected if key is not None}, key=order.index if order else None)
    assert labels.tolist() == distinct
    assert codes.tolist() == [distinct.index(key) if key in distinct else -1 for key in expected]


@pytest.mark.parametrize("hidden", [(), ("pyarrow",), ("pyarrow", "pandas")], ids=["pyarrow", "pandas", "neither"])
def test_columns_of_polars(hidden, monkeypatch):
    monkeypatch.setattr(grouping_keys, "_WORTH_AN_IMPORT", 0)
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    for dtype in (polars.String, polars.Categorical):
        check(["b", None, "a", "b"], polars.Series(["b", None, "a", "b"], dtype=dtype))
    enum = polars.Series(["b", None, "a", "b"], dtype=polars.Enum(["c", "b", "a"]))
    check(["b", None, "a", "b"], enum, ["c", "b", "a"])
    assert clhist.group_by(enum.reverse()[:2], sort=False).keys.tolist() == ["b", "a"]
    codes, labels = numbers_and_labels(polars.Series([1.5, None, math.nan, 0.5]))
    assert (codes.tolist(), str(labels.tolist())) == ([1, -1, 2, 0], "[0.5, 1.5, nan]")
    dates = [datetime.date(2020, 1, 2), None, datetime.date(2020, 1, 1)]
    assert numbers_and_labels(polars.Series(dates))[0].tolist() == [1, -1, 0]
    codes, labels = numbers_and_labels(polars.Series([3, None, 0]))
    assert (codes.tolist(), labels) == ([3, -1, 0], None)


def test_tables():
    frame = polars.DataFrame({"a": [3, 1, 3, 1], "b": ["x", "y", "z", "y"], "v": [1.0, 2.0, 3.0, 5.0]})
    statistics = [polars.col("v").sum().alias("v_sum"), polars.col("v").count().alias("v_count").cast(polars.Int64)]
    for by in (["a"], ["b"], ["a", "b"]):
        keys = [frame[name] for name in by]
        found = clhist.group_by(keys if len(by) > 1 else keys[0]).agg(v=(frame["v"], "sum", "count"))
        expected = frame.group_by(by).agg(statistics).sort(by)
        assert found.to_polars().equals(expected)
        assert found.to_arrow().column_names == expected.columns
    swapped = clhist.group_by(numpy.array([7, 5], ">i4")).agg(v=([1, 2], "max"))
    assert swapped.to_polars().to_dict(as_series=False) == {"key": [5, 7], "v_max": [2, 1]}
    two = clhist.group_by([numpy.array([1, 2]), numpy.array([3, 3])]).agg(v=([1, 2], "max"))
    assert two.to_arrow().column_names == ["key0", "key1", "v_max"]
    with pytest.raises(ValueError, match="columns: expected names that differ, got 'v_max' twice"):
        clhist.group_by(polars.Series("v_max", [1, 2])).agg(v=([1, 2], "max")).to_arrow()


@pytest.mark.parametrize("name", ["polars", "pyarrow"])
def test_tables_without_the_library(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    table = clhist.group_by([1, 2]).agg(v=([1, 2], "max"))
    with pytest.raises(ImportError, match=f"needs {'polars' if name == 'polars' else 'PyArrow'}: pip install {name}"):
        table.to_polars()


class OfOneInterface:
    """A column of a library that has one method of Arrow's C data interface, and nothing else."""

    def __init__(self, array, name):
        setattr(type(self), name, lambda self, schema=None: getattr(array, name)(schema))


@pytest.mark.parametrize("index", ["int8", "uint8", "int64"])
def test_dictionaries_of_arrow(index):
    arrow = pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    texts = arrow.array(["b", "a", "b", None, "zz", "c", "nowhere"])  # one twice, one missing, one that none has
    encoded = arrow.DictionaryArray.from_arrays(arrow.array([0, 1, 2, 3, None, 4, 5, 0], index), texts)
    for given in (encoded, encoded.slice(1, 5), encoded.slice(3, 2), encoded.slice(0, 0)):
        check(given.to_pylist(), given)
        chunked = arrow.chunked_array([given, encoded])
        check(chunked.to_pylist(), chunked)
    known = arrow.chunked_array(
        [arrow.array(list("bab")).dictionary_encode(), arrow.array(list("cb")).dictionary_encode()]
    )
    check(list("babcb"), known)
    assert clhist.group_by(encoded, sort=False).keys.tolist() == ["b", "a", "zz", "c"]
    full = arrow.DictionaryArray.from_arrays(
        arrow.array([*range(256), None], "uint8"), arrow.array([str(k) for k in range(256)])
    )
    check(full.to_pylist(), full)


def test_arrow_interface():
    arrow = pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    values = numpy.array([1.0, 2.0, 4.0, 8.0])
    for column in (["b", None, "a", "b"], [3, None, -1, 3]):
        chunked = arrow.chunked_array([column[:1], column[1:]])
        expected = clhist.group_by(arrow.array(column))
        for given, name in ((chunked, "__arrow_c_stream__"), (arrow.array(column), "__arrow_c_array__")):
            found = clhist.group_by(OfOneInterface(given, name))
            assert found.keys.tolist() == expected.keys.tolist() == sorted({*column} - {None})
            assert found.sum(values).tolist() == expected.sum(values).tolist() == [4.0, 9.0]
    table = arrow.table({"a": chunked, "b": arrow.array(["x", "y", "x", "x"])})
    for keys in (table, [table["a"], table["b"]]):
        assert [each.tolist() for each in clhist.group_by(keys).keys] == [[-1, 3], ["x", "x"]]
    assert clhist.group_by(polars.Series([1, 2])).agg(v=([1, 2], "max")).to_polars().columns == ["key", "v_max"]


def test_expressions_beside_the_table_as_keys():
    table = polars.DataFrame({"k": [3, 5, 4], "x": [1.0, 2.0, 4.0]})
    odd = (polars.col("k") % 2).alias("odd")
    for key in (odd, table.select(odd)["odd"]):
        found = clhist.group_by(table, key).agg(x=("x", "sum"))
        assert found.to_dict(as_series=False) == {"odd": [0, 1], "x": [4.0, 3.0]}
