"""One bin in registers of a work-item, for updates that wait for each other under skew: see ``hot_bin.mako``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clhist._core.model.feature import Feature, SweepView, Variable

if TYPE_CHECKING:
    from clhist._core.kernels.state import SweepState


@dataclass(frozen=True)
class HotBin(Feature):
    """Each work-item holds one bin, of whose values it makes one update.

    Attributes
    ----------
    is_local : bool
        Whether the bin is chosen by an update that failed; in global memory by a majority vote.
    """

    is_local: bool

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        return (
            Variable("clhist_bin_t *", "clhist_hot_bin"),
            *(Variable(f"accumulator{output.suffix}_t *", "clhist_hot_value") for output in sweep.outputs),
            *([] if self.is_local else [Variable("uint *", "clhist_votes")]),
        )

    def comment(self) -> str:
        return "each work-item holds one bin in registers"


def held_bin(state: SweepState) -> str:
    """Return declarations of the bin that a work-item holds, its value, and its votes in global memory."""
    if not state.spec.hot_bin:
        return ""
    votes = "" if state.is_local else "\n    uint clhist_votes[1];"
    return f"""\
    clhist_bin_t clhist_hot_bin[1];
    accumulator{state.spec.outputs[0].suffix}_t clhist_hot_value[1];{votes}"""


def hot_value(accessor: str) -> str:
    """Return C of a part of the value of the bin that is held."""
    return f"(*clhist_hot_value){accessor}" if accessor else "*clhist_hot_value"


def hold_none(state: SweepState) -> str:
    """Return the statements by which a work-item begins: it holds no bin.

    They come after the last barrier before the updates, since PoCL's compiler loses large structs that live across one.
    """
    if not state.spec.hot_bin:
        return ""
    votes = [] if state.is_local else ["    *clhist_votes = 0;"]
    return "\n".join(
        [
            "    // No bin is held yet: this number is beyond every histogram.",
            "    *clhist_hot_bin = ~(clhist_bin_t)0;",
            *votes,
            *(f"    {hot_value(part.part.accessor)} = clhist_neutral{part.n}();" for part in state.spec.parts),
        ]
    )


def update_held_bin(state: SweepState) -> str:
    """Return the statement that updates the bin which a work-item still holds after its last element."""
    if not state.spec.hot_bin:
        return ""
    s = state.spec.outputs[0].suffix
    return f"""\
    // End: the bin that is still held.
    if (*clhist_hot_bin < clhist_count{s})
        clhist_update_bin{s}(*clhist_hot_bin, *clhist_hot_value, CLHIST_STATE);"""
