"""Work-groups of any size, of one work-item and of no power of two: every pair is read once and lost nowhere."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering

from clhist import HistogramKernel, operators
from clhist.selftest.cases import pair_kernel
from clhist.selftest.reference import counts_of

GROUPS = [1, 2, 3, 16, 48, 64, 100]
UPDATES = ["native", "cas", "lock"]


def xor(bins, values, num_bins):
    """Return the exclusive or of the values of each bin."""
    expected = np.zeros(num_bins, values.dtype)
    inside = (bins >= 0) & (bins < num_bins)
    np.bitwise_xor.at(expected, bins[inside], values[inside])
    return expected


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("group", GROUPS)
def test_partitioned(group, update, gpu_like, rng):
    """More partitions than work-items, and few, whose pairs in a tile many work-items read."""
    kernel = pair_kernel(operators.bitwise_xor(np.uint32), gpu_like)
    for partitions, bins, size in ((1, 272, 20_011), (5, 272, 13), (5, 272, 20_011), (33, 3000, 20_011)):
        x, w = rng.integers(-3, bins + 3, size, np.int32), rng.integers(0, 2**32, size, np.uint32)
        choices = {"memory": "partitioned", "passes": partitions, "work_group_size": group, "update": update}
        np.testing.assert_array_equal(kernel(x, w, num_bins=bins, **choices), xor(x, w, bins), f"{choices}")


@pytest.mark.parametrize("group", GROUPS)
def test_partitioned_counts(group, gpu_like, rng):
    """One value for all pairs; and all elements in one bin."""
    kernel = HistogramKernel(None, operators.count(), arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like)
    choices = {"memory": "partitioned", "work_group_size": group}
    for partitions in (2, 64):
        for x in (rng.integers(0, 5000, 9_999, np.int32), np.full(9_999, 4999, np.int32), np.zeros(0, np.int32)):
            found = kernel(x, num_bins=5000, passes=partitions, **choices)
            np.testing.assert_array_equal(found, counts_of(x, 5000))


@pytest.mark.parametrize("group", GROUPS)
def test_a_work_item_may_have_several_partitions(group, gpu_like, rng):
    kernel = pair_kernel(operators.bitwise_xor(np.uint32), gpu_like)
    x, w = rng.integers(-3, 9005, 30_001, np.int32), rng.integers(0, 2**32, 30_001, np.uint32)
    for partitions in (1, 5, 33, 300):
        choices = {"memory": "partitioned", "passes": partitions, "work_group_size": group}
        assert kernel.plan(x.size, 9000, **choices).partitions >= partitions
        np.testing.assert_array_equal(kernel(x, w, num_bins=9000, **choices), xor(x, w, 9000))


@pytest.mark.parametrize(
    ("group", "memory", "update", "is_alone"), covering(GROUPS, ["local", "global"], UPDATES, (True, False))
)
def test_not_partitioned(group, memory, update, is_alone, gpu_like, rng):
    """With one copy, and with one for each work-item."""
    kernel = pair_kernel(operators.bitwise_xor(np.uint32), gpu_like)
    x, w = rng.integers(-3, 75, 20_011, np.int32), rng.integers(0, 2**32, 20_011, np.uint32)
    copies = 1 if is_alone else group
    found = kernel(x, w, num_bins=72, memory=memory, copies=copies, work_group_size=group, update=update)
    np.testing.assert_array_equal(found, xor(x, w, 72))
