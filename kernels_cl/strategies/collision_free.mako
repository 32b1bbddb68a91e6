## Shams & Kennedy, method 2: a histogram in global memory for each work-item, whose counters it increases in local
## memory, packed with BITS bits each (equation 2); one that is full goes to global memory. No two work-items ever share
## a counter.
<%include file="strategies/common.mako"/>
<%namespace name="sums" file="strategies/sum_rows.mako"/>
% if bits:
#define BITS ${bits}u
#define PACKED ${32 // bits}u
#define FULL ${hex(2**bits - 1)}u
% endif

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              __global uint *copies\
% if bits:
, volatile __local uint *cells\
% endif
)
{
    const uint t = get_local_id(0), group = get_local_size(0);
    volatile __global uint *own = copies + get_global_id(0);
% if bits:
    for (uint k = 0; k < (num_bins + PACKED - 1) / PACKED; ++k)
        cells[k * group + t] = 0;
% endif
    for (uint i = get_global_id(0); i < size; i += get_global_size(0)) {
        const uint bin = bin_of(x[i]);
        if (bin >= num_bins)
            continue;
% if bits:
        volatile __local uint *word = &cells[bin / PACKED * group + t];
        const uint old = *word, shift = bin % PACKED * BITS;
        if ((old >> shift & FULL) == FULL) {
            *word = old & ~(FULL << shift);
            own[(ulong)bin * get_global_size(0)] += FULL + 1u;
        } else
            *word = old + (1u << shift);
% else:
        own[(ulong)bin * get_global_size(0)] += 1;
% endif
    }
% if bits:
    for (uint bin = 0; bin < num_bins; ++bin)
        own[(ulong)bin * get_global_size(0)] += cells[bin / PACKED * group + t] >> bin % PACKED * BITS & FULL;
% endif
}
${sums.sum_rows()}
