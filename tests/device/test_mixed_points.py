"""Points whose coordinates have different dtypes: counted as by NumPy, which converts them to one."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist


def _column(dtype):
    numbers = np.random.default_rng(len(dtype)).integers(0 if dtype in ("?", "u1") else -4, 5, 500)
    return numbers > 2 if dtype == "?" else numbers.astype(dtype)


@pytest.mark.parametrize(("dtype", "other"), [("?", "i1"), ("i1", "?"), ("u1", "i1"), ("?", "f2")])
def test_columns_of_two_dtypes(dtype, other, queue):
    x, y = _column(dtype), _column(other)
    for bins in ([np.arange(-3, 4), np.array([-2, 0, 1], "i1")], [np.array([0.0, 1.0, 4.0]), 3]):
        expected, *_ = np.histogram2d(x, y, bins)
        on_device = clhist.histogram2d(cl_array.to_device(queue, x), cl_array.to_device(queue, y), bins)[0].get()
        for result in (clhist.histogram2d(x, y, bins, queue=queue)[0], on_device):
            np.testing.assert_array_equal(result, expected, f"{bins}")
