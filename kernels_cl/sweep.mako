## The sweep over the input: every element is mapped to (bin, value) pairs, and each pair updates one copy of its bin.
## A launch has its work-groups along dimension 0; dimension 1 counts the passes, each over its own range of bins.
## One sweep may fill several outputs, each a histogram with its own operator. The parts of a product operator have
## separate arrays and are updated separately.
##
## This file is the skeleton: functions, then a kernel of five sections (begin, bins, update, end, store), which features
## fill or take over by defs of their own templates (section.mako). Those are loaded where they are used: Mako compiles
## each in 5 to 45 ms.
<%namespace name="types" file="types.mako"/>
<%namespace name="update" file="update.mako"/>
<%namespace name="copies" file="copies.mako"/>
<%namespace name="walk" file="walk.mako"/>
<%namespace name="section" file="section.mako"/>
<%!
    from textwrap import indent
%>\
<%
    known = {}  # structured types that have a C name already
    wide_cells = any(part.part.cell_bytes == 8 or part.update == "native" for part in parts)
%>\
${state.title}
${types.prologue(spec, {output: preamble_of[output] for output in spec.ignored}, known, wide_cells)}

% for output in spec.outputs:
<%types:functions operator="${output.operator}" suffix="${output.suffix}" preamble="${preamble_of[output]}">
% for part in parts:
% if part.output is output:
${types.part(part.part, part.n, c_name, part.combine)}
${update.of(part, state.space, spec.fence, bins_are_computed)}
% if spec.hot_bin and state.is_local:
${update.attempt(part, state.space, spec.fence)}
% endif
% endif
% endfor
</%types:functions>
% endfor

${state.macros}
% for output in spec.outputs:
<% s = output.suffix %>\
% if state.taken("emit"):
${section.fill("emit", s)}
% else:
${functions(output, s)}
% endif
% endfor
${section.fill("helpers")}
% if state.sums:

// A sum and what rounding lost of it; the sign of a zero stays, which says whether a bin has values.
double clhist_corrected(const double sum, const double lost)
{
    return lost == 0 ? sum : sum + lost;
}
% endif
% for part, accessor, name in state.sums:

// Adds the sums of several copies to longer ones, and what rounding loses to further sums behind those.
void ${name}_add(
    __global cell${part.n}_t *restrict cells, __global double *restrict sums, const uint turns, const size_t stride,
    const size_t count)
{
    for (uint turn = 1; turn < turns; ++turn) {
        __global cell${part.n}_t *restrict others = cells + turn * stride;
        #pragma clang loop vectorize(enable)
        for (size_t k = 0; k < count; ++k) {
            cells[k].value${accessor} += others[k].value${accessor};
            others[k].value${accessor} = clhist_neutral${part.n}()${accessor};
        }
    }
    __global double *restrict losses = sums + stride;
    #pragma clang loop vectorize(enable)
    for (size_t k = 0; k < count; ++k) {
        const double a = sums[k], b = cells[k].value${accessor}, sum = a + b, rest = sum - a;
        const double lost = (a - (sum - rest)) + (b - rest);
        sums[k] = sum;
        losses[k] += sum - sum == 0 ? lost : 0;  // of infinities nothing is lost
        cells[k].value${accessor} = clhist_neutral${part.n}()${accessor};
    }
}
% endfor

% if spec.writes_results:
## Before the caller's code, whose macros then do not apply to it.
${second_stage}
% endif

// The caller's code, and the map of one element to pairs.
${types.caller_code(spec, declare, known)}

${section.fill("target")}
% for output in spec.outputs:
${state.emit_macro(output)}
% endfor
void clhist_map(
${state.wrapped([*state.map_parameters, state.map_declared])})
{
    ${map_body};
}
% if spec.joined > 1:
<% output = spec.outputs[0] %>\
// The same for an element whose pair is joined with those of its neighbours.
#undef EMIT${output.suffix}
#define EMIT${output.suffix}(bin, value) (*clhist_target = ${state.target_of(output)}, *clhist_value = (value))
void clhist_map_pair(
${state.wrapped(["clhist_bin_t *clhist_target", f"value{output.suffix}_t *clhist_value", *state.map_parameters, state.map_declared])})
{
    *clhist_target = ~(clhist_bin_t)0;  // none
    ${map_body};
}
% endif
${section.fill("map_ahead")}
% if spec.block:
<%
    s, taken = spec.outputs[0].suffix, ["const clhist_bin_t clhist_target"]
    if spec.makes_terms:
        taken = [f"{state.word_of_terms} *clhist_parts", "uint *clhist_flags"]
%>\
% if spec.makes_terms:
// The same for the term of an element, which is added later.
% else:
// The same for an element whose bin has been compared with those of the pass.
% endif
#undef EMIT${s}
% if spec.makes_terms:
#define EMIT${s}(bin, value) clhist_make_term(clhist_parts, clhist_flags, (value), clhist_base, clhist_most)
% else:
#define EMIT${s}(bin, value) clhist_emit_inside${s}(clhist_target, (value), CLHIST_STATE)
% endif
% if "CLHIST_IN_PASS" in spec.map:
#undef CLHIST_IN_PASS
#define CLHIST_IN_PASS(bin, num_bins) true
% endif
${state.inlined}void clhist_map_inside(
${state.wrapped([*taken, *state.map_parameters, "CLHIST_STATE_PARAMETERS"])})
{
    ${map_body};
}
% endif

__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_sweep(
${state.wrapped([parameter.declaration for parameter in kernel_parameters])})
{
${section.fill("guard")}
    // Begin: the arrays of the call, and those of the copies.
${types.arrays(spec)}\
% if spec.factor:
    const accumulator${spec.outputs[0].suffix}_t clhist_factor = clhist_lift${spec.outputs[0].suffix}(${spec.factor});  // of all pairs
% endif
% if state.needs_items:
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
% endif
${section.fill("begin")}
    const uint clhist_lane = get_local_id(0)${"" if spec.team_size == spec.work_group_size else f" % {spec.team_size}"};
% if state.is_local:
${copies.pool()}
% endif
${copies.arrays()}
% if state.taken("shares"):
${section.fill("shares", capture(share))}
% else:
% if spec.order != "blocked":
    const clhist_index_t clhist_rank = (clhist_index_t)get_group_id(0);
    const clhist_index_t clhist_ranks = (clhist_index_t)get_num_groups(0);
% endif
    const size_t clhist_slot = ${"get_group_id(0)" if state.is_local else "clhist_item * clhist_copies / clhist_items"};
% if state.takes_turns:
    ${"const " * (not state.may_use_fewer_turns)}uint clhist_turns = clhist_copies / (uint)clhist_items;  // copies that neighbouring elements go to in turn
% endif
${share()}
% endif
% if spec.fused_combine:

    // All copies are of this one work-group, so that a barrier is enough before it combines them.
% if spec.work_group_size > 1:
    barrier(CLK_GLOBAL_MEM_FENCE);
% endif
    clhist_combine_bins(
${state.wrapped(["get_local_id(0)", "clhist_num_bins", str(spec.work_group_size), *combining], "        ")});
% endif
}

${section.fill("behind")}

## What is done with a share of the elements: all sections but the first.
<%def name="share()">

    // Bins: ${state.bins_in_words}.
${copies.bins()}
${copies.cells_and_locks()}
${copies.initialise()}
${section.fill("find")}
${section.fill("start")}

    // Update: ${state.update_in_words}.
% if state.taken("walk"):
${section.fill("walk")}
% elif spec.order == "blocked":
${walk.blocked()}
% else:
${walk.striped()}
% endif
${section.fill("end")}
% if state.is_local:

    // Store: the copies of ${"each team" if spec.teams > 1 else "the work-group"}, combined, in global memory.
${copies.flush()}
% endif
</%def>

## The functions that one output needs: an update of a bin, and what an EMIT calls.
<%def name="functions(output, s)">
// Combines a value into a bin of ${state.copy_in_words}.
${state.inlined}void clhist_update_bin${s}(const clhist_bin_t bin, const ${state.taken_type(output)} lifted, CLHIST_STATE_PARAMETERS)
{
% for part in parts:
% if part.output is output:
${state.update_call(part)}
% endif
% endfor
}
${section.fill("functions", s)}
% if spec.in_range or (spec.block and not spec.makes_terms):
// An update of a bin that is in the pass${": every bin that the map emits is" if spec.in_range else ", as has been compared"}.
${state.inlined}void clhist_emit${"" if spec.in_range else "_inside"}${s}(
    const clhist_bin_t bin, const value${s}_t value, CLHIST_STATE_PARAMETERS)
{
${take(output, s)}
}
% endif
% if not spec.in_range:
// Takes a pair of the map, if its bin is in this pass.
void clhist_emit${s}(const clhist_bin_t target, const value${s}_t value, CLHIST_STATE_PARAMETERS)
{
${bin_of(s)}\
    if (bin < clhist_count${s}) {
${indent(capture(take, output, s), "    ")}
    }
}
% endif
% if spec.joined > 1:
<% neighbours = range(spec.joined) %>\

// Takes the pairs of ${spec.joined} neighbours: by one update if all have one bin, as in sorted input and in hot bins.
void clhist_emit_joined${s}(const clhist_bin_t *targets, const value${s}_t *values, CLHIST_STATE_PARAMETERS)
{
    const clhist_bin_t target = targets[0];
    if (${" || ".join(f"targets[{k}] != target" for k in neighbours[1:])}) {
% for k in neighbours:
        clhist_emit${s}(targets[${k}], values[${k}], CLHIST_STATE);
% endfor
        return;
    }
${bin_of(s)}\
    if (bin < clhist_count${s}) {
% for part in parts:
${indent(state.update_call(part, "_joined", "values"), "    ")}
% endfor
    }
}
% endif
</%def>

## The number within the pass of the bin `target`.
<%def name="bin_of(s)">\
% if state.taken("bin_of"):
${section.fill("bin_of", s)}
% else:
    const clhist_bin_t bin = target - clhist_first${s};  // unsigned: what lies before the first is beyond the last
% endif
</%def>

## What is done with a pair whose bin is in the pass.
<%def name="take(output, s)">
% if state.taken("take"):
${section.fill("take", s)}
% else:
    clhist_update_bin${s}(bin, ${state.lifted(output, "value")}, CLHIST_STATE);
% endif
</%def>
