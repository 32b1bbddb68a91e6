"""The table of digests of exact sums, computed from the definition."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from clhist.selftest.digests import CASES, TABLE, digest, inputs
from clhist.selftest.reference import nearest


def rounded(value, max_abs, dtype):
    """Return a value as a multiple of a window's quantum: 2^-bits times the least power of 16 above `max_abs`."""
    if max_abs is None:
        return Fraction(value)
    power = Fraction(1)
    while power <= Fraction(max_abs):
        power *= 16
    quantum = power / 2 ** (8 * np.dtype(dtype).itemsize)
    return round(Fraction(value) / quantum) * quantum


def defined(bins, values, num_bins, max_abs):
    """Return the sums of one column."""
    groups = [[] for _ in range(num_bins)]
    for k, value in zip(bins.tolist(), values.tolist(), strict=True):
        if 0 <= k < num_bins:
            groups[k].append(value)
    found = np.zeros(num_bins, values.dtype)
    for k, group in enumerate(groups):
        special = [v for v in group if not np.isfinite(v)]
        if special:
            both = np.inf in special and -np.inf in special
            found[k] = np.nan if both or any(np.isnan(special)) else special[0]
        else:
            found[k] = nearest(sum((rounded(v, max_abs, values.dtype) for v in group), Fraction(0)), values.dtype)
    return found


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_large], ids=lambda case: case.name)
def test_table(case):
    bins, values = inputs(case)
    if values.dtype.kind == "c":
        values = values.view(f"f{values.itemsize // 2}").reshape(-1, 2)
    columns = [np.ascontiguousarray(c) for c in (values.T if values.ndim > 1 else [values])]
    found = np.stack([defined(bins, c, case.shape[0], case.max_abs) for c in columns], axis=-1)
    assert np.isfinite(found).sum() >= found.size - 4
    assert digest(found) == TABLE[case.name]


@pytest.mark.parametrize("case", [case for case in CASES if case.is_large], ids=lambda case: case.name)
def test_table_of_many_elements(case):
    bins, values = inputs(case)
    (bins, values), (num_bins,) = (each[(bins >= 0) & (bins < case.shape[0])] for each in (bins, values)), case.shape
    is_large = values > 2.0**99
    # All others are multiples of 2^-30 below 2^5.
    sums = np.zeros(num_bins, np.int64)
    np.add.at(sums, bins[~is_large], np.ldexp(values[~is_large].astype(np.float64), 30).astype(np.int64))
    exact = [Fraction(int(total), 2**30) for total in sums]
    for k in bins[is_large]:
        exact[k] += 2**100
    assert digest(np.array([nearest(each, values.dtype) for each in exact])) == TABLE[case.name]


def test_every_case_is_in_the_table_once():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(TABLE)
