"""Several copies for each work-item of a CPU, to which neighbouring elements go in turn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from covering import covering, mostly_slow
from operator_checks import COMPUTED, check_computed_bins, check_operator

import clhist
from clhist import HistogramKernel, operators
from clhist._core.model.private import GRID, KINDS, cells_name
from clhist._core.model.times import CELLS
from clhist._core.opencl.device import profile_context
from clhist.selftest.cases import CASES, NUM_BINS, pair_kernel, problem
from clhist.selftest.inputs import DISTRIBUTIONS, drawn
from clhist.selftest.reference import counts_of, groups_of

COUNT = operators.add(np.int32)


def in_turn(turns):
    return {"update": "private", "copies": 3 * turns}


@pytest.mark.parametrize("turns", [1, 2, 4, 8])
def test_the_plan(turns, few_items):
    plan = pair_kernel(COUNT, few_items).plan(1000, 50, **in_turn(turns))
    assert (plan.strategy, plan.turns, plan.copies) == ("private", turns, 3 * turns)
    assert (plan.work_groups, plan.cooperation) == (3, 1)
    assert ("in turn" in str(plan)) == (turns > 1)


@pytest.mark.parametrize(("name", "turns"), mostly_slow(covering(list(CASES), (2, 8)), 2))
def test_operators(name, turns, few_items):
    """In one pass and in several, with `dest`, and without elements."""
    check_operator(name, few_items, **in_turn(turns))
    bins, values, check = problem(name)
    check(pair_kernel(CASES[name].operator, few_items)(bins, values, num_bins=NUM_BINS, passes=3, **in_turn(turns)))


@pytest.mark.parametrize("name", ["add int32", "add float32", "argmax float32", "two largest"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distributions(distribution, name, few_items, rng):
    case = CASES[name]
    bins, values = drawn(distribution, rng, 4001, 300), case.draw(rng, 4001)
    check = case.check(groups_of(bins, values, 300))
    for turns in (1, 8):
        check(pair_kernel(case.operator, few_items)(bins, values, num_bins=300, **in_turn(turns)))


@pytest.mark.parametrize("turns", [1, 2, 4, 8])
def test_lengths_around_the_rounds_of_the_loop(turns, few_items, rng):
    kernel = pair_kernel(COUNT, few_items)
    for items in (1, 3):
        for length in sorted({0, 1, 2, *(items * n + d for n in (7, 8, 9, 16, 24) for d in (-1, 0, 1))}):
            bins, values = rng.integers(-1, 6, length, np.int32), rng.integers(-99, 99, length, np.int32)
            expected = [sum(group) for group in groups_of(bins, values, 5)]
            found = kernel(bins, values, num_bins=5, update="private", copies=items * turns)
            assert found.tolist() == expected, (items, length)


@pytest.mark.parametrize("code", COMPUTED)
@pytest.mark.parametrize("turns", [1, 2, 8])
def test_bins_that_are_computed(turns, code, few_items):
    check_computed_bins(code, few_items, **in_turn(turns))


def test_maps_that_are_not_unrolled_take_turns_for_nothing(few_items):
    """A loop that emits, and two outputs: one copy of each work-item, whatever is forced."""
    loop = HistogramKernel(
        None, COUNT, arguments="", map="for (int k = 0; k < 3; ++k) EMIT((i + k) % 5, 1)", profile=few_items
    )
    two = HistogramKernel(
        None, {"a": COUNT, "b": COUNT}, arguments="", map="EMIT_a(i % 5, 1); EMIT_b(i % 3, 2)", profile=few_items
    )
    with pytest.warns(UserWarning, match="copies: 24 requested, 3 used"):
        assert loop(num_bins=5, size=100, **in_turn(8)).tolist() == [60] * 5
    with pytest.warns(UserWarning, match="copies: 24 requested, 3 used"):
        found = two(num_bins={"a": 5, "b": 3}, size=90, **in_turn(8))
    assert (found["a"].tolist(), found["b"].tolist()) == ([18] * 5, [60] * 3)


def test_a_memory_budget_leaves_fewer_turns(few_items):
    kernel = pair_kernel(COUNT, few_items)
    bins = np.arange(1000, dtype=np.int32) % 100
    for budget, copies in ((400, 1), (1200, 3), (2399, 3), (2400, 6), (9600, 24)):
        plan = kernel.plan(1000, 100, memory_budget=budget, update="private", copies=copies)
        assert plan.copies == copies, budget
        found = kernel(bins, bins, num_bins=100, memory_budget=budget, update="private", copies=copies)
        assert found.tolist() == [10 * k for k in range(100)]


@pytest.mark.parametrize("num_bins", [64, 300])
def test_what_rates_choose_is_right(num_bins, few_items, rng):
    """All turns come up, for functions as well, but with more bins on PoCL, where only skewed counts take all."""
    slow = {cells_name(kind, cells): 0.1 if cells < 512 else 1.0 for kind in KINDS for cells in GRID}
    rated = dataclasses.replace(few_items, rates=slow | {CELLS: 10.0})
    bins = rng.integers(0, num_bins, 100_000, np.int32)
    values = rng.integers(0, 9, bins.size).astype(np.float32)
    with profile_context(rated):
        plan = pair_kernel(COUNT, rated).plan(bins.size, num_bins)
        assert (plan.turns, plan.copies) == (8, 24)
        for some in (bins, bins // 60):
            np.testing.assert_array_equal(clhist.bincount(some), np.bincount(some))
        found = clhist.reduce_by_index(np.zeros(num_bins, np.float32), np.add, bins, values)
        np.testing.assert_array_equal(found, np.bincount(bins, values).astype(np.float32))


@pytest.mark.parametrize("turns", [2, 8])
def test_a_map_too_long_to_be_unrolled(turns, few_items, rng):
    bins = rng.integers(-1, 51, 2001, np.int32)
    kernel = HistogramKernel(
        None, COUNT, arguments="const int *bins", map=f"/* {'long ' * 100} */ EMIT(bins[i], 1)", profile=few_items
    )
    np.testing.assert_array_equal(kernel(bins, num_bins=50, **in_turn(turns)), counts_of(bins, 50))


@pytest.mark.parametrize("turns", [2, 8])
def test_histograms_that_are_sweeps_of_their_own(turns, few_items, rng):
    bins = rng.integers(-1, 51, 2001, np.int32)
    kernel = HistogramKernel(
        None,
        {"all": COUNT, "least": operators.argmin(np.int32, np.int64)},
        arguments="const int *bins",
        map="EMIT_all(bins[i], 1); EMIT_least(bins[i], ((value_least_t){bins[i], i}))",
        profile=few_items,
    )
    for num_bins in (50, {"all": 50, "least": 70_000}):
        found = kernel(bins, num_bins=num_bins, **in_turn(turns))
        np.testing.assert_array_equal(found["all"], counts_of(bins, 50))
        first = [np.flatnonzero(bins == k)[0] for k in range(50)]
        assert found["least"]["index"][:50].tolist() == first
