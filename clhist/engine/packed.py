"""Packed counters: their words, what they cannot hold, and the robust plan behind them that a flag calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyopencl as cl

from clhist.codegen.from_plan import look_spec
from clhist.codegen.specs import SweepSpec
from clhist.engine.batch import Batch
from clhist.engine.sample import sample_kernel
from clhist.engine.stages import NO_BATCH, Enqueued, Sweep, Tasks
from clhist.opencl.memory import Allocator
from clhist.opencl.program import Kernel
from clhist.planning import packed
from clhist.planning.packed import PackedPlan

_WORD_BYTES = 4
_ALIGNMENT = 128
_CLEARING = 4  # work-groups for each compute unit


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedSweep(Sweep):
    """A sweep whose counters spill into whole ones, and the one behind it that counts again if they spill too often.

    `look`, if there is one behind, is before it: it clears, and calls the other where a few elements tell already. In
    scratch memory the copies of `robust` come first, then what was spilled, with the flag, then the words.
    """

    plan: PackedPlan
    robust: Sweep | None = None
    look: Kernel | None = None

    @property
    def copies(self) -> int:
        return self.plan.work_groups

    def kernel_numbers(self) -> dict[str, object]:
        own = {"clhist_most_spills": packed.MOST_SPILLS, "clhist_least_distinct": self.plan.least_distinct}
        return {**super().kernel_numbers(), **own}

    def layout(self, copies: int) -> tuple[dict[str, int], int]:
        places, size = super().layout(copies)
        if not self.plan.num_elements:
            return places, 0
        place = -(-size // _ALIGNMENT) * _ALIGNMENT
        words = self.plan.records + self.plan.work_groups * self.plan.row_words
        flag = place + _WORD_BYTES * (self.plan.records - 1)
        return {**places, "clhist_packed_place": place, "clhist_flag_place": flag}, place + _WORD_BYTES * words

    def tasks(self, batch: Batch | None, queue: cl.CommandQueue, allocate: Allocator) -> Tasks:
        return NO_BATCH if self.robust is None else self.robust.tasks(batch, queue, allocate)

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        if self.look is None:
            clear({**places, "clhist_place0": places["clhist_packed_place"]}, 1, self.plan.records)

    def enqueue(self, enqueued: Enqueued, tasks: Tasks, values: Mapping[str, object], allocate: Allocator) -> None:
        if self.look is not None:
            group = self.plan.work_group_size
            groups = min(-(-self.plan.records // group), _CLEARING * enqueued.queue.device.max_compute_units)
            enqueued.add("clear", self.look, (groups * group,), (group,), values)
        super().enqueue(enqueued, NO_BATCH, {**values, "clhist_place0": values["clhist_packed_place"]}, allocate)
        if self.robust is not None:
            self.robust.enqueue(enqueued, tasks, {**values, **self.robust.kernel_numbers()}, allocate)

    def combine_numbers(self, places: Mapping[str, int]) -> dict[str, object]:
        return {
            "clhist_packed_place": places.get("clhist_packed_place", 0),
            "clhist_rows": self.plan.work_groups if self.plan.num_elements else 0,
        }


def packed_sweep(
    context: cl.Context,
    plan: PackedPlan,
    spec: SweepSpec,
    kernel: Kernel,
    robust: Sweep | None,
    options: tuple[str, ...],
) -> PackedSweep:
    """Return the built sweep of packed counters, with what is before and behind it."""
    look = None
    if robust is not None:
        look = sample_kernel(context, look_spec(spec), options)
    return PackedSweep(plan=plan, spec=spec, kernel=kernel, robust=robust, look=look)
