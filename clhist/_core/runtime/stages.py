"""The stages of a call as values: sweeps over the input and what combines their copies, and the commands they add.

Nothing here needs a device: kernels are described, not built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from clhist._core.devices.profile import Profile
from clhist._core.kernels.from_plan import combine_spec, may_share
from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.kernels.layout import is_wide, scratch_layout
from clhist._core.kernels.parameters import clear_parameters, combine_parameters, look_parameters, sweep_parameters
from clhist._core.kernels.render import render_combine, render_combines, render_look, render_sweep
from clhist._core.kernels.specs import CombineSpec, SampleSpec, SweepSpec
from clhist._core.model.plan import Plan
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.prepared import MEMORY, OFFSET, Argument, Block, Command, Launch, Part, Scratch, Slot, Table

_MOST_CODES = 1024


class Limits(NamedTuple):
    """Limits of a device for launches besides its profile: the largest work-group, and compute units."""

    work_group_size: int
    compute_units: int


@lru_cache(maxsize=_MOST_CODES)
def sweep_code(spec: SweepSpec, options: tuple[str, ...]) -> KernelCode:
    """Return the sweep of `spec`."""
    return KernelCode(render_sweep(spec), (*options, *spec.options), "clhist_sweep", sweep_parameters(spec))


combine_source = lru_cache(maxsize=_MOST_CODES)(render_combine)
_combines_source = lru_cache(maxsize=_MOST_CODES)(render_combines)


class Commands:
    """The commands of one sweep so far, and the scratch memory that they need."""

    def __init__(self) -> None:
        self.scratch: list[Block] = []
        self.commands: list[Command] = []

        self._free: list[int] = []  # numbers of blocks that may be used again

    def room(self, size: int, purpose: str) -> Scratch:
        """Return scratch memory of so many bytes."""
        if self._free:
            number = self._free.pop(0)
            self.scratch[number] = Block(max(size, self.scratch[number].size), purpose)
            return Scratch(number)
        self.scratch.append(Block(size, purpose))
        return Scratch(len(self.scratch) - 1)

    def use_again(self, *kept: Scratch | None) -> None:
        """Let what follows use all scratch memory but those `kept`: what is in it is needed no more."""
        self._free = [n for n in range(len(self.scratch)) if Scratch(n) not in kept]

    def add(
        self,
        stage: str,
        kernel: KernelCode,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        values: Mapping[str, Any],
    ) -> None:
        """Add a launch as part of `stage`; `values` are by the names of the parameters, among others."""
        arguments = tuple([values[parameter.name] for parameter in kernel.parameters])
        self.commands.append(Launch(stage, kernel, global_size, local_size, arguments))

    def part(self, plan: Plan | None, least_bytes: int = 0) -> Part:
        """Return all as one part."""
        return Part(plan, tuple(self.scratch), tuple(self.commands), least_bytes)


class Look(NamedTuple):
    """A kernel that looks at some elements before a sweep, and the work-items of its one work-group."""

    kernel: KernelCode
    group: int

    @classmethod
    def of(cls, spec: SampleSpec, options: tuple[str, ...]) -> Look:
        """Return that of `spec`."""
        return cls(_look_code(spec, options), spec.sweep.work_group_size)


@lru_cache(maxsize=_MOST_CODES)
def _look_code(spec: SampleSpec, options: tuple[str, ...]) -> KernelCode:
    return KernelCode(render_look(spec), options, "clhist_look", look_parameters(spec))


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """One sweep over the input, planned, and what calls need again of it.

    Attributes
    ----------
    plan : Plan
        How.
    spec : SweepSpec
        What its source was made of.
    kernel : KernelCode
        Its kernel.
    look : Look, optional
        What looks at some values before it, where it tries narrow sums.
    again : Sweep, optional
        What computes again, if these do not fit.

    Strategies that are more than one kernel over the input have a class of their own, which overrides `kernels`,
    `tasks`, `clear` or `add_to`.
    """

    plan: Plan
    spec: SweepSpec
    kernel: KernelCode
    look: Look | None = None
    again: Sweep | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        """The kernels that the caller's C is in, which a compiler may refuse."""
        return (self.kernel,)

    @property
    def writes_bins(self) -> bool:
        """Whether its own kernel writes as many bins as the second stage reads, or results have."""
        return self.plan.is_one_launch

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

    @cached_property
    def kernel_numbers(self) -> dict[str, object]:
        """The arguments of the kernel that depend on the plan alone, and not on the number of elements."""
        plan = self.plan
        mask = plan.locks - 1 if plan.locks is not None else 2**32 - 1 if plan.memory == "local" else 2**64 - 1
        found: dict[str, object] = {"clhist_copies": plan.copies, "clhist_lock_mask": mask}
        for feature in self.spec.features:
            found |= feature.arguments(plan, self.spec)
        for output, bins, stride, chunk in zip(
            self.spec.outputs, plan.bins, plan.copy_bins, plan.chunks(), strict=True
        ):
            found[f"clhist_num_bins{output.suffix}"] = bins
            found[f"clhist_stride{output.suffix}"] = stride
            found[f"clhist_bins_per_pass{output.suffix}"] = chunk
        return found

    def combine(
        self, k: int, results: Sequence[Result], profile: Profile, limits: Limits, batch: str, used: str = ""
    ) -> Combine:
        """Return the second stage of the output number `k` of the sweep; `results` are those of all of its outputs."""
        forms = tuple((result.dest_is_partial, result.out_is_partial, result.fields) for result in results)

        def make() -> tuple[Combine, ...]:
            outputs = (self.again or self).spec.outputs  # narrow sums become those of all values
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

        return self._keep((batch, used, forms), make)[k]

    def _combines(self, specs: Sequence[CombineSpec], limits: Limits) -> Iterator[Combine]:
        """Yield the second stages of all outputs: of a CPU, whose compilers begin slowly, in one program."""
        stages, (source, options, *_) = self.spec.stages, self.kernel
        together: tuple[CombineSpec, ...] = ()
        if len(specs) > 1:
            together = tuple(dict.fromkeys(spec for spec in specs if may_share(spec) and spec not in stages))
        for spec in specs:
            if spec == self.spec.combine:
                yield Combine.of(spec, limits, source, options)
            elif spec in stages:
                yield Combine.of(spec, limits, source, options, f"_{stages.index(spec)}")
            elif len(together) > 1 and spec in together:
                yield Combine.of(spec, limits, _combines_source(together), suffix=f"_{together.index(spec)}")
            else:
                yield Combine.of(spec, limits, combine_source(spec))

    def combine_numbers(self, places: Mapping[str, int]) -> dict[str, object]:
        """Return what else the second stage is given."""
        return {}

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        """Return what the kernels must know of a batch."""
        return NO_BATCH if batch is None else tasks_of(self.plan, batch)

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        """Have `clear` initialise the copies that the kernels expect to be: those that work-items share."""
        if self.plan.memory == "global" and self.plan.update != "private":
            clear(places, copies)

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Add the stage "sweep"; `values` are the arguments by the names of the kernels' parameters."""
        for feature in self.spec.features:
            if size := feature.scratch_bytes(self.plan, self.spec):
                values = {**values, feature.scratch: commands.room(size, self.purpose)}
        groups = self.plan.work_groups if tasks.groups is None else tasks.groups
        size = self.plan.work_group_size
        stage = "combine" if self.plan.is_one_launch else "sweep"  # after "combine" results are written
        commands.add(stage, self.kernel, (groups * size, self.plan.passes), (size, 1), values)

    @cached_property
    def purpose(self) -> str:
        """The purpose of the copies' memory, and remedies that need less, for errors."""
        plan = self.plan
        copies = f"{plan.global_copies} copies" if plan.global_copies > 1 else "one copy"
        return (
            f"for {copies} of {plan.num_bins * plan.num_histograms} bins; what could "
            "help: fewer bins at a time, a smaller type, update='sort' for few elements, or clhist.free_scratch()"
        )

    def _keep(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


class Combine(NamedTuple):
    """The second stage: the kernels that clear and combine, and how many work-groups go over the bins."""

    spec: CombineSpec
    clear: KernelCode
    kernel: KernelCode
    most_groups: int  # of a CPU, where each has a block of bins

    @classmethod
    def of(
        cls, spec: CombineSpec, limits: Limits, source: str, options: tuple[str, ...] = (), suffix: str = ""
    ) -> Combine:
        """Return it for `spec`, in a program whose kernels for it have names with this suffix."""
        clear = KernelCode(source, options, f"clhist_clear{suffix}", clear_parameters(spec))
        kernel = KernelCode(source, options, f"clhist_combine_copies{suffix}", combine_parameters(spec))
        return cls(spec, clear, kernel, 4 * limits.compute_units)

    def add_to(
        self, commands: Commands, result: Result, bins: int, values: Mapping[str, Any], asked: Any = None
    ) -> None:
        """Add it for so many bins of all histograms; `values` are of the copies, and kernels get the number `asked`."""
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
            {**values, "clhist_num_bins": bins if asked is None else asked, **result.arguments()},
        )


_ONE_ARRAY = [""]


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a call: what is combined with (or None), and what is written, each as one array or one a field.

    Attributes
    ----------
    dest : tuple of str, or None
        The slots of what the histogram is combined with.
    out : tuple of str
        The slots of where it goes.
    fields : tuple of (str, str)
        Name and C type of each field that has an array of its own; none for one array.
    dest_is_partial, out_is_partial : bool
        Whether these are accumulators, neither lifted nor finished.
    """

    dest: tuple[str, ...] | None
    out: tuple[str, ...]
    fields: tuple[tuple[str, str], ...] = ()
    dest_is_partial: bool = False
    out_is_partial: bool = False

    def arguments(self, prefix: str = "") -> dict[str, Argument]:
        """Return what `clhist._core.kernels.parameters.result_parameters` with this `prefix` are given."""
        given: dict[str, Argument] = {f"{prefix}has_dest": self.dest is not None}
        suffixes = [f"_{name}" for name, _ in self.fields] or _ONE_ARRAY
        for suffix, dest, out in zip(suffixes, self.dest or self.out, self.out, strict=True):
            given[f"{prefix}dest_base{suffix}"] = Slot(dest, MEMORY)
            given[f"{prefix}dest_offset{suffix}"] = Slot(dest, OFFSET)
            given[f"{prefix}out_base{suffix}"] = Slot(out, MEMORY)
            given[f"{prefix}out_offset{suffix}"] = Slot(out, OFFSET)
        return given


class Tasks(NamedTuple):
    """A batch as the kernels of one sweep see it; `slots` are all copies where a table says whose they are."""

    kind: str = ""
    tasks: int = 0
    chunks: int = 0
    each: int = 0
    table: Any = None
    first: Any = None
    slots: int | None = None
    groups: int | None = None


NO_BATCH = Tasks()


def tasks_of(plan: Plan, batch: Batch) -> Tasks:
    """Return what the kernels of a plan must know of its batch."""
    if not plan.has_table:
        kind = "equal" if plan.is_batch else ""
        return Tasks(kind, plan.tasks, plan.chunks_each, plan.elements_each, groups=plan.work_groups)
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
        table=Table(np.ascontiguousarray(table, index)),
        first=None if shared else Table(first),
        slots=None if shared else tasks,
        groups=groups,
    )
