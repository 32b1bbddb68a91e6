"""Keys of `clhist.group_by` that are no small integers, tables of its results, and bad calls."""

import numpy as np
import pandas
import pyarrow
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_keys_of_pandas_that_are_missing(dtype):
    keys = pandas.Series(["b", "a", None, "b"], dtype=dtype)
    groups = clhist.group_by(keys)
    assert list(groups.keys) == ["a", "b"]
    assert groups.sum(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [2, 9]


def test_masked_values_are_left_out():
    masked = np.ma.masked_equal([1.0, 99.0, 4.0, 99.0], 99.0)
    found = clhist.group_by([0, 0, 1, 2]).agg(x=(masked, "sum", "max", "argmax"))["x"]
    assert [each.tolist() for each in found.values()] == [[1.0, 4.0, 0.0], [1.0, 4.0, None], [0, 2, None]]
    waves = np.ma.array([1 + 1j, 2, 3, 4j], mask=[False, True, False, False])
    assert clhist.group_by([0, 0, 1, 1]).mean(waves).tolist() == [1 + 1j, 1.5 + 2j]
    with pytest.raises(ValueError, match=r"^x: expected text without masked elements"):
        clhist.group_by([0, 0]).first(np.ma.array(["a", "b"], mask=[True, False]))


def test_masked_keys_belong_to_no_group():
    for keys in (np.ma.masked_equal([1, 0, 2, 1], 2), np.ma.masked_equal(["b", "a", "c", "b"], "c")):
        groups = clhist.group_by(keys)
        assert groups.num_groups == len(groups) == len(groups.keys) == 2
        np.testing.assert_array_equal(groups.sum(np.array([1.0, 2.0, 4.0, 8.0])), [2, 9])


def test_a_frame_of_the_result(queue: cl.CommandQueue):
    keys, x = np.array([2, 0, 2, 0]), np.array([1.0, 2.0, 3.0, 4.0])
    table = clhist.group_by(keys).agg(x=(x, "sum", "count"), y=(x, "max"))
    frame = table.to_pandas()
    assert frame.index.tolist() == [0, 2]
    assert frame.columns.tolist() == [("x", "sum"), ("x", "count"), ("y", "max")]
    np.testing.assert_array_equal(frame["x"]["sum"], [6, 4])
    assert isinstance(table, dict)
    given = [cl_array.to_device(queue, each) for each in (keys, x)]
    on_device = clhist.group_by(given[0]).agg(x=(given[1], "sum", "count"), y=(given[1], "max"))
    pandas.testing.assert_frame_equal(on_device.to_pandas(), frame)
    several = clhist.group_by(pandas.MultiIndex.from_arrays([[1, 0, 1, 1], ["b", "a", "b", "a"]])).agg(x=(x, "sum"))
    assert several.to_pandas().index.equals(pandas.MultiIndex.from_tuples([(0, "a"), (1, "a"), (1, "b")]))
    assert clhist.group_by(keys).agg().to_pandas().shape == (2, 0)


def test_keys_that_are_no_integers():
    keys = np.array(["b", "a", "c", "a"])
    groups = clhist.group_by(keys)
    assert list(groups.keys) == ["a", "b", "c"]
    np.testing.assert_array_equal(groups.sum(np.arange(4.0)), [4, 0, 2])
    groups = clhist.group_by(np.array([0.5, np.nan, -1, 0.5]))
    assert list(groups.keys) == [-1, 0.5]
    np.testing.assert_array_equal(groups.size(), [1, 2])
    dates = np.array(["2020-01-02", "NaT", "2020-01-01"], "M8[D]")
    np.testing.assert_array_equal(clhist.group_by(dates).size(), [1, 1])
    np.testing.assert_array_equal(clhist.group_by(np.array([True, False, True])).size(), [1, 2])
    np.testing.assert_array_equal(clhist.group_by(np.array([2, 0, 2], np.uint64)).keys, [0, 2])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("dtype", ["Int64", "UInt64", "Int8", "boolean", "Float64", "Float32"])
def test_nullable_values_as_pandas_has_them(queue: cl.CommandQueue, dtype, missing):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2, 500) + (2**62 if "64" in dtype and dtype != "Float64" else 0)
    x = pandas.Series(x.astype(bool) if dtype == "boolean" else x, dtype=dtype)
    keys = np.arange(500) // 3
    x[(rng.random(500) < 0.4) * missing | (keys == 7) * missing] = pandas.NA
    names = ["sum", "mean", "min", "max", "first", "last", "count", "nunique", "median", "any", "all"]
    found = clhist.group_by(keys, queue=queue).agg(y=(np.ones(500), "sum"), x=(x, *names), z=(x, "size"))
    assert [*found] == ["y", "x", "z"]
    assert found["z"]["size"].tolist() == [3] * 166 + [2]
    ours, expected = found.to_pandas()["x"], x.groupby(keys).agg(names)
    for name in names:
        kept = dtype != "Int8" or name != "sum"  # of which pandas makes Int8 again where it fits
        pandas.testing.assert_series_equal(ours[name], expected[name], check_dtype=kept, check_names=False)
    assert found.to_arrow()["x_min"].null_count == expected["min"].isna().sum()


def test_nullable_values_of_arrow_and_polars():
    values = [2**60 + 1, None, None, 5]
    polars = pytest.importorskip("polars")
    for x in (pyarrow.array(values), pyarrow.chunked_array([values[:1], values[1:]]), polars.Series(values)):
        groups = clhist.group_by([0, 0, 1, 2])
        least = groups.agg(x=(x, "min"))
        assert least["x"]["min"].tolist() == least.to_arrow()["x_min"].to_pylist() == [2**60 + 1, None, 5]
        assert groups.sum(x, skipna=False).tolist() == [None, None, 5]
        assert groups.transform(x, "max").tolist() == [2**60 + 1, 2**60 + 1, None, 5]


def test_objects_that_cannot_be_compared_need_no_order():
    assert clhist.group_by(np.array([2, "a", 2], object), sort=False).keys.tolist() == [2, "a"]
    assert clhist.group_by([0, 0]).nunique(np.array([1, "a"], object)).tolist() == [2]
    with pytest.raises(TypeError, match=r"^x: expected values that can be hashed, got object: unhashable"):
        clhist.group_by([0, 0]).nunique(np.array([[], {}], object))


def test_bad_input(queue: cl.CommandQueue):
    groups = clhist.group_by(np.array([0, 1, 1]))
    x = np.arange(3.0)
    for error, match, call in [
        (ValueError, "x: expected shape \\(3,\\) as of the keys", lambda: groups.mean(x[:2])),
        (ValueError, "x: expected statistics among sum, mean.*got 'modus'", lambda: groups.agg(x=(x, "modus"))),
        (TypeError, "x: expected a tuple of an array and its statistics", lambda: groups.agg(x=x)),
        (TypeError, "x: expected a NumPy array", lambda: groups.mean(cl_array.to_device(queue, x))),
        (TypeError, "x: OpenCL has no type for object", lambda: groups.mean(np.array([1, "a", None], object))),
        (TypeError, "dtype: expected a float", lambda: groups.mean(x, dtype=np.int32)),
        (ValueError, "ddof: expected at least 0", lambda: groups.var(x, ddof=-1)),
        (ValueError, "num_groups: expected at least 0", lambda: clhist.group_by(np.array([0]), -1)),
        (TypeError, "num_groups: expected none", lambda: clhist.group_by(np.array(["a"]), 3)),
        (TypeError, "keys: expected values that can be", lambda: clhist.group_by(np.array([1, "a", None], object))),
        (TypeError, r"write agg\(x=\(df\['x'\], 'max'\)\)", lambda: groups.agg({"x": "max"})),
        (TypeError, r"write agg\(x=\(x, 'mean'\)\)", lambda: groups.agg(x, "mean")),
        (TypeError, r"write groups.mean\(df\['x'\]\)", lambda: groups["x"]),
        (TypeError, r"in groups.keys", lambda: list(groups)),
        (TypeError, r"^by: .*pass the column: group_by\(df\['x'\]\)", lambda: clhist.group_by(x, by="x")),
        (TypeError, r"^other: expected num_groups, sort or queue as keywords", lambda: clhist.group_by(x, other="x")),
        (ValueError, r"got 'avg'; write 'mean'$", lambda: groups.agg(x=(x, "avg"))),
        (ValueError, r"got 'p95'$", lambda: groups.agg(x=(x, "p95"))),
        (ValueError, r"clhist.reduce_by_index\(\(num_groups, d\)", lambda: groups.mean(np.ones((3, 2)))),
        (TypeError, "keys: expected integers on a device", lambda: clhist.group_by(cl_array.to_device(queue, x), 3)),
        (ValueError, r"keys\[1\]: expected shape \(3,\)", lambda: clhist.group_by([x, x[:2]])),
        (TypeError, r"keys\[1\]: expected an array of", lambda: clhist.group_by([x, cl_array.to_device(queue, x)])),
        (TypeError, "num_groups: expected none with keys of 2", lambda: clhist.group_by([x, x], 3)),
        (TypeError, "keys: expected a column at least", lambda: clhist.group_by(pandas.DataFrame())),
    ]:
        with pytest.raises(error, match=match):
            call()


def test_categories():
    keys = pandas.Series(["b", None, "a", "b"], dtype="category").cat.add_categories("unused")
    for given in (keys, keys.array):
        groups = clhist.group_by(given)
        assert list(groups.keys) == ["a", "b", "unused"]
        np.testing.assert_array_equal(groups.sum(np.arange(4)), [2, 3, 0])
