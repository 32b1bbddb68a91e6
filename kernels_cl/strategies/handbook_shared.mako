## CUDA Handbook, one histogram for the grid or for each block: four neighbouring elements are read at once.
<%include file="strategies/common.mako"/>
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
    for (uint i = get_global_id(0); i < size / 4; i += get_global_size(0)) {
        const ${element}4 four = vload4(i, x);
% for name in "s0", "s1", "s2", "s3":
        if (bin_of(four.${name}) < num_bins)
            atomic_inc(&${"cells" if per == "block" else "histogram"}[bin_of(four.${name})]);
% endfor
    }
    const uint rest = size / 4 * 4 + get_global_id(0);
    if (rest < size && bin_of(x[rest]) < num_bins)
        atomic_inc(&histogram[bin_of(x[rest])]);
% if per == "block":
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0))
        if (cells[k])
            atomic_add(&histogram[k], cells[k]);
% endif
}
