"""`clhist.ndimage`: SciPy's own tests of measurements with our functions in the place of SciPy's, and random images."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist.ndimage as ours

scipy_ndimage = pytest.importorskip("scipy.ndimage")
measurements = pytest.importorskip("scipy.ndimage.tests.test_measurements")

ALL = (
    *("sum_labels", "mean", "variance", "standard_deviation", "minimum", "maximum", "extrema", "minimum_position"),
    *("maximum_position", "center_of_mass", "median"),
)
TYPES = ["uint8", "float64"]  # of the ten, each of which is a set of programs to compile
NAMES = ("sum", "mean", "minimum", "maximum", "median", "variance", "standard", "extrema", "center", "histogram")
SCIPY_TESTS = [
    name
    for name in dir(measurements)
    if name.startswith("test_") and name.removeprefix("test_").startswith((*NAMES, "stat_funcs"))
]


def same(found, expected, rtol=1e-12):
    """Assert that results of either library are the same, tuples and lists of tuples included."""
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, rtol)
    else:
        expected = np.asarray(expected)
        assert np.shape(found) == expected.shape
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol)
        else:
            np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("name", SCIPY_TESTS)
def test_scipys_own_test(name, monkeypatch):
    functions = {function: getattr(ours, function) for function in (*ALL, "histogram")}
    both = {**vars(scipy_ndimage), **functions, "sum": ours.sum_labels}
    monkeypatch.setattr(measurements, "ndimage", SimpleNamespace(**both))
    monkeypatch.setattr(measurements, "types", TYPES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of SciPy's tests themselves
        getattr(measurements, name)(np)


def test_scipys_tests_are_there():
    assert len(SCIPY_TESTS) > 60


@pytest.fixture(scope="module")
def image():
    """Values without ties, and labels 0 to 40 of which some are missing."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 40, (57, 41)).astype(np.int32)
    labels[(labels == 7) | (labels == 23)] = 0
    values = rng.permutation(labels.size).reshape(labels.shape).astype(np.float32) / 7 - 100
    return values, labels


INDICES = [None, 5, [3, 1, 7, 40, 3], np.arange(60), np.array([[1, 2], [23, -4]])]


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize("index", INDICES, ids=["None", "one", "some", "all and more", "in two dimensions"])
@pytest.mark.filterwarnings("ignore:(invalid value|divide by zero|Mean of empty):RuntimeWarning")
def test_regions(function, index, image):
    values, labels = image
    expected = getattr(scipy_ndimage, function)(values, labels, index)
    found = getattr(ours, function)(values, labels, index)
    if function == "median" and index is not None and np.ndim(index):  # SciPy's of a missing region is that of another
        there = np.isin(index, labels)
        expected[~there] = np.nan
    single = index is None or np.ndim(index) == 0
    same(
        found,
        expected,
        1e-5 if single and function in ("sum_labels", "mean", "variance", "standard_deviation") else 1e-6,
    )
    if not isinstance(expected, tuple | list):
        assert np.asarray(found).dtype == np.asarray(expected).dtype or (single and function != "minimum")


@pytest.mark.parametrize("function", ALL)
def test_without_labels(function, image):
    values = image[0].astype(np.float64)
    same(getattr(ours, function)(values), getattr(scipy_ndimage, function)(values))


@pytest.mark.parametrize("labels", ["negative", "large", "floats", "broadcast"])
@pytest.mark.parametrize("function", ["sum_labels", "maximum", "maximum_position"])
def test_other_labels(function, labels, image):
    values, plain = image
    given = {
        "negative": plain - 20,
        "large": plain.astype(np.int64) * 10**12,
        "floats": plain / 4,
        "broadcast": plain[0],
    }[labels]
    for index in (np.unique(given)[:9], np.append(given.ravel()[:3], 10**15), given.ravel()[5], None):
        expected = getattr(scipy_ndimage, function)(values, given, index)
        same(getattr(ours, function)(values, given, index), expected, 1e-5)


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.uint64])
def test_integers(dtype, image):
    labels = image[1]
    values = (image[0].astype(np.int64) % 251).astype(dtype)
    for function in ("sum_labels", "minimum", "maximum", "median"):
        found, expected = (getattr(each, function)(values, labels, np.arange(40)) for each in (ours, scipy_ndimage))
        there = np.isin(np.arange(40), labels)
        same(found[there], expected[there])
        assert found.dtype == expected.dtype


def test_nan_is_above_all(image):
    values, labels = image[0].copy(), image[1]
    values[3:9] = np.nan
    for function in ("minimum", "maximum", "minimum_position", "sum_labels"):
        found, expected = (getattr(each, function)(values, labels, np.arange(40)) for each in (ours, scipy_ndimage))
        same(found, expected, 1e-6)
    assert np.isnan(ours.minimum(values))
    assert np.isnan(scipy_ndimage.minimum(values))


@pytest.mark.filterwarnings("ignore:Converting input from bool:RuntimeWarning")  # NumPy's, of SciPy's call
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize("index", [None, 5, [3, 1, 7, 40]])
def test_histogram(dtype, index, image):
    values = np.round(image[0]).astype(dtype)
    found, expected = (each.histogram(values, -20, 101.0, 37, image[1], index) for each in (ours, scipy_ndimage))
    if index is None or np.ndim(index) == 0:
        np.testing.assert_array_equal(found, expected)
        return
    assert [each is None for each in found] == [each is None for each in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_histogram_on_edges():
    edges = np.linspace(-0.3, 0.7, 12)
    values = np.concatenate([edges, np.nextafter(edges, 9), np.nextafter(edges, -9), [np.nan, np.inf, -np.inf]])
    for dtype in (np.float64, np.float32):
        given = values.astype(dtype)
        same(ours.histogram(given, -0.3, 0.7, 11), scipy_ndimage.histogram(given, -0.3, 0.7, 11))
    whole = np.arange(-3, 4)  # of which none is between these
    same(ours.histogram(whole, 0.2, 0.7, 3), scipy_ndimage.histogram(whole, 0.2, 0.7, 3))


@pytest.mark.parametrize("function", ALL)
@pytest.mark.filterwarnings("ignore:(invalid value|divide by zero):RuntimeWarning")
def test_device_arrays(function, image, queue: cl.CommandQueue):
    values, labels = image
    given, marks = (cl_array.to_device(queue, each) for each in image)
    index = [3, 1, 23, 9]
    found, on_host = getattr(ours, function)(given, marks, index), getattr(ours, function)(values, labels, index)
    if function in ("center_of_mass", "extrema") or function.endswith("position"):
        if function == "extrema":
            assert isinstance(found[0], cl_array.Array)
            found = (found[0].get(), found[1].get(), *found[2:])
        same(found, on_host)
    else:
        assert isinstance(found, cl_array.Array)
        same(found.get(), on_host)
    same(getattr(ours, function)(given, marks, 9), getattr(ours, function)(values, labels, 9))
    same(getattr(ours, function)(given, marks), getattr(ours, function)(values, labels))


def test_scipy_is_not_imported_for_nothing():
    code = "import sys, numpy, clhist; clhist.ndimage.mean(numpy.arange(9.0)); sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bad_input(image, queue: cl.CommandQueue):
    values, labels = image
    device = cl_array.to_device(queue, values)
    with pytest.raises(TypeError, match="labels: expected a PyOpenCL array"):
        ours.mean(device, labels)
    with pytest.raises(TypeError, match="input: expected a PyOpenCL array"):
        ours.mean(values, cl_array.to_device(queue, labels))
    with pytest.raises(ValueError, match="index: expected non-negative integers on a device"):
        ours.mean(device, cl_array.to_device(queue, labels), [-1])
    with pytest.raises(ValueError, match="zero-size array to reduction operation minimum"):
        ours.minimum(values, labels, 23)
    with pytest.raises(ValueError, match="shape"):
        ours.mean(values, labels[:3])
    same(ours.sum_labels(values * 1j, labels, 3), (values * 1j)[labels == 3].sum(), 1e-5)
    same(ours.mean(values.astype(np.longdouble)), scipy_ndimage.mean(values.astype(np.longdouble)))
