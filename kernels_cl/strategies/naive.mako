## Blog, first kernel: each work-item reads a section of neighbouring elements and updates the result itself.
<%include file="strategies/common.mako"/>
__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram)
{
    const uint section = size / get_global_size(0) + 1;
    const uint first = min((uint)get_global_id(0) * section, size);
    const uint last = min(first + section, size);
    for (uint k = first; k < last; ++k) {
        const uint bin = bin_of(x[k]);
        if (bin < num_bins)
            atomic_inc(&histogram[bin]);
    }
}
