"""What the self-test checks of a device, and what it leaves to tests: other operators, orders, copies and passes."""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering, mostly_slow
from device_checks import each_check, holds, pairs_of_updates
from operator_checks import dest_of

from clhist import Profile
from clhist._core.devices.vendors import MEMORIES
from clhist._core.model.problem import PLACES
from clhist._core.model.updates import UPDATES
from clhist.selftest.cases import CASES, NUM_BINS, Case, is_available, pair_kernel, problem, ufunc_case
from clhist.selftest.reference import groups_of
from clhist.selftest.updates import COLUMNS, ROWS, row_name


@each_check()
def test_check(check):
    holds(check)


# Choices (M, S), from one of each to more than there are work-items and bins.
COPIES_AND_PASSES = [(1, 1), (3, 2), (16, 5), (10_000, 10_000)]

# An atomic, a float's compare-exchange, a narrow integer's, a lifted one, a lock: they stand for all where M, S and the
# order of elements are what varies. The self-test has each operator with each update, in one order, by M = 3 and S = 2.
SOME = ("add int32", "add float32", "gcd int8", "argmax float32", "two largest")


@pytest.mark.parametrize(
    ("name", "update", "memory", "profile", "numbers"),
    mostly_slow(covering(SOME, UPDATES, MEMORIES, ("blocked", "interleaved"), COPIES_AND_PASSES)),
    indirect=["profile"],
)
def test_copies_and_passes(name, update, memory, profile, numbers, queue):
    case, (bins, values, check) = CASES[name], problem(name)
    kernel, (copies, passes) = pair_kernel(case.operator, profile), numbers
    if not is_available(case, update, memory, queue):
        with pytest.raises(ValueError, match=f"update: '{update}' is not available for {case.operator.name}"):
            kernel(bins, values, num_bins=NUM_BINS, update=update, memory=memory)
        return
    forced = {"update": update, "memory": memory, "copies": copies, "passes": passes}
    check(kernel(bins, values, num_bins=NUM_BINS, **forced))
    dest, with_dest = dest_of(name)
    with_dest(kernel(bins, values, num_bins=NUM_BINS, dest=dest, **forced))


@pytest.mark.parametrize("name", mostly_slow(list(CASES), 2))
def test_what_the_model_chooses(name, profile):
    """The result, values of `dest` taking part once, and the neutral element where there are none: of one kernel."""
    case, (bins, values, check) = CASES[name], problem(name)
    kernel = pair_kernel(case.operator, profile)
    check(kernel(bins, values, num_bins=NUM_BINS))
    dest, with_dest = dest_of(name)
    before = dest.copy()
    with_dest(kernel(bins, values, num_bins=NUM_BINS, dest=dest))
    np.testing.assert_array_equal(dest, before)
    neutral = case.check([[]] * NUM_BINS)
    neutral(kernel(np.empty(0, np.int32), np.empty(0, case.operator.dtype), num_bins=NUM_BINS))
    neutral(kernel(np.full_like(bins, NUM_BINS), values, num_bins=NUM_BINS))


@pytest.mark.parametrize(("name", "memory", "copies"), mostly_slow(covering(list(CASES), MEMORIES, (None, 2, 64))))
def test_what_the_model_chooses_in_a_memory(name, memory, copies, gpu_like):
    """With `dest`, which takes part once; 64 copies of a bin are combined by several work-items."""
    bins, values, _ = problem(name)
    dest, check = dest_of(name)
    kernel = pair_kernel(CASES[name].operator, gpu_like)
    check(kernel(bins, values, num_bins=NUM_BINS, dest=dest, memory=memory, copies=copies))


@pytest.mark.parametrize(
    ("ufunc", "dtype"),
    mostly_slow(
        [
            *((np.multiply, dtype) for dtype in (np.int8, np.int32, np.uint64, np.float32, np.float64, np.complex64)),
            *((ufunc, np.float32) for ufunc in (np.minimum, np.maximum, np.fmin, np.fmax)),
            *((ufunc, np.float64) for ufunc in (np.maximum, np.fmin)),
            (np.minimum, np.uint16),
            (np.logical_xor, np.int64),
        ],
        2,
    ),
)
def test_operators_without_a_native_atomic(ufunc, dtype, gpu_like, queue):
    check_shared_copies(ufunc_case(ufunc, dtype), "cas", "local", gpu_like, queue)


def check_shared_copies(case: Case, update: str, memory: str, profile: Profile, queue) -> None:
    rng = np.random.default_rng(3)
    bins, values = rng.integers(-1, 8, 2000, np.int32), case.draw(rng, 2000)
    kernel = pair_kernel(case.operator, profile)
    choices = {"memory": memory, "copies": 2, "update": update}
    if is_available(case, update, memory, queue):
        case.check(groups_of(bins, values, 6))(kernel(bins, values, num_bins=6, **choices))
    else:
        with pytest.raises(ValueError, match=f"update: '{update}' is not available for {case.operator.name}"):
            kernel(bins, values, num_bins=6, **choices)


def test_every_pair_of_update_memory_and_type_is_checked():
    """Also by the command that leaves slow tests out."""
    wanted = {tuple(reversed(row)) for row in pairs_of_updates()}
    for update, memory in ROWS:
        assert sum(row == row_name(update, memory) for _, row in wanted) >= 3
    for column in COLUMNS:
        rows = [row for of, row in wanted if of == column]
        assert {row.partition(",")[0] for row in rows} == {update for update, _ in ROWS}
        assert {memory for memory in PLACES if any(memory in row for row in rows)} == set(PLACES)
