"""Every option of histograms of several dimensions and of statistics: NumPy and SciPy compute what kernels do."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from both_ways import EDGES, ENDS, Case, all_tests_of, check_covers, data_of, params

import clhist
from clhist.stats import binned_statistic, binned_statistic_2d, binned_statistic_dd

scipy_stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")

SEVERAL = {
    "counts": Case(clhist.histogramdd, lambda d: {"sample": [d.x, d.y], "bins": 3}),
    "density": Case(
        clhist.histogramdd, lambda d: {"sample": [d.x, d.y], "bins": 3, "range": [ENDS] * 2, "density": True}
    ),
    "where": Case(clhist.histogramdd, lambda d: {"sample": [d.x, d.y], "bins": 3, "where": d.where}),
    "out": Case(clhist.histogramdd, lambda d: {"sample": (d.x, d.y), "bins": [EDGES, EDGES], "out": np.zeros((3, 3))}),
    "weights": Case(clhist.histogramdd, lambda d: {"sample": [d.x, d.y], "bins": 3, "weights": d.values}),
    "reproducible": Case(
        clhist.histogramdd,
        lambda d: {"sample": [d.x, d.y], "bins": 3, "weights": d.values, "reproducible": True},
        exact=True,
    ),
    "reproducible integers": Case(
        clhist.histogramdd,
        lambda d: {"sample": [d.x, d.y], "bins": 3, "weights": d.integers, "reproducible": True},
        exact=True,
    ),
    "two": Case(
        clhist.histogram2d,
        lambda d: {"x": d.x, "y": d.y, "bins": 3, "range": None, "density": False, "weights": d.values},
    ),
}
STATISTICS = {
    "mean": Case(binned_statistic, lambda d: {"x": d.x, "values": d.values}),
    "several": Case(
        binned_statistic,
        lambda d: {"x": d.x, "values": d.bytes, "statistic": ["median", "min", "max", "count", "sum"], "bins": 3},
        exact=True,
    ),
    "rows": Case(
        binned_statistic,
        lambda d: {"x": d.x, "values": np.array([d.bytes] * 2), "statistic": "max", "range": ENDS},
        exact=True,
    ),
    "three dimensions": Case(
        binned_statistic,
        lambda d: {"x": d.x, "values": np.array([[d.bytes] * 2]), "statistic": ["max"], "range": ENDS},
        exact=True,
    ),
    "counts": Case(
        binned_statistic, lambda d: {"x": d.x, "values": None, "statistic": "count", "bins": EDGES}, exact=True
    ),
    "where": Case(binned_statistic, lambda d: {"x": d.x, "values": d.values, "bins": 3, "where": d.where}),
    "where, no number": Case(
        binned_statistic,
        lambda d: {"x": d.x, "values": None, "statistic": "count", "where": d.where, "binnumber": False},
        exact=True,
    ),
    "reproducible": Case(
        binned_statistic,
        lambda d: {
            **{"x": d.x, "values": d.values, "statistic": ["mean", "std", "sum"], "bins": EDGES},
            **{"reproducible": True, "binnumber": False},
        },
        exact=True,
    ),
    "edges between integers": Case(
        binned_statistic, lambda d: {"x": d.bins, "values": d.values, "bins": [0.1, 0.9]}, exact=True
    ),
    "edges above integers": Case(
        binned_statistic_dd,
        lambda d: {"sample": np.stack([d.bytes] * 2, 1), "values": d.values, "bins": [[300, 400.5]] * 2},
        exact=True,
    ),
    "other byte order": Case(
        binned_statistic,
        lambda d: {"x": d.x.astype(">f8"), "values": d.values.astype(">f8"), "statistic": "max", "bins": 3},
        exact=True,
    ),
    "tuple": Case(
        binned_statistic_dd,
        lambda d: {"sample": (d.x, d.y), "values": d.values, "bins": [EDGES, EDGES], "where": d.where},
    ),
    "expanded": Case(
        binned_statistic_dd,
        lambda d: {
            **{"sample": np.stack([d.x, d.y], 1), "values": d.bytes, "statistic": "min", "bins": 3, "where": d.where},
            **{"expand_binnumbers": True, "range": [ENDS] * 2},
        },
        exact=True,
    ),
    "two": Case(
        binned_statistic_2d,
        lambda d: {
            **{"x": d.x, "y": d.y, "values": d.bytes, "statistic": "max", "bins": 3, "range": None},
            **{"expand_binnumbers": True},
        },
        exact=True,
    ),
    "callable": Case(
        binned_statistic, lambda d: {"x": d.x, "values": d.values, "statistic": np.ptp, "reproducible": True}
    ),
}
EVERY = params(histogramdd=SEVERAL, statistics=STATISTICS)


test_host_and_device_agree, test_reproducible_sums_do_not_depend_on_the_order = all_tests_of(EVERY)


def test_options_are_all_there():
    """A new option needs a case."""
    cases = [param.values[0] for param in EVERY]
    always = {"queue": "each case is tried with it"}
    check_covers(clhist.histogramdd, cases, always)
    check_covers(
        clhist.histogram2d,
        cases,
        dict.fromkeys(("queue", "where", "out", "reproducible"), "histogram2d hands them on to histogramdd"),
    )
    check_covers(binned_statistic, cases)
    check_covers(binned_statistic_2d, cases)
    again = {"binned_statistic_result": "test_earlier_results_are_used_again"}
    seen = dict.fromkeys(("reproducible", "binnumber"), "binned_statistic hands them on")
    quantiles = dict.fromkeys(("q", "weights"), "tests/slow/test_quantiles.py: SciPy has none")
    check_covers(binned_statistic_dd, cases, {**always, **again, **seen, **quantiles})


def test_earlier_results_are_used_again():
    """By SciPy, which has no `where` and no reproducible sums."""
    d = data_of(100)
    first = binned_statistic_dd([d.x], d.values, "sum", 3)
    again = binned_statistic_dd([d.x], d.values, "max", binned_statistic_result=first, where=d.where)
    expected = binned_statistic_dd([d.x], d.values, "max", [first.bin_edges[0]], where=d.where)
    np.testing.assert_array_equal(again.statistic, expected.statistic)
    np.testing.assert_array_equal(again.binnumber, expected.binnumber)
    with pytest.raises(TypeError, match=r"^reproducible: expected none for what SciPy computes, .*got True$"):
        binned_statistic_dd([d.x], d.values, "sum", binned_statistic_result=first, reproducible=True)


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize("rows", [None, 0, 2])
@pytest.mark.parametrize("bins", [3, [0.1, 0.9], [300, 400.5]])
def test_device_arrays_without_elements_or_bins(size, rows, bins, queue):
    """Integers that lie between no edges, and values of no rows."""
    x = np.arange(size, dtype=np.uint8)
    values = np.ones(size if rows is None else (rows, size), np.int32)
    expected = binned_statistic(x, values, ["mean", "count", "sum"], bins, (0, 9))
    device = (cl_array.to_device(queue, each) for each in (x, values))
    found = binned_statistic(*device, ["mean", "count", "sum"], bins, (0, 9))
    for name, theirs in expected.statistic.items():
        np.testing.assert_array_equal(found.statistic[name].get(), theirs, strict=True)
        if rows != 0 and size:
            scipys = scipy_stats.binned_statistic(x, values, name, bins, (0, 9))
            np.testing.assert_array_equal(theirs, scipys.statistic)
            np.testing.assert_array_equal(expected.binnumber, scipys.binnumber)
    np.testing.assert_array_equal(found.binnumber.get(), expected.binnumber, strict=True)
    if np.ndim(bins):
        sample = np.stack([x, x], 1)
        device = (cl_array.to_device(queue, each) for each in (sample, values))
        found = binned_statistic_dd(*device, "count", [bins, bins])
        np.testing.assert_array_equal(
            found.binnumber.get(), binned_statistic_dd(sample, values, "count", [bins] * 2)[2]
        )


@pytest.mark.parametrize("queued", [False, True])
def test_medians_of_narrow_types(queued, queue):
    """SciPy adds up the two in the middle in their own type: 98.5 for bytes."""
    options = {"queue": queue} if queued else {}
    for values, expected in (([226, 227], 226.5), ([True, True], 1), ([False, True], 0.5)):
        array = np.array(values, np.uint8 if expected > 1 else bool)
        found = binned_statistic([0, 0], array, "median", 1, **options)
        assert found.statistic == [expected]


def test_where_is_that_of_histogram(queue):
    """The range is of the chosen points; all have a bin number."""
    x, where = np.array([0.0, 1, 2, 3, 100, np.nan]), np.array([1, 1, 1, 0, 0, 0], bool)
    for options in ({}, {"queue": queue}):
        found = binned_statistic(x, x, "mean", 2, where=where, **options)
        np.testing.assert_array_equal(found.bin_edges, clhist.histogram(x, 2, where=where, **options)[1])
        np.testing.assert_array_equal(found.statistic, [0, 1.5])
        np.testing.assert_array_equal(found.binnumber, [1, 2, 2, 3, 3, 3])
