## Under skew, atomic updates of a hot bin serialise. Each work-item therefore accumulates one candidate bin in registers
## and updates the histogram when the candidate changes. In local memory the candidate is the bin whose update just
## failed. In global memory, where every update is slow, a Boyer-Moore majority vote picks it: a value of the candidate
## adds a vote, any other value takes one away, and at zero votes the candidate changes.
<%!
    MOST_VOTES = 8  # a candidate is dropped after at most so many values of other bins
%>

<%def name="accumulate(s)">
void clhist_accumulate(clhist_bin_t bin, accumulator${s}_t lifted, ${state.declared})
{
    if (bin == *clhist_hot_bin) {
% for part in parts:
        (*clhist_hot_value)${part.part.accessor} = clhist_combine${part.n}((*clhist_hot_value)${part.part.accessor}, lifted${part.part.accessor});
% endfor
% if not state.is_local:
        *clhist_votes = min(*clhist_votes + 1, ${MOST_VOTES}u);
% endif
        return;
    }
% if state.is_local:
    if (clhist_try${parts[0].n}(clhist_cells${parts[0].n} + ${state.cell}, ${state.lock_argument(parts[0])}lifted${parts[0].part.accessor}))
        return;
% else:
    if (*clhist_votes > 0) {
        *clhist_votes -= 1;
        clhist_update_bin${s}(bin, lifted, ${state.passed});
        return;
    }
    *clhist_votes = 1;
% endif
    const clhist_bin_t before = *clhist_hot_bin;
    const accumulator${s}_t total = *clhist_hot_value;
    *clhist_hot_bin = bin;
    *clhist_hot_value = lifted;
    if (before < clhist_count${s})  // not so of the bin that is held before the first
        clhist_update_bin${s}(before, total, ${state.passed});
}
</%def>

<%def name="variables()">
    clhist_bin_t clhist_hot_bin[1];
    accumulator${spec.outputs[0].suffix}_t clhist_hot_value[1];
% if not state.is_local:
    uint clhist_votes[1];
% endif
</%def>

## No candidate yet: a bin beyond every histogram. Comes after the last barrier before the updates, since PoCL's compiler
## loses large structs that live across one.
<%def name="start()">
    *clhist_hot_bin = ~(clhist_bin_t)0;
% if not state.is_local:
    *clhist_votes = 0;
% endif
% for part in parts:
    (*clhist_hot_value)${part.part.accessor} = clhist_neutral${part.n}();
% endfor
</%def>

<%def name="finish()">
<% s = spec.outputs[0].suffix %>\
    if (*clhist_hot_bin < clhist_count${s})
        clhist_update_bin${s}(*clhist_hot_bin, *clhist_hot_value, ${state.passed});
</%def>
