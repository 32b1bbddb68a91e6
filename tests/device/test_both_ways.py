"""Every option of the functions on bins, few elements and many: NumPy and SciPy compute what kernels compute."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from both_ways import EDGES, ENDS, Case, all_tests_of, check_covers, data_of, params
from histograms import outcome

import clhist
from clhist._core.model.problem import CHOICES

pytestmark = pytest.mark.usefixtures("without_optimizer")

CALL_OPTIONS = ("allocator", "wait_for", "return_event", "race_factor", "memory_budget")


def _counts(size=5):
    return np.zeros(size, np.intp)


BINCOUNT = {
    "counts": Case(clhist.bincount, lambda d: {"x": d.bins}),
    "minlength": Case(clhist.bincount, lambda d: {"x": d.bins, "minlength": 9}),
    "out": Case(clhist.bincount, lambda d: {"x": d.bins, "minlength": 5, "out": _counts()}),
    "weights": Case(clhist.bincount, lambda d: {"x": d.bins, "weights": d.values}),
    "bytes": Case(clhist.bincount, lambda d: {"x": d.bytes, "weights": d.bytes}, exact=True),
    "reproducible": Case(
        clhist.bincount, lambda d: {"x": d.bins, "weights": d.values, "reproducible": True}, exact=True
    ),
    "reproducible counts": Case(clhist.bincount, lambda d: {"x": d.bins, "reproducible": True}),
}
HISTOGRAM = {
    "counts": Case(clhist.histogram, lambda d: {"a": d.x}),
    "rule": Case(clhist.histogram, lambda d: {"a": d.x, "bins": "auto"}),
    "rule, weights": Case(clhist.histogram, lambda d: {"a": d.x, "bins": "rice", "weights": d.values}),
    "edges": Case(clhist.histogram, lambda d: {"a": d.x, "bins": EDGES, "out": _counts(3)}),
    "bytes": Case(clhist.histogram, lambda d: {"a": d.bytes, "bins": 7, "density": True}, exact=True),
    "where": Case(clhist.histogram, lambda d: {"a": d.x, "bins": 3, "where": d.where, "range": (0, 1)}),
    "extent of where": Case(clhist.histogram, lambda d: {"a": d.x, "bins": 3, "where": d.where}),
    "axis": Case(clhist.histogram, lambda d: {"a": d.x, "bins": 3, "range": (0, 1), "axis": 0}),
    "weights": Case(clhist.histogram, lambda d: {"a": d.x, "bins": EDGES, "weights": d.values}),
    "narrow": Case(clhist.histogram, lambda d: {"a": d.x, "bins": 3, "range": ENDS, "weights": d.narrow}),
    "integers": Case(clhist.histogram, lambda d: {"a": d.x, "bins": 3, "range": ENDS, "weights": d.integers}),
    "integers, where": Case(
        clhist.histogram, lambda d: {"a": d.x, "bins": EDGES, "weights": d.integers, "where": d.where}
    ),
    "bytes as weights": Case(clhist.histogram, lambda d: {"a": d.x, "bins": 3, "weights": d.bytes}),
    "reproducible": Case(
        clhist.histogram,
        lambda d: {"a": d.x, "bins": 3, "range": ENDS, "weights": d.values, "reproducible": True},
        exact=True,
    ),
    "reproducible, where": Case(
        clhist.histogram,
        lambda d: {"a": d.x, "bins": EDGES, "weights": d.narrow, "where": d.where, "reproducible": True},
        exact=True,
    ),
    "extended precision": Case(
        clhist.histogram,
        lambda d: {"a": d.x.astype(np.longdouble), "bins": EDGES, "weights": d.values, "reproducible": True},
        exact=True,
    ),
    "reproducible counts": Case(clhist.histogram, lambda d: {"a": d.x, "reproducible": True}),
    "objects": Case(clhist.histogram, lambda d: {"a": d.x.astype(object), "weights": d.values, "reproducible": True}),
}
OTHERS = {
    "edges": Case(clhist.histogram_bin_edges, lambda d: {"a": d.x, "bins": 7, "range": None}, exact=True),
    "edges of where": Case(
        clhist.histogram_bin_edges, lambda d: {"a": d.x, "bins": "auto", "where": d.where, "weights": None}, exact=True
    ),
    "digitize": Case(clhist.digitize, lambda d: {"x": d.x, "bins": EDGES}),
    "digitize, right": Case(clhist.digitize, lambda d: {"x": d.x, "bins": EDGES[::-1], "right": True}),
    "digitize integers": Case(clhist.digitize, lambda d: {"x": d.bytes, "bins": [300, 400.5]}),
}
SUM = {"dest": 5, "op": "sum"}
REDUCE = {
    "sum": Case(clhist.reduce_by_index, lambda d: {**SUM, "indices": d.bins, "values": d.values}),
    "dest": Case(
        clhist.reduce_by_index, lambda d: {"dest": np.ones(4), "op": np.add, "indices": d.bins, "values": d.narrow}
    ),
    "dtype": Case(
        clhist.reduce_by_index, lambda d: {**SUM, "indices": d.bins, "values": d.narrow, "dtype": d.narrow.dtype}
    ),
    "maximum": Case(
        clhist.reduce_by_index,
        lambda d: {"dest": 5, "op": np.maximum, "indices": d.bins, "values": d.values},
        exact=True,
    ),
    "out": Case(
        clhist.reduce_by_index, lambda d: {**SUM, "indices": d.bins, "values": d.integers, "out": np.ones(5, int)}
    ),
    "batched": Case(
        clhist.reduce_by_index,
        lambda d: {"dest": (1, 5), "op": "sum", "indices": d.bins[None], "values": d.values[None], "batched": True},
    ),
    "offsets": Case(
        clhist.reduce_by_index,
        lambda d: {"dest": (1, 5), "op": "sum", "indices": d.bins, "values": d.values, "offsets": [0, d.size]},
    ),
    "reproducible": Case(
        clhist.reduce_by_index,
        lambda d: {**SUM, "indices": d.bins, "values": d.values, "reproducible": True},
        exact=True,
    ),
    "max_abs": Case(
        clhist.reduce_by_index,
        lambda d: {**SUM, "indices": d.bins, "values": d.values, "reproducible": True, "max_abs": 1e12},
        exact=True,
    ),
    "max_abs alone": Case(
        clhist.reduce_by_index, lambda d: {**SUM, "indices": d.bins, "values": d.values, "max_abs": 1e12}
    ),
}
EVERY = params(bincount=BINCOUNT, histogram=HISTOGRAM, others=OTHERS, reduce_by_index=REDUCE)


test_host_and_device_agree, test_reproducible_sums_do_not_depend_on_the_order = all_tests_of(EVERY)


def test_options_are_all_there():
    """A new option needs a case."""
    cases = [param.values[0] for param in EVERY]
    always = {"queue": "each case is tried with it"}
    several = {**always, "devices": "refuses what only kernels have: tests/device/test_multi.py"}
    of_kernels = dict.fromkeys([*CHOICES, *CALL_OPTIONS], "sends a call to the device")
    check_covers(clhist.bincount, cases, several)
    check_covers(clhist.histogram, cases, several)
    check_covers(clhist.histogram_bin_edges, cases, always)
    check_covers(clhist.digitize, cases, always)
    check_covers(clhist.reduce_by_index, cases, several | of_kernels)


@pytest.mark.parametrize("function", [clhist.histogram, clhist.digitize])
def test_a_queue_that_is_none_is_refused_also_where_no_kernel_runs(function):
    with pytest.raises(TypeError, match=r"^queue: expected a pyopencl.CommandQueue or None, got 5$"):
        function(np.array([0, 1], object), [0, 1, 2], queue=5)


def test_errors_of_device_arrays_are_those_of_numpy(queue):
    d = data_of(100)
    x, w = (cl_array.to_device(queue, each) for each in (d.x, d.values))
    for function in (clhist.histogram, clhist.histogram_bin_edges):
        expected = outcome(getattr(np, function.__name__), d.x, "rice", weights=d.values)
        assert expected[0] is TypeError
        assert outcome(function, x, "rice", weights=w) == expected
        assert outcome(function, d.x, "rice", weights=d.values, where=d.where, queue=queue) == expected


def test_complex_weights_of_device_arrays(queue):
    """Are summed by `histogram`, as by NumPy; neither has them in several dimensions."""
    d = data_of(100)
    weights = d.x + 1j * d.y
    x, w = (cl_array.to_device(queue, each) for each in (d.x, weights))
    found, _ = clhist.histogram(x, EDGES, weights=w)
    np.testing.assert_allclose(found.get(), np.histogram(d.x, EDGES, weights=weights)[0], rtol=1e-12)
    with pytest.raises(TypeError, match=r"^weights: expected a device array of integers or floats, got one of complex"):
        clhist.histogramdd([x, x], 3, weights=w)
    for options in ({}, {"queue": queue}):
        with pytest.raises(TypeError, match="from dtype"):
            clhist.histogramdd([d.x, d.x], 3, weights=weights, **options)


def test_warnings_point_at_the_caller(queue):
    """Also those of NumPy, of what it computes here."""
    for options in ({}, {"queue": queue}):
        with pytest.warns(RuntimeWarning, match="Converting input from bool") as caught:
            clhist.histogram(np.array([True, False]), 2, **options)
        assert {each.filename for each in caught} == {__file__}
    x = cl_array.to_device(queue, np.repeat([0, 0.004, 1], 50))
    with pytest.warns(RuntimeWarning, match="number of bins estimated may be suboptimal") as caught:
        clhist.histogram_bin_edges(x, "stone")
    assert [each.filename for each in caught] == [__file__]


def test_a_sample_without_dimensions():
    """Is NumPy's, which has no other options."""
    sample = np.zeros((3, 0))
    assert outcome(clhist.histogramdd, sample) == outcome(np.histogramdd, sample)
    for options in ({"where": np.ones(3, bool)}, {"out": np.zeros(())}):
        with pytest.raises(TypeError, match=rf"^{next(iter(options))}: expected none for a sample without dimensions"):
            clhist.histogramdd(sample, **options)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_edges_without_bins_between_them(dtype, right, queue):
    numbers = [0, 1, 2, 3, 255] if dtype == np.uint8 else [0, 1, 2, 3, -5]
    x = np.array(numbers + ([np.nan, np.inf, -np.inf] if dtype == np.float32 else []), dtype)
    on_device = cl_array.to_device(queue, x)
    for edges in ([], [0.0], [1.5], [-3], [np.inf], [-np.inf], [1e30], [256]):
        expected = np.digitize(x, np.array(edges, float), right)
        found = clhist.digitize(on_device, edges, right)
        assert found.dtype == expected.dtype
        assert found.get().tolist() == expected.tolist(), edges
