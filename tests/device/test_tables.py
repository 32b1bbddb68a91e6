"""Tables of pandas and PyArrow grouped by columns, beside pandas: values, types, names, order."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pandas
import pyarrow
import pyopencl.array as cl_array
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

import clhist

pytestmark = pytest.mark.usefixtures("without_optimizer")

AGGREGATIONS = {
    "mean": ("fare", "mean"),
    "n": ("fare", "size"),
    "top_level": ("level", "max"),
    "first_level": ("level", "first"),
    "seats": ("seats", "min"),
    "mean_seats": ("seats", "mean"),
    "seats_known": ("seats", "count"),
    "latest": ("time", "max"),
    "any": ("card", "any"),
    "zones": ("zone", "nunique"),
    "last_zone": ("zone", "last"),
    "ticks": ("ticks", "max"),
    "mean_ticks": ("ticks", "mean"),
}


def trips(size):
    """Return a table with a column of each type."""
    rng = np.random.default_rng(size)
    frame = pandas.DataFrame(
        {
            "zone": rng.choice(["b", "a", "c"], size),
            "hour": rng.integers(0, 4, size).astype("int8"),
            "fare": rng.random(size),
            "level": pandas.Categorical(rng.choice(["x", "y"], size), ["y", "x", "w"], ordered=True),
            "seats": pandas.array(rng.integers(0, 9, size), dtype="Int32"),
            "time": pandas.date_range("2026-01-01", periods=size, freq="min", tz="Europe/Oslo"),
            "card": rng.random(size) > 0.5,
            "ticks": pandas.array(rng.integers(0, 2**60, size).tolist(), dtype=pandas.ArrowDtype(pyarrow.int64())),
            "object": np.array([f"o{n}" for n in rng.integers(0, 3, size)], object),
            "maybe": pandas.array(rng.random(size) > 0.5, dtype="boolean"),
        }
    )
    frame["object"] = frame["object"].astype(object)
    frame.loc[::7, "seats"] = pandas.NA
    frame.loc[::5, "maybe"] = pandas.NA
    frame.loc[::9, "zone"] = None
    frame.index = frame.index[::-1] * 2
    return frame


@pytest.mark.parametrize("size", [1, 300, 30_000])
def test_types_of_values(size):
    frame = trips(size)
    found = clhist.group_by(frame, "hour", "zone").agg(**AGGREGATIONS)
    expected = frame.groupby(["hour", "zone"]).agg(**AGGREGATIONS)
    assert_frame_equal(found, expected)


@pytest.mark.parametrize("key", ["zone", "hour", "level", "seats", "time", "card", "ticks", "object", "maybe", "fare"])
def test_types_of_keys(key):
    frame = trips(200)
    found = clhist.group_by(frame, key).agg(mean=("fare", "mean"), zone=("zone", "first"), n="size")
    expected = frame.groupby(key).agg(mean=("fare", "mean"), zone=("zone", "first"), n=("fare", "size"))
    assert_frame_equal(found, expected)
    assert len(clhist.group_by(frame, [key])) == len(expected)


def test_order_of_first_elements():
    frame = trips(200)
    found = clhist.group_by(frame, "hour", "zone", sort=False).agg(total=("fare", "sum"))
    assert_frame_equal(found, frame.groupby(["hour", "zone"], sort=False).agg(total=("fare", "sum")))


def test_no_rows():
    frame = trips(20)[:0]
    found = clhist.group_by(frame, "hour", "zone").agg(mean=("fare", "mean"), seats=("seats", "max"))
    assert found.shape == (0, 2)
    assert found.index.names == ["hour", "zone"]
    assert found.dtypes.tolist() == [np.float64, pandas.Int32Dtype()]


def test_several_statistics_and_arrays_beside_the_table():
    frame = trips(100)
    groups = clhist.group_by(frame, "hour")
    found = groups.agg(
        fare=("fare", "min", np.max), q=("fare", "q25"), twice=(frame["fare"] * 2, "sum"), by_hand=(np.ones(100), "sum")
    )  # fmt: skip
    fares = frame.groupby("hour")["fare"]
    expected = pandas.DataFrame(
        {
            "fare_min": fares.min(),
            "fare_max": fares.max(),
            "q": fares.quantile(0.25),
            "twice": fares.sum() * 2,
            "by_hand": fares.size().astype(float),
        }
    )
    assert_frame_equal(found, expected)
    assert_frame_equal(groups.size("n"), fares.size().to_frame("n"))


def test_columns_named_as_options():
    frame = pandas.DataFrame({"k": [0, 0, 1], "ddof": [1, 2, 3], "self": [4, 5, 6], 7: [1, 1, 1]})
    found = clhist.group_by(frame, "k").agg(a=("ddof", "sum"), b=("self", "sum"), c=(7, "sum"))
    assert found.to_numpy().tolist() == [[3, 9, 2], [3, 6, 1]]


def test_rows():
    frame = trips(300)
    groups = clhist.group_by(frame, "hour")
    grouped = frame.groupby("hour")
    for column, statistic in (
        ("fare", "mean"),
        ("seats", "max"),
        ("time", "min"),
        ("zone", "last"),
        ("fare", "cumsum"),
    ):
        assert_series_equal(groups.transform(column, statistic), grouped[column].transform(statistic))
    found = clhist.group_by(pyarrow.Table.from_pandas(frame), "hour").transform("fare", "mean")
    # GPUs add in any order, so the last bits of two calls may differ.
    np.testing.assert_allclose(found.to_numpy(), groups.transform("fare", "mean"), rtol=1e-14)


def test_arrow():
    frame = trips(300)
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    for each in (table, table.to_batches()[0]):
        found = clhist.group_by(each, "level", "zone").agg(**AGGREGATIONS)
        assert isinstance(found, pyarrow.Table)
        for name in ("level", "zone"):
            assert found.schema.field(name).type == table.schema.field(name).type
        for name, column in (("seats", "seats"), ("latest", "time"), ("last_zone", "zone"), ("first_level", "level")):
            assert found.schema.field(name).type == table.schema.field(column).type
        expected = frame.groupby(["level", "zone"]).agg(**AGGREGATIONS).reset_index()
        for name in expected:
            if not name.startswith("mean"):
                assert found[name].to_pylist() == expected[name].tolist()
        np.testing.assert_allclose(found["mean"], expected["mean"])


def test_other_keys():
    frame = pandas.DataFrame(
        {"pair": [(1, 2), (1, 2), (3, 4)], "month": pandas.period_range("2026-01", periods=3, freq="M")}
    )
    for key in frame:
        assert_frame_equal(clhist.group_by(frame, key).size("n"), frame.groupby(key).size().to_frame("n"))
    for array in (pyarrow.nulls(2), pyarrow.array([1, 1], pyarrow.decimal128(5, 2)), pyarrow.array([b"x", b"x"])):
        table = pyarrow.table({"k": array})
        found = clhist.group_by(table, "k").size()
        assert found.schema.field("k").type == array.type
        assert found["size"].to_pylist() == [2] * (array.null_count == 0)


class OnlyCapsule:
    """A table of another library, which has the Arrow PyCapsule interface."""

    def __init__(self, table):
        self.columns, self.__arrow_c_stream__ = table.column_names, table.__arrow_c_stream__


def test_other_libraries_by_the_capsule_interface():
    table = pyarrow.table({"k": ["b", "a", "b"], "x": [1, 2, 3]})
    found = clhist.group_by(OnlyCapsule(table), "k").agg(x=("x", "sum"))
    assert found.equals(pyarrow.table({"k": ["a", "b"], "x": [2, 4]}))


@pytest.mark.parametrize("size", [50, 20_000])
def test_pandas_with_another_index_is_refused(size):
    frame = trips(size)
    with pytest.raises(ValueError, match=r"^fare: expected the index of the keys"):
        clhist.group_by(frame, "hour").agg(fare=(frame["fare"][::-1], "sum"))
    with pytest.raises(ValueError, match=r"^column: expected the index of the keys|^x: expected the index"):
        clhist.group_by(frame, "hour").transform(frame["fare"][::-1], "sum")


FRAME = pandas.DataFrame({"zone": ["a", "b"], "fare": [1.0, 2.0], "day": pandas.date_range("2026", periods=2)})
TWICE = pandas.DataFrame([[1, 2], [3, 4]], columns=["k", "k"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: clhist.group_by(FRAME, "zon"), KeyError, "got 'zon'; did you mean 'zone'.*'zone', 'fare', 'day'"),
        (lambda: clhist.group_by(FRAME, "zone", "xyz"), KeyError, r"got 'xyz' \(columns: 'zone', 'fare', 'day'\)"),
        (lambda: clhist.group_by(FRAME, "zone", 3), KeyError, r"keys: expected a column of the table, got 3 \(col"),
        (lambda: clhist.group_by(FRAME, "zone", 2.5), TypeError, r"^keys: expected names .* with names, got 2\.5$"),
        (lambda: clhist.group_by(FRAME, []), TypeError, "^keys: expected the name of at least one column"),
        (lambda: clhist.group_by(FRAME, "zone", "zone"), ValueError, "^keys: expected different names of columns"),
        (lambda: clhist.group_by(TWICE, "k"), ValueError, "^keys: expected a name of one column, but 2 columns"),
        (lambda: clhist.group_by(FRAME["zone"], "fare"), TypeError, "^num_groups: expected a number, got 'fare'"),
        (lambda: clhist.group_by(np.arange(2), 2, "fare"), TypeError, "^keys: expected a table with named columns"),
        (lambda: groups().agg(m=("fara", "mean")), KeyError, "m: expected a column of the table, got 'fara'; did"),
        (lambda: groups().agg(m=("fare", "meen")), ValueError, "^fare: expected statistics among sum, .*'meen'; write"),
        (lambda: groups().agg(m=("zone", "mean")), TypeError, "^zone: .*got str; statistics of text are count, min"),
        (lambda: groups().agg(m=("day", "var")), ValueError, r"^day: expected statistics of datetime64\[us\] among"),
        (lambda: groups().agg(m="mean"), TypeError, "^m: expected a tuple of a column and its statistics, or 'size'"),
        (lambda: groups().agg("mean"), TypeError, r"^agg: expected statistics by name, got 'mean'; write agg\(mean_f"),
        (lambda: groups().agg(a=("fare", "min", "max"), a_max=("fare", "max")), ValueError, "^a_max: .* got 'a_max' t"),
        (lambda: groups().agg(m=(pyarrow.array([1, 2]), "max")), TypeError, "^m: expected a column of pandas, .*pyarr"),
        (lambda: clhist.group_by(FRAME, "zone", np.arange(2)), TypeError, "^keys: .*of another lib"),
        (lambda: clhist.group_by(FRAME, FRAME["day"][:1]), ValueError, "^keys: expected 2 rows .*, got 1 in 'day'"),
        (lambda: clhist.group_by(FRAME, "day", FRAME["day"]), ValueError, "^keys: expected different .* got 'day' tw"),
        (lambda: clhist.group_by(FRAME, FRAME["day"][::-1]), ValueError, "^keys: expected the index"),
        (lambda: groups().nlargest(-1, "fare"), ValueError, "^n: expected a number of rows, got -1"),
        (lambda: groups().nlargest(1, "fara"), KeyError, "column: expected a column of the table, got 'fara'; did"),
        (lambda: groups().agg(min_count=1.5, n="size"), TypeError, "^min_count: expected an integer, got 1.5"),
        (lambda: groups()["fare"], TypeError, r"write groups.agg\(x=\('fare', 'mean'\)\)"),
        (lambda: [*groups()], TypeError, "expected no iteration"),
        (lambda: arrow_groups().agg(zone=("fare", "max")), ValueError, "^zone: expected another name than that of a k"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def groups():
    return clhist.group_by(FRAME, "zone")


def arrow_groups():
    return clhist.group_by(pyarrow.Table.from_pandas(FRAME), "zone")


def test_columns_beside_the_table_as_keys():
    """Parts of dates and intervals, which pandas computes."""
    frame = trips(300)
    hours, fares = frame["time"].dt.hour, pandas.cut(frame["fare"], 4)
    found = clhist.group_by(frame, "zone", hours).agg(mean=("fare", "mean"), n="size")
    assert_frame_equal(found, frame.groupby(["zone", hours]).agg(mean=("fare", "mean"), n=("fare", "size")))
    found = clhist.group_by(frame, fares).agg(total=("ticks", "sum"), n="size")
    expected = frame.groupby(fares, observed=True).agg(total=("ticks", "sum"), n=("fare", "size"))
    assert_frame_equal(found, expected)
    quarters = pandas.qcut(frame["fare"], 4).rename("quarter")
    found = clhist.crosstab(frame, "zone", quarters)
    assert found.to_numpy().tolist() == pandas.crosstab(frame["zone"], quarters).to_numpy().tolist()
    counts = clhist.value_counts(frame, hours.rename("hour"), sort=False)["count"]
    assert counts.tolist() == hours.value_counts().sort_index().tolist()


@pytest.mark.parametrize("names", [(0, 1, 2), [("trip", "zone"), ("trip", "hour"), ("price", "fare")]])
def test_columns_named_by_integers_and_tuples(names):
    zone, hour, fare = names
    frame = trips(300)[["zone", "hour", "fare"]].set_axis(pandas.Index(names), axis=1)
    found = clhist.group_by(frame, zone).agg(mean=(fare, "mean"))
    assert_frame_equal(found, frame.groupby([zone])[[fare]].mean().set_axis(["mean"], axis=1))
    assert found.index.name == zone
    for keys in ((zone, hour), ([zone, hour],), (zone, frame[hour])):
        found = clhist.group_by(frame, *keys).agg(mean=(fare, "mean"))
        assert_frame_equal(found, frame.groupby([zone, hour])[[fare]].mean().set_axis(["mean"], axis=1))
    fares = frame[fare].groupby(frame[zone])
    assert_series_equal(clhist.group_by(frame, zone).transform(fare, "max"), fares.transform("max"))
    assert clhist.group_by(frame, zone).nlargest(1, fare)[fare].tolist() == fares.max().tolist()
    found = clhist.crosstab(frame, zone, hour)
    assert found.to_numpy().tolist() == pandas.crosstab(frame[zone], frame[hour]).to_numpy().tolist()
    counts = clhist.value_counts(frame, hour, sort=False)["count"]
    assert counts.tolist() == frame[hour].value_counts().sort_index().tolist()
    assert clhist.group_by(frame, clhist.cut(fare, [-1, 1e9])).size()["size"].tolist() == [300]


@pytest.mark.parametrize("size", [40, 30_000])
def test_min_count(size):
    frame = trips(size).assign(k=np.arange(size) // 5)
    frame.loc[::3, "fare"] = np.nan
    picked = {"total": ("fare", "sum"), "most": ("seats", "max"), "last": ("time", "max"), "zone_": ("zone", "first")}
    found = clhist.group_by(frame, "k").agg(min_count=4, n="size", count=("fare", "count"), **picked)
    groups = frame.groupby("k")
    expected = {name: getattr(groups[column], way)(min_count=4) for name, (column, way) in picked.items()}
    expected = pandas.DataFrame({"n": groups.size(), "count": groups["fare"].count(), **expected})
    assert_frame_equal(found, expected)
    assert found["total"].isna().any()
    table = pyarrow.table({"k": ["a", "b", "a"], "x": [1.0, 2.0, 3.0], "n": [4, 5, 6], "t": ["u", "v", "w"]})
    tables = (
        [table] if (polars := find_spec("polars")) is None else [table, import_module(polars.name).from_arrow(table)]
    )
    for each in tables:
        rows = clhist.group_by(each, "k").agg(min_count=2, x=("x", "sum"), n=("n", "max"), t=("t", "last"))
        rows = rows.to_pydict() if hasattr(rows, "to_pydict") else rows.to_dict(as_series=False)
        assert rows == {"k": ["a", "b"], "x": [4.0, None], "n": [6, None], "t": ["w", None]}


@pytest.mark.parametrize("size", [40, 30_000])
def test_largest_rows_of_each_group(size):
    frame = trips(size)
    frame["fare"] = frame["fare"].round(2)  # with equal values
    frame.loc[::3, "fare"] = np.nan
    groups = clhist.group_by(frame, "hour")
    present = frame[frame["fare"].notna()].sort_values("hour", kind="stable")
    for number in (0, 1, 3, 64):
        for found, ascending in ((groups.nlargest(number, "fare"), False), (groups.nsmallest(number, "fare"), True)):
            ordered = present.sort_values("fare", ascending=ascending, kind="stable")
            expected = ordered.groupby("hour").head(number).sort_values("hour", kind="stable")
            assert_frame_equal(found, expected)
    assert_frame_equal(groups.nlargest(1, frame["seats"])[["seats"]], groups.nlargest(1, "seats")[["seats"]])
    last = frame.sort_values("time").groupby("zone").tail(1).sort_values("zone")
    assert_frame_equal(clhist.group_by(frame, "zone").nlargest(1, "time"), last)
    none = frame.assign(zone=None)
    for rows in (clhist.group_by(none, "zone").nlargest(2, "fare"), clhist.group_by(none, "zone").nsmallest(2, "fare")):
        assert_frame_equal(rows, none[:0])
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    assert clhist.group_by(table, "hour").nlargest(2, "fare").to_pandas()["fare"].tolist() == (
        groups.nlargest(2, "fare")["fare"].tolist()
    )


@pytest.mark.parametrize("dtype", ["f8", "i1", "u8", "M8[s]", "Int64"])
def test_largest_of_many_equal_or_missing_values(dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 100, 20_000).astype("i8" if dtype == "Int64" else dtype)
    if dtype == "f8":
        x[rng.random(x.size) < 0.9] = -np.inf
    frame = pandas.DataFrame({"k": np.where(rng.random(x.size) < 0.1, np.nan, rng.integers(0, 20, x.size)), "x": x})
    if dtype in ("M8[s]", "Int64"):
        frame = frame.astype({"x": dtype})
        frame.loc[frame["k"] < 3, "x"] = None
    frame = frame.set_index(frame.index * 2)
    groups, present = clhist.group_by(frame, "k"), frame.dropna()
    for number in (1, 5, 64):
        for found, ascending in ((groups.nlargest(number, "x"), False), (groups.nsmallest(number, "x"), True)):
            ordered = present.sort_values("x", ascending=ascending, kind="stable")
            expected = ordered.groupby("k").head(number).sort_values("k", kind="stable")
            assert_frame_equal(found, expected)


@pytest.mark.parametrize("keys", [["b", None, "a", "b"], np.array([7, 3, 7]), np.array([[4, 9], [9, 4]]), np.empty(0)])
@pytest.mark.parametrize("queue", [None, "default"])
def test_numbers_of_groups(keys, queue):
    found = clhist.group_by(keys, queue=queue and clhist.default_queue()).ngroup()
    expected = pandas.Series(np.ravel(np.array(keys))).groupby(np.ravel(np.array(keys))).ngroup()
    assert found.dtype == np.int64
    assert found.shape == np.shape(keys)
    assert found.ravel().tolist() == expected.fillna(-1).astype(int).tolist()


def test_numbers_of_groups_on_the_device(queue):
    keys = cl_array.to_device(queue, np.array([2, -1, 0, 3, 2]))
    assert clhist.group_by(keys, 3).ngroup().get().tolist() == [2, -1, 0, -1, 2]


def test_repr():
    assert repr(groups()) == "<FrameGroupBy 2 groups by 'zone' of a table of pandas>"
