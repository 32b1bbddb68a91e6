"""Statistics by bins of few plain numbers, which NumPy computes, are SciPy's bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from clhist.binned.few_statistics import are_plain_statistics, few_statistics

scipy_stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")


def assert_equal(ours, theirs):
    np.testing.assert_array_equal(ours, theirs)
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype


@pytest.mark.parametrize("statistic", ["mean", "std", "median", "count", "sum", "min", "max"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint64])
@pytest.mark.parametrize("dims", [1, 2])
def test_as_scipy(statistic, dtype, dims, rng):
    for _ in range(40):
        size, scale = int(rng.integers(1, 60)), rng.choice([1e-3, 1, 1e3, 1e8])
        sample = [
            np.abs(scale * rng.normal(size=size)).round(int(rng.integers(0, 4))).astype(dtype) for _ in range(dims)
        ]
        values = rng.integers(-9, 9, size).astype(float)  # whose sums are exact
        if statistic != "std":
            values[rng.random(size) < 0.02] = np.nan
        range_ = None if rng.random() < 0.5 else [(0.0, float(scale))] * dims
        bins, expand = int(rng.integers(1, 12)), bool(rng.integers(2))
        assert are_plain_statistics(sample, values, statistic, bins, range_)
        found = few_statistics(sample, values, statistic, bins, range_, expand=expand)
        if found is None:  # bins around equal numbers of float32 that have no width
            with pytest.raises(ValueError, match="smallest edge difference"):
                scipy_stats.binned_statistic_dd(sample, values, statistic, bins, range_, expand)
            continue
        expected = scipy_stats.binned_statistic_dd(sample, values, statistic, bins, range_, expand)
        if statistic == "std":
            np.testing.assert_allclose(found[0], expected.statistic, rtol=1e-13, atol=1e-14)
        else:
            assert_equal(found[0], expected.statistic)
        for ours, theirs in zip(found[1], expected.bin_edges, strict=True):
            assert_equal(ours, theirs)
        assert_equal(found[2], expected.binnumber)


def test_standard_deviations_of_large_values():
    values = 1e9 + np.arange(8) % 2
    found = few_statistics([np.zeros(8)], values, "std", 1, None, expand=False)
    np.testing.assert_array_equal(found[0], [0.5])


@pytest.mark.parametrize("sample", [[0.0, np.nan], [0.0, np.inf], [1e300, 1e300]])
def test_what_checks_have_to_refuse(sample):
    assert few_statistics([np.array(sample)], np.ones(2), "sum", 3, None, expand=False) is None
