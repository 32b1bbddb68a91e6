"""Results depend on values, not on how many there are: small arrays beside the same arrays repeated, and a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boost_histogram as bh
import numpy as np
import pytest

import clhist
import clhist.hist
from clhist import ndimage, stats
from clhist.operators.halves import bfloat16
from clhist.zonal import zonal_stats

FEW, TIMES = 60, 1200  # 72,000 elements are left to no other library
EDGES = np.array([-3, 0, 2.0, 5, 11])
DTYPES = ["?", "u1", "f2", "bf16", "f4", ">i4", ">f8"]
Call = Callable[..., Any]


def fill(x, weight=None, sample=None, storage=bh.storage.Double, queue=None):
    """Return the bins of a fill with scalars after an axis that has no flow bins."""
    axes = bh.axis.Regular(5, -3, 9), bh.axis.Regular(3, 0, 1, underflow=False, overflow=False), bh.axis.Integer(0, 5)
    h = bh.Histogram(*axes, storage=storage())
    options = {} if sample is None else {"sample": sample}
    return clhist.hist.fill(h, x, 0.5, 2, weight=weight, queue=queue, **options).values(flow=True)


# Counts and sums, which grow with the number of times.
GROW: dict[str, Call] = {
    "histogram": lambda x, i, q: clhist.histogram(x, 7, queue=q)[0],
    "histogram, edges": lambda x, i, q: clhist.histogram(x, EDGES, queue=q)[0],
    "histogram2d": lambda x, i, q: clhist.histogram2d(x, i, [3, 4], queue=q)[0],
    "binned counts": lambda x, i, q: stats.binned_statistic(x, i, "count", 4, queue=q).statistic,
    "fill": lambda x, i, q: fill(x, queue=q),
    "fill, weights": lambda x, i, q: fill(i, weight=x, queue=q),
}
# What stays the same.
STAY: dict[str, Call] = {
    "bin edges": lambda x, i, q: clhist.histogram_bin_edges(x, 7, queue=q),
    "digitize": lambda x, i, q: clhist.digitize(x, EDGES, queue=q)[:FEW],
    "binned mean": lambda x, i, q: stats.binned_statistic(i, x, "mean", 4, queue=q).statistic,
    "binned std": lambda x, i, q: stats.binned_statistic(i, x, "std", 4, queue=q).statistic,
    "binned median": lambda x, i, q: stats.binned_statistic(i, x, "median", 4, queue=q).statistic,
    "fill, samples": lambda x, i, q: fill(i, sample=x, storage=bh.storage.Mean, queue=q),
}
WITHOUT_QUEUE: dict[str, Call] = {
    "variance": lambda x, i, q: ndimage.variance(x, i, [1, 2, 7]),
    "maximum": lambda x, i, q: ndimage.maximum(x, i, [1, 2, 7]),
    "position": lambda x, i, q: np.array(ndimage.minimum_position(x, i, [1, 2, 7])),
    "median": lambda x, i, q: ndimage.median(x, i, 3),
    "zones": lambda x, i, q: zonal_stats(i, x, stats_funcs=["mean", "max", "std", "majority"]).to_numpy(),
}


def drawn(name, rng):
    dtype = bfloat16() if name == "bf16" else np.dtype(name)
    if dtype.kind in "biu":
        return rng.integers(0, 2 if dtype.kind == "b" else 12, FEW).astype(dtype)
    return (4 * rng.normal(size=FEW)).astype(dtype)


def outcome(call, *args):
    """Return a result, or the kind of the exception."""
    try:
        return call(*args)
    except (TypeError, ValueError) as error:
        return type(error)


def compared(found, expected, rtol):
    if isinstance(expected, type) or isinstance(found, type):
        assert found is expected
        return
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=rtol, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Converting input from bool")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*GROW, *STAY, *WITHOUT_QUEUE])
def test_number_of_elements_does_not_matter(name, dtype, rng, queue):
    call = (GROW | STAY | WITHOUT_QUEUE)[name]
    x, i = drawn(dtype, rng), rng.integers(0, 10, FEW)
    small, large = outcome(call, x, i, None), outcome(call, np.tile(x, TIMES), np.tile(i, TIMES), None)
    if name in GROW and not isinstance(small, type):
        small = small * small.dtype.type(TIMES)
    compared(large, small, 1e-9)
    if name not in WITHOUT_QUEUE:
        compared(outcome(call, x, i, queue), outcome(call, x, i, None), 1e-9)
