"""`Executable`: a prepared call with its kernels, built for a device. A back end, OpenCL or CUDA, enqueues them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.cuda_kinds import NotDirectError
from clhist._core.opencl.memory import Allocator, OutOfMemoryError
from clhist._core.runtime.call import Outcome
from clhist._core.runtime.prepared import MEMORY, OFFSET, VALUE, Part, Prepared, Slot, Table


class Executable(ABC):
    """A prepared call with its kernels. A lock admits one thread at a time.

    A back end is a subclass: `executable_of` chooses it by the queue. It builds a part in `_built`; in `_run_part` it
    allocates the scratch memory of a part and enqueues its commands: a `Launch` with the memory, offsets and scalars
    of a call at `_places`, and a `SortPairs` by `enqueue_sort` on a `Chain`.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        A queue of the context that builds the kernels, or what stands for a CUDA device.
    prepared : Prepared
        The launches.
    smaller : callable or None
        Takes a part and a number of bytes; returns parts with the same result whose copies need no more than that.
        Raises MemoryError or ValueError if there are none.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        prepared: Prepared,
        smaller: Callable[[Part, int], Sequence[Part]] | None = None,
    ) -> None:
        self.prepared, self._smaller, self._lock = prepared, smaller, threading.Lock()
        self._slots, self._results = prepared.arrays, prepared.results
        # The slot of the result if there is one array of it, as of most calls.
        is_single = len(self._results) == 1 and not self._results[0].has_fields
        self._result_slot = self._results[0].slots[0] if is_single else None
        # Index of each slot in the call's memory or in its numbers (offsets, then scalars).
        self._places: dict[Any, int] = {}
        for n, slot in enumerate(self._slots):
            self._places |= {Slot(slot.name, MEMORY): n, Slot(slot.name, OFFSET): n}
        for n, name in enumerate(prepared.scalars, len(self._slots)):
            self._places[Slot(name, VALUE)] = n
        self._tables: dict[Table, Any] = {}  # on the device

    @abstractmethod
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
        """Enqueue all commands and return the results; with NumPy arrays, wait for them.

        Later commands on written arrays must wait for this call: OpenCL adds its event to them, a stream of CUDA
        orders them. If a part is refused memory, parts from `_less` take its place.
        If `prepared.is_checked`, NumPy results are checked by `check_range` of `clhist.operators.fixed_point`.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            A queue of the context, or what stands for a CUDA device.
        arrays : sequence of array
            One for each slot, all on a device or all NumPy's; None or `New` for new results.
        scalars : sequence of NumPy scalar
            In the order and dtypes of the prepared call.
        on_device : bool
            Whether the arrays are on a device.
        wait_for : sequence of pyopencl.Event
            Events to wait for besides those of the arrays.
        allocator : callable, optional
            Allocates scratch memory and new results.
        begun : callable, optional
            Called before the first command of each part is enqueued, once the memory of that part is allocated.

        Returns
        -------
        Outcome
            `results` of `_collected`. `events` has at least "combine", whose last event ends the call; it is None
            where there are no events.

        Raises
        ------
        MemoryError
            If not even one copy can be allocated.
        DeviceLostError
            If the device is lost.
        """

    @abstractmethod
    def load_all(self, arrays: Sequence[Any]) -> None:
        """Load the kernels for a call on these arrays, unless they are loaded."""

    @abstractmethod
    def _built(self, part: Part, run: Any = None) -> Any:
        """Return a part with its kernels; its attribute ``part`` is that part. `run` is None before the first call."""

    @abstractmethod
    def _run_part(self, part: Any, run: Any, wait_for: Any) -> Any:
        """Enqueue a part of `_built`, after `wait_for`; return what the next one waits for.

        Raises OutOfMemoryError before anything of it is enqueued.
        """

    def _run_smaller(self, part: Any, run: Any, wait_for: Any, error: OutOfMemoryError, has_begun: bool) -> Any:
        """Enqueue parts with the same result and less memory than one that was refused it; return as `_run_part`.

        Raises `error` if there are none. `has_begun` says whether an earlier part was enqueued.
        """
        # A part that is refused in turn makes way for its own, before the next one: the order of the parts stays.
        waiting = self._less(part.part, None, error, run, has_begun)
        while waiting:
            smaller, budget = waiting.pop(0)
            try:
                wait_for, has_begun = self._run_part(smaller, run, wait_for), True
            except OutOfMemoryError as failed:
                waiting[:0] = self._less(smaller.part, budget, failed, run, has_begun)
        return wait_for

    def _collected(self, arrays: Sequence[Any]) -> list[Any]:
        """Return each result as an array, or as a tuple of the arrays of its fields."""
        if self._result_slot is not None:
            return [arrays[self._result_slot]]
        results = []
        for result in self._results:
            fields = [arrays[n] for n in result.slots]
            results.append(tuple(fields) if result.has_fields else fields[0])
        return results

    def _less(
        self, part: Part, budget: int | None, failed: OutOfMemoryError, run: Any, has_begun: bool
    ) -> list[tuple[Any, int]]:
        """Return built parts that replace one whose memory was refused, each with its budget; else raise `failed`."""
        # Halve the budget as well: the refused allocation includes locks and padding. The least that any plan can take
        # is tried before one that none can.
        before = failed.size if budget is None else min(failed.size, budget)
        less = part.least_bytes if before // 2 < part.least_bytes < before else before // 2
        try:
            if self._smaller is not None and less:
                return [(self._built(smaller, run), less) for smaller in self._smaller(part, less)]
        except NotDirectError as refused:
            # The host would do again what is enqueued.
            if has_begun:
                raise OutOfMemoryError(f"{failed}; with less, {refused}", failed.size) from failed
            raise
        except (MemoryError, ValueError):  # not even one copy fits, or the caller forced a plan
            pass
        raise failed
