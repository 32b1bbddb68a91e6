"""Samples of arrays for guesses, and the two words in which kernels report that a guess was wrong."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import cuda_device_of, is_cuda
from clhist._core.opencl.new_arrays import kept_on_device, zeros
from clhist._core.opencl.program import kept_by_context
from clhist._core.recording import note, unheard

_MOST = 2048  # elements of a sample, at most twice as many


def evenly_spread(x: Array, queue: cl.CommandQueue) -> np.ndarray:
    """Copy every n-th element of `x` to the host, about `_MOST` elements."""
    step = max(1, x.size // _MOST)
    if isinstance(x, np.ndarray):
        return x[::step]
    if is_cuda(x):
        return x.every(step)
    # A rectangular copy with a pitch of n elements fetches the sample without a kernel.
    sample = np.empty(x.size // step, x.dtype)
    cl.enqueue_copy(
        queue,
        sample,
        x.base_data,  # type: ignore[call-overload]
        buffer_origin=(x.offset, 0, 0),
        host_origin=(0, 0, 0),
        region=(x.dtype.itemsize, sample.size, 1),
        buffer_pitches=(step * x.dtype.itemsize,),
        host_pitches=(x.dtype.itemsize,),
        wait_for=x.events,
    )
    return sample


class Reading:
    """Copies an array of one dimension to the host, enqueued now: `get` does not wait for later commands."""

    def __init__(self, array: Array, queue: cl.CommandQueue) -> None:
        self.array, self._queue, self._host = array, queue, np.empty(array.shape, array.dtype)
        if is_cuda(array):
            from clhist._core.cuda.driver import driver  # imported here, since other arrays do not need it

            device, stream = array.memory.device, array.memory.stream
            # A recording notes this object, not the driver's calls: a replay copies anew.
            with driver().on(device), unheard():
                driver().check_not_captured(stream)
                driver().begin_reading(device, stream)
            note(self)
            return
        options = {"src_offset": array.offset, "wait_for": array.events, "is_blocking": False}
        self._event = cl.enqueue_copy(queue, self._host, array.base_data, **options)

    def get(self) -> np.ndarray:
        """Wait for the copy and return it."""
        if is_cuda(self.array):
            from clhist._core.cuda.driver import driver

            device = self.array.memory.device
            with driver().on(device), unheard():
                driver().end_reading(self._host, self.array.offset, device)
            return self._host
        with lost.settled(self._queue):
            self._event.wait()
        return self._host


_ZEROS = np.zeros(2, np.uint32)


class Words:
    """Two uint32 on the device, initially 0, that kernels write and `read` fetches."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        is_of_cuda = cuda_device_of(queue) is not None
        self.array: Array = kept_on_device(queue, _ZEROS) if is_of_cuda else zeros(queue, (2,), _ZEROS.dtype)
        self._queue, self._are_zero = queue, True

    def read(self) -> tuple[int, int]:
        """Wait for the queue and return both words."""
        with unheard(), lost.settled(self._queue):
            if is_cuda(self.array):
                host = self.array.get()
            else:  # PyOpenCL's `get` takes twice as long
                host = np.empty(2, np.uint32)
                cl.enqueue_copy(self._queue, host, self.array.base_data, wait_for=self.array.events)
            first, second = host.tolist()
        # Words that stayed 0 need no clearing, which would be another command.
        self._are_zero = first == second == 0
        return first, second

    def clear(self, queue: cl.CommandQueue) -> None:
        """Set both words to 0, for use on `queue`."""
        if not self._are_zero and is_cuda(self.array):
            self.array.clear()
        elif not self._are_zero:
            try:
                self.array.events[:] = [cl.enqueue_copy(queue, self.array.base_data, _ZEROS, is_blocking=False)]
            except cl.Error as error:  # `lost.settled` would cost each call three frames
                lost.settle(queue, error)
                raise
        self._queue, self._are_zero = queue, True


class found_words:  # as a function; a generator would take three times as long
    """Lends a pair of words for `clhist._core.runtime.prepare.LargestBin` in a ``with`` block.

    Each thread has its own pair in a context, which is reused: allocation takes 150 us.
    """

    __slots__ = ("_cache", "_name", "_queue", "_words")

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue, self._cache = queue, _words_of(queue.context).__dict__
        self._name = "by_opencl" if cuda_device_of(queue) is None else "by_cuda"

    def __enter__(self) -> Words:
        with unheard():
            # Taken out of the cache meanwhile: a nested call of this thread gets another pair.
            words = self._words = self._cache.pop(self._name, None) or Words(self._queue)
            words.clear(self._queue)
        return words

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:  # kernels may still write them after an exception
            self._cache[self._name] = self._words


@kept_by_context
def _words_of(context: cl.Context) -> threading.local:
    return threading.local()
