## RAFT's packed counters: a copy in local memory that a work-group shares, with BITS bits a counter. A counter that
## overflows carries into the next of its word: what it lost is added to the result, what it carried is taken back.
<%include file="strategies/common.mako"/>
#define BITS ${bits}u
#define PACKED ${32 // bits}u
#define FULL ${hex(2**bits - 1)}u

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *cells)
{
    for (uint k = get_local_id(0); k < (num_bins + PACKED - 1) / PACKED; k += get_local_size(0))
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint bin = bin_of(x[i]);
        if (bin >= num_bins)
            continue;
% if bits == 1:
        // An exclusive or carries nothing.
        if (atomic_xor(&cells[bin / 32], 1u << bin % 32) >> bin % 32 & 1u)
            atomic_add(&histogram[bin], 2u);
% else:
        const uint one = 1u << bin % PACKED * BITS;
        const uint sum = atomic_add(&cells[bin / PACKED], one) + one;
        for (uint place = bin % PACKED, at = bin; (sum >> place * BITS & FULL) == 0;) {
            atomic_add(&histogram[at], FULL + 1u);
            ++place;
            ++at;
            if (place == PACKED || at >= num_bins)
                break;
            atomic_sub(&histogram[at], 1u);
        }
% endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = get_local_id(0); k < num_bins; k += get_local_size(0)) {
        const uint count = cells[k / PACKED] >> k % PACKED * BITS & FULL;
        if (count)
            atomic_add(&histogram[k], count);
    }
}
