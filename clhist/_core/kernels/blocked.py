"""C of a CPU's walk through consecutive elements, where it depends on one condition; see ``walk_blocked.mako``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clhist._core.kernels.state import SweepState


def range_of_item(state: SweepState) -> str:
    """Return declarations of the first element of the work-item, `i`, and of the one behind its last.

    It has a part of its team's chunk, or of the input. Casts to ulong: the product exceeds 32 bits.
    """
    if state.has_tasks:
        # A chunk is divided among the work-items of the team that has it, not among all.
        size, team = "(ulong)(clhist_end - clhist_begin)", state.spec.team_size
        return f"""\
    const clhist_index_t clhist_last
        = clhist_begin + (clhist_index_t)({size} * (clhist_lane + 1) / {team});
    clhist_index_t i = clhist_begin + (clhist_index_t)({size} * clhist_lane / {team});"""
    return """\
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    clhist_index_t i = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);"""


def first_copies(state: SweepState) -> str:
    """Return declarations of the first copies of a work-item that has several, of each part."""
    if not state.takes_turns:
        return ""
    return state.for_each_part(f"    {state.space} cell{{n}}_t *clhist_first_copy{{n}} = clhist_cells{{n}};")


def copies_of_turn(state: SweepState) -> str:
    """Return declarations of the copies of an element, of a work-item that has several."""
    if not state.takes_turns:
        return ""
    cells = state.for_each_part(
        f"            {state.space} cell{{n}}_t *clhist_cells{{n}} = clhist_first_copy{{n}} + clhist_turn;"
    )
    stride = state.stride(state.spec.outputs[0].suffix)
    return f"""\
            // Neighbouring elements go to different copies, so that an update need not wait for the one before it.
            const size_t clhist_turn = (size_t)(clhist_k & (clhist_turns - 1)) * {stride};
{cells}"""


def prefetch(state: SweepState, first: str) -> str:
    """Return the statements that ask memory for later elements, while a round from `first` on is updated."""
    if not state.spec.streamed:
        return ""
    return "\n".join(
        [
            f"        // {state.spec.round} elements, while memory is asked for those that are read later.",
            *(f"        CLHIST_AHEAD({ahead});" for ahead in state.asked_ahead(first)),
        ]
    )


def update_of_element(state: SweepState, function: str, first: str, leading: Sequence[str]) -> str:
    """Return the statement that takes element `clhist_k` of a round: a call of the map, or the addition of its term."""
    if state.spec.makes_terms and leading:
        return f"""\
            clhist_add_term(
                clhist_cells{state.spec.parts[0].n} + {leading[0]},
                clhist_terms + {state.terms_of("(clhist_round + clhist_k)")});"""
    element = f"{first} + clhist_k"
    return state.map_call(3, lambda a: f"{a.name}[{element}]", element, function, leading)
