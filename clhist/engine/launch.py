"""Carrying out a plan: scratch memory, kernels and launches, in the order clear, sweep, combine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.codegen.parameters import clear_parameters, combine_parameters, sweep_parameters
from clhist.codegen.render import render_combine, render_sweep
from clhist.codegen.specs import CombineSpec, Output, SweepSpec
from clhist.engine.batch import Batch
from clhist.hardware.profile import Profile
from clhist.opencl.arrays import Operand, read_only_buffer
from clhist.opencl.memory import Allocator, OutOfMemoryError, allocated, in_order, scratch_allocator
from clhist.opencl.program import Kernel, build, kept_by_context
from clhist.operators.operator import Operator
from clhist.planning.partition import RANGE_BYTES
from clhist.planning.plan import ALIGNMENT, LOCK_BYTES, Plan

# Below these, elements and bins are counted in 32 bits; a work-item's next element must not overflow either.
NARROW_ELEMENTS = 2**31 - 2**24
NARROW_BINS = 2**31 - 1

_ALIGNMENT = 128  # bytes: where each array begins in the scratch memory

_COMBINE_COLUMNS = 32
_COMBINE_ROWS = 16
_MANY_COPIES = 128
_COMBINE_BYTES = 64  # of an accumulator: larger ones would fill local memory


def order_of(profile: Profile) -> str:
    """Return in which order the work-items of a device should go through the input."""
    return "blocked" if profile.kind == "cpu" else "interleaved"


def is_wide(plan: Plan) -> bool:
    """Whether a kernel for `plan` counts elements and bins in 64 bits."""
    return plan.num_elements > NARROW_ELEMENTS or max(plan.bins) > NARROW_BINS


def scratch_layout(outputs: Sequence[Output], plan: Plan, copies: int) -> tuple[dict[str, int], int]:
    """Return where each part of `outputs` lies in a buffer that holds `copies` copies of all bins, and its bytes.

    The places, and the numbers of locks, have the names of the kernels' parameters.
    """
    found, size, n = {}, 0, 0
    for output, bins in zip(outputs, plan.copy_bins, strict=True):
        cells = copies * bins
        for part, update in zip(output.operator.parts, output.updates, strict=True):
            locks = 0
            if plan.memory == "global" and update == "lock":
                locks = cells if plan.locks is None else min(cells, plan.locks)
            for name, needed in (("place", cells * part.cell_bytes), ("lock_place", locks * LOCK_BYTES)):
                place = -(-size // _ALIGNMENT) * _ALIGNMENT
                found[f"clhist_{name}{n}"] = place
                size = place + needed if needed else size
            found[f"clhist_num_locks{n}"] = locks
            n += 1
    return found, size


def local_capacity(outputs: Sequence[Output], plan: Plan, profile: Profile) -> int:
    """Return the bytes of the local array: a quarter, a half or all of local memory, so that few kernels are built."""
    if plan.memory == "global":
        return 0
    most = profile.local_memory // ALIGNMENT * ALIGNMENT
    if plan.packed:
        return most
    end = locks = 0
    for output, bins in zip(outputs, plan.chunks(), strict=True):
        cells = bins * plan.copies * plan.teams
        for part, update in zip(output.operator.parts, output.updates, strict=True):
            end = -(-end // ALIGNMENT) * ALIGNMENT + cells * part.cell_bytes
            locks += (cells if plan.locks is None else min(cells, plan.locks)) * (update == "lock")
    end = -(-end // LOCK_BYTES) * LOCK_BYTES + LOCK_BYTES * locks
    if plan.partitions:
        end = -(-end // ALIGNMENT) * ALIGNMENT + RANGE_BYTES
    # Words lie at its end, too.
    sizes = (most // parts // ALIGNMENT * ALIGNMENT for parts in (4, 2, 1))
    return next((size for size in sizes if size >= end), -(-end // LOCK_BYTES) * LOCK_BYTES)


@kept_by_context
def sweep_kernel(context: cl.Context, spec: SweepSpec, options: tuple[str, ...]) -> Kernel:
    """Return the built sweep of `spec`."""
    return Kernel(build(context, render_sweep(spec), (*options, *spec.options)), "clhist_sweep", sweep_parameters(spec))


@kept_by_context
def combine_kernels(context: cl.Context, spec: CombineSpec) -> tuple[Kernel, Kernel]:
    """Return the built kernels that clear copies and combine them."""
    program = build(context, render_combine(spec))
    clear = Kernel(program, "clhist_clear", clear_parameters(spec))
    return clear, Kernel(program, "clhist_combine_copies", combine_parameters(spec))


@dataclass(frozen=True, eq=False)
class Sweep:
    """One sweep over the input, planned and built, and what calls need again of it.

    Attributes
    ----------
    plan : Plan
        How.
    spec : SweepSpec
        What its source was made of.
    kernel : Kernel
        Built.
    numbers : tuple of int
        Which of a call's results it computes.
    instead : callable, optional
        What enqueues it in the place of `kernel` alone, if pairs are sorted or partitioned first; see
        `clhist.engine.sort` and `clhist.engine.partition`.
    """

    plan: Plan
    spec: SweepSpec
    kernel: Kernel
    numbers: tuple[int, ...]
    instead: Callable[[Enqueued, Plan, Mapping[str, object], Allocator], None] | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def layout(self, copies: int) -> tuple[dict[str, int], int]:
        """Return the scratch layout of so many copies; see `scratch_layout`."""
        return self._keep(copies, lambda: scratch_layout(self.spec.outputs, self.plan, copies))

    def numbers_of_kernel(self) -> dict[str, object]:
        """Return the arguments of the kernel that depend on the plan alone."""

        def make() -> dict[str, object]:
            plan = self.plan
            mask = plan.locks - 1 if plan.locks is not None else 2**32 - 1 if plan.memory == "local" else 2**64 - 1
            found: dict[str, object] = {"clhist_size": plan.num_elements, "clhist_copies": plan.copies}
            found["clhist_lock_mask"] = mask
            for output, bins, chunk in zip(self.spec.outputs, plan.bins, plan.chunks(), strict=True):
                found[f"clhist_num_bins{output.suffix}"] = bins
                found[f"clhist_bins_per_pass{output.suffix}"] = chunk
                found[f"clhist_bins_each{output.suffix}"] = bins // max(1, plan.flat)
            return found

        return self._keep("numbers", make)

    def combine(self, k: int, result: Result, profile: Profile, device: cl.Device, batch: str) -> Combine:
        """Return the second stage of the output number `k` of the sweep."""
        operator = self.spec.outputs[k].operator
        form = (result.dest_is_partial, result.out_is_partial, result.fields)

        def make() -> Combine:
            order = order_of(profile)
            columns = rows = 1
            if order == "interleaved":
                largest = device.max_work_group_size
                columns = min(256, largest)
                copies = self.plan.global_copies
                if copies >= _COMBINE_ROWS and operator.accumulator.itemsize <= _COMBINE_BYTES:
                    wanted = _COMBINE_ROWS if copies >= _MANY_COPIES else max(1, _COMBINE_ROWS // 4)
                    columns = min(_COMBINE_COLUMNS * _COMBINE_ROWS // wanted, largest)
                    rows = max(1, min(wanted, largest // columns))
                    rows = 1 << (rows.bit_length() - 1)  # they meet in a tree
            return Combine.of(self.context, device, CombineSpec(operator, order, columns, rows, batch, *form))

        return self._keep((k, batch, *form), make)

    @property
    def context(self) -> cl.Context:
        """Where the kernel was built."""
        return self.kernel.context

    def _keep(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


@dataclass(frozen=True)
class Combine:
    """The second stage, built: the kernels that clear and combine, and how many work-groups go over the bins."""

    spec: CombineSpec
    clear: Kernel
    kernel: Kernel
    most_groups: int  # of a CPU, where each has a block of bins

    @classmethod
    def of(cls, context: cl.Context, device: cl.Device, spec: CombineSpec) -> Combine:
        """Return it for `spec`."""
        clear, kernel = combine_kernels(context, spec)
        return cls(spec, clear, kernel, 4 * device.max_compute_units)

    def enqueue(self, enqueued: Enqueued, result: Result, bins: int, values: Mapping[str, object]) -> None:
        """Enqueue it for so many bins of all histograms; `values` are of the copies."""
        if self.spec.order == "blocked":
            group, groups = 1, min(bins, self.most_groups)
        else:
            group, groups = self.spec.columns * self.spec.rows, -(-bins // self.spec.columns)
        given = {**values, "clhist_num_bins": bins, "has_dest": result.dest is not None}
        suffixes = [f"_{name}" for name, _ in result.fields] or _ONE_ARRAY
        for suffix, dest, out in zip(suffixes, result.dest or result.out, result.out, strict=True):
            given[f"dest_base{suffix}"], given[f"dest_offset{suffix}"] = dest.buffer, dest.offset
            given[f"out_base{suffix}"], given[f"out_offset{suffix}"] = out.buffer, out.offset
        enqueued.add("combine", self.kernel, (groups * group,), (group,), given)


_ONE_ARRAY = [""]


@dataclass(slots=True)
class Result:
    """One result of a call: what is combined with (or None), and what is written, each as one array or one a field.

    Attributes
    ----------
    dest : tuple of Operand, or None
        What the histogram is combined with.
    out : tuple of Operand
        Where it goes.
    fields : tuple of (str, str)
        Name and C type of each field that has an array of its own; none for one array.
    dest_is_partial, out_is_partial : bool
        Whether these are accumulators, neither lifted nor finished.
    """

    dest: tuple[Operand, ...] | None
    out: tuple[Operand, ...]
    fields: tuple[tuple[str, str], ...] = ()
    dest_is_partial: bool = False
    out_is_partial: bool = False


Events = dict[str, list[cl.Event]]


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
    reach : Operand, optional
        One 32-bit word that gets the largest bin emitted.
    batch : Batch, optional
        If there is more than one histogram of each kind.
    after : dict of pyopencl.Event to pyopencl.Event
        As in `Enqueued`.
    smaller : callable, optional
        Gives the sweeps that do the same with copies of at most so many bytes; raises MemoryError if none do.
    """

    sweeps: Sequence[Sweep]
    profile: Profile
    arguments: Mapping[str, object]
    results: Sequence[Result]
    reach: Operand | None = None
    batch: Batch | None = None
    after: dict[cl.Event, cl.Event] = field(default_factory=dict)
    smaller: Callable[[Sweep, int], Sequence[Sweep]] | None = None

    def run(self, queue: cl.CommandQueue, allocator: Allocator | None, wait_for: Sequence[cl.Event]) -> Events:
        """Enqueue all and return the events of each stage; after the last of "combine" everything is written.

        Raises
        ------
        MemoryError
            If not even one copy can be allocated.
        """
        # A pool hands out memory as soon as its last holder is gone: right only for commands that run in order.
        allocate = allocator if allocator is not None and in_order(queue) else scratch_allocator(queue)
        enqueued = Enqueued(queue, list(wait_for), after=self.after)
        waiting: list[tuple[Sweep, int | None]] = [(sweep, None) for sweep in self.sweeps]
        while waiting:
            sweep, budget = waiting.pop(0)
            try:
                self._run_sweep(sweep, enqueued, allocate)
                continue
            except OutOfMemoryError as error:
                failed = error
            # Half of what there was, too: what was refused may be more than the copies, with locks and gaps.
            less = min(failed.size, failed.size if budget is None else budget) // 2
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
        batch = self._batch_arguments(plan, enqueued.queue) if self.batch is not None else _NO_BATCH
        if plan.partitions and plan.num_elements:
            first = allocated(allocate, 8 * (plan.partitions + 1), _purpose(plan))
            batch = _BatchArguments("table", first=first, slots=plan.work_groups + plan.partitions)
        copies = 0
        if plan.num_elements:
            copies = batch.slots if batch.slots is not None else plan.global_copies * plan.num_histograms
        places, size = sweep.layout(copies)
        scratch = None
        if copies:
            scratch = allocated(allocate, size, _purpose(plan))
            if plan.memory == "global" and plan.update != "private":
                self._clear(sweep, enqueued, scratch, places, copies, batch.kind)
            if plan.packed:
                before = plan.work_groups * plan.num_bins * sweep.spec.outputs[0].operator.parts[0].cell_bytes
                self._clear(
                    sweep, enqueued, scratch, {**places, "clhist_place0": places["clhist_place0"] + before}, 1, ""
                )
            self._sweep(sweep, enqueued, scratch, places, batch, allocate)
        device, kind = enqueued.queue.device, batch.kind
        n = 0
        for k, (output, number) in enumerate(zip(sweep.spec.outputs, sweep.numbers, strict=True)):
            parts = len(output.operator.parts)
            values: dict[str, object] = {f"clhist_place{p}": places[f"clhist_place{n + p}"] for p in range(parts)}
            values["clhist_scratch"] = scratch
            values["clhist_bins"] = plan.copy_bins[k]
            values["clhist_copies"] = plan.global_copies if copies else 0
            values["clhist_first"] = batch.first
            result = self.results[number]
            combine = sweep.combine(k, result, self.profile, device, kind)
            combine.enqueue(enqueued, result, plan.bins[k] * plan.num_histograms, values)
            n += parts

    def _batch_arguments(self, plan: Plan, queue: cl.CommandQueue) -> _BatchArguments:
        """Return what the kernels must know of a batch; a table of tasks is uploaded."""
        assert self.batch is not None
        if plan.flat:
            return _BatchArguments(each=plan.num_elements // plan.flat)
        if self.batch.kind == "even" or not plan.num_elements:
            each = plan.num_elements // plan.num_histograms
            return _BatchArguments("even", plan.tasks, plan.groups_per_histogram, each, groups=plan.work_groups)
        table, first = self.batch.tasks(plan)
        index = np.int64 if is_wide(plan) else np.int32
        tasks = len(table)
        groups = -(-tasks // plan.teams)
        if plan.update == "private" and plan.memory == "global":
            groups = min(groups, plan.work_groups)
        shared = plan.memory == "global" and plan.update != "private"
        return _BatchArguments(
            "even" if shared else "table",
            tasks,
            table=read_only_buffer(queue.context, np.ascontiguousarray(table, index)),
            first=None if shared else read_only_buffer(queue.context, first),
            slots=None if shared else tasks,
            groups=groups,
        )

    def _clear(
        self, sweep: Sweep, enqueued: Enqueued, scratch: Any, places: Mapping[str, int], copies: int, kind: str
    ) -> None:
        group = 1 if self.profile.kind == "cpu" else min(256, self.profile.work_group_size)
        n = 0
        device = enqueued.queue.device
        for k, (output, bins) in enumerate(zip(sweep.spec.outputs, sweep.plan.bins, strict=True)):
            kernel = sweep.combine(k, self.results[sweep.numbers[k]], self.profile, device, kind).clear
            cells, parts = copies * bins, len(output.operator.parts)
            groups = min(-(-cells // group), 16 * device.max_compute_units)
            values: dict[str, object] = {"clhist_scratch": scratch, "clhist_num_cells": cells}
            for p in range(parts):
                for name in ("place", "lock_place", "num_locks"):
                    values[f"clhist_{name}{p}"] = places[f"clhist_{name}{n + p}"]
            enqueued.add("clear", kernel, (groups * group,), (group,), values)
            n += parts

    def _sweep(
        self,
        sweep: Sweep,
        enqueued: Enqueued,
        scratch: Any,
        places: Mapping[str, int],
        batch: _BatchArguments,
        allocate: Allocator,
    ) -> None:
        plan = sweep.plan
        values = {**self.arguments, **places, **sweep.numbers_of_kernel()}
        values["clhist_scratch"] = scratch
        values["clhist_global_reach"] = None if self.reach is None else self.reach.buffer
        values["clhist_tasks"] = batch.tasks
        values["clhist_chunks"] = batch.chunks
        values["clhist_each"] = batch.each
        values["clhist_table"] = batch.table
        values["clhist_whose"] = batch.first
        if sweep.instead is not None:
            sweep.instead(enqueued, plan, values, allocate)
            return
        groups = plan.work_groups if batch.groups is None else batch.groups
        size = plan.work_group_size
        enqueued.add("sweep", sweep.kernel, (groups * size, plan.passes), (size, 1), values)


@dataclass(frozen=True)
class _BatchArguments:
    """What the kernels of one sweep must know of a batch; `slots` are all copies where a table says whose they are."""

    kind: str = ""
    tasks: int = 0
    chunks: int = 0
    each: int = 0
    table: Any = None
    first: Any = None
    slots: int | None = None
    groups: int | None = None


_NO_BATCH = _BatchArguments()


@dataclass
class Enqueued:
    """The commands of one call so far: each waits for the one before where the queue does not keep the order.

    `after` has for an event that stands for several commands the one that the first of these waited for.
    """

    queue: cl.CommandQueue
    wait_for: list[cl.Event]
    events: Events = field(default_factory=dict)
    after: dict[cl.Event, cl.Event] = field(default_factory=dict)
    in_order: bool = field(init=False)

    def __post_init__(self) -> None:
        self.in_order = in_order(self.queue)

    def add(
        self,
        stage: str,
        kernel: Kernel,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        values: Mapping[str, object],
    ) -> None:
        """Enqueue `kernel` as part of `stage`."""
        self._note(stage, kernel.enqueue(self.queue, global_size, local_size, values, self.wait_for))

    def add_last(self, stage: str, event: cl.Event) -> None:
        """Note `event`, the last of several commands that waited for `wait_for`, as a further part of `stage`."""
        self.after[event] = self.events[stage][-1]
        self._note(stage, event)

    def _note(self, stage: str, event: cl.Event) -> None:
        self.wait_for = [] if self.in_order else [event]
        self.events.setdefault(stage, []).append(event)


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
    order = order_of(profile)
    columns = 1 if order == "blocked" else min(256, queue.device.max_work_group_size)
    spec = CombineSpec(operator, order, columns, 1, "", result.dest_is_partial, result.out_is_partial, whole=True)
    values: dict[str, object] = {f"clhist_place{n}": 0 for n in range(len(operator.parts))}
    values |= {"clhist_scratch": None, "clhist_bins": bins, "clhist_copies": 0}
    if more is not None:
        values |= {"clhist_scratch": more.buffer, "clhist_place0": more.offset, "clhist_copies": 1}
    enqueued = Enqueued(queue, list(wait_for))
    Combine.of(queue.context, queue.device, spec).enqueue(enqueued, result, bins, values)
    return enqueued.events["combine"][-1]


def _purpose(plan: Plan) -> str:
    copies = f"{plan.global_copies} copies" if plan.global_copies > 1 else "one copy"
    return (
        f"for {copies} of {plan.num_bins * plan.num_histograms} bins; what could "
        "help: fewer bins at a time, a smaller type, update='sort' for few elements, or clhist.free_scratch()"
    )
