"""Histogram objects filled from arrays of CUDA, launched by a fake of its driver, hold what boost-histogram's do."""

from __future__ import annotations

import warnings

import boost_histogram as bh
import cuda_fake
import hist
import numpy as np
import pytest

import clhist
import clhist.hist as ch

N = 30_000
RNG = np.random.default_rng(4)
X, Y, W = RNG.normal(size=(3, N)).astype(np.float32)
X[:3] = np.nan, np.inf, -np.inf
K = RNG.integers(-2, 12, N)
CUT = X > 0

STORAGES = {
    "counts": (bh.storage.Int64, {}),
    "doubles": (bh.storage.Double, {"weight": W}),
    "a weight": (bh.storage.Double, {"weight": 2.5}),
    "weights": (bh.storage.Weight, {"weight": W}),
    "weights of half precision": (bh.storage.Weight, {"weight": W.astype(np.float16)}),
    "means": (bh.storage.Mean, {"sample": W}),
    "weighted means": (bh.storage.WeightedMean, {"sample": W, "weight": np.abs(Y)}),
}
AXES = {
    "regular": ([bh.axis.Regular(20, -2, 2)], [X]),
    "variable": ([bh.axis.Variable([-1, 0, 0.25, 3])], [X]),
    "integers": ([bh.axis.Integer(0, 10)], [K]),
    "categories": ([bh.axis.IntCategory([3, 1, 7])], [K]),
    "three": (
        [bh.axis.Regular(9, -1, 1), bh.axis.Integer(0, 5, underflow=False, overflow=False), bh.axis.Boolean()],
        [X, K, CUT],
    ),
}


def on(put, options):
    return {name: put(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}


def assert_same(found, expected):
    one, other = np.asarray(found.view(flow=True)), np.asarray(expected.view(flow=True))
    for field in one.dtype.names or ("",):
        np.testing.assert_allclose(one[field] if field else one, other[field] if field else other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("storage", STORAGES)
def test_fill(axes, storage, fake):
    cuda, cupy = fake
    made, data = AXES[axes]
    kind, options = STORAGES[storage]
    expected, found, filler = (ch.Histogram(*made, storage=kind()) for _ in range(3))
    filler = ch.Filler(filler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing goes through the host
        for _ in range(3):
            bh.Histogram.fill(expected, *data, **options)
            assert found.fill(*map(cupy.asarray, data), **on(cupy.asarray, options)) is found
            filler.fill(*map(cupy.asarray, data), **on(cupy.asarray, options))
    assert_same(found, expected)
    assert_same(filler.result(), expected)
    assert {launch.stream for launch in cuda.launched} == {cuda_fake.STREAM}


def test_fills_from_several_places(fake):
    _, cupy = fake
    filler = ch.Filler(bh.Histogram(bh.axis.Regular(20, -2, 2)))
    for put in (cupy.asarray, np.asarray, cupy.asarray, cupy.asarray):
        filler.fill(put(X))
    assert_same(filler.result(), bh.Histogram(bh.axis.Regular(20, -2, 2)).fill(np.tile(X, 4)))


def test_many_at_once(fake):
    cuda, cupy = fake
    hists = [ch.Histogram(bh.axis.Regular(20, -2, 2), storage=bh.storage.Weight()) for _ in range(3)]
    x, w, cut = map(cupy.asarray, (X, W, CUT))
    fills = [(hists[0], (x,), {"weight": w}), (hists[1], (x,)), (hists[2], (x,), {"weight": w, "where": cut})]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ch.fill_many(each for each in fills)
    assert cuda.launched
    for found, options in zip(hists, ({"weight": W}, {}, {"weight": W * CUT}), strict=True):
        expected = bh.Histogram(bh.axis.Regular(20, -2, 2), storage=bh.storage.Weight())
        expected.fill(X[CUT] if found is hists[2] else X, **({"weight": W[CUT]} if found is hists[2] else options))
        assert_same(found, expected)


def test_names_of_axes(fake):
    _, cupy = fake
    found = ch.Hist(hist.axis.Regular(9, -1, 1, name="x"), hist.axis.Integer(0, 5, name="k"))
    found.fill(k=cupy.asarray(K), x=cupy.asarray(X))
    assert_same(found, hist.Hist(*found.axes).fill(k=K, x=X))


def test_what_boost_histogram_does_goes_through_the_host_with_a_warning(fake):
    _, cupy = fake
    found, expected = (ch.Histogram(bh.axis.Regular(4, -1, 1, growth=True)) for _ in range(2))
    with pytest.warns(UserWarning, match="data of CUDA goes through the host"):
        found.fill(cupy.asarray(X[3:]))
    expected.fill(X[3:])
    assert found.axes == expected.axes
    assert_same(found, expected)


def test_wrong_arrays_are_refused(fake):
    cuda, cupy = fake
    found = ch.Histogram(bh.axis.Regular(4, -1, 1))
    with pytest.raises(TypeError, match=r"weight: expected a CUDA array as .* is, got a NumPy array"):
        found.fill(cupy.asarray(X), weight=W)
    with pytest.raises(TypeError, match="queue: expected none with arrays of CUDA"):
        found.fill(cupy.asarray(X), queue=clhist.default_queue())
    assert not cuda.launched
    assert found.sum(flow=True) == 0
