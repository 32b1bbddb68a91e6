"""`clhist.group_by` against NumPy, one group at a time, and against pandas where that is installed."""

import warnings

import numpy as np
import pandas
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.opencl.program import Kernel
from clhist.grouped import reproducible as group_reproducible
from clhist.grouped import sweep as group_sweep
from clhist.statistics import selection
from clhist.statistics.outputs import Column, Numbers, spread_of
from clhist.statistics.table import OF_COMPLEX, STATISTICS, TABLE, outputs_of

KERNELS = (
    group_sweep._sweeps,
    selection._kernels,
    selection._sorting_kernels,
    group_reproducible._engine,
)
GROUPS = 37
EMPTY = 5  # a group without elements
ALL_NAN = 6  # one with NaN alone

OTHERS = ("sem", "skew", "kurt", "size", "nunique", "mode")  # of tests/device/test_more_statistics.py
NUMPY = {
    "count": np.size,
    "sum": np.sum,
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "argmin": np.argmin,
    "argmax": np.argmax,
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "median": np.median,
    "prod": np.prod,
    "any": np.any,
    "all": np.all,
}
OF_NONE = {"count": 0, "sum": 0, "prod": 1, "argmin": -1, "argmax": -1, "any": False, "all": True}


def expected(keys, values, statistic, *, skipna=True, ddof=0, groups=GROUPS):
    """The statistic of each group by NumPy, in double precision."""
    wide = values.astype(np.float64) if values.dtype.kind == "f" else values
    found = []
    for group in range(groups):
        places = np.flatnonzero(keys == group)
        if skipna:
            places = places[~np.isnan(wide[places])]
        x = wide[places]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            if statistic in ("var", "std"):
                found.append(getattr(np, statistic)(x, ddof=ddof) if len(x) > ddof else np.nan)
            elif not len(x) and (statistic in OF_NONE or values.dtype.kind != "f"):
                limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
                of_integers = {"min": limits and limits.max, "max": limits and limits.min, "first": 0, "last": 0}
                found.append((OF_NONE | of_integers).get(statistic, np.nan))
            elif not len(x):
                found.append(np.nan)
            else:
                result = NUMPY[statistic](x)
                found.append(places[result] if statistic.startswith("arg") else result)
    return np.array(found)


def check(result, keys, values, statistic, *, rtol=1e-12, **options):
    reference = expected(keys, values, statistic, **options)
    assert result.shape == reference.shape
    if result.dtype.kind in "fc":
        # A sum of both signs is as exact as its terms.
        scale = np.nanmax(np.abs(np.where(np.isfinite(values), values, 0)), initial=0) * (statistic == "sum")
        np.testing.assert_allclose(result, reference.astype(result.dtype), rtol=rtol, atol=rtol * scale)
    else:
        np.testing.assert_array_equal(result, reference)


def data(n=5003, seed=1):
    """Keys in and out of range, floats with NaN far from 0, floats with few values, and small integers."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(-2, GROUPS + 2, n).astype(np.int32)
    keys[keys == EMPTY] = 7
    x = (1e4 + 3 * rng.normal(size=n)).astype(np.float32)
    x[rng.random(n) < 0.1] = np.nan
    x[keys == ALL_NAN] = np.nan
    return keys, {"x": x, "y": rng.integers(-4, 5, n).astype(np.float64), "n": rng.integers(-100, 100, n, np.int16)}


@pytest.fixture(scope="module")
def results():
    """All statistics of three columns at once."""
    keys, columns = data()
    groups = clhist.group_by(keys, GROUPS)
    return groups.agg(**{name: (column, *STATISTICS) for name, column in columns.items()})


@pytest.mark.parametrize("statistic", [name for name in STATISTICS if name not in OTHERS])
@pytest.mark.parametrize("column", ["x", "y", "n"])
def test_all_together(results, column, statistic):
    keys, columns = data()
    values, found = columns[column], results[column][statistic]
    if column == "x" and statistic == "prod":  # far beyond float32
        values = values.astype(np.float32)
        assert np.isinf(found[found != 1]).all()
        return
    # float32 is rounded to once, its variance from deviations that are rounded to 24 bits.
    check(found, keys, values, statistic, rtol=3e-7 if column == "x" else 1e-12)
    dtypes = {
        "count": np.int64,
        "sum": np.int64,
        "prod": np.int64,
        "argmin": np.int64,
        "argmax": np.int64,
        "any": np.bool_,
        "all": np.bool_,
    }
    if column == "n":
        wanted = dtypes.get(statistic, np.int16 if statistic in ("min", "max", "first", "last") else np.float64)
    else:
        own = statistic in ("sum", "prod") or statistic not in dtypes
        wanted = values.dtype if own else dtypes[statistic]
    assert found.dtype == wanted


@pytest.mark.parametrize("statistic", ["mean", "var", "min", "max", "argmax", "median", "first", "any"])
def test_nan_counts_if_asked(statistic):
    keys, columns = data()
    groups = clhist.group_by(keys, GROUPS)
    found = groups.agg(x=(columns["x"], statistic), skipna=False)["x"][statistic]
    check(found, keys, columns["x"], statistic, skipna=False, rtol=3e-7)


def test_ddof():
    keys, columns = np.array([0, 0, 1, 2, 2, 2]), np.array([1.0, 4.0, 2.0, 5.0, 5.0, 5.0])
    groups = clhist.group_by(keys)
    np.testing.assert_array_equal(groups.var(columns, ddof=1), [4.5, np.nan, 0])
    np.testing.assert_array_equal(groups.std(columns), [1.5, 0, 0])


def test_variances_do_not_cancel():
    rng = np.random.default_rng(5)
    keys, x = rng.integers(0, 10, 20_000), 1e9 + rng.normal(size=20_000)
    check(clhist.group_by(keys).var(x), keys, x, "var", groups=10, rtol=1e-9)
    x = np.where(keys < 5, 0.1, np.inf)
    np.testing.assert_array_equal(clhist.group_by(keys).std(x), [0.0] * 5 + [np.nan] * 5)


@pytest.mark.parametrize("dtype", ["M8[ns]", "M8[D]", "m8[s]", ">M8[s]"])
def test_dates_as_values(dtype):
    keys, columns = data()
    dates = columns["n"].astype(dtype)
    dates[np.isnan(columns["x"])] = "NaT"
    names = ["count", "min", "max", "first", "last"]
    reference = pandas.DataFrame({"key": keys, "x": dates.astype(dates.dtype.newbyteorder("="))})
    reference = reference[(keys >= 0) & (keys < GROUPS)].groupby("key")["x"].agg(names).reindex(range(GROUPS))
    found = clhist.group_by(keys, GROUPS).agg(x=(dates, *names, "argmin"), n=(columns["n"], "sum"))
    for name in names[1:]:
        assert found["x"][name].dtype == dates.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found["x"][name].astype(int), reference[name].to_numpy(dates.dtype).astype(int))
    np.testing.assert_array_equal(found["x"]["count"], reference["count"].fillna(0))
    assert found["x"]["argmin"][EMPTY] == found["x"]["argmin"][ALL_NAN] == -1
    assert (clhist.group_by(keys, GROUPS).max(dates) == found["x"]["max"])[[0, 1]].all()
    with pytest.raises(ValueError, match=r"^x: expected statistics of .* among .*count, .*min.*; got 'var'$"):
        clhist.group_by(keys, GROUPS).var(dates)


def test_functions_in_the_place_of_names():
    keys, columns = data()
    groups = clhist.group_by(keys, GROUPS)
    found = groups.agg(x=(columns["x"], np.mean, np.nanstd, "max"))["x"]
    assert list(found) == ["mean", "std", "max"]
    check(found["std"], keys, columns["x"], "std", rtol=1e-6)
    assert list(groups.agg(x=(columns["x"], [np.mean, max]))["x"]) == ["mean", "max"]


@pytest.mark.parametrize("sizes", [[1] * 9, [2] * 9, [0, 1, 2, 3, 4, 5, 1000]])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint64])
def test_medians(sizes, dtype):
    rng = np.random.default_rng(sum(sizes))
    keys = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    special = {
        np.float64: [0.0, -0.0, np.inf, -np.inf, 5e-324, -1.5, np.finfo(float).max],
        np.int32: [-(2**31), 2**31 - 1],
    }
    values = rng.choice(np.array(special.get(dtype, [0, 2**63, 2**64 - 1]), dtype), len(keys))
    values[::2] = rng.integers(0, 50, len(values[::2])).astype(dtype)
    check(clhist.group_by(keys, len(sizes)).median(values), keys, values, "median", groups=len(sizes))


def test_many_groups():
    rng = np.random.default_rng(8)
    keys, n = rng.integers(0, 100_000, 50_000), rng.integers(-9, 9, 50_000).astype(np.int16)
    groups = clhist.group_by(keys, 100_000)
    found = groups.agg(n=(n, "sum", "median"))["n"]
    sums = np.bincount(keys, n, 100_000)
    np.testing.assert_array_equal(found["sum"], sums)
    assert np.isnan(found["median"]).sum() == (groups.size() == 0).sum()
    one = np.flatnonzero(np.bincount(keys, minlength=100_000) == 1)
    np.testing.assert_array_equal(found["median"][one], sums[one])


def test_sums_of_large_integers():
    x = np.array([2**62, 2**62, 2**62, -5], np.int64)
    found = clhist.group_by(np.array([0, 0, 0, 1])).agg(x=(x, "sum", "mean"))["x"]
    np.testing.assert_array_equal(found["sum"], np.array([(3 * 2**62) - 2**64, -5], object).astype(np.int64))
    np.testing.assert_array_equal(found["mean"], [2.0**62, -5])
    assert clhist.group_by(np.zeros(3, int)).sum(np.full(3, 200, np.uint8)).dtype == np.uint64


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(dtype):
    keys, columns = data()
    z = (columns["y"] + 1j * columns["n"]).astype(dtype)
    z[3] = complex(np.nan, 1)
    found = clhist.group_by(keys, GROUPS).agg(z=(z, OF_COMPLEX))["z"]
    for statistic in ("count", "sum", "mean"):
        check(found[statistic], keys, z.astype(np.complex128), statistic, rtol=1e-6 if dtype == np.complex64 else 1e-12)
    few = np.array([0, 0, 1, 4]), np.array([1 + 2j, 3 - 1j, np.nan, 1j], dtype)
    np.testing.assert_allclose(clhist.group_by(few[0], 5).prod(few[1]), [5 + 5j, 1, 1, 1, 1j], rtol=1e-6)
    with np.errstate(all="ignore"):
        assert np.isnan(clhist.group_by(few[0]).mean(few[1], skipna=False)[1])
    with pytest.raises(ValueError, match=r"x: expected statistics of complex.* among sum, .*got 'max'"):
        clhist.group_by(keys, GROUPS).max(z)


def test_weighted_mean():
    keys, columns = data()
    x, w = columns["x"], np.abs(columns["y"]).astype(np.float32)
    w[4] = np.nan
    found = clhist.group_by(keys, GROUPS).weighted_mean(x, w)
    kept = ~np.isnan(x) & ~np.isnan(w) & (keys >= 0) & (keys < GROUPS)
    with np.errstate(invalid="ignore"):
        sums = np.bincount(keys[kept], x[kept].astype(float) * w[kept], GROUPS)
        reference = sums / np.bincount(keys[kept], w[kept], GROUPS)
    np.testing.assert_allclose(found, reference.astype(np.float32), rtol=2e-7)
    assert found.dtype == np.float32
    with pytest.raises(TypeError, match="weights: expected real"):
        clhist.group_by(keys, GROUPS).weighted_mean(x, w * 1j)


def test_nothing():
    groups = clhist.group_by(np.array([], np.int32))
    assert groups.num_groups == 0
    assert groups.sum(np.array([])).shape == (0,)
    found = clhist.group_by(np.array([], np.int64), 3).agg(x=(np.array([]), "sum", "median", "argmin", "var"))["x"]
    np.testing.assert_array_equal(found["sum"], [0, 0, 0])
    np.testing.assert_array_equal(found["argmin"], [-1, -1, -1])
    assert np.isnan(found["median"]).all()
    assert np.isnan(found["var"]).all()


def test_several_dimensions_and_strides():
    rng = np.random.default_rng(4)
    keys, x = rng.integers(0, 4, (6, 8)), rng.normal(size=(6, 16))[:, ::2]
    found = clhist.group_by(keys).agg(x=(x, "mean", "argmax"))["x"]
    check(found["argmax"], keys.ravel(), x.ravel(), "argmax", groups=4)
    check(found["mean"], keys.ravel(), x.ravel(), "mean", groups=4)


@pytest.fixture
def no_kernels(any_profile):
    """None is kept from before, since kernels keep the plans of the profile that they were made with."""
    for kept in KERNELS:
        kept.cache_clear()
    yield
    for kept in KERNELS:
        kept.cache_clear()


@pytest.mark.usefixtures("no_kernels")
def test_device_arrays(queue: cl.CommandQueue):
    keys, columns = data()
    x = cl_array.to_device(queue, columns["x"])
    names = ("count", "mean", "std", "min", "argmax", "last", "median")
    found = clhist.group_by(cl_array.to_device(queue, keys), GROUPS).agg(x=(x, names))["x"]
    assert tuple(found) == names
    for statistic in names:
        assert isinstance(found[statistic], cl_array.Array)
        check(found[statistic].get(), keys, columns["x"], statistic, rtol=3e-7)
    assert clhist.group_by(cl_array.to_device(queue, np.array([3, -1, 0], np.int32))).keys.tolist() == [-1, 0, 3]


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("on_device", [False, True])
def test_reproducible(on_device, queue: cl.CommandQueue):
    keys, columns = data()
    columns["wide"] = (columns["n"] * 10.0 ** (columns["y"] * 4)).astype(np.float64)  # orders of magnitude that cancel
    order = np.random.default_rng(3).permutation(len(keys))
    bits = []
    for places in (np.arange(len(keys)), order):
        given = {name: np.ascontiguousarray(each[places]) for name, each in columns.items()} | {"keys": keys[places]}
        if on_device:
            given = {name: cl_array.to_device(queue, each) for name, each in given.items()}
        groups = clhist.group_by(given.pop("keys"), GROUPS)
        names = ("sum", "mean", "var", "std", "count", "max")
        found = groups.agg(**{name: (each, *names) for name, each in given.items()}, reproducible=True)
        found["weighted"] = {"mean": groups.weighted_mean(given["wide"], given["y"] * given["y"], reproducible=True)}
        results = [result.get() if on_device else result for each in found.values() for result in each.values()]
        bits.append([result.tobytes() for result in results])
        for name, values in columns.items():
            for statistic in names:
                result = found[name][statistic].get() if on_device else found[name][statistic]
                wanted = expected(keys, values, statistic)
                assert result.shape == (GROUPS,)
                rtol, atol = 3e-7 if name == "x" else 1e-11, 1e-15 * np.nanmax(np.abs(wanted), initial=1)
                np.testing.assert_allclose(result, wanted.astype(result.dtype), rtol, atol, err_msg=statistic)
    assert bits[0] == bits[1]


def test_what_is_not_reproducible():
    groups = clhist.group_by(np.array([0, 1, 1]))
    with pytest.raises(TypeError, match="reproducible: expected sums, means and variances of real numbers, got a prod"):
        groups.agg(x=(np.ones(3), "prod"), reproducible=True)
    with pytest.raises(TypeError, match=r"reproducible: .*got complex numbers"):
        groups.mean(np.ones(3, complex), reproducible=True)
    assert groups.agg(x=(np.arange(3), "prod", "sum"), reproducible=True)["x"]["prod"].tolist() == [0, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.complex64])
def test_no_double_precision_where_the_device_has_none(dtype):
    kind = np.dtype(dtype).kind
    names = tuple(name for name in (OF_COMPLEX if kind == "c" else STATISTICS) if not TABLE[name].is_apart)
    numbers = Numbers.of(1000, has_fp64=False)
    result = np.dtype(np.float32 if kind == "i" else dtype)
    column = Column(np.dtype(dtype), names, True, 1, result, np.dtype(np.int64) if kind == "i" else result)
    outputs = [*outputs_of(column.first, numbers), *([spread_of(column, numbers)] if kind != "c" else [])]
    assert {name for output in outputs for name in output.statistics} - {""} == set(names)
    for output in outputs:
        operator = output.operator
        assert not operator.needs_fp64
        assert "double" not in f"{output.value} {operator.lift} {operator.finish} {operator.preamble}"


def test_pandas():
    keys, columns = data()
    frame = pandas.DataFrame({"key": np.where((keys < 0) | (keys >= GROUPS), -1, keys), **columns})
    frame = frame[frame["key"] >= 0]
    names = ["count", "sum", "mean", "std", "var", "min", "max", "first", "last", "median"]
    reference = frame.groupby("key")["y"].agg(names)
    found = clhist.group_by(frame["key"]).agg(y=(frame["y"], names), ddof=1)["y"]
    ours = pandas.DataFrame(found, index=sorted(set(frame["key"])))
    pandas.testing.assert_frame_equal(ours, reference, check_names=False, check_index_type=False)


_WRONG = {
    "shape": ({"b": (np.ones(5), "sum")}, r"^b: expected shape \(100,\)"),
    "shape, any": ({"b": (np.ones(5), "size")}, r"^b: expected shape \(100,\)"),
    "argument": ({"b": (np.ones(100), "quantile")}, r"^b: expected statistics without arguments"),
    "masked, argument": ({"b": (np.ma.ones(100), "quantile")}, r"^b: expected statistics without arguments"),
    "complex": ({"b": (np.ones(100, complex), "min")}, r"^b: expected statistics of complex128"),
    "objects": ({"b": (np.array([object()] * 100), "sum")}, r"^b: OpenCL has no type for object"),
    "dates": ({"b": (np.zeros(100, "M8[s]"), "prod")}, r"^b: expected statistics of datetime64"),
    "dtype of dates": ({"b": (np.zeros(100, "M8[s]"), "median"), "dtype": "f4"}, r"^dtype: expected none for [ab]"),
    "ddof": ({"ddof": "x"}, r"^ddof: expected an integer"),
    "reproducible": ({"b": (np.ones(100, complex), "mean"), "reproducible": True}, r"^reproducible: "),
}


@pytest.mark.parametrize("first", ["plain", "masked", "dates"])
@pytest.mark.parametrize("name", _WRONG)
def test_all_columns_are_checked_before_anything_is_enqueued(name, first, queue, monkeypatch):
    more, message = _WRONG[name]
    columns = {"plain": np.ones(100), "masked": np.ma.array(np.ones(100), mask=np.arange(100) % 3 == 0)}
    columns["dates"] = np.arange(100).astype("M8[D]")
    groups = clhist.group_by(np.arange(100) % 7, num_groups=7, queue=queue)
    launched, enqueue = [], Kernel.enqueue
    monkeypatch.setattr(Kernel, "enqueue", lambda *args: launched.append(1) or enqueue(*args))
    with pytest.raises((TypeError, ValueError), match=message):
        groups.agg(a=(columns[first], "mean" if first != "dates" else "median"), **more)
    assert not launched
