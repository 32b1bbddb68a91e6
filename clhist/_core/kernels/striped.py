"""C of a tile of wide loads, whose elements a work-item maps one after another; see ``walk_striped.mako``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clhist._core.kernels.maps import Argument
from clhist._core.kernels.packed_walk import with_carry

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
