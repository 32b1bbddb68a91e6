"""The sweep of packed counters: counts with spill tables, and a fallback that counts again if a flag is raised.

`kernels_cl/packed.mako` explains the counters. Note [No clearing of the flag], docs/decisions/0006.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clhist._core.kernel_code import KernelCode
from clhist._core.model.packed import PackedPlan
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.stages import NO_BATCH, Commands, Sweep, Tasks

_WORD_BYTES = 4
_ALIGNMENT = 128  # bytes, of the flag behind the copies of the fallback


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedSweep(Sweep):
    """Packed counters that spill into tables, followed by `robust`, which counts again if they spill too often.

    Scratch memory::

        | copies of robust | pad | flag | spills of each work-group | tables (bin, amount) | words of the counters |
    """

    plan: PackedPlan
    robust: Sweep

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        return (self.kernel, *self.robust.kernels)

    @property
    def writes_bins(self) -> bool:
        return True

    @property
    def copies(self) -> int:
        return self.plan.work_groups

    def layout(self, copies: int) -> tuple[dict[str, int], int]:
        """Return the layout of the fallback's copies, with flag, tables and words behind them."""
        places, size = super().layout(copies)
        if not self.plan.num_elements:
            return places, 0
        place = -(-size // _ALIGNMENT) * _ALIGNMENT
        words = self.plan.record_words + self.plan.work_groups * self.plan.row_words
        return {**places, "clhist_flag_place": place}, place + _WORD_BYTES * words

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        """Return the tasks of the fallback; packed counters take no batches."""
        return self.robust.tasks(batch, commands)

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        """Clear nothing: any content but one number means that the flag is down."""

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        """Append the sweep of packed counters and that of the fallback, which returns at once if the flag is down."""
        # The first place of this kernel is the flag; the copies at the beginning are those of the fallback.
        super().add_to(commands, NO_BATCH, {**values, "clhist_place0": values["clhist_flag_place"]})
        self.robust.add_to(commands, tasks, {**values, **self.robust.kernel_arguments})

    def combine_arguments(self, places: Mapping[str, int]) -> dict[str, object]:
        """Return where the second stage finds the flag, the spill tables and the words of all work-groups."""
        # Without elements nothing was launched, so there are neither words nor tables.
        groups = self.plan.work_groups if self.plan.num_elements else 0
        return {
            "clhist_packed_place": places.get("clhist_flag_place", 0),
            "clhist_rows": groups,
            "clhist_tables": groups * self.plan.passes,
            "clhist_table_size": self.plan.table_size,
        }
