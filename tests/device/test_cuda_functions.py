"""Functions on arrays of CUDA give what they give on NumPy's: the same kernels, launched by a fake of CUDA's driver."""

from __future__ import annotations

import warnings

import cuda_fake
import numpy as np
import pytest

import clhist
from clhist import ndimage, stats

pytestmark = pytest.mark.usefixtures("without_optimizer")

N = 20_000
RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(2, N)).astype(np.float32)
WEIGHTS = RNG.random(N).astype(np.float32)
BINS = RNG.integers(0, 77, N, np.int32)
HALF = WEIGHTS.astype(np.float16)
COUNTS = RNG.integers(0, 9, N)
EDGES = np.sort(RNG.normal(size=40))
RANGES = [[-3, 3], [-3, 3]]
IMAGE, LABELS = X.reshape(100, 200), BINS.reshape(100, 200)
COUNTED = COUNTS.reshape(100, 200)
SOME = np.array([[5, 70], [3, 99]])  # no region has the last label

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
    "means of rows": lambda a: clhist.reduce_by_index((77, 5), "mean", a(BINS[:1000]), a(X[:5000].reshape(1000, 5))),
    "means of rows of half precision, out": lambda a: clhist.reduce_by_index(
        (77, 3), "mean", a(BINS[:999]), a(HALF[:2997].reshape(999, 3)), out=a(np.zeros((77, 3), np.float16))
    ),
    "means of complex rows": lambda a: clhist.reduce_by_index(
        (77, 3), "mean", a(BINS[:999]), a((X + 1j * Y)[:2997].reshape(999, 3))
    ),
    "batch": lambda a: clhist.reduce_by_index(
        (4, 77), "max", a(BINS.reshape(4, -1)), a(COUNTS.reshape(4, -1)), batched=True
    ),
    "ragged": lambda a: clhist.reduce_by_index((3, 77), "sum", a(BINS), a(COUNTS), offsets=[0, 10, 10, N]),
    "sorted pairs": lambda a: clhist.reduce_by_index(77, "sum", a(BINS), a(COUNTS), update="sort"),
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
    "groups of columns with names of parameters": lambda a: _agg(
        clhist.group_by(a(BINS)).agg(min=(a(X), "min", "max"), bins=(a(Y), "mean"), out=(a(COUNTS), "sum"))
    ),
    "weighted means of groups": lambda a: clhist.group_by(a(BINS)).weighted_mean(a(X), a(WEIGHTS)),
    "sums of groups, reproducible": lambda a: clhist.group_by(a(BINS)).sum(a(X), reproducible=True),
    "sums of half precision": lambda a: clhist.reduce_by_index(77, "sum", a(BINS), a(HALF), reproducible=True),
    "maxima of half precision": lambda a: clhist.reduce_by_index(a(HALF[:77]), "max", a(BINS), a(HALF)),
    "rows of half precision": lambda a: clhist.reduce_by_index(
        (77, 8), "max", a(BINS[:999]), a(HALF[:7992].reshape(-1, 8))
    ),
    "bincount of weights of half precision": lambda a: clhist.bincount(a(BINS), a(HALF), reproducible=True),
    "histogram of weights of half precision": lambda a: clhist.histogram(
        a(X), 9, (-3, 3), weights=a(HALF), reproducible=True
    ),
    "numbers of keys": lambda a: clhist.factorize(a(X)),
    "different values": lambda a: clhist.unique(a(X), return_index=True, return_inverse=True, return_counts=True),
    "sums of groups of floats": lambda a: clhist.group_by([a(X), a(BINS)]).sum(a(Y)),
    "places in groups": lambda a: clhist.group_by(a(BINS)).cumcount(),
    "ranks in groups": lambda a: clhist.group_by(a(BINS)).rank(a(X)),
    "running sums of groups": lambda a: clhist.group_by(a(BINS)).cumsum(a(X)),
    "running minima of bytes": lambda a: clhist.group_by(a(BINS)).cummin(a(COUNTS.astype(np.uint8))),
    "different values of groups": lambda a: clhist.group_by(a(BINS)).nunique(a(X)),
    "a mean for each element": lambda a: clhist.group_by(a(BINS)).transform(a(X), "mean"),
    "groups of half precision": lambda a: clhist.group_by(a(BINS)).max(a(HALF)),
    "sums of groups of half precision": lambda a: clhist.group_by(a(BINS)).sum(a(HALF), reproducible=True),
    "edges": lambda a: clhist.histogram_bin_edges(a(X), "auto"),
    "digitize": lambda a: clhist.digitize(a(X), EDGES),
    "means by bins": lambda a: stats.binned_statistic(a(X), a(Y), "mean", 30),
    "deviations by bins": lambda a: stats.binned_statistic(a(X), a(Y), "std", 30, (-3, 3)),
    "means by bins of two axes": lambda a: stats.binned_statistic_2d(a(X), a(WEIGHTS), a(Y), "mean", 5),
}

# Of regions; what one region gives is on the host.
REGIONS = {
    "sums": lambda a: ndimage.sum(a(IMAGE), a(LABELS), SOME),
    "sums of integers": lambda a: ndimage.sum_labels(a(COUNTED), a(LABELS), range(77)),
    "means": lambda a: ndimage.mean(a(IMAGE), a(LABELS.astype(np.uint8)), a(SOME)),
    "variances": lambda a: ndimage.variance(a(IMAGE), a(LABELS), range(77)),
    "deviations": lambda a: ndimage.standard_deviation(a(COUNTED), a(LABELS), range(77)),
    "least": lambda a: ndimage.minimum(a(IMAGE), a(LABELS), SOME),
    "largest of bytes": lambda a: ndimage.maximum(a(COUNTED.astype(np.uint8)), a(LABELS), SOME),
    "largest of booleans": lambda a: ndimage.maximum(a(IMAGE > 0), a(LABELS), SOME),
    "extremes of short ones": lambda a: ndimage.extrema(a(COUNTED.astype(np.uint16)), a(LABELS), range(99)),
    "where the least is": lambda a: np.array(ndimage.minimum_position(a(IMAGE), a(LABELS), range(77))),
    "centres": lambda a: np.array(ndimage.center_of_mass(a(IMAGE), a(LABELS), range(77))),
    "histograms": lambda a: _rows(ndimage.histogram(a(IMAGE), -3, 3, 9, a(LABELS), range(77))),
    "histogram without a number": lambda a: _rows(ndimage.histogram(a(COUNTED), 2, 2, 1, a(LABELS), range(77))),
    "sum above 0": lambda a: ndimage.sum(a(IMAGE), a(LABELS)),
    "mean where true": lambda a: ndimage.mean(a(IMAGE), a(LABELS > 9)),
    "mean of unsigned labels": lambda a: ndimage.mean(a(IMAGE), a(LABELS.astype(np.uint32))),
    "largest of all": lambda a: ndimage.maximum(a(IMAGE)),
    "histogram of one": lambda a: ndimage.histogram(a(IMAGE), -3, 3, 9, a(LABELS), 5),
}
ON_HOST = ("where the", "centres", "sum above 0", "mean where", "mean of unsigned", "largest of all", "of one")


def _rows(histograms):
    """Return histograms of regions as rows, which NumPy's are objects of."""
    return np.stack(histograms.tolist()) if isinstance(histograms, np.ndarray) else histograms


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


@pytest.mark.parametrize("name", [*CASES, *(f"regions: {name}" for name in REGIONS)])
def test_function(name, monkeypatch):
    """Four times: what later calls only launch is noted at the first or the second."""
    cuda, cupy = cuda_fake.install(monkeypatch)
    call = REGIONS[name.removeprefix("regions: ")] if name.startswith("regions: ") else CASES[name]
    expected, _ = on_host(call(lambda array: array))
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing goes through the host
            got, is_cuda = on_host(call(cupy.asarray))
        check_same(got, expected)
        assert is_cuda != (name == "edges" or (name.startswith("regions") and any(part in name for part in ON_HOST)))
    assert {launch.stream for launch in cuda.launched} <= {cuda_fake.STREAM}
    assert cuda.launched or "nothing" in name
