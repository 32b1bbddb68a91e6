"""Statistics of groups beyond moments and extremes, and a value for each element, against pandas."""

from __future__ import annotations

import cuda_fake
import numpy as np
import pandas
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.statistics import selection

pytestmark = pytest.mark.usefixtures("without_optimizer")

GROUPS = 20
SPREADS = ("sem", "skew", "kurt")
NAMES = (*SPREADS, "size", "nunique", "mode", "count", "max")


def data(size, dtype):
    rng = np.random.default_rng(size)
    keys = rng.integers(-1, GROUPS - 1, size)  # the last group is empty
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        return keys, rng.integers(0, 7, size).astype(dtype)
    x = (rng.normal(size=size) * 3).round(1).astype(dtype)
    x[::5], x[keys == 3] = np.nan, 2.5
    return keys, x


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i1", "u8", "i8", ">i4"])
@pytest.mark.parametrize("skipna", [True, False])
def test_different_values_of_many_groups(dtype, skipna, monkeypatch, queue):
    """Groups that are sorted on CPUs: of values alike, in order, near the largest."""
    monkeypatch.setattr(selection, "_MANY_GROUPS", 0)
    rng, n = np.random.default_rng(1), 300
    parts = [np.arange(n), np.arange(n)[::-1], np.zeros(n), rng.integers(0, 9, n), rng.permutation(n)]
    parts += [np.arange(n) % 2, rng.integers(0, 40, 24), rng.integers(0, 40, 25), [5], []]
    parts = [np.asarray(part).astype(dtype) for part in parts]
    if parts[0].dtype.kind == "f":
        parts += [np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, 5e-324] * 9, dtype), np.full(n, np.nan, dtype)]
    else:
        limits = np.iinfo(dtype)
        parts += [np.full(n, limits.max, dtype), np.array([limits.min, limits.max, 0] * 9, dtype)]
    keys = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    values, order = np.concatenate(parts), rng.permutation(keys.size)
    expected = [np.unique(part[part == part] if skipna else part).size for part in parts]
    assert clhist.group_by(keys, len(parts)).nunique(values, skipna=skipna).tolist() == expected
    values = values.astype(values.dtype.newbyteorder("="))
    keys, values = (cl_array.to_device(queue, each[order]) for each in (keys, values))
    found = clhist.group_by(keys, len(parts)).nunique(values, skipna=skipna)
    assert found.get().tolist() == expected


@pytest.mark.parametrize(("dtype", "result"), [("f4", None), ("f8", "f4")])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 3e38])
def test_spreads_of_any_scale(scale, dtype, result, queue):
    """Deviations of float32 exceed its range; those of float64 are not rounded to a narrower result one by one."""
    rng = np.random.default_rng(0)
    keys, x = rng.integers(0, GROUPS, 5000), (np.where(rng.random(5000) < 0.2, scale, -scale)).astype(dtype)
    expected = pandas.Series(x.astype(np.float64) / scale).groupby(keys).agg(["std", *SPREADS[1:], "sem"])
    groups = clhist.group_by(cl_array.to_device(queue, keys), GROUPS)
    statistics = groups.agg(x=(cl_array.to_device(queue, x), *expected), ddof=1, dtype=result)["x"]
    for name in expected:
        unit = scale if name in ("std", "sem") else 1
        assert statistics[name].dtype == np.float32
        np.testing.assert_allclose(statistics[name].get() / unit, expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("size", [0, 1, 50, 1000, 60_000])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u8", "?"])
def test_as_pandas_has_them(dtype, size, queue):
    keys, x = data(size, dtype)
    found = clhist.group_by(keys, GROUPS).agg(x=(x, *NAMES), ddof=1)["x"]
    there = keys >= 0
    groups = pandas.Series(x[there]).groupby(keys[there])
    floats = pandas.Series(x[there].astype(float)).groupby(keys[there])
    rtol = 1e-4 if dtype == "f4" else 1e-9
    is_same = floats.nunique().reindex(range(GROUPS)) <= 1
    for name in SPREADS:
        expected = getattr(floats, name)().reindex(range(GROUPS))
        if name != "sem":  # of which pandas before 3 has 0
            expected[is_same] = np.nan
        np.testing.assert_allclose(found[name], expected, rtol=rtol, atol=rtol, err_msg=name)
    for name in ("size", "nunique", "count"):
        assert found[name].dtype == np.int64
        np.testing.assert_array_equal(found[name], getattr(groups, name)().reindex(range(GROUPS)).fillna(0), name)
    modes = {key: part.mode() for key, part in groups}
    expected = [modes[g].min() if g in modes and len(modes[g]) else np.nan for g in range(GROUPS)]
    assert found["mode"].dtype == x.dtype
    np.testing.assert_array_equal(found["mode"], expected if x.dtype.kind == "f" else np.nan_to_num(expected))
    nunique = clhist.group_by(keys, GROUPS).nunique(x, skipna=False)
    np.testing.assert_array_equal(nunique, groups.nunique(dropna=False).reindex(range(GROUPS)).fillna(0))
    if dtype != "?":
        on_device = clhist.group_by(cl_array.to_device(queue, keys), GROUPS)
        again = on_device.agg(x=(cl_array.to_device(queue, x), *NAMES), ddof=1)["x"]
        for name in NAMES:
            assert isinstance(again[name], cl_array.Array)
            np.testing.assert_allclose(again[name].get(), found[name], rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("size", [0, 1, 50, 60_000])
def test_a_value_for_each_element(size, queue):
    keys, x = data(size, "f8")
    groups = clhist.group_by(keys, GROUPS)
    of = pandas.Series(x).groupby(pandas.Series(np.where(keys < 0, np.nan, keys), dtype=float))
    np.testing.assert_allclose(groups.transform(x, "mean"), of.transform("mean"), rtol=1e-12)
    counts = np.where(keys >= 0, groups.count(x)[keys] if size else 0, 0)
    np.testing.assert_array_equal(groups.transform(x, "count"), counts)
    places = np.where(keys >= 0, pandas.Series(keys).groupby(keys).cumcount(), -1) if size else keys
    np.testing.assert_array_equal(groups.cumcount(), places)
    on_device = clhist.group_by(cl_array.to_device(queue, keys), GROUPS)
    given = cl_array.to_device(queue, x)
    for name in ("max", "count", "any"):
        np.testing.assert_array_equal(on_device.transform(given, name).get(), groups.transform(x, name))
    np.testing.assert_array_equal(on_device.cumcount().get(), places)


def test_keys_of_their_own_and_two_dimensions():
    keys = np.array([[10**12, 5, 5], [5, -3, 10**12]])
    x = np.array([[1.0, 2, 2], [4, 5, 1]])
    groups = clhist.group_by(keys)
    assert groups.nunique(x).tolist() == [1, 2, 1]
    assert groups.mode(x).tolist() == [5, 2, 1]
    assert groups.cumcount().tolist() == [[0, 0, 1], [2, 0, 1]]
    assert groups.transform(x, "sum").tolist() == [[2, 8, 8], [8, 5, 2]]


def test_different_values_of_any_type():
    groups = clhist.group_by([0, 0, 0, 1, 1])
    texts = np.array(["a", "b", "a", None, "c"], object)
    found = groups.agg(
        s=(texts, "nunique", "size"), d=(np.array(["NaT", "2020", "2020", "2021", "2022"], "M8[Y]"), "nunique")
    )
    assert found["s"] == {"nunique": pytest.approx([2, 1]), "size": pytest.approx([3, 2])}
    assert found["d"]["nunique"].tolist() == [1, 2]
    assert groups.nunique(texts, skipna=False).tolist() == [2, 2]
    assert groups.nunique(pandas.Series(texts, dtype="category")).tolist() == [2, 1]


def test_values_that_are_all_the_same():
    x = np.full(1000, 0.1)
    found = clhist.group_by(np.zeros(1000, int)).agg(x=(x, "skew", "kurt", "sem"))["x"]
    assert np.isnan([found["skew"][0], found["kurt"][0]]).all()
    assert found["sem"][0] == pytest.approx(0, abs=1e-12)


def test_wrong_arguments():
    groups = clhist.group_by([0, 1, 0])
    with pytest.raises(ValueError, match=r"^x: expected shape \(3,\) as of the keys, got \(2,\)"):
        groups.nunique([1, 2])
    with pytest.raises(TypeError, match=r"^reproducible: .*got 'skew'$"):
        groups.agg(x=([1.0, 2, 3], "skew"), reproducible=True)
    sem = groups.sem([1.0, 2, 3], ddof=1, reproducible=True)
    np.testing.assert_allclose(sem, [1, np.nan])


@pytest.mark.filterwarnings("ignore:.*goes through the host")
@pytest.mark.parametrize("name", [*NAMES, "transform", "cumcount"])
def test_arrays_of_cuda(name, monkeypatch):
    _, cupy = cuda_fake.install(monkeypatch)
    keys, x = data(70_000, "f8")
    results = []
    for make in (cupy.asarray, np.asarray):
        groups, values = clhist.group_by(make(keys), GROUPS), make(x)
        if name in ("transform", "cumcount"):
            results.append(groups.cumcount() if name == "cumcount" else groups.transform(values, "mean"))
        else:
            results.append(groups.agg(x=(values, name, "count"))["x"][name])
    assert type(results[0]).__module__ == "cuda_fake"
    np.testing.assert_allclose(results[0].get(), results[1], rtol=1e-9)
