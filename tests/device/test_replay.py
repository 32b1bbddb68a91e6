"""Replays: what repeated and bound calls enqueue is what they enqueued first, whatever was enqueued in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from allocators import Limited

import clhist
from clhist import HistogramKernel, operators
from clhist.engine.engine import Engine
from clhist.selftest.reference import counts_of

BINS = 50


def kernel_of(profile=None, operator=None):
    operator = operator or operators.add(np.int32)
    return HistogramKernel(None, operator, arguments="const int *x, int step", map="EMIT(x[i], step)", profile=profile)


@pytest.fixture
def long_ways(monkeypatch):
    """Return how often a call was enqueued anew."""
    found, original = [], Engine.enqueue
    monkeypatch.setattr(Engine, "enqueue", lambda *args: found.append(1) or original(*args))
    return found


@pytest.fixture
def given(queue, rng):
    """Return some contents with their counts, and an array of each."""
    contents = [rng.integers(-2, BINS + 2, 5001 + k, np.int32) for k in range(3)]
    return [(cl_array.to_device(queue, each), counts_of(each, BINS)) for each in contents]


CHOICES = [
    {},
    {"memory": "global", "copies": 3},
    {"memory": "partitioned"},
    *(pytest.param(each, marks=pytest.mark.slow) for each in ({"passes": 2}, {"update": "lock"})),
]


@pytest.mark.parametrize("choices", CHOICES)
def test_calls_in_turns(given, gpu_like, choices, queue, long_ways):
    """All share one kernel, which keeps the arguments of the call before."""
    kernel = kernel_of(gpu_like)
    out = cl_array.empty(queue, BINS, np.int32)
    bound = [kernel.bind(x, step, num_bins=BINS, **choices) for x, _ in given for step in (1, 3)]
    into = kernel.bind(given[0][0], 5, num_bins=BINS, out=out, **choices)
    expected = [step * counts for _, counts in given for step in (1, 3)]
    for _ in range(3):
        results = [each() for each in bound]
        for result, counts in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result.get(), counts)
        assert into() is out
        np.testing.assert_array_equal(out.get(), 5 * given[0][1])
        np.testing.assert_array_equal(kernel(given[1][0], 2, num_bins=BINS, **choices).get(), 2 * given[1][1])
    ordinary = 3 if choices else 2  # which are known from the third on
    assert len(long_ways) == len(bound) + 1 + ordinary


def test_what_is_sorted_is_enqueued_anew(given, gpu_like, long_ways):
    """Its launches are PyOpenCL's."""
    (x, counts), *_ = given
    bound = kernel_of(gpu_like).bind(x, 1, num_bins=BINS, update="sort")
    for _ in range(2):
        np.testing.assert_array_equal(bound().get(), counts)
    assert len(long_ways) == 2


def test_a_queue_out_of_order_is_enqueued_anew(given, out_of_order_queue, long_ways):
    (x, counts), *_ = given
    bound = kernel_of().bind(x, 1, num_bins=BINS, queue=out_of_order_queue)
    for _ in range(3):
        np.testing.assert_array_equal(bound().get(out_of_order_queue), counts)
    assert len(long_ways) == 3


def test_threads_that_share_a_bound_call(given, gpu_like):
    (x, counts), *_ = given
    bound = kernel_of(gpu_like).bind(x, 1, num_bins=BINS, memory="global", copies=2)
    bound()
    with ThreadPoolExecutor(4) as executor:
        for found in executor.map(lambda _: bound(), range(24)):
            np.testing.assert_array_equal(found.get(), counts)


def test_threads_that_share_a_kernel(given, gpu_like):
    kernel = kernel_of(gpu_like)

    def work(k):
        x, counts = given[k % 3]
        for _ in range(3):
            np.testing.assert_array_equal(kernel(x, 1, num_bins=BINS).get(), counts)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(12)))


def test_scratch_memory_may_go_in_between(given, gpu_like, long_ways):
    (x, counts), *_ = given
    bound = kernel_of(gpu_like).bind(x, 1, num_bins=BINS)
    for _ in range(3):
        np.testing.assert_array_equal(bound().get(), counts)
        clhist.free_scratch()
    assert len(long_ways) == 1


def test_no_memory_any_more(given, queue, gpu_like):
    """What was planned no longer fits: it makes do with less, as at first."""
    (x, counts), *_ = given
    memory = Limited(queue, 2**30)
    choices = {"memory": "global", "allocator": memory}
    bound = kernel_of(gpu_like).bind(x, 1, num_bins=BINS, **choices)
    out = cl_array.empty(queue, BINS, np.int32)
    into = kernel_of(gpu_like).bind(x, 1, num_bins=BINS, out=out, **choices)
    np.testing.assert_array_equal(bound().get(), counts)
    into()
    memory.most = 2 * 4 * BINS + 4 * BINS
    for _ in range(2):
        np.testing.assert_array_equal(bound().get(), counts)
        into()
        np.testing.assert_array_equal(out.get(), counts)
    memory.most = 0
    with pytest.raises(MemoryError, match="the device has no"):
        into()
    memory.most = 2**30
    into()
    np.testing.assert_array_equal(out.get(), counts)


def test_events_are_waited_for_and_given(given, queue):
    (x, counts), *_ = given
    out = cl_array.empty(queue, BINS, np.int32)
    bound = kernel_of().bind(x, 1, num_bins=BINS, out=out)
    bound()
    for _ in range(3):
        waited = cl.UserEvent(queue.context)
        x.add_event(waited)
        result, event = bound(return_event=True)
        queue.flush()
        assert event.command_execution_status > cl.command_execution_status.COMPLETE
        assert result is out
        assert event in out.events
        assert len(out.events) == 1
        waited.set_status(cl.command_execution_status.COMPLETE)
        np.testing.assert_array_equal(result.get(), counts)
        x.events.clear()


def test_a_map_that_writes_gets_the_event(queue):
    x = cl_array.to_device(queue, np.zeros(100, np.int32))
    kernel = HistogramKernel(None, operators.add(np.int32), arguments="int *x", map="EMIT(x[i], 1); x[i] += 1")
    bound = kernel.bind(x, num_bins=9)
    for k in range(6):
        result, event = bound(return_event=True)
        assert result.get()[k] == 100
        assert event in x.events


def test_structs_as_arguments(queue, rng):
    """Their types PyOpenCL cannot be told: they are set each as it is."""
    pair = np.dtype([("a", np.int8), ("b", np.int32)], align=True)
    x = rng.integers(0, BINS, 3000, np.int32)
    data = cl_array.to_device(queue, x)
    kernel = HistogramKernel(
        None,
        operators.add(np.int32),
        arguments="const int *x, pair_t p",
        map="EMIT(x[i] + p.a, p.b)",
        structs={"pair_t": pair},
    )
    value = np.array((3, 7), pair)[()]
    bound = kernel.bind(data, value, num_bins=BINS + 3)
    for _ in range(3):
        np.testing.assert_array_equal(bound().get(), 7 * counts_of(x + 3, BINS + 3))
        np.testing.assert_array_equal(kernel(data, value, num_bins=BINS + 3).get(), 7 * counts_of(x + 3, BINS + 3))


@pytest.mark.parametrize("with_dest", [False, True])
def test_arrays_of_the_call_before_may_be_gone(with_dest, queue):
    add = operators.add(np.int32)
    kernel = HistogramKernel(queue.context, add, arguments="const int *b", map="EMIT(b[i], 1)")
    b = cl_array.to_device(queue, np.array([0, 1, 1, 3], np.int32))
    for _ in range(3):
        gone = cl_array.zeros(queue, 4, kernel.operator.dtype)
        found = kernel(b, num_bins=4, **({"dest": gone} if with_dest else {"out": gone}))
        assert found.get().tolist() == [1, 2, 0, 1]
        del gone, found
        assert kernel(b, num_bins=4).get().tolist() == [1, 2, 0, 1]
