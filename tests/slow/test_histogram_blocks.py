"""Blocks of elements, whose bins CPUs find together: their ends, and what falls back to single elements."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

import clhist
from clhist.axes.block_search import BLOCK

pytestmark = pytest.mark.usefixtures("on_the_device")
binning_sweep = import_module("clhist.binned.sweep")  # whose function has the same name

SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 1000]
EDGES = {
    "even": (37, (-50.0, 60.0)),
    "linear": (np.unique(np.round(np.sin(np.arange(60)) * 70)), None),  # several edges in some cells
    "few": ([-50, -10, -9.5, 0, 1, 60], None),
    "one": ([-10, 20.5], None),
    "from the least": ([-np.inf, -(2.0**70), -(2.0**31), 0, 1.5, 40], None),  # of integers the first bins are empty
    "to the greatest": ([0, 3, 50, 2.0**31 - 1, 2.0**32 - 1, 2.0**64, np.inf], None),
    "all": ([-np.inf, np.inf], None),
    "keyed": (np.geomspace(0.5, 90, 41), None),
}


def data(rng, dtype, size):
    """Numbers in and out of all edges and on them; of floats NaN and infinities as well."""
    found = np.round(rng.normal(scale=60, size=size)).astype(dtype)
    if found.dtype.kind == "f":
        found[rng.random(size) < 0.5] *= 1.01
        found[rng.random(size) < 0.1] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], dtype))
    return found


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("name", EDGES)
def test_ends_of_blocks(name, dtype, rng):
    bins, range_ = EDGES[name]
    for size in SIZES:
        with np.errstate(invalid="ignore"):
            x = data(rng, dtype, size)
        where, weights = rng.random(size) < 0.7, rng.random(size)
        found, edges = clhist.histogram(x, bins, range_)
        np.testing.assert_array_equal(found, np.histogram(x, bins, range_)[0], err_msg=f"{size}")
        found, _ = clhist.histogram(x, bins, range_, weights=weights, where=where)
        expected = np.histogram(x[where], edges, weights=weights[where])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_two_dimensions(size, rng):
    x, y = data(rng, "f4", size), data(rng, "f8", size)
    bins, ranges = [EDGES["linear"][0], 37], [None, (-50.0, 60.0)]
    np.testing.assert_array_equal(clhist.histogram2d(x, y, bins, ranges)[0], np.histogram2d(x, y, bins, ranges)[0])


@pytest.mark.parametrize("flow", [{}, {"underflow": False}, {"overflow": False}], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_axes_with_flow_together(dtype, flow, rng):
    bh, hist = pytest.importorskip("boost_histogram"), pytest.importorskip("clhist.hist")
    for size in (128, 20001):
        found = bh.Histogram(*[bh.axis.Regular(23, -60, 55, **flow) for _ in range(2)], storage=bh.storage.Weight())
        expected, weight = found.copy(), rng.integers(1, 9, size).astype(float)
        edges = found.axes[0].edges.astype(dtype)
        near = np.concatenate([edges, *(np.nextafter(edges, edges.dtype.type(end)) for end in (-np.inf, np.inf))])
        columns = [np.where(rng.random(size) < 0.5, data(rng, dtype, size), rng.choice(near, size)) for _ in range(2)]
        hist.fill(found, *columns, weight=weight)
        expected.fill(*columns, weight=weight)
        for field in ("value", "variance"):
            np.testing.assert_array_equal(found.view(flow=True)[field], expected.view(flow=True)[field])


def test_which_kernels_have_blocks(monkeypatch, queue, rng):
    kinds = []
    kernel = binning_sweep.sweep_engine

    def noted(context, kind, *rest):
        kinds.append(kind.in_blocks)
        return kernel(context, kind, *rest)

    clhist.clear_caches()  # the engines of other tests
    monkeypatch.setattr(binning_sweep, "sweep_engine", noted)
    is_cpu = binning_sweep.device_kind(queue.device) == "cpu"
    x = rng.random((6, 50)).astype(np.float32)
    clhist.histogram(x, 5)
    clhist.histogram(x, 5, axis=1)  # rows do not end where blocks do
    clhist.histogram(x.astype(np.float16), 5, weights=x)
    clhist.histogramdd(rng.random((100, 2)), 5)  # coordinates beside each other
    assert kinds == [is_cpu, False, False, False]
