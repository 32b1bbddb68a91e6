"""What is kept for later calls is bounded."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import spec
from clhist._core.opencl import memory as scratch
from clhist._core.opencl import program
from clhist._core.runtime import launcher, signature
from clhist.binned import sweep

pytestmark = pytest.mark.usefixtures("without_optimizer")


def test_programs(queue, monkeypatch):
    monkeypatch.setattr(program, "_MOST_VALUES", 3)
    context = cl.Context([queue.device])  # which has no cache yet
    sources = [f"kernel void clhist_cache{n}(global int *x) {{ x[0] = {n}; }}" for n in range(5)]
    before = program.programs_built()
    first = program.build(context, sources[0])
    for source in sources:
        program.build(context, source)
        assert program.build(context, sources[0]) is first  # used again and again
    assert program.programs_built() == before + 5
    program.build(context, sources[1])  # which was dropped
    assert program.programs_built() == before + 6


def test_scratch_memory(queue, monkeypatch):
    """Calls of ever other sizes would leave a block of each."""
    x, held = np.zeros(100, np.int32), {}
    for part in (scratch._MOST_IDLE, 2**62):  # of the device's memory may be idle: one eighth, nothing
        clhist.free_scratch()
        monkeypatch.setattr(scratch, "_MOST_IDLE", part)
        for bins in (100_000, 200_000, 300_000, 400_000):
            clhist.reduce_by_index(np.zeros(bins, np.int32), np.add, x, 1, memory="global", copies=2, queue=queue)
        held[part] = scratch.scratch_bytes()
    clhist.free_scratch()
    assert scratch.scratch_bytes() == 0
    assert 4 * 2 * 400_000 <= held[2**62] < 4 * 2 * 600_000  # of the last call; blocks are rounded up by an eighth
    assert held[8] >= 4 * 2 * 1_000_000


def calls(queue, kernel):
    """Return calls of several ways in, each with what is right."""
    rng = np.random.default_rng(3)
    x, values = rng.integers(0, 999, 70_000, np.int32), rng.random(70_000, np.float32)
    offsets, device = np.array([0, 30_000, 70_000]), cl_array.to_device(queue, x)
    each = [np.bincount(part, minlength=999) for part in np.split(x, [30_000])]
    edges = np.sort(rng.random(300))
    spec = clhist.Spec("count", 999)
    return [
        (lambda: clhist.bincount(device).get(), np.bincount(x)),
        (lambda: clhist.reduce_by_index(np.zeros(999, np.int32), np.add, x, 1, queue=queue), np.bincount(x)),
        (lambda: kernel(x, num_bins=999), np.bincount(x)),
        (lambda: kernel(x, num_bins=999, offsets=offsets), each),
        (lambda: clhist.histogram(cl_array.to_device(queue, values), edges)[0].get(), np.histogram(values, edges)[0]),
        (lambda: clhist.histogram(cl_array.to_device(queue, values), 50)[0].get(), np.histogram(values, 50)[0]),
        (lambda: clhist.group_by(device, 999).size().get(), np.bincount(x)),
        (lambda: spec.result(spec.partial(x, np.uint32(1))), np.bincount(x)),
        (lambda: clhist.unique(device).get(), np.unique(x)),
    ]


@pytest.fixture
def own_kernel(queue):
    count = clhist.operators.count()
    return clhist.HistogramKernel(queue.context, count, arguments="const int *x", map="EMIT(x[i], 1)")


def test_few_tables_of_axes_stay_on_a_device(queue, uploaded):
    """Each may take megabytes, and calls with so many edges are not cached themselves."""
    x = cl_array.to_device(queue, np.linspace(0, 1, 100))
    for n in range(70):
        clhist.histogram(x, np.linspace(-n, 2, 10_001))
    gc.collect()
    assert len(uploaded) >= 70
    assert len([each for each in uploaded if each() is not None]) == 64 * len(uploaded) // 70


def test_all_that_is_kept_can_be_cleared(queue, own_kernel):
    """Memory of pools, prepared calls with their tables, streams, and programs; and calls are right afterwards."""
    kept = calls(queue, own_kernel)
    clhist.clear_caches()
    gc.collect()
    others = {id(each): each for each in gc.get_objects() if type(each) is launcher.OpenCLExecutable}  # of other tests
    for _ in range(2):
        built = program.programs_built()
        for call, want in kept:
            for _ in range(3):
                np.testing.assert_array_equal(call(), want)
        assert program.programs_built() > built  # those of the round before are forgotten
        assert scratch.scratch_bytes() > 0
        executables = [each for each in gc.get_objects() if type(each) is launcher.OpenCLExecutable]
        gone = [weakref.ref(each) for each in executables if id(each) not in others]
        del executables
        tables = [table for tables in sweep._tables._kept.values() for table in tables if table is not None]
        gone += [weakref.ref(table) for table in tables]
        del tables
        gone += [weakref.ref(each) for each in spec._kept._kept.values()]
        assert {type(each()) for each in gone} >= {launcher.OpenCLExecutable, cl_array.Array, clhist.Accumulator}
        assert clhist.clear_caches() is None
        gc.collect()
        assert scratch.scratch_bytes() == 0
        assert not program._caches
        assert not [each() for each in gone if each() is not None]
        assert not any(each._kept for each in signature._every)


def test_what_is_held_outlives_the_caches(queue, own_kernel):
    """Results, streams and bound calls."""
    x = np.arange(70_000, dtype=np.int32) % 7
    device, want = cl_array.to_device(queue, x), np.bincount(x)
    result, bound = clhist.bincount(device), own_kernel.bind(device, num_bins=7)
    stream = clhist.Accumulator("count", 7, queue=queue)
    for number in range(1, 4):
        stream.add(x, np.uint32(1))
        clhist.clear_caches()
        np.testing.assert_array_equal(result.get(), want)
        np.testing.assert_array_equal(bound().get(), want)
        np.testing.assert_array_equal(stream.result(), number * want)


def test_caches_are_cleared_while_other_threads_compute(queue, own_kernel):
    kept, end, wrong = calls(queue, own_kernel)[:4], threading.Event(), []

    def compute(k):
        while not end.is_set():
            call, want = kept[k % len(kept)]
            try:
                np.testing.assert_array_equal(call(), want)
            except BaseException as error:
                wrong.append(error)
                return
            k += 2

    threads = [threading.Thread(target=compute, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        clhist.clear_caches()
        time.sleep(0.05)
    end.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_idle_memory_of_other_queues_is_given_back_where_memory_is_short(queue, out_of_order_queue, monkeypatch):
    """They share the device; what is held stays."""
    touch = scratch._touch

    def refuse(own, buffer):
        if scratch.scratch_bytes() > most:
            raise cl.MemoryError("touch", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
        touch(own, buffer)

    for own in (queue, out_of_order_queue):
        clhist.clear_caches()
        other, most = cl.CommandQueue(queue.context), 2**62
        monkeypatch.setattr(scratch, "_touch", refuse)
        held = scratch.scratch_allocator(other)(1 << 20)
        scratch.scratch_allocator(other)(1 << 22)
        most = 1 << 21
        assert scratch.scratch_bytes() > most
        block = scratch.allocated(scratch.scratch_allocator(own), 1000, "for nothing")
        assert most > scratch.scratch_bytes() >= 1 << 20
        most = 0
        with pytest.raises(scratch.OutOfMemoryError):
            scratch.allocated(scratch.scratch_allocator(own), 2000, "for nothing")
        del held, block


def test_memory_is_not_waited_for_where_the_caller_is(queue, monkeypatch):
    """Another queue waits for an event that this thread sets later: its memory stays, and the call ends without it."""
    monkeypatch.setattr(scratch, "PATIENCE", 0.05)
    other, ready = cl.CommandQueue(queue.context), cl.UserEvent(queue.context)
    scratch.scratch_allocator(other)(1 << 20)
    cl.enqueue_barrier(other, [ready])
    tried, touch = [], scratch._touch

    def refuse(own, buffer):
        tried.append(own)
        if len(tried) == 1:
            raise cl.MemoryError("touch", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
        touch(own, buffer)

    monkeypatch.setattr(scratch, "_touch", refuse)
    before = scratch.scratch_bytes()
    assert scratch.scratch_allocator(queue)(12_345_678) is not None
    assert tried == [queue, queue]
    assert scratch.scratch_bytes() > before - (1 << 20)
    ready.set_status(cl.command_execution_status.COMPLETE)
    other.finish()
