## The order in which a CPU's work-items visit the elements: each has consecutive ones.
##
##   item 0: 0 1 2 3 ..   |   item 1: n n+1 n+2 ..   |   ..
##
## Loops work in rounds of `spec.round` elements, whose neighbours update different copies. With `spec.block`, one
## loop compares a block of bins, which compilers vectorise, and the next updates without a branch (decision 0003).
##
## Part of sweep.mako. Plans with the order "blocked": PrivatePlan, GlobalPlan on CPUs.
<%!
    from textwrap import indent
    from clhist._core.devices.vendors import POCL
    from clhist._core.kernels.sweep_code import (
        add_up_by_element,
        add_up_by_round,
        begin_sums,
        copies_of_turn,
        end_sums,
        first_copies,
        prefetch,
        range_of_item,
        update_of_element,
    )
    from clhist._core.kernels.state import PART
    from clhist._core.model.feature import RAISED

    SAMPLES = 64  # of four neighbours
    SMALL_BYTES = 2048  # copies that take no more are all used
%>\
<%def name="walk()">
${range_of_item(state)}
${first_copies(state)}
${begin_sums(state)}
% if state.may_use_fewer_turns:
${fewer_turns(spec.indices.name)}
% endif
% if not spec.is_long or spec.block:
#ifndef CLHIST_NO_ROUNDS
% if spec.block:
${in_blocks(spec.outputs[0].suffix, state.word_of_terms, parts[0].part.words)}
% else:
    for (; clhist_last - i >= ${spec.round}; i += ${spec.round}) {
${one_round("clhist_map", "i", spec.round)}
${add_up_by_round(state)}
    }
% endif
#endif
% else:
## A long map takes long to compile: it is there once. Short ones would lose a third of their speed by such a loop.
#ifndef CLHIST_NO_ROUNDS
    for (int clhist_number; i < clhist_last; i += clhist_number) {
        clhist_number = clhist_last - i < ${spec.round} ? (int)(clhist_last - i) : ${spec.round};
${one_round("clhist_map", "i", "clhist_number")}
${add_up_by_round(state)}
    }
#else
% endif
    for (; i < clhist_last; ++i)
${state.map_call(2)}
% if spec.is_long and not spec.block:
#endif
% endif
${end_sums(state)}
</%def>

## Uses fewer copies where a sample of the work-item's elements shows few neighbours with one bin.
<%def name="fewer_turns(name)">
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
</%def>

## Rounds of a block of elements whose bins have been compared with those of the pass.
<%def name="in_blocks(s, word, words)">
    for (; clhist_last - i >= ${spec.block}; i += ${spec.block}) {
% if spec.looks_first:
        // A branch that is always taken costs nothing. Some bins say whether others of these ${spec.block} may be in no pass.
        uint clhist_others = 0;
        #pragma clang loop vectorize_width(16) unroll(disable)
        for (int clhist_k = 0; clhist_k < ${spec.block // 8}; ++clhist_k)
            clhist_others |= CLHIST_BIN(${spec.indices.name}[i + clhist_k]) - clhist_first${s} >= clhist_count${s};
        if (!clhist_others) {
            for (int clhist_round = 0; clhist_round < ${spec.block}; clhist_round += ${spec.round}) {
${indent(capture(one_round, "clhist_map", "i + clhist_round", spec.round), "        ")}
            }
            continue;
        }
% endif
        // ${spec.block} bins are compared with those of the pass by vectors. These bins are what is updated then:
        // somebody may write to the array meanwhile.
        clhist_bin_t clhist_ahead[${spec.block}];
% if state.asks_for_pass:
${compare_or_map(s)}
% else:
${compare(s)}
% endif
% if spec.makes_terms:
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
% if state.adds_up_by_round:
        for (int clhist_part = 0; clhist_part < ${spec.block}; clhist_part += ${PART}) {
${indent(capture(rounds, "clhist_part", f"clhist_part + {PART}"), "    ")}
${indent(add_up_by_round(state), "    ")}
        }
% else:
${rounds("0", spec.block)}
% endif
    }
</%def>

## Compares the bins of a block with those of the pass.
## Unrolled by Intel's compiler before it makes vectors, the loop reads every fourth element.
<%def name="compare(s, behind='')">
        #pragma clang loop vectorize_width(16) unroll(disable)
        for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k) {
            const clhist_bin_t clhist_bin = CLHIST_BIN(${spec.indices.name}[i + clhist_k]) - clhist_first${s};
            clhist_ahead[clhist_k] = clhist_bin < clhist_count${s} ? clhist_bin : clhist_spare;
            ${behind}
        }
</%def>

## The same for a map that asks whether a bin is in the pass: it takes elements one by one unless all are.
<%def name="compare_or_map(s)">
        uint clhist_outside = 0;
${compare(s, f"clhist_outside |= clhist_bin >= clhist_count{s};")}
        if (clhist_outside) {
            for (int clhist_k = 0; clhist_k < ${spec.block}; ++clhist_k)
${state.map_call(4, lambda a: f"{a.name}[i + clhist_k]", "i + clhist_k")}
            continue;
        }
</%def>

## The rounds of a block from element `first` on.
<%def name="rounds(first, end)">
        for (int clhist_round = ${first}; clhist_round < ${end}; clhist_round += ${spec.round}) {
${indent(capture(one_round, "clhist_map_inside", "i + clhist_round", spec.round, ["clhist_ahead[clhist_round + clhist_k]"]), "    ")}
        }
</%def>

## The elements of one round, of which neighbours go to different copies; those of a later one are asked for meanwhile.
<%def name="one_round(function, first, number, leading=())">
${prefetch(state, first)}
        #pragma unroll ${spec.unrolled}
        for (int clhist_k = 0; clhist_k < ${number}; ++clhist_k) {
${copies_of_turn(state)}
${update_of_element(state, function, first, leading)}
${add_up_by_element(state)}
        }
</%def>
