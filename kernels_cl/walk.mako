## The order in which work-items go through the elements: blocked (each has consecutive elements, as CPUs prefer) or
## striped (neighbouring work-items have neighbouring elements, so that GPUs coalesce the loads), with wide loads.

<%def name="blocked()">
% if state.has_tasks:
    const clhist_index_t clhist_start = clhist_begin + (clhist_index_t)((ulong)(clhist_end - clhist_begin) * clhist_lane / ${spec.team_size});
    const clhist_index_t clhist_last = clhist_begin + (clhist_index_t)((ulong)(clhist_end - clhist_begin) * (clhist_lane + 1) / ${spec.team_size});
% else:
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    const clhist_index_t clhist_start = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);
% endif
    clhist_index_t i = clhist_start;
% if spec.block:
<% s = spec.outputs[0].suffix %>\
<% asks = "CLHIST_IN_PASS" in spec.map %>\
    for (; clhist_last - i >= ${spec.block}; i += ${spec.block}) {
        ## What is compared is what updates: somebody may write to the array meanwhile.
        clhist_bin_t clhist_ahead[${spec.block}];
% if asks:
        uint clhist_outside = 0;
% endif
        ## Unrolled by Intel's compiler before it makes vectors, this reads every fourth element.
        #pragma clang loop vectorize_width(16) unroll(disable)
        for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k) {
            const clhist_bin_t bin = CLHIST_BIN(${spec.indices.name}[i + clhist_k]) - clhist_first${s};
            clhist_ahead[clhist_k] = bin < clhist_count${s} ? bin : clhist_spare;
% if asks:
            clhist_outside |= bin >= clhist_count${s};
% endif
        }
% if asks:
        if (clhist_outside) {
            for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k)
                clhist_map(${state.map_arguments(lambda a: f"{a.name}[i + clhist_k]", "i + clhist_k")}, ${state.passed});
            continue;
        }
% endif
        for (int clhist_round = 0; clhist_round < ${spec.block}; clhist_round += ${spec.round}) {
${one_round("clhist_map_inside", "i + clhist_round", "clhist_ahead[clhist_round + clhist_k], ")}
        }
    }
% else:
    for (; clhist_last - i >= ${spec.round}; i += ${spec.round}) {
${one_round("clhist_map", "i")}
    }
% endif
    for (; i < clhist_last; ++i)
        clhist_map(${state.next_element}, ${state.passed});
</%def>

## The elements of one round, of which neighbours go to different copies; those of a later one are asked for meanwhile.
<%def name="one_round(function, first, given='')">
<%
    def element(argument):
        return f"{argument.name}[{first} + clhist_k]"
%>\
% for ahead in state.asked_ahead(first):
        CLHIST_AHEAD(${ahead});
% endfor
        #pragma unroll ${spec.unrolled}
        for (int clhist_k = 0; clhist_k < ${spec.round}; ++clhist_k) {
% if state.takes_turns:
            const size_t clhist_turn = (size_t)(clhist_k & (clhist_turns - 1)) * ${state.stride(spec.outputs[0].suffix)};
% endif
            ${function}(${given}${state.map_arguments(element, f"{first} + clhist_k")}, ${state.passed_in_turn});
        }
</%def>

<%def name="striped()">
<% packed = local.get_namespace("packed.mako") %>\
    clhist_index_t clhist_done = clhist_begin;
% if spec.vector_width * spec.loads > 1:
${wide_loads(spec.team_size, spec.vector_width, spec.loads)}
% endif
% if spec.vector_width * spec.loads == 1:
${packed.start_asking()}
% endif
    for (clhist_index_t i = clhist_done + clhist_rank * ${spec.team_size} + (clhist_index_t)clhist_lane; i < clhist_end; i += clhist_ranks * ${spec.team_size}) {
% if spec.vector_width * spec.loads == 1:
${packed.load_flag()}
% endif
${packed.pending(1)}
${packed.begin_pending(0)}
        clhist_map(${state.next_element}, ${state.passed});
${packed.settle(0, 1)}
% if spec.vector_width * spec.loads == 1:
${packed.heed_flag()}
% endif
    }
</%def>

## Whole tiles of a team by wide loads, several in flight before the first element is used.
<%def name="wide_loads(team, lanes, loads)">
<% packed = local.get_namespace("packed.mako") %>\
<% tile = team * lanes * loads %>\
% if state.has_tasks:
    ## The elements before the first aligned address.
    clhist_done = min(clhist_end, (clhist_begin + ${lanes - 1}) / ${lanes} * ${lanes});
    for (clhist_index_t i = clhist_begin + (clhist_index_t)clhist_lane; i < clhist_done; i += ${team})
        clhist_map(${state.next_element}, ${state.passed});
% endif
    const clhist_index_t clhist_tiles = (clhist_end - clhist_done) / ${tile};
${packed.start_asking()}
    for (clhist_index_t clhist_tile = clhist_rank; clhist_tile < clhist_tiles; clhist_tile += clhist_ranks) {
        const clhist_index_t clhist_start = clhist_done + clhist_tile * ${tile} + (clhist_index_t)clhist_lane * ${lanes};
${packed.load_flag()}
% for load in range(loads):
% for argument in streamed:
<% kind = state.loaded_type(argument) %>\
        const ${kind} clhist_${argument.name}_${load}
            = *(__global const ${kind} *)(${argument.name} + clhist_start + ${load * lanes * team});
% endfor
% endfor
${packed.pending(lanes)}
% for load in range(loads):
% for lane in range(lanes):
<% these = state.map_arguments(lambda a: f"clhist_{a.name}_{load}{state.lane(lane)}", f"clhist_start + {load * lanes * team + lane}") %>\
${packed.begin_pending(lane)}
        clhist_map(${these}, ${state.passed});
${packed.settle(lane, lanes)}
% if spec.reconvergence:
        ${spec.reconvergence};
% endif
% endfor
% endfor
${packed.heed_flag()}
    }
    clhist_done += clhist_tiles * ${tile};
</%def>
