## One hot bin in registers: a work-item combines the values of one bin there, so that it updates the copy
## once.
##
##   registers of a work-item   | hot bin | its value | votes |
##   next pair     same bin: combine in registers       other bin: update its cell, or become the hot bin
##
## In local memory a bin becomes hot if its first compare-exchange or lock fails, so uniform input pays
## nothing. In global memory a Boyer-Moore majority vote chooses it.
##
## Feature: HotBin (clhist/_core/model/feature.py), for updates that wait. Decision 0005.
<%!
    from clhist._core.kernels.state import hot_value
    MOST_VOTES = 8  # a candidate is dropped after at most so many values of other bins
%>

<%def name="functions(s)">
// Updates of one bin wait for each other, so each work-item holds one bin in registers:
// ${"the last whose update failed" if state.is_local else "the majority's, by votes"}. What it held before is updated then.
void clhist_accumulate(clhist_bin_t bin, accumulator${s}_t lifted, CLHIST_STATE_PARAMETERS)
{
    if (bin == *clhist_hot_bin) {
% for part in parts:
        ${hot_value(part.part.accessor)} = clhist_combine${part.n}(${hot_value(part.part.accessor)}, lifted${part.part.accessor});
% endfor
% if not state.is_local:
        *clhist_votes = min(*clhist_votes + 1, ${MOST_VOTES}u);
% endif
        return;
    }
% if state.is_local:
<% part = parts[0] %>\
% if part.update == "lock":
    if (clhist_try${part.n}(
            clhist_cells${part.n} + ${state.cell},
            ${state.lock_argument(part).rstrip()}
            lifted${part.part.accessor}))
        return;
% else:
    if (clhist_try${part.n}(clhist_cells${part.n} + ${state.cell}, lifted${part.part.accessor}))
        return;
% endif
% else:
    // The candidate stays while it has votes: this pair takes one, and updates its own bin in memory.
    if (*clhist_votes > 0) {
        *clhist_votes -= 1;
        clhist_update_bin${s}(bin, lifted, CLHIST_STATE);
        return;
    }
    *clhist_votes = 1;
% endif
    const clhist_bin_t before = *clhist_hot_bin;
    const accumulator${s}_t total = *clhist_hot_value;
    *clhist_hot_bin = bin;
    *clhist_hot_value = lifted;
    if (before < clhist_count${s})  // not so of the bin that is held before the first
        clhist_update_bin${s}(before, total, CLHIST_STATE);
}
</%def>
