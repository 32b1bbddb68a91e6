"""Structured values of many widths and paddings, sorted and partitioned: no compiler may lose or misplace a field."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from records import RECORDS, largest, largest_of, random_records

from clhist import operators
from clhist._core.runtime import scan
from clhist.selftest.cases import pair_kernel

SIZES = (1, 20_011)
BINS = 500
SORTED = ["u1", "i2 i4", "f4 i4", "i4 i4 i4 i4 i4", "i4 i4 i8 u1", "u1 i8 i8 i8 i8"]


def problem(rng, size, dtype):
    """Return bins, of which some are none, values, and the largest of each bin."""
    bins, values = rng.integers(-3, BINS + 3, size, np.int32), random_records(rng, size, dtype)
    return bins, values, largest_of(bins, values, BINS)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("name", SORTED)
def test_sorted(name, kind, gpu_like, rng, monkeypatch):
    """PoCL 3.0 used to lose structs of more than 16 bytes in PyOpenCL's scan, which was taken then."""
    monkeypatch.setattr(scan, "device_kind", lambda device: kind)
    kernel = pair_kernel(largest(RECORDS[name]), gpu_like)
    for size in SIZES:
        bins, values, expected = problem(rng, size, RECORDS[name])
        np.testing.assert_array_equal(kernel(bins, values, num_bins=BINS, update="sort"), expected)


@pytest.mark.parametrize("name", RECORDS)
def test_partitioned(name, gpu_like, rng):
    """PoCL 3.0 used to lose structs of more than 16 bytes between the barriers of the kernel that partitions.

    Of values of an odd number of bytes every device lost the last of a tile.
    """
    small = dataclasses.replace(gpu_like, work_group_size=16)  # the tiles of large values fit its local memory
    kernel = pair_kernel(largest(RECORDS[name]), small)
    for size in SIZES:
        bins, values, expected = problem(rng, size, RECORDS[name])
        found = kernel(bins, values, num_bins=BINS, update="lock", memory="partitioned", passes=5)
        np.testing.assert_array_equal(found, expected)


def test_narrow_pairs_of_separate_arrays_are_sorted(gpu_like, rng):
    bins, values = rng.integers(0, 30, 3000, np.int32), rng.integers(-99, 99, 3000).astype(np.int16)
    operator = operators.argmin(np.int16)
    pairs = np.zeros(3000, operator.dtype)
    pairs["value"], pairs["index"] = values, np.arange(3000)
    found = pair_kernel(operator, gpu_like)(bins, pairs, num_bins=30, update="sort")
    for k in range(30):
        of_bin = np.flatnonzero(bins == k)
        assert tuple(found[k]) == (values[of_bin].min(), of_bin[values[of_bin].argmin()])
