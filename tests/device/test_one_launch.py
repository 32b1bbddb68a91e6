"""Few elements: one work-group sweeps and combines in one launch."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick
from eager import eager

import clhist
from clhist import HistogramKernel, operators
from clhist._core.opencl.device import profile_context
from clhist.selftest.cases import CASES, NUM_BINS, PRODUCTS, pair_kernel, problem
from clhist.selftest.reference import groups_of

COUNT = operators.add(np.int32)


@pytest.fixture
def patient(profile):
    """Where one launch is planned whatever it costs, in either order of elements."""
    return eager(profile)


NAMES = [*CASES, *PRODUCTS]
UPDATES, ORDERS = [None, "cas", "lock", "private"], ["blocked", "interleaved"]


@pytest.mark.parametrize(
    ("name", "update", "profile"),
    [
        *each_value_quick(covering(NAMES[::4], UPDATES, ORDERS)),
        *(
            pytest.param(name, *choices, marks=pytest.mark.slow)
            for name in NAMES
            if name not in NAMES[::4]
            for choices in product(UPDATES, ORDERS)
        ),
    ],
    indirect=["profile"],
)
@pytest.mark.usefixtures("only_measured_rates")
def test_operators(name, update, patient, queue):
    """With `dest`, which may be `out`, and with each update that there is."""
    case, (bins, values, check) = (CASES | PRODUCTS)[name], problem(name)
    kernel = pair_kernel(case.operator, patient)
    forced = {} if update is None else {"update": update}
    forced |= {} if patient.kind == "cpu" and update in (None, "private") else {"memory": "local"}
    try:
        plan = kernel.plan(len(bins), NUM_BINS, **forced)
    except ValueError as error:  # such as no compare-exchange of 16 bytes
        assert "not available" in str(error)  # noqa: PT017
        return
    # Of copies in local memory only shared ones have rates, and none where carries are passed on.
    is_rated = plan.memory == "global" or plan.update not in ("private", "carry")
    assert plan.is_one_launch == is_rated
    assert plan.work_groups == 1 or not is_rated
    check(kernel(bins, values, num_bins=NUM_BINS, **forced))
    dest = case.draw(np.random.default_rng(1), NUM_BINS)
    all_bins, all_values = np.concatenate([np.arange(NUM_BINS), bins]), np.concatenate([dest, values])
    with_dest = case.check(groups_of(all_bins, all_values, NUM_BINS))
    with_dest(kernel(bins, values, num_bins=NUM_BINS, dest=dest, **forced))
    if case.operator.dtype.names is None:
        with_dest(kernel(bins, values, num_bins=NUM_BINS, dest=dest, out=dest, **forced))


SIZES = [(0, 5), (1, 1), (1, 3000), (47, 48), (1000, 37), (49, 5000)]


@pytest.mark.parametrize(
    ("group", "sizes", "profile"), each_value_quick(covering([1, 2, 48], SIZES, ORDERS)), indirect=["profile"]
)
@pytest.mark.usefixtures("only_measured_rates")
def test_sizes(sizes, group, profile, queue, rng):
    """Bins outside, more bins than elements and than work-items, and no elements, of which there is no sweep."""
    size, num_bins = sizes
    kernel = pair_kernel(COUNT, dataclasses.replace(eager(profile), work_group_size=group))
    bins = rng.integers(-1, num_bins + 2, size, dtype=np.int32)
    values = rng.integers(-9, 9, size, dtype=np.int32)
    expected = np.zeros(num_bins + 3, np.int32)
    np.add.at(expected, bins + 1, values)
    plan = kernel.plan(size, num_bins)
    assert plan.is_one_launch == (size > 0 and plan.strategy in ("private", "local") and plan.passes == 1)
    assert plan.is_one_launch or size == 0 or num_bins == 3000 or num_bins == 5000
    np.testing.assert_array_equal(kernel(bins, values, num_bins=num_bins), expected[1:-2])
    bins, values = (cl_array.to_device(queue, each) for each in (bins, values))
    dest = cl_array.to_device(queue, np.arange(num_bins, dtype=np.int32))
    for repeat in range(1, 4):  # the third is replayed
        kernel(bins, values, num_bins=num_bins, dest=dest, out=dest)
        np.testing.assert_array_equal(dest.get(), np.arange(num_bins) + repeat * expected[1:-2])


def test_positions_and_sums_that_are_reproducible(patient, rng):
    bins, values = rng.integers(0, 9, 999, dtype=np.int32), rng.random(999, np.float32)
    kernel = HistogramKernel(
        None,
        operators.argmax(np.float32),
        arguments="const int *bins, const float *x",
        map="EMIT(bins[i], ((value_t){x[i], i}))",
        profile=patient,
    )
    assert kernel.plan(999, 9).is_one_launch
    found = kernel(bins, values, num_bins=9)
    for k in range(9):
        assert found[k]["index"] == np.flatnonzero(bins == k)[values[bins == k].argmax()]
    adding = pair_kernel(operators.add(np.float32), patient)
    orders = np.arange(999), rng.permutation(999)
    results = [adding(bins[order], values[order], num_bins=9, reproducible=True) for order in orders]
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], np.bincount(bins, values, 9), rtol=1e-5)


def test_the_largest_bin_of_bincount(patient, queue):
    with profile_context(patient):
        for bins in (np.array([3, 7, 0], np.int32), np.zeros(5, np.int32), np.array([2000, 5], np.int32)):
            for weights in (None, np.array([0.5, 0, 2, 0, 0], np.float32)[: len(bins)]):
                found = clhist.bincount(bins, weights, queue=queue)
                np.testing.assert_array_equal(found, np.bincount(bins, weights))
        with pytest.raises(ValueError, match="negative"):
            clhist.bincount(np.array([3, -1, 0], np.int32), queue=queue)


def test_bound_calls_read_what_arrays_hold_then(patient, queue):
    bins = cl_array.to_device(queue, np.arange(9, dtype=np.int32))
    values, out = cl_array.zeros(queue, 9, np.int32) + 2, cl_array.zeros(queue, 9, np.int32)
    bound = pair_kernel(COUNT, patient).bind(bins, values, num_bins=9, out=out)
    for k in range(3):
        bins.set(np.full(9, k, np.int32))
        np.testing.assert_array_equal(bound().get(), np.bincount([k], minlength=9) * 18)


def test_results_are_complete_at_the_event(patient, queue):
    profiling = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    kernel = pair_kernel(COUNT, patient)
    bins = cl_array.to_device(profiling, np.arange(9, dtype=np.int32))
    found, seconds = kernel.timed(bins, bins, num_bins=9, queue=profiling)
    assert seconds.keys() == {"combine"}
    np.testing.assert_array_equal(found.get(), np.arange(9))


TWO = {
    "copies of several work-groups": ({}, {"update": "private", "copies": 2, "work_group_size": 1}, "cpu"),
    "passes": ({}, {"memory": "local", "passes": 2}, "gpu"),
    "options": ({"options": ("-cl-mad-enable",)}, {}, "any"),
}


@pytest.mark.parametrize("name", TWO)
def test_what_keeps_two_launches(name, profile):
    more, forced, kind = TWO[name]
    kernel = HistogramKernel(
        None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=eager(profile), **more
    )
    bins = np.arange(50, dtype=np.int32) % 7
    plan = kernel.plan(50, 9, **forced)
    if kind in ("any", profile.kind):
        assert not plan.is_one_launch
        assert plan.copies == forced.get("copies", plan.copies)
    np.testing.assert_array_equal(kernel(bins, num_bins=9, **forced), np.bincount(bins, minlength=9))


def test_partial_results_and_fields_keep_two_launches(patient):
    """As accumulators, and as one array for each field of a struct."""
    kernel = pair_kernel(operators.argmax(np.float32), patient)
    bins, values = np.zeros(3, np.int32), np.array([(1, 0), (3, 1), (2, 2)], kernel.operator.dtype)
    accumulator = kernel.accumulator(2)
    accumulator.add(bins, values)
    assert accumulator.result()[0]["index"] == 1
    dest = tuple(np.zeros(2, kernel.operator.dtype[name]) for name in kernel.operator.dtype.names)
    found = kernel(bins, values, num_bins=2, out=dest)
    assert (found[0][0], found[1][0]) == (3, 1)
