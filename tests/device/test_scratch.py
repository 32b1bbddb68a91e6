"""Device memory for calls: what is kept, what is allocated at once, and what happens where there is none."""

from __future__ import annotations

import signal
import threading
import time
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import HistogramKernel, operators
from clhist._core.opencl import memory as scratch
from clhist._core.opencl.new_arrays import shares_memory
from clhist._core.opencl.operands import in_place
from clhist.selftest.cases import pair_kernel

pytestmark = pytest.mark.usefixtures("without_optimizer")


@pytest.fixture
def touched(monkeypatch):
    """The sizes of buffers that were written to, so that the device allocates them; those above `most` it refuses."""

    class Touched(list):
        most = 2**62

    found, touch = Touched(), scratch._touch

    def noting(queue, buffer):
        found.append(buffer.size)
        if buffer.size > found.most:
            raise cl.MemoryError("touch", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
        touch(queue, buffer)

    monkeypatch.setattr(scratch, "_touch", noting)
    return found


def test_what_is_new_is_allocated_at_once(queue, touched):
    pool = scratch._Pool(queue)
    blocks = [pool(1000), pool(5000)]
    assert len(touched) == 2
    assert pool.size == sum(touched) >= 6000
    del blocks
    again = pool(1000), pool(5000)
    assert len(touched) == 2
    pool.free()
    assert pool.size == sum(touched)
    del again
    pool.free()
    assert pool.size == 0


def test_idle_memory_is_given_back_before_it_is_refused(queue, touched):
    pool = scratch._Pool(queue)
    pool(5000)
    touched.most = 2000
    with pytest.raises(cl.MemoryError):
        pool(10_000)
    assert pool.size == 0  # nor is what was refused kept
    assert pool(1000).size >= 1000


def test_an_out_of_order_queue_has_no_pool(out_of_order_queue, touched):
    allocate = scratch.scratch_allocator(out_of_order_queue)
    before = scratch.scratch_bytes()
    blocks = [allocate(1000), allocate(1000)]
    assert touched == [block.size for block in blocks] == [1000, 1000]
    assert scratch.scratch_bytes() == before


def test_memory_that_is_found_missing_by_its_first_use(gpu_like, queue, touched):
    clhist.free_scratch()
    touched.most = 100_000
    bins = np.arange(50_000, dtype=np.int32) % 7
    kernel = pair_kernel(operators.add(np.int32), gpu_like)
    forced = {"memory": "global", "copies": 16, "queue": queue}
    call = partial(kernel, bins, np.ones_like(bins), num_bins=5000, **forced)
    with pytest.raises(MemoryError, match=r"^the device has no 320000 bytes for 16 copies of 5000 bins; what could"):
        call()
    touched.most = 2**62
    np.testing.assert_array_equal(call(), np.bincount(bins, minlength=5000))


@pytest.mark.parametrize("order", ["in order", "out of order"])
def test_new_memory_does_not_wait_for_an_event_of_the_caller(queue, out_of_order_queue, order):
    """A sort allocates behind its first kernel, which waits for an event that this thread sets later."""
    own = cl.CommandQueue(queue.context) if order == "in order" else out_of_order_queue
    kernel = HistogramKernel(queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)")
    x = cl_array.to_device(own, np.arange(9000, dtype=np.int32) % 50)
    own.finish()
    ready, found = cl.UserEvent(queue.context), []

    def call():
        found.append(kernel(x, num_bins=50, queue=own, wait_for=[ready], update="sort", return_event=True))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    has_returned = not thread.is_alive()
    ready.set_status(cl.command_execution_status.COMPLETE)
    thread.join(60)
    assert has_returned
    np.testing.assert_array_equal(found[0][0].get(own), 180)


def test_idle_memory_stays_while_its_queue_waits_for_the_caller(queue, monkeypatch):
    monkeypatch.setattr(scratch, "PATIENCE", 0.05)
    own, ready = cl.CommandQueue(queue.context), cl.UserEvent(queue.context)
    pool = scratch._Pool(own)
    pool(5000)
    cl.enqueue_barrier(own, [ready])
    pool.free()
    assert pool.size >= 5000
    ready.set_status(cl.command_execution_status.COMPLETE)
    pool.free()
    assert pool.size == 0


def test_ctrl_c_while_the_memory_of_an_array_is_waited_for(queue):
    """It is delivered to the caller, and the array outlives the kernel that reads it."""
    source = """__kernel void slow(__global const long *a, __global long *r) {
        long t = 0; for (long i = 0; i < 20000000; i++) t += a[i % 1000] ^ i; r[0] = t; }"""
    kernel = cl.Kernel(cl.Program(queue.context, source).build(), "slow")
    array, result = np.arange(1 << 16), cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8)
    events = []

    def call():
        events.append(kernel(queue, (1,), (1,), in_place(array, queue).base_data, result))

    def interrupted():
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        call()
        time.sleep(5)

    call()  # which compiles
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if shares_memory(queue.device):
        assert events[-1].command_execution_status == cl.command_execution_status.COMPLETE


@pytest.mark.parametrize("size", [1000, 300_000])
def test_memory_of_large_results_is_used_again(size, queue, rng):
    """Results of a CPU below 128 KiB have memory of their own; later results do not change what lives."""
    x, other = (cl_array.to_device(queue, rng.random(size).astype(np.float32)) for _ in range(2))
    edges = np.linspace(0, 1, 11)
    alive, gone = clhist.digitize(x, edges, queue=queue), clhist.digitize(other, edges, queue=queue)
    buffer = gone.base_data.int_ptr
    del gone
    pooled = isinstance(alive.base_data, cl.tools.PooledBuffer)
    assert pooled is (size > 1000 or not shares_memory(queue.device))
    again = clhist.digitize(other, edges, queue=queue)
    assert again.base_data.int_ptr == buffer or not pooled
    np.testing.assert_array_equal(again.get(), np.digitize(other.get(), edges))
    np.testing.assert_array_equal(alive.get(), np.digitize(x.get(), edges))
