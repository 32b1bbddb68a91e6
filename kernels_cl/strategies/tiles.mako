## CUB's agent: work-groups read tiles, a work-item PIXELS neighbouring elements of each at once, and adds up those that
## fall one after the other into one bin, before it updates the copy in local memory; several copies if there is room.
<%include file="strategies/common.mako"/>
#define PIXELS ${pixels}u
#define COPIES ${copies}u

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *cells)
{
    // One word more a copy, so that equal bins of two copies are in different banks.
    volatile __local uint *own = cells + get_local_id(0) % COPIES * (num_bins + 1);
    for (uint k = get_local_id(0); k < COPIES * (num_bins + 1); k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint items = size / PIXELS + (size % PIXELS > 0);
    for (uint item = get_global_id(0); item < items; item += get_global_size(0)) {
        const uint first = item * PIXELS, last = min(first + PIXELS, size);
        uint bin = bin_of(x[first]), length = 1;
        for (uint k = first + 1; k < last; ++k) {
            const uint next = bin_of(x[k]);
            if (next != bin) {
                if (bin < num_bins)
                    atomic_add(&own[bin], length);
                length = 0;
                bin = next;
            }
            ++length;
        }
        if (bin < num_bins)
            atomic_add(&own[bin], length);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint bin = get_local_id(0); bin < num_bins; bin += get_local_size(0)) {
        uint sum = 0;
        for (uint copy = 0; copy < COPIES; ++copy)
            sum += cells[copy * (num_bins + 1) + bin];
        if (sum)
            atomic_add(&histogram[bin], sum);
    }
}
