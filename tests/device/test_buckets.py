"""Private copies that are updated by way of buckets, by ranges of bins."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from covering import covering
from operator_checks import COMPUTED, check_computed_bins, check_operator

import clhist
from clhist import HistogramKernel, Problem, operators
from clhist.opencl.device import profile_context
from clhist.planning import bucketed
from clhist.planning.choose import plan_sweep
from clhist.planning.private_rates import GRID, KINDS, buckets_name, cells_name
from clhist.planning.problem import Choices
from clhist.planning.sweeps import plan
from clhist.planning.times import CELLS
from clhist.selftest.cases import CASES, pair_kernel
from clhist.selftest.inputs import DISTRIBUTIONS, drawn
from clhist.selftest.reference import counts_of

COUNT = operators.add(np.int32)
BUCKETS = {"update": "private", "memory": "partitioned"}


@pytest.fixture
def small(monkeypatch):
    """Buckets of 16 pairs, which are emptied often."""
    monkeypatch.setattr(bucketed, "MOST_ROOM", 16)
    plan_sweep.cache_clear()
    yield
    plan_sweep.cache_clear()


@pytest.mark.parametrize(("passes", "buckets", "bits"), [(None, 5, 16), (5, 5, 16), (6, 10, 15), (300_000, 300_001, 0)])
def test_the_plan(passes, buckets, bits, few_items):
    found = pair_kernel(COUNT, few_items).plan(10**6, 300_000, passes=passes, **BUCKETS)
    assert (found.strategy, found.buckets, found.place_bits, found.copies) == ("bucketed", buckets, bits, 3)
    assert (found.passes, found.bins_per_pass, found.turns) == (1, 300_000, 1)
    assert f"by way of {buckets:,} buckets" in str(found)


@pytest.mark.parametrize(("name", "ranges"), covering(list(CASES), (1, 7)))
def test_operators(name, ranges, few_items, small):
    """Also with `dest`, and without elements."""
    check_operator(name, few_items, passes=ranges, **BUCKETS)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distributions(distribution, few_items, small, rng):
    bins = drawn(distribution, rng, 4001, 300)
    kernel = HistogramKernel(None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=few_items)
    for ranges in (1, 4, 300):
        found = kernel(bins, num_bins=300, passes=ranges, **BUCKETS)
        np.testing.assert_array_equal(found, counts_of(bins, 300))


@pytest.mark.parametrize("code", COMPUTED)
@pytest.mark.parametrize("ranges", [1, 2, 8])
def test_bins_that_are_computed(ranges, code, few_items, small):
    check_computed_bins(code, few_items, passes=ranges, **BUCKETS)


def test_maps_that_emit_often(few_items, small, rng):
    """Several pairs of an element, some outside, of one value that is an argument; bins of 64 bits."""
    kernel = HistogramKernel(
        None, COUNT, arguments="const long *bins, int w", map="for (int k = -1; k < 2; ++k) EMIT(bins[i] + k, w)",
        profile=few_items,
    )  # fmt: skip
    bins = rng.integers(-2, 50, 1001)
    bins[::100] = 2**32 + 7
    expected = sum(counts_of(bins + k, 50) for k in (-1, 0, 1)) * 5
    np.testing.assert_array_equal(kernel(bins, 5, num_bins=50, passes=4, **BUCKETS), expected)


def test_places_of_sixteen_bits(few_items, rng):
    """Ranges of 65,536 bins: the first and the last place of each, and as many bins as there are, and one more."""
    for num_bins in (65_535, 65_536, 65_537, 200_000):
        edges = [bin for k in range(0, num_bins, 65_536) for bin in (k - 1, k, k + 1)]
        bins = np.concatenate([rng.integers(-5, num_bins + 5, 50_000), np.repeat(edges, 3)]).astype(np.int32)
        kernel = HistogramKernel(None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=few_items)
        np.testing.assert_array_equal(kernel(bins, num_bins=num_bins, **BUCKETS), counts_of(bins, num_bins))


def rated(profile, buckets):
    each = {cells_name(kind, cells): 1.0 if cells < 2**18 else 0.2 for kind in KINDS for cells in GRID}
    return dataclasses.replace(
        profile, rates=each | {buckets_name(kind): buckets for kind in KINDS} | {CELLS: 10.0}, hardware_threads=3
    )


@pytest.mark.parametrize(
    ("bins", "size", "buckets", "more", "expected"),
    [
        (1_400_000, 20_000_000, 0.4, {}, "bucketed"),
        (1_400_000, 20_000_000, 0.2, {}, "private"),  # no gain
        (1_400_000, 20_000_000, 0.0, {}, "private"),  # not measured
        (50_000, 20_000_000, 9.0, {}, "private"),  # of one range
        (1_400_000, 200_000, 0.4, {}, "private"),  # few pairs for each range
        (1_400_000, 20_000_000, 0.4, {"race_factor": 1000.0}, "private"),  # few bins occur
        (1_400_000, 20_000_000, 0.4, {"memory_budget": 20_000_000}, "private"),  # copies, but no buckets
        (1_400_000, 20_000_000, 0.4, {"choices": Choices(update="private")}, "private"),
        (1_400_000, 20_000_000, 0.4, {"num_histograms": 2}, "batch"),
    ],
)
def test_what_rates_choose(bins, size, buckets, more, expected, cpu_like):
    found = plan(Problem.of(COUNT, bins, size, **more), rated(cpu_like, buckets))
    assert found.strategy == expected


def test_functions(cpu_like, rng):
    """As they are called, with rates that make for buckets; what lies beyond the guessed bins is found."""
    bins = rng.integers(0, 70_000, 300_000, np.int32)
    weights = rng.integers(0, 9, bins.size).astype(np.float64)
    with profile_context(rated(cpu_like, 0.9)):
        assert plan(Problem.of(COUNT, 70_000, bins.size), rated(cpu_like, 0.9)).strategy == "bucketed"
        for outlier in (70_000, 71_234, 10**6):
            bins[12_345] = outlier
            np.testing.assert_array_equal(clhist.bincount(bins), np.bincount(bins))
            np.testing.assert_array_equal(clhist.bincount(bins, weights), np.bincount(bins, weights))
        bins[12_345] = -1
        with pytest.raises(ValueError, match="negative"):
            clhist.bincount(bins)


def test_errors(few_items, cpu_like, gpu_like):
    two = HistogramKernel(
        None, {"a": COUNT, "b": COUNT}, arguments="", map="EMIT_a(i % 5, 1); EMIT_b(i % 3, 2)", profile=few_items
    )
    found = two(num_bins={"a": 5, "b": 3}, size=90, **BUCKETS)  # a sweep each
    assert (found["a"].tolist(), found["b"].tolist()) == ([18] * 5, [60] * 3)
    with pytest.raises(ValueError, match="memory: 'partitioned' makes one histogram, and no batch"):
        plan(Problem.of(COUNT, 9, 90, num_histograms=2, choices=Choices(**BUCKETS)), few_items)
    with pytest.raises(ValueError, match="takes native, cas and lock updates, got 'private'"):
        plan(Problem.of(COUNT, 9, 90, choices=Choices(**BUCKETS)), gpu_like)
    with pytest.raises(MemoryError, match="memory_budget: buckets take"):
        plan(Problem.of(COUNT, 9, 90, memory_budget=120, choices=Choices(**BUCKETS)), few_items)
