"""NumPy arrays on their way to the device, chunk after chunk.

On a CPU they are used where they lie. For other devices they are copied to page-locked memory and from there to the
device, in two places by turns, so that one chunk is on its way while the device computes with the one before.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist.codegen.maps import Argument
from clhist.opencl.arrays import Array, Operand, check_array, operand
from clhist.opencl.fork_guard import is_forked


class InPlace:
    """NumPy arrays as PyOpenCL's: where they lie on a CPU, or else copied at once."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._operands: list[Operand] = []

    def take(self, arrays: Mapping[Argument, np.ndarray]) -> dict[str, Array]:
        """Return `arrays`, for the time until `done`."""
        found = {}
        for argument, given in arrays.items():
            array = check_array(argument.name, given, argument.dtype, written=not argument.is_const)
            item = operand(array, self._queue, written=not argument.is_const)
            self._operands.append(item)
            found[argument.name] = _wrapped(self._queue, array.size, argument, item.buffer, item.offset)
        return found

    def done(self, events: Sequence[cl.Event]) -> None:
        """Wait for `events`, if there is anything to wait for."""
        if self._operands and events:
            cl.wait_for_events(list(events))
            for item in self._operands:
                item.retrieve()
        self._operands = []


@dataclass
class _Slot:
    """Room for one chunk: bytes in page-locked memory and on the device by the names of arguments."""

    locked: dict[str, np.ndarray] = field(default_factory=dict)
    buffers: dict[str, cl.Buffer] = field(default_factory=dict)
    written: list[tuple[np.ndarray, cl.Buffer]] = field(default_factory=list)
    uploads: list[cl.Event] = field(default_factory=list)
    computed: list[cl.Event] = field(default_factory=list)


class Staging:
    """Two slots by turns: while the device computes with one, the other is filled and uploaded by a second queue."""

    def __init__(self, queue: cl.CommandQueue, most: int) -> None:
        self._queue, self._most = queue, most
        self._transfers = cl.CommandQueue(queue.context, queue.device)
        self._slot, self._other = _Slot(), _Slot()
        slots = (self._slot, self._other)
        # With the context: on Intel's CPU runtime a queue does not keep its own alive.
        weakref.finalize(self, _unmap, slots, queue, self._transfers, queue.context)

    def take(self, arrays: Mapping[Argument, np.ndarray]) -> dict[str, Array]:
        """Copy `arrays` to the slot that was used longer ago, and return them on the device."""
        self._slot, self._other = self._other, self._slot
        slot, found = self._slot, {}
        if slot.uploads:
            cl.wait_for_events(slot.uploads)
        slot.uploads, slot.written = [], []
        for argument, array in arrays.items():
            size = array.size * argument.dtype.itemsize
            if argument.name not in slot.locked or slot.locked[argument.name].size < size:
                self._make_room(argument.name, size)
            locked, buffer = slot.locked[argument.name][:size], slot.buffers[argument.name]
            np.copyto(locked.view(argument.dtype), array, casting="unsafe")  # in the order of bytes of the host
            event = cl.enqueue_copy(self._transfers, buffer, locked, wait_for=slot.computed, is_blocking=False)
            slot.uploads.append(event)
            found[argument.name] = _wrapped(self._queue, array.size, argument, buffer, 0)
            found[argument.name].add_event(event)
            if not argument.is_const:
                slot.written.append((array, buffer))
        self._transfers.flush()
        return found

    def done(self, events: Sequence[cl.Event]) -> None:
        """Say what the slot is in use until; what the map has written is waited for."""
        self._slot.computed = list(events)
        self._queue.flush()
        for array, buffer in self._slot.written:
            cl.enqueue_copy(self._queue, array, buffer, wait_for=events)

    def _make_room(self, name: str, size: int) -> None:
        # Room to grow, so that pieces of all sizes need it seldom.
        size = max(size, min(self._most, 1 << (size - 1).bit_length()))
        context, flags = self._queue.context, cl.mem_flags.READ_WRITE
        for rooms in (self._slot.locked, self._slot.buffers):
            rooms.pop(name, None)  # before there is more
        try:
            host = cl.Buffer(context, flags | cl.mem_flags.ALLOC_HOST_PTR, size)
            access, byte = cl.map_flags.WRITE, np.dtype(np.uint8)
            locked, _ = cl.enqueue_map_buffer(self._transfers, host, access, 0, (size,), byte, is_blocking=True)
            self._slot.buffers[name] = cl.Buffer(context, flags, size)
        except (cl.MemoryError, cl.LogicError) as error:
            raise MemoryError(f"{name}: no room for a chunk of {size} bytes; give chunk_bytes=: {error}") from error
        self._slot.locked[name] = locked


def _unmap(slots: Sequence[_Slot], queue: cl.CommandQueue, transfers: cl.CommandQueue, context: cl.Context) -> None:
    """End what goes on in the slots, and give their page-locked memory back while `context` is there."""
    if is_forked():  # nor is anything of it here
        return
    transfers.finish()
    queue.finish()
    for slot in slots:
        for locked in slot.locked.values():
            locked.base.release(transfers)  # type: ignore[union-attr]
        slot.locked.clear()
    transfers.finish()


def _wrapped(queue: cl.CommandQueue, size: int, argument: Argument, buffer: Any, offset: int) -> Array:
    return cl_array.Array(queue, (size,), argument.dtype, data=buffer, offset=offset)
