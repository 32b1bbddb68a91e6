## Blog, fifth kernel: each work-item adds up the elements of one bin that it meets one after the other, and updates the
## copy in local memory once for such a run.
<%include file="strategies/common.mako"/>
__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *cells)
{
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint length = 0, previous = 0;
    for (uint i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint bin = bin_of(x[i]);
        if (bin >= num_bins)
            continue;
        if (bin != previous) {
            if (length)
                atomic_add(&cells[previous], length);
            length = 0;
            previous = bin;
        }
        ++length;
    }
    if (length)
        atomic_add(&cells[previous], length);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        if (cells[k])
            atomic_add(&histogram[k], cells[k]);
}
