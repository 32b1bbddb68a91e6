"""NaN as an edge of `digitize`, a single edge, and `unique` in which each NaN is a value: as NumPy, on every way."""

from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.binned.numbers import steps_axis

NAN = np.nan
EDGES = {
    "last": [0.0, 1.0, NAN],
    "first of falling": [NAN, 1.0, 0.0],
    "two": [0.0, NAN, NAN],
    "alone": [NAN],
    "only": [NAN, NAN],
    "amid": [1.0, NAN, 2.0, 0.0],
    "after one": [1.0, NAN],
}


def of_host(result):
    return result.get() if hasattr(result, "get") else result


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("dtype", ["i1", "i4", "f2", "f4", "f8"])
@pytest.mark.parametrize("right", [False, True])
def test_digitize_takes_edges_with_nan(edges, dtype, right, queue):
    x = np.random.default_rng(0).normal(0, 2, 300)
    if np.dtype(dtype).kind == "f":
        x[::7], x[3], x[4] = NAN, np.inf, -np.inf
    x = x.astype(dtype)
    expected = np.digitize(x, edges, right)
    on_device = cl_array.to_device(queue, x)
    for result in (
        clhist.digitize(x, edges, right, queue=queue),
        clhist.digitize(on_device, edges, right).get(),
        clhist.digitize(on_device.reshape(3, -1), np.array(edges), right).get().reshape(-1),
    ):
        np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("density", [None, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [0, 50])
def test_fewer_than_two_edges_make_an_empty_histogram(density, weighted, size, queue):
    x = np.linspace(0, 1, size, dtype="f4")
    on_device = cl_array.to_device(queue, x)
    for array in (x, on_device):
        options = {"density": density, "weights": array if weighted else None}
        of_numpy = {"density": density, "weights": x if weighted else None}
        for edges in ([0.5], []):
            expected = np.histogram(x, edges, **of_numpy)
            for _ in range(2):
                result = clhist.histogram(array, edges, **options, queue=queue)
                for one, other in zip(result, expected, strict=True):
                    np.testing.assert_array_equal(of_host(one), other, strict=True)
        for bins in ([[0.5], 3], [3, [0.5]], [[0.5], [0.5]], [[0.5], [0.0, 1.0]]):
            expected = np.histogram2d(x, x, bins, [[0, 1], [0, 1]], **of_numpy)
            for _ in range(2):
                result = clhist.histogram2d(array, array, bins, [[0, 1], [0, 1]], **options, queue=queue)
                for one, other in zip(result, expected, strict=True):
                    np.testing.assert_array_equal(of_host(one), other, strict=True)


def test_a_single_edge_of_rows(queue):
    x = np.zeros((4, 5), "f4")
    for array in (x, cl_array.to_device(queue, x)):
        hist, edges = clhist.histogram(array, [0.5], axis=1, queue=queue)
        assert (hist.shape, hist.dtype, edges.tolist()) == ((4, 0), np.intp, [0.5])


def _with_missing(dtype, size):
    numbers = np.random.default_rng(size).integers(0, 7, size)
    x = numbers.astype(dtype)
    x[numbers == 3] = NAN if x.dtype.kind in "fc" else "NaT"
    return x


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "c8", "M8[s]", "m8[D]"])
@pytest.mark.parametrize("size", [0, 1, 10, 5000])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_each_nan_is_a_value(dtype, size, is_sorted, queue):
    x = _with_missing(dtype, size)
    values, first, _, counts = np.unique(x, True, True, True, equal_nan=False)
    order = np.arange(len(values)) if is_sorted else first.argsort()
    expected = {"values": values[order], "first": first[order], "counts": counts[order]}
    arrays = [(x, {}), (x.reshape(-1, 1), {})]
    if x.dtype.kind != "c" and x.dtype.isnative:
        arrays.append((x, {"queue": queue}))
    if x.dtype.kind == "f" and x.dtype.isnative:
        arrays.append((cl_array.to_device(queue, x), {}))
    for (array, options), wanted in product(arrays, product((False, True), repeat=3)):
        before = of_host(array).copy()
        results = clhist.unique(array, *wanted, equal_nan=False, sorted=is_sorted, **options)
        results = list(map(of_host, results)) if any(wanted) else [of_host(results)]
        np.testing.assert_array_equal(results[0], expected["values"], strict=True)
        assert results[0].dtype == x.dtype
        by_name = dict(zip(np.array(["first", "inverse", "counts"])[list(wanted)], results[1:], strict=True))
        if "inverse" in by_name:
            inverse = by_name.pop("inverse")
            assert (inverse.shape, inverse.dtype, len({*inverse.flat})) == (array.shape, np.int32, len(values))
            np.testing.assert_array_equal(results[0][inverse], before)
        for name, result in by_name.items():
            np.testing.assert_array_equal(result, expected[name], strict=True)
        np.testing.assert_array_equal(of_host(array), before)


def test_where_missing_elements_are_one_value():
    for array in (np.ma.array([1.0], mask=[1]), np.array([1, NAN], object)):
        with pytest.raises(TypeError, match=r"^equal_nan: expected True for (columns|arrays of object),"):
            clhist.unique(array, equal_nan=False)
    assert clhist.unique(np.array([2, 1, 2]), equal_nan=False).tolist() == [1, 2]
    assert clhist.unique(["b", "a", "b"], equal_nan=False).tolist() == ["a", "b"]
    with pytest.raises(TypeError, match=r"^equal_nan: expected "):
        clhist.unique(np.ones(3), equal_nan=0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "i8"])
@pytest.mark.parametrize("right", [False, True])
def test_edges_without_a_number_between_them(dtype, right, queue):
    """All elements are below or above all edges; blocks of elements look into no memory but the table's."""
    rng, limits = np.random.default_rng(2), (np.finfo if dtype[0] == "f" else np.iinfo)(dtype)
    x = rng.normal(size=20_000).astype("f8").clip(0 if dtype == "u1" else None).astype(dtype)
    x[:200] = limits.max
    x[200:400] = limits.min
    for edges in ([0.5], [0.5] * 3, [1e16 + 1000, 1e16 + 2000], [-1e300, -1e299], [-(2**31)] * 2, [0.3, 0.4], [7, 7]):
        rising = np.array(edges, np.float64)
        for own in (rising, rising[::-1]):
            np.testing.assert_array_equal(clhist.digitize(x, own, right, queue=queue), np.digitize(x, own, right))
        axis = steps_axis(rising, np.dtype(dtype), right=right, fp64=True)
        if axis is None or axis.kind.steps or len(axis.arrays) < 2:  # with bins
            continue
        # As a block clamps a key, and shifts its distance from the first one.
        _, shift, start, last, *_ = map(int, axis.scalars)
        bits = 8 * axis.arrays[0].itemsize
        for key in (-(2 ** (bits - 1)), start, start + 1, 2 ** (bits - 1) - 1):
            within = min(key, last) if key > start else start
            assert (within - start) % 2**bits >> shift < len(axis.arrays[1])
