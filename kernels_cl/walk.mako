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
% if spec.block or spec.unrolled > 1:
    clhist_index_t i = clhist_start;
% if spec.block:
    for (; clhist_last - i >= ${spec.block}; i += ${spec.block}) {
        ## What is compared is what updates: somebody may write to the array meanwhile.
        ${spec.indices.c_type} clhist_ahead[${spec.block}];
        uint clhist_outside = 0;
        for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k) {
            clhist_ahead[clhist_k] = ${spec.indices.name}[i + clhist_k];
            clhist_outside |= CLHIST_BIN(clhist_ahead[clhist_k]) - clhist_first >= clhist_count;
        }
        if (clhist_outside) {
${rounds("clhist_map")}
        } else {
${rounds("clhist_map_inside")}
        }
    }
% else:
    for (; clhist_last - i >= ${spec.unrolled}; i += ${spec.unrolled}) {
${one_round("clhist_map", "i")}
    }
% endif
    for (; i < clhist_last; ++i)
        clhist_map(${state.next_element}, ${state.passed});
% elif state.takes_turns:
    for (clhist_index_t i = clhist_start; i < clhist_last; ++i) {
        const size_t clhist_turn = (size_t)((uint)i & (clhist_turns - 1)) * ${state.stride(spec.outputs[0].suffix)};
        clhist_map(${state.next_element}, ${state.passed_in_turn});
    }
% else:
    for (clhist_index_t i = clhist_start; i < clhist_last; ++i)
        clhist_map(${state.next_element}, ${state.passed});
% endif
</%def>

## All elements of a block, a round at a time.
<%def name="rounds(function)">
        for (int clhist_round = 0; clhist_round < ${spec.block}; clhist_round += ${spec.unrolled}) {
${one_round(function, "i + clhist_round")}
        }
</%def>

## The elements of one round, of which neighbours go to different copies.
<%def name="one_round(function, first)">
<%
    def element(argument):
        is_ahead = spec.block and argument == spec.indices
        return "clhist_ahead[clhist_round + clhist_k]" if is_ahead else f"{argument.name}[{first} + clhist_k]"
%>\
        #pragma unroll
        for (int clhist_k = 0; clhist_k < ${spec.unrolled}; ++clhist_k) {
% if state.takes_turns:
            const size_t clhist_turn = (size_t)(clhist_k & (clhist_turns - 1)) * ${state.stride(spec.outputs[0].suffix)};
% endif
            ${function}(${state.map_arguments(element, f"{first} + clhist_k")}, ${state.passed_in_turn});
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
