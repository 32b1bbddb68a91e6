"""Carrying out a plan: scratch memory, kernels and launches, in the order clear, sweep, combine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyopencl as cl

from clhist.codegen.from_plan import combine_spec
from clhist.engine.batch import Batch
from clhist.engine.given import LargestBin
from clhist.engine.replay import Recording
from clhist.engine.stages import Combine, Enqueued, Events, Result, Sweep, Tasks
from clhist.hardware.profile import Profile
from clhist.opencl.arrays import Operand
from clhist.opencl.memory import Allocator, OutOfMemoryError, allocated, in_order, scratch_allocator
from clhist.operators.operator import Operator


class Found(NamedTuple):
    """Where the largest bin with a value goes, and which bins are looked at."""

    word: Operand
    asked: LargestBin


@dataclass(slots=True)
class Launch:
    """What one call enqueues on one queue; `run` does it.

    Attributes
    ----------
    sweeps : sequence of Sweep
        How the results are computed.
    profile : Profile
        Of the device.
    arguments : mapping of str to object
        The map's arguments by the names of the kernel's parameters.
    results : sequence of Result
        What is written.
    found : Found, optional
        Where the largest bin with a value goes.
    batch : Batch, optional
        If there is more than one histogram of each kind.
    after : dict of pyopencl.Event to pyopencl.Event
        As in `Enqueued`.
    smaller : callable, optional
        Gives the sweeps that do the same with copies of at most so many bytes; raises MemoryError if none do.
    recording : Recording, optional
        Notes what is enqueued.
    """

    sweeps: Sequence[Sweep]
    profile: Profile
    arguments: Mapping[str, object]
    results: Sequence[Result]
    found: Found | None = None
    batch: Batch | None = None
    after: dict[cl.Event, cl.Event] = field(default_factory=dict)
    smaller: Callable[[Sweep, int], Sequence[Sweep]] | None = None
    recording: Recording | None = None

    def run(self, queue: cl.CommandQueue, allocator: Allocator | None, wait_for: Sequence[cl.Event]) -> Events:
        """Enqueue all and return the events of each stage; after the last of "combine" everything is written.

        Raises
        ------
        MemoryError
            If not even one copy can be allocated.
        """
        # A pool hands out memory as soon as its last holder is gone: right only for commands that run in order.
        allocate = allocator if allocator is not None and in_order(queue) else scratch_allocator(queue)
        if self.recording is not None:
            allocate = self.recording.noting(allocate)
        enqueued = Enqueued(queue, list(wait_for), after=self.after, recording=self.recording)
        waiting: list[tuple[Sweep, int | None]] = [(sweep, None) for sweep in self.sweeps]
        while waiting:
            sweep, budget = waiting.pop(0)
            try:
                self._run_sweep(sweep, enqueued, allocate)
                continue
            except OutOfMemoryError as error:
                failed = error
            # Half of what there was, too: what was refused may be more than the copies, with locks and gaps.
            before = min(failed.size, failed.size if budget is None else budget)
            less = sweep.least_bytes if before // 2 < sweep.least_bytes < before else before // 2
            waiting[:0] = [(each, less) for each in self._with_less(sweep, less, failed)]
        return enqueued.events

    def _with_less(self, sweep: Sweep, budget: int, failed: OutOfMemoryError) -> Sequence[Sweep]:
        """Return what takes the place of a sweep for which there was no memory: the same in `budget` bytes."""
        try:
            if self.smaller is not None and budget:
                return self.smaller(sweep, budget)
        except (MemoryError, ValueError):  # not even one copy, or not with what is forced
            pass
        raise failed

    def _run_sweep(self, sweep: Sweep, enqueued: Enqueued, allocate: Allocator) -> None:
        plan = sweep.plan
        tasks = sweep.tasks(self.batch, enqueued.queue, allocate)
        copies = 0
        if plan.num_elements:
            copies = tasks.slots if tasks.slots is not None else plan.global_copies * plan.num_histograms
        places, size = sweep.layout(copies)
        scratch = None
        if size:
            scratch = allocated(allocate, size, sweep.purpose)

            def clear(places: Mapping[str, int], copies: int, cells: int | None = None) -> None:
                self._clear(sweep, enqueued, scratch, places, copies, tasks.kind, cells)

            sweep.clear(clear, places, copies)
            sweep.enqueue(enqueued, tasks, self._values(sweep, scratch, places, tasks), allocate)
        if not plan.is_one_launch:
            self._combine(sweep, enqueued, scratch, places, copies, tasks)

    def _combine(
        self, sweep: Sweep, enqueued: Enqueued, scratch: Any, places: Mapping[str, int], copies: int, tasks: Tasks
    ) -> None:
        plan, device, n = sweep.plan, enqueued.queue.device, 0
        for k, (output, index) in enumerate(zip(sweep.spec.outputs, plan.output_indices, strict=True)):
            parts = len(output.operator.parts)
            values: dict[str, object] = {f"clhist_place{p}": places[f"clhist_place{n + p}"] for p in range(parts)}
            values["clhist_scratch"] = scratch
            values["clhist_bins"] = plan.copy_bins[k]
            values["clhist_copies"] = plan.global_copies if copies else 0
            values["clhist_first"] = tasks.first
            values["clhist_passes"] = plan.passes
            values |= sweep.combine_numbers(places)
            values |= self._largest()
            used = "" if self.found is None else self.found.asked.used
            result = self.results[index]
            combine = sweep.combine(k, result, self.profile, device, tasks.kind, used)
            combine.enqueue(enqueued, result, plan.bins[k] * plan.num_histograms, values)
            n += parts

    def _clear(
        self,
        sweep: Sweep,
        enqueued: Enqueued,
        scratch: Any,
        places: Mapping[str, int],
        copies: int,
        kind: str,
        some: int | None = None,
    ) -> None:
        group = 1 if self.profile.kind == "cpu" else min(256, self.profile.work_group_size)
        n = 0
        device = enqueued.queue.device
        for k, (output, bins) in enumerate(zip(sweep.spec.outputs, sweep.plan.bins, strict=True)):
            result, used = self.results[sweep.plan.output_indices[k]], self.found.asked.used if self.found else ""
            kernel = sweep.combine(k, result, self.profile, device, kind, used).clear
            cells, parts = copies * bins if some is None else some, len(output.operator.parts)
            groups = min(-(-cells // group), 16 * device.max_compute_units)
            values: dict[str, object] = {"clhist_scratch": scratch, "clhist_num_cells": cells}
            for p in range(parts):
                for name in ("place", "lock_place", "num_locks"):
                    values[f"clhist_{name}{p}"] = places[f"clhist_{name}{n + p}"]
            enqueued.add("clear", kernel, (groups * group,), (group,), values)
            n += parts

    def _combining(self, sweep: Sweep) -> dict[str, object]:
        """Return the further arguments of a sweep that combines its copies itself."""
        (index,) = sweep.plan.output_indices
        return {**self.results[index].arguments("clhist_"), **self._largest()}

    def _largest(self) -> dict[str, object]:
        """Return the arguments for the largest bin with a value, if it is asked for."""
        if self.found is None:
            return {}
        word, known = self.found.word, self.found.asked.known
        return {"clhist_known": known, "clhist_found_base": word.buffer, "clhist_found_offset": word.offset}

    def _values(self, sweep: Sweep, scratch: Any, places: Mapping[str, int], tasks: Tasks) -> dict[str, object]:
        """Return the arguments of the sweep by the names of its kernels' parameters."""
        return {
            **(self._combining(sweep) if sweep.plan.is_one_launch else {}),
            **self.arguments,
            **places,
            **sweep.kernel_numbers(),
            "clhist_scratch": scratch,
            "clhist_tasks": tasks.tasks,
            "clhist_chunks": tasks.chunks,
            "clhist_each": tasks.each,
            "clhist_table": tasks.table,
            "clhist_whose": tasks.first,
        }


def combine_partials(
    queue: cl.CommandQueue,
    profile: Profile,
    operator: Operator,
    bins: int,
    result: Result,
    more: Operand | None,
    wait_for: Sequence[cl.Event],
) -> cl.Event:
    """Enqueue what `result` asks for without any sweep, combined with `more`, an array of accumulators."""
    spec = combine_spec(
        operator,
        profile,
        largest_group=queue.device.max_work_group_size,
        copies=1,
        dest_is_partial=result.dest_is_partial,
        out_is_partial=result.out_is_partial,
        whole=True,
    )
    values: dict[str, object] = {f"clhist_place{n}": 0 for n in range(len(operator.parts))}
    values |= {"clhist_scratch": None, "clhist_bins": bins, "clhist_copies": 0}
    if more is not None:
        values |= {"clhist_scratch": more.buffer, "clhist_place0": more.offset, "clhist_copies": 1}
    enqueued = Enqueued(queue, list(wait_for))
    Combine.of(queue.context, queue.device, spec).enqueue(enqueued, result, bins, values)
    return enqueued.events["combine"][-1]
