"""Runs a `Prepared` by OpenCL, on PyOpenCL arrays without waiting, or on NumPy arrays, waiting for the results.

Chooses the back end of a queue: by OpenCL, or by CUDA, whose modules are imported only then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.kernels.arguments import same_scalar
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, note_event
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.memory import Allocator, OutOfMemoryError, allocated, in_order, scratch_allocator
from clhist._core.opencl.new_arrays import empty, empty_opencl, read_only_buffer
from clhist._core.opencl.operands import FETCHED_BYTES, ResultBlock, blocks_of, operand
from clhist._core.opencl.program import kernel_of, new_token
from clhist._core.runtime.call import Events, Outcome
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import (
    MEMORY,
    Launch,
    New,
    Part,
    Prepared,
    Scratch,
    Slot,
    SortPairs,
    Table,
)

if TYPE_CHECKING:
    from clhist._core.runtime.chain import Chain


class _Command:
    """A launch with its built kernel.

    `buffers` and `numbers` list the arguments that change: (index of the argument, index in the call's memory or
    numbers). `current` has the numbers that are set now.
    """

    __slots__ = (
        "arguments",
        "buffers",
        "current",
        "enqueue",
        "global_size",
        "local_size",
        "numbers",
        "stage",
        "token",
        "typed",
    )

    def __init__(self, context: cl.Context, launch: Launch, places: dict[Any, int], tables: dict[Any, Any]) -> None:
        kernel = kernel_of(context, launch.kernel)
        self.stage, self.enqueue = launch.stage, kernel.enqueue
        self.global_size, self.local_size = launch.global_size, launch.local_size
        self.buffers: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int]] = []
        arguments: list[Any] = []
        for n, value in enumerate(launch.arguments):
            if isinstance(value, Table):
                # A table is uploaded once, for all commands that refer to it.
                if value not in tables:
                    tables[value] = read_only_buffer(context, value.array)
                arguments.append(tables[value])
            elif isinstance(value, Slot | Scratch):
                # Each call passes its own to the kernel.
                is_buffer = isinstance(value, Scratch) or value.what == MEMORY
                (self.buffers if is_buffer else self.numbers).append((n, places[value]))
                arguments.append(None)
            else:
                arguments.append(value)
        self.arguments, self.typed = kernel.typed(arguments), kernel.typed
        self.current: list[Any] = [None] * len(self.numbers)
        self.token = new_token()

    def set(self, numbers: Sequence[Any]) -> None:
        """Set the offsets and scalars of the next launch; equal ones keep the kernel's arguments as they are."""
        values = [numbers[k] for _, k in self.numbers]
        pairs = zip(values, self.current, strict=True)
        if all(value is before or same_scalar(value, before) for value, before in pairs):
            return
        # An exception may arrive between any two steps, so the numbers count as unset until the last one.
        self.current = [None] * len(values)
        arguments = [*self.arguments]
        for (n, _), value in zip(self.numbers, values, strict=True):
            arguments[n] = value
        self.token = new_token()  # makes `enqueue` set all arguments: faster than setting one number
        self.arguments = self.typed(arguments)
        self.current = values

    def run(self, queue: cl.CommandQueue, memory: Sequence[Any], wait_for: Sequence[cl.Event] | None) -> cl.Event:
        """Enqueue the launch with the buffers of a call, and return its event."""
        return self.enqueue(
            queue, self.global_size, self.local_size, self.arguments, wait_for, self.token, self.buffers, memory
        )


class _Part(NamedTuple):
    """A part with its built kernels; whether it replaces one of an earlier call, so that they have no numbers yet."""

    part: Part
    commands: list[_Command | SortPairs]
    is_new: bool


@cache
def _fixed_point() -> Any:
    """Return the module of long integers, which few operators need."""
    from clhist.operators import fixed_point

    return fixed_point


class OpenCLExecutable(Executable):
    """A prepared call with its kernels, built for the context of `queue`; the other parameters are `Executable`'s."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        prepared: Prepared,
        smaller: Callable[[Part, int], Sequence[Part]] | None = None,
    ) -> None:
        self._context = queue.context
        super().__init__(queue, prepared, smaller)
        self._written = [n for n, slot in enumerate(self._slots) if slot.is_written]
        self._parts = [self._built(part) for part in prepared.parts]
        self._blocks = blocks_of(queue.context)
        # The queue of the last call: whether it is in order, and its last event.
        self._queue: cl.CommandQueue | None = None
        self._in_order = False
        self._last: cl.Event | None = None
        # The numbers that all commands have now: offsets, and the scalars' very list; None if some have others.
        self._offsets: list[int] = []
        self._scalars: Sequence[Any] | None = None

    def _built(self, part: Part, run: Any = None) -> _Part:
        places = {Scratch(n): len(self._slots) + n for n in range(len(part.scratch))} | self._places
        commands = [
            command if isinstance(command, SortPairs) else _Command(self._context, command, places, self._tables)
            for command in part.commands
        ]
        return _Part(part, commands, run is not None)

    def load_all(self, arrays: Sequence[Array | None]) -> None:
        """Do nothing: `__init__` built all kernels."""

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
        if lost.reasons:
            lost.check_queue(queue)
        # If a kernel faults, the driver does not say which: errors name the call that was enqueued last.
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
        # The lock covers the kernels' arguments, which all threads share, and the state of the queue.
        with self._lock:
            if queue is not self._queue:
                self._queue, self._in_order, self._last = queue, in_order(queue), None
            last = self._last  # an in-order queue waits for it anyway, so no list of events needs it
            waiting: list[cl.Event] = [*wait_for]
            call_arrays: list[Any] = []
            for array in arrays:
                if array is None or type(array) is New:
                    new = self._slots[len(call_arrays)].new
                    assert new is not None
                    array = empty_opencl(queue, new[0] if array is None else array.shape, new[1], allocator)
                else:
                    for event in array.events:
                        if event is not last:
                            waiting.append(event)
                call_arrays.append(array)
                # An array without elements has no buffer, and its offset means nothing.
                buffer = array.base_data
                memory.append(buffer)
                offsets.append(0 if buffer is None else array.offset)
            events, after = self._run(queue, memory, offsets, scalars, waiting, allocator, begun)
            event = events["combine"][-1]
            if self._in_order:
                self._last = event
        # Later commands on these arrays, by whatever queue, wait for this call by their events.
        for n in self._written:
            before = call_arrays[n].events
            # The new event implies the last one of this queue, so it may replace it.
            if not before or (len(before) == 1 and before[0] is last):
                before[:] = [event]
            else:
                note_event(call_arrays[n], event, [*waiting, last] if last else waiting)
        return Outcome(self._collected(call_arrays), events, after)

    def _on_host(
        self,
        queue: cl.CommandQueue,
        arrays: Sequence[Any],
        scalars: Sequence[np.generic],
        wait_for: Sequence[cl.Event],
        allocator: Allocator | None,
        begun: Callable[[], None] | None,
    ) -> Outcome:
        slots, operands, call_arrays, blocks = self._slots, [], list(arrays), self._blocks
        staged: list[tuple[np.ndarray, ResultBlock]] = []
        memory: list[Any] = []
        offsets: list[int] = []
        # Arrays are placed before the lock is taken: uploads wait, and other threads need not.
        for n, slot in enumerate(slots):
            if slot.new is not None:
                shape, dtype = (call_arrays[n] or New(slot.new[0])).shape, slot.new[1]
                # Small results are copied back, so their alignment does not matter.
                is_small = prod(shape) * dtype.itemsize <= FETCHED_BYTES
                call_arrays[n] = np.empty(shape, dtype) if is_small else empty(queue, shape, dtype, False)
            # Small results use shared virtual memory, since mapping takes longer than a copy.
            if slot.is_written and blocks is not None and 0 < (array := call_arrays[n]).nbytes <= FETCHED_BYTES:
                block = blocks.take()
                # Blocks are reused, so their content is that of an earlier call.
                if slot.is_read:
                    block.like(array)[...] = array
                staged.append((array, block))
                memory.append(block.buffer)
                offsets.append(0)
                continue
            device_operand = operand(call_arrays[n], queue, written=slot.is_written, read=slot.is_read)
            if slot.is_written:
                operands.append(device_operand)
            memory.append(device_operand.buffer)
            offsets.append(device_operand.offset)
        with self._lock:
            if queue is not self._queue:
                self._queue, self._in_order, self._last = queue, in_order(queue), None
            events, after = self._run(queue, memory, offsets, scalars, wait_for, allocator, begun)
            is_in_order = self._in_order
        last = events["combine"][-1]
        # The host reads shared memory without the queue, and an out-of-order queue would map an array too early.
        if staged or not is_in_order:
            last.wait()
        for device_operand in operands:
            device_operand.retrieve()  # an in-order queue runs it after the kernels
        last.wait()
        for array, block in staged:
            array[...] = block.like(array)
            if blocks is not None:
                blocks.give(block)
        results = self._collected(call_arrays)
        # The results are on the host, so their range is checked without another synchronisation.
        if self.prepared.is_checked:
            for result_slots, result in zip(self._results, results, strict=True):
                if result_slots.operator.largest is not None:
                    _fixed_point().check_range(result_slots.label, result_slots.operator, result)
        return Outcome(results, events, after)

    def _run(
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
        # A memory pool reuses a block once it is freed on the host, which is safe on an in-order queue only.
        allocate = allocator if allocator is not None and self._in_order else scratch_allocator(queue)
        events: Events = {}
        after: dict[cl.Event, cl.Event] = {}
        # Repeated calls have the same offsets and scalars, so their kernels keep their arguments.
        is_as_before = scalars is self._scalars and offsets == self._offsets
        self._scalars, is_whole = None, True  # until all have been enqueued
        run = queue, memory, offsets, scalars, is_as_before, allocate, events, after, begun
        waited: Sequence[cl.Event] | None = wait_for
        for part in self._parts:
            try:
                waited = self._run_part(part, run, waited)
            except OutOfMemoryError as error:
                is_whole = False
                waited = self._run_smaller(part, run, waited, error, part is not self._parts[0])
        if is_whole:
            self._offsets, self._scalars = offsets, scalars
        return events, after

    def _run_part(
        self, part: _Part, run: tuple[Any, ...], wait_for: Sequence[cl.Event] | None
    ) -> Sequence[cl.Event] | None:
        queue, memory, offsets, scalars, is_as_before, allocate, events, after, begun = run
        # The numbers of a repeated call are set in its kernels already.
        numbers = None if is_as_before and not part.is_new else [*offsets, *scalars]
        blocks = []
        # Scratch memory is allocated before the first command: a refusal leaves nothing of this part enqueued.
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
                # In order, only the first command waits for events; else each waits for the one before it.
                event = command.run(queue, memory, wait_for)
                wait_for = None if is_in_order else (event,)
                if command.stage in events:
                    events[command.stage].append(event)
                else:
                    events[command.stage] = [event]
                continue
            from clhist._core.runtime.chain import Chain  # imported here, since few calls sort
            from clhist._core.runtime.sort import enqueue_sort, purpose_of

            # A sort is several launches with scratch memory of its own, so it is enqueued by a `Chain`.
            stage, chain = events[command.stage], Chain(queue, purpose_of(command.pairs), wait_for or (), allocate)
            for _ in enqueue_sort(command, chain, blocks):
                after[chain.events[0]] = stage[-1]
                stage.append(chain.events[0])
            wait_for = None if is_in_order else (stage[-1],)
        return wait_for


def executable_of(
    queue: cl.CommandQueue,
    prepared: Prepared,
    smaller: Callable[[Part, int], Sequence[Part]] | None = None,
) -> Executable:
    """Return what runs a prepared call on a queue: by OpenCL, or by CUDA if the queue stands for a device of that."""
    if cuda_device_of(queue) is None:
        return OpenCLExecutable(queue, prepared, smaller)
    from clhist._core.runtime.cuda_launcher import CudaExecutable

    return CudaExecutable(queue, prepared, smaller)


def chain_on(queue: cl.CommandQueue, purpose: str) -> Chain:
    """Return a chain on a queue, or on the CUDA device that the queue stands for."""
    if cuda_device_of(queue) is None:
        from clhist._core.runtime.chain import Chain

        return Chain(queue, purpose)
    from clhist._core.runtime.cuda_launcher import CudaChain

    return CudaChain(queue, purpose)
