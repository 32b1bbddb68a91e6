"""What repeated and bound calls enqueue is what they enqueued first, whatever was enqueued in between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from allocators import Limited

import clhist
from clhist import Accumulator, HistogramKernel, operators
from clhist._core.opencl.memory import OutOfMemoryError
from clhist._core.runtime import launcher
from clhist._core.runtime.engine import Engine
from clhist.selftest.reference import counts_of, groups_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS = 50


def kernel_of(profile=None, operator=None):
    operator = operator or operators.add(np.int32)
    return HistogramKernel(None, operator, arguments="const int *x, int step", map="EMIT(x[i], step)", profile=profile)


@pytest.fixture
def long_ways(monkeypatch):
    """Return how often a call was prepared."""
    found, original = [], Engine.prepare
    monkeypatch.setattr(Engine, "prepare", lambda *args, **more: found.append(1) or original(*args, **more))
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
    assert len(long_ways) == len(bound) + 1 + 1


@pytest.mark.parametrize("what", ["sorted", "out of order", "scratch memory that goes in between"])
def test_it_is_prepared_once(what, given, gpu_like, out_of_order_queue, long_ways):
    """Some of the launches of what is sorted are PyOpenCL's."""
    (x, counts), *_ = given
    more = {"sorted": {"update": "sort"}, "out of order": {"queue": out_of_order_queue}}.get(what, {})
    bound = kernel_of(None if "queue" in more else gpu_like).bind(x, 1, num_bins=BINS, **more)
    for _ in range(3):
        np.testing.assert_array_equal(bound().get(more.get("queue")), counts)
        if "scratch" in what:
            clhist.free_scratch()
    assert len(long_ways) == 1


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


@pytest.mark.parametrize("choices", [{}, {"memory": "partitioned"}, {"memory": "global", "copies": 3}])
def test_scalars_of_each_call(given, gpu_like, choices, long_ways):
    """They are arguments of kernels that take no arrays, too."""
    kernel = kernel_of(gpu_like)
    for step in (1, 1, 1, 3, -2, 3, 0):
        for x, counts in given:
            np.testing.assert_array_equal(kernel(x, step, num_bins=BINS, **choices).get(), step * counts)
    # The first size is prepared alone and the others together, unless copies are forced.
    assert len(long_ways) == (3 if "copies" in choices else 2)
    with pytest.raises(ValueError, match="step: "):
        kernel(given[0][0], 2**31, num_bins=BINS, **choices)


def test_several_outputs(queue, rng, long_ways):
    x = rng.integers(-2, BINS + 2, 5000, np.int32)
    best = operators.argmax(np.float32)
    kernel = HistogramKernel(
        None,
        {"number": operators.add(np.int64), "best": best},
        arguments="const int *x, const float *v",
        map="EMIT_number(x[i], 1); EMIT_best(x[i], ((value_best_t){v[i], i}))",
    )
    number, fields = cl_array.zeros(queue, BINS, np.int64), None
    for n in range(8):
        v = rng.random(5000).astype(np.float32)
        args = cl_array.to_device(queue, np.roll(x, n)), cl_array.to_device(queue, v)
        fields = tuple(cl_array.empty(queue, BINS, best.dtype[name]) for name in ("value", "index"))
        out = {"number": number, "best": fields if n % 2 else None}
        found = kernel(*args, num_bins=BINS, dest={"number": number, "best": None}, out=out)
        assert found["number"] is number
        np.testing.assert_array_equal(number.get(), (n + 1) * counts_of(x, BINS))
        index = found["best"][1].get() if n % 2 else found["best"].get()["index"]
        groups = groups_of(np.roll(x, n), np.arange(5000), BINS)
        np.testing.assert_array_equal(index, [max(g, key=lambda j, v=v: (v[j], -j)) for g in groups])
    assert len(long_ways) == 2


def test_outputs_that_share_memory_are_refused_each_time(queue):
    x, add = cl_array.zeros(queue, 100, np.int32), operators.add(np.int32)
    kernel = HistogramKernel(None, (add, add), arguments="const int *x", map="EMIT0(x[i], 1); EMIT1(x[i], 2)")
    one, two = (cl_array.zeros(queue, 9, np.int32) for _ in range(2))
    for _ in range(4):
        kernel(x, num_bins=9, out=(one, two))
        with pytest.raises(ValueError, match="expected an array of its own"):
            kernel(x, num_bins=9, out=(one, one))
    assert (one.get()[0], two.get()[0]) == (100, 200)


def test_times_of_all_stages(queue):
    own = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    x, kernel = cl_array.zeros(own, 500_000, np.int32), kernel_of()
    stages = [set(kernel.timed(x, 1, num_bins=BINS, queue=own)[1]) for _ in range(4)]
    assert stages[0] >= {"sweep", "combine"}
    assert stages == [stages[0]] * 4


# Streams: chunks of a number of elements that came before.

SIZES = [500, 500, 500, 0, 500, 499, 499, 500, 499, 1, 500]
ANEW = 3  # once for each size; of no elements nothing is enqueued


@pytest.fixture(params=["device", "in place", "staged"])
def as_given(request, queue, monkeypatch):
    """Return what makes what is added of a NumPy array; only device arrays may be at an odd address."""
    if request.param == "staged":
        monkeypatch.setattr("clhist._core.runtime.chunks.shares_memory", lambda device: False)

    def given(array, before=0):
        if request.param != "device":
            return array.copy()
        room = cl_array.empty(queue, len(array) + before, array.dtype)
        room[before:].set(array)
        return room[before:]

    return given


def test_chunks_of_a_stream(as_given, long_ways, rng):
    """Each array is another one, which is gone or has been changed when the next one comes."""
    total = sum(SIZES)
    k, x = rng.integers(-2, BINS + 2, total, np.int32), rng.integers(-9, 9, total).astype(np.float32)
    code = "EMIT_best(k[i], ((value_best_t){x[i], first + i})); EMIT_sum(k[i], scale * n)"
    best, add = operators.argmax(np.float32, np.int64), operators.add(np.float64)
    arguments = "const int *k, const float *x, long first, double scale, int n"
    kernel = HistogramKernel(None, {"best": best, "sum": add}, arguments=arguments, map=code)
    accumulator = Accumulator(kernel, BINS, first_index="first", start=7)
    expected, begin = np.zeros(BINS), 0
    del long_ways[:]
    for n, size in enumerate(SIZES):
        part = slice(begin, begin + size)
        keys, values = as_given(k[part]), as_given(x[part])
        scale = [0.5, -0.0, 0.0, 3.0][n % 4]
        accumulator.add(keys, values, scale, n)
        expected += scale * n * counts_of(k[part], BINS)
        if isinstance(keys, np.ndarray):
            keys[:], values[:] = 0, 99
        begin += size
        if n == 4:
            with pytest.raises(TypeError, match=r"^x: "):
                accumulator.add(as_given(k[part]), as_given(x[part].astype(np.float64)), 1.0, 1)
            with pytest.raises(ValueError, match=r"^x: expected at least 500 elements, got 499$"):
                accumulator.add(as_given(k[part]), as_given(x[part][1:]), 1.0, 1)
            with pytest.raises(ValueError, match=r"^n: "):
                accumulator.add(as_given(k[part]), as_given(x[part]), 1.0, 2**31)
    found = accumulator.result()
    on_host = {name: array.get() if isinstance(array, cl_array.Array) else array for name, array in found.items()}
    np.testing.assert_array_equal(on_host["sum"], expected)
    groups = groups_of(k, np.arange(total), BINS)
    np.testing.assert_array_equal(on_host["best"]["index"], [7 + max(g, key=lambda j: (x[j], -j)) for g in groups])
    assert len(long_ways) == ANEW
    partial = accumulator.partial()
    assert (partial.size, partial.positions) == (total, ((7, 7 + total),))


def test_streams_of_other_dtypes_alignments_and_positions(as_given, queue, rng):
    """Each change is one of the text of the kernels; positions that no longer fit are refused as before."""
    x = rng.integers(-9, 9, 300).astype(np.float32)
    accumulator = Accumulator(operators.argmax(np.float32, np.int16), 9, start=0)
    keys = rng.integers(0, 9, 300, np.int32)
    order = [np.int32] * 3 + [np.int64, np.uint8] * 3 + [np.int32] * 3
    for n, dtype in enumerate(order):
        accumulator.add(as_given(keys.astype(dtype), n % 4), as_given(x + n // 5, n % 3))
    whole_k, whole_x = np.tile(keys, len(order)), np.concatenate([x + n // 5 for n in range(len(order))])
    found = accumulator.result()
    found = found.get() if isinstance(found, cl_array.Array) else found
    groups = groups_of(whole_k, np.arange(len(whole_k)), 9)
    np.testing.assert_array_equal(found["index"], [max(g, key=lambda j: (whole_x[j], -j)) for g in groups])
    late = Accumulator(operators.argmax(np.float32, np.int16), 9, start=2**15 - 1000)
    for _ in range(3):
        late.add(as_given(keys), as_given(x))
    with pytest.raises(ValueError, match=r"^indices: the position 32967 does not fit int16 of the index$"):
        late.add(as_given(keys), as_given(x))
    assert late.size == 900


def test_threads_with_a_stream_each(queue, other_queue, rng):
    """They share nothing but the code: what the one enqueues does not wait for the other."""
    x = rng.integers(-2, BINS + 2, 20_000, np.int32)
    ready = threading.Barrier(2)

    def work(own):
        array, accumulator = cl_array.to_device(own, x), Accumulator("count", BINS, queue=own)
        for n in range(60):
            if n % 20 == 0:
                ready.wait(60)
            accumulator.add(array, 1)
        return accumulator.result().get()

    with ThreadPoolExecutor(2) as executor:
        for found in executor.map(work, (queue, other_queue)):
            np.testing.assert_array_equal(found, 60 * counts_of(x, BINS))


def test_no_scratch_memory_for_a_stream_any_more(given, gpu_like, monkeypatch):
    (x, counts), *_ = given
    accumulator = Accumulator(kernel_of(gpu_like), BINS, memory="global")
    seen, original = [], launcher.allocated

    def noted(allocate, size, purpose):
        seen.append(size)
        return original(allocate, size, purpose)

    monkeypatch.setattr(launcher, "allocated", noted)
    for _ in range(3):
        accumulator.add(x, 1)
    most = max(seen)

    def refuse(allocate, size, purpose):
        if size >= most:
            raise OutOfMemoryError("no more", size)
        return noted(allocate, size, purpose)

    monkeypatch.setattr(launcher, "allocated", refuse)
    del seen[:]
    for _ in range(2):
        accumulator.add(x, 1)  # with fewer copies
    assert len(seen) == 2
    np.testing.assert_array_equal(accumulator.result().get(), 5 * counts)
