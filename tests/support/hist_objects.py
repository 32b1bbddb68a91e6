"""Axes, storages and data for the tests of `clhist.hist`, and what makes two histograms equal."""

from __future__ import annotations

import copy

import boost_histogram as bh
import numpy as np

log, sqrt, Pow = bh.axis.transform.log, bh.axis.transform.sqrt, bh.axis.transform.Pow
Regular, Variable, Integer = bh.axis.Regular, bh.axis.Variable, bh.axis.Integer

REAL_AXES = {
    "even": Regular(100, 0, 1),
    "uneven-sum": Regular(97, -3, 3),
    "one-bin": Regular(1, 0.1, 0.7),
    "falling": Regular(10, 5, 0),
    "no-underflow": Regular(10, -1, 1, underflow=False),
    "no-overflow": Regular(10, -1, 1, overflow=False),
    "no-flow": Regular(10, -1, 1, underflow=False, overflow=False),
    "log": Regular(50, 1, 1000, transform=log),
    "log-wide": Regular(7, 1e-300, 1e300, transform=log),
    "sqrt": Regular(20, 0, 9, transform=sqrt),
    "square": Regular(20, 1, 9, transform=Pow(2)),
    "root": Regular(20, 0, 9, transform=Pow(0.5)),
    "inverse": Regular(20, 1, 9, transform=Pow(-1)),
    "cube": Regular(20, -1, 9, transform=Pow(3)),
    "narrow": Regular(10, 1e8, 1e8 + 1),
    "variable": Variable([0, 1, 1.5, 10]),
    "infinite-edges": Variable([-np.inf, 0, 1, np.inf]),
    "variable-no-underflow": Variable([0, 1, 4], underflow=False),
    "variable-no-overflow": Variable([0, 1, 4], overflow=False),
    "variable-no-flow": Variable([0.1, 0.3, 4], underflow=False, overflow=False),
    "geometric": Variable(np.geomspace(0.01, 100, 300)),
    "circular": Regular(10, 0, 1, circular=True),
    "circular-pi": Regular(7, -np.pi, np.pi, circular=True),
    "variable-circular": Variable([-3.1, -1, 0.5, 3.1], circular=True),
}
INTEGER_AXES = {
    "integer": Integer(-5, 5),
    "integer-from-3": Integer(3, 9),
    "integer-no-underflow": Integer(0, 10, underflow=False),
    "integer-no-overflow": Integer(0, 10, overflow=False),
    "integer-no-flow": Integer(0, 10, underflow=False, overflow=False),
    "integer-circular": Integer(-3, 4, circular=True),
    "boolean": bh.axis.Boolean(),
    "categories": bh.axis.IntCategory([5, 1, 300, -7]),
    "categories-no-overflow": bh.axis.IntCategory([5, 1, -7], overflow=False),
    "categories-at-the-ends": bh.axis.IntCategory([2**31 - 1, -(2**31), 0]),
}
STORAGES = {
    "Int64": bh.storage.Int64(),
    "AtomicInt64": bh.storage.AtomicInt64(),
    "Double": bh.storage.Double(),
    "Unlimited": bh.storage.Unlimited(),
    "Weight": bh.storage.Weight(),
    "Mean": bh.storage.Mean(),
    "WeightedMean": bh.storage.WeightedMean(),
}


def edges_of(ax):
    """Return the edges of an axis of numbers; those that a circular Variable gives are others."""
    return ax._ax.__getstate__()[1] if isinstance(ax, Variable) else ax.edges


def numbers_beside(edges, dtype, ulps=4):
    """Return numbers of a dtype on edges and beside them, and the odd ones: NaN, infinities, zeros, the ends."""
    dtype, random = np.dtype(dtype), np.random.default_rng(7)
    edges = np.asarray(edges, float)
    finite = edges[np.isfinite(edges)]
    if dtype.kind == "b":
        return np.array([False, True, True])
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        near = np.concatenate([np.floor(finite) + step for step in range(-3, 4)])
        near = near[(near >= info.min) & (near < info.max)].astype(dtype)
        return np.concatenate(
            [near, np.array([info.min, info.max, 0, 1], dtype), random.integers(0, 100, 50).astype(dtype)]
        )
    with np.errstate(over="ignore"):
        edges = edges.astype(dtype)
    found, up, down = [edges], edges, edges
    for _ in range(ulps):
        up, down = np.nextafter(up, dtype.type(np.inf)), np.nextafter(down, dtype.type(-np.inf))
        found += [up, down]
    tiny = np.finfo(dtype).smallest_subnormal
    odd = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 6e4, -6e4, np.finfo(dtype).max]
    spread = min(float(np.ptp(finite)), 1e4)
    return np.concatenate([*found, np.array(odd, dtype), (random.normal(size=2000) * spread).astype(dtype)])


def assert_same(found, expected, exact=False):
    """Assert that two histograms have the same axes and contents: counts exactly, sums to float64's rounding."""
    assert list(map(repr, found.axes)) == list(map(repr, expected.axes))
    assert found.axes == expected.axes
    assert found.storage_type is expected.storage_type
    assert found._variance_known == expected._variance_known
    ours, theirs = np.asarray(found.view(flow=True)), np.asarray(expected.view(flow=True))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    for name in ours.dtype.names or [()]:
        a, b = ours[name], theirs[name]
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            scale = np.max(np.abs(b[np.isfinite(b)]), initial=0)
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12 * scale)


def empty(axes, storage):
    """Return a histogram with axes of its own."""
    return bh.Histogram(*copy.deepcopy(axes), storage=storage)
