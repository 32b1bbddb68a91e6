"""C of a tile of wide loads, whose elements a work-item maps one after another; see ``walk_striped.mako``.

Packed counters add carries, and whether the sweep was given up; see ``packed.mako``. Their functions return nothing for
other copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clhist._core.kernels.maps import Argument
from clhist._core.model.feature import RAISED

if TYPE_CHECKING:
    from clhist._core.kernels.state import SweepState


def loads_of_tile(state: SweepState) -> str:
    """Return the loads of a work-item in a tile: of each streamed array `spec.loads`, a team apart."""
    spec = state.spec
    return "\n".join(
        f"        const {state.loaded_type(argument)} clhist_from_{argument.name}_{load} = "
        f"*(__global const {state.loaded_type(argument)} *)({argument.name} + clhist_start + {_offset(state, load)});"
        for load in range(spec.loads)
        for argument in spec.streamed
    )


def updates_of_tile(state: SweepState) -> str:
    """Return the calls of the map for all elements that a work-item has loaded of a tile."""

    def updates_of_load(load: int) -> str:
        def element(argument: Argument, lane: int) -> str:
            return f"clhist_from_{argument.name}_{load}{state.lane(lane)}"

        return updates(state, element, lambda lane: f"clhist_start + {_offset(state, load) + lane}")

    return "\n".join(map(updates_of_load, range(state.spec.loads)))


def _offset(state: SweepState, load: int) -> int:
    return load * state.spec.vector_width * state.spec.team_size


def updates(state: SweepState, element: Callable[[Argument, int], str], index: Callable[[int], str]) -> str:
    """Return the calls of the map for the elements of one load, whose pairs may be joined with their neighbours'.

    `element` gives the C of an array's element in a lane, and `index` that of its number.
    """
    lanes = range(state.spec.vector_width)
    # Neighbours with one bin are combined first: Note [Equal neighbours are one update], docs/decisions/0005.
    if state.spec.joined > 1:
        return "\n".join(_joined(state, element, index, first) for first in lanes[:: state.spec.joined])
    # Lanes reconverge after each element: Note [Lanes of a warp reconverge], docs/decisions/0005.
    together = f"\n        {state.spec.warp.reconvergence};" if state.spec.warp.reconvergence else ""
    calls = (state.map_call(2, _of_lane(element, lane), index(lane)) for lane in lanes)
    return "\n".join(f"{with_carry(state, call, lane, len(lanes))}{together}" for lane, call in enumerate(calls))


def _of_lane(element: Callable[[Argument, int], str], lane: int) -> Callable[[Argument], str]:
    return lambda argument: element(argument, lane)


def _joined(state: SweepState, element: Callable[[Argument, int], str], index: Callable[[int], str], first: int) -> str:
    s, joined = state.spec.outputs[0].suffix, state.spec.joined
    calls = "\n".join(
        state.map_call(
            3,
            _of_lane(element, first + k),
            index(first + k),
            "clhist_map_pair",
            [f"clhist_targets + {k}", f"clhist_values + {k}"],
        )
        for k in range(joined)
    )
    return f"""\
        {{
            clhist_bin_t clhist_targets[{joined}];
            value{s}_t clhist_values[{joined}];
{calls}
            clhist_emit_joined{s}(clhist_targets, clhist_values, CLHIST_STATE);
        }}"""


RUN = 32  # neighbours that are looked at together: a load of a warp
_PENDING = 4  # updates of a work-item that are looked at together, so that several atomics are under way


def before_tiles(state: SweepState) -> str:
    """Return the declaration of whose turn it is to ask for the flag.

    Where the flag is raised, what is left of the sweep does not matter. In each tile another work-item asks, since all
    of them would meet in one word of the cache. The others of its group stop as if they had spilled.
    """
    if not state.is_packed:
        return ""
    return "    uint clhist_whose_turn = 0;  // to ask whether the flag is raised: another work-item in each tile"


def ask_for_flag(state: SweepState) -> str:
    """Return the statements at the begin of a tile that ask whether the flag is raised."""
    if not state.is_packed:
        return ""
    # The next to ask is `RUN` work-items further on, in another warp.
    return f"""\
        uint clhist_is_raised = 0;
        if (clhist_lane == clhist_whose_turn)
            clhist_is_raised = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag) == {RAISED:#x}u;
        clhist_whose_turn = clhist_whose_turn + {RUN} < {state.spec.team_size} ? clhist_whose_turn + {RUN} : 0;"""


def heed_flag(state: SweepState) -> str:
    """Return the statements at the end of a tile that leave the loop if the flag was raised.

    The answer is heeded behind the updates: before them, compilers load the elements only when it has come.
    """
    if not state.is_packed:
        return ""
    return """\
        // Asked before the updates and heeded behind them, so that elements need not wait for the answer.
        if (clhist_is_raised)
            atomic_max(clhist_spills, clhist_most_spills + 1);
        if (CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_spills) > clhist_most_spills)
            break;"""


def pending_updates(state: SweepState, number: int) -> str:
    """Return declarations of the updates whose carries are looked at together, `number` of them at most."""
    if not state.is_packed:
        return ""
    return f"""\
        clhist_pending_t clhist_waiting[{min(number, _PENDING)}];
        clhist_pending_t *clhist_pending;"""


def with_carry(state: SweepState, call: str, number: int = 0, elements: int = 1) -> str:
    """Return the `call` that maps element `number` of so many, and what settles the carries of updates that wait."""
    if not state.is_packed:
        return call
    begin = f"""\
        clhist_pending = clhist_waiting + {number % _PENDING};
        clhist_pending->bin = clhist_pending->seen = 0;"""
    # Carries are settled when `_PENDING` updates wait, and behind the last element.
    is_last = number + 1 == elements or number % _PENDING == _PENDING - 1
    return "\n".join([begin, call, *([_settle_carries(state, number % _PENDING + 1)] if is_last else [])])


def _settle_carries(state: SweepState, waiting: int) -> str:
    # Carries are rare: one branch, by a bitwise or, passes over all of them.
    is_any_full = "\n            | ".join(f"clhist_is_full(clhist_waiting[{k}])" for k in range(waiting))
    carry = f"clhist_carry{state.spec.outputs[0].suffix}"
    settled = "\n".join(
        f"            if (clhist_is_full(clhist_waiting[{k}]))\n"
        f"                {carry}(clhist_waiting[{k}].bin, clhist_waiting[{k}].seen, CLHIST_STATE);"
        for k in range(waiting)
    )
    return f"        if ({is_any_full}) {{\n{settled}\n        }}"
