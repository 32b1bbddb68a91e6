"""Every operator by every update, in both memories and both orders, with few and many copies and passes."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import Profile
from clhist.hardware.vendors import MEMORIES
from clhist.planning.updates import UPDATES
from clhist.selftest.cases import CASES, NUM_BINS, Case, is_available, pair_kernel, problem, ufunc_case
from clhist.selftest.reference import groups_of

# Choices (M, S), from one of each to more than there are work-items and bins.
COPIES_AND_PASSES = [(1, 1), (3, 2), (16, 5), (10_000, 10_000)]

# Operators that stand for all: by an atomic, by compare-exchange of a float and of a narrow integer, lifted, by a lock.
SOME = ("add int32", "add float32", "gcd int8", "argmax float32", "two largest")

# A CPU does not share copies unless told to: there an atomic, a compare-exchange and a lock are enough.
SHARED = [*((name, "interleaved") for name in CASES), *((name, "blocked") for name in (*SOME[:2], SOME[-1]))]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(("name", "profile"), SHARED, indirect=["profile"])
def test_each_update(name, update, memory, profile, queue):
    case, (bins, values, check) = CASES[name], problem(name)
    kernel = pair_kernel(case.operator, profile)
    if not is_available(case, update, memory, queue):
        with pytest.raises(ValueError, match=f"update: '{update}' is not available for {case.operator.name}"):
            kernel(bins, values, num_bins=NUM_BINS, update=update, memory=memory)
        return
    choices = COPIES_AND_PASSES
    if name not in SOME:  # copies that are not shared are as many as work-items, and each number of these is a kernel
        choices = COPIES_AND_PASSES[1:2] if update == "private" else COPIES_AND_PASSES[1::2]
    for copies, passes in choices:
        check(kernel(bins, values, num_bins=NUM_BINS, update=update, memory=memory, copies=copies, passes=passes))


@pytest.mark.parametrize(
    ("memory", "profile"),
    [(None, "blocked"), (None, "interleaved"), ("local", "interleaved"), ("global", "interleaved")],
    indirect=["profile"],
)
@pytest.mark.parametrize("name", CASES)
def test_what_the_model_chooses(name, memory, profile):
    bins, values, check = problem(name)
    check(pair_kernel(CASES[name].operator, profile)(bins, values, num_bins=NUM_BINS, memory=memory))


@pytest.mark.parametrize("name", CASES)
def test_values_of_dest_take_part_once(name, profile):
    case, (bins, values, _) = CASES[name], problem(name)
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    before = dest.copy()
    all_bins, all_values = np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values])
    check = case.check(groups_of(all_bins, all_values, NUM_BINS))
    kernel = pair_kernel(case.operator, profile)
    # Many copies are combined by several work-items for each bin.
    for choices in ({}, {"memory": "global", "copies": 2}, {"memory": "global", "copies": 64}):
        check(kernel(bins, values, num_bins=NUM_BINS, dest=dest, **choices))
    np.testing.assert_array_equal(dest, before)


@pytest.mark.parametrize("name", CASES)
def test_bins_without_values_hold_the_neutral_element(name, profile):
    case = CASES[name]
    kernel, check = pair_kernel(case.operator, profile), case.check([[]] * NUM_BINS)
    check(kernel(np.empty(0, np.int32), np.empty(0, case.operator.dtype), num_bins=NUM_BINS))
    bins, values, _ = problem(name)
    check(kernel(np.full_like(bins, NUM_BINS), values, num_bins=NUM_BINS))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize(
    "ufunc", [np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor], ids=lambda u: u.__name__
)
def test_each_native_atomic(ufunc, dtype, memory, gpu_like, queue):
    check_shared_copies(ufunc_case(ufunc, dtype), "native", memory, gpu_like, queue)


@pytest.mark.parametrize(
    ("ufunc", "dtype"),
    [
        *((np.multiply, dtype) for dtype in (np.int8, np.int32, np.uint64, np.float32, np.float64, np.complex64)),
        *((ufunc, np.float32) for ufunc in (np.minimum, np.maximum, np.fmin, np.fmax)),
        *((ufunc, np.float64) for ufunc in (np.maximum, np.fmin)),
        (np.minimum, np.uint16),
        (np.logical_xor, np.int64),
    ],
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
