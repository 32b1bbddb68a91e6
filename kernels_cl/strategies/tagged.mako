## Shams & Kennedy, method 1 (Listing 2): updates without atomics. Every work-item of a warp writes the increased counter
## with its own number in the upper bits; the one that reads its number back has counted, the others try again.
## The paper relies on warps that run in lockstep. Here barriers take the place of that, so a warp is any WARP work-items
## of a work-group, and all devices are right: everyone has read before anyone writes, and written before anyone looks.
<%include file="strategies/common.mako"/>
<%namespace name="sums" file="strategies/sum_rows.mako"/>
#define WARP ${warp}u
#define WARPS ${warps}u
#define TAG_SHIFT ${tag_shift}u
#define COUNT_MASK ((1u << TAG_SHIFT) - 1u)

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins, const uint first,
                              const uint range, __global uint *copies, volatile __local uint *cells,
                              volatile __local uint *again)
{
    const uint tag = get_local_id(0) % WARP << TAG_SHIFT;
    volatile __local uint *own = cells + get_local_id(0) / WARP * range;
    for (uint k = get_local_id(0); k < WARPS * range; k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint steps = (size + get_global_size(0) - 1) / get_global_size(0);
    uint round = 0, more = 0;
    for (uint step = 0; step < steps; ++step) {
        const uint i = step * get_global_size(0) + get_global_id(0);
        const uint bin = i < size ? bin_of(x[i]) - first : range;
        int waiting = bin < range;
        do {
            const uint tagged = waiting ? tag | (own[bin] & COUNT_MASK) + 1u : 0u;
            if (get_local_id(0) == 0)
                again[round % 2] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (waiting)
                own[bin] = tagged;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (waiting && own[bin] == tagged)
                waiting = 0;
            if (waiting)
                again[round % 2] = 1;
            barrier(CLK_LOCAL_MEM_FENCE);
            more = again[round % 2];
            ++round;
        } while (more);
    }
    for (uint k = get_local_id(0); k < range; k += get_local_size(0)) {
        uint sum = 0;
        for (uint warp = 0; warp < WARPS; ++warp)
            sum += cells[warp * range + k] & COUNT_MASK;
        copies[(ulong)get_group_id(0) * num_bins + first + k] = sum;
    }
}
${sums.sum_rows()}
