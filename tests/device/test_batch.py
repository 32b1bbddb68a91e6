"""Batches: many histograms, each of its own run of elements, of equal lengths or of any."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from clhist import HistogramKernel, operators
from clhist._core.devices.vendors import MEMORIES
from clhist.selftest.cases import CASES, PRODUCTS, pair_kernel
from clhist.selftest.inputs import BATCHES, OFFSETS
from clhist.selftest.reference import counts_of, groups_of

COUNT = operators.add(np.int32)


def counting(profile=None, index="int"):
    return HistogramKernel(None, COUNT, arguments=f"const {index} *bins", map="EMIT(bins[i], 1)", profile=profile)


def counts(bins, offsets, num_bins):
    """Return how many of each bin there are in each of the runs."""
    runs = [bins[begin:end] for begin, end in pairwise(offsets)]
    return np.array([counts_of(run, num_bins) for run in runs], np.int32)


def draw(rng, n, num_bins):
    return rng.integers(-2, num_bins + 2, n, np.int32)


# To a batch, "cas" is as "native": a run of elements has the same copy.
EACH = [(update, memory, "interleaved") for update in ("private", "native", "lock") for memory in MEMORIES]
EACH += [("private", "global", "blocked"), ("lock", "global", "blocked")]


@pytest.mark.parametrize(("update", "memory", "profile"), EACH, indirect=["profile"])
def test_each_update(update, memory, profile, rng):
    kernel, bins = counting(profile), draw(rng, 1000, 9)
    choices = {"update": update, "memory": memory, "copies": 3, "passes": 2}
    for name in ("empty ends", "one long, many short"):
        result = kernel(bins, num_bins=9, offsets=OFFSETS[name], **choices)
        np.testing.assert_array_equal(result, counts(bins, OFFSETS[name], 9), strict=True, err_msg=name)


# Native updates are those of `test_shapes`.
EVEN = [("private", "global", "interleaved"), ("lock", "global", "interleaved"), ("cas", "local", "blocked")]


@pytest.mark.parametrize(("update", "memory", "profile"), EVEN, indirect=["profile"])
def test_equal_shares_by_each_update(update, memory, profile, rng):
    bins, choices = draw(rng, 1000, 9), {"update": update, "memory": memory, "copies": 3, "passes": 2}
    result = counting(profile)(bins, num_bins=9, num_histograms=20, **choices)
    np.testing.assert_array_equal(result, counts(bins, np.arange(0, 1001, 50), 9), strict=True)


@pytest.mark.parametrize("memory", [None, "global"])
def test_runs_of_any_length(memory, profile, rng):
    kernel, bins = counting(profile), draw(rng, 1000, 5)
    for name, offsets in OFFSETS.items():
        for dtype in (np.int64, np.uint8) if max(offsets) < 256 else (np.int64, np.uint16):
            result = kernel(bins, num_bins=5, offsets=np.array(offsets, dtype), memory=memory)
            np.testing.assert_array_equal(result, counts(bins, offsets, 5), strict=True, err_msg=name)


@pytest.mark.parametrize("memory", [None, "global"])
def test_shapes(memory, profile, rng):
    kernel = counting(profile)
    for histograms, each, num_bins in BATCHES:
        bins = draw(rng, histograms * each, num_bins)
        expected = counts(bins, np.arange(histograms + 1) * each, num_bins)
        result = kernel(bins.reshape(histograms, each), num_bins=num_bins, num_histograms=histograms, memory=memory)
        np.testing.assert_array_equal(result, expected, strict=True)


def test_several_histograms_in_one_work_group(gpu_like, rng):
    kernel = counting(dataclasses.replace(gpu_like, work_group_size=256))
    for each in (128, 133):  # runs begin where wide loads do, and where they do not
        plan = kernel.plan(2000 * each, 6, num_histograms=2000)
        assert (plan.teams, plan.team_size, plan.memory) == (8, 32, "local")
        assert "8 in a work-group" in str(plan)
        bins = draw(rng, 2000 * each, 6)
        expected = counts(bins, np.arange(2001) * each, 6)
        np.testing.assert_array_equal(kernel(bins, num_bins=6, num_histograms=2000), expected)
        bins[:] = 5
        result = kernel(bins, num_bins=6, num_histograms=2000, update="lock", copies=2, locks=16)
        np.testing.assert_array_equal(result, [[0] * 5 + [each]] * 2000)
    ends = np.sort(rng.integers(0, 266_001, 1999))
    offsets = np.array([0, *ends, 266_000])
    np.testing.assert_array_equal(kernel(bins, num_bins=6, offsets=offsets)[:, 5], np.diff(offsets))


@pytest.mark.parametrize("passes", [None, 5])
def test_as_many_copies_as_work_items(passes, gpu_like, rng):
    """Long runs of few bins: each work-item has a copy of its own, and so needs a chunk of its own."""
    kernel = pair_kernel(operators.saturating_add(np.int32, 10**6), gpu_like)
    for offsets in ([0, 100_000], [0, 30, 30, 50_000, 99_990]):
        bins = draw(rng, 100_000, 11)
        result = kernel(bins, np.ones_like(bins), num_bins=11, offsets=offsets, memory="global", passes=passes)
        np.testing.assert_array_equal(result, counts(bins, offsets, 11))


def test_several_passes(gpu_like, rng):
    kernel, bins = counting(gpu_like), draw(rng, 4000, 20_000)
    plan = kernel.plan(4000, 20_000, num_histograms=4)
    assert (plan.memory, plan.passes) == ("local", 3)
    expected = counts(bins, np.arange(0, 4001, 1000), 20_000)
    np.testing.assert_array_equal(kernel(bins, num_bins=20_000, num_histograms=4), expected)
    np.testing.assert_array_equal(kernel(bins, num_bins=20_000, num_histograms=4, memory="global", passes=7), expected)


@pytest.mark.parametrize("one", [0, 5, 6, -1, 2**32, -(2**63)])
def test_all_in_one_bin_or_in_none(one, gpu_like):
    kernel, bins = counting(gpu_like, "long"), np.full(900, one, np.int64)
    for choices in ({}, {"update": "lock", "copies": 1, "memory": "local", "locks": 2}):
        result = kernel(bins, num_bins=6, offsets=[0, 450, 451, 900], **choices)
        np.testing.assert_array_equal(result, counts(bins, [0, 450, 451, 900], 6))


@pytest.mark.parametrize(
    ("name", "choices"),
    [("argmax float32", {}), ("mixed product", {}), ("mixed product", {"update": "lock", "memory": "global"})],
)
def test_other_operators(name, choices, gpu_like, rng):
    case = (CASES | PRODUCTS)[name]
    kernel, offsets = pair_kernel(case.operator, gpu_like), [0, 0, 400, 401, 1200]
    bins, values, dest = draw(rng, 1200, 7), case.draw(rng, 1200), case.draw(rng, 28).reshape(4, 7)
    if "index" in (case.operator.dtype.names or ()):
        dest["index"] += 1200
    groups = []
    for k in range(4):
        run = slice(offsets[k], offsets[k + 1])
        groups += groups_of(np.concatenate([np.arange(7), bins[run]]), np.concatenate([dest[k], values[run]]), 7)
    check = case.check(groups)
    check(kernel(bins, values, num_bins=7, offsets=offsets, dest=dest, **choices).ravel())


def test_device_arrays(queue, out_of_order_queue, gpu_like, rng):
    kernel, host = counting(gpu_like), draw(rng, 900, 8)
    for used in (queue, out_of_order_queue):
        bins = cl_array.to_device(used, host)
        offsets = cl_array.to_device(used, np.array([0, 300, 300, 900], np.int32))
        result, event = kernel(bins, num_bins=(2, 4), offsets=offsets, return_event=True)
        assert isinstance(event, cl.Event)
        assert result.shape == (3, 2, 4)
        expected = counts(host, [0, 300, 300, 900], 8).reshape(3, 2, 4)
        np.testing.assert_array_equal(result.get(), expected)
        out = cl_array.to_device(used, expected)
        assert kernel(bins, num_bins=(2, 4), offsets=offsets, dest=out, out=out) is out
        np.testing.assert_array_equal(out.get(), 2 * expected)


def test_without_arrays_offsets_tell_the_size(gpu_like):
    kernel = HistogramKernel(None, COUNT, arguments="int step", map="EMIT(i / step, i)", profile=gpu_like)
    result = kernel(10, num_bins=3, offsets=[0, 5, 30])
    assert result.tolist() == [[10, 0, 0], [35, 145, 245]]


def test_what_a_batch_is_planned_as(gpu_like, cpu_like):
    for profile in (gpu_like, cpu_like):
        kernel = counting(profile)
        one = kernel.plan(10**5, 100, num_histograms=1)
        assert one.is_batch
        assert one.num_histograms == 1
        assert not kernel.plan(10**5, 100).is_batch
        assert "clhist_task" in kernel.source(one)
        assert "clhist_task" not in kernel.source(kernel.plan(10**5, 100))
    with pytest.raises(MemoryError, match=r"^memory_budget: one copy of 1000 bins takes 4000 bytes"):
        counting(gpu_like).plan(1000, 100, num_histograms=10, memory_budget=3999)


@pytest.mark.parametrize("memory", [None, *MEMORIES])
def test_copies_stay_within_the_budget(memory, profile, rng):
    # One long run among short ones is not divided at the price of more copies than the budget allows.
    sizes, kernel, bins = [], counting(profile), draw(rng, 1000, 50)
    offsets = OFFSETS["one long, many short"]
    histograms = len(offsets) - 1

    def allocator(size):
        sizes.append(size)
        return cl.Buffer(kernel.context, cl.mem_flags.READ_WRITE, size)

    budget = 4 * 50 * histograms * 3 // 2
    result = kernel(bins, num_bins=50, offsets=offsets, memory=memory, memory_budget=budget, allocator=allocator)
    np.testing.assert_array_equal(result, counts(bins, offsets, 50))
    assert 0 < max(sizes) <= budget
