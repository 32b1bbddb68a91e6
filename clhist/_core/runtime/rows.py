"""Kernels and launches of row plans, which gather rows of values by bin; see `clhist._core.model.rows`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, cast

from clhist._core.kernel_code import KernelCode
from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.render import render_rows
from clhist._core.kernels.rows import RowsSpec, rows_parameters
from clhist._core.model.partition import Split
from clhist._core.model.plan import Plan
from clhist._core.model.rows import CURSORS, MOST_JOINED, RowsPlan, most_alike
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
        """Add all launches; results are complete after the last one."""
        plan = self.plan
        numbers = {"clhist_elements": plan.elements, "clhist_row_bins": plan.row_bins}
        arguments = {**numbers, **values, "clhist_held": None}
        # Work-items of a CPU add rows to copies; a GPU adds rows by vector atomics, or gathers them by bin.
        if plan.parts:
            self._add(commands, arguments)
        elif self.rows.atomic is not None:
            self._add_at_once(commands, arguments)
        else:
            self._gather(commands, arguments)

    def _add(self, commands: Commands, arguments: dict[str, Any]) -> None:
        """Add launches in which work-items of a CPU add each row to its bin."""
        plan, group = self.plan, self.plan.work_group_size
        operator = plan.outputs[0].operator
        if self.rows.copies:
            # If bins hold values, the first part adds to the results themselves and needs no copy.
            size = (plan.parts - operator.holds_values) * plan.num_bins * operator.accumulator.itemsize
            arguments["clhist_held"] = commands.room(size, self.purpose)
        arguments["clhist_parts"] = plan.parts
        writes_results = operator.holds_values or self.rows.is_sorted  # and not copies alone
        stage = "combine" if writes_results else "sweep"
        commands.add(stage, self.codes["add"], (plan.work_groups * group,), (group,), arguments)
        if self.rows.copies:
            commands.add("combine", self.codes["join"], (plan.work_groups * group,), (group,), arguments)

    def _add_at_once(self, commands: Commands, arguments: dict[str, Any]) -> None:
        """Add launches that add rows to the results by vector atomics, unless a few bins have many rows."""
        plan, group = self.plan, self.plan.work_group_size
        per_row = plan.rows.components // plan.at_once
        # A sample of the bins decides on the device: beyond so many rows of one bin, the fallback plan computes.
        if self.rows.is_guarded:
            arguments["clhist_most_alike"] = most_alike(plan.row_bins)
            commands.add("sweep", self.codes["look"], (group,), (group,), arguments)
        rows = ceil(plan.elements / self.rows.merged)
        # The results are initialised before any atomic adds to them.
        for name, items, stage in (("start", plan.row_bins, "sweep"), ("add", rows, "combine")):
            groups = max(1, ceil(items * per_row / group))
            commands.add(stage, self.codes[name], (groups * group,), (group,), arguments)

    def _gather(self, commands: Commands, arguments: dict[str, Any]) -> None:
        """Add launches that group row indices by bin, then gather the rows of each bin."""
        plan, spec, group = self.plan, self.rows, self.plan.work_group_size
        elements, bins, purpose = plan.elements, plan.row_bins, self.purpose
        # A mark for each vector of an exact sum, in bytes.
        marked = ceil((plan.pieces + bins) * (plan.rows.components // spec.vector) / 8) if plan.in_doubles else 0
        counted = 0 if spec.is_sorted else CURSORS + bins
        places = {"clhist_marks_place": counted, "clhist_cleared": counted + ceil(marked / 4)}
        counts = commands.room(4 * max(1, places["clhist_cleared"]), purpose)
        arguments |= {"clhist_piece": plan.piece, "clhist_slots": plan.pieces, "clhist_marked": marked, **places}
        arguments |= {"clhist_counts": counts, "clhist_cursors": counts, "clhist_zeros": counts}
        shared = elements // plan.piece  # bins, at most
        arguments["clhist_pieces"] = commands.room(16 * (1 if spec.is_sorted else plan.pieces + shared + 1), purpose)
        for name, words in (("begins", bins + spec.is_sorted), ("ids", 0 if spec.is_sorted else elements)):
            arguments[f"clhist_{name}"] = commands.room(4 * max(1, words), purpose)
        if plan.pieces:
            operator = plan.outputs[0].operator
            component_bytes = operator.accumulator.itemsize + (2 * operator.dtype.itemsize if plan.in_doubles else 0)
            size = plan.pieces * plan.rows.components * component_bytes
            arguments["clhist_held"] = commands.room(size, purpose)

        def add(name: str, items: int, stage: str = "sweep") -> None:
            groups = max(1, ceil(items / group))
            commands.add(stage, self.codes[name], (groups * group,), (group,), arguments)

        if spec.is_sorted:
            # Rows are in the order of their bins already: only the bounds of bins are needed.
            add("bounds", bins + 1)
        elif plan.is_few:
            # One work-group counts and places all rows in local memory.
            commands.add("sweep", self.codes["few"], (spec.placing_group,), (spec.placing_group,), arguments)
        else:
            # More rows or bins are grouped by ranges of bins first, whose counters fit local memory.
            assert plan.ranges_of_bins is not None
            split, size = plan.ranges_of_bins.split, spec.placing_group
            grouped = self._grouped(commands, split, arguments)
            number = {"ranges": split.slots + split.ranges, "begin": split.ranges, "place": split.slots}
            for name, groups in number.items():
                commands.add("sweep", self.codes[name], (groups * size,), (size,), grouped)
            if spec.carried_bytes:  # the groups have (index, value) pairs, from which rows are loaded
                arguments[f"{spec.text.loads}__base"] = grouped["clhist_pairs"]
                arguments[f"{spec.text.loads}__offset"] = grouped["clhist_values_place"]
        add("gather", (ceil(plan.pieces / spec.slots) + ceil(bins / spec.slots)) * group, "combine")
        if plan.in_doubles:
            # Sums in float64 that were not exact are marked, and computed again.
            add("again", marked, "combine")
        if plan.pieces:
            # Bins with many rows were gathered in pieces.
            add("join", min(shared, MOST_JOINED) * group, "combine")

    def _grouped(self, commands: Commands, split: Split, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Add launches that group row indices by ranges of bins; return the arguments of the kernels that follow."""
        assert self.grouping is not None
        # Rows are grouped by the kernels of partitioning, to which a row number is an element and a row of bins a bin.
        values = {
            **arguments,
            "clhist_size": arguments["clhist_elements"],
            "clhist_num_bins": arguments["clhist_row_bins"],
        }
        whose = commands.room(16 * split.ranges, self.purpose)
        grouped = self.grouping.add_to(commands, split, values, self.purpose, whose)
        listed, befores = grouped["clhist_cursors"], commands.room(4 * split.slots * split.width, self.purpose)
        own = {name: arguments[name] for name in ("clhist_piece", "clhist_cursors")}
        return {**grouped, **own, "clhist_listed": listed, "clhist_befores": befores}


def rows_sweep(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan that gathers rows."""
    assert programs.rows is not None
    codes = _codes(programs.rows, options)
    rows_plan, kernel = cast(RowsPlan, plan), next(iter(codes.values()))
    before = programs.partition and grouping(programs.partition, options)
    return RowsSweep(
        plan=rows_plan, spec=programs.sweep, kernel=kernel, rows=programs.rows, codes=codes, grouping=before
    )  # fmt: skip


@lru_cache(maxsize=256)
def _codes(spec: RowsSpec, options: tuple[str, ...]) -> Mapping[str, KernelCode]:
    source = render_rows(spec)
    return {
        name: KernelCode(source, options, f"clhist_rows_{name}", parameters)
        for name, parameters in rows_parameters(spec).items()
    }
