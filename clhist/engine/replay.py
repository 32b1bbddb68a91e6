"""Calls that are enqueued again: all that their launches need is known, but for memory that is another each time.

A call is recorded as it runs. What it enqueued, on a queue that runs in order, can be replayed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyopencl as cl

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

    def replay(self, queue: cl.CommandQueue, memory: Sequence[Any], names: Sequence[str] = ()) -> Replay | None:
        """Return what repeats the call, or None if nothing can.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            Where it ran.
        memory : sequence of pyopencl.MemoryObject
            Buffers of the call in whose place each replay has others.
        names : sequence of str
            If each replay has other arguments of the map as well: all parameters of kernels for them, in order.
        """
        are_distinct = None not in memory and len({id(each) for each in memory}) == len(memory)
        if not self.is_whole or not are_distinct or not in_order(queue):
            return None
        changing = [id(each) for each in (*(block for _, block in self.blocks), *memory)]
        launches = []
        for kernel, global_size, local_size, arguments in self.launches:
            kept, places = list(arguments), []
            leading = len(names) if kernel.names[: len(names)] == tuple(names) else 0  # which kernels have in front
            for n, value in enumerate(arguments):
                if n < leading:
                    place = len(changing) + n
                elif id(value) in changing:
                    place = changing.index(id(value))
                else:
                    continue
                kept[n] = None
                places.append((n, place))
            launches.append(_Launch(kernel.enqueue, global_size, local_size, kept, places))
        return Replay(queue, launches, [size for size, _ in self.blocks])


@dataclass(slots=True)
class _Launch:
    """One kernel's; `places` are the arguments that change, each with the number of the memory that it gets."""

    enqueue: Callable[..., cl.Event]
    global_size: _Size
    local_size: _Size
    arguments: list[Any]
    places: list[tuple[int, int]]
    changed: list[int] = field(init=False)
    token: int = field(init=False)

    def __post_init__(self) -> None:
        self.changed, self.token = [n for n, _ in self.places], new_token()

    def run(self, queue: cl.CommandQueue, memory: Sequence[Any], wait_for: Sequence[cl.Event] | None) -> cl.Event:
        arguments = self.arguments
        for n, k in self.places:
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
            In the place of that which the recording was said to have; then the arguments for its `names`, if it has
            any, scalars as NumPy's.
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
                own = [self._last]  # for which the queue waits by itself
                waiting = list(wait_for)
                for array in arrays:
                    if array.events != own:
                        waiting += array.events
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
            if array.events == own:
                array.events[:1] = [event]
            else:
                note_event(array, event, waiting)
        return event
