## Blog, third kernel: a copy in the local memory of each work-group, added to the result at the end.
<%include file="strategies/common.mako"/>
__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *cells)
{
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint bin = bin_of(x[i]);
        if (bin < num_bins)
            atomic_inc(&cells[bin]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        if (cells[k])
            atomic_add(&histogram[k], cells[k]);
}
