"""Running sums and the like, ranks and places of elements in their groups, against pandas."""

from __future__ import annotations

import math

import cuda_fake
import numpy as np
import pandas
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.runtime import digit_sort, elementwise_kernel, scan
from clhist.grouped import running_kernels

GROUPS = 20
RUNNING = ("cumsum", "cumprod", "cummin", "cummax")
METHODS = ("average", "min", "max", "dense", "first")


def data(size, dtype):
    rng = np.random.default_rng(size)
    keys = rng.integers(-1, GROUPS - 1, size)  # the last group is empty
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        return keys, rng.integers(0, 4, size).astype(dtype)
    x = (1 + rng.normal(size=size) / 1000).round(3).astype(dtype)
    x[::5], x[keys == 3] = np.nan, 2.5
    x[1:2], x[2:3] = 0.0, -0.0
    return keys, x


def of_pandas(keys, x):
    return pandas.Series(x).groupby(np.where(keys < 0, np.nan, keys))


@pytest.mark.parametrize("size", [0, 1, 50, 1000, 60_000])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u8", "i1", "?"])
def test_as_pandas_has_them(dtype, size, queue):
    keys, x = data(size, dtype)
    inside, groups = keys >= 0, clhist.group_by(keys, GROUPS)
    on_device, given = clhist.group_by(cl_array.to_device(queue, keys), GROUPS), cl_array.to_device(queue, x)
    theirs = of_pandas(keys, x.astype("f8" if dtype == "f4" else "i8" if dtype == "?" else dtype))
    rtol = 1e-5 if dtype == "f4" else 1e-9
    for name in RUNNING:
        found = getattr(groups, name)(x)
        with np.errstate(over="ignore"):
            expected = getattr(theirs, name)().to_numpy()[inside].astype(found.dtype)
        np.testing.assert_allclose(found[inside], expected, rtol=rtol, err_msg=name)
        outside = found[~inside]
        assert (np.isnan(outside) if outside.dtype.kind == "f" else outside == 0).all()
        np.testing.assert_array_equal(groups.transform(x, name), found)
        if name in ("cummin", "cummax"):
            assert found.dtype == x.dtype
        if dtype != "?":
            np.testing.assert_allclose(getattr(on_device, name)(given).get(), found, rtol=rtol)
    for method in METHODS:
        for options in ({}, {"ascending": False}, {"pct": True}):
            found = groups.rank(x, method, **options)
            np.testing.assert_allclose(found, theirs.rank(method, **options), rtol=1e-12, err_msg=f"{method} {options}")
    if dtype != "?":
        np.testing.assert_array_equal(on_device.rank(given).get(), groups.rank(x))
    for ascending in (True, False):
        places = np.where(inside, theirs.cumcount(ascending=ascending), -1) if size else keys
        np.testing.assert_array_equal(groups.cumcount(ascending=ascending), places)
        np.testing.assert_array_equal(on_device.cumcount(ascending=ascending).get(), places)
    parts = dict(list(pandas.Series(x).groupby(keys)))
    for n in (0, 1, 7, -1, -2):
        expected = [
            parts[g].to_numpy()[n] if g in parts and -len(parts[g]) <= n < len(parts[g])
            else np.nan if x.dtype.kind == "f" else 0
            for g in range(GROUPS)
        ]  # fmt: skip
        found = groups.nth(x, n)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i1", "?"])
@pytest.mark.parametrize("name", RUNNING)
def test_by_a_scan_of_sorted_elements(name, dtype, queue, monkeypatch):
    keys, x = data(3000, dtype)
    groups = clhist.group_by(keys, GROUPS)
    expected = getattr(groups, name)(x)
    monkeypatch.setattr(running_kernels, "device_kind", lambda device: "gpu")
    np.testing.assert_allclose(getattr(groups, name)(x), expected, rtol=1e-5 if dtype == "f4" else 1e-12)


def units_from_exact(found, keys, x):
    """Return the largest error of running sums, in units in the last place of the sum of magnitudes."""
    worst, order = 0.0, np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order])) + 1
    for values, sums in zip(np.split(x[order], begins), np.split(found[order], begins), strict=True):
        for end in {1, 2, len(values) // 3 + 1, len(values)}:
            error = math.fsum([*values[:end], -sums[min(end, len(values)) - 1]])
            worst = max(worst, abs(error) / np.spacing(np.abs(values[:end]).sum()))
    return worst


@pytest.mark.parametrize("groups", [1, 3, 700])
@pytest.mark.parametrize("size", [4000, 300_000])
def test_running_sums_are_nearly_exact(groups, size, monkeypatch):
    rng = np.random.default_rng(groups)
    keys = rng.integers(0, groups, size)
    for x in (np.full(size, 0.1), rng.random(size), rng.normal(size=size), 10.0 ** rng.integers(-9, 9, size)):
        grouped = clhist.group_by(keys, groups)
        assert units_from_exact(grouped.cumsum(x), keys, x) <= 1
        if size > 10_000:
            with monkeypatch.context() as patch:
                patch.setattr(running_kernels, "device_kind", lambda device: "gpu")
                assert units_from_exact(grouped.cumsum(x), keys, x) <= 1


@pytest.mark.parametrize("size", [20, 60_000])
def test_running_sums_with_infinities(size):
    x = np.ones(size)
    x[size // 4], x[size // 2] = np.inf, np.nan
    x[size - 2] = -np.inf
    found = clhist.group_by(np.zeros(size, int)).cumsum(x)
    with np.errstate(invalid="ignore"):
        expected = np.where(np.isnan(x), np.nan, np.cumsum(np.where(np.isnan(x), 0, x)))
    np.testing.assert_array_equal(found, expected)


def test_with_the_work_groups_of_gpus(queue, monkeypatch):
    keys, x = data(3000, "f8")
    groups = clhist.group_by(keys, GROUPS)
    calls = {
        "places": lambda: groups.cumcount(),
        "ranks": lambda: groups.rank(x, "dense", pct=True),
        "second": lambda: groups.nth(x, 1),
        "sums": lambda: groups.cumsum(x),
        "descending": lambda: groups.rank(x, ascending=False),
    }
    expected = {name: call() for name, call in calls.items()}
    for module in (running_kernels, elementwise_kernel, digit_sort, scan):
        monkeypatch.setattr(module, "device_kind", lambda device: "gpu")
    clhist.clear_caches()  # kernels of CPUs are compiled for one work-item
    for name, call in calls.items():
        np.testing.assert_allclose(call(), expected[name], rtol=1e-12, err_msg=name)
    clhist.clear_caches()


@pytest.mark.parametrize("name", RUNNING)
def test_nan_stays_where_it_is_not_skipped(name):
    keys, x = data(1000, "f8")
    found = getattr(clhist.group_by(keys, GROUPS), name)(x, skipna=False)
    expected = getattr(of_pandas(keys, x), name)(skipna=False)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_dates():
    keys, _ = data(1000, "i4")
    dates = np.datetime64("2020-01-01", "s") + np.random.default_rng(1).integers(0, 90, 1000)
    dates[::7] = "NaT"
    seconds = np.where(np.isnat(dates), np.nan, dates.view("i8"))  # pandas has other dates of the keys that are NaN
    groups, theirs = clhist.group_by(keys, GROUPS), of_pandas(keys, seconds)
    for name in ("cummin", "cummax"):
        found = getattr(groups, name)(dates)
        assert found.dtype == dates.dtype
        expected = getattr(theirs, name)()
        np.testing.assert_array_equal(np.where(np.isnat(found), np.nan, found.view("i8")), expected)
    np.testing.assert_array_equal(groups.rank(dates), theirs.rank())
    np.testing.assert_array_equal(groups.rank(dates, ascending=False), theirs.rank(ascending=False))
    assert groups.nth(dates, 1)[0] == dates[np.flatnonzero(keys == 0)[1]]
    assert np.isnat(groups.nth(dates, 1)[-1])
    with pytest.raises(ValueError, match=r"^x: expected statistics of datetime64\[s\]"):
        groups.cumsum(dates)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [([5], [1]), ([2**40] * 4, [1, 2, 3, 4]), ([3 << 50, 1 << 50, 2 << 50, 1 << 50], [1, 1, 1, 2]), ([-1, -1], [1, 2])],
)
def test_any_keys(keys, expected):
    groups = clhist.group_by(keys)
    assert groups.cumsum(np.ones(len(keys), int)).tolist() == expected
    assert groups.rank(np.arange(len(keys))).tolist() == expected


def test_two_dimensions_and_more_groups_than_elements():
    keys, x = np.array([[0, 1, 0], [1, 70_000, 0]]), np.array([[1, 2, 3], [4, 5, 6]])
    groups = clhist.group_by(keys, 100_000)
    assert groups.cumsum(x).tolist() == [[1, 2, 4], [6, 5, 10]]
    assert groups.cumcount().tolist() == [[0, 0, 1], [1, 0, 2]]
    assert groups.nth(x, 1)[:2].tolist() == [3, 4]


def test_wrong_arguments():
    groups = clhist.group_by([0, 1, 0])
    with pytest.raises(ValueError, match=r"^method: expected one of average, .*, got 'mean'"):
        groups.rank([1, 2, 3], "mean")
    with pytest.raises(TypeError, match=r"^pct: expected a bool, got 1$"):
        groups.rank([1, 2, 3], pct=1)
    with pytest.raises(TypeError, match=r"^ascending: expected a bool, got 'x'$"):
        groups.cumcount(ascending="x")
    with pytest.raises(TypeError, match=r"^n: expected an integer, got 1.5$"):
        groups.nth([1, 2, 3], 1.5)
    with pytest.raises(TypeError, match=r"^x: expected real numbers, which have an order, got complex128$"):
        groups.cumsum([1j, 2, 3])
    with pytest.raises(ValueError, match=r"^x: expected shape \(3,\) as of the keys, got \(2,\)"):
        groups.rank([1, 2])


@pytest.mark.filterwarnings("ignore:.*goes through the host")
@pytest.mark.parametrize("name", [*RUNNING, "rank", "nth"])
def test_arrays_of_cuda(name, monkeypatch):
    _, cupy = cuda_fake.install(monkeypatch)
    keys, x = data(70_000, "f8")
    own = [1] if name == "nth" else []
    results = [getattr(clhist.group_by(make(keys), GROUPS), name)(make(x), *own) for make in (cupy.asarray, np.asarray)]
    assert type(results[0]).__module__ == "cuda_fake"
    np.testing.assert_allclose(results[0].get(), results[1], rtol=1e-9)


def test_several_quantiles(queue):
    keys, x = data(1000, "f8")
    groups = clhist.group_by(keys, GROUPS)
    found = groups.quantile(x, [0.1, 0.5])
    np.testing.assert_array_equal(found, [groups.quantile(x, 0.1), groups.quantile(x, 0.5)])
    on_device = clhist.group_by(cl_array.to_device(queue, keys), GROUPS)
    np.testing.assert_array_equal(on_device.quantile(cl_array.to_device(queue, x), (0.1, 0.5)).get(), found)
    assert groups.quantile(x, []).shape == (0, GROUPS)
    with pytest.raises(ValueError, match=r"^q: expected a number from 0 to 1, got 2.0$"):
        groups.quantile(x, [0.1, 2])


@pytest.mark.parametrize(
    ("given", "hint"),
    [("k", r"column: group_by\(df\['k'\]\)"), (["k", "m"], r"columns: group_by\(df\[\['k', 'm'\]\]\)")],
)
def test_names_of_columns(given, hint):
    frame = pandas.DataFrame({"k": [1, 1, 2], "m": [1, 1, 2]})
    with pytest.raises(TypeError, match=f"^num_groups: expected a number, got .*; pass the {hint}$"):
        clhist.group_by(frame.to_numpy(), given)
    assert clhist.group_by(frame[given]).sum([1, 2, 3]).tolist() == [3, 3]


@pytest.mark.parametrize("n", [2**31, 2**63 - 1, 2**70, -(2**63), -(2**70)])
def test_places_beyond_all_groups(n):
    np.testing.assert_array_equal(clhist.group_by([0, 1, 0]).nth([1.0, 2.0, 3.0], n), [np.nan, np.nan])
