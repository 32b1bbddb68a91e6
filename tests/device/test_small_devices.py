"""Devices that lack double precision, 64-bit atomics, local memory or large work-groups, as boards and phones do."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering
from small_devices import small_device

import clhist
from clhist import UnsupportedError
from clhist._core.opencl.device import device_kind
from clhist.selftest.checks import HOLDS, UNAVAILABLE
from clhist.selftest.digests import CASES, check_case
from clhist.selftest.suite import checks

pytestmark = [
    pytest.mark.skipif(device_kind(clhist.default_queue().device) != "cpu", reason="CPUs stand for small devices"),
    pytest.mark.usefixtures("without_optimizer"),
]
ALL = "all of these"
WANTED = ("native, local", "cas, global", "sort", "lengths", "batches, even and flat", "bincount")


def test_the_quick_checks_on_the_smallest_device(queue):
    with small_device(ALL, queue.device) as (small, launches):
        profile = clhist.device_profile(small.device)
        assert (profile.kind, profile.local_memory, profile.work_group_size) == ("gpu", 16 << 10, 64)
        assert not profile.features
        outcomes = [check.run() for check in checks(small, quick=True) if check.row in WANTED]
        assert {outcome.words for outcome in outcomes if outcome.status not in (HOLDS, UNAVAILABLE)} == set()
        assert {outcome.check.row for outcome in outcomes if outcome.status == HOLDS} == set(WANTED)
        assert launches.number > 50


@pytest.mark.parametrize("num_bins", [7, 5003])
def test_counts_and_sums_of_32_bits(num_bins, queue, rng):
    """Below the bins of local memory, and beyond."""
    keys = rng.integers(0, num_bins, 40_001, np.int32)
    values = rng.integers(-99, 99, keys.size, np.int32)
    with small_device(ALL, queue.device) as (small, _):
        counts = clhist.bincount(keys, minlength=num_bins, queue=small)
        sums = clhist.reduce_by_index(np.zeros(num_bins, np.int32), np.add, keys, values, queue=small)
        floats = clhist.reduce_by_index(np.zeros(num_bins, np.float32), np.add, keys, values.astype("f4"), queue=small)
        least = clhist.reduce_by_index(
            np.full(num_bins, 99, np.int8), np.minimum, keys, values.astype("i1"), queue=small
        )
    np.testing.assert_array_equal(counts, np.bincount(keys, minlength=num_bins))
    expected = np.zeros(num_bins, np.int32)
    np.add.at(expected, keys, values)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(floats, expected)  # of integers far below 2^24: exact
    expected = np.full(num_bins, 99, np.int8)
    np.minimum.at(expected, keys, values.astype("i1"))
    np.testing.assert_array_equal(least, expected)


@pytest.mark.parametrize(  # a program for each
    ("name", "dtype", "first"),
    covering(["16 KiB of local memory", "32 KiB of local memory", ALL], [np.float32, np.int64], [False, True]),
)
def test_keys_of_any_range_are_numbered_in_little_local_memory(name, dtype, first, queue, rng):
    """With first positions, whose tables are larger, and without, of few keys and of many."""
    values = np.ones(20_001, np.int32)
    with small_device(name, queue.device) as (small, _):
        for number in (99, 15_000):
            keys = rng.integers(-(2**20), 2**20, number)[rng.integers(0, number, values.size)].astype(dtype)
            if first:
                found = clhist.unique(keys, True, True, True, queue=small)
                for got, wanted in zip(found, np.unique(keys, True, True, True), strict=True):
                    np.testing.assert_array_equal(got, wanted)
            else:
                sums = clhist.group_by(keys, queue=small).sum(values)
                np.testing.assert_array_equal(sums, np.unique(keys, return_counts=True)[1])


def test_what_needs_double_precision_is_refused_before_anything_is_enqueued(queue, rng):
    keys = rng.integers(0, 7, 40_001, np.int32)
    values = rng.random(keys.size)
    with small_device(ALL, queue.device) as (small, launches):
        with pytest.raises(
            UnsupportedError, match=r"operator: .* has no double precision \(cl_khr_fp64\); use float32"
        ):
            clhist.reduce_by_index(np.zeros(7), np.add, keys, values, queue=small)
        with pytest.raises(UnsupportedError, match="has no double precision"):
            clhist.HistogramKernel(
                small.context,
                clhist.operators.add(np.int32),
                arguments="const int *b, const double *w",
                map="EMIT(b[i], w[i] > 0)",
            )
        assert launches.number == 0


def test_statistics_by_bins_are_refused_before_anything_is_enqueued(queue, rng):
    """They are float64, as SciPy's, whatever the values are; what the message names computes them in float32."""
    x = rng.random(40_001).astype(np.float32)
    with small_device("no double precision", queue.device) as (small, launches):
        for dtype in ("f2", "f4", "f8", "i8"):
            for statistic in ("mean", "std", "max", "median"):
                with pytest.raises(
                    UnsupportedError,
                    match=r"^values: .* has no double precision \(cl_khr_fp64\); use clhist.group_by with .*digitize",
                ):
                    clhist.stats.binned_statistic(x, x.astype(dtype), statistic, bins=5, queue=small)
        assert launches.number == 0
        bins = clhist.digitize(x, np.linspace(0, 1, 6), queue=small)
        medians = clhist.group_by(bins, queue=small).agg(v=(x, "median"))["v"]["median"]
    np.testing.assert_allclose(medians, [np.median(x[bins == k]) for k in range(1, 6)], rtol=1e-6)


def test_the_feature_that_a_forced_update_lacks(queue, rng):
    keys = rng.integers(0, 7, 40_001, np.int32)
    with small_device("no 64-bit atomics", queue.device) as (small, launches):
        for update, memory in (("cas", "local"), ("native", "global")):
            with pytest.raises(
                ValueError, match=rf"^update: '{update}' .*; available: private, lock; .*\(cl_khr_int64_base_atomics\)"
            ):
                clhist.reduce_by_index(
                    np.zeros(7, np.int64),
                    np.add,
                    keys,
                    keys.astype(np.int64),
                    queue=small,
                    update=update,
                    memory=memory,
                )
        assert launches.number == 0


def test_functions_that_compute_in_double_precision_elsewhere(queue, rng):
    """Their results are those of NumPy, or they say what is missing."""
    keys = rng.integers(0, 7, 40_001, np.int32)
    values = rng.integers(0, 1000, keys.size).astype(np.float32) / 8
    with small_device(ALL, queue.device) as (small, _):
        counts, edges = clhist.histogram(values, bins=50, range=(0, 125), queue=small)
        stats = clhist.group_by(keys, queue=small).agg(v=(values, "mean", "max", "count"))["v"]
        exact = clhist.reduce_by_index(np.zeros(7, "f4"), np.add, keys, values, reproducible=True, queue=small)
    expected, expected_edges = np.histogram(values, 50, (0, 125))
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(edges, expected_edges)
    groups = [values[keys == k].astype(float) for k in range(7)]
    np.testing.assert_allclose(stats["mean"], [group.mean() for group in groups], rtol=1e-6)
    np.testing.assert_array_equal(stats["max"], [group.max() for group in groups])
    np.testing.assert_array_equal(stats["count"], [group.size for group in groups])
    np.testing.assert_array_equal(exact, np.array([group.sum() for group in groups], np.float32))


def test_bits_of_exact_sums(queue):
    """Those of every other device, where float32 is all there is."""
    with small_device(ALL, queue.device) as (small, _):
        for case in CASES:
            if case.dtype is np.float32 and case.max_abs is None and case.kind in ("cancelling", "all sizes"):
                check_case(case, small, ways=({}, {"update": "carry", "memory": "global"}))
