## Updates aggregated by warp: the work-items of a sub-group that have the same bin update it once, by one of them.
<%include file="strategies/common.mako"/>
% if pragma:
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
% endif

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram\
% if per == "block":
, volatile __local uint *cells\
% endif
)
{
% if per == "block":
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    const uint lane = get_sub_group_local_id();
    const uint steps = (size + get_global_size(0) - 1) / get_global_size(0);
    for (uint step = 0; step < steps; ++step) {
        const uint i = step * get_global_size(0) + get_global_id(0);
        const uint bin = i < size ? bin_of(x[i]) : num_bins;
        int waiting = bin < num_bins;
        // Each round serves the bin of the first that waits: at most as many rounds as there are lanes.
        while (sub_group_any(waiting)) {
            const uint leader = sub_group_reduce_min(waiting ? lane : 0xffffffffu);
            const uint leading = sub_group_broadcast(bin, leader);
            const int is_same = waiting && bin == leading;
            const uint count = sub_group_reduce_add(is_same ? 1u : 0u);
            if (lane == leader)
                atomic_add(&${"cells" if per == "block" else "histogram"}[bin], count);
            waiting = waiting && !is_same;
        }
    }
% if per == "block":
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        if (cells[k])
            atomic_add(&histogram[k], cells[k]);
% endif
}
