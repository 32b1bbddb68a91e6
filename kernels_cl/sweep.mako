## The sweep: one pass over the input. The map turns each element into (bin, value) pairs, and each pair
## updates one copy of its bin. One sweep may fill several outputs, each a histogram with its own operator.
## The parts of a product operator have separate arrays and are updated separately.
##
##   launch:  dimension 0 has the work-groups of a pass, dimension 1 has the passes, each over its own range of bins
##
##   elements   0 ............................ N-1        order: walk_blocked.mako (CPUs), walk_striped.mako (GPUs)
##                 \    |    |    |    |    /             map, then update of a cell: update.mako
##   copies     | bins of copy 0 | bins of copy 1 | ...   memory: copies_local.mako, copies_global.mako
##                          |
##   result     combined by the second stage: combine.mako, or here if `spec.writes_results`
##
## Plans: all but SortedPlan and RowsPlan (clhist/_core/model). Paper: SC'20, section III. Decisions 0001 and
## 0007.
##
## This file is the skeleton: functions, then a kernel of five sections (begin, bins, update, end, store). The templates
## of copies, of the walk and of what takes pairs have the same defs each, and the plan chooses one of each
## (clhist/_core/kernels/state.py):
##
##   emit     functions, maps                                  emit.mako, packed.mako
##   copies   memory, cells_and_locks, initialise, flush       copies_*.mako, packed.mako
##   walk     walk                                             walk_*.mako, partitioned.mako
##
## C that depends on one condition is in clhist/_core/kernels/sweep_code.py. A feature of the plan fills these further
## sections by defs of the same name in its template, which section.mako finds:
##
##   batch.mako           helpers and shares, or target
##   long_sums.mako       helpers
##   partitioned.mako     helpers, shares, behind; store (copies_local)
##   packed.mako          combine (combine)
##   narrow.mako          guard; combine (combine)
##   fallback.mako        guard; leave (combine, partition)
##
## Namespaces of features load when they are used, since Mako takes 5 to 45 ms to compile a template.
<%namespace name="types" file="types.mako"/>
<%namespace name="update" file="update.mako"/>
<%namespace name="emit" file="${context['state'].emit_template}"/>
<%namespace name="copies" file="${context['state'].copies_template}"/>
<%namespace name="walk" file="${context['state'].walk_template}"/>
<%namespace name="section" file="section.mako"/>
<%!
    from clhist._core.kernels import sweep_code
    from clhist._core.kernels.state import held_bin, hold_none, update_held_bin
%>\
<%
    declared_types = {}  # structured types that have a C name already
    wide_cells = any(part.part.cell_bytes == 8 or part.update == "native" for part in parts)
%>\
${state.title}
${types.prologue(spec, {output: preamble_of[output] for output in spec.ignored}, declared_types, wide_cells)}

% for output in spec.outputs:
<%types:functions operator="${output.operator}" suffix="${output.suffix}" preamble="${preamble_of[output]}">
% for part in state.parts_of(output):
${types.part(part.part, part.n, c_name, part.combine)}
${update.of(part, state.space, spec.fence, bins_are_computed)}
% endfor
</%types:functions>
% endfor

${state.macros}
${emit.functions()}
${section.fill("helpers")}

## Before the caller's code, whose macros then do not apply to it.
${second_stage}

// The caller's code, and the map of one element to pairs.
${types.caller_code(spec, declare, declared_types)}

${section.fill("target")}
${sweep_code.emit_macros(state)}
void clhist_map(
${state.wrapped([*state.map_parameters, state.map_declared])})
{
    ${map_body};
}
${emit.maps()}

__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_sweep(
${state.wrapped([parameter.declaration for parameter in kernel_parameters])})
{
${section.fill("guard")}
    // Begin: the arrays of the call, and those of the copies.
${types.arrays(spec)}\
${sweep_code.common_factor(state)}
${sweep_code.number_of_item(state)}
${held_bin(state)}
${sweep_code.number_in_team(state)}
${copies.memory()}
% if state.has_section("shares"):
${section.fill("shares", capture(share))}
% else:
${sweep_code.number_of_copy(state)}
${share()}
% endif
${sweep_code.combine_within(state, combining)}
}

${section.fill("behind")}

## What is done with a share of the elements: all sections but the first.
<%def name="share()">

    // Bins: ${state.bins_in_words}.
${sweep_code.ranges_of_bins(state)}
${copies.cells_and_locks()}
${copies.initialise()}
${hold_none(state)}

    // Update: ${state.update_in_words}.
${walk.walk()}
${update_held_bin(state)}
${copies.flush()}
</%def>
