"""The stages of a call as values: a `Sweep` fills copies of the bins, a `Combine` adds the copies up.

Each stage appends its launches to `Commands`. Nothing here needs a device: kernels are described, not built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from clhist._core.devices.profile import Profile
from clhist._core.kernel_code import KernelCode
from clhist._core.kernels.from_plan import combine_spec, is_wide, scratch_layout
from clhist._core.kernels.parameters import clear_parameters, combine_parameters, look_parameters, sweep_parameters
from clhist._core.kernels.render import render_combine, render_combines, render_look, render_sweep
from clhist._core.kernels.specs import CombineSpec, SampleSpec, SweepSpec
from clhist._core.model.plan import Plan
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.prepared import MEMORY, OFFSET, Argument, Block, Command, Launch, Part, Scratch, Slot, Table

_MOST_CODES = 1024  # programs in each cache


class Limits(NamedTuple):
    """Two limits of a device that its profile lacks: the largest work-group and the number of compute units."""

    work_group_size: int
    compute_units: int


@lru_cache(maxsize=_MOST_CODES)
def sweep_code(spec: SweepSpec, options: tuple[str, ...]) -> KernelCode:
    """Return the source, options and parameters of the kernel `clhist_sweep`."""
    return KernelCode(render_sweep(spec), (*options, *spec.options), "clhist_sweep", sweep_parameters(spec))


combine_source = lru_cache(maxsize=_MOST_CODES)(render_combine)
_combines_source = lru_cache(maxsize=_MOST_CODES)(render_combines)


class Commands:
    """Collects the launches of one sweep, in order, and the blocks of scratch memory that they use."""

    def __init__(self) -> None:
        self.scratch: list[Block] = []
        self.commands: list[Command] = []

        self._free: list[int] = []  # indices of blocks whose content is no longer needed

    def room(self, size: int, purpose: str) -> Scratch:
        """Allocate `size` bytes of scratch memory; `purpose` is the text of an error if the device refuses them."""
        if self._free:  # a reused block grows to the larger of both sizes
            number = self._free.pop(0)
            self.scratch[number] = Block(max(size, self.scratch[number].size), purpose)
            return Scratch(number)
        self.scratch.append(Block(size, purpose))
        return Scratch(len(self.scratch) - 1)

    def reuse_all_but(self, *live: Scratch | None) -> None:
        """Let the following commands overwrite every block except the `live` ones."""
        self._free = [n for n in range(len(self.scratch)) if Scratch(n) not in live]

    def add(
        self,
        stage: str,
        kernel: KernelCode,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        values: Mapping[str, Any],
    ) -> None:
        """Append a launch to `stage`; `values` has an entry for each parameter of the kernel, and may have others."""
        # Arguments follow the order of the kernel's parameters, whatever the order of `values`.
        arguments = tuple([values[parameter.name] for parameter in kernel.parameters])
        self.commands.append(Launch(stage, kernel, global_size, local_size, arguments))

    def part(self, plan: Plan | None, least_bytes: int = 0) -> Part:
        """Return the collected commands and scratch blocks as a `Part`."""
        return Part(plan, tuple(self.scratch), tuple(self.commands), least_bytes)


class Look(NamedTuple):
    """A kernel that samples elements before a sweep, and the work-items of its only work-group."""

    kernel: KernelCode
    group: int

    @classmethod
    def of(cls, spec: SampleSpec, options: tuple[str, ...]) -> Look:
        """Return the sampling kernel of `spec`."""
        return cls(_look_code(spec, options), spec.sweep.work_group_size)


@lru_cache(maxsize=_MOST_CODES)
def _look_code(spec: SampleSpec, options: tuple[str, ...]) -> KernelCode:
    return KernelCode(render_look(spec), options, "clhist_look", look_parameters(spec))


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """One pass over the input: its plan, its kernel, and results that later calls reuse.

    Attributes
    ----------
    plan : Plan
        The strategy with its numbers.
    spec : SweepSpec
        The values that the source was rendered from.
    kernel : KernelCode
        The kernel that reads the input.
    look : Look, optional
        Chooses the exponents of narrow sums from a sample of the values.
    again : Sweep, optional
        The fallback, which recomputes if a value does not fit the narrow sums.

    A strategy of several kernels is a subclass that overrides `kernels`, `tasks`, `clear` or `add_to`.
    """

    plan: Plan
    spec: SweepSpec
    kernel: KernelCode
    look: Look | None = None
    again: Sweep | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        """The kernels that contain the caller's C, which a compiler may reject."""
        return (self.kernel,)

    @property
    def writes_bins(self) -> bool:
        """Whether the sweep's own kernel needs the number of bins of this call, since it writes that many."""
        return self.plan.is_one_launch

    @property
    def copies(self) -> int:
        """The number of copies of each bin that the second stage combines."""
        return self.plan.global_copies

    def layout(self, copies: int) -> tuple[dict[str, int], int]:
        """Return byte offsets by name, and the size, of scratch memory for `copies` copies; see `scratch_layout`."""
        return self._cached(copies, lambda: scratch_layout(self.spec.outputs, self.plan, copies))

    @property
    def least_bytes(self) -> int:
        """Bytes of one copy of all bins, without locks: no plan needs less memory."""
        cells = zip(self.spec.outputs, self.plan.bins, strict=True)
        one = sum(bins * sum(part.cell_bytes for part in output.operator.parts) for output, bins in cells)
        return one * self.plan.num_histograms

    @cached_property
    def kernel_arguments(self) -> dict[str, object]:
        """Kernel arguments that depend on the plan only, not on the number of elements."""
        plan = self.plan
        # One lock for each bin unless the plan says otherwise: the mask then keeps all bits of the bin's number.
        mask = plan.locks - 1 if plan.locks is not None else 2**32 - 1 if plan.memory == "local" else 2**64 - 1
        numbers: dict[str, object] = {"clhist_copies": plan.copies, "clhist_lock_mask": mask}
        # Features of a kernel, such as the range of narrow sums, add arguments of their own.
        for feature in self.spec.features:
            numbers |= feature.arguments(plan, self.spec)
        for output, bins, stride, chunk in zip(
            self.spec.outputs, plan.bins, plan.copy_bins, plan.chunks(), strict=True
        ):
            numbers[f"clhist_num_bins{output.suffix}"] = bins
            numbers[f"clhist_stride{output.suffix}"] = stride
            numbers[f"clhist_bins_per_pass{output.suffix}"] = chunk
        return numbers

    def combine(
        self, k: int, results: Sequence[Result], profile: Profile, limits: Limits, batch: str, used: str = ""
    ) -> Combine:
        """Return the second stage of output `k`, rendered once for all outputs of the sweep.

        Parameters
        ----------
        k : int
            The index of the output in the sweep.
        results : sequence of Result
            The results of all outputs of the sweep, in order.
        profile, limits
            Of the device.
        batch : {"", "equal", "ragged"}
            How copies belong to the histograms of a batch.
        used : str
            C condition of a bin that has a value, for calls that ask for the largest such bin.
        """
        # The key of the cache: what the source depends on besides the sweep.
        forms = tuple((result.dest_is_partial, result.out_is_partial, result.fields) for result in results)

        def make() -> tuple[Combine, ...]:
            # The second stage turns narrow sums into the accumulators of the fallback.
            outputs = (self.again or self).spec.outputs
            specs = [
                combine_spec(
                    output.operator,
                    profile,
                    largest_group=limits.work_group_size,
                    copies=self.copies,
                    batch=batch,
                    dest_is_partial=dest_is_partial,
                    out_is_partial=out_is_partial,
                    fields=fields,
                    largest_bin_condition=used,
                    features=self.spec.features,
                )
                for output, (dest_is_partial, out_is_partial, fields) in zip(outputs, forms, strict=True)
            ]
            return tuple(self._combines(specs, limits))

        return self._cached((batch, used, forms), make)[k]

    def _combines(self, specs: Sequence[CombineSpec], limits: Limits) -> Iterator[Combine]:
        """Yield the second stage of each output.

        On CPUs they share one program, since the compilers start slowly.
        """
        # A stage that the sweep's own program contains costs no further compilation.
        stages, (source, options, *_) = self.spec.stages, self.kernel
        together: tuple[CombineSpec, ...] = ()
        if len(specs) > 1:
            together = tuple(dict.fromkeys(spec for spec in specs if spec.order == "blocked" and spec not in stages))
        for spec in specs:
            if spec == self.spec.combine:  # rendered in the sweep's own program
                yield Combine.of(spec, limits, source, options)
            elif spec in stages:  # also there, with a suffix
                yield Combine.of(spec, limits, source, options, f"_{stages.index(spec)}")
            elif len(together) > 1 and spec in together:
                yield Combine.of(spec, limits, _combines_source(together), suffix=f"_{together.index(spec)}")
            else:
                yield Combine.of(spec, limits, combine_source(spec))

    def combine_arguments(self, places: Mapping[str, int]) -> dict[str, object]:
        """Return arguments of the second stage that this strategy adds; `places` are byte offsets by name."""
        return {}

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        """Return how work-groups are assigned to the histograms of a batch; subclasses may allocate by `commands`."""
        return NO_BATCH if batch is None else tasks_of(self.plan, batch)

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        """Call `clear` for the copies that a kernel must initialise before the sweep."""
        # Only shared copies in global memory: a work-item or work-group initialises what it owns.
        if self.plan.memory == "global" and self.plan.update != "private":
            clear(places, copies)

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Append the launch of the sweep; `values` are arguments by parameter name."""
        for feature in self.spec.features:
            if size := feature.scratch_bytes(self.plan, self.spec):
                values = {**values, feature.scratch: commands.room(size, self.purpose)}
        # The second dimension of the launch is the pass: each pass fills its share of the bins.
        groups = self.plan.work_groups if tasks.groups is None else tasks.groups
        size = self.plan.work_group_size
        stage = "combine" if self.plan.is_one_launch else "sweep"  # after "combine" results are written
        commands.add(stage, self.kernel, (groups * size, self.plan.passes), (size, 1), values)

    @cached_property
    def purpose(self) -> str:
        """Text of an error if memory for the copies is refused: their purpose, and what needs less memory."""
        plan = self.plan
        copies = f"{plan.global_copies} copies" if plan.global_copies > 1 else "one copy"
        return (
            f"for {copies} of {plan.num_bins * plan.num_histograms} bins; what could "
            "help: fewer bins at a time, a smaller type, update='sort' for few elements, or clhist.free_scratch()"
        )

    def _cached(self, key: Any, make: Callable[[], Any]) -> Any:
        # Without a lock: threads that make an entry at the same time make equal ones.
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


class Combine(NamedTuple):
    """The second stage: a kernel that clears copies before the sweep, and one that combines them after it."""

    spec: CombineSpec
    clear: KernelCode
    kernel: KernelCode
    most_groups: int  # used on CPUs only, where each work-group has a block of bins

    @classmethod
    def of(
        cls, spec: CombineSpec, limits: Limits, source: str, options: tuple[str, ...] = (), suffix: str = ""
    ) -> Combine:
        """Return the second stage for `spec`; `suffix` ends the names of its kernels in a program of several stages."""
        clear = KernelCode(source, options, f"clhist_clear{suffix}", clear_parameters(spec))
        kernel = KernelCode(source, options, f"clhist_combine_copies{suffix}", combine_parameters(spec))
        return cls(spec, clear, kernel, 4 * limits.compute_units)

    def add_to(
        self, commands: Commands, result: Result, bins: int, values: Mapping[str, Any], num_bins: Any = None
    ) -> None:
        """Append the launch that combines the copies of `bins` bins into `result`.

        `values` describe the copies. `num_bins` replaces `bins` as the kernel's argument: a slot if calls share a plan.
        """
        # A CPU gives each work-group of one work-item a block of bins; a GPU a tile of columns and rows of copies.
        if self.spec.order == "blocked":
            group, groups = 1, min(bins, self.most_groups)
        else:
            columns = self.spec.columns * self.spec.bins_per_word
            group, groups = self.spec.columns * self.spec.rows, -(-bins // columns)
        commands.add(
            "combine",
            self.kernel,
            (groups * group,),
            (group,),
            {**values, "clhist_num_bins": bins if num_bins is None else num_bins, **result.arguments()},
        )


_ONE_ARRAY = [""]  # suffixes of a result without fields


@dataclass(frozen=True, slots=True)
class Result:
    """The array slots of one result: initial values (`dest`) and destination (`out`), as one array or one a field.

    Attributes
    ----------
    dest : tuple of str, or None
        Slots of the arrays that the histogram is combined with; None for the identity element.
    out : tuple of str
        Slots of the arrays that are written.
    fields : tuple of (str, str)
        Name and C type of each field that has a separate array; empty for a single array.
    dest_is_partial, out_is_partial : bool
        Whether these are accumulators, neither lifted nor finished.
    """

    dest: tuple[str, ...] | None
    out: tuple[str, ...]
    fields: tuple[tuple[str, str], ...] = ()
    dest_is_partial: bool = False
    out_is_partial: bool = False

    def arguments(self, prefix: str = "") -> dict[str, Argument]:
        """Return the arguments of `clhist._core.kernels.parameters.result_parameters` with this `prefix`."""
        arguments: dict[str, Argument] = {f"{prefix}has_dest": self.dest is not None}
        # Without `dest`, the slots of `out` fill the parameters; `has_dest` keeps kernels from reading them.
        suffixes = [f"_{name}" for name, _ in self.fields] or _ONE_ARRAY
        for suffix, dest, out in zip(suffixes, self.dest or self.out, self.out, strict=True):
            arguments[f"{prefix}dest_base{suffix}"] = Slot(dest, MEMORY)
            arguments[f"{prefix}dest_offset{suffix}"] = Slot(dest, OFFSET)
            arguments[f"{prefix}out_base{suffix}"] = Slot(out, MEMORY)
            arguments[f"{prefix}out_offset{suffix}"] = Slot(out, OFFSET)
        return arguments


class Tasks(NamedTuple):
    """The assignment of a batch's elements to work-groups, as kernel arguments.

    Attributes
    ----------
    kind : {"", "equal", "ragged"}
        No batch, a histogram for each equal share of the elements, or a table of copies by histogram.
    tasks, chunks : int
        Tasks in all, and tasks of each histogram.
    elements_each : int
        Elements of each histogram, if equal.
    table : Table, optional
        First element, end and histogram of each task.
    first : Table or Scratch, optional
        For each histogram its first task and the end of its tasks.
    slots : int, optional
        The number of copies in scratch memory; None for as many as the plan says.
    groups : int, optional
        Work-groups; None for as many as the plan says.
    """

    kind: str = ""
    tasks: int = 0
    chunks: int = 0
    elements_each: int = 0
    table: Any = None
    first: Any = None
    slots: int | None = None
    groups: int | None = None


NO_BATCH = Tasks()  # a single histogram


def tasks_of(plan: Plan, batch: Batch) -> Tasks:
    """Return how the work-groups of a plan are assigned to the histograms of its batch."""
    if not plan.has_table:  # equal shares: kernels compute their task from its number
        kind = "equal" if plan.is_batch else ""
        return Tasks(kind, plan.tasks, plan.chunks_each, plan.elements_each, groups=plan.work_groups)
    # A ragged batch has its tasks in a table, in the kernel's type of indices.
    table, first = batch.tasks(plan)
    index = np.int64 if is_wide(plan) else np.int32  # the type of indices in the kernel
    tasks = len(table)
    groups = -(-tasks // plan.teams)
    if plan.update == "private" and plan.memory == "global":  # as many copies as the plan has work-groups
        groups = min(groups, plan.work_groups)
    # Shared copies belong to a histogram, not to a task, so the second stage needs no table.
    shared = plan.memory == "global" and plan.update != "private"
    return Tasks(
        "equal" if shared else "ragged",
        tasks,
        table=Table(np.ascontiguousarray(table, index)),
        first=None if shared else Table(first),
        slots=None if shared else tasks,
        groups=groups,
    )
