"""The built stages of a call, and the commands that it has enqueued so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist.codegen.from_plan import combine_spec
from clhist.codegen.layout import division, is_wide, scratch_layout
from clhist.codegen.parameters import clear_parameters, combine_parameters, sweep_parameters
from clhist.codegen.render import render_combine, render_sweep
from clhist.codegen.specs import CombineSpec, SweepSpec
from clhist.engine.batch import Batch
from clhist.engine.replay import Recording
from clhist.hardware.profile import Profile
from clhist.opencl.arrays import Operand, read_only_buffer
from clhist.opencl.memory import Allocator, in_order
from clhist.opencl.program import Kernel, build, kept_by_context
from clhist.planning.batch import BatchedPlan, FlattenedPlan
from clhist.planning.packed import WORD_BITS
from clhist.planning.plan import Plan


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


@kept_by_context
def appended_kernels(context: cl.Context, sweep: Kernel, spec: CombineSpec) -> tuple[Kernel, Kernel]:
    """Return the same, built with `sweep`."""
    clear = Kernel(sweep.program, "clhist_clear", clear_parameters(spec))
    return clear, Kernel(sweep.program, "clhist_combine_copies", combine_parameters(spec))


@dataclass(frozen=True, eq=False, kw_only=True)
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

    Strategies that are more than one kernel over the input have a class of their own, which overrides `tasks`, `clear`
    or `enqueue`.
    """

    plan: Plan
    spec: SweepSpec
    kernel: Kernel
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def copies(self) -> int:
        """Copies of each bin that are combined."""
        return self.plan.global_copies

    def layout(self, copies: int) -> tuple[dict[str, int], int]:
        """Return the scratch layout of so many copies; see `scratch_layout`."""
        return self._keep(copies, lambda: scratch_layout(self.spec.outputs, self.plan, copies))

    @property
    def least_bytes(self) -> int:
        """Bytes of one copy of all bins, without locks: the least with which anything can take its place."""
        cells = zip(self.spec.outputs, self.plan.bins, strict=True)
        one = sum(bins * sum(part.cell_bytes for part in output.operator.parts) for output, bins in cells)
        return one * self.plan.num_histograms

    def kernel_numbers(self) -> dict[str, object]:
        """Return the arguments of the kernel that depend on the plan alone."""

        def make() -> dict[str, object]:
            plan = self.plan
            mask = plan.locks - 1 if plan.locks is not None else 2**32 - 1 if plan.memory == "local" else 2**64 - 1
            found: dict[str, object] = {"clhist_size": plan.num_elements, "clhist_copies": plan.copies}
            found["clhist_lock_mask"] = mask
            if plan.is_dealt:
                found["clhist_passes"] = plan.passes
                found["clhist_magic"], found["clhist_shift"] = division(plan.passes)
            for output, bins, stride, each, chunk in zip(
                self.spec.outputs, plan.bins, plan.copy_bins, plan.bins_each, plan.chunks(), strict=True
            ):
                found[f"clhist_num_bins{output.suffix}"] = bins
                found[f"clhist_stride{output.suffix}"] = stride
                found[f"clhist_bins_per_pass{output.suffix}"] = chunk
                found[f"clhist_bins_each{output.suffix}"] = each
            return found

        return self._keep("numbers", make)

    def combine(
        self, k: int, result: Result, profile: Profile, device: cl.Device, batch: str, used: str = ""
    ) -> Combine:
        """Return the second stage of the output number `k` of the sweep."""
        operator = self.spec.outputs[k].operator
        form = (result.dest_is_partial, result.out_is_partial, result.fields)

        def make() -> Combine:
            spec = combine_spec(
                operator,
                profile,
                largest_group=device.max_work_group_size,
                copies=self.copies,
                batch=batch,
                dest_is_partial=result.dest_is_partial,
                out_is_partial=result.out_is_partial,
                fields=result.fields,
                used=used,
                is_dealt=self.plan.is_dealt,
                counter_bits=self.spec.counter_bits,
            )
            if spec == self.spec.combine:
                return Combine(spec, *appended_kernels(self.context, self.kernel, spec), 4 * device.max_compute_units)
            return Combine.of(self.context, device, spec)

        return self._keep((k, batch, used, *form), make)

    def combine_numbers(self, places: Mapping[str, int]) -> dict[str, object]:
        """Return what else the second stage is given."""
        return {}

    def tasks(self, batch: Batch | None, queue: cl.CommandQueue, allocate: Allocator) -> Tasks:
        """Return what the kernels must know of a batch; a table of tasks is uploaded."""
        return NO_BATCH if batch is None else tasks_of(self.plan, batch, queue)

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        """Have `clear` initialise the copies that the kernels expect to be: those that work-items share."""
        if self.plan.memory == "global" and self.plan.update != "private":
            clear(places, copies)

    def enqueue(self, enqueued: Enqueued, tasks: Tasks, values: Mapping[str, object], allocate: Allocator) -> None:
        """Enqueue the stage "sweep"; `values` are the arguments by the names of the kernels' parameters."""
        groups = self.plan.work_groups if tasks.groups is None else tasks.groups
        size = self.plan.work_group_size
        stage = "combine" if self.plan.is_one_launch else "sweep"  # after "combine" results are written
        enqueued.add(stage, self.kernel, (groups * size, self.plan.passes), (size, 1), values)

    @cached_property
    def purpose(self) -> str:
        """What memory of its copies is for, and what needs less, for errors."""
        plan = self.plan
        copies = f"{plan.global_copies} copies" if plan.global_copies > 1 else "one copy"
        return (
            f"for {copies} of {plan.num_bins * plan.num_histograms} bins; what could "
            "help: fewer bins at a time, a smaller type, update='sort' for few elements, or clhist.free_scratch()"
        )

    @property
    def context(self) -> cl.Context:
        """Where the kernel was built."""
        return self.kernel.context

    def _keep(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


class Combine(NamedTuple):
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
            columns = self.spec.columns * (WORD_BITS // (self.spec.counter_bits or WORD_BITS))
            group, groups = self.spec.columns * self.spec.rows, -(-bins // columns)
        given = {**values, "clhist_num_bins": bins, **result.arguments()}
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

    def arguments(self, prefix: str = "") -> dict[str, object]:
        """Return what `clhist.codegen.parameters.result_parameters` with this `prefix` are given."""
        given: dict[str, object] = {f"{prefix}has_dest": self.dest is not None}
        suffixes = [f"_{name}" for name, _ in self.fields] or _ONE_ARRAY
        for suffix, dest, out in zip(suffixes, self.dest or self.out, self.out, strict=True):
            given[f"{prefix}dest_base{suffix}"], given[f"{prefix}dest_offset{suffix}"] = dest.buffer, dest.offset
            given[f"{prefix}out_base{suffix}"], given[f"{prefix}out_offset{suffix}"] = out.buffer, out.offset
        return given


Events = dict[str, list[cl.Event]]


@dataclass
class Enqueued:
    """The commands of one call so far: each waits for the one before where the queue does not keep the order.

    `after` has for an event that stands for several commands the one that the first of these waited for; `recording`
    notes what could be enqueued again.
    """

    queue: cl.CommandQueue
    wait_for: list[cl.Event]
    events: Events = field(default_factory=dict)
    after: dict[cl.Event, cl.Event] = field(default_factory=dict)
    recording: Recording | None = None
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
        arguments = kernel.ordered(values)
        if self.recording is not None:
            self.recording.note(kernel, global_size, local_size, arguments)
        self._note(stage, kernel.enqueue(self.queue, global_size, local_size, arguments, self.wait_for))

    def add_last(self, stage: str, event: cl.Event) -> None:
        """Note `event`, the last of several commands that waited for `wait_for`, as a further part of `stage`."""
        if self.recording is not None:
            self.recording.give_up()
        self.after[event] = self.events[stage][-1]
        self._note(stage, event)

    def _note(self, stage: str, event: cl.Event) -> None:
        self.wait_for = [] if self.in_order else [event]
        self.events.setdefault(stage, []).append(event)


class Tasks(NamedTuple):
    """What the kernels of one sweep must know of a batch; `slots` are all copies where a table says whose they are."""

    kind: str = ""
    tasks: int = 0
    chunks: int = 0
    each: int = 0
    table: Any = None
    first: Any = None
    slots: int | None = None
    groups: int | None = None


NO_BATCH = Tasks()


def tasks_of(plan: Plan, batch: Batch, queue: cl.CommandQueue) -> Tasks:
    """Return what the kernels of a plan must know of its batch; a table of tasks is uploaded."""
    if not isinstance(plan, BatchedPlan):
        each = plan.num_elements // (plan.flattened if isinstance(plan, FlattenedPlan) else plan.num_histograms)
        return Tasks("equal" if plan.is_batch else "", plan.num_histograms, 1, each, groups=plan.work_groups)
    if plan.equal_shares or not plan.num_elements:
        each = plan.num_elements // plan.num_histograms
        return Tasks("equal", plan.tasks, plan.groups_per_histogram, each, groups=plan.work_groups)
    table, first = batch.tasks(plan)
    index = np.int64 if is_wide(plan) else np.int32
    tasks = len(table)
    groups = -(-tasks // plan.teams)
    if plan.update == "private" and plan.memory == "global":
        groups = min(groups, plan.work_groups)
    shared = plan.memory == "global" and plan.update != "private"
    return Tasks(
        "equal" if shared else "ragged",
        tasks,
        table=read_only_buffer(queue.context, np.ascontiguousarray(table, index)),
        first=None if shared else read_only_buffer(queue.context, first),
        slots=None if shared else tasks,
        groups=groups,
    )
