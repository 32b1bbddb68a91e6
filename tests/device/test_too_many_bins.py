"""More bins than fit: a MemoryError that says so, from whatever has bins."""

from __future__ import annotations

import sys

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import ndimage, stats
from clhist._core.opencl import new_arrays

pytestmark = pytest.mark.usefixtures("without_optimizer")

KEYS, X = np.zeros(3, np.int32), np.ones(3, np.float32)
CALLS = {
    "reduce_by_index": lambda bins: clhist.reduce_by_index(bins, "sum", KEYS, X),
    "Accumulator": lambda bins: clhist.Accumulator("count", bins),
    "Accumulator of structs": lambda bins: clhist.Accumulator("mean", bins, dtype=np.float32),
    "MultiAccumulator": lambda bins: clhist.MultiAccumulator("count", bins),
    "Spec.partial": lambda bins: clhist.Spec("count", bins).partial(KEYS, 1),
    "Spec.empty": lambda bins: clhist.Spec("count", bins).empty(),
}

_LACKING = r"^memory_budget: |^the (host|device) has no room for a result of shape "


@pytest.mark.parametrize("bins", [2**50, 2**62, 2**64])
@pytest.mark.parametrize("name", CALLS)
def test_too_many_bins(name, bins):
    with pytest.raises(MemoryError, match=_LACKING):
        CALLS[name](bins)


NUMBERED = {
    "histogram": lambda x, bins: clhist.histogram(x, bins, (0, 1)),
    "histogram of the extent": lambda x, bins: clhist.histogram(x, bins),
    "histogram, weights": lambda x, bins: clhist.histogram(x, bins, (0, 1), weights=x),
    "histogram2d": lambda x, bins: clhist.histogram2d(x, x, [bins // 4, 4], [(0, 1)] * 2),
    "histogram2d of one number": lambda x, bins: clhist.histogram2d(x, x, int(bins**0.5) + 1, [(0, 1)] * 2),
    "histogramdd": lambda x, bins: clhist.histogramdd([x, x, x], [bins // 4, 2, 2], [(0, 1)] * 3),
    "histogram_bin_edges": lambda x, bins: clhist.histogram_bin_edges(x, bins, (0, 1)),
    "binned_statistic": lambda x, bins: stats.binned_statistic(x, x, "mean", bins, (0, 1)),
    "binned_statistic_2d": lambda x, bins: stats.binned_statistic_2d(x, x, x, "median", [bins // 4, 4]),
    "ndimage.histogram": lambda x, bins: ndimage.histogram(x, 0, 1, bins),
}


@pytest.mark.parametrize("bins", [2**31, 2**31 + 5, 2**33, 10**12])
@pytest.mark.parametrize("name", NUMBERED)
def test_more_bins_of_one_width_than_32_bits_number(name, bins, queue):
    """Before edges are made, which would take 16 GB."""
    if bins % 4:
        bins += 4 - bins % 4
    for x in (X, np.ones(50_000, np.float32), cl_array.to_device(queue, X)):
        with pytest.raises(ValueError, match=r"^bins: expected fewer than 2\*\*31(,| in all [23] dimensions)"):
            NUMBERED[name](x, bins)
    with pytest.raises(ValueError, match=r"^bins: expected fewer than 2\*\*31, got "):
        clhist.histogram(X, bins, (0, 1), devices="all")


@pytest.mark.parametrize("minlength", [2**45, 10**15])
def test_bincount_of_too_many(minlength, queue, monkeypatch):
    large = np.array([3, minlength - 1])
    for call in (
        lambda: clhist.bincount(cl_array.to_device(queue, KEYS), minlength=minlength),
        lambda: clhist.bincount(cl_array.to_device(queue, large)),
        lambda: clhist.bincount(KEYS, minlength=minlength),
    ):
        with pytest.raises(MemoryError, match=f"^(x|minlength): expected few enough bins .* got {minlength};"):
            call()
    monkeypatch.setattr(sys.modules["clhist.bincount"], "_is_for_numpy", lambda *_, **__: True)
    for name, call in (
        ("minlength", lambda: clhist.bincount(KEYS, minlength=minlength)),
        ("minlength", lambda: clhist.bincount(KEYS, X, minlength, devices="all")),
        ("x", lambda: clhist.bincount(large)),
    ):
        expected = f"^{name}: expected (bins that the host has|few enough bins for the) memory.* got {minlength}[:;]"
        with pytest.raises(MemoryError, match=expected):
            call()


def test_edges_without_memory(monkeypatch):
    def lacking(*args):
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr("clhist.binned.host._histogram", lacking)
    with pytest.raises(MemoryError, match=r"^bins: expected a number that there is memory for, got 1000: U"):
        clhist.histogram(X, 1000, (0, 1))


GROUPED = {
    "size": lambda groups, x: groups.size(),
    "agg": lambda groups, x: groups.agg(a=(x, "count", "var"), b=(x, "argmax")),
    "exact": lambda groups, x: groups.sum(x, reproducible=True),
    "weighted": lambda groups, x: groups.weighted_mean(x, x),
    "transform": lambda groups, x: groups.transform(x, "mean"),
    "median": lambda groups, x: groups.median(x),
    "cumcount": lambda groups, x: groups.cumcount(),
    "cumsum": lambda groups, x: groups.cumsum(x),
    "rank": lambda groups, x: groups.rank(x),
    "nth": lambda groups, x: groups.nth(x, 0),
    "nunique": lambda groups, x: groups.nunique(x),
    "mode": lambda groups, x: groups.mode(x),
}


@pytest.mark.parametrize("number", [2**40, 2**62, 2**64])
@pytest.mark.parametrize("name", GROUPED)
def test_too_many_groups(name, number, queue):
    for put in (lambda array: array, lambda array: cl_array.to_device(queue, array)):
        groups = clhist.group_by(put(KEYS), number)
        with pytest.raises(
            MemoryError, match=rf"^num_groups: expected at most \d+, for which .* has memory, got {number}$"
        ):
            GROUPED[name](groups, put(X))


def test_more_groups_than_exact_sums_have_memory_for():
    with pytest.raises(MemoryError, match=r"^num_groups: expected"):
        clhist.group_by(KEYS, 4 * 10**8).sum(X, reproducible=True)


ROWS = {
    "rows": lambda put, bins: clhist.reduce_by_index((bins, 64), "sum", put(KEYS), put(np.ones((3, 64), np.float32))),
    "means of rows": lambda put, bins: clhist.reduce_by_index(
        (bins, 64), "mean", put(KEYS), put(np.ones((3, 64), np.float32))
    ),
    "batch": lambda put, bins: _kernel()(put(KEYS), num_bins=bins, num_histograms=3),
    "two dimensions": lambda put, bins: _kernel()(put(KEYS), num_bins=(bins, 64)),
    "bound": lambda put, bins: _kernel().bind(put(KEYS), num_bins=bins),
    "structs": lambda put, bins: clhist.reduce_by_index(bins, "argmax", put(KEYS), put(X)),
    "exact": lambda put, bins: clhist.reduce_by_index(bins, "sum", put(KEYS), put(X), reproducible=True),
    "several devices": lambda put, bins: clhist.reduce_by_index(bins, "sum", KEYS, X, devices="all"),
}


def _kernel():
    return clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *x", map="EMIT(x[i], 1)")


@pytest.mark.parametrize("bins", [2**36, 2**50, 2**62])
@pytest.mark.parametrize("name", ROWS)
def test_too_many_cells(name, bins, queue):
    for put in (lambda array: array, lambda array: cl_array.to_device(queue, array)):
        with pytest.raises(MemoryError, match=_LACKING):
            ROWS[name](put, bins)


def test_a_host_without_memory(queue):
    """As under RLIMIT_AS: PyOpenCL has another error for memory that the host lacks."""

    class Lacking(cl.RuntimeError):
        code = cl.status_code.OUT_OF_HOST_MEMORY

        def __init__(self):
            pass

        def __str__(self):
            return "create_buffer failed: OUT_OF_HOST_MEMORY"

    def lacking(*args, **options):
        raise Lacking

    with pytest.raises(MemoryError, match=r"^the device has no room for a result of shape \(5,\) and int32: create_"):
        new_arrays.empty(queue, (5,), np.dtype(np.int32), True, lacking)

    class Lost(Lacking):
        code = cl.status_code.OUT_OF_RESOURCES

    def lost(*args, **options):
        raise Lost

    with pytest.raises(Lost):
        new_arrays.empty(queue, (5,), np.dtype(np.int32), True, lost)


def test_a_number_that_is_an_array(rng):
    """Of no dimension, which has no length, and which NumPy takes as a number."""
    points = rng.normal(size=(50_000, 2))
    counts, edges = clhist.histogramdd(points, np.array(5))
    expected, _ = np.histogramdd(points, 5)
    np.testing.assert_array_equal(counts, expected)
    assert [len(each) for each in edges] == [6, 6]
