## Kernels that are enqueued behind narrow counters, and compute only if these raised their flag: see packed.mako.
<%!
    from clhist.planning.packed import RAISED
%>
## Of the sweep: the second stage asks whether this was called; it lowers the flag itself.
<%def name="guard(feature)">
    // Narrow counters, before this, have raised their flag if they gave up; otherwise nothing is to be done.
    __global uint *clhist_call = (__global uint *)(clhist_scratch + clhist_flag_place);
    const bool clhist_is_called = clhist_call[0] == ${hex(RAISED)}u;
    if (get_global_id(0) == 0 && get_global_id(1) == 0)
        clhist_call[1] = clhist_is_called;
    if (!clhist_is_called)
        return;
</%def>

## Of what comes before the sweep.
<%def name="leave()">
    if (*(__global const uint *)(clhist_scratch + clhist_flag_place) != ${hex(RAISED)}u)
        return;
</%def>
