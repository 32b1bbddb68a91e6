"""Some elements of an array, for guesses that the computation itself then checks, and the word where it says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist.opencl import lost
from clhist.opencl.arrays import Array, is_device_array
from clhist.opencl.program import kept_by_context

_MOST = 2048


def evenly_spread(x: Array, queue: cl.CommandQueue) -> np.ndarray:
    """Return some elements of `x`, evenly spread."""
    step = max(1, x.size // _MOST)
    if not is_device_array(x):
        return x[::step]
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


_ZERO = np.zeros(1, np.uint32)


class Word:
    """An array of one uint32, 0 at first; it is read when the queue has come to the end."""

    def __init__(self, queue: cl.CommandQueue, *, on_device: bool) -> None:
        self.array: Array = cl_array.zeros(queue, 1, np.uint32) if on_device else np.zeros(1, np.uint32)
        self._queue, self._read = queue, 0

    def read(self) -> int:
        """Return its number, once all is done that writes it."""
        if not is_device_array(self.array):
            return int(self.array[0])
        found = np.empty(1, np.uint32)
        try:
            cl.enqueue_copy(self._queue, found, self.array.base_data, wait_for=self.array.events)
        except cl.Error as error:
            lost.settle(self._queue, error)
            raise
        self._read = int(found[0])
        return self._read

    def clear(self, queue: cl.CommandQueue) -> None:
        """Set it to 0 again, for use on `queue`."""
        if self._read:
            self.array.events[:] = [cl.enqueue_copy(queue, self.array.base_data, _ZERO, is_blocking=False)]
        self._queue, self._read = queue, 0


@contextmanager
def largest_bin(queue: cl.CommandQueue, *, on_device: bool) -> Iterator[Word]:
    """Give a word for `clhist.engine.given.LargestBin`; of a device it is kept, since to make one takes 150 us."""
    if not on_device:
        yield Word(queue, on_device=False)
        return
    kept = _words(queue.context)
    word = kept.__dict__.pop("word", None) or Word(queue, on_device=True)
    word.clear(queue)
    yield word
    kept.word = word  # and not if anything was raised: it may still be written then


@kept_by_context
def _words(context: cl.Context) -> threading.local:
    return threading.local()
