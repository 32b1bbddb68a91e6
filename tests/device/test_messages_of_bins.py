"""Messages about bins, zones and regions name the argument, what came, and what to do."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
import scipy.ndimage

import clhist
from clhist import ndimage, stats
from clhist.zonal import zonal_stats

pytestmark = pytest.mark.usefixtures("without_optimizer")

POINTS = np.random.default_rng(3).random((50, 6))


@pytest.mark.parametrize("bins", [1000, [1000] * 6])
def test_too_many_bins_of_several_dimensions(bins):
    message = r"^bins: expected fewer than 2\*\*31 in all 6 dimensions together, got .*1000.*, which are 1e\+18"
    with pytest.raises(ValueError, match=message):
        clhist.histogramdd(POINTS, bins)
    with pytest.raises(ValueError, match=message):
        stats.binned_statistic_dd(POINTS, POINTS[:, 0], "mean", bins)


def test_more_bins_than_a_float_can_tell():
    with pytest.raises(ValueError, match=r"^bins: expected fewer than 2\*\*31 in all 400 .*1e\+300 or more"):
        clhist.histogramdd(np.zeros((3, 400)), 10)


def test_byte_orders(queue):
    zones, values = np.array([1, 1, 2]), np.array([1.0, 2, 3])
    expected = zonal_stats(zones, values, [1])
    found = zonal_stats(zones.astype(">i4"), values.astype(">f8"), np.array([1], ">i8"))
    np.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())
    np.testing.assert_array_equal(ndimage.maximum(values.astype(">f8"), zones.astype(">i4"), [1, 2]), [2, 3])
    swapped = cl_array.to_device(queue, values.astype(">f8"))
    for call, name in (
        (lambda: clhist.histogram(swapped), "a"),
        (lambda: ndimage.sum(swapped), "input"),
        (lambda: zonal_stats(cl_array.to_device(queue, zones), swapped), "values"),
    ):
        with pytest.raises(TypeError, match=rf"^{name}: expected native byte order of a device array, got >f8"):
            call()


def test_halves_and_booleans_on_a_device(queue):
    zones = cl_array.to_device(queue, np.array([1, 1, 2], np.int32))
    halves = cl_array.to_device(queue, np.array([1, 2, 3], np.float16))
    found = zonal_stats(zones, halves, stats_funcs=["count", "max"], nodata_values=2)
    np.testing.assert_array_equal(found.to_numpy(), [[1, 1, 1], [2, 1, 3]])
    booleans = cl_array.to_device(queue, np.array([True, False, True]))
    low, high, first, _ = ndimage.extrema(booleans, zones, [1, 2, 9])
    assert low.get().tolist() == [False, True, False]
    assert high.get().tolist() == [True, True, False]
    assert first[0] == (1,)


def test_hints():
    with pytest.raises(AttributeError, match=r"use scipy\.ndimage\.find_objects"):
        _ = ndimage.find_objects
    with pytest.raises(ValueError, match=r"^stats_funcs: expected some of majority, .* got 'sums'"):
        zonal_stats(np.ones(3, int), np.ones(3), stats_funcs=["sums"])


@pytest.mark.parametrize("function", ["minimum", "maximum_position", "extrema"])
@pytest.mark.parametrize("index", [None, 2, [1, 2]])
def test_extremes_of_no_element_raise_scipys_error(function, index, queue):
    values, labels = np.zeros(0, "f4"), np.zeros(0, "i4")
    with pytest.raises(ValueError, match="zero-size array to reduction operation") as expected:
        getattr(scipy.ndimage, function)(values, labels, index)
    for arrays in ((values, labels), (cl_array.to_device(queue, values), cl_array.to_device(queue, labels))):
        with pytest.raises(ValueError, match=f"^{expected.value}$"):
            getattr(ndimage, function)(*arrays, index)
