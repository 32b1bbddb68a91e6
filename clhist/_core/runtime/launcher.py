"""Runs a `Prepared` by OpenCL: on arrays of PyOpenCL, or of NumPy, which are waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernels.arguments import same_scalar
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, note_event
from clhist._core.opencl.memory import Allocator, OutOfMemoryError, allocated, in_order, scratch_allocator
from clhist._core.opencl.new_arrays import empty, read_only_buffer, without_memory
from clhist._core.opencl.operands import FETCHED_BYTES, Block, blocks_of, operand
from clhist._core.opencl.program import kernel_of, new_token
from clhist._core.runtime.call import Events, Outcome
from clhist._core.runtime.prepared import (
    MEMORY,
    OFFSET,
    VALUE,
    Launch,
    New,
    Part,
    Prepared,
    Scratch,
    Slot,
    SortPairs,
    Table,
)
from clhist.operators.fixed_point import check_range


class _Command:
    """A launch with its kernel; `buffers` and `numbers` are arguments that change, each with its place in a call."""

    __slots__ = (
        "arguments",
        "buffers",
        "changed",
        "enqueue",
        "global_size",
        "known",
        "local_size",
        "numbers",
        "stage",
        "token",
        "typed",
    )

    def __init__(self, context: cl.Context, launch: Launch, places: dict[Any, int], same: dict[Any, Any]) -> None:
        kernel = kernel_of(context, launch.kernel)
        self.stage, self.enqueue = launch.stage, kernel.enqueue
        self.global_size, self.local_size = launch.global_size, launch.local_size
        self.buffers: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int]] = []
        arguments: list[Any] = []
        for n, value in enumerate(launch.arguments):
            if isinstance(value, Table):
                if value not in same:
                    same[value] = read_only_buffer(context, value.array)
                arguments.append(same[value])
            elif isinstance(value, Slot) and value in same:
                arguments.append(same[value])
            elif isinstance(value, Slot | Scratch):
                is_buffer = isinstance(value, Scratch) or value.what == MEMORY
                (self.buffers if is_buffer else self.numbers).append((n, places[value]))
                arguments.append(None)
            else:
                arguments.append(value)
        self.arguments, self.typed = kernel.typed(arguments), kernel.typed
        self.known: list[Any] = [None] * len(self.numbers)
        self.changed, self.token = [n for n, _ in self.buffers], new_token()

    def set(self, numbers: Sequence[Any]) -> None:
        """Take these numbers from now on."""
        for m, (n, k) in enumerate(self.numbers):
            value, before = numbers[k], self.known[m]
            if value is not before:
                if not same_scalar(value, before):
                    # An exception may arrive between any two steps: until the last one the number counts as unknown.
                    self.known[m] = None
                    self.token = new_token()  # to set all at once takes less than to set a number
                    self.arguments[n] = value
                    self.arguments = self.typed(self.arguments)
                self.known[m] = value

    def run(self, queue: cl.CommandQueue, memory: Sequence[Any], wait_for: Sequence[cl.Event] | None) -> cl.Event:
        arguments = self.arguments
        for n, k in self.buffers:
            arguments[n] = memory[k]
        changed = self.changed
        try:
            return self.enqueue(queue, self.global_size, self.local_size, arguments, wait_for, self.token, changed)
        finally:
            for n in changed:
                arguments[n] = None  # nothing of the caller's is kept


@dataclass(slots=True)
class _Part:
    """A part with its kernels."""

    part: Part
    commands: list[_Command | SortPairs]


class Loaded:
    """A prepared call with its kernels, built in a context; one thread at a time enqueues it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        One in the context where it runs.
    prepared : Prepared
        What.
    smaller : callable, optional
        Gives the parts that do the same as one with copies of at most so many bytes; raises MemoryError or ValueError
        if none do.
    same : mapping of str to array or NumPy scalar, optional
        What is in slots of these names in all calls, which give nothing for them.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        prepared: Prepared,
        smaller: Callable[[Part, int], Sequence[Part]] | None = None,
        same: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.prepared = prepared
        self._context, self._smaller = queue.context, smaller
        self._slots = [slot for slot in prepared.arrays if slot.name not in same]
        self._written = [n for n, slot in enumerate(self._slots) if slot.is_written]
        scalars = [name for name in prepared.scalars if name not in same]
        first = len(prepared.arrays) - len(self._slots)  # those of the map come first
        self._results = [
            (tuple(n - first for n in each.slots), each.has_fields, each.label, each.operator)
            for each in prepared.results
        ]
        # Of memory and of numbers, which are counted apart.
        self._places: dict[Any, int] = {}
        for n, slot in enumerate(self._slots):
            self._places |= {Slot(slot.name, MEMORY): n, Slot(slot.name, OFFSET): n}
        for n, name in enumerate(scalars, len(self._slots)):
            self._places[Slot(name, VALUE)] = n
        # By what stands for them in launches: tables, and what is the same in all calls.
        self._same: dict[Any, Any] = {}
        for name, value in same.items():
            if isinstance(value, np.generic):
                self._same[Slot(name, VALUE)] = value
            else:
                found = operand(value, queue, written=False)
                self._same |= {Slot(name, MEMORY): found.buffer, Slot(name, OFFSET): found.offset}
        self._parts = [self._loaded(part) for part in prepared.parts]
        self._lock, self._blocks = threading.Lock(), blocks_of(queue.context)
        # Of the queue that it ran on last: whether that runs in order, the last event there, what new results are like.
        self._queue: cl.CommandQueue | None = None
        self._in_order = False
        self._last: cl.Event | None = None
        self._likes: dict[int, Array] = {}
        # The numbers that all commands have: offsets, and the very list of scalars; None if some have others.
        self._offsets: list[int] = []
        self._scalars: Sequence[Any] | None = None

    def _loaded(self, part: Part) -> _Part:
        places = {Scratch(n): len(self._slots) + n for n in range(len(part.scratch))} | self._places
        commands = [
            command if isinstance(command, SortPairs) else _Command(self._context, command, places, self._same)
            for command in part.commands
        ]
        return _Part(part, commands)

    def load_all(self, arrays: Sequence[Array | None]) -> None:
        """Do what the first call would do; here that was done."""

    def run(
        self,
        queue: cl.CommandQueue,
        arrays: Sequence[Any],
        scalars: Sequence[np.generic],
        on_device: bool,
        wait_for: Sequence[cl.Event] = (),
        allocator: Allocator | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Outcome:
        """Enqueue all; NumPy arrays are waited for.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            Where, in the context.
        arrays : sequence of array
            As the prepared call has slots for them, PyOpenCL's or NumPy's; None or `New` for new ones.
        scalars : sequence of NumPy scalar
            As kernels take them.
        on_device : bool
            Whether the arrays are PyOpenCL's.
        wait_for : sequence of pyopencl.Event
            What to wait for besides the events of the arrays.
        allocator : callable, optional
            Of scratch memory and new results.
        begun : callable, optional
            Called before the first command is enqueued, once there is memory for it.

        Raises
        ------
        MemoryError
            If not even one copy can be allocated.
        DeviceLostError
            If the device is lost.
        """
        if lost.known:
            lost.check_queue(queue)
        lost.last_calls.append(self.prepared.call)
        try:
            run = self._on_device if on_device else self._on_host
            return run(queue, arrays, scalars, wait_for, allocator, begun)
        except BaseException as error:  # Ctrl-C too: the memory of NumPy arrays must not go while a kernel may use it
            lost.settle(queue, error)
            raise

    def _on_device(
        self,
        queue: cl.CommandQueue,
        arrays: Sequence[Any],
        scalars: Sequence[np.generic],
        wait_for: Sequence[cl.Event],
        allocator: Allocator | None,
        begun: Callable[[], None] | None,
    ) -> Outcome:
        memory: list[Any] = []
        offsets: list[int] = []
        with self._lock:
            if queue is not self._queue:
                self._queue, self._in_order, self._last, self._likes = queue, in_order(queue), None, {}
            last = self._last  # for which the queue waits anyway
            waiting: list[cl.Event] = list(wait_for)
            found: list[Any] = list(arrays)
            for n, array in enumerate(arrays):
                if array is None or type(array) is New:
                    found[n] = array = self._new(n, queue, allocator, array)
                else:
                    for event in array.events:
                        if event is not last:
                            waiting.append(event)
                buffer = array.base_data
                memory.append(buffer)
                offsets.append(0 if buffer is None else array.offset)
            events, after = self._enqueue(queue, memory, offsets, scalars, waiting, allocator, begun)
            event = events["combine"][-1]
            if self._in_order:
                self._last = event
        for n in self._written:
            before = found[n].events
            if not before or (len(before) == 1 and before[0] is last):
                before[:] = [event]
            else:
                note_event(found[n], event, [*waiting, last] if last else waiting)
        return Outcome(self._collected(found), events, after)

    def _on_host(
        self,
        queue: cl.CommandQueue,
        arrays: Sequence[Any],
        scalars: Sequence[np.generic],
        wait_for: Sequence[cl.Event],
        allocator: Allocator | None,
        begun: Callable[[], None] | None,
    ) -> Outcome:
        slots, operands, found, blocks = self._slots, [], list(arrays), self._blocks
        staged: list[tuple[np.ndarray, Block]] = []
        memory: list[Any] = []
        offsets: list[int] = []
        for n, slot in enumerate(slots):
            if slot.new is not None:
                shape, dtype = (found[n] or New(slot.new[0])).shape, slot.new[1]
                is_small = prod(shape) * dtype.itemsize <= FETCHED_BYTES  # and copied, wherever it begins
                found[n] = np.empty(shape, dtype) if is_small else empty(queue, shape, dtype, False)
            if slot.is_written and blocks is not None and 0 < (array := found[n]).nbytes <= FETCHED_BYTES:
                block = blocks.take()
                if slot.is_read:
                    block.like(array)[...] = array
                staged.append((array, block))
                memory.append(block.buffer)
                offsets.append(0)
                continue
            taken = operand(found[n], queue, written=slot.is_written, read=slot.is_read)
            if slot.is_written:
                operands.append(taken)
            memory.append(taken.buffer)
            offsets.append(taken.offset)
        with self._lock:
            if queue is not self._queue:
                self._queue, self._in_order, self._last, self._likes = queue, in_order(queue), None, {}
            events, after = self._enqueue(queue, memory, offsets, scalars, wait_for, allocator, begun)
            is_in_order = self._in_order
        last = events["combine"][-1]
        if staged or not is_in_order:
            last.wait()
        for taken in operands:
            taken.retrieve()  # after all that a queue in order has to do
        last.wait()
        for array, block in staged:
            array[...] = block.like(array)
            if blocks is not None:
                blocks.give(block)
        results = self._collected(found)
        if self.prepared.is_checked:
            for (_, _, label, operator), result in zip(self._results, results, strict=True):
                if operator.largest is not None:
                    check_range(label, operator, result)
        return Outcome(results, events, after)

    def _new(self, n: int, queue: cl.CommandQueue, allocator: Allocator | None, asked: New | None) -> Array:
        """Return a new array for the slot of this number."""
        new = self._slots[n].new
        assert new is not None
        if asked is not None:
            return empty(queue, asked.shape, new[1], True, allocator)
        like = self._likes.get(n)
        array = empty(queue, *new, True, allocator, like)
        if like is None and array.base_data is not None:
            self._likes[n] = without_memory(array)
        return array

    def _collected(self, arrays: Sequence[Any]) -> list[Any]:
        results = []
        for slots, has_fields, _, _ in self._results:
            results.append(tuple([arrays[n] for n in slots]) if has_fields else arrays[slots[0]])
        return results

    def _enqueue(
        self,
        queue: cl.CommandQueue,
        memory: list[Any],
        offsets: list[int],
        scalars: Sequence[Any],
        wait_for: Sequence[cl.Event],
        allocator: Allocator | None,
        begun: Callable[[], None] | None,
    ) -> tuple[Events, dict[cl.Event, cl.Event]]:
        """Enqueue all parts and return the events of each stage, and `Outcome.after`."""
        # A pool hands out memory as soon as its last holder is gone: right only for commands that run in order.
        allocate = allocator if allocator is not None and self._in_order else scratch_allocator(queue)
        events: Events = {}
        after: dict[cl.Event, cl.Event] = {}
        waited: Sequence[cl.Event] | None = wait_for
        numbers = None if scalars is self._scalars and offsets == self._offsets else [*offsets, *scalars]
        self._scalars, is_whole = None, True  # until all have been enqueued
        for part in self._parts:
            try:
                waited = self._run_part(part, queue, memory, numbers, waited, allocate, events, after, begun)
            except OutOfMemoryError as error:
                is_whole, numbers = False, [*offsets, *scalars]
                less = self._less(part.part, None, error)
                while less:
                    each, budget = less.pop(0)
                    try:
                        waited = self._run_part(each, queue, memory, numbers, waited, allocate, events, after, begun)
                    except OutOfMemoryError as failed:
                        less[:0] = self._less(each.part, budget, failed)
        if is_whole:
            self._offsets, self._scalars = offsets, scalars
        return events, after

    def _run_part(
        self,
        part: _Part,
        queue: cl.CommandQueue,
        memory: Sequence[Any],
        numbers: Sequence[Any] | None,
        wait_for: Sequence[cl.Event] | None,
        allocate: Allocator,
        events: Events,
        after: dict[cl.Event, cl.Event],
        begun: Callable[[], None] | None,
    ) -> Sequence[cl.Event] | None:
        """Enqueue one part, with these `numbers` if it has others; return what the next one waits for."""
        blocks = []
        for size, purpose in part.part.scratch:
            blocks.append(allocated(allocate, size, purpose))
        if blocks:
            memory = [*memory, *blocks]
        if begun is not None:
            begun()
        is_in_order = self._in_order
        for command in part.commands:
            if isinstance(command, _Command):
                if numbers is not None:
                    command.set(numbers)
                event = command.run(queue, memory, wait_for)
                wait_for = None if is_in_order else (event,)
                if command.stage in events:
                    events[command.stage].append(event)
                else:
                    events[command.stage] = [event]
                continue
            from clhist._core.runtime.chain import Chain
            from clhist._core.runtime.sort import purpose_of
            from clhist._core.runtime.sort_pairs import enqueue_sort

            stage, chain = events[command.stage], Chain(queue, purpose_of(command.pairs), wait_for or (), allocate)
            for _ in enqueue_sort(command, chain, blocks):
                after[chain.events[0]] = stage[-1]
                stage.append(chain.events[0])
            wait_for = None if is_in_order else (stage[-1],)
        return wait_for

    def _less(self, part: Part, budget: int | None, failed: OutOfMemoryError) -> list[tuple[_Part, int]]:
        """Return what takes the place of a part for which there was no memory, and in how many bytes it does so."""
        # Also at most half the previous budget: the refused allocation includes locks and padding.
        before = min(failed.size, failed.size if budget is None else budget)
        less = part.least_bytes if before // 2 < part.least_bytes < before else before // 2
        try:
            if self._smaller is not None and less:
                return [(self._loaded(each), less) for each in self._smaller(part, less)]
        except (MemoryError, ValueError):  # not even one copy, or not with what is forced
            pass
        raise failed
