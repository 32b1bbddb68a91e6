## Blog, second kernel: neighbouring work-items read neighbouring elements, and update the result themselves.
<%include file="strategies/common.mako"/>
__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram)
{
    for (uint i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint bin = bin_of(x[i]);
        if (bin < num_bins)
            atomic_inc(&histogram[bin]);
    }
}
