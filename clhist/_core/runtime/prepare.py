"""From the sweeps of a call to its `Prepared`: scratch memory, and launches in the order clear, sweep, combine.

Nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from clhist._core.devices.profile import Profile
from clhist._core.kernels.from_plan import combine_spec
from clhist._core.kernels.maps import Argument
from clhist._core.model.narrow import CALL_WORDS
from clhist._core.model.plan import Plan
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.prepared import MEMORY, OFFSET, VALUE, ArraySlot, Part, Prepared, ResultSlots, Scratch, Slot
from clhist._core.runtime.stages import Combine, Commands, Limits, Result, Sweep, Tasks, combine_source
from clhist.operators.operator import Operator

KNOWN = "clhist_known"  # the scalar that says which bin is known to have a value
# Those that say how many elements, rows, bins, and bins of rows there are, if a call does.
SIZES = "clhist_size", "clhist_elements", "clhist_asked_bins", "clhist_row_bins"
ASKED = SIZES[2]
_SIZE_SLOTS = {name: Slot(name, VALUE) for name in SIZES}


class LargestBin(NamedTuple):
    """Asks for the largest bin that got a value, of one output with fewer than 2^32 bins.

    Attributes
    ----------
    used : str
        C condition that an accumulator `total` meets if and only if its bin got a value.
    argument : str
        The map's argument that gets it, an array of two uint32: the bin, which the call never lowers, and on a CPU, of
        `operators.count`, what is added to the second: the sum of all counts, modulo 2^32.
    known : int
        A bin that is known to have a value; only larger ones are looked at and reported.
    """

    used: str
    argument: str
    known: int = 0


class ResultForms(NamedTuple):
    """The results of a call without their arrays: a slot for each, how kernels take them, and how they are returned."""

    slots: tuple[ArraySlot, ...]
    forms: tuple[Result, ...]
    results: tuple[ResultSlots, ...]
    is_partial: bool = False


@dataclass(frozen=True)
class Preparation:
    """The parameters of a prepared call besides its sweeps.

    Attributes
    ----------
    arguments : tuple of Argument
        Of the map.
    targets : ResultForms
        What is combined with and written.
    profile : Profile
        Of the device.
    limits : Limits
        Of the device.
    batch : Batch, optional
        If there is more than one histogram of each kind.
    largest : LargestBin, optional
        Where the largest bin with a value goes.
    tells_size : bool
        Whether each call says how many elements and bins it has, at most as many as are planned for.
    """

    arguments: tuple[Argument, ...]
    targets: ResultForms
    profile: Profile
    limits: Limits
    batch: Batch | None = None
    largest: LargestBin | None = None
    tells_size: bool = False

    def prepared(self, sweeps: Sequence[Sweep], operators: str = "") -> Prepared:
        """Return the call that consists of these sweeps."""
        arrays = [a for a in self.arguments if a.is_array]
        scalars = tuple(a.name for a in self.arguments if not a.is_array)
        return Prepared(
            (*(ArraySlot(a.name, True, not a.is_const) for a in arrays), *self.targets.slots),
            (*scalars, *([] if self.largest is None else [KNOWN]), *(SIZES if self.tells_size else ())),
            tuple(self.part(sweep) for sweep in sweeps),
            self.targets.results,
            not self.targets.is_partial,
            (operators, tuple(sweep.plan for sweep in sweeps)),
        )

    def part(self, sweep: Sweep) -> Part:
        """Return what one sweep enqueues."""
        commands = Commands()
        if sweep.again is None:
            self._add(sweep, commands)
        else:
            call = commands.room(4 * CALL_WORDS, sweep.purpose)
            self._add(sweep, commands, call)
            commands.use_again(call)
            self._add(sweep.again, commands, call)
        return commands.part(sweep.plan, sweep.least_bytes)

    def _add(self, sweep: Sweep, commands: Commands, call: Scratch | None = None) -> None:
        """Add all stages of a sweep; `call` is memory for the flag by which narrow sums call what is behind them."""
        plan = sweep.plan
        tasks = sweep.tasks(self.batch, commands)
        copies = 0
        if plan.num_elements:
            copies = tasks.slots if tasks.slots is not None else plan.global_copies * plan.num_histograms
        places, size = sweep.layout(copies)
        scratch = None
        if size or (plan.writes_results and not plan.is_one_launch):
            scratch = commands.room(size, sweep.purpose) if size else None

            def clear(places: Mapping[str, int], copies: int, cells: int | None = None) -> None:
                self._clear(sweep, commands, scratch, places, copies, tasks.kind, cells)

            sweep.clear(clear, places, copies)
            values = {**self._values(sweep, scratch, places, tasks), "clhist_call": call}
            if sweep.look is not None:
                group = (sweep.look.group,)
                commands.add("sweep", sweep.look.kernel, group, group, values)
            sweep.add_to(commands, tasks, values)
        if not plan.writes_results:
            self._combine(sweep, commands, scratch, places, copies, tasks, call)

    def _combine(
        self,
        sweep: Sweep,
        commands: Commands,
        scratch: Scratch | None,
        places: Mapping[str, int],
        copies: int,
        tasks: Tasks,
        call: Scratch | None,
    ) -> None:
        plan, n = sweep.plan, 0
        results = [self.targets.forms[index] for index in plan.output_indices]
        for k, output in enumerate(sweep.spec.outputs):
            parts = len(output.operator.parts)
            values: dict[str, Any] = {f"clhist_place{p}": places[f"clhist_place{n + p}"] for p in range(parts)}
            values["clhist_scratch"] = scratch
            values["clhist_call"] = call
            values["clhist_bins"] = plan.copy_bins[k]
            values["clhist_copies"] = plan.global_copies if copies else 0
            values["clhist_first"] = tasks.first
            values["clhist_passes"] = plan.passes
            values |= sweep.combine_numbers(places)
            values |= self._largest()
            combine = sweep.combine(k, results, self.profile, self.limits, tasks.kind, self._used)
            bins = plan.bins[k] * plan.num_histograms
            combine.add_to(commands, results[k], bins, values, _SIZE_SLOTS[ASKED] if self.tells_size else bins)
            n += parts

    def _clear(
        self,
        sweep: Sweep,
        commands: Commands,
        scratch: Scratch | None,
        places: Mapping[str, int],
        copies: int,
        kind: str,
        some: int | None = None,
    ) -> None:
        group = 1 if self.profile.kind == "cpu" else min(256, self.profile.work_group_size)
        n = 0
        results = [self.targets.forms[index] for index in sweep.plan.output_indices]
        for k, (output, bins) in enumerate(zip(sweep.spec.outputs, sweep.plan.bins, strict=True)):
            kernel = sweep.combine(k, results, self.profile, self.limits, kind, self._used).clear
            cells, parts = copies * bins if some is None else some, len(output.operator.parts)
            groups = min(-(-cells // group), 16 * self.limits.compute_units)
            values: dict[str, Any] = {"clhist_scratch": scratch, "clhist_num_cells": cells}
            for p in range(parts):
                for name in ("place", "lock_place", "num_locks"):
                    values[f"clhist_{name}{p}"] = places[f"clhist_{name}{n + p}"]
            commands.add("clear", kernel, (groups * group,), (group,), values)
            n += parts

    @property
    def _used(self) -> str:
        return "" if self.largest is None else self.largest.used

    def _largest(self) -> dict[str, Any]:
        """Return the arguments for the largest bin with a value, if it is asked for."""
        if self.largest is None:
            return {}
        word = self.largest.argument
        return {
            "clhist_known": Slot(KNOWN, VALUE),
            "clhist_found_base": Slot(word, MEMORY),
            "clhist_found_offset": Slot(word, OFFSET),
        }

    def _values(self, sweep: Sweep, scratch: Scratch | None, places: Mapping[str, int], tasks: Tasks) -> dict[str, Any]:
        """Return the arguments of the sweep by the names of its kernels' parameters."""
        values: dict[str, Any] = {}
        if sweep.plan.writes_results:  # it combines its copies itself
            (index,) = sweep.plan.output_indices
            values = {**self.targets.forms[index].arguments("clhist_"), **self._largest()}
        for argument in self.arguments:
            whats = (MEMORY, OFFSET) if argument.is_array else (VALUE,)
            for parameter, what in zip(argument.kernel_parameters, whats, strict=True):
                values[parameter.name] = Slot(argument.name, what)
        return {
            **values,
            **places,
            **sweep.kernel_numbers,
            **(self._sizes(sweep) if self.tells_size else {"clhist_size": sweep.plan.num_elements}),
            "clhist_scratch": scratch,
            "clhist_tasks": tasks.tasks,
            "clhist_chunks": tasks.chunks,
            "clhist_each": tasks.each,
            "clhist_table": tasks.table,
            "clhist_whose": tasks.first,
        }

    def _sizes(self, sweep: Sweep) -> dict[str, Any]:
        """Return what kernels are given of each call's numbers."""
        if not sweep.writes_bins:
            return _SIZE_SLOTS
        return _SIZE_SLOTS | {f"clhist_num_bins{output.suffix}": _SIZE_SLOTS[ASKED] for output in sweep.spec.outputs}


MORE = "clhist_more"  # the array of `prepared_combination` that is combined with


def prepared_combination(
    profile: Profile, limits: Limits, operator: Operator, bins: int, targets: ResultForms, *, has_more: bool
) -> Prepared:
    """Return what writes a result without any sweep, combined with an array of accumulators if there are `more`."""
    (result,) = targets.forms
    spec = combine_spec(
        operator,
        profile,
        largest_group=limits.work_group_size,
        copies=1,
        dest_is_partial=result.dest_is_partial,
        out_is_partial=result.out_is_partial,
        whole=True,
    )
    values: dict[str, Any] = {f"clhist_place{n}": 0 for n in range(len(operator.parts))}
    values |= {"clhist_scratch": None, "clhist_bins": bins, "clhist_copies": 0}
    if has_more:
        more = Slot(MORE, MEMORY), Slot(MORE, OFFSET)
        values |= {"clhist_scratch": more[0], "clhist_place0": more[1], "clhist_copies": 1}
    commands = Commands()
    Combine.of(spec, limits, combine_source(spec)).add_to(commands, result, bins, values)
    arrays = (ArraySlot(MORE, True, False),) if has_more else ()
    plans: tuple[Plan, ...] = ()
    call = (str(operator), plans)
    return Prepared((*arrays, *targets.slots), (), (commands.part(None),), targets.results, False, call)
