"""Turns the sweeps of a call into a `Prepared`: scratch blocks, and launches in the order clear, sweep, combine.

Nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clhist._core.devices.profile import Profile
from clhist._core.kernels.from_plan import combine_spec
from clhist._core.kernels.maps import Argument
from clhist._core.model.plan import Plan
from clhist._core.opencl.arrays import Array, overlap
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.prepared import MEMORY, OFFSET, VALUE, ArraySlot, Part, Prepared, ResultSlots, Scratch, Slot
from clhist._core.runtime.result_arrays import ResultArrays
from clhist._core.runtime.stages import Combine, Commands, Limits, Result, Sweep, Tasks, combine_source
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator

LOWER_BOUND = "clhist_known"  # scalar: a bin with a value; only larger bins are reported
# Scalars of calls that share a plan: elements, elements of row kernels, bins, and bins of row kernels.
SIZES = "clhist_size", "clhist_elements", "clhist_asked_bins", "clhist_row_bins"
NUM_BINS = SIZES[2]
_SIZE_SLOTS = {name: Slot(name, VALUE) for name in SIZES}


class LargestBin(NamedTuple):
    """A request for the largest bin that has a value, of one output with fewer than 2^32 bins.

    Attributes
    ----------
    used : str
        C condition that an accumulator `total` meets if and only if its bin has a value.
    argument : str
        The map's argument that receives the result, an array of two uint32. The first is the bin, which the call never
        lowers. On a CPU, for `operators.count`, the sum of all counts modulo 2^32 is added to the second.
    lower_bound : int
        A bin that has a value, or 0. Only larger bins are tested and reported.
    """

    used: str
    argument: str
    lower_bound: int = 0


class ResultForms(NamedTuple):
    """The results of a call without arrays.

    Attributes
    ----------
    slots : tuple of ArraySlot
        The distinct arrays.
    forms : tuple of Result
        How kernels take each output.
    results : tuple of ResultSlots
        How each output is returned.
    is_partial : bool
        Whether an output receives accumulators rather than finished results.
    """

    slots: tuple[ArraySlot, ...]
    forms: tuple[Result, ...]
    results: tuple[ResultSlots, ...]
    is_partial: bool = False


class Preparation(NamedTuple):
    """Builds a `Prepared` from sweeps; the attributes are what the sweeps of a call have in common.

    Attributes
    ----------
    arguments : tuple of Argument
        The arguments of the map.
    targets : ResultForms
        The arrays that are combined with and written.
    profile : Profile
        Of the device.
    limits : Limits
        Of the device.
    batch : Batch, optional
        If there is more than one histogram of each kind.
    largest : LargestBin, optional
        Where the largest bin with a value goes.
    tells_size : bool
        Whether kernels get the numbers of elements and bins of each call, at most those of the plan.
        Note [Close sizes share a plan], docs/decisions/0015.
    """

    arguments: tuple[Argument, ...]
    targets: ResultForms
    profile: Profile
    limits: Limits
    batch: Batch | None = None
    largest: LargestBin | None = None
    tells_size: bool = False

    def prepared(self, sweeps: Sequence[Sweep], operators: str = "") -> Prepared:
        """Return the prepared call of these sweeps; `operators` names them in errors."""
        # The order of slots and scalars is that in which `Engine.run` passes them.
        arrays = [a for a in self.arguments if a.is_array]
        scalars = tuple(a.name for a in self.arguments if not a.is_array)
        return Prepared(
            (*(ArraySlot(a.name, True, not a.is_const) for a in arrays), *self.targets.slots),
            (*scalars, *([] if self.largest is None else [LOWER_BOUND]), *(SIZES if self.tells_size else ())),
            tuple(self.part(sweep) for sweep in sweeps),
            self.targets.results,
            not self.targets.is_partial,
            (operators, tuple(sweep.plan for sweep in sweeps)),
        )

    def part(self, sweep: Sweep) -> Part:
        """Return the commands of one sweep, followed by those of its fallback if it has one."""
        commands = Commands()
        if sweep.again is None:
            self._add(sweep, commands)
        else:
            from clhist._core.model.narrow import CALL_WORDS

            # The flag lives through both; all other scratch memory is shared, since the fallback runs afterwards.
            call = commands.room(4 * CALL_WORDS, sweep.purpose)
            self._add(sweep, commands, call)
            commands.reuse_all_but(call)
            self._add(sweep.again, commands, call)
        return commands.part(sweep.plan, sweep.least_bytes)

    def _add(self, sweep: Sweep, commands: Commands, call: Scratch | None = None) -> None:
        """Append clear, sweep and combine of one sweep; `call` is the flag that makes the fallback compute."""
        plan = sweep.plan
        tasks = sweep.tasks(self.batch, commands)
        # Without elements nothing is swept, and no copy exists.
        copies = 0
        if plan.num_elements:
            # A table of tasks has a copy for each task; else each histogram has the copies of the plan.
            copies = tasks.slots if tasks.slots is not None else plan.global_copies * plan.num_histograms
        places, size = sweep.layout(copies)
        scratch = None
        if size or (plan.writes_results and not plan.is_one_launch):
            scratch = commands.room(size, sweep.purpose) if size else None

            # Strategies choose the cells to clear; the launches are the same for all.
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
        """Append the second stage of each output of a sweep."""
        # The parts of all outputs are numbered through: `n` is the first of the present output.
        plan, n = sweep.plan, 0
        results = [self.targets.forms[index] for index in plan.output_indices]
        for k, output in enumerate(sweep.spec.outputs):
            parts = len(output.operator.parts)
            values: dict[str, Any] = {f"clhist_place{p}": places[f"clhist_place{n + p}"] for p in range(parts)}
            values["clhist_scratch"] = scratch
            values["clhist_call"] = call
            values["clhist_bins"] = plan.copy_bins[k]
            # Without elements there are no copies: the second stage then only finishes `dest`.
            values["clhist_copies"] = plan.global_copies if copies else 0
            values["clhist_first"] = tasks.first
            values["clhist_passes"] = plan.passes
            values |= sweep.combine_arguments(places)
            values |= self._largest()
            combine = sweep.combine(k, results, self.profile, self.limits, tasks.kind, self._used)
            bins = plan.bins[k] * plan.num_histograms
            combine.add_to(commands, results[k], bins, values, _SIZE_SLOTS[NUM_BINS] if self.tells_size else bins)
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
        """Append launches that set `some` cells, or all cells of `copies` copies, to the identity element."""
        # On CPUs a work-group is one work-item.
        group = 1 if self.profile.kind == "cpu" else min(256, self.profile.work_group_size)
        n = 0
        results = [self.targets.forms[index] for index in sweep.plan.output_indices]
        for k, (output, bins) in enumerate(zip(sweep.spec.outputs, sweep.plan.bins, strict=True)):
            # The kernel that clears is in the program of the second stage, which knows the cells and their identity
            # elements.
            kernel = sweep.combine(k, results, self.profile, self.limits, kind, self._used).clear
            cells, parts = copies * bins if some is None else some, len(output.operator.parts)
            # At most 16 work-groups for each compute unit; their work-items take several cells if there are more.
            groups = min(-(-cells // group), 16 * self.limits.compute_units)
            values: dict[str, Any] = {"clhist_scratch": scratch, "clhist_num_cells": cells}
            for p in range(parts):
                for name in ("place", "lock_place", "num_locks"):
                    values[f"clhist_{name}{p}"] = places[f"clhist_{name}{n + p}"]
            commands.add("clear", kernel, (groups * group,), (group,), values)
            n += parts

    @property
    def _used(self) -> str:
        """The condition of `LargestBin`, empty without one."""
        return "" if self.largest is None else self.largest.used

    def _largest(self) -> dict[str, Any]:
        """Return the arguments that report the largest bin with a value, if it is requested."""
        if self.largest is None:
            return {}
        word = self.largest.argument
        return {
            "clhist_known": Slot(LOWER_BOUND, VALUE),
            "clhist_report_base": Slot(word, MEMORY),
            "clhist_report_offset": Slot(word, OFFSET),
        }

    def _values(self, sweep: Sweep, scratch: Scratch | None, places: Mapping[str, int], tasks: Tasks) -> dict[str, Any]:
        """Return the arguments of the sweep's kernels by parameter name."""
        values: dict[str, Any] = {}
        if sweep.plan.writes_results:  # the sweep combines its copies itself: no second stage gets these
            (index,) = sweep.plan.output_indices
            values = {**self.targets.forms[index].arguments("clhist_"), **self._largest()}
        # An array takes two parameters: its memory, and the byte offset of its first element.
        for argument in self.arguments:
            whats = (MEMORY, OFFSET) if argument.is_array else (VALUE,)
            for parameter, what in zip(argument.kernel_parameters, whats, strict=True):
                values[parameter.name] = Slot(argument.name, what)
        return {
            **values,
            **places,
            **sweep.kernel_arguments,
            **(self._sizes(sweep) if self.tells_size else {"clhist_size": sweep.plan.num_elements}),
            "clhist_scratch": scratch,
            "clhist_tasks": tasks.tasks,
            "clhist_chunks": tasks.chunks,
            "clhist_histogram_size": tasks.elements_each,
            "clhist_table": tasks.table,
            "clhist_task_bounds": tasks.first,
        }

    def _sizes(self, sweep: Sweep) -> dict[str, Any]:
        """Return slots for the sizes that change from call to call."""
        if not sweep.writes_bins:  # then the plan's larger number of bins does no harm
            return _SIZE_SLOTS
        return _SIZE_SLOTS | {f"clhist_num_bins{output.suffix}": _SIZE_SLOTS[NUM_BINS] for output in sweep.spec.outputs}


MORE = "clhist_more"  # slot of the accumulators that `prepared_combination` adds to `dest`


def prepared_combination(
    profile: Profile, limits: Limits, operator: Operator, bins: int, targets: ResultForms, *, has_more: bool
) -> Prepared:
    """Return a prepared call without a sweep: `out` = `dest` combined with an array of accumulators, if `has_more`."""
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
    if has_more:  # the array takes the place of a single copy
        more = Slot(MORE, MEMORY), Slot(MORE, OFFSET)
        values |= {"clhist_scratch": more[0], "clhist_place0": more[1], "clhist_copies": 1}
    commands = Commands()
    Combine.of(spec, limits, combine_source(spec)).add_to(commands, result, bins, values)
    arrays = (ArraySlot(MORE, True, False),) if has_more else ()
    plans: tuple[Plan, ...] = ()
    call = (str(operator), plans)
    return Prepared((*arrays, *targets.slots), (), (commands.part(None),), targets.results, False, call)


Numbers = tuple[tuple[tuple[int, ...] | None, tuple[int, ...], bool, tuple[str, ...], bool, bool], ...]


def numbered(targets: Sequence[ResultArrays]) -> tuple[Numbers, list[Array | None]]:
    """Return (dest, out, ...) of each output with indices in place of arrays, and the list of arrays.

    An array that occurs twice has one index. None in the list stands for a new array.
    """
    arrays: list[Array | None] = []
    numbers = []
    for target in targets:
        dest = None if target.dest is None else tuple([index_in(array, arrays) for array in target.dest])
        # A result without an array in `out` is new, one for each field.
        outs = target.out or (None,) * (len(target.fields) or 1)
        out = tuple([index_in(array, arrays) for array in outs])
        numbers.append((dest, out, target.out is None, target.fields, target.dest_is_partial, target.out_is_partial))
    return tuple(numbers), arrays


def index_in(array: Array | None, arrays: list[Any]) -> int:
    """Return the index of an array in `arrays`, and append it if it is missing; each None is appended."""
    # By identity: equal arrays at different addresses are different slots.
    if array is not None:
        for n, other in enumerate(arrays):
            if other is array:
                return n
    arrays.append(array)
    return len(arrays) - 1


def forms_of(targets: Sequence[ResultArrays], first: int) -> ResultForms:
    """Return `dest` and `out` of all outputs as slots; the call has `first` arrays of the map before them."""
    slots: list[ArraySlot] = []
    forms, results = [], []

    def slot(n: int, name: str, *, read: bool, new: Any = None) -> str:
        if n < len(slots):  # an array that occurred before: it may be both read and written
            before = slots[n]
            slots[n] = ArraySlot(before.name, before.is_read or read, before.is_written or not read)
        else:
            slots.append(
                ArraySlot(f"clhist_{name}", read, not read, new)
            )  # a prefix that arguments of maps must not have
        return slots[n].name

    numbers, _ = numbered(targets)
    # Slots are named by the number of the output: two outputs may have fields with the same name.
    for k, (target, (dests, outs, *_)) in enumerate(zip(targets, numbers, strict=True)):
        suffixes = [f"{k}.{field}" for field in target.fields] or [str(k)]
        dest = None
        if dests is not None:
            dest = tuple(slot(n, f"dest{suffix}", read=True) for n, suffix in zip(dests, suffixes, strict=True))
        out = tuple(
            slot(n, f"out{suffix}", read=False, new=(target.shape, dtype) if target.out is None else None)
            for n, suffix, dtype in zip(outs, suffixes, target.dtypes(partial=target.out_is_partial), strict=True)
        )
        fields = tuple((name, c_name(target.operator.dtype[name])) for name in target.fields)
        forms.append(Result(dest, out, fields, target.dest_is_partial, target.out_is_partial))
        results.append(ResultSlots(tuple(first + n for n in outs), bool(fields), target.name, target.operator))
    is_partial = any(target.out_is_partial for target in targets)
    return ResultForms(tuple(slots), tuple(forms), tuple(results), is_partial)


def check_disjoint(targets: Sequence[ResultArrays]) -> None:
    """Raise ValueError if the results of two outputs share memory."""
    # Each output writes its bins without regard to the others, so any overlap loses results.
    seen: list[tuple[str, Array]] = []
    for target in targets:
        outs = [(f"out{target.name}", array) for array in target.out or ()]
        for name, array in outs:
            for other, before in seen:
                if overlap(array, before):
                    raise ValueError(f"{name}: expected an array of its own, got one that overlaps {other}")
        seen += outs
