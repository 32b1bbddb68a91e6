"""Arrays of CUDA's memory among those of PyOpenCL, and queues that stand for CUDA devices.

Nothing of CUDA is imported here: most programs have no such arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyopencl as cl

    from clhist._core.opencl.cuda_arrays import CudaMemory


class NotDirectError(Exception):
    """Raised, before anything is enqueued, where CUDA cannot do what OpenCL can; the message says what."""


_class: Any = ()  # of these arrays, once it is imported; nothing is an instance of ()


def register(kind: type) -> None:
    """Let the objects of a class be the arrays of CUDA's memory."""
    global _class
    _class = kind


def is_cuda(value: object) -> bool:
    """Whether `value` is an array of CUDA's memory."""
    return isinstance(value, _class)


_devices: dict[int, int] = {}  # by the pointers of queues, which are kept


def cuda_device_of(queue: cl.CommandQueue) -> int | None:
    """Return the number of the CUDA device that a queue stands for; None of other queues."""
    # Most programs have no such queue: pointers are looked up only if there is one.
    return _devices.get(queue.int_ptr) if _devices else None


def stands_for(queue: cl.CommandQueue, device: int) -> None:
    """Note that a queue, which must be kept, stands for a CUDA device."""
    _devices[queue.int_ptr] = device


class _Strict(threading.local):
    on = False


_strict = _Strict()


@contextmanager
def direct_only() -> Iterator[None]:
    """Let calls of this thread raise UnsupportedError where their data would go through the host."""
    before = _strict.on
    try:
        _strict.on = True
        yield
    finally:
        _strict.on = before


def is_direct_only() -> bool:
    """Whether this thread is in a ``with`` block of `direct_only`."""
    return _strict.on


class _Ambient(threading.local):
    memory: CudaMemory | None = None


_ambient = _Ambient()


class results_like:  # as a function; a generator would take three times as long
    """Lets new arrays of CUDA's memory, of this thread, be of the library of `memory`."""

    __slots__ = ("_before", "_memory")

    def __init__(self, memory: CudaMemory) -> None:
        self._memory = memory

    def __enter__(self) -> None:
        self._before, _ambient.memory = _ambient.memory, self._memory

    def __exit__(self, *error: object) -> None:
        _ambient.memory = self._before


def is_inside() -> bool:
    """Whether a call on arrays of CUDA goes on in this thread, whose results are given back when it ends."""
    return _ambient.memory is not None


def memory_of_call() -> CudaMemory:
    """Return the memory that new arrays of a call in `results_like` are like."""
    assert _ambient.memory is not None
    return _ambient.memory
