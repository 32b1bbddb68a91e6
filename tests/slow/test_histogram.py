"""Histograms against NumPy's: random calls over dtypes with values on and beside edges, device arrays, bad input."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pyopencl.array as cl_array
import pytest
from histograms import DTYPES, assert_same, beside, outcome, random_edges, specials

import clhist
from clhist._core.keys import from_keys, key_dtype, key_range, keys_of
from clhist._core.opencl import program
from clhist.axes.thresholds import numpy_bins

pytestmark = pytest.mark.usefixtures("on_the_device")
KERNELS = ["i4", "u4", "i8", "u8", "f4", "f8"]  # of which other dtypes are parts, or counted by their bits
_IN_BINS = ("counting", "device_edges", "device_inputs", "extent", "rules", "selection")


@pytest.fixture
def no_fp64(monkeypatch):
    """Let the device have no double precision."""
    for module in ("_core.opencl.device", *(f"binned.{each}" for each in _IN_BINS)):
        monkeypatch.setattr(import_module(f"clhist.{module}"), "has_fp64", lambda device: False)


@pytest.mark.parametrize("edge_dtype", [*DTYPES[1:], "g"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_thresholds_are_where_numpy_compares(dtype, edge_dtype, rng):
    for _ in range(4):
        edges = random_edges(rng, edge_dtype)
        dtype = np.dtype(dtype)
        common = np.result_type(dtype, edges.dtype)
        with np.errstate(all="ignore"):
            numbers = np.concatenate([beside(edges, dtype), beside(specials(dtype), dtype)])
        numbers = numbers[~np.isnan(numbers)] if dtype.kind == "f" else numbers
        bins = numpy_bins(edges, dtype)
        compared, ends = numbers.astype(common), edges.astype(common)
        expected = np.searchsorted(ends[:-1], compared, "right") - 1
        expected[compared > ends[-1]] = -1
        found = np.searchsorted(bins.keys, keys_of(numbers), "right") - 1
        found[keys_of(numbers) > bins.last] = -1
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_of_any_dtype(dtype, rng):
    for edge_dtype in rng.permutation([d for d in DTYPES if d not in "?"])[:5]:
        edges = random_edges(rng, edge_dtype, 20)
        with np.errstate(all="ignore"):
            data = rng.permutation(np.concatenate([beside(edges, dtype), beside(specials(dtype), dtype)]))
        assert_same(outcome(clhist.histogram, data, edges), outcome(np.histogram, data, edges))


RANGES = {
    "found": None,
    "Python's": (-3.1, 7.3),
    "integers": (-3, 100),
    "of float64": (np.float64(0.1), np.float64(0.7)),
    "one value": (2, 2),
    "narrow": (16777216.2, 16777217.9),
    "tiny": (1e-300, 3e-300),
    "huge": (-1e300, 1e300),
    "subnormal": (0.0, 3e-310),
    "beyond integers": (-1e20, 1e20),
    "falling": (1, 0),
    "infinite": (0, np.inf),
}


@pytest.mark.parametrize("bins", [1, 37, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges(dtype, bins, rng):
    for name, range_ in RANGES.items():
        if name == "huge" and dtype in ("f2", "f4"):
            continue  # infinite edges, over which NumPy stumbles with an IndexError
        with np.errstate(all="ignore"):
            data = (rng.normal(size=300) * 30).astype(dtype)
            if range_ is not None:
                edges = np.linspace(*map(float, range_), bins + 1)[:50]
                edges = np.clip(
                    edges,
                    *(
                        np.float64(end)
                        for end in from_keys(
                            np.array(key_range(np.dtype(dtype)), key_dtype(np.dtype(dtype))), np.dtype(dtype)
                        )
                    ),
                )
                data = np.concatenate([data, beside(edges[np.isfinite(edges)], dtype)])
        assert_same(outcome(clhist.histogram, data, bins, range_), outcome(np.histogram, data, bins, range_))
    finite = data[np.isfinite(data)]
    assert_same(outcome(clhist.histogram, finite, bins), outcome(np.histogram, finite, bins))
    density = outcome(clhist.histogram, data, bins, (0, 9), density=True)
    assert_same(density, outcome(np.histogram, data, bins, (0, 9), density=True))


EDGES = {
    "logarithmic": np.geomspace(1e-3, 1e6, 1001),
    "quantiles": np.sort(np.random.default_rng(1).normal(size=501)),
    "one far": [0, 1e-6, 1e-5, 1e6],
    "many equal": [0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2],
    "infinite": [-np.inf, -1, 0, 1, np.inf],
    "one bin": [0.5, 1.5],
    "of no width": [1.0, 1.0],
    "whole": np.arange(100),
}


@pytest.mark.parametrize("dtype", KERNELS)
@pytest.mark.parametrize("name", EDGES)
def test_uneven_edges(name, dtype, rng):
    edges = np.asarray(EDGES[name])
    with np.errstate(all="ignore"):
        data = np.concatenate([beside(edges, dtype), (10.0 ** rng.normal(0, 3, 500)).astype(dtype)])
    assert_same(outcome(clhist.histogram, data, edges), outcome(np.histogram, data, edges))


@pytest.mark.parametrize("any_profile", ["own profile", "as a GPU"], indirect=True)
@pytest.mark.parametrize("size", [0, 1, 2, 63, 5001])
def test_device_arrays(any_profile, size, queue, rng):
    for dtype in ("u1", "f2", "i4", "f8"):
        data = (30 * rng.normal(size=size)).astype(dtype)
        on_device = cl_array.to_device(queue, data)
        for bins, range_ in ((10, None), (1000, (-20, 50)), ([-5, 0, 3, 100], None)):
            found = clhist.histogram(on_device, bins, range_)
            assert isinstance(found[0], cl_array.Array)
            assert isinstance(found[1], np.ndarray)
            assert_same(found, np.histogram(data, bins, range_))


@pytest.mark.parametrize("rule", ["auto", "fd", "scott", "doane", "rice", "sqrt", "sturges", "stone"])
def test_rules_on_device_arrays(rule, queue, rng):
    for dtype in ("f4", "i2", "f8", "?"):
        for size in (0, 1, 2, 5, 1000) if rule != "stone" else (0, 200):
            data = (30 * rng.gamma(2, size=size)).astype(dtype) if dtype != "?" else rng.random(size) < 0.3
            on_device, where = cl_array.to_device(queue, data), rng.random(size) < 0.7
            for range_ in (None, (10, 60)):
                expected = outcome(np.histogram, data, rule, range_)
                assert_same(outcome(clhist.histogram, on_device, rule, range_), expected)
                mask = cl_array.to_device(queue, where)
                found = outcome(clhist.histogram_bin_edges, on_device, rule, range_, where=mask)
                expected = outcome(np.histogram_bin_edges, data[where], rule, range_)
                np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.usefixtures("no_fp64")
def test_float64_without_double_precision(queue, rng):
    data = np.concatenate(
        [rng.normal(size=3000), beside([0, 0.5, 1, 1e-310, 1e300], "f8"), beside(specials("f8"), "f8")]
    )
    for given in (data, cl_array.to_device(queue, data)):
        for bins, range_ in ((100, (-1, 2)), (10, (0, 3e-310)), ([-np.inf, -1, 0, 1e-310, np.inf], None)):
            assert_same(clhist.histogram(given, bins, range_), np.histogram(data, bins, range_))
    finite = rng.normal(size=1000)
    on_device = cl_array.to_device(queue, finite)
    assert_same(clhist.histogram(on_device, "fd"), np.histogram(finite, "fd"))
    assert_same(clhist.histogram2d(on_device, on_device, 5), np.histogram2d(finite, finite, 5))
    weights = rng.random(1000).astype("f4")
    sums = clhist.histogram(finite, 10, weights=weights)[0]
    np.testing.assert_allclose(sums, np.histogram(finite, 10, weights=weights.astype("f8"))[0], rtol=1e-6)


def test_what_numpy_takes_as_data(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100.0))
    for data in (
        list(range(50)),
        np.load(tmp_path / "a.npy", mmap_mode="r"),
        np.arange(60.0)[::3],
        np.arange(9, dtype=">f4"),
        3.5,
        np.arange(12).reshape(3, 4),
        [],
        np.arange("2000-01", "2001-01", dtype="M8[M]").astype("i8"),
        1j,
    ):
        assert_same(outcome(clhist.histogram, data), outcome(np.histogram, data))


def test_small_arrays_are_left_to_numpy(monkeypatch, queue):
    monkeypatch.setattr("clhist._core.runtime.small.pays_off", lambda call, size, bins=0: size >= 1000)
    calls = []
    by_numpy = import_module("clhist.histogram")
    monkeypatch.setattr(by_numpy, "numpy_histogram", lambda *a: calls.append(a) or np.histogram(*a))
    assert_same(clhist.histogram(np.arange(999.0)), np.histogram(np.arange(999.0)))
    assert len(calls) == 1
    clhist.histogram(np.arange(999.0), queue=queue)
    clhist.histogram(np.arange(1000.0))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        ("histogram", ([1, 2], 2.5), {}),
        ("histogram", ([1, 2], 0), {}),
        ("histogram", ([1, 2], [[1, 2]]), {}),
        ("histogram", ([1, 2], [2, 1]), {}),
        ("histogram", ([1, 2], "median"), {}),
        ("histogram", ([1, np.nan],), {}),
        ("histogram", ([1, 2], 3, (2, 1)), {}),
        ("histogram", ([1, 2],), {"weights": [1]}),
        ("histogram", ([1, 2], "auto"), {"weights": [1, 1]}),
        ("histogram", (np.float32([1, 1.0000001]), 10), {}),
        ("histogram2d", ([1, 2], [1]), {}),
        ("histogramdd", ([[1, 2], [3, 4]], 0), {}),
        ("histogramdd", ([[1, 2], [3, 4]], (1, 2, 3)), {}),
        ("histogramdd", ([[1, 2], [3, 4]], ([1, 0], 2)), {}),
        ("histogramdd", ([[1, 2], [3, 4]], 2, [(0, 1)]), {}),
        ("histogramdd", ([[1.0, np.nan], [3, 4]], 2), {}),
        ("digitize", ([1, 2], [1, 3, 2]), {}),
        ("digitize", ([1j], [1, 2]), {}),
    ],
)
def test_errors_are_numpys(function, args, options):
    expected = outcome(getattr(np, function), *args, **options)
    assert isinstance(expected[0], type)
    assert outcome(getattr(clhist, function), *args, **options) == expected


def test_errors_of_device_arrays(queue):
    x, z = cl_array.zeros(queue, 5, np.float32), cl_array.zeros(queue, 5, np.complex64)
    for call, error, says in [
        (lambda: clhist.histogram(z), TypeError, "a: expected a device array of booleans, integers or floats, got"),
        (lambda: clhist.histogram(x, weights=np.ones(5)), TypeError, "weights: expected a PyOpenCL array as a is"),
        (lambda: clhist.histogram(x, [0, np.nan]), ValueError, "bins: expected edges, none of them NaN"),
        (lambda: clhist.histogram(x, where=np.ones(5)), TypeError, "where: expected an array of bool"),
        (lambda: clhist.histogram(x.reshape(5, 1), axis=0), ValueError, "axis: expected the last dimensions"),
        (lambda: clhist.histogram(x, 3, (2, 1)), ValueError, "max must be larger than min in range parameter"),
        (lambda: clhist.histogramdd([x, np.ones(5)]), TypeError, r"sample\[1\]: expected a PyOpenCL array"),
        (lambda: clhist.histogramdd([x, x[:2]]), ValueError, r"sample\[1\]: expected shape \(5,\)"),
        (lambda: clhist.histogramdd(z), TypeError, "sample: expected a device array"),
        (lambda: clhist.digitize(z, [1, 2]), TypeError, "x: expected a device array"),
        (lambda: clhist.histogram([1], queue=7), TypeError, "queue: expected a pyopencl.CommandQueue"),
    ]:
        with pytest.raises(error, match=says):
            call()


def test_new_edges_compile_nothing(monkeypatch, queue, rng):
    x = cl_array.to_device(queue, rng.normal(size=1000))
    clhist.histogram(x, 10, (0, 1))
    before = program._builds
    for bins in (20, 999):
        clhist.histogram(x, bins, (0.5, 3))
    assert program._builds == before
