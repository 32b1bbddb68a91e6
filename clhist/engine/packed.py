"""Packed counters: besides the copies of the work-groups one in global memory takes what the counters cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clhist.engine.stages import Sweep
from clhist.planning.packed import PackedPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedSweep(Sweep):
    """A sweep whose counters spill into the last copy, which has to be cleared before."""

    plan: PackedPlan

    def clear(self, clear: Callable[[Mapping[str, int], int], None], places: Mapping[str, int], copies: int) -> None:
        (part,) = self.spec.outputs[0].operator.parts
        before = self.plan.work_groups * self.plan.num_bins * part.cell_bytes
        clear({**places, "clhist_place0": places["clhist_place0"] + before}, 1)
