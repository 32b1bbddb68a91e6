## A second kernel of strategies without atomics: a work-item sums what all copies have of one bin.
<%def name="sum_rows()">
__kernel void clhist_sum(__global const uint *copies, const uint num_copies, const uint bin_stride,
                         const uint copy_stride, const uint num_bins, __global uint *histogram)
{
    const uint bin = get_global_id(0);
    if (bin >= num_bins)
        return;
    uint sum = 0;
    for (uint k = 0; k < num_copies; ++k)
        sum += copies[(ulong)bin * bin_stride + (ulong)k * copy_stride];
    histogram[bin] = sum;
}
</%def>
