"""Some elements of an array, for guesses that the computation itself then checks, and the words where it says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyopencl as cl

from clhist._core.cuda.driver import driver, heard, unheard
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import cuda_device_of, is_cuda
from clhist._core.opencl.new_arrays import kept_on_device, zeros
from clhist._core.opencl.program import kept_by_context

_MOST = 2048


def evenly_spread(x: Array, queue: cl.CommandQueue) -> np.ndarray:
    """Return some elements of `x`, evenly spread."""
    step = max(1, x.size // _MOST)
    if isinstance(x, np.ndarray):
        return x[::step]
    if is_cuda(x):
        return x.every(step)
    found = np.empty(x.size // step, x.dtype)
    cl.enqueue_copy(
        queue,
        found,
        x.base_data,  # type: ignore[call-overload]
        buffer_origin=(x.offset, 0, 0),
        host_origin=(0, 0, 0),
        region=(x.dtype.itemsize, found.size, 1),
        buffer_pitches=(step * x.dtype.itemsize,),
        host_pitches=(x.dtype.itemsize,),
        wait_for=x.events,
    )
    return found


class Reading:
    """A copy on the host of what an array of one dimension holds now: it waits for nothing that is enqueued later."""

    def __init__(self, array: Array, queue: cl.CommandQueue) -> None:
        self.array, self._queue, self._host = array, queue, np.empty(array.shape, array.dtype)
        if is_cuda(array):
            device, stream = array.memory.device, array.memory.stream
            with driver().on(device), unheard():
                driver().check_not_captured(stream)
                driver().begin_reading(device, stream)
            if heard.calls is not None:
                heard.calls.append(self)
            return
        given = {"src_offset": array.offset, "wait_for": array.events, "is_blocking": False}
        self._event = cl.enqueue_copy(queue, self._host, array.base_data, **given)

    def get(self) -> np.ndarray:
        """Return it; the host waits for it."""
        if is_cuda(self.array):
            device = self.array.memory.device
            with driver().on(device), unheard():
                driver().end_reading(self._host, self.array.offset, device)
            return self._host
        with lost.settled(self._queue):
            self._event.wait()
        return self._host


_ZEROS = np.zeros(2, np.uint32)


class Words:
    """A device array of two uint32, 0 at first; they are read when the queue has come to the end."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        is_of_cuda = cuda_device_of(queue) is not None
        self.array: Array = kept_on_device(queue, _ZEROS) if is_of_cuda else zeros(queue, (2,), _ZEROS.dtype)
        self._queue, self._are_zero = queue, True

    def read(self) -> tuple[int, int]:
        """Return both, once all is done that writes them."""
        with unheard():
            first, second = lost.fetched(self.array, self._queue).tolist()
        self._are_zero = first == second == 0
        return first, second

    def clear(self, queue: cl.CommandQueue) -> None:
        """Set them to 0 again, for use on `queue`."""
        if not self._are_zero and is_cuda(self.array):
            self.array.clear()
        elif not self._are_zero:
            self.array.events[:] = [cl.enqueue_copy(queue, self.array.base_data, _ZEROS, is_blocking=False)]
        self._queue, self._are_zero = queue, True


@contextmanager
def found_words(queue: cl.CommandQueue) -> Iterator[Words]:
    """Give words for `clhist._core.runtime.prepare.LargestBin`; they are kept, since to make them takes 150 us."""
    kept, name = _kept(queue.context).__dict__, "by_opencl" if cuda_device_of(queue) is None else "by_cuda"
    with unheard():
        words = kept.pop(name, None) or Words(queue)
        words.clear(queue)
    yield words
    kept[name] = words  # and not if anything was raised: they may still be written then


@kept_by_context
def _kept(context: cl.Context) -> threading.local:
    return threading.local()
