"""Partitioning in the place of passes: its kernels and launches; see `clhist.planning.partition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd
from typing import Any

from clhist.codegen.from_plan import PAIR_BINS, PAIR_VALUES, Programs
from clhist.codegen.kernel_code import KernelCode
from clhist.codegen.parameters import index_parameters, split_parameters
from clhist.codegen.render import render_partition
from clhist.codegen.specs import PartitionSpec
from clhist.engine.batch import Batch
from clhist.engine.stages import NO_BATCH, Commands, Sweep, Tasks, sweep_code
from clhist.planning.feature import division
from clhist.planning.plan import Plan

_ALIGNMENT = 128
_WARP = 32


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedSweep(Sweep):
    """A sweep over pairs that kernels before it group by partition.

    Attributes
    ----------
    partition : PartitionSpec
        What the source of these was made of.
    split, index : KernelCode
        They group the pairs, and find where those of each partition are.
    """

    partition: PartitionSpec
    split: KernelCode
    index: KernelCode

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        return self.split, self.index, self.kernel

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        plan = self.plan
        if not plan.num_elements:
            return NO_BATCH
        first = commands.room(8 * (plan.ranges + 1), self.purpose)
        return Tasks("ragged", first=first, slots=plan.work_groups + plan.ranges)

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Add all three as parts of the stage "sweep"."""
        plan, spec, suffix = self.plan, self.partition, self.partition.sweep.outputs[0].suffix
        tiles = ceil(plan.num_elements / spec.tile)
        bins_bytes = -(-tiles * spec.region * 2 // _ALIGNMENT) * _ALIGNMENT
        size = bins_bytes + tiles * spec.region * spec.value_bytes
        what = f"more to partition {plan.num_elements} (bin, value) pairs; memory='global' needs less"
        others = (tiles * (plan.ranges + 1), tiles * plan.ranges, plan.ranges)
        pairs, starts, sums, totals = (commands.room(n, what) for n in (size, *(4 * count for count in others)))
        magic, shift = division(plan.bins_per_pass)
        given = {
            **values,
            "clhist_num_bins": plan.num_bins,
            "clhist_width": plan.bins_per_pass,
            "clhist_magic": magic,
            "clhist_shift": shift,
            "clhist_partitions": plan.ranges,
            "clhist_tiles": tiles,
            "clhist_pairs": pairs,
            "clhist_bins_place": 0,
            "clhist_values_place": bins_bytes,
            "clhist_starts": starts,
            "clhist_sums": sums,
            "clhist_totals": totals,
        }
        group = spec.sweep.work_group_size
        commands.add("sweep", self.split, (tiles * group,), (group,), given)
        group = spec.index_group
        commands.add("sweep", self.index, (plan.ranges * group,), (group,), given)
        given |= {
            f"clhist_num_bins{suffix}": plan.bins_per_pass,
            f"clhist_bins_per_pass{suffix}": plan.bins_per_pass,
            f"{PAIR_BINS}__base": pairs,
            f"{PAIR_BINS}__offset": 0,
            f"{PAIR_VALUES}__base": pairs,
            f"{PAIR_VALUES}__offset": bins_bytes,
            "clhist_region": spec.region,
            "clhist_span": self._span(),
        }
        group = plan.work_group_size
        commands.add("sweep", self.kernel, (plan.work_groups * group, 1), (group, 1), given)

    def _span(self) -> int:
        """Return how many work-items at least read the pairs of one partition in one tile."""
        return gcd(_WARP if self.spec.reconvergence else 1, self.plan.work_group_size)


def partitioned_sweep(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan that has partitions."""
    before, spec = programs.partition, programs.sweep
    assert before is not None
    split, index = _codes(before, options)
    sweep = sweep_code(spec, options)
    return PartitionedSweep(plan=plan, spec=spec, kernel=sweep, partition=before, split=split, index=index)


@lru_cache(maxsize=256)
def _codes(spec: PartitionSpec, options: tuple[str, ...]) -> tuple[KernelCode, KernelCode]:
    source = render_partition(spec)
    split = KernelCode(source, options, "clhist_split", split_parameters(spec))
    return split, KernelCode(source, options, "clhist_index", index_parameters(spec))
