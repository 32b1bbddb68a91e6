"""Partitioning in the place of passes: its kernels and launches; see `clhist._core.model.partition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, cast

from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.kernels.parameters import index_parameters, join_parameters, split_parameters
from clhist._core.kernels.partitions import PAIR_BINS, PAIR_VALUES, PartitionSpec
from clhist._core.kernels.render import render_partition
from clhist._core.model.feature import division
from clhist._core.model.partition import CURSORS, PartitionedPlan
from clhist._core.model.plan import Plan
from clhist._core.model.split import Split
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.stages import NO_BATCH, Commands, Scratch, Sweep, Tasks, sweep_code

_ALIGNMENT = 128


@dataclass(frozen=True, eq=False)
class Grouping:
    """The kernels that group pairs by ranges of bins, and find where those of each range are."""

    spec: PartitionSpec
    split: KernelCode
    index: KernelCode

    def add_to(
        self, commands: Commands, split: Split, values: Mapping[str, Any], purpose: str, whose: Scratch
    ) -> dict[str, Any]:
        """Add their launches; `whose` has 16 bytes a range. Return all values, those of grouped pairs among them."""
        spec, tiles = self.spec, ceil(split.elements / self.spec.tile)
        bins_bytes = -(-tiles * spec.tile * 2 // _ALIGNMENT) * _ALIGNMENT
        size = bins_bytes + tiles * spec.tile * spec.value_bytes
        words = (tiles * (split.ranges + 1), 4 * split.ranges, 2 * split.slots, CURSORS)
        pairs, starts, ranges, listed, cursors = (commands.room(n, purpose) for n in (size, *(4 * n for n in words)))
        piece, segment_cost = split.piece(spec.tile)
        magic, shift = division(split.width)
        if spec.is_alone:
            shift += 1  # of the bin itself
        given = {
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
            "clhist_whose": whose,
            "clhist_cursors": cursors,
            "clhist_piece": piece,
            "clhist_segment_cost": segment_cost,
        }
        group = spec.sweep.work_group_size
        commands.add("sweep", self.split, (tiles * group,), (group,), given)
        group = spec.index_group
        commands.add("sweep", self.index, (split.ranges * group,), (group,), given)
        return given


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedSweep(Sweep):
    """A sweep over pairs that kernels before it group by partition.

    Attributes
    ----------
    grouping : Grouping
        These kernels.
    join : KernelCode, optional
        It combines the copies of partitions that were shared out, where the sweep writes the results of others.
    """

    plan: PartitionedPlan
    grouping: Grouping
    join: KernelCode | None

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        return self.grouping.split, self.grouping.index, self.kernel

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        plan = self.plan
        if not plan.num_elements:
            return NO_BATCH
        first = commands.room(16 * plan.ranges, self.purpose)
        return Tasks("ragged", first=first, slots=plan.slots)

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Add all as parts of the stage "sweep", but for what writes results."""
        plan, suffix = self.plan, self.grouping.spec.sweep.outputs[0].suffix
        what = f"more to partition {plan.num_elements} (bin, value) pairs; memory='global' needs less"
        values = {**values, "clhist_num_bins": plan.num_bins}
        given = self.grouping.add_to(commands, plan.split, values, what, values["clhist_whose"])
        pairs = given["clhist_pairs"]
        given |= {
            f"clhist_num_bins{suffix}": plan.bins_per_pass,
            "clhist_bins_per_pass": plan.bins_per_pass,  # of the kernel that joins copies
            f"clhist_bins_per_pass{suffix}": plan.bins_per_pass,
            f"{PAIR_BINS}__base": pairs,
            f"{PAIR_BINS}__offset": 0,
            f"{PAIR_VALUES}__base": pairs,
            f"{PAIR_VALUES}__offset": given["clhist_values_place"],
            "clhist_all_bins": values.get("clhist_asked_bins", plan.num_bins),
        }
        group, stage = plan.work_group_size, "combine" if plan.writes_results else "sweep"
        commands.add(stage, self.kernel, (plan.work_groups * group, 1), (group, 1), given)
        if self.join is not None:
            commands.add(stage, self.join, (plan.work_groups * group,), (group,), given)


def partitioned_sweep(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan that has partitions."""
    before, spec = programs.partition, programs.sweep
    assert before is not None
    sweep, found = sweep_code(spec, options), cast(PartitionedPlan, plan)
    join = KernelCode(*sweep[:2], "clhist_join", join_parameters(spec)) if found.writes_results else None
    return PartitionedSweep(plan=found, spec=spec, kernel=sweep, grouping=grouping(before, options), join=join)


@lru_cache(maxsize=256)
def grouping(spec: PartitionSpec, options: tuple[str, ...]) -> Grouping:
    """Return the kernels that group pairs."""
    source = render_partition(spec)
    split = KernelCode(source, options, "clhist_split", split_parameters(spec))
    return Grouping(spec, split, KernelCode(source, options, "clhist_index", index_parameters(spec)))
