"""Kernels that follow each other on one device, with the memory that they need: by OpenCL, or by CUDA.

What computes by several kernels of its own, such as a sort, is written once for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.memory import Allocator, allocated, in_order, scratch_allocator
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.operands import HostBuffer, Operand, operand
from clhist._core.opencl.program import Kernel


class Chain:
    """Commands on an OpenCL queue; the interface of all chains.

    Another back end overrides `new`, `fill`, `run`, `fetched`, `fetched_rows`, `place`, `result` and `finish`. Memory
    is whatever its `new` returns; only these methods read it. `chain_on` chooses the class by the queue.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue; `chain_on` also takes one that stands for a CUDA device.
    purpose : str
        The purpose of the memory, for error messages.
    wait_for : sequence of pyopencl.Event
        Events that the first command waits for.
    allocate : callable, optional
        Allocator of memory, instead of the queue's pool.
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
        self._written: list[tuple[Array, Operand]] = []  # results for the caller
        self._kept: list[Any] = []  # host operands that commands read

    def new(self, number: int, dtype: Any) -> Any:
        """Return memory for `number` elements, or for one if that is 0."""
        return allocated(
            self._allocate or scratch_allocator(self.queue), max(1, number) * np.dtype(dtype).itemsize, self._purpose
        )

    def filled(self, number: int, dtype: Any, value: int) -> Any:
        """Return memory for `number` elements that equal the integer `value`."""
        memory = self.new(number, dtype)
        self.fill(memory, dtype, value, number)
        return memory

    def fill(self, memory: Any, dtype: Any, value: int, number: int, first: int = 0) -> None:
        """Set `number` elements, from index `first` on, to an integer whose bytes are all equal."""
        dtype = np.dtype(dtype)
        # OpenCL fills with a pattern of the element's size; the modulo gives negative values their unsigned bytes.
        pattern, item = np.array([value % 2 ** (8 * dtype.itemsize)], dtype), dtype.itemsize
        if number:
            self.events = [
                cl.enqueue_fill_buffer(self.queue, memory, pattern, first * item, number * item, self.events)
            ]

    def copied(self, array: np.ndarray) -> Any:
        """Return memory with a copy of a host array."""
        memory = self.new(array.size, array.dtype)
        self.events = [cl.enqueue_copy(self.queue, memory, array, wait_for=self.events)]
        return memory

    def run(self, kernel: Kernel, groups: int, lanes: int, arguments: Sequence[Any], beside: int = 1) -> None:
        """Enqueue a kernel of `groups` work-groups of `lanes` work-items; buffer arguments are memory or None.

        `beside` is the global size of the second dimension.
        """
        typed = kernel.typed(list(arguments))
        self.events = [kernel.enqueue(self.queue, (groups * lanes, beside), (lanes, 1), typed, self.events)]

    def fetched(self, memory: Any, number: int, dtype: Any, offset: int = 0) -> np.ndarray:
        """Copy `number` elements to the host, from the byte `offset` on, and wait for the copy."""
        # The copy blocks, and waits by `events` for the command that writes the memory.
        array = np.empty(number, dtype)
        cl.enqueue_copy(self.queue, array, memory, src_offset=offset, wait_for=self.events)
        return array

    def fetched_rows(self, memory: Any, shape: tuple[int, int], dtype: Any, offset: int, step: int) -> np.ndarray:
        """Copy rows that start every `step` bytes to the host, from the byte `offset` on, and wait for the copy."""
        rows = np.empty(shape, dtype)
        for n, row in enumerate(rows):  # NVIDIA's driver refuses rows that are so far apart
            is_last = n + 1 == len(rows)
            at = offset + n * step
            cl.enqueue_copy(self.queue, row, memory, src_offset=at, wait_for=self.events, is_blocking=is_last)
        # Out of order, earlier rows may arrive after the last one.
        if not in_order(self.queue):
            self.queue.finish()
        return rows

    def place(self, array: Any) -> tuple[Any, Any]:
        """Return the memory and offset of a host array to read, of a device array, or of memory.

        Later commands wait for the events of a device array.
        """
        if isinstance(array, np.ndarray):
            array_operand = operand(array, self.queue, written=False, make=partial(HostBuffer, self.queue))
            self._kept.append(array_operand)
            return array_operand.buffer, array_operand.offset
        if not is_device_array(array):
            return array, 0
        # An event that is there already is left out, so that lists do not grow with each argument.
        self.events += [event for event in array.events if event not in self.events]
        array_operand = operand(array, self.queue, written=True)
        return array_operand.buffer, array_operand.offset

    def placed(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arguments of a kernel with each array replaced by its memory and offset, as of `place`."""
        values: list[Any] = []
        for argument in arguments:
            values += [argument] if isinstance(argument, int | float | np.generic) else self.place(argument)
        return values

    def result(self, size: int, dtype: Any, on_device: bool = True) -> tuple[Array, Any]:
        """Return a new array for the caller, every element of which a kernel writes, and its memory."""
        # The result may be on the host, though kernels write it: `finish` copies it back.
        array = empty(self.queue, (size,), np.dtype(dtype), on_device)
        target = operand(array, self.queue, written=True, read=False, make=partial(HostBuffer, self.queue))
        self._written.append((array, target))
        return array, target.buffer

    def finish(self, *written: Array) -> None:
        """Add the events to device results and to `written` arrays; wait for results on the host and copy them back."""
        for array, target in [*self._written, *((result, None) for result in written)]:
            if target is None or is_device_array(array):
                for event in self.events:
                    array.add_event(event)
            else:
                cl.wait_for_events(self.events)
                target.retrieve()
