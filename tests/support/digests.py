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
    starts = np.zeros(num_bins) if dest is None else dest
    each = zip(starts.tolist(), groups_of(bins, values, num_bins), strict=True)
    return np.array([nearest(Fraction(d) + sum_of(group), values.dtype) for d, group in each])


def sum_of(group):
    """Return the sum of floats: of each exponent the fractions, in two integers, are summed by NumPy."""
    fractions, exponents = np.frexp(np.asarray(group, np.float64))
    fractions = (fractions * 2.0**53).astype(np.int64)
    if not len(fractions):
        return Fraction(0)
    order = np.argsort(exponents)
    fractions = fractions[order]
    different, begins = np.unique(exponents[order], return_index=True)
    high, low = (np.add.reduceat(part, begins).tolist() for part in (fractions >> 30, fractions & (2**30 - 1)))
    sums = {exponent: (h << 30) + rest for exponent, h, rest in zip(different.tolist(), high, low, strict=True)}
    least = min(sums)
    total = sum(number << (exponent - least) for exponent, number in sums.items())
    return total * Fraction(2) ** (least - 53)


def by_bin(operator, profile, map="EMIT(bins[i], values[i])"):
    """Return a kernel of bins and values on devices of a profile."""
    arguments = "const int *bins, const value_t *values"
    return HistogramKernel(None, operator, arguments=arguments, map=map, profile=profile)
