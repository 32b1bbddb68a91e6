## Guards of the kernels behind packed counters or narrow sums: they compute only if those raised their flag.
##
##   clhist_call   word 0: the flag, up if it is RAISED     word 1: whether the fallback ran, for the second stage
##
## Features: Fallback (packed.mako), SeparateFallback (narrow.mako, rows_at_once.mako). Decisions 0006 and
## 0012.
<%!
    from clhist._core.model.feature import RAISED
%>
## Of the sweep: the second stage asks whether this was called; it lowers the flag itself.
<%def name="guard(feature)">
    // What was tried before this has raised its flag if it gave up; otherwise nothing is to be done.
% if not feature.is_apart:
    __global uint *clhist_call = (__global uint *)(clhist_scratch + clhist_flag_place);
% endif
    const bool clhist_is_called = clhist_call[0] == ${hex(RAISED)}u;
    if (get_global_id(0) == 0 && get_global_id(1) == 0)
        clhist_call[1] = clhist_is_called;
    if (!clhist_is_called)
        return;
</%def>

## Of what comes before the sweep, and of a second stage.
<%def name="leave(feature)">
    if (*${"clhist_call" if feature.is_apart else "(__global const uint *)(clhist_scratch + clhist_flag_place)"} != ${hex(RAISED)}u)
        return;
</%def>
