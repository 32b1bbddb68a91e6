"""Reproducible sums and what they must be, computed by rational numbers."""

from fractions import Fraction

import numpy as np

from clhist import HistogramKernel
from clhist.selftest.reference import groups_of, nearest

BINS = 37


def drawn(dtype, n=5000, spread=12):
    """Return bins, and values of very different sizes."""
    rng = np.random.default_rng(2020)
    bins = (1.2 * BINS * rng.beta(1, 3, n) - 2).astype(np.int32)
    values = rng.normal(size=n) * 2.0 ** rng.integers(-spread, spread, n)
    return bins, values.astype(dtype)


def same_bits(result, expected):
    assert result.dtype == expected.dtype
    bits = f"u{result.dtype.itemsize}"
    np.testing.assert_array_equal(result.view(bits), expected.view(bits))


def exact_sums(bins, values, num_bins, dest=None):
    """Return the exact sums, each rounded once; an element of `dest` is a value more."""
    groups = groups_of(bins, values, num_bins)
    starts = np.zeros(num_bins) if dest is None else dest
    each = zip(starts.tolist(), groups, strict=True)
    return np.array([nearest(sum(map(Fraction, group), Fraction(d)), values.dtype) for d, group in each])


def by_bin(operator, profile, map="EMIT(bins[i], values[i])"):
    """Return a kernel of bins and values on devices of a profile."""
    arguments = "const int *bins, const value_t *values"
    return HistogramKernel(None, operator, arguments=arguments, map=map, profile=profile)
