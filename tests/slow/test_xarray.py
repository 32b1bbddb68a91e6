"""Arrays of xarray in every public function: as NumPy's, or as Dask's where they are chunked."""

from __future__ import annotations

from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray

import clhist
from clhist import hist, ndimage, stats
from clhist.front import is_lazy
from clhist.zonal import zonal_stats

boost_histogram = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")

N = 5000
RNG = np.random.default_rng(1)
KEYS, SHORT = RNG.integers(0, 9, N), RNG.integers(0, 9, N).astype(np.int32)
X, Y, W = RNG.random(N), RNG.normal(size=N), RNG.random(N).astype(np.float32)
PICKED = RNG.random(N) > 0.5

# A coordinate is an attribute of a DataArray, too: no name may be mistaken for the content of other classes.
NAMES = ("codes", "categories", "cat", "mask", "columns", "queue", "dask", "factorize")


def data_array(array):
    dims = ("n", "d")[: array.ndim]
    coords = {name: ("n", np.arange(len(array))) for name in NAMES}
    return xarray.DataArray(array, dims=dims, coords=coords, attrs={"units": "m"}, name="x")


def variable(array):
    return xarray.Variable(("n", "d")[: array.ndim], array)


def chunked(array):
    return data_array(array).chunk({"n": 700})


def filled(x, w):
    h = boost_histogram.Histogram(boost_histogram.axis.Regular(9, 0, 1), storage=boost_histogram.storage.Weight())
    return hist.fill(h, x, weight=w).variances(flow=True)


def filled_many(x, w):
    h = boost_histogram.Histogram(boost_histogram.axis.Regular(9, 0, 1), storage=boost_histogram.storage.Weight())
    hist.fill_many([(h, (x,), {"weight": w}), (h, (x,), {"weight": w, "where": w > 0.5})])
    return h.variances(flow=True)


def streamed(kind, i, x):
    stream = kind("add", 9, dtype=np.float64)
    stream.add(i, x)
    return stream.result()


EVEN = {"bins": 7, "range": (0, 1)}
CALLS = {
    "bincount": (clhist.bincount, KEYS),
    "bincount weights": (clhist.bincount, KEYS, W),
    "reduce_by_index": (partial(clhist.reduce_by_index, 9, "sum"), KEYS, X),
    "reduce_by_index into": (lambda d, i, x: clhist.reduce_by_index(d, np.maximum, i, x), np.zeros(9), KEYS, X),
    "histogram": (partial(clhist.histogram, **EVEN), X),
    "histogram weights": (lambda x, w, m: clhist.histogram(x, **EVEN, weights=w, where=m), X, W, PICKED),
    "histogram small": (partial(clhist.histogram, **EVEN), X[:20]),
    "histogram rule": (partial(clhist.histogram, bins="auto"), X),
    "histogram edges": (lambda x, e: clhist.histogram(x, e), X, np.array([0.1, 0.4, 0.8])),
    "histogram axis": (partial(clhist.histogram, bins=3, axis=1), X.reshape(-1, 2)),
    "histogram2d": (partial(clhist.histogram2d, bins=5), X, Y),
    "histogramdd columns": (lambda x, y, w: clhist.histogramdd([x, y], 5, weights=w), X, Y, W),
    "histogramdd rows": (partial(clhist.histogramdd, bins=5), np.stack([X, Y], -1)),
    "unique": (partial(clhist.unique, return_inverse=True), KEYS),
    "factorize": (clhist.factorize, KEYS),
    "histogram_bin_edges": (partial(clhist.histogram_bin_edges, bins="fd"), X),
    "digitize": (lambda x: clhist.digitize(x, [0.2, 0.5]), X),
    "group_by": (lambda k, x: clhist.group_by(k).agg(x=(x, "mean", "max"))["x"], KEYS, X),
    "group_by floats": (lambda k, x: clhist.group_by(k).sum(x), np.round(X, 1), X),
    "group_by median": (lambda k, x: clhist.group_by(k, 9).median(x), SHORT, X),
    "binned_statistic": (lambda x, v: stats.binned_statistic(x, v, "mean", 5, (0, 1)), X, Y),
    "binned_statistic_2d": (lambda x, y, v: stats.binned_statistic_2d(x, y, v, "sum", 5), X, Y, W),
    "binned_statistic_dd": (lambda s, v: stats.binned_statistic_dd(s, v, "max", 5), np.stack([X, Y], -1), W),
    "ndimage mean": (lambda x, k: ndimage.mean(x, k, [1, 2]), X, KEYS),
    "ndimage histogram": (lambda x, k: ndimage.histogram(x, 0, 1, 3, k, [1, 2]), X, KEYS),
    "ndimage extrema": (lambda x, k: ndimage.extrema(x, k), X, KEYS),
    "hist.fill": (filled, X, W),
    "hist.fill_many": (filled_many, X, W),
    "Accumulator": (partial(streamed, clhist.Accumulator), KEYS, X),
    "MultiAccumulator": (partial(streamed, clhist.MultiAccumulator), KEYS, X),
    "Spec": (lambda i, x: clhist.Spec("sum", 9, dtype=np.float64).partial(i, x).result(), KEYS, X),
}


def arrays_in(value):
    """Yield the arrays in a result, of NumPy."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from arrays_in(each)
    else:
        assert not isinstance(value, da.Array)
        yield np.asarray(value)


def assert_equal(found, expected):
    found, expected = list(arrays_in(found)), list(arrays_in(expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        if one.dtype == object:
            assert all(np.array_equal(a, b) for a, b in zip(one.ravel(), other.ravel(), strict=True))
        else:
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("form", [data_array, variable])
@pytest.mark.parametrize("name", CALLS)
def test_as_arrays_of_numpy(name, form):
    call, *arrays = CALLS[name]
    assert_equal(call(*map(form, arrays)), call(*arrays))


def test_every_public_function_is_called():
    functions = {name for name in clhist.__all__ if callable(getattr(clhist, name)) and name.islower()}
    others = {
        "check_operator",
        "clear_caches",
        "default_queue",
        "device_profile",
        "free_scratch",
        "merge",
        "named_profile",
        "plan",
        "plan_sweeps",
        *("crosstab", "cut", "date_bin", "date_part", "qcut", "quantile", "value_counts"),  # of tables
    }
    assert functions - others == {name for name in functions if any(name == each.split()[0] for each in CALLS)}


@pytest.mark.parametrize(
    "name",
    ["bincount", "reduce_by_index", "histogram", "histogram2d", "histogramdd columns", "histogramdd rows", "group_by"],
)
def test_chunked_arrays_are_dask_collections(name):
    assert is_lazy(chunked(X))
    assert not is_lazy(data_array(X))
    assert not is_lazy([data_array(X)])
    call, *arrays = CALLS[name]
    if name == "group_by":
        call = lambda k, x: clhist.group_by(k, 9).agg(x=(x, "mean", "max"))["x"]  # noqa: E731
    found, expected = call(*map(chunked, arrays)), call(*arrays)
    found = found.values() if isinstance(found, dict) else found if isinstance(found, tuple) else (found,)
    assert all(isinstance(each, da.Array) for each in list(found)[:1])
    assert_equal(da.compute(*found), tuple(expected.values()) if isinstance(expected, dict) else expected)


def test_functions_of_clhist_dask():
    import clhist.dask

    found = clhist.dask.histogram(chunked(X), 7, (0, 1), weights=chunked(W))[0].compute()
    np.testing.assert_allclose(found, np.histogram(X, 7, (0, 1), weights=W)[0], rtol=1e-6)
    rows = xarray.DataArray(np.stack([X, Y], -1), dims=("n", "d")).chunk({"n": 700})
    found = clhist.dask.histogramdd(rows, 5, weights=chunked(W))[0].compute()
    np.testing.assert_allclose(found, np.histogramdd(np.stack([X, Y], -1), 5, weights=W)[0], rtol=1e-6)
    spec = clhist.Spec("sum", 9, dtype=np.float64)
    found = clhist.dask.reduce(spec, chunked(KEYS), chunked(X)).compute()
    np.testing.assert_allclose(found, np.bincount(KEYS, X, 9), rtol=1e-12)


def test_options_are_not_dropped():
    with pytest.raises(TypeError, match=r"^axis: expected none for Dask collections, got 'n'$"):
        clhist.histogram(chunked(X), 3, axis="n")
    for call in (clhist.histogram, clhist.bincount):
        with pytest.raises(TypeError, match=r"^devices: expected none for Dask collections, got 'all'$"):
            call(chunked(KEYS), devices="all")
    with pytest.raises(TypeError, match=r"^devices: expected none for Dask collections, got 'all'$"):
        clhist.reduce_by_index(9, "sum", chunked(KEYS), chunked(X), devices="all")


# What keeps dimensions.

CUBE = xarray.DataArray(
    RNG.random((4, 5, 600)),
    dims=("t", "y", "x"),
    coords={"t": [10, 20, 30, 40], "y": np.arange(5.0), "label": ("t", list("abcd")), "at": 7},
    attrs={"units": "K"},
    name="temperature",
)


@pytest.mark.parametrize("keep", [True, False])
def test_digitize_keeps_what_apply_ufunc_keeps(keep):
    edges = [0.2, 0.5]
    with xarray.set_options(keep_attrs=keep):
        found = clhist.digitize(CUBE, edges)
        expected = xarray.apply_ufunc(np.digitize, CUBE, edges)
        xarray.testing.assert_identical(found, expected)
        assert bool(found.attrs) == keep
        lazy = clhist.digitize(CUBE.chunk({"t": 2}), edges)
        assert is_lazy(lazy)
        assert lazy.dtype == np.intp
        xarray.testing.assert_identical(lazy.compute(), expected)
    assert isinstance(clhist.digitize(CUBE.variable, edges), xarray.Variable)
    assert clhist.digitize(CUBE[0, 0, 0], edges).shape == ()


@pytest.mark.parametrize("axis", ["x", "t", ["x"], ("y", "t"), ["t", "y", "x"]])
def test_a_histogram_along_names(axis):
    names = [axis] if isinstance(axis, str) else list(axis)
    found, edges = clhist.histogram(CUBE, 6, (0, 1), axis=axis)
    rest = [name for name in CUBE.dims if name not in names]
    assert found.dims == (*rest, "temperature_bin")
    assert found.name == "histogram_temperature"
    assert found.dtype == np.intp
    assert edges.tolist() == np.linspace(0, 1, 7).tolist()
    np.testing.assert_allclose(found["temperature_bin"], (edges[1:] + edges[:-1]) / 2, rtol=1e-15)
    kept = {name for name, each in CUBE.coords.items() if not set(each.dims) & set(names)}
    assert set(found.coords) == kept | {"temperature_bin"}
    rows = CUBE.transpose(*rest, *names).values.reshape(*(CUBE.sizes[name] for name in rest), -1)
    np.testing.assert_array_equal(found, np.apply_along_axis(lambda row: np.histogram(row, 6, (0, 1))[0], -1, rows))


def test_weights_are_aligned_by_name():
    area = xarray.DataArray(np.arange(5.0), dims="y", coords={"y": CUBE.y})
    cloudy = (CUBE.transpose("x", "t", "y") > 0.3).drop_vars("label")
    found, edges = clhist.histogram(CUBE, 6, axis=("y", "x"), weights=area, where=cloudy, density=True)
    for t in CUBE.t:
        one = CUBE.sel(t=t).values
        weights, picked = np.broadcast_to(area.values[:, None], one.shape), cloudy.sel(t=t).transpose("y", "x").values
        expected = np.histogram(one[picked], edges, weights=weights[picked], density=True)[0]
        np.testing.assert_allclose(found.sel(t=t), expected, rtol=1e-12)
    plain = clhist.histogram(CUBE, 6, axis="x", weights=np.ones(CUBE.shape))[0]
    np.testing.assert_array_equal(plain, clhist.histogram(CUBE, 6, axis="x")[0])
    with pytest.raises(ValueError, match=r"^weights: expected shape \(4, 5, 600\) as of a, got \(5,\)$"):
        clhist.histogram(CUBE, 6, axis="x", weights=np.arange(5.0))
    with pytest.raises(xarray.AlignmentError):
        clhist.histogram(CUBE, 6, axis="x", weights=area.assign_coords(y=area.y + 1))


def test_variables_and_arrays_without_a_name():
    found, _ = clhist.histogram(CUBE.variable, 6, axis="x")
    assert isinstance(found, xarray.Variable)
    assert found.dims == ("t", "y", "bin")
    assert clhist.histogram(CUBE.rename(None), 6, axis="x")[0].name == "histogram"
    assert isinstance(clhist.histogram(CUBE, 6, axis=2)[0], np.ndarray)


@pytest.mark.parametrize(
    ("array", "options", "error", "message"),
    [
        (CUBE.values, {"axis": "x"}, TypeError, "axis: expected numbers of dimensions, since"),
        (CUBE, {"axis": "z"}, ValueError, r"axis: expected some of \('t', 'y', 'x'\), each once, got 'z'"),
        (CUBE, {"axis": ["x", "x"]}, ValueError, "axis: expected some of"),
        (CUBE, {"axis": ["x", 1]}, ValueError, "axis: expected some of"),
        (CUBE, {"axis": "x", "out": np.zeros((4, 5, 10))}, TypeError, "out: expected none"),
        (CUBE.rename(t="temperature_bin"), {"axis": "x"}, ValueError, "axis: expected an array without"),
    ],
)
def test_what_is_wrong_is_named(array, options, error, message):
    with pytest.raises(error, match=f"^{message}"):
        clhist.histogram(array, **options)


def test_rasters_of_zones_that_are_not_finite():
    zones = RNG.integers(0, 3, (6, 7)).astype(float)
    zones[0, :3] = -np.inf, np.nan, np.inf
    values = RNG.random(zones.shape)
    found = zonal_stats(zones, values, stats_funcs=["mean"], return_type="xarray.DataArray").to_numpy()[0]
    assert np.isnan(found[0, :3]).all()
    means = pd.Series(values.ravel()).groupby(zones.ravel()).mean()
    inside = np.isfinite(zones)
    np.testing.assert_allclose(found[inside], means[zones[inside]])
