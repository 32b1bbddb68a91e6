"""Partitioning instead of passes: its kernels and launches; the plan is in `clhist._core.model.partition`.

`split` groups the pairs of each tile by ranges of bins. `index` finds the pairs of each range. The sweep fills the bins
of a range in local memory. Notes [A range for each compute unit] and [Shares by cost], docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, cast

from clhist._core.kernel_code import KernelCode
from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.parameters import index_parameters, join_parameters, split_parameters
from clhist._core.kernels.partitions import PAIR_BINS, PAIR_VALUES, PartitionSpec
from clhist._core.kernels.render import render_partition
from clhist._core.model.feature import division
from clhist._core.model.partition import CURSORS, PartitionedPlan, Split
from clhist._core.model.plan import Plan
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.stages import NO_BATCH, Commands, Scratch, Sweep, Tasks, sweep_code

_ALIGNMENT = 128  # bytes, of the values behind the bins


@dataclass(frozen=True, eq=False)
class Grouping:
    """The kernels that group pairs by ranges of bins (`split`), and locate the pairs of each range (`index`)."""

    spec: PartitionSpec
    split: KernelCode
    index: KernelCode

    def add_to(
        self, commands: Commands, split: Split, values: Mapping[str, Any], purpose: str, task_bounds: Scratch
    ) -> dict[str, Any]:
        """Append both launches, and return `values` with the arguments that describe the grouped pairs.

        `task_bounds` is scratch memory of 16 bytes a range: the first task of each range and the end of its tasks.
        """
        spec, tiles = self.spec, ceil(split.elements / self.spec.tile)
        # Every tile has a region of its full size for its pairs: bins of 16 bits first, then the values.
        bins_bytes = -(-tiles * spec.tile * 2 // _ALIGNMENT) * _ALIGNMENT
        size = bins_bytes + tiles * spec.tile * spec.value_bytes
        # Starts of each range in each tile, facts about each range, tasks of two words, and cursors.
        words = (tiles * (split.ranges + 1), 4 * split.ranges, 2 * split.slots, CURSORS)
        pairs, starts, ranges, listed, cursors = (commands.room(n, purpose) for n in (size, *(4 * n for n in words)))
        # Division by the width of a partition, as a multiplication and a shift.
        piece, segment_cost = split.piece(spec.tile)
        magic, shift = division(split.width)
        if spec.is_alone:
            shift += 1  # a CPU shifts the bin itself: its ranges are powers of two, since `mul_hi` is a call on PoCL
        arguments = {
            **values,
            "clhist_width": split.width,
            "clhist_magic": magic,
            "clhist_shift": shift,
            "clhist_partitions": split.ranges,
            "clhist_tiles": tiles,
            "clhist_region": spec.tile,
            "clhist_pairs": pairs,
            "clhist_bins_place": 0,
            "clhist_values_place": bins_bytes,
            "clhist_starts": starts,
            "clhist_ranges": ranges,
            "clhist_tasks": listed,
            "clhist_task_bounds": task_bounds,
            "clhist_cursors": cursors,
            "clhist_piece": piece,
            "clhist_segment_cost": segment_cost,
        }
        # A work-group for each tile, then one for each partition.
        group = spec.sweep.work_group_size
        commands.add("sweep", self.split, (tiles * group,), (group,), arguments)
        group = spec.index_group
        commands.add("sweep", self.index, (split.ranges * group,), (group,), arguments)
        return arguments


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedSweep(Sweep):
    """A sweep over pairs that earlier kernels have grouped by partition, which is a range of bins.

    Attributes
    ----------
    grouping : Grouping
        The kernels that group the pairs.
    join : KernelCode, optional
        Combines the copies of split partitions, if the sweep itself writes the results of all others.
    """

    plan: PartitionedPlan
    grouping: Grouping
    join: KernelCode | None

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        return self.grouping.split, self.grouping.index, self.kernel

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        """Return tasks of a ragged batch whose histograms are the partitions; the kernel `index` writes `first`."""
        plan = self.plan
        if not plan.num_elements:
            return NO_BATCH
        first = commands.room(16 * plan.ranges, self.purpose)
        return Tasks("ragged", first=first, slots=plan.slots)

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Append split, index, sweep and join; launches that write results belong to the stage "combine"."""
        plan, suffix = self.plan, self.grouping.spec.sweep.outputs[0].suffix
        what = f"more to partition {plan.num_elements} (bin, value) pairs; memory='global' needs less"
        values = {**values, "clhist_num_bins": plan.num_bins}
        arguments = self.grouping.add_to(commands, plan.split, values, what, values["clhist_task_bounds"])
        pairs = arguments["clhist_pairs"]
        arguments |= {
            f"clhist_num_bins{suffix}": plan.bins_per_pass,
            "clhist_bins_per_pass": plan.bins_per_pass,  # name of the parameter in the kernel that joins copies
            f"clhist_bins_per_pass{suffix}": plan.bins_per_pass,
            f"{PAIR_BINS}__base": pairs,
            f"{PAIR_BINS}__offset": 0,
            f"{PAIR_VALUES}__base": pairs,
            f"{PAIR_VALUES}__offset": arguments["clhist_values_place"],
            "clhist_all_bins": values.get("clhist_asked_bins", plan.num_bins),
        }
        # The sweep reads the grouped pairs as the arrays of a map; after stage "combine" results are complete.
        group, stage = plan.work_group_size, "combine" if plan.writes_results else "sweep"
        commands.add(stage, self.kernel, (plan.work_groups * group, 1), (group, 1), arguments)
        if self.join is not None:
            commands.add(stage, self.join, (plan.work_groups * group,), (group,), arguments)


def partitioned_sweep(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a partitioned plan."""
    before, spec = programs.partition, programs.sweep
    assert before is not None
    sweep, partitioned = sweep_code(spec, options), cast(PartitionedPlan, plan)
    # A range that several work-groups share has copies, which must be joined; all others are written by the sweep.
    join = KernelCode(*sweep[:2], "clhist_join", join_parameters(spec)) if partitioned.writes_results else None
    return PartitionedSweep(plan=partitioned, spec=spec, kernel=sweep, grouping=grouping(before, options), join=join)


@lru_cache(maxsize=256)
def grouping(spec: PartitionSpec, options: tuple[str, ...]) -> Grouping:
    """Return the kernels that group pairs, rendered once for equal specifications."""
    source = render_partition(spec)
    split = KernelCode(source, options, "clhist_split", split_parameters(spec))
    return Grouping(spec, split, KernelCode(source, options, "clhist_index", index_parameters(spec)))
