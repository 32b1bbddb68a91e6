"""Partitioning in the place of passes: building and enqueuing its kernels; see `clhist.planning.partition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, gcd

import pyopencl as cl

from clhist.codegen.from_plan import PAIR_BINS, PAIR_VALUES, partition_specs
from clhist.codegen.layout import division
from clhist.codegen.parameters import index_parameters, split_parameters
from clhist.codegen.render import render_partition
from clhist.codegen.specs import PartitionSpec, SweepSpec
from clhist.engine.batch import Batch
from clhist.engine.stages import NO_BATCH, Enqueued, Sweep, Tasks, sweep_kernel
from clhist.opencl.memory import Allocator, allocated
from clhist.opencl.program import Kernel, build, kept_by_context
from clhist.planning.partition import PartitionedPlan

_ALIGNMENT = 128
_WARP = 32


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedSweep(Sweep):
    """A sweep over pairs that kernels before it group by partition.

    Attributes
    ----------
    partition : PartitionSpec
        What the source of these was made of.
    split, index : Kernel
        Built: they group the pairs, and find where those of each partition are.
    """

    plan: PartitionedPlan
    partition: PartitionSpec
    split: Kernel
    index: Kernel

    def tasks(self, batch: Batch | None, queue: cl.CommandQueue, allocate: Allocator) -> Tasks:
        plan = self.plan
        if not plan.num_elements:
            return NO_BATCH
        first = allocated(allocate, 8 * (plan.partitions + 1), self.purpose)
        return Tasks("ragged", first=first, slots=plan.work_groups + plan.partitions)

    def enqueue(self, enqueued: Enqueued, tasks: Tasks, values: Mapping[str, object], allocate: Allocator) -> None:
        """Enqueue all three as parts of the stage "sweep".

        Raises
        ------
        MemoryError
            If the pairs cannot be allocated.
        """
        plan, spec, suffix = self.plan, self.partition, self.partition.sweep.outputs[0].suffix
        tiles = ceil(plan.num_elements / spec.tile)
        bins_bytes = -(-tiles * spec.region * 2 // _ALIGNMENT) * _ALIGNMENT
        size = bins_bytes + tiles * spec.region * spec.value_bytes
        what = f"more to partition {plan.num_elements} (bin, value) pairs; memory='global' needs less"
        others = (tiles * (plan.partitions + 1), tiles * plan.partitions, plan.partitions)
        pairs, starts, sums, totals = (allocated(allocate, n, what) for n in (size, *(4 * count for count in others)))
        magic, shift = division(plan.bins_per_pass)
        given = {
            **values,
            "clhist_num_bins": plan.num_bins,
            "clhist_width": plan.bins_per_pass,
            "clhist_magic": magic,
            "clhist_shift": shift,
            "clhist_partitions": plan.partitions,
            "clhist_tiles": tiles,
            "clhist_pairs": pairs,
            "clhist_bins_place": 0,
            "clhist_values_place": bins_bytes,
            "clhist_starts": starts,
            "clhist_sums": sums,
            "clhist_totals": totals,
        }
        group = spec.sweep.work_group_size
        enqueued.add("sweep", self.split, (tiles * group,), (group,), given)
        group = spec.index_group
        enqueued.add("sweep", self.index, (plan.partitions * group,), (group,), given)
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
        enqueued.add("sweep", self.kernel, (plan.work_groups * group, 1), (group, 1), given)

    def _span(self) -> int:
        """Return how many work-items at least read the pairs of one partition in one tile."""
        return gcd(_WARP if self.spec.reconvergence else 1, self.plan.work_group_size)


def partitioned_sweep(
    context: cl.Context,
    plan: PartitionedPlan,
    spec: SweepSpec,
    options: tuple[str, ...],
    *,
    value: str | None,
    local_memory: int,
) -> Sweep:
    """Return the built sweep of a plan that has partitions; `spec` is that of the plan without them.

    `value` is the C of the value of all pairs, if they have one; `local_memory` is what a work-group may use, in bytes.

    Raises
    ------
    BuildError
        If the compiler refuses the operator or the map.
    """
    before, over_pairs = partition_specs(plan, spec, value, local_memory)
    split, index = _kernels(context, before, options)
    sweep = sweep_kernel(context, over_pairs, options)
    return PartitionedSweep(plan=plan, spec=over_pairs, kernel=sweep, partition=before, split=split, index=index)


@kept_by_context
def _kernels(context: cl.Context, spec: PartitionSpec, options: tuple[str, ...]) -> tuple[Kernel, Kernel]:
    program = build(context, render_partition(spec), options)
    split = Kernel(program, "clhist_split", split_parameters(spec))
    return split, Kernel(program, "clhist_index", index_parameters(spec))
