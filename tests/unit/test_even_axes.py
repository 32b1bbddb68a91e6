"""Axes of even bins from scalars equal those that are made of all thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from clhist.axes.axis import axis_of, even_axis
from clhist.axes.guess import Guess
from clhist.axes.thresholds import numpy_bins, within_range
from clhist.binned.host import even_edges

RANGES = [
    (0.0, 1.0), (-0.0, 3.0), (-1.0, 0.0), (-3.0, 3.0), (-7.0, 13.0), (1e3, 2e3), (1e-300, 3e-300), (-1e30, 1e30),
    (1.0, 1.0 + 1e-9), (1e6, 1e6 + 1), (-1e-5, 1e7), (0.1, 0.7), (0, 1), (-3, 4.5), (0, 2**53 + 2),
    (-(2**30) - 1, 2**31), (np.float64(-1), 2), (np.float64(0.1), np.float64(0.7)), (np.float32(0.1), 3),
    (-1e38, 2e38), (0.0, 3.4e38), (16777216.0, 16777220.0), (0.0, 1e-44), (0.0, 5e-324), (0.0, 1e-40),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ends", RANGES, ids=str)
def test_even_axes_are_those_of_thresholds(dtype, ends):
    dtype, number_of_axes = np.dtype(dtype), 0
    for number in (1, 2, 3, 7, 20, 100, 499, 4000):
        try:
            expected = np.histogram_bin_edges(np.empty(0, dtype), number, ends)
        except ValueError:  # of ranges that so many bins cannot divide
            with pytest.raises(ValueError, match="Too many bins"):
                even_edges(number, ends, dtype)
            continue
        edges = even_edges(number, ends, dtype)
        assert edges.tobytes() == expected.tobytes()
        axis = even_axis(edges, dtype, *ends, fp64=True)
        if axis is None:
            continue
        number_of_axes += 1
        other = axis_of(within_range(numpy_bins(edges, dtype), *ends), fp64=True)
        assert (axis.kind, axis.extent) == (other.kind, other.extent)
        np.testing.assert_array_equal(axis.arrays[0], other.arrays[0])
        assert list(map(type, axis.scalars)) == list(map(type, other.scalars))
        assert axis.scalars[:-1] == other.scalars[:-1]
        assert axis.scalars[-1] >= other.scalars[-1] * (1 - 1e-6)  # an upper bound of the measured margin
    is_plain = 1e-9 < abs(ends[1] - ends[0]) < 1e30 and max(map(abs, ends)) < 1e4 * (ends[1] - ends[0])
    # For other scalars of NumPy, and integers that float64 rounds, an axis needs all thresholds.
    is_plain = is_plain and all(type(end) in (int, float) and abs(end) < 2**53 for end in ends)
    assert number_of_axes > 2 or not is_plain


@pytest.mark.parametrize("dtype", ["i2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("ends", RANGES, ids=str)
def test_even_edges_of_integers_are_numpys(dtype, ends):
    for number in (1, 2, 3, 7, 100, 499):
        try:
            expected = np.histogram_bin_edges(np.empty(0, dtype), number, ends)
        except ValueError:  # of ranges that so many bins cannot divide
            continue
        edges = even_edges(number, ends, np.dtype(dtype))
        assert edges.dtype == expected.dtype
        assert edges.tobytes() == expected.tobytes()


@pytest.mark.parametrize("ends", RANGES, ids=str)
def test_even_axes_of_edges_that_are_wider_than_the_data(ends):
    dtype, (low, high) = np.dtype(np.float32), map(float, ends)
    for number in (1, 2, 3, 7, 20, 100, 250):
        edges = np.linspace(low, high, number + 1)
        axis = even_axis(edges, dtype, edges[0], edges[-1], fp64=True)
        if axis is None:
            continue
        bins = numpy_bins(edges, dtype)
        count, start, last, first, scale, margin = axis.scalars
        assert (count, axis.extent, start, last) == (number, number, bins.keys[0], bins.last)
        np.testing.assert_array_equal(axis.arrays[0], bins.keys)
        measured = Guess(first, scale).margin(bins)
        assert measured is not None
        assert margin >= measured * (1 - 1e-6)
    assert even_axis(np.linspace(0, 1, 11), dtype, 0.0, 1.0, fp64=True) is not None
    assert even_axis(np.linspace(0, 1, 11), dtype, 0.0, 1.5, fp64=True) is None
