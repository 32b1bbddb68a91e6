"""`clhist.ndimage` on no dimension, no elements, and labels that are absent, compared with SciPy."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
import scipy.ndimage

import clhist
from clhist import ndimage

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of SciPy, which divides by nothing

FUNCTIONS = [name for name in ndimage.__all__ if name != "histogram"]
INPUTS = {
    "no dimension": (np.array(2.0), np.array(1)),
    "no dimension, label 0": (np.array(2), np.array(0)),
    "no dimension, label True": (np.array(2.0), np.array(True)),
    "no dimension, label False": (np.array(True), np.array(False)),
    "no elements": (np.zeros(0), np.zeros(0, int)),
    "no elements in two dimensions": (np.zeros((0, 3)), np.zeros((0, 3), int)),
    "one dimension": (np.array([1.0, 2, 3, 0]), np.array([1, 1, 3, 0])),
    "negative labels": (np.array([1, 2, 3, 0]), np.array([-1, 1, 3, 0])),
    "two dimensions": (np.arange(6.0).reshape(2, 3) % 4, np.array([[1, 2, 2], [0, 4, 1]])),
    "label 0 alone": (np.arange(3.0), np.zeros(3, int)),
}
INDICES = [None, 0, 1, 9, -5, [], [1], [9], [1, 9], [[1, 2], [3, 9]], [-1, 1]]


def outcome(call, *args):
    try:
        return call(*args)
    except (ValueError, TypeError, IndexError) as error:
        return type(error)


def assert_same(found, expected, context):
    if isinstance(expected, tuple | list):
        assert type(found) is type(expected), context
        assert len(found) == len(expected), context
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, context)
    elif expected is None or isinstance(expected, type):
        assert found is expected, context
    elif np.asarray(expected).dtype == object:
        assert np.shape(found) == expected.shape, context
        for one, other in zip(found.ravel(), expected.ravel(), strict=True):
            assert_same(one, other, context)
    else:
        assert np.shape(found) == np.shape(expected), context
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=str(context))


@pytest.mark.parametrize("name", INPUTS)
def test_functions(name):
    values, labels = INPUTS[name]
    for function in FUNCTIONS:
        ours, theirs = getattr(ndimage, function), getattr(scipy.ndimage, function)
        assert_same(outcome(ours, values), outcome(theirs, values), (name, function))
        for index in INDICES:
            expected = outcome(theirs, values, labels, index)
            absent = not np.isin(index, labels).all() if index is not None else False
            if isinstance(expected, type) and (not values.size or labels.dtype == bool):
                continue  # SciPy has no answer; ours is that of regions without values
            found = outcome(ours, values, labels, index)
            if function == "median" and np.ndim(index) and absent:  # NaN, where SciPy has a value of another region
                expected = np.where(np.isin(index, labels), expected, np.nan)
            assert_same(found, expected, (name, function, index))


@pytest.mark.parametrize("name", INPUTS)
def test_histograms(name):
    values, labels = INPUTS[name]
    assert_same(ndimage.histogram(values, 0, 4, 3), scipy.ndimage.histogram(values, 0, 4, 3), name)
    for index in INDICES:
        expected = outcome(scipy.ndimage.histogram, values, 0, 4, 3, labels, index)
        if isinstance(expected, type):  # no elements; several dimensions of index, and booleans, which it cannot have
            continue
        assert_same(ndimage.histogram(values, 0, 4, 3, labels, index), expected, (name, index))


def test_one_region_without_values_has_no_histogram():
    assert ndimage.histogram(np.arange(3.0), 0, 4, 3, np.ones(3, int), 9) is None
    assert ndimage.histogram(np.arange(3.0), 0, 4, 3, np.zeros(3, int)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32])
def test_device_arrays_of_no_dimension(dtype, queue):
    values, labels = np.array(2.0), np.array(1, dtype)
    on_device = [cl_array.to_device(queue, array) for array in (values, labels)]
    assert clhist.group_by(on_device[1]).argmin(on_device[0]).get().tolist() == [0]
    for function in FUNCTIONS:
        ours, theirs = getattr(ndimage, function), getattr(scipy.ndimage, function)
        if function == "center_of_mass":  # which SciPy computes, on the host
            continue
        assert_same(ours(on_device[0]), theirs(values), function)
        for index in (None, 1, [0, 1]):
            expected = theirs(values, labels.astype(int), index)
            found = ours(*on_device, index)
            found = found.get() if isinstance(found, cl_array.Array) else found
            if isinstance(found, tuple):
                found = tuple(each.get() if isinstance(each, cl_array.Array) else each for each in found)
            if function == "median" and index == [0, 1]:
                expected = np.array([np.nan, 2.0])
            assert_same(found, expected, (function, index))


def test_booleans_without_dimension_as_values(queue):
    values, labels = (cl_array.to_device(queue, np.array(each)) for each in (True, 1))
    assert ndimage.maximum(values, labels)
    assert ndimage.mean(values, labels) == 1
    assert ndimage.median(values, labels) == 1
