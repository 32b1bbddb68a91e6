## The order in which a GPU's work-items visit the elements, with wide loads.
##
##   striped                  item 0: 0 4 8 ..  item 1: 1 5 9 ..          neighbours coalesce their loads
##   striped, wide loads      tile = team x vector width x loads; all loads of a tile precede its first update
##
## Several loads of 16 bytes are in flight (decision 0007).
##
## Part of sweep.mako. Plans with the order "interleaved": LocalPlan and GlobalPlan of GPUs. The loads of a tile and the
## calls of the map for them: clhist/_core/kernels/striped.py.
<%!
    from clhist._core.kernels.striped import (
        ask_for_flag, before_tiles, heed_flag, loads_of_tile, pending_updates, updates_of_tile, with_carry,
    )
%>\
<%def name="walk()">
<%
    team, is_wide = spec.team_size, spec.vector_width * spec.loads > 1
    end, step = ("clhist_end", team) if state.has_tasks else ("clhist_size", f"clhist_groups * {team}")
    own = "(clhist_index_t)clhist_lane" if state.has_tasks else f"clhist_group * {team} + (clhist_index_t)clhist_lane"
    first = f"clhist_begin + {own}" if state.has_tasks else own
%>\
% if is_wide:
${(tiles_of_chunk if state.has_tasks else tiles_of_input)(team * spec.vector_width * spec.loads)}
    // What is left, element by element.
    for (clhist_index_t i = clhist_done + ${own}; i < ${end};
         i += ${step}) {
${element()}
    }
% else:
${before_tiles(state)}
    for (clhist_index_t i = ${first}; i < ${end}; i += ${step}) {
${ask_for_flag(state)}
${element()}
${heed_flag(state)}
    }
% endif
</%def>

## The element number `i`.
<%def name="element()">
${pending_updates(state, 1)}
${with_carry(state, state.map_call(2))}
</%def>

## Whole tiles of the input, which work-groups take in turn.
<%def name="tiles_of_input(tile)">
    const clhist_index_t clhist_tiles = clhist_size / ${tile};
${before_tiles(state)}
    for (clhist_index_t clhist_tile = clhist_group; clhist_tile < clhist_tiles; clhist_tile += clhist_groups) {
        const clhist_index_t clhist_start = clhist_tile * ${tile} + (clhist_index_t)clhist_lane * ${spec.vector_width};
${elements_of_tile()}
    }
    const clhist_index_t clhist_done = clhist_tiles * ${tile};
</%def>

## Whole tiles of a chunk of a batch, all of one team, from the first aligned address on.
<%def name="tiles_of_chunk(tile)">
<% lanes = spec.vector_width %>\
    // The elements before the first aligned address.
    clhist_index_t clhist_done = min(clhist_end, (clhist_begin + ${lanes - 1}) / ${lanes} * ${lanes});
    for (clhist_index_t i = clhist_begin + (clhist_index_t)clhist_lane; i < clhist_done; i += ${spec.team_size})
${state.map_call(2)}
    const clhist_index_t clhist_tiles = (clhist_end - clhist_done) / ${tile};
    for (clhist_index_t clhist_tile = 0; clhist_tile < clhist_tiles; ++clhist_tile) {
        const clhist_index_t clhist_start
            = clhist_done + clhist_tile * ${tile} + (clhist_index_t)clhist_lane * ${lanes};
${elements_of_tile()}
    }
    clhist_done += clhist_tiles * ${tile};
</%def>

<%def name="elements_of_tile()">
${ask_for_flag(state)}
${loads_of_tile(state)}
${pending_updates(state, spec.vector_width)}
${updates_of_tile(state)}
${heed_flag(state)}
</%def>
