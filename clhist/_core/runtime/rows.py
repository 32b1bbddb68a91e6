"""Rows of values, gathered by bin: the kernels and launches; see `clhist._core.model.rows`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, cast

from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.kernels.render import render_rows
from clhist._core.kernels.rows import RowsSpec, rows_parameters
from clhist._core.model.plan import Plan
from clhist._core.model.rows import CURSORS, MOST_JOINED, RowsPlan, most_alike
from clhist._core.model.split import Split
from clhist._core.runtime.partition import Grouping, grouping
from clhist._core.runtime.stages import Commands, Sweep, Tasks


@dataclass(frozen=True, eq=False, kw_only=True)
class RowsSweep(Sweep):
    """Kernels that write the results themselves, without a copy of the bins on a GPU.

    Attributes
    ----------
    rows : RowsSpec
        What their source was made of.
    codes : mapping of str to KernelCode
        The kernels, by name.
    grouping : Grouping, optional
        Those that group the numbers of many rows by ranges of bins.
    """

    plan: RowsPlan
    rows: RowsSpec
    codes: Mapping[str, KernelCode]
    grouping: Grouping | None

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        before = () if self.grouping is None else (self.grouping.split, self.grouping.index)
        return (*before, *self.codes.values())

    def layout(self, copies: int) -> tuple[dict[str, int], int]:
        return {}, 0

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        """Nothing: there are no copies that anyone else made."""

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Add all that there is to do; results are complete after the last command."""
        plan = self.plan
        numbers = {"clhist_elements": plan.elements, "clhist_row_bins": plan.row_bins}
        given = {**numbers, **values, "clhist_held": None}
        if plan.parts:
            self._add(commands, given)
        elif self.rows.atomic is not None:
            self._add_at_once(commands, given)
        else:
            self._gather(commands, given)

    def _add(self, commands: Commands, given: dict[str, Any]) -> None:
        """Have the work-items of a CPU add each row to its bin."""
        plan, group = self.plan, self.plan.work_group_size
        operator = plan.outputs[0].operator
        if self.rows.copies:
            size = (plan.parts - operator.holds_values) * plan.num_bins * operator.accumulator.itemsize
            given["clhist_held"] = commands.room(size, self.purpose)
        given["clhist_parts"] = plan.parts
        stage = "combine" if operator.holds_values else "sweep"  # which writes results, too, or copies alone
        commands.add(stage, self.codes["add"], (plan.work_groups * group,), (group,), given)
        if self.rows.copies:
            commands.add("combine", self.codes["join"], (plan.work_groups * group,), (group,), given)

    def _add_at_once(self, commands: Commands, given: dict[str, Any]) -> None:
        """Have atomics of several numbers add rows to the results, unless few bins have many."""
        plan, group = self.plan, self.plan.work_group_size
        each = plan.rows.components // plan.at_once
        if self.rows.is_guarded:
            given["clhist_most_alike"] = most_alike(plan.row_bins)
            commands.add("sweep", self.codes["look"], (group,), (group,), given)
        rows = ceil(plan.elements / self.rows.merged)
        for name, items, stage in (("start", plan.row_bins, "sweep"), ("add", rows, "combine")):
            groups = max(1, ceil(items * each / group))
            commands.add(stage, self.codes[name], (groups * group,), (group,), given)

    def _gather(self, commands: Commands, given: dict[str, Any]) -> None:
        """Count and place the numbers of rows, then gather them by bin."""
        plan, spec, group = self.plan, self.rows, self.plan.work_group_size
        elements, bins, purpose = plan.elements, plan.row_bins, self.purpose
        # A mark for each vector of an exact sum, in bytes.
        marked = ceil((plan.pieces + bins) * (plan.rows.components // spec.vector) / 8) if plan.in_doubles else 0
        places = {"clhist_marks_place": CURSORS + bins, "clhist_cleared": CURSORS + bins + ceil(marked / 4)}
        counts = commands.room(4 * places["clhist_cleared"], purpose)
        given |= {"clhist_piece": plan.piece, "clhist_slots": plan.pieces, "clhist_marked": marked, **places}
        given |= {"clhist_counts": counts, "clhist_cursors": counts, "clhist_zeros": counts}
        shared = elements // plan.piece  # bins, at most
        given["clhist_pieces"] = commands.room(16 * (plan.pieces + shared + 1), purpose)
        for name, words in (("begins", bins), ("ids", elements)):
            given[f"clhist_{name}"] = commands.room(4 * max(1, words), purpose)
        if plan.pieces:
            operator = plan.outputs[0].operator
            each = operator.accumulator.itemsize + (2 * operator.dtype.itemsize if plan.in_doubles else 0)
            size = plan.pieces * plan.rows.components * each
            given["clhist_held"] = commands.room(size, purpose)

        def add(name: str, items: int, stage: str = "sweep") -> None:
            groups = max(1, ceil(items / group))
            commands.add(stage, self.codes[name], (groups * group,), (group,), given)

        if plan.is_few:
            commands.add("sweep", self.codes["few"], (spec.placing_group,), (spec.placing_group,), given)
        else:
            assert plan.ranges_of_bins is not None
            split, size = plan.ranges_of_bins.split, spec.placing_group
            grouped = self._grouped(commands, split, given)
            number = {"ranges": split.slots + split.ranges, "begin": split.ranges, "place": split.slots}
            for name, groups in number.items():
                commands.add("sweep", self.codes[name], (groups * size,), (size,), grouped)
            if spec.carried_bytes:  # what is numbered then are pairs
                given[f"{spec.text.loads}__base"] = grouped["clhist_pairs"]
                given[f"{spec.text.loads}__offset"] = grouped["clhist_values_place"]
        add("gather", (ceil(plan.pieces / spec.slots) + ceil(bins / spec.slots)) * group, "combine")
        if plan.in_doubles:
            add("again", marked, "combine")
        if plan.pieces:
            add("join", min(shared, MOST_JOINED) * group, "combine")

    def _grouped(self, commands: Commands, split: Split, given: Mapping[str, Any]) -> dict[str, Any]:
        """Have the numbers of rows grouped by ranges of bins; return all values of the kernels that place them."""
        assert self.grouping is not None
        values = {**given, "clhist_size": given["clhist_elements"], "clhist_num_bins": given["clhist_row_bins"]}
        whose = commands.room(16 * split.ranges, self.purpose)
        grouped = self.grouping.add_to(commands, split, values, self.purpose, whose)
        listed, befores = grouped["clhist_cursors"], commands.room(4 * split.slots * split.width, self.purpose)
        own = {name: given[name] for name in ("clhist_piece", "clhist_cursors")}
        return {**grouped, **own, "clhist_listed": listed, "clhist_befores": befores}


def rows_sweep(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan that gathers rows."""
    assert programs.rows is not None
    codes = _codes(programs.rows, options)
    found, kernel = cast(RowsPlan, plan), next(iter(codes.values()))
    before = programs.partition and grouping(programs.partition, options)
    return RowsSweep(
        plan=found, spec=programs.sweep, kernel=kernel, rows=programs.rows, codes=codes, grouping=before
    )  # fmt: skip


@lru_cache(maxsize=256)
def _codes(spec: RowsSpec, options: tuple[str, ...]) -> Mapping[str, KernelCode]:
    source = render_rows(spec)
    return {
        name: KernelCode(source, options, f"clhist_rows_{name}", parameters)
        for name, parameters in rows_parameters(spec).items()
    }
