"""Histograms against NumPy's: random calls over dtypes with values on and beside edges, device arrays, bad input."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.binning.keys import from_keys, key_dtype, key_range, keys_of
from clhist.binning.thresholds import numpy_bins
from clhist.opencl import program

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
KERNELS = ["i4", "u4", "i8", "u8", "f4", "f8"]  # of which other dtypes are parts, or counted by their bits


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch):
    """Leave nothing to NumPy because it is small."""
    monkeypatch.setattr("clhist.binning.inputs.SMALL", 0)
    monkeypatch.setattr("clhist.binning.inputs.SMALL_MANY", 0)


@pytest.fixture
def no_fp64(monkeypatch):
    """Let the device have no double precision."""
    for module in ("histogram", "binning.counts", "binning.sample", "binning.rules"):
        monkeypatch.setattr(sys.modules[f"clhist.{module}"], "has_fp64", lambda device: False)
    monkeypatch.setattr(
        "clhist.engine.build.device_features", lambda device, context: frozenset({"int64_base_atomics"})
    )


def specials(dtype):
    """Return numbers at the ends of a dtype and where precisions of others end."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([0, 1], dtype)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        tiny = info.smallest_subnormal
        return np.array([0, -0.0, tiny, -tiny, info.tiny, 1, -1, 0.1, 100, info.max, -info.max, np.inf, -np.inf], dtype)
    info = np.iinfo(dtype)
    return np.array(
        [
            n
            for n in (info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2**53, 2**53 + 1, 2**62 + 7)
            if n <= info.max
        ],
        dtype,
    )


def beside(numbers, dtype, ulps=4):
    """Return the numbers in `dtype` and those up to so many ulps beside them, and NaN of both signs."""
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        near = np.asarray(numbers).astype(dtype)
    if dtype.kind == "b":
        return near
    low, high = key_range(dtype)
    keys = keys_of(near).astype(object)
    moved = np.concatenate([np.clip(keys + step, low, high) for step in range(-ulps, ulps + 1)])
    nans = [np.nan, -np.nan] if dtype.kind == "f" else []
    return np.append(from_keys(moved.astype(key_dtype(dtype)), dtype), np.array(nans, dtype))


def random_edges(rng, dtype, count=7):
    """Return ascending edges: extremes, and numbers of many magnitudes."""
    with np.errstate(all="ignore"):
        drawn = (rng.normal(size=count) * 10.0 ** rng.integers(-3, 8)).astype(dtype)
        edges = np.concatenate([rng.choice(specials(dtype), 3), drawn])
    return np.sort(edges[~np.isnan(edges)])


def outcome(function, *args, **options):
    """Return the result, or the type and text of the error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **options)
        except Exception as error:
            return type(error), str(error)


def assert_same(found, expected):
    assert isinstance(found[0], type) == isinstance(expected[0], type), (found, expected)
    if isinstance(expected[0], type):
        assert found == expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, list):
            assert_same(ours, theirs)
        else:
            np.testing.assert_array_equal(ours.get() if isinstance(ours, cl_array.Array) else ours, theirs, strict=True)


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
    for dtype in ("f4", "i2", "f8"):
        for size in (0, 1, 2, 5, 1000) if rule != "stone" else (0, 200):
            data = (30 * rng.gamma(2, size=size)).astype(dtype)
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


WEIGHTS = ["i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i2"]


@pytest.mark.parametrize("dtype", WEIGHTS)
def test_weights(dtype, rng):
    x, weights = rng.normal(size=2000), (100 * rng.random(2000)).astype(dtype)
    for bins in (10, [-1, -0.5, 0, 3]):
        found, edges = clhist.histogram(x, bins, weights=weights)
        wide = weights.astype("c16" if weights.dtype.kind == "c" else "f8" if weights.dtype.kind == "f" else "i8")
        expected = np.histogram(x, edges, weights=wide)[0]
        assert found.dtype == weights.dtype.newbyteorder("=")
        rounding = max(1e-12, 0 if weights.dtype.kind in "iu" else 2 * np.finfo(found.dtype).eps)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(found, expected.astype(found.dtype), rtol=rounding)


def test_a_nan_weight_stays_in_its_bin():
    weights = np.array([1e8, 1, 1, np.nan, 2], np.float32)
    sums = clhist.histogram([0, 1, 1, 2, 3], [0, 1, 2, 3, 4], weights=weights)[0]
    np.testing.assert_array_equal(sums, np.array([1e8, 2, np.nan, 2], np.float32), strict=True)


def test_reproducible_sums(queue, rng):
    x, weights = rng.normal(size=5000), rng.normal(size=5000) * 10.0 ** rng.integers(-6, 6, 5000)
    order = rng.permutation(5000)
    one = clhist.histogram(x, 20, (-3, 3), weights=weights, reproducible=True)[0]
    other = clhist.histogram(x[order], 20, (-3, 3), weights=weights[order], reproducible=True)[0]
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("on_device", [False, True])
def test_masks_and_axes(on_device, queue, rng):
    move = (lambda a: cl_array.to_device(queue, a)) if on_device else (lambda a: a)
    data, where = rng.normal(size=(4, 5, 60)), rng.random((4, 5, 60)) < 0.5
    weights = rng.integers(0, 9, data.shape)
    found = clhist.histogram(move(data), 7, where=move(where), weights=move(weights))
    assert_same(found, np.histogram(data[where], 7, weights=weights[where]))
    for axis in (2, (1, 2), (-1, 0, 1)) if on_device else (0, 2, (0, 1), (1, 2), (-1, 0)):
        hist, edges = clhist.histogram(move(data), 7, axis=axis, where=move(where), density=axis == 2)
        chosen = axis if isinstance(axis, tuple) else (axis,)
        others = [n for n in range(3) if n not in [a % 3 for a in chosen]]
        moved, mask = (np.transpose(a, [*others, *(a % 3 for a in chosen)]) for a in (data, where))
        rows = [data.shape[n] for n in others]
        pairs = zip(
            moved.reshape(*rows, -1).reshape(max(1, int(np.prod(rows))), -1),
            mask.reshape(max(1, int(np.prod(rows))), -1),
            strict=True,
        )
        expected = [np.histogram(row[kept], edges, density=axis == 2)[0] for row, kept in pairs]
        np.testing.assert_array_equal(hist.get() if on_device else hist, np.reshape(expected, (*rows, 7)), strict=True)


def test_results_go_to_out(queue, rng):
    x = rng.normal(size=1000)
    out = np.empty(10, np.intp)
    assert clhist.histogram(x, out=out)[0] is out
    np.testing.assert_array_equal(out, np.histogram(x)[0])
    on_device = cl_array.zeros(queue, (5, 5), np.float64)
    points = cl_array.to_device(queue, x)
    assert clhist.histogram2d(points, points, 5, out=on_device)[0] is on_device
    np.testing.assert_array_equal(on_device.get(), np.histogram2d(x, x, 5)[0])
    with pytest.raises(TypeError, match="out: expected an array of int64, got one of float64"):
        clhist.histogram(x, out=np.empty(10))
    with pytest.raises(ValueError, match=r"out: expected shape \(10,\)"):
        clhist.histogram(x, out=np.empty(9, np.intp))


@pytest.mark.parametrize("dtypes", [("f8", "f8"), ("f4", "f8"), ("i4", "f4"), ("f4", "f4"), ("i8", "u8"), ("u1", "f2")])
def test_two_dimensions(dtypes, queue, rng):
    x, y = ((30 * rng.gamma(2, size=3000)).astype(dtype) for dtype in dtypes)
    for bins, range_ in (
        (10, None),
        ((5, 300), ((0, 50), (3, 80))),
        ([0, 1, 7, 7, 90], None),
        ((3, [0, 5, 100]), (None, None)),
    ):
        expected = np.histogram2d(x, y, bins, range_)
        assert_same(clhist.histogram2d(x, y, bins, range_), expected)
        assert_same(clhist.histogram2d(*(cl_array.to_device(queue, c) for c in (x, y)), bins, range_), expected)
    found = clhist.histogram2d(x, y, 10, weights=y, density=True)[0]
    np.testing.assert_allclose(found, np.histogram2d(x, y, 10, weights=y.astype("f8"), density=True)[0], rtol=1e-12)


def test_points_in_rows(queue, rng):
    points = rng.normal(size=(2000, 3)).astype("f4")
    where = rng.random(2000) < 0.5
    for bins in (4, (2, 3, [-1, 0, 5])):
        expected = np.histogramdd(points, bins)
        assert_same(clhist.histogramdd(points, bins), expected)
        assert_same(clhist.histogramdd(points.T.copy().T, bins), expected)
        assert_same(clhist.histogramdd(cl_array.to_device(queue, points), bins), expected)
        assert_same(clhist.histogramdd(points, bins, where=where), np.histogramdd(points[where], bins))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "f2", "i4", "u4", "f4", "f8"])
def test_digitize(dtype, right, queue, rng):
    for edges in (
        np.sort(rng.normal(size=20)),
        np.array([-np.inf, 0, 0, 3, np.inf]),
        np.arange(9),
        [4.0],
        [1e9, 2e9],
        [-2, -1],
    ):
        data = np.concatenate([beside(edges, dtype), beside(specials(dtype), dtype)]).reshape(1, -1)
        for bins in (edges, edges[::-1]):
            expected = np.digitize(data, bins, right)
            np.testing.assert_array_equal(clhist.digitize(data, bins, right), expected, strict=True)
        if len(edges) > 1:
            found = clhist.digitize(cl_array.to_device(queue, data), edges, right).get()
            np.testing.assert_array_equal(found, np.digitize(data, edges, right), strict=True)


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
    monkeypatch.setattr("clhist.binning.inputs.SMALL", 1000)
    calls = []
    monkeypatch.setattr("clhist.binning.host.numpy_histogram", lambda *a: calls.append(a) or np.histogram(*a))
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
        (lambda: clhist.histogram(x, [0, np.nan]), ValueError, "bins: expected two edges or more, none of them NaN"),
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
