"""One bin in registers of a work-item, for updates that wait for each other under skew: see ``hot_bin.mako``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from clhist._core.model.feature import Feature, Sweep, Variable


@dataclass(frozen=True)
class HotBin(Feature):
    """Each work-item holds one bin, of whose values it makes one update.

    Attributes
    ----------
    is_local : bool
        Whether the bin is chosen by an update that failed; in global memory by a majority vote.
    """

    template: ClassVar[str] = "hot_bin.mako"
    sections: ClassVar[tuple[str, ...]] = ("functions", "begin", "take", "start", "end")

    is_local: bool

    def state(self, sweep: Sweep) -> tuple[Variable, ...]:
        return (
            Variable("clhist_bin_t *", "clhist_hot_bin"),
            *(Variable(f"accumulator{output.suffix}_t *", "clhist_hot_value") for output in sweep.outputs),
            *([] if self.is_local else [Variable("uint *", "clhist_votes")]),
        )

    def comment(self) -> str:
        return "each work-item holds one bin in registers"
