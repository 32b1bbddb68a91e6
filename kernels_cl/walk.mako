<%! from clhist._core.devices.vendors import POCL %>\
## The order in which work-items go through the elements: blocked (each has consecutive elements, as CPUs prefer) or
## striped (neighbouring work-items have neighbouring elements, so that GPUs coalesce the loads), with wide loads.
<%namespace name="section" file="section.mako"/>
<%def name="blocked()">
% if state.has_tasks:
<% size, lane, team = "(ulong)(clhist_end - clhist_begin)", "clhist_lane", spec.team_size %>\
    const clhist_index_t clhist_last
        = clhist_begin + (clhist_index_t)(${size} * (${lane} + 1) / ${team});
    clhist_index_t i = clhist_begin + (clhist_index_t)(${size} * ${lane} / ${team});
% else:
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    clhist_index_t i = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);
% endif
% if state.takes_turns:
% for part in parts:
    ${state.space} cell${part.n}_t *clhist_first_copy${part.n} = clhist_cells${part.n};
% endfor
% endif
% if state.sums:
${begin_of_sums()}
% endif
% if state.may_use_fewer_turns:
<% name = spec.indices.name %>\
#ifdef ${POCL.macro}  // ${POCL.name} only: Intel's compiler makes slower code of the loop below
    // Stores to fewer cache lines are faster. So fewer copies are used where a sample has few neighbours with the same bin.
    if (clhist_last - i >= ${SAMPLES * 64}) {
        uint clhist_equal = 0;
        for (uint clhist_k = 0; clhist_k < ${SAMPLES}; ++clhist_k) {
            const clhist_index_t at = i + (clhist_last - i) / ${SAMPLES} * clhist_k;
            clhist_equal += (${name}[at] == ${name}[at + 1]) + (${name}[at + 1] == ${name}[at + 2]);
            clhist_equal += ${name}[at + 2] == ${name}[at + 3];
        }
        while (clhist_equal < ${SAMPLES // 16} && clhist_turns > 1
               && sizeof(cell${parts[0].n}_t) * clhist_turns * clhist_count > ${SMALL_BYTES})
            clhist_turns /= 2;
    }
#endif
% endif
#ifndef CLHIST_NO_ROUNDS
% if spec.block:
<% s, asks = spec.outputs[0].suffix, "CLHIST_IN_PASS" in spec.map %>\
    for (; clhist_last - i >= ${spec.block}; i += ${spec.block}) {
% if spec.looks_first:
        // A branch that is always taken costs nothing. Some bins say whether others of these ${spec.block} may be in no pass.
        uint clhist_others = 0;
        #pragma clang loop vectorize_width(16) unroll(disable)
        for (int clhist_k = 0; clhist_k < ${spec.block // 8}; ++clhist_k)
            clhist_others |= CLHIST_BIN(${spec.indices.name}[i + clhist_k]) - clhist_first${s} >= clhist_count${s};
        if (!clhist_others) {
            for (int clhist_round = 0; clhist_round < ${spec.block}; clhist_round += ${spec.round}) {
${indent(capture(one_round, "clhist_map", "i + clhist_round"), "        ")}
            }
            continue;
        }
% endif
        // ${spec.block} bins are compared with those of the pass by vectors. These bins are what is updated then:
        // somebody may write to the array meanwhile.
        clhist_bin_t clhist_ahead[${spec.block}];
% if asks:
        uint clhist_outside = 0;
% endif
        ## Unrolled by Intel's compiler before it makes vectors, this reads every fourth element.
        #pragma clang loop vectorize_width(16) unroll(disable)
        for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k) {
            const clhist_bin_t clhist_bin = CLHIST_BIN(${spec.indices.name}[i + clhist_k]) - clhist_first${s};
            clhist_ahead[clhist_k] = clhist_bin < clhist_count${s} ? clhist_bin : clhist_spare;
% if asks:
            clhist_outside |= clhist_bin >= clhist_count${s};
% endif
        }
% if asks:
        if (clhist_outside) {
            for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k)
${state.map_call(4, lambda a: f"{a.name}[i + clhist_k]", "i + clhist_k")}
            continue;
        }
% endif
% if spec.makes_terms:
<% word, words = state.word_of_terms, parts[0].part.words %>\
        // So are the terms of their values made by vectors.
        ${word} clhist_terms[${spec.block * words}] __attribute__((aligned(64)));
        uint clhist_flags = 0;
        #pragma clang loop vectorize_width(8) unroll(disable)
        for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k) {
            ${word} *clhist_parts = clhist_terms + ${state.terms_of("clhist_k")};
            for (int n = 0; n < ${words}; ++n)
                clhist_parts[n * ${state.terms_apart}] = 0;
${state.map_call(3, lambda a: f"{a.name}[i + clhist_k]", "i + clhist_k", "clhist_map_inside", ["clhist_parts", "&clhist_flags"])}
        }
        if (clhist_flags)  // all is summed again: it does not matter what is added here
            CLHIST_RELAXED_STORE(atomic_xchg, clhist_call, ${hex(RAISED)}u);
% endif
% if state.sums and state.pairs_of_sums == 1:
        for (int clhist_part = 0; clhist_part < ${spec.block}; clhist_part += ${PART}) {
            for (int clhist_round = clhist_part; clhist_round < clhist_part + ${PART}; clhist_round += ${spec.round}) {
${indent(capture(one_round, "clhist_map_inside", "i + clhist_round", ["clhist_ahead[clhist_round + clhist_k]"]), "        ")}
            }
${indent(capture(add_up_all), "    ")}\
        }
% else:
        for (int clhist_round = 0; clhist_round < ${spec.block}; clhist_round += ${spec.round}) {
${indent(capture(one_round, "clhist_map_inside", "i + clhist_round", ["clhist_ahead[clhist_round + clhist_k]"]), "    ")}
        }
% endif
    }
% else:
    for (; clhist_last - i >= ${spec.round}; i += ${spec.round}) {
${one_round("clhist_map", "i")}
% if state.sums and state.pairs_of_sums == 1:
${add_up_all()}\
% endif
    }
% endif
#endif
    for (; i < clhist_last; ++i)
${state.map_call(2)}
% if state.sums:
    if (clhist_adds_up) {
% for part, accessor, name in state.sums:
<% s = part.output.suffix %>\
        ${add_up(part, name)}
        for (clhist_bin_t k = 0; k < clhist_count${s}; ++k)
            ${copy_of(part)}[k].value${accessor} = clhist_corrected(${name}[k], ${name}[k + ${state.stride(s)}]);
% endfor
    }
% endif
</%def>

## Longer sums, to which those of the copies are added before they have more than ${TERMS} terms or so.
<%def name="begin_of_sums()">
<%
    s, is_single = state.sums[0][0].output.suffix, state.pairs_of_sums == 1
    terms = f"{TERMS}{' * clhist_turns' * state.takes_turns} * (size_t)clhist_count{s}"
    divisor = (PART if spec.block else spec.round) if is_single else state.pairs_of_sums
%>\
    // Work-items with elements for several such sums add those up, with their rounding errors.
    const size_t clhist_interval = max(${terms} / ${divisor}, (size_t)1);
    const bool clhist_adds_up = (size_t)(clhist_last - i)${f" / {divisor}" * is_single} > 2 * clhist_interval;
    size_t clhist_left = clhist_adds_up ? clhist_interval : ~(size_t)0;
% for part, accessor, name in state.sums:
<% s = part.output.suffix %>\
    __global double *${name} = clhist_sums + ${state.place_of_sums(name)} + clhist_first${s};
    for (clhist_bin_t k = 0; clhist_adds_up && k < clhist_count${s}; ++k) {
        ${name}[k] = clhist_neutral${part.n}()${accessor};
        ${name}[k + ${state.stride(s)}] = 0;
    }
% endfor
</%def>

<%def name="add_up(part, name)">\
${name}_add(${copy_of(part)}, ${name}, ${"clhist_turns" if state.takes_turns else 1}, ${state.stride(part.output.suffix)}, clhist_count${part.output.suffix});\
</%def>

<%def name="copy_of(part)">${"clhist_first_copy" if state.takes_turns else "clhist_cells"}${part.n}</%def>

<%def name="add_up_all()">\
        if (--clhist_left == 0) {
% for part, accessor, name in state.sums:
            ${add_up(part, name)}
% endfor
            clhist_left = clhist_interval;
        }
</%def>
<%!
    from textwrap import indent
    from clhist._core.model.packed import RAISED

    SAMPLES = 64  # of four neighbours
    TERMS = 24  # of a bin and copy, of uniform bins: a sum of 16 equal values has an error of about one unit
    PART = 256  # elements of a block, after which sums may be added up
    SMALL_BYTES = 2048  # copies that take no more are all used
%>
## The elements of one round, of which neighbours go to different copies; those of a later one are asked for meanwhile.
<%def name="one_round(function, first, given=())">
% if spec.streamed:
        // ${spec.round} elements, while memory is asked for those that are read later.
% endif
% for ahead in state.asked_ahead(first):
        CLHIST_AHEAD(${ahead});
% endfor
        #pragma unroll ${spec.unrolled}
        for (int clhist_k = 0; clhist_k < ${spec.round}; ++clhist_k) {
% if state.takes_turns:
            // Neighbouring elements go to different copies, so that an update need not wait for the one before it.
            const size_t clhist_turn = (size_t)(clhist_k & (clhist_turns - 1)) * ${state.stride(spec.outputs[0].suffix)};
% for part in parts:
            ${state.space} cell${part.n}_t *clhist_cells${part.n} = clhist_first_copy${part.n} + clhist_turn;
% endfor
% endif
% if spec.makes_terms and given:
            clhist_add_term(
                clhist_cells${parts[0].n} + ${given[0]},
                clhist_terms + ${state.terms_of("(clhist_round + clhist_k)")});
% else:
${state.map_call(3, lambda a: f"{a.name}[{first} + clhist_k]", f"{first} + clhist_k", function, given)}
% endif
% if state.pairs_of_sums > 1:
${indent(capture(add_up_all), "    ")}\
% endif
        }
</%def>

<%def name="striped()">
<%
    team, is_wide = spec.team_size, spec.vector_width * spec.loads > 1
    begin, end = ("clhist_begin", "clhist_end") if state.has_tasks else ("0", "clhist_size")
    rank, ranks = ("", "") if state.has_tasks else (f"clhist_rank * {team} + ", "clhist_ranks * ")
%>\
% if is_wide:
${wide_loads(spec.team_size, spec.vector_width, spec.loads, begin, end)}
    // What is left, element by element.
% else:
${section.fill("walk_begin")}
% endif
% if is_wide:
    for (clhist_index_t i = clhist_done + ${rank}(clhist_index_t)clhist_lane; i < ${end};
         i += ${ranks}${team}) {
% else:
    for (clhist_index_t i = ${f"{begin} + " * state.has_tasks}${rank}(clhist_index_t)clhist_lane; i < ${end}; i += ${ranks}${team}) {
% endif
% if not is_wide:
${section.fill("tile_begin")}
% endif
${section.fill("elements_begin", 1)}
${section.fill("element_begin", 0)}
${state.map_call(2)}
${section.fill("element_end", 0, 1)}
% if not is_wide:
${section.fill("tile_end")}
% endif
    }
</%def>

## Whole tiles of a team by wide loads, several in flight before the first element is used.
<%def name="wide_loads(team, lanes, loads, begin, end)">
<% tile = team * lanes * loads %>\
% if state.has_tasks:
    // The elements before the first aligned address.
    clhist_index_t clhist_done = min(clhist_end, (clhist_begin + ${lanes - 1}) / ${lanes} * ${lanes});
    for (clhist_index_t i = clhist_begin + (clhist_index_t)clhist_lane; i < clhist_done; i += ${team})
${state.map_call(2)}
    const clhist_index_t clhist_tiles = (clhist_end - clhist_done) / ${tile};
% else:
    const clhist_index_t clhist_tiles = clhist_size / ${tile};
% endif
${section.fill("walk_begin")}
% if state.has_tasks:
    for (clhist_index_t clhist_tile = 0; clhist_tile < clhist_tiles; ++clhist_tile) {
        const clhist_index_t clhist_start
            = clhist_done + clhist_tile * ${tile} + (clhist_index_t)clhist_lane * ${lanes};
% else:
    for (clhist_index_t clhist_tile = clhist_rank; clhist_tile < clhist_tiles; clhist_tile += clhist_ranks) {
        const clhist_index_t clhist_start = clhist_tile * ${tile} + (clhist_index_t)clhist_lane * ${lanes};
% endif
${section.fill("tile_begin")}
% for load in range(loads):
% for argument in streamed:
<% kind = state.loaded_type(argument) %>\
<% begin = f"const {kind} clhist_from_{argument.name}_{load}" %>\
        ${begin} = *(__global const ${kind} *)(${argument.name} + clhist_start + ${load * lanes * team});
% endfor
% endfor
${section.fill("elements_begin", lanes)}
% for load in range(loads):
% if spec.joined > 1:
${joined(lanes, lambda a, lane: f"clhist_from_{a.name}_{load}{state.lane(lane)}", lambda lane: f"clhist_start + {load * lanes * team + lane}")}
<% continue %>\
% endif
% for lane in range(lanes):
${section.fill("element_begin", lane)}
${state.map_call(2, lambda a: f"clhist_from_{a.name}_{load}{state.lane(lane)}", f"clhist_start + {load * lanes * team + lane}")}
${section.fill("element_end", lane, lanes)}
% if spec.warp.reconvergence:
        ${spec.warp.reconvergence};
% endif
% endfor
% endfor
${section.fill("tile_end")}
    }
% if state.has_tasks:
    clhist_done += clhist_tiles * ${tile};
% else:
    const clhist_index_t clhist_done = clhist_tiles * ${tile};
% endif
</%def>

## The elements of one load, whose pairs are joined with those of their neighbours where they have one bin.
<%def name="joined(lanes, element, index)">
<% s = spec.outputs[0].suffix %>\
% for first in range(0, lanes, spec.joined):
        {
            clhist_bin_t clhist_targets[${spec.joined}];
            value${s}_t clhist_values[${spec.joined}];
% for k in range(spec.joined):
<% given = [f"clhist_targets + {k}", f"clhist_values + {k}"] %>\
${state.map_call(3, lambda a: element(a, first + k), index(first + k), "clhist_map_pair", given)}
% endfor
            clhist_emit_joined${s}(clhist_targets, clhist_values, CLHIST_STATE);
        }
% endfor
</%def>
