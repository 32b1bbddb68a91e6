"""Device arrays in the manner of PyOpenCL: offsets, queues, events and allocators."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from processes import run_python
from pyopencl.tools import ImmediateAllocator, MemoryPool

from clhist import HistogramKernel, free_scratch, operators, reduce_by_index
from clhist._core.opencl.memory import scratch_bytes
from clhist._core.opencl.new_arrays import shares_memory
from clhist._core.opencl.operands import in_place
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on
from clhist.selftest.cases import CASES, NUM_BINS, pair_kernel, problem
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

COUNT = operators.add(np.int32)
COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def sums(profile):
    """Return a kernel that sums int32 values."""
    return pair_kernel(COUNT, profile)


@pytest.fixture
def data(rng):
    """Return bins, values, dest, and the sums of all."""
    bins, values = rng.integers(0, 50, 5000, np.int32), rng.integers(-99, 99, 5000, np.int32)
    dest = rng.integers(-99, 99, 50, np.int32)
    expected = dest.copy()
    np.add.at(expected, bins, values)
    return bins, values, dest, expected


def to_device(queue, *arrays):
    return [cl_array.to_device(queue, array) for array in arrays]


def at_offset(queue, array, offset):
    """Return `array` on the device, `offset` elements behind the start of its buffer."""
    return cl_array.to_device(queue, np.concatenate([array[:1].repeat(offset), array]))[offset:]


# Of values of 4, 16 and 1 bytes, and structs.
@pytest.mark.parametrize("name", ["add int32", "multiply complex128", "maximum int8", "argmax float32", "two largest"])
def test_device_arrays(name, profile, queue):
    bins, values, check = problem(name)
    result = pair_kernel(CASES[name].operator, profile)(*to_device(queue, bins, values), num_bins=NUM_BINS)
    assert isinstance(result, cl_array.Array)
    assert result.queue == queue
    check(result.get())


def test_dest_and_out(sums, data, queue):
    *given, expected = data
    bins, values, dest = to_device(queue, *given)
    result = sums(bins, values, num_bins=50, dest=dest)
    np.testing.assert_array_equal(result.get(), expected)
    for array, content in zip((bins, values, dest), given, strict=True):
        np.testing.assert_array_equal(array.get(), content)
    out = cl_array.empty(queue, 50, np.int32)
    assert sums(bins, values, num_bins=50, dest=dest, out=out) is out
    np.testing.assert_array_equal(out.get(), expected)
    assert sums(bins, values, num_bins=50, dest=dest, out=dest) is dest
    np.testing.assert_array_equal(dest.get(), expected)
    again = reduce_by_index(result, np.add, bins, values)
    np.testing.assert_array_equal(again.get(), 2 * expected - data[2])


@pytest.mark.parametrize("offset", [1, 3, 4, 16])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["bins", "values", "dest"])
def test_arrays_with_an_offset(sums, data, which, offset, queue):
    # 16 bytes from the start loads may be wide, elsewhere they may not.
    *given, expected = data
    arrays = [at_offset(queue, array, offset if k == which else 0) for k, array in enumerate(given)]
    result = sums(*arrays[:2], num_bins=50, dest=arrays[2])
    np.testing.assert_array_equal(result.get(), expected)


@pytest.mark.parametrize("index", ["char", "int", "long"])
@pytest.mark.parametrize("offset", [1, 5])
def test_narrow_arrays_with_an_offset(index, offset, profile, queue, rng):
    kernel = HistogramKernel(None, COUNT, arguments=f"const {index} *bins", map="EMIT(bins[i], 1)", profile=profile)
    bins = rng.integers(0, 100, 5000).astype(kernel.arguments[0].dtype)
    for array in (at_offset(queue, bins, offset), cl_array.to_device(queue, bins)):
        np.testing.assert_array_equal(kernel(array, num_bins=100).get(), counts_of(bins, 100))


def test_out_with_an_offset(sums, data, queue):
    *given, expected = data
    buffer = cl_array.to_device(queue, np.full(60, -1, np.int32))
    sums(*to_device(queue, *given[:2]), num_bins=50, dest=cl_array.to_device(queue, given[2]), out=buffer[3:53])
    np.testing.assert_array_equal(buffer.get(), np.concatenate([[-1] * 3, expected, [-1] * 7]))


def test_empty_arrays(sums, queue):
    nothing = cl_array.to_device(queue, np.empty(0, np.int32))
    dest = cl_array.to_device(queue, np.arange(50, dtype=np.int32))
    assert not sums(nothing, nothing, num_bins=50).get().any()
    np.testing.assert_array_equal(sums(nothing, nothing, num_bins=50, dest=dest).get(), np.arange(50))
    some = dest[5:]
    np.testing.assert_array_equal(sums(some[:0], some[:0], num_bins=50, dest=dest).get(), np.arange(50))


def test_arrays_of_more_dimensions(sums, data, queue):
    *given, expected = data
    bins, values, dest = to_device(queue, *given)
    result = sums(bins.reshape(50, 100), values.reshape(50, 100), num_bins=50, dest=dest)
    np.testing.assert_array_equal(result.get(), expected)


def test_another_context(profile, data, other_context, other_queue):
    *given, expected = data
    kernel = pair_kernel(COUNT, profile, context=other_context)
    np.testing.assert_array_equal(kernel(*given[:2], num_bins=50, dest=given[2]), expected)
    for queue in (None, other_queue):
        bins, values, dest = to_device(other_queue, *given)
        result = kernel(bins, values, num_bins=50, dest=dest, queue=queue)
        assert result.context == other_context
        np.testing.assert_array_equal(result.get(), expected)
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, bins, values).get(), expected)


def test_the_queue_that_is_given_is_used(sums, data, queue):
    *given, expected = data
    bins, values, dest = to_device(queue, *given)
    mine = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    result, event = sums(bins, values, num_bins=50, dest=dest, queue=mine, return_event=True)
    assert result.queue == mine
    event.wait()
    assert event.profile.end > event.profile.start  # only that queue measures
    np.testing.assert_array_equal(result.get(), expected)


def test_arrays_without_a_queue(sums, data, queue):
    *given, expected = data
    bins, values, dest = (array.with_queue(None) for array in to_device(queue, *given))
    result = sums(bins, values, num_bins=50, dest=dest)
    np.testing.assert_array_equal(result.get(queue), expected)


@pytest.mark.parametrize("kind", ["in order", "out of order"])
@pytest.mark.parametrize("gated", ["wait_for", "bins", "values", "dest", "out"])
def test_events_are_waited_for(sums, data, kind, gated, queue, out_of_order_queue):
    *given, expected = data
    if kind == "out of order":
        queue = out_of_order_queue
    bins, values, dest = to_device(queue, *given)
    out = cl_array.to_device(queue, np.full(50, -1, np.int32))
    queue.finish()
    gate = cl.UserEvent(queue.context)
    if gated == "wait_for":
        wait_for = [gate]
    else:
        wait_for = None
        {"bins": bins, "values": values, "dest": dest, "out": out}[gated].add_event(gate)
    arguments = {"num_bins": 50, "dest": dest, "out": out, "queue": queue, "memory": "global", "copies": 2}
    try:
        _, event = sums(bins, values, wait_for=wait_for, return_event=True, **arguments)
        queue.flush()
        assert event.command_execution_status != COMPLETE
        assert event in out.events
    finally:
        gate.set_status(COMPLETE)
    event.wait()
    np.testing.assert_array_equal(out.get(), expected)


@pytest.mark.parametrize("memory", ["local", "global"])
def test_a_chain_on_an_out_of_order_queue(sums, memory, out_of_order_queue, rng):
    # Each call adds to what the one before wrote; nothing but events keeps them in order.
    queue, bins = out_of_order_queue, rng.integers(0, 50, 20_000, np.int32)
    bins_there, ones = to_device(queue, bins, np.ones_like(bins))
    total = cl_array.to_device(queue, np.zeros(50, np.int32))
    for step in range(20):
        out = total if step % 2 else None
        total = sums(bins_there, ones, num_bins=50, dest=total, out=out, memory=memory, copies=2)
    np.testing.assert_array_equal(total.get(), 20 * counts_of(bins, 50))


@pytest.mark.parametrize("kind", ["in order", "out of order"])
@pytest.mark.parametrize("pooled", [False, True])
def test_many_calls_before_any_ends(sums, kind, pooled, queue, out_of_order_queue, rng):
    # The copies of a call must not be handed to the next one while they are in use.
    if kind == "out of order":
        queue = out_of_order_queue
    allocator = MemoryPool(ImmediateAllocator(queue)) if pooled else None
    inputs = [rng.integers(0, 50, 20_000, np.int32) for _ in range(30)]
    there, ones = to_device(queue, *inputs), cl_array.to_device(queue, np.ones(20_000, np.int32))
    queue.finish()
    results = [
        sums(bins, ones, num_bins=50, queue=queue, allocator=allocator, memory="global", copies=4) for bins in there
    ]
    for bins, result in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(result.get(), counts_of(bins, 50))


def test_an_array_that_the_map_writes_gets_the_event(profile, out_of_order_queue, data):
    # What reads it next on an out-of-order queue has nothing else to wait for.
    kernel = HistogramKernel(
        None, COUNT, arguments="const int *x, int *y", map="y[i] = 2 * x[i]; EMIT(x[i], 1)", profile=profile
    )
    x, y = to_device(out_of_order_queue, data[0], np.zeros_like(data[0]))
    result, event = kernel(x, y, num_bins=50, return_event=True)
    assert event in y.events
    np.testing.assert_array_equal(y.get(), 2 * data[0])
    np.testing.assert_array_equal(result.get(), counts_of(data[0], 50))


def test_allocators_give_the_result_and_the_copies(sums, data, queue):
    *given, expected = data
    sizes = []

    def allocate(size):
        sizes.append(size)
        return ImmediateAllocator(queue)(size)

    result = sums(*to_device(queue, *given[:2]), num_bins=50, allocator=allocate, memory="global", copies=3)
    np.testing.assert_array_equal(result.get(), expected - given[2])
    assert sorted(sizes) == [50 * 4, 3 * 50 * 4]


def test_memory_pools(sums, data, queue):
    *given, expected = data
    pool = MemoryPool(ImmediateAllocator(queue))
    arrays = [cl_array.to_device(queue, array, allocator=pool) for array in given]
    before = pool.active_bytes
    for _ in range(3):
        result = sums(*arrays[:2], num_bins=50, dest=arrays[2], allocator=pool)
        np.testing.assert_array_equal(result.get(), expected)
    queue.finish()
    assert 0 < pool.active_bytes - before <= 256  # the last result, and nothing else


def test_scratch_memory_can_be_given_back(sums, data):
    *given, expected = data
    for _ in range(2):
        free_scratch()
        np.testing.assert_array_equal(sums(*given[:2], num_bins=50, dest=given[2]), expected)


def test_memory_of_results_is_used_again(sums, data, queue, monkeypatch):
    """Of a GPU, whose memory is its own: from what is kept for the queue, unless it runs out of order."""
    for module in ("new_arrays", "operands"):
        monkeypatch.setattr(f"clhist._core.opencl.{module}.shares_memory", lambda device: False)
    bins, ones = to_device(queue, *data[:2])
    free_scratch()
    first = sums(bins, ones, num_bins=50)
    want, kept, memory = first.get(), scratch_bytes(), first.base_data.int_ptr
    assert first.allocator is None, "what is computed of it is memory of its own"
    assert kept > 0
    second = sums(bins, ones, num_bins=50)
    assert second.base_data.int_ptr != memory
    third = sums(bins, ones, num_bins=50)
    grown = scratch_bytes()
    for _ in range(20):
        second, third = third, None
        third = sums(bins, ones, num_bins=50)
        np.testing.assert_array_equal(third.get(), want)
    assert scratch_bytes() == grown
    np.testing.assert_array_equal(first.get(), want, "who holds it keeps it")
    del first, second, third
    free_scratch()
    assert scratch_bytes() == 0


def test_memory_of_the_host_is_kept_until_it_has_been_read(queue):
    number = 20_000
    kernel = Elementwise(
        queue.context,
        "const double *x, double *y",
        "double sum = 0; for (uint j = 0; j < 20000; ++j) sum += x[(i + j) % size]; y[i] = sum",
        "clhist_slow",
    )
    given = in_place(np.ones(number), queue)  # nothing else holds that array
    found = cl_array.empty(queue, number, np.float64)
    chain = chain_on(queue, "")
    kernel(chain, number, [given, found])
    chain.finish(found)
    (event,) = found.events
    del given
    assert event.command_execution_status == cl.command_execution_status.COMPLETE or not shares_memory(queue.device)
    assert (found.get() == number).all()


def test_a_runtime_that_was_registered_too_late_is_named():
    """OpenCL's loader looks once in a process: `PYOPENCL_CTX` may name what it has not seen."""
    code = """
        try:
            clhist.default_queue()
        except clhist.NoDeviceError as error:
            print(error)
    """
    unset = "import os; os.environ.pop('OCL_ICD_VENDORS', None); os.environ['PYOPENCL_CTX'] = 'Intel'; "
    runtime = Path(sys.prefix, "lib", "libintelocl.so")
    if not runtime.exists():
        pytest.skip("Intel's runtime is not installed")
    late = run_python(code, before=f"{unset}import pyopencl; pyopencl.get_platforms()")
    assert f"has not seen {runtime}: import clhist first" in late
    assert "there are 0:0 (" in late
    assert run_python(code, before=unset) == ""
