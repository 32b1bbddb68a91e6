"""Rows made from the rows of bins, against NumPy's indexing."""

import numpy as np
import pyopencl.array as cl_array
import pytest
from repeats import fetched

from clhist._core.runtime import row_kernels

BINS, SIZE = 17, 1001
RNG = np.random.default_rng(0)
CASES = [("f4", (8,)), ("f8", (3,)), ("f2", ()), ("f4", (2, 2))]


def _by_rows(array, row):
    """Return a number for each row in a shape that broadcasts to rows."""
    return array.reshape(-1, *[1] * len(row))


@pytest.fixture(params=["NumPy", "device"])
def put(request, queue):
    """What makes arguments of NumPy arrays."""
    return (lambda array: array) if request.param == "NumPy" else (lambda array: cl_array.to_device(queue, array))


@pytest.mark.parametrize(("dtype", "row"), CASES)
def test_rows_of_bins_are_those_of_numpy(dtype, row, put):
    table, indices = RNG.random((BINS, *row)).astype(dtype), RNG.integers(-2, BINS + 2, SIZE)
    is_inside, inside = _by_rows((indices >= 0) & (indices < BINS), row), indices.clip(0, BINS - 1)
    wide = np.promote_types(dtype, "f4")
    np.testing.assert_array_equal(
        fetched(row_kernels.gather(put(table), put(indices))), np.where(is_inside, table[inside], 0)
    )
    counts = RNG.integers(0, 5, BINS)
    divided = (table.astype(wide) / _by_rows(np.maximum(counts, 1), row)).astype(dtype)
    got = row_kernels.mean_gradient(put(table), put(indices), put(counts))
    np.testing.assert_array_equal(fetched(got), np.where(is_inside, divided[inside], 0))
    with np.errstate(all="ignore"):
        expected = (table.astype(wide) / _by_rows(counts, row).astype(wide)).astype(dtype)
    np.testing.assert_array_equal(fetched(row_kernels.means(put(table), put(counts), np.dtype(dtype))), expected)


@pytest.mark.parametrize(("dtype", "row"), CASES)
def test_the_gradient_of_an_extreme_is_shared_by_the_values_that_equal_it(dtype, row, put):
    indices, source = RNG.integers(-1, BINS + 1, SIZE), RNG.integers(0, 3, (SIZE, *row)).astype(dtype)
    source[::50] = np.nan
    extremes, gradient = np.full((BINS, *row), 2, dtype), RNG.random((BINS, *row)).astype(dtype)
    extremes[3] = np.nan  # a NaN is the extreme of its bin
    is_inside, inside = _by_rows((indices >= 0) & (indices < BINS), row), indices.clip(0, BINS - 1)
    best = extremes[inside]
    has_won = is_inside & ((source == best) | (np.isnan(source) & np.isnan(best)))
    winners = RNG.integers(0, 4, (BINS, *row)).astype(np.int32)
    share = (gradient.astype(np.promote_types(dtype, "f4")) / np.maximum(winners, 1)).astype(dtype)
    got = row_kernels.extreme_gradient(put(source), put(extremes), put(indices), put(gradient), put(winners))
    np.testing.assert_array_equal(fetched(got), np.where(has_won, share[inside], 0))


@pytest.mark.parametrize(("dtype", "row"), CASES)
def test_rows_of_softmax_and_of_moments(dtype, row, put):
    indices = RNG.integers(-1, BINS + 1, SIZE)
    is_inside, inside = _by_rows((indices >= 0) & (indices < BINS), row), indices.clip(0, BINS - 1)
    source, gradient = (RNG.random((SIZE, *row)).astype(dtype) for _ in range(2))
    table, slope, added = (1 + RNG.random((BINS, *row)).astype(dtype) for _ in range(3))
    wide = np.promote_types(dtype, "f4")
    x, y, bins, slopes, others = (
        a.astype(wide) for a in (source, gradient, table[inside], slope[inside], added[inside])
    )
    tolerance = 4 * np.finfo(dtype).eps
    for got, expected in (
        (row_kernels.exponentials(put(source), put(table), put(indices), wide), np.exp(x - bins)),
        (row_kernels.quotients(put(source), put(table), put(indices), np.dtype(dtype)), x / bins),
        (row_kernels.softmax_gradient(put(source), put(table), put(indices), put(gradient)), x * (y - bins)),
        (
            row_kernels.moments_gradient(put(source), put(table), put(indices), put(slope), put(added)),
            (x - bins) * slopes + others,
        ),
    ):
        np.testing.assert_allclose(fetched(got), np.where(is_inside, expected, 0), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "row"), CASES)
def test_rows_of_logarithms_of_sums(dtype, row, put):
    indices = RNG.integers(-1, BINS + 1, SIZE)
    is_inside, inside = _by_rows((indices >= 0) & (indices < BINS), row), indices.clip(0, BINS - 1)
    wide = np.promote_types(dtype, "f4")
    source, gradient = RNG.random((SIZE, *row)).astype(dtype), RNG.random((BINS, *row)).astype(dtype)
    maxima, sums = (1 + RNG.random((BINS, *row))).astype(dtype), (1 + RNG.random((BINS, *row))).astype(wide)
    tolerance = 4 * np.finfo(dtype).eps
    got = row_kernels.log_sum_gradient(put(source), put(maxima), put(sums), put(indices), put(gradient))
    x, m, g = (array.astype(wide) for array in (source, maxima[inside], gradient[inside]))
    expected = np.where(is_inside, np.exp(x - m) / sums[inside] * g, 0)
    np.testing.assert_allclose(fetched(got), expected, rtol=tolerance, atol=tolerance)
    # A bin without rows has the sum 0, one with an infinite maximum a sum that is NaN.
    sums[3], maxima[4], sums[4], maxima[5], sums[5] = 0, np.inf, np.nan, -np.inf, np.nan
    maxima[6] = sums[6] = np.nan
    expected = np.log(np.where(sums > 0, sums, 1)) + maxima.astype(wide)
    expected[3], expected[6] = 2.5, np.nan
    got = row_kernels.log_sums(put(sums), put(maxima), 2.5)
    assert fetched(got).dtype == dtype
    np.testing.assert_allclose(fetched(got), expected, rtol=tolerance, atol=tolerance)
