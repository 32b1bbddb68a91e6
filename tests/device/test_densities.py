"""Densities and float64 counts of device arrays, which the device computes: NumPy's to the bit."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick

import clhist

pytestmark = pytest.mark.usefixtures("with_optimizer")

EDGES = np.sort(np.random.default_rng(3).normal(size=20)).astype(np.float32)
BINS = {
    "of the range": (30, None),
    "of a range": (30, (-20.5, 20)),
    "by edges of float32": (EDGES, None),
    "by edges of integers": (np.arange(-5, 8), None),
    "many": (5000, None),
}


@pytest.fixture(autouse=True)
def _needs_fp64(queue):
    if not queue.device.double_fp_config:
        pytest.skip("no double precision")


def check(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize(("dtype", "name"), each_value_quick(covering(["f4", "f8", "i4"], BINS)))
def test_of_one_dimension(name, dtype, queue, rng):
    bins, ends = BINS[name]
    for _ in range(3):  # the first call, and repeats
        x = (rng.normal(size=3000) * 9).astype(dtype)
        expected, edges = np.histogram(x, bins, ends, density=True)
        found, edges_found = clhist.histogram(cl_array.to_device(queue, x), bins, ends, density=True)
        check(found, expected)
        np.testing.assert_array_equal(edges_found, edges)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "u8"])
def test_of_weights_that_are_integers(dtype, queue, rng):
    for _ in range(3):
        x, weights = rng.random(3000), rng.integers(0, 99, 3000).astype(dtype)
        expected, _ = np.histogram(x, 20, (0, 1), density=True, weights=weights)
        arrays = (cl_array.to_device(queue, array) for array in (x, weights))
        found, _ = clhist.histogram(next(arrays), 20, (0, 1), density=True, weights=next(arrays))
        check(found, expected)


def test_of_weights_that_are_floats(queue, rng):
    for _ in range(3):
        x, weights = rng.random(3000), rng.random(3000)
        expected, _ = np.histogram(x, 20, (0, 1), density=True, weights=weights)
        arrays = (cl_array.to_device(queue, array) for array in (x, weights))
        found, _ = clhist.histogram(next(arrays), 20, (0, 1), density=True, weights=next(arrays))
        np.testing.assert_allclose(found.get(), expected)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("ends", [None, (-20, 20)])
def test_of_several_dimensions(ends, dims, density, queue, rng):
    bins, ranges = [5, np.linspace(-30, 50, 8), 6][:dims], None if ends is None else [ends] * dims
    for _ in range(3):
        columns = [rng.normal(size=3000) * 9 for _ in range(dims)]
        expected, _ = np.histogramdd(columns, bins, ranges, density=density)
        found, _ = clhist.histogramdd(
            [cl_array.to_device(queue, column) for column in columns], bins, ranges, density=density
        )
        check(found, expected)


@pytest.mark.parametrize("ends", [None, (-3, 3)])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_of_rows(rows, ends, queue, rng):
    for _ in range(3):
        x = rng.normal(size=(rows, 70))
        edges = np.histogram_bin_edges(x, 10, ends)
        expected = np.array([np.histogram(row, edges, density=True)[0] for row in x])
        check(clhist.histogram(cl_array.to_device(queue, x), 10, ends, density=True, axis=1)[0], expected)


def test_into_another_array(queue, rng):
    for _ in range(3):
        x, out = rng.random(900), cl_array.zeros(queue, 20, np.float64)
        found, _ = clhist.histogram(cl_array.to_device(queue, x), 20, (0, 1), density=True, out=out)
        assert found is out
        check(found, np.histogram(x, 20, (0, 1), density=True)[0])


@pytest.mark.filterwarnings("error")
def test_without_elements_they_are_nan_and_nothing_warns(queue):
    for _ in range(2):
        found, _ = clhist.histogram(cl_array.zeros(queue, 9, np.float64), 2, (1, 2), density=True)
        assert np.isnan(found.get()).all()
