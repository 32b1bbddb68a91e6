## RAFT's hash table in local memory: a bin that finds no place within PROBES has the whole work-group write the table to
## the result, and tries again in the empty one. No barrier is conditional: PoCL 3.0 lost counts where one was.
<%include file="strategies/common.mako"/>
#define PLACES ${places}u
#define PROBES ${probes}u
#define FREE 0xffffffffu

uint place_of(volatile __local uint *bins, const uint bin)
{
    uint place = bin % PLACES;
    for (uint k = 0; k < PROBES; ++k) {
        const uint there = atomic_cmpxchg(&bins[place], FREE, bin);
        if (there == FREE || there == bin)
            return place;
        place = place + 1 < PLACES ? place + 1 : 0;
    }
    return FREE;
}

void flush(volatile __local uint *bins, volatile __local uint *counts, volatile __global uint *histogram)
{
    for (uint k = get_local_id(0); k < PLACES; k += get_local_size(0)) {
        if (bins[k] != FREE && counts[k])
            atomic_add(&histogram[bins[k]], counts[k]);
        bins[k] = FREE;
        counts[k] = 0;
    }
}

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *bins,
                              volatile __local uint *counts, volatile __local uint *is_full)
{
    for (uint k = get_local_id(0); k < PLACES; k += get_local_size(0)) {
        bins[k] = FREE;
        counts[k] = 0;
    }
    if (get_local_id(0) == 0)
        is_full[0] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint steps = (size + get_global_size(0) - 1) / get_global_size(0);
    for (uint step = 0; step < steps; ++step) {
        const uint i = step * get_global_size(0) + get_global_id(0);
        const uint bin = i < size ? bin_of(x[i]) : num_bins;
        int waiting = bin < num_bins;
        if (waiting) {
            const uint place = place_of(bins, bin);
            if (place != FREE) {
                atomic_inc(&counts[place]);
                waiting = 0;
            } else
                atomic_xchg(is_full, 1u);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint full = is_full[0];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (full) {
            flush(bins, counts, histogram);
            if (get_local_id(0) == 0)
                is_full[0] = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (waiting) {
            const uint place = place_of(bins, bin);
            if (place != FREE)
                atomic_inc(&counts[place]);
            else // the others of its work-group have filled the places at hand
                atomic_inc(&histogram[bin]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    flush(bins, counts, histogram);
}
