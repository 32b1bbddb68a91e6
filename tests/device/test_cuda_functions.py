"""Functions on arrays of CUDA give what they give on NumPy's: the same kernels, launched by a fake of CUDA's driver."""

from __future__ import annotations

import warnings

import cuda_fake
import numpy as np
import pytest

import clhist
from clhist import stats

N = 20_000
RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(2, N)).astype(np.float32)
WEIGHTS = RNG.random(N).astype(np.float32)
BINS = RNG.integers(0, 77, N, np.int32)
COUNTS = RNG.integers(0, 9, N)
EDGES = np.sort(RNG.normal(size=40))
RANGES = [[-3, 3], [-3, 3]]

# Each gets what makes an array of CUDA of NumPy's, or leaves it.
CASES = {
    "bincount": lambda a: clhist.bincount(a(BINS)),
    "bincount of bytes": lambda a: clhist.bincount(a(BINS.astype(np.uint8)), minlength=99),
    "bincount of weights": lambda a: clhist.bincount(a(BINS), a(WEIGHTS)),
    "bincount of an outlier": lambda a: clhist.bincount(a(np.append(BINS, 5000))),
    "bincount, reproducible": lambda a: clhist.bincount(a(BINS), a(WEIGHTS), reproducible=True),
    "bincount of nothing": lambda a: clhist.bincount(a(BINS[:0]), minlength=3),
    "sums": lambda a: clhist.reduce_by_index(77, "sum", a(BINS), a(COUNTS)),
    "sums onto others": lambda a: clhist.reduce_by_index(a(np.arange(77.0)), "sum", a(BINS), a(COUNTS)),
    "sums of nothing": lambda a: clhist.reduce_by_index(7, "sum", a(BINS[:0]), a(COUNTS[:0])),
    "sums, reproducible": lambda a: clhist.reduce_by_index(77, "sum", a(BINS), a(X), reproducible=True),
    "rows": lambda a: clhist.reduce_by_index((77, 5), "sum", a(BINS[:1000]), a(COUNTS[:5000].reshape(1000, 5))),
    "batch": lambda a: clhist.reduce_by_index(
        (4, 77), "max", a(BINS.reshape(4, -1)), a(COUNTS.reshape(4, -1)), batched=True
    ),
    "ragged": lambda a: clhist.reduce_by_index((3, 77), "sum", a(BINS), a(COUNTS), offsets=[0, 10, 10, N]),
    "argmax": lambda a: _fields(clhist.reduce_by_index(77, "argmax", a(BINS), a(X))),
    "an operator": lambda a: clhist.reduce_by_index(77, clhist.Operator(np.int64, "a | b", 0), a(BINS), a(COUNTS)),
    "histogram": lambda a: clhist.histogram(a(X), 100, (-3, 3)),
    "histogram of its extent": lambda a: clhist.histogram(a(X), 100),
    "histogram by edges": lambda a: clhist.histogram(a(X), EDGES),
    "histogram by a rule": lambda a: clhist.histogram(a(X), "fd"),
    "histogram of weights": lambda a: clhist.histogram(a(X), 100, (-3, 3), weights=a(WEIGHTS)),
    "histogram of integers": lambda a: clhist.histogram(a(X), 100, (-3, 3), weights=a(COUNTS)),
    "densities": lambda a: clhist.histogram(a(X), 100, (-3, 3), density=True),
    "histogram, reproducible": lambda a: clhist.histogram(a(X), 9, (-3, 3), weights=a(WEIGHTS), reproducible=True),
    "histogram along an axis": lambda a: clhist.histogram(a(X.reshape(20, 1000)), 10, (-3, 3), axis=1),
    "histogram of some": lambda a: clhist.histogram(a(X), 100, (-3, 3), where=a(Y > 0)),
    "histogram of nothing": lambda a: clhist.histogram(a(X[:0]), 10),
    "histogram2d": lambda a: clhist.histogram2d(a(X), a(Y), 30),
    "histogram2d of weights": lambda a: clhist.histogram2d(a(X), a(Y), 30, RANGES, weights=a(WEIGHTS)),
    "histogramdd": lambda a: clhist.histogramdd((a(X), a(Y), a(WEIGHTS)), [5, 6, 7]),
    "histogramdd of rows": lambda a: clhist.histogramdd(a(np.stack([X, Y], 1)), [5, 6]),
    "groups": lambda a: list(
        clhist.group_by(a(BINS)).agg(x=(a(X), "mean", "var", "count"), y=(a(Y), "max"))["x"].values()
    ),
    "groups of a number": lambda a: clhist.group_by(a(BINS), 80).sum(a(COUNTS)),
    "sizes of groups": lambda a: clhist.group_by(a(BINS)).size(),
    "weighted means of groups": lambda a: clhist.group_by(a(BINS)).weighted_mean(a(X), a(WEIGHTS)),
    "sums of groups, reproducible": lambda a: clhist.group_by(a(BINS)).sum(a(X), reproducible=True),
    "edges": lambda a: clhist.histogram_bin_edges(a(X), "auto"),
    "digitize": lambda a: clhist.digitize(a(X), EDGES),
    "means by bins": lambda a: stats.binned_statistic(a(X), a(Y), "mean", 30),
    "deviations by bins": lambda a: stats.binned_statistic(a(X), a(Y), "std", 30, (-3, 3)),
    "means by bins of two axes": lambda a: stats.binned_statistic_2d(a(X), a(WEIGHTS), a(Y), "mean", 5),
}


def _fields(result):
    """Return the fields of a structured result, which a library without structs has as arrays."""
    return result if isinstance(result, dict) else {name: result[name] for name in result.dtype.names}


def _agg(table):
    """Return all columns of a table of groups."""
    return [each for column in table.values() for each in column.values()]


def on_host(value):
    """Return a result with NumPy's arrays, and whether there were arrays of CUDA among it."""
    if isinstance(value, cuda_fake.FakeArray):
        return value.get(), True
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        parts = [on_host(each) for each in value]
        return [part for part, _ in parts], any(found for _, found in parts)
    return value, False


def check_same(got, expected):
    """Check that results are equal, in structures; sums of floats may differ by their order."""
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            check_same(one, other)
    else:
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_function(name, monkeypatch):
    """Twice, since the second call is one that repeats the first."""
    cuda, cupy = cuda_fake.install(monkeypatch)
    expected, _ = on_host(CASES[name](lambda array: array))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing goes through the host
            got, is_cuda = on_host(CASES[name](cupy.asarray))
        check_same(got, expected)
        assert is_cuda or name == "edges"
    assert {launch.stream for launch in cuda.launched} <= {cuda_fake.STREAM}
    assert cuda.launched or "nothing" in name
