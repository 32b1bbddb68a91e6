"""Packed counters: their words, what they cannot hold, and the robust plan behind them that a flag calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.model.packed import PackedPlan
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.stages import NO_BATCH, Commands, Sweep, Tasks

_WORD_BYTES = 4
_ALIGNMENT = 128


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedSweep(Sweep):
    """A sweep whose counters spill into tables, and the one behind it that counts again if they spill too often.

    In scratch memory the copies of `robust` come first, then the flag, then the tables, then the words.
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
        places, size = super().layout(copies)
        if not self.plan.num_elements:
            return places, 0
        place = -(-size // _ALIGNMENT) * _ALIGNMENT
        words = self.plan.record_words + self.plan.work_groups * self.plan.row_words
        return {**places, "clhist_flag_place": place}, place + _WORD_BYTES * words

    def tasks(self, batch: Batch | None, commands: Commands) -> Tasks:
        return self.robust.tasks(batch, commands)

    def clear(self, clear: Callable[..., None], places: Mapping[str, int], copies: int) -> None:
        """Nothing: the flag may be anything that it is not when it is raised."""

    def add_to(self, commands: Commands, tasks: Tasks, values: Mapping[str, Any]) -> None:
        super().add_to(commands, NO_BATCH, {**values, "clhist_place0": values["clhist_flag_place"]})
        self.robust.add_to(commands, tasks, {**values, **self.robust.kernel_numbers})

    def combine_numbers(self, places: Mapping[str, int]) -> dict[str, object]:
        groups = self.plan.work_groups if self.plan.num_elements else 0
        return {
            "clhist_packed_place": places.get("clhist_flag_place", 0),
            "clhist_rows": groups,
            "clhist_tables": groups * self.plan.passes,
            "clhist_table_size": self.plan.table_size,
        }
