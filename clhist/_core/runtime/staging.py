"""NumPy arrays on their way to the device, chunk after chunk.

On a CPU they are used in place (zero-copy). To other devices they are uploaded, to two places by turns, so that one
chunk is on its way while the device computes with the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.kernels.maps import Argument
from clhist._core.opencl.arrays import Array, check_array
from clhist._core.opencl.operands import Operand, operand
from clhist._core.opencl.upload import uploads


class InPlace:
    """NumPy arrays as PyOpenCL's: in place on a CPU, or else copied at once."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._operands: list[Operand] = []

    def take(self, arguments: Sequence[Argument], args: list[Any], places: Iterable[int]) -> None:
        """Replace the arrays at `places` of `args` by device arrays, which are valid until `done`."""
        for n in places:
            argument = arguments[n]
            array = check_array(argument.name, args[n], argument.dtype, written=not argument.is_const)
            item = operand(array, self._queue, written=not argument.is_const)
            self._operands.append(item)
            args[n] = _wrapped(self._queue, array.size, argument, item.buffer, item.offset)

    def done(self, events: Sequence[cl.Event]) -> None:
        """Wait for `events`, if there is anything to wait for."""
        if self._operands and events:
            # Until these events kernels may read and write the caller's arrays.
            cl.wait_for_events(list(events))
            for item in self._operands:
                item.retrieve()
        self._operands = []


@dataclass
class _Slot:
    """Room for one chunk: bytes on the device by the names of arguments, and what they are in use until."""

    buffers: dict[str, cl.Buffer] = field(default_factory=dict)
    written: list[tuple[np.ndarray, cl.Buffer]] = field(default_factory=list)
    computed: list[cl.Event] = field(default_factory=list)


class Staging:
    """Two slots by turns: while the device computes with one, the other is filled through page-locked memory."""

    def __init__(self, queue: cl.CommandQueue, most: int) -> None:
        self._queue, self._most = queue, most
        self._slot, self._other = _Slot(), _Slot()

    def take(self, arguments: Sequence[Argument], args: list[Any], places: Iterable[int]) -> None:
        """Copy the arrays at `places` of `args` to the slot that was used longer ago, and replace them by these."""
        # Kernels may still read the other slot; copies to this one wait for its events.
        self._slot, self._other = self._other, self._slot
        slot = self._slot
        slot.written = []
        for n in places:
            argument, array = arguments[n], args[n]
            size = array.size * argument.dtype.itemsize
            buffer = slot.buffers.get(argument.name)
            if buffer is None or buffer.size < size:
                buffer = self._make_room(argument.name, size)
            sent = uploads(self._queue.context, self._queue.device)
            event = sent.upload(buffer, array, argument.dtype, slot.computed)  # in the order of bytes of the host
            args[n] = _wrapped(self._queue, array.size, argument, buffer, 0)
            args[n].add_event(event)
            if not argument.is_const:
                slot.written.append((array, buffer))

    def done(self, events: Sequence[cl.Event]) -> None:
        """Say what the slot is in use until; what the map has written is waited for."""
        self._slot.computed = list(events)
        # Kernels begin while the host prepares the next chunk.
        self._queue.flush()
        for array, buffer in self._slot.written:
            # PyOpenCL's copies to the host block, so that the caller may read the array at once.
            cl.enqueue_copy(self._queue, array, buffer, wait_for=events)

    def _make_room(self, name: str, size: int) -> cl.Buffer:
        # Room to grow, so that pieces of all sizes need it seldom.
        size = max(size, min(self._most, 1 << (size - 1).bit_length()))
        self._slot.buffers.pop(name, None)  # before there is more
        try:
            buffer = cl.Buffer(self._queue.context, cl.mem_flags.READ_WRITE, size)
        except (cl.MemoryError, cl.LogicError) as error:
            raise MemoryError(f"{name}: no room for a chunk of {size} bytes; give chunk_bytes=: {error}") from error
        self._slot.buffers[name] = buffer
        return buffer


def _wrapped(queue: cl.CommandQueue, size: int, argument: Argument, buffer: Any, offset: int) -> Array:
    return cl_array.Array(queue, (size,), argument.dtype, data=buffer, offset=offset)
