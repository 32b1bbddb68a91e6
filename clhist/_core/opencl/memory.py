"""Memory that is kept for the next call: of copies, pairs and tables where a queue runs in order, and of large results.

Results in NumPy arrays have it, too: the system clears new pages one by one.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.tools import DeferredAllocator, MemoryPool

from clhist._core.opencl.host_memory import host_memory
from clhist._core.opencl.lost import check_process, settle
from clhist._core.opencl.program import kept_by_context
from clhist.errors import DeviceLostError

Allocator = Callable[[int], Any]

_MOST_POOLS = 8  # the pool of an older queue is dropped, and its memory with it
# The part of the device's memory that a pool may keep for later calls: calls of all sizes keep one of each.
_MOST_IDLE = 8
PATIENCE = 2.0  # seconds that a call without memory waits for other queues
_REFUSALS = (cl.MemoryError, cl.LogicError, MemoryError)  # too much for the device, or for one buffer
_BYTE = np.zeros(1, np.uint8)


class OutOfMemoryError(MemoryError):
    """The device refused so many bytes; nothing but scratch memory has been written since."""

    def __init__(self, message: str, size: int = 0) -> None:  # pickling restores it later
        super().__init__(message)
        self.size = size


def allocated(allocate: Allocator, size: int, purpose: str) -> Any:
    """Return `size` bytes of the device; raises OutOfMemoryError where there are none, with what they were for."""
    try:
        return allocate(size)
    except _REFUSALS as error:
        raise OutOfMemoryError(f"the device has no {size} bytes {purpose}", size) from error


def in_order(queue: cl.CommandQueue) -> bool:
    """Return whether commands begin when those before them have ended."""
    return not queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


def immediate_allocator(queue: cl.CommandQueue) -> Allocator:
    """Return an allocator without deferral, so that a smaller plan can replace one that is refused memory.

    OpenCL may defer an allocation until a command needs the memory. PyOpenCL's ImmediateAllocator forces it by
    clEnqueueMigrateMemObjects, which crashes NVIDIA's driver (580) while other threads use the queue; this writes.
    """

    def new(size: int) -> cl.Buffer:
        buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size)
        _touch(queue, buffer)
        return buffer

    def allocate(size: int) -> cl.Buffer:
        try:
            return new(size)
        except cl.MemoryError:
            free_idle(PATIENCE)
            return new(size)

    return allocate


def _touch(queue: cl.CommandQueue, buffer: Any) -> None:
    """Write to a buffer and wait, on a queue of our own: the caller's may wait for an event that is theirs to set."""
    cl.enqueue_copy(_touching(queue.context, queue.device), buffer, _BYTE, is_blocking=True)


@kept_by_context
def _touching(context: cl.Context, device: cl.Device) -> cl.CommandQueue:
    return cl.CommandQueue(context, device)


class _Pool:
    """Memory of one queue, which must run in order: what its last holder lets go of the next call may have."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue, self._lock = queue, threading.Lock()
        self._most_idle = queue.device.global_mem_size // _MOST_IDLE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of allocators that are deferred: see `_new`
            self._pool = MemoryPool(DeferredAllocator(queue.context))

    def __call__(self, size: int) -> Any:
        """Return at least `size` bytes; those that are new are allocated at once, as by `immediate_allocator`."""
        try:
            return self._new(size)
        except cl.MemoryError:
            self.free()
            free_idle(PATIENCE)
            return self._new(size)

    def _new(self, size: int) -> Any:
        block, pool = None, self._pool
        try:
            # The bytes before and after belong to this allocation alone, so that they tell whether it is new.
            with self._lock:
                before = pool.managed_bytes
                block = pool.allocate(size)
                is_new = pool.managed_bytes > before
            if is_new:
                _touch(self._queue, block)
                # Idle blocks of many sizes add up.
                if pool.managed_bytes - pool.active_bytes > self._most_idle:
                    self.free()
            return block
        except BaseException:  # Ctrl-C too
            if block is not None:
                block.release()
            self.free()  # or the next call would have it untouched
            raise

    @property
    def size(self) -> int:
        """Bytes that it has from the device, in use or not."""
        return self._pool.managed_bytes

    def free(self) -> None:
        """Give back what has no holder, unless the queue has more to do than `PATIENCE` seconds."""
        # What is enqueued may still use it, and may wait for an event that is the caller's to set.
        if _has_ended(self._queue, time.monotonic() + PATIENCE):
            settle(self._queue)
            self._pool.free_held()


_pools: dict[int, tuple[cl.CommandQueue, _Pool]] = {}
_pools_lock = threading.Lock()


def scratch_allocator(queue: cl.CommandQueue) -> Allocator:
    """Return where the memory of a call on `queue` comes from: its pool, or the device if it runs out of order."""
    return pool_of(queue) or immediate_allocator(queue)


def pool_of(queue: cl.CommandQueue) -> Allocator | None:
    """Return the memory pool of a queue, which the next call uses again; None of a queue that runs out of order."""
    # Without the lock: one operation on a dictionary, and a pool that is dropped meanwhile still works.
    pool = _pools.get(queue.int_ptr)
    if pool is not None:
        return pool[1]
    if not in_order(queue):
        return None
    with _pools_lock:
        # Kept is the queue too, whose pointer would be used again; and only so many.
        if queue.int_ptr not in _pools:
            _pools[queue.int_ptr] = queue, _Pool(queue)
            while len(_pools) > _MOST_POOLS:
                del _pools[next(iter(_pools))]
        return _pools[queue.int_ptr][1]


def scratch_bytes() -> int:
    """Return the bytes of device memory that all pools have, of calls that are running and for later ones."""
    with _pools_lock:
        return sum(pool.size for _, pool in _pools.values())


def free_idle(seconds: float | None = None) -> None:
    """Give back what nobody holds, of all queues: they share the device's memory.

    Queues that have more to do than so many `seconds` keep theirs, if that is given: they may wait for an event that
    is the caller's to set.
    """
    with _pools_lock:
        # Pools are freed without the lock, since that waits for queues.
        pools = [*_pools.values()]
    end = None if seconds is None else time.monotonic() + seconds
    for queue, pool in pools:
        with suppress(DeviceLostError):  # perhaps of another device
            if end is None or _has_ended(queue, end):
                pool.free()


def _has_ended(queue: cl.CommandQueue, end: float) -> bool:
    """Whether all that is enqueued has ended before a time."""
    with suppress(cl.Error):  # of a device that is lost, as whoever waits for it will learn
        # A marker, since a queue has no status. Polled, since a wait has no limit of time.
        marker = cl.enqueue_marker(queue)
        queue.flush()
        while marker.command_execution_status > cl.command_execution_status.COMPLETE:
            if time.monotonic() > end:
                return False
            time.sleep(1e-3)
    return True


def free_scratch() -> None:
    """Give back the memory that is kept for later calls: of copies, of results that are gone, and for uploads.

    Up to an eighth of a device's memory is kept for each queue in order, as long as it is not short, and up to 512 MiB
    of NumPy results that are gone. The memory of a device array that a call returned (on a CPU of 128 KiB and more) is
    used again, by calls on the same queue, once the array is gone: wait for what another queue does with it before you
    let go of it, or give the call an ``allocator=``.

    Examples
    --------
    >>> clhist.free_scratch()
    """
    from clhist._core.opencl.upload import uploads  # imported here, since CPUs need none

    check_process()
    uploads.cache_clear()
    host_memory.free()
    free_idle()
    with _pools_lock:
        _pools.clear()
