## The functions that take the pairs of a map: an update of a bin, what an EMIT calls, and further forms of the map.
##
##   map -> EMIT(bin, value) -> clhist_emit: is the bin in this pass? -> clhist_update_bin: its cell of each part
##
##   joined    pairs of neighbours with one bin are one update (GPUs, exact sums)
##   inside    a CPU has compared the bins of a block before, so that an update needs no branch (decision 0003)
##
## Part of sweep.mako, for all plans but PackedPlan, whose packed.mako has the same defs.
<%!
    from textwrap import indent
    from clhist._core.kernels.sweep_code import (
        bin_in_pass,
        emit_with_comparison,
        emit_without_comparison,
        map_inside,
        map_pair,
        updates,
    )
%>\
<%def name="functions()">
% for output in spec.outputs:
${functions_of(output, output.suffix)}
% endfor
</%def>

<%def name="functions_of(output, s)">
// Combines a value into a bin of ${state.copy_in_words}.
${state.inlined}void clhist_update_bin${s}(const clhist_bin_t bin, const ${state.taken_type(output)} lifted, CLHIST_STATE_PARAMETERS)
{
${updates(state, output)}
}
% if spec.hot_bin:
${local.get_namespace("hot_bin.mako").functions(s)}
% endif
${emit_without_comparison(state, output)}
${emit_with_comparison(state, output)}
% if spec.joined > 1:
${joined(output, s, range(spec.joined))}
% endif
</%def>

<%def name="joined(output, s, neighbours)">
// Takes the pairs of ${spec.joined} neighbours: by one update if all have one bin, as in sorted input and in hot bins.
void clhist_emit_joined${s}(const clhist_bin_t *targets, const value${s}_t *values, CLHIST_STATE_PARAMETERS)
{
    const clhist_bin_t target = targets[0];
    if (${" || ".join(f"targets[{k}] != target" for k in neighbours[1:])}) {
${"\n".join(f"        clhist_emit{s}(targets[{k}], values[{k}], CLHIST_STATE);" for k in neighbours)}
        return;
    }
${bin_in_pass(state, s)}
    if (bin < clhist_count${s}) {
${indent(updates(state, output, "_joined", "values"), "    ")}
    }
}
</%def>

## Further forms of the map, with another EMIT.
<%def name="maps()">
${map_pair(state, map_body)}
${map_inside(state, map_body)}
</%def>
