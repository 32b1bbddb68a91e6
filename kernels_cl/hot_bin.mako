## Under skew, atomic updates of a hot bin serialise. Each work-item therefore accumulates one candidate bin in registers
## and updates the histogram when the candidate changes. In local memory the candidate is the bin whose update just
## failed. In global memory, where every update is slow, a Boyer-Moore majority vote picks it: a value of the candidate
## adds a vote, any other value takes one away, and at zero votes the candidate changes.
## Note [One held bin], docs/decisions/0005.
<%!
    MOST_VOTES = 8  # a candidate is dropped after at most so many values of other bins
%>

<%def name="functions(feature, s)">
// Updates of one bin wait for each other, so each work-item holds one bin in registers:
// ${"the last whose update failed" if feature.is_local else "the majority's, by votes"}. What it held before is updated then.
void clhist_accumulate(clhist_bin_t bin, accumulator${s}_t lifted, CLHIST_STATE_PARAMETERS)
{
    if (bin == *clhist_hot_bin) {
% for part in parts:
<% held = f"(*clhist_hot_value){part.part.accessor}" if part.part.accessor else "*clhist_hot_value" %>\
        ${held} = clhist_combine${part.n}(${held}, lifted${part.part.accessor});
% endfor
% if not feature.is_local:
        *clhist_votes = min(*clhist_votes + 1, ${MOST_VOTES}u);
% endif
        return;
    }
% if feature.is_local:
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

<%def name="take(feature, s)">
    clhist_accumulate(bin, clhist_lift${s}(value), CLHIST_STATE);
</%def>

<%def name="begin(feature)">
    clhist_bin_t clhist_hot_bin[1];
    accumulator${spec.outputs[0].suffix}_t clhist_hot_value[1];
% if not feature.is_local:
    uint clhist_votes[1];
% endif
</%def>

## Comes after the last barrier before the updates, since PoCL's compiler loses large structs that live across one.
<%def name="start(feature)">
    // No bin is held yet: this number is beyond every histogram.
    *clhist_hot_bin = ~(clhist_bin_t)0;
% if not feature.is_local:
    *clhist_votes = 0;
% endif
% for part in parts:
    ${f'(*clhist_hot_value){part.part.accessor}' if part.part.accessor else '*clhist_hot_value'} = clhist_neutral${part.n}();
% endfor
</%def>

<%def name="end(feature)">
<% s = spec.outputs[0].suffix %>\
    // End: the bin that is still held.
    if (*clhist_hot_bin < clhist_count${s})
        clhist_update_bin${s}(*clhist_hot_bin, *clhist_hot_value, CLHIST_STATE);
</%def>
