## Blog, fourth kernel: a copy in the registers of each work-item, then one in local memory. The published kernel adds to
## local memory that was never set to zero, and reads it without a barrier: both are fixed here.
## Loops over local memory have no constant bound: with one bin, PoCL 3.0 compiles such a loop into code that crashes.
<%include file="strategies/common.mako"/>
__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *cells)
{
    uint own[${num_bins}];
    for (uint k = 0; k < ${num_bins}; ++k)
        own[k] = 0;
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint bin = bin_of(x[i]);
        if (bin < ${num_bins})
            ++own[bin];
    }
    for (uint k = 0; k < ${num_bins}; ++k)
        if (own[k])
            atomic_add(&cells[k], own[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        if (cells[k])
            atomic_add(&histogram[k], cells[k]);
}
