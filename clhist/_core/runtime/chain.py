"""Kernels that follow each other on one device, with the memory that they need: by OpenCL, or by CUDA.

What computes by several kernels of its own, such as a sort, is written once for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.cuda.driver import driver, stream_of
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.cuda_kinds import cuda_device_of, memory_of_call
from clhist._core.opencl.memory import Allocator, allocated, in_order, scratch_allocator
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.operands import HostBuffer, Operand, operand
from clhist._core.opencl.program import Kernel
from clhist._core.runtime.cuda_modules import loaded_kernel


class Chain:
    """By OpenCL, on a queue.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where; `chain_on` takes one that stands for a CUDA device, too.
    purpose : str
        What memory is for, in the words of an error.
    wait_for : sequence of pyopencl.Event
        What the first command waits for.
    allocate : callable, optional
        Where memory comes from, if not from the queue's pool.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        purpose: str,
        wait_for: Sequence[cl.Event] = (),
        allocate: Allocator | None = None,
    ) -> None:
        self.queue, self._purpose = queue, purpose
        self.events = [*wait_for]
        self._allocate = allocate
        self._written: list[tuple[Array, Operand]] = []  # what the caller gets
        self._kept: list[Any] = []

    def new(self, number: int, dtype: Any) -> Any:
        """Return memory for so many elements, at least one."""
        return allocated(
            self._allocate or scratch_allocator(self.queue), max(1, number) * np.dtype(dtype).itemsize, self._purpose
        )

    def filled(self, number: int, dtype: Any, value: int) -> Any:
        """Return memory for elements of this integer."""
        found = self.new(number, dtype)
        self.fill(found, dtype, value, number)
        return found

    def fill(self, memory: Any, dtype: Any, value: int, number: int, first: int = 0) -> None:
        """Set so many elements, from the `first` on, to an integer whose bytes are alike."""
        dtype = np.dtype(dtype)
        pattern, item = np.array([value % 2 ** (8 * dtype.itemsize)], dtype), dtype.itemsize
        if number:
            self.events = [
                cl.enqueue_fill_buffer(self.queue, memory, pattern, first * item, number * item, self.events)
            ]

    def run(self, kernel: Kernel, groups: int, lanes: int, arguments: Sequence[Any], beside: int = 1) -> None:
        """Enqueue a kernel with so many work-groups of so many work-items; its buffers are memory, or None.

        There are as many again `beside` them, in the second dimension.
        """
        given = kernel.typed(list(arguments))
        self.events = [kernel.enqueue(self.queue, (groups * lanes, beside), (lanes, 1), given, self.events)]

    def fetched(self, memory: Any, number: int, dtype: Any, offset: int = 0) -> np.ndarray:
        """Return a copy on the host of so many elements, from a number of bytes on; it is waited for."""
        found = np.empty(number, dtype)
        cl.enqueue_copy(self.queue, found, memory, src_offset=offset, wait_for=self.events)
        return found

    def fetched_rows(self, memory: Any, shape: tuple[int, int], dtype: Any, offset: int, step: int) -> np.ndarray:
        """Return a copy on the host of rows, which are `step` bytes apart, from a number of bytes on."""
        found = np.empty(shape, dtype)
        for n, row in enumerate(found):  # NVIDIA's driver refuses rows that are so far apart
            is_last = n + 1 == len(found)
            at = offset + n * step
            cl.enqueue_copy(self.queue, row, memory, src_offset=at, wait_for=self.events, is_blocking=is_last)
        if not in_order(self.queue):
            self.queue.finish()
        return found

    def place(self, array: Any) -> tuple[Any, int]:
        """Return the memory of an array to read, of memory, or of an array to write that is on the device; its offset.

        What is enqueued waits for what an array is waiting for.
        """
        if isinstance(array, np.ndarray):
            found = operand(array, self.queue, written=False, make=partial(HostBuffer, self.queue))
            self._kept.append(found)
            return found.buffer, found.offset
        if not is_device_array(array):
            return array, 0
        self.events += [event for event in array.events if event not in self.events]
        found = operand(array, self.queue, written=True)
        return found.buffer, found.offset

    def placed(self, arguments: Sequence[Any]) -> list[Any]:
        """Return arguments of a kernel with the memory and offset of each that is no number, as `place` has them."""
        found: list[Any] = []
        for each in arguments:
            found += [each] if isinstance(each, int | float | np.generic) else self.place(each)
        return found

    def result(self, size: int, dtype: Any, on_device: bool = True) -> tuple[Array, Any]:
        """Return an array for the caller, which a kernel writes whole, and its memory."""
        array = empty(self.queue, (size,), np.dtype(dtype), on_device)
        found = operand(array, self.queue, written=True, read=False, make=partial(HostBuffer, self.queue))
        self._written.append((array, found))
        return array, found.buffer

    def finish(self, *written: Array) -> None:
        """Let whoever reads results, or arrays that were `written`, wait for all that is enqueued; the host for its."""
        for array, found in [*self._written, *((each, None) for each in written)]:
            if found is None or is_device_array(array):
                for event in self.events:
                    array.add_event(event)
            else:
                cl.wait_for_events(self.events)
                found.retrieve()


class _Room(NamedTuple):
    """Memory of CUDA: its address, and the library's array that it is, or is a part of."""

    offset: int
    owner: Any


class CudaChain(Chain):
    """By CUDA, on the current stream of the library whose arrays a call has, from whose allocator memory comes."""

    def __init__(self, queue: cl.CommandQueue, purpose: str) -> None:
        super().__init__(queue, purpose)
        memory = memory_of_call()
        self._library, self._device, self._stream = memory.library, memory.device, memory.stream
        self._block, self._used = _Room(0, None), _BLOCK  # from which small memory comes, until all of it is let go

    def new(self, number: int, dtype: Any) -> _Room:
        size = -(-max(1, number) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        if size > _BLOCK // 4:
            return self._allocated(size)
        if size > _BLOCK - self._used:
            self._block, self._used = self._allocated(_BLOCK), 0
        self._used += size
        return _Room(self._block.offset + self._used - size, self._block.owner)

    def _allocated(self, size: int) -> _Room:
        owner = self._library.new((size,), _BYTE, self._device)
        return _Room(self._library.address(owner), owner)

    def fill(self, memory: CudaArray | _Room, dtype: Any, value: int, number: int, first: int = 0) -> None:
        item = np.dtype(dtype).itemsize
        with driver().on(self._device):
            driver().fill(memory.offset + first * item, value % 256, number * item, self._stream)

    def run(self, kernel: Kernel, groups: int, lanes: int, arguments: Sequence[Any], beside: int = 1) -> None:
        with driver().on(self._device):
            found = loaded_kernel(kernel, self._device, self._stream)
            with found.lock:
                for n, value in enumerate(arguments):
                    found.arguments.set(n, value.offset if isinstance(value, CudaArray | _Room) else value or 0)
                sizes = (groups, beside, 1, lanes, 1, 1)
                launched = (found.function, *sizes, found.dynamic)
                driver().launch(launched, stream_of(self._stream), found.arguments.pointers)

    def fetched(self, memory: CudaArray | _Room | None, number: int, dtype: Any, offset: int = 0) -> np.ndarray:
        found = np.empty(number, dtype)
        with driver().on(self._device):
            driver().download(found, offset + (0 if memory is None else memory.offset), self._stream)
        return found

    def fetched_rows(
        self, memory: CudaArray | _Room | None, shape: tuple[int, int], dtype: Any, offset: int, step: int
    ) -> np.ndarray:
        found = np.empty(shape, dtype)
        with driver().on(self._device):
            driver().download_every(found, offset + (0 if memory is None else memory.offset), step, self._stream)
        return found

    def place(self, array: Any) -> tuple[Any, int]:
        return (None, array.offset) if isinstance(array, CudaArray) else (array, 0)

    def result(self, size: int, dtype: Any, on_device: bool = True) -> tuple[Array, Any]:
        array = empty(self.queue, (size,), np.dtype(dtype), True)
        return array, array

    def finish(self, *written: Array) -> None:
        """Do nothing: the stream orders what is done."""


_BYTE = np.dtype(np.uint8)
_ALIGNMENT, _BLOCK = 256, 1 << 20  # bytes


def chain_on(queue: cl.CommandQueue, purpose: str) -> Chain:
    """Return what enqueues kernels on a queue, or on the CUDA device that it stands for."""
    return Chain(queue, purpose) if cuda_device_of(queue) is None else CudaChain(queue, purpose)
