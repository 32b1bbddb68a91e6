"""Arrays of NumPy and of PyOpenCL as a kernel takes them: as a buffer with an offset.

On a CPU a NumPy array is used in place; on other devices it is copied there, and back if the kernel writes it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.opencl.arrays import Array, address_of
from clhist._core.opencl.cuda_kinds import NotDirectError, is_cuda
from clhist._core.opencl.new_arrays import HOST_ALIGNMENT, empty, shares_memory
from clhist._core.opencl.program import kept_by_context

FETCHED_BYTES = 1 << 14  # of a result: to fetch so few from a buffer of its own takes less than to map them
_MOST_BLOCKS = 16  # that nobody has at present


@dataclass(slots=True)
class Operand:
    """An array as a kernel takes it.

    Attributes
    ----------
    buffer : pyopencl.MemoryObject or None
        None for an array without elements.
    offset : int
        Bytes from the buffer's start to the first element.
    retrieve : callable
        Called when all is done: makes what was written visible in the NumPy array.
    """

    buffer: Any
    offset: int
    retrieve: Callable[[], None]


def operand(
    array: Array,
    queue: cl.CommandQueue,
    *,
    written: bool,
    read: bool = True,
    make: Callable[..., cl.Buffer] = cl.Buffer,
) -> Operand:
    """Return `array` as a kernel on `queue` takes it; `read` says whether its present content matters.

    `make` makes the buffer of an array that is used in place.
    """
    if isinstance(array, cl_array.Array):
        if is_cuda(array):
            raise NotDirectError("a kernel that only OpenCL launches")
        return Operand(array.base_data, array.offset if array.base_data is not None else 0, _nothing)
    size = array.nbytes
    if size == 0:
        return Operand(None, 0, _nothing)
    context, flags = queue.context, cl.mem_flags.READ_WRITE if written else cl.mem_flags.READ_ONLY
    try:
        # Small results that only kernels write get a buffer of their own: see `FETCHED_BYTES`.
        if shares_memory(queue.device) and not (written and not read and size <= FETCHED_BYTES):
            if written:
                buffer = make(context, flags | cl.mem_flags.USE_HOST_PTR, 0, array)
                return Operand(buffer, 0, partial(_map, queue, buffer, array))
            # Intel's runtime copies what does not begin at such an address, and NumPy's large arrays do not; kernels
            # align their loads by the offset.
            address = address_of(array)
            offset = address % HOST_ALIGNMENT
            # The array and the bytes before it, down to the last aligned address, as one array of bytes.
            interface = {"version": 3, "shape": (size + offset,), "typestr": "|u1", "data": (address - offset, False)}
            whole = np.asarray(SimpleNamespace(array=array, __array_interface__=interface))  # which it keeps
            return Operand(make(context, flags | cl.mem_flags.USE_HOST_PTR, 0, whole), offset, _nothing)
        buffer = cl.Buffer(context, flags, size)
    except (cl.MemoryError, cl.LogicError) as error:
        raise MemoryError(f"the device cannot hold an array of {size} bytes: {error}") from error
    # Large arrays go through page-locked memory, small ones directly.
    if read and size >= _upload().FEWEST_BYTES:
        _upload().uploads(context, queue.device).upload(buffer, array.reshape(-1), array.dtype).wait()
    elif read:  # COPY_HOST_PTR takes NVIDIA's driver five times as long
        cl.enqueue_copy(queue, buffer, array, is_blocking=True)
    return Operand(buffer, 0, partial(_download, queue, buffer, array) if written else _nothing)


@cache
def _upload() -> Any:
    """Return the module that uploads to a device's own memory, which CPUs do not need."""
    from clhist._core.opencl import upload

    return upload


class ResultBlock:
    """Memory for a small result that kernels and the host see alike, without a map or a copy by OpenCL."""

    __slots__ = ("buffer", "memory")

    def __init__(self, context: cl.Context) -> None:
        flags: Any = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
        dtype: Any = np.uint8
        # Shared virtual memory of fine grain: writes of kernels are visible to the host without a map.
        self.memory: Any = cl.svm_empty(context, flags, FETCHED_BYTES, dtype, alignment=HOST_ALIGNMENT)
        self.buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, 0, self.memory)

    def like(self, array: np.ndarray) -> np.ndarray:
        """Return its first bytes as an array of this shape and dtype."""
        return np.ndarray(array.shape, array.dtype, self.memory)


class ResultBlocks:
    """Blocks of a context; those that are given back are taken again. Each step is one operation on a list."""

    def __init__(self, context: cl.Context) -> None:
        self._context, self._idle = context, list[ResultBlock]()

    def take(self) -> ResultBlock:
        """Return one with whatever it holds; raises MemoryError if there is no memory."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return ResultBlock(self._context)
        except (cl.MemoryError, cl.LogicError) as error:
            raise MemoryError(f"the device cannot hold an array of {FETCHED_BYTES} bytes: {error}") from error

    def give(self, block: ResultBlock) -> None:
        """Take back a block that no kernel uses any longer."""
        # Threads may add a few more between the check and the append, which does no harm.
        if len(self._idle) < _MOST_BLOCKS:
            self._idle.append(block)


@kept_by_context
def blocks_of(context: cl.Context) -> ResultBlocks | None:
    """Return the blocks of a context; None if its devices have no memory that the host sees while kernels run."""
    fine = cl.device_svm_capabilities.FINE_GRAIN_BUFFER
    for device in context.devices:
        try:
            if not (shares_memory(device) and device.svm_capabilities & fine):
                return None
        except cl.Error:  # before OpenCL 2.0
            return None
    return ResultBlocks(context)


class _Ending(weakref.ref):
    """A reference to a buffer, whose callback is C: Ctrl-C would end Python's in the middle, and be lost there."""

    finish: Callable[[], None]
    after: _Ending
    __slots__ = ("after", "finish")
    __hash__, __eq__ = object.__hash__, object.__eq__  # those of a reference are its buffer's


_endings = set[_Ending]()
_finish = methodcaller("finish")
os.register_at_fork(after_in_child=_endings.clear)  # a child's OpenCL would wait for ever


class HostBuffer(cl.Buffer):
    """A NumPy array's memory, which OpenCL does not keep until a kernel has ended, as it does its own buffers."""

    def __init__(self, queue: cl.CommandQueue, *arguments: Any) -> None:
        super().__init__(*arguments)
        # One callback waits for the queue; the other drops both references, which must live as long as the buffer.
        waits, ends = _Ending(self, _finish), _Ending(self, _endings.discard)
        waits.finish, ends.after = queue.finish, waits
        _endings.add(ends)


def in_place(array: Array, queue: cl.CommandQueue) -> Array:
    """Return a contiguous NumPy array as a device array to read on `queue`; a device array is one as it is.

    It is of the same memory where the device shares it, which is kept until what is enqueued has read it.
    """
    if isinstance(array, cl_array.Array):
        return array
    if not array.size:
        return empty(queue, array.shape, array.dtype, True)
    # `HostBuffer` waits for the queue before the array's memory goes.
    memory = operand(array, queue, written=False, make=partial(HostBuffer, queue))
    return cl_array.Array(queue, array.shape, array.dtype, data=memory.buffer, offset=memory.offset)


def _map(queue: cl.CommandQueue, buffer: cl.Buffer, array: np.ndarray) -> None:
    # Mapping makes what kernels wrote visible to the host, also where the runtime had made a copy.
    mapped, _ = cl.enqueue_map_buffer(queue, buffer, cl.map_flags.READ, 0, array.shape, array.dtype, is_blocking=True)
    mapped.base.release(queue)


def _download(queue: cl.CommandQueue, buffer: cl.Buffer, array: np.ndarray) -> None:
    cl.enqueue_copy(queue, array, buffer, is_blocking=True)


def _nothing() -> None:
    pass
