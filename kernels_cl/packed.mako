## Counts in 16 bits: two counters share one 32-bit word of local memory, so twice as many bins fit.

## A work-item that sees its counter at 0x8000 or more moves 0x8000 to global memory, or waits until another has done so.
## A counter thus exceeds 0x8000 by at most one for each work-item, and never carries into its neighbour.
<%def name="emit(s)">
void clhist_emit${s}(const clhist_bin_t bin, const value${s}_t value, ${state.declared})
{
    if (bin < clhist_count${s}) {
        volatile __local uint *word = clhist_words + bin / 2;
        const uint shift = bin % 2 * 16;
        uint seen = atomic_add(word, 1u << shift) + (1u << shift);
        while (seen >> shift & 0x8000) {
            const uint found = atomic_cmpxchg(word, seen, seen - (0x8000u << shift));
            if (found == seen) {
                atomic_add(clhist_beyond + bin, 0x8000u);
                break;
            }
            seen = found;
        }
    }
}
</%def>

<%def name="clear(s)">
    for (uint k = clhist_lane; k < (clhist_count${s} + 1) / 2; k += ${spec.team_size})
        clhist_words[k] = 0;
</%def>

## What is left in the counters; the halves that were moved are added when the copies are combined.
<%def name="flush(s)">
    __global cell0_t *clhist_result = clhist_all0 + clhist_slot * clhist_num_bins${s};
    for (uint k = clhist_lane; k < clhist_count${s}; k += ${spec.team_size})
        clhist_result[k].word = clhist_words[k / 2] >> k % 2 * 16 & 0xffff;
</%def>
