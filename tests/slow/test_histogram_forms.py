"""Histograms against NumPy's: weights, masks, axes, two dimensions, points in rows, digitize."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from histograms import assert_same, beside, specials

import clhist

pytestmark = pytest.mark.usefixtures("on_the_device")
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
            for _ in range(2):  # the second call has the edges of the first on the device
                found = clhist.digitize(cl_array.to_device(queue, data), edges, right).get()
                np.testing.assert_array_equal(found, np.digitize(data, edges, right), strict=True)


def test_edges_of_an_earlier_call_of_digitize_are_compared_by_content(queue, rng):
    x, edges = cl_array.to_device(queue, rng.random(100)), np.linspace(0, 1, 9)
    for _ in range(3):
        np.testing.assert_array_equal(clhist.digitize(x, edges).get(), np.digitize(x.get(), edges))
        edges[1:-1] = np.sort(rng.random(7))  # in the same array


@pytest.mark.parametrize("size", [100, 100_000])
def test_sums_of_booleans_are_reproducible_as_they_are(rng, size):
    x, weights = rng.normal(size=size), rng.random(size) < 0.4
    for reproducible in (False, True):
        found, _ = clhist.histogram(x, 20, weights=weights, reproducible=reproducible)
        assert found.dtype == np.bool_
        np.testing.assert_array_equal(found, np.histogram(x, 20, weights=weights)[0])
        found, _ = clhist.histogramdd([x, x], 5, weights=weights, reproducible=reproducible)
        np.testing.assert_array_equal(found, np.histogramdd([x, x], 5, weights=weights)[0])
