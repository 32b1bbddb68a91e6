"""Calls that are enqueued again: all that their launches need is known, but for memory that is another each time.

A call is recorded as it runs. What it enqueued, on a queue that runs in order, can be replayed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.codegen.arguments import same_scalar
from clhist.opencl import lost
from clhist.opencl.arrays import Array, note_event
from clhist.opencl.memory import Allocator, OutOfMemoryError, allocated, in_order, scratch_allocator
from clhist.opencl.program import Kernel, new_token

_MOST_SCRATCH = 64 << 20  # bytes: a replay has the scratch memory of all sweeps of its call at a time

_Size = tuple[int, ...]


@dataclass
class Recording:
    """What a call enqueues, and the scratch memory that it allocates for that.

    Attributes
    ----------
    launches : list of (Kernel, tuple of int, tuple of int, list)
        Each kernel with its global and local size and its arguments in order.
    blocks : list of (int, object)
        Scratch memory, and how many bytes were asked for.
    is_whole : bool
        Whether that is all.
    """

    launches: list[tuple[Kernel, _Size, _Size, list[Any]]] = field(default_factory=list)
    blocks: list[tuple[int, Any]] = field(default_factory=list)
    is_whole: bool = True

    def noting(self, allocate: Allocator) -> Allocator:
        """Return `allocate`, noted by this recording."""

        def noted(size: int) -> Any:
            try:
                block = allocate(size)
            except BaseException:
                self.give_up()  # what comes then makes do with less memory
                raise
            self.blocks.append((size, block))
            if sum(each for each, _ in self.blocks) > _MOST_SCRATCH:
                self.give_up()
            return block

        return noted

    def note(self, kernel: Kernel, global_size: _Size, local_size: _Size, arguments: list[Any]) -> None:
        """Note a launch."""
        if self.is_whole:
            self.launches.append((kernel, global_size, local_size, arguments))

    def give_up(self) -> None:
        """Keep nothing: the call cannot be repeated so."""
        self.is_whole = False
        self.launches.clear()
        self.blocks.clear()

    def replay(
        self, queue: cl.CommandQueue, memory: Sequence[Any], named: Mapping[str, Any] = MappingProxyType({})
    ) -> Replay | None:
        """Return what repeats the call, or None if nothing can.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            Where it ran.
        memory : sequence of pyopencl.MemoryObject
            Buffers of the call in whose place each replay has others.
        named : mapping of str to object
            Further arguments in whose place each replay has others, in this order: buffers and NumPy scalars by the
            names of the kernels' parameters.
        """
        are_distinct = None not in memory and len({id(each) for each in memory}) == len(memory)
        if not self.is_whole or not are_distinct or not in_order(queue):
            return None
        changing = [id(each) for each in (*(block for _, block in self.blocks), *memory)]
        numbered = {name: len(changing) + n for n, name in enumerate(named)}
        launches = []
        for kernel, global_size, local_size, arguments in self.launches:
            kept = list(arguments)
            buffers: list[tuple[int, int]] = []
            numbers: list[tuple[int, int]] = []
            for n, (name, value) in enumerate(zip(kernel.names, arguments, strict=True)):
                if name in numbered:
                    if not _is_given(named[name], value):  # a parameter of that name, but not this argument
                        return None
                    (numbers if _is_number(value) else buffers).append((n, numbered[name]))
                elif id(value) in changing:
                    buffers.append((n, changing.index(id(value))))
            for n, _ in buffers:
                kept[n] = None
            launches.append(_Launch(kernel.enqueue, global_size, local_size, kept, buffers, numbers))
        return Replay(queue, launches, [size for size, _ in self.blocks])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.generic)


def _is_given(given: Any, taken: Any) -> bool:
    """Whether a kernel took the argument `given` as `taken`."""
    if not _is_number(given):
        return given is taken
    return taken is given or (_is_number(taken) and type(taken) is not bool and bool(taken == given))


@dataclass(slots=True)
class _Launch:
    """One kernel's; `buffers` and `numbers` are the arguments that change, each with its number in the memory."""

    enqueue: Callable[..., cl.Event]
    global_size: _Size
    local_size: _Size
    arguments: list[Any]
    buffers: list[tuple[int, int]]
    numbers: list[tuple[int, int]]
    changed: list[int] = field(init=False)
    token: int = field(init=False)

    def __post_init__(self) -> None:
        self.changed, self.token = [n for n, _ in self.buffers], new_token()

    def run(self, queue: cl.CommandQueue, memory: Sequence[Any], wait_for: Sequence[cl.Event] | None) -> cl.Event:
        arguments = self.arguments
        for n, k in self.numbers:
            value = memory[k]
            if value is not arguments[n] and not same_scalar(value, arguments[n]):
                arguments[n] = value
                self.token = new_token()  # to set all at once takes less than to set a number
        for n, k in self.buffers:
            arguments[n] = memory[k]
        event = self.enqueue(queue, self.global_size, self.local_size, arguments, wait_for, self.token, self.changed)
        for n in self.changed:
            arguments[n] = None  # nothing of the caller's is kept
        return event


class Replay:
    """The launches of a recorded call; one thread at a time enqueues them, on a queue that runs in order."""

    def __init__(self, queue: cl.CommandQueue, launches: Sequence[_Launch], blocks: Sequence[int]) -> None:
        self._queue, self._launches, self._blocks = queue, launches, blocks
        self._lock = threading.Lock()
        self._last: cl.Event | None = None

    def enqueue(
        self,
        memory: Sequence[Any],
        arrays: Sequence[Array],
        written: Sequence[Array],
        wait_for: Sequence[cl.Event],
        allocator: Allocator | None = None,
    ) -> cl.Event:
        """Enqueue all, and return the last event.

        Parameters
        ----------
        memory : sequence of pyopencl.MemoryObject
            In the place of that which the recording was said to have, and the `named` arguments.
        arrays, written : sequence of pyopencl.array.Array
            Whose events are waited for, and who get the last one.
        wait_for : sequence of pyopencl.Event
            What to wait for besides.
        allocator : callable, optional
            The caller's, of scratch memory.

        Raises
        ------
        OutOfMemoryError
            If there is no scratch memory; nothing is enqueued then.
        """
        queue = self._queue
        lost.check_queue(queue)
        try:
            with self._lock:
                last = self._last  # for which the queue waits by itself
                waiting = list(wait_for)
                for array in arrays:
                    waiting += [event for event in array.events if event is not last]
                if self._blocks:
                    allocate = allocator or scratch_allocator(queue)
                    memory = [*(allocated(allocate, size, "to repeat a call") for size in self._blocks), *memory]
                before: Sequence[cl.Event] | None = waiting
                for launch in self._launches:
                    event = launch.run(queue, memory, before)
                    before = None
                self._last = event
        except OutOfMemoryError:
            raise
        except BaseException as error:
            lost.settle(queue, error)
            raise
        for array in written:
            if not array.events or array.events == [last]:
                array.events[:] = [event]
            else:
                note_event(array, event, [*waiting, last] if last else waiting)
        return event
