"""Outputs of one kernel whose values all pairs share, beside others whose values differ."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering, each_value_quick

import clhist
from clhist import operators

SIZE = 50_021


WAYS = [(14_000, {}), (14_000, {"memory": "partitioned"}), (300, {})]


@pytest.mark.parametrize(("first_has_values", "way"), each_value_quick(covering([True, False], WAYS)))
def test_sums_beside_counts(first_has_values, way, gpu_like, queue, rng):
    """By 16-bit counters and by partitions too, which store no value where all pairs share one."""
    bins, choices = way
    x = rng.integers(-9, bins + 9, SIZE).astype(np.int32)
    w = rng.integers(-9, 9, SIZE).astype(np.int32)
    code = "EMIT0(x[i], w[i]); EMIT1(x[i], 1)" if first_has_values else "EMIT0(x[i], 1); EMIT1(x[i], w[i])"
    kernel = clhist.HistogramKernel(
        queue.context, [operators.add(np.int32)] * 2, arguments="const int *x, const int *w", map=code, profile=gpu_like
    )
    inside = (x >= 0) & (x < bins)
    sums = np.bincount(x[inside], w[inside], bins).astype(np.int32)
    counts = np.bincount(x[inside], minlength=bins).astype(np.int32)
    results = kernel(x, w, num_bins=bins, **choices)
    for result, expected in zip(results, (sums, counts) if first_has_values else (counts, sums), strict=True):
        np.testing.assert_array_equal(result, expected)
