## Lists the keys in the table of keys.mako in their order, or in that of their first positions, and numbers
## them.
##
##   slots      | share of group 0 | share of group 1 | ..     tally: keys of each share
##   list       the words of occupied slots, compacted by a scan; the host then sorts them
##   rank       slot -> number, number -> key and first position
##
## Included by keys.mako. Decision 0019.
<%namespace name="scan" file="scan.mako"/>
// How many slots of each share have a key; state[0] is how many there are in all of them.
__kernel ${alone}void clhist_tally(
    __global const slot_t *table, const uint num_slots, const uint share, const ulong least,
    __global volatile uint *state, __global uint *tallies)
{
    __local uint tally;
    const ulong begin = (ulong)get_group_id(0) * share, end = min((ulong)num_slots, begin + share);
    if (get_local_id(0) == 0) tally = 0;
    // Barrier: the counter is 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint mine = 0;
    for (ulong s = begin + get_local_id(0); s < end; s += get_local_size(0)) mine += CLHIST_IS_KEY(s) ? 1 : 0;
    atomic_add(&tally, mine);
    // Barrier: all slots are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        tallies[get_group_id(0)] = tally;
% if spec.marked:
        atomic_add(state, tally);
% endif
    }
}

// The slots that have a key, in their order, with what sorts them: their words, or their first positions.
__kernel ${alone}void clhist_list(
    __global const slot_t *table, const uint num_slots, const uint share, const ulong least,
    __global const uint *state, __global const uint *tallies, __global const uint *first, const uint by_first,
    __global word_t *sorts, __global uint *places)
{
    __local uint sums[CLHIST_LANES], found;
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const ulong begin = (ulong)get_group_id(0) * share, end = min((ulong)num_slots, begin + share);
    if (lane == 0) found = 0;
    // Barrier: the counter is 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint before = 0;
    for (uint g = lane; g < get_group_id(0); g += lanes) before += tallies[g];
    atomic_add(&found, before);
    // Barrier: the slots of all groups before are added up.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint next = found;
    for (ulong from = begin; from < end; from += CLHIST_EACH * lanes) {
        uint mine = 0;
        for (uint k = 0; k < CLHIST_EACH; ++k) {
            const ulong s = from + lane * CLHIST_EACH + k;
            mine += s < end && CLHIST_IS_KEY(s) ? 1 : 0;
        }
        sums[lane] = mine;
        ${scan.inclusive("sums", "lane", "lanes")}
        uint at = next + sums[lane] - mine;
        next += sums[lanes - 1];
        // Barrier: all have read the sums before the next block overwrites them.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; mine && k < CLHIST_EACH; ++k) {
            const ulong s = from + lane * CLHIST_EACH + k;
            if (s < end && CLHIST_IS_KEY(s)) {
                sorts[at] = by_first ? (word_t)first[s] : CLHIST_WORD(s);
                places[at++] = (uint)s;
            }
        }
    }
}

// The number of each slot, and the key and the first position of each number, from the slots in their order, and their
// words, if they were sorted by these.
__kernel ${alone}void clhist_rank(
    __global const slot_t *table, const ulong least, __global const word_t *sorts, const uint by_words,
    __global const uint *places, const uint size, __global const uint *first, __global uint *ranks, __global key_t *labels, __global long *positions)
{
    for (uint n = get_global_id(0); n < size; n += get_global_size(0)) {
        const uint s = places[n];
        const word_t w = by_words ? sorts[n] : CLHIST_WORD(s);
        ranks[s] = n;
        labels[n] = CLHIST_IS_MISSING(s) ? ${spec.missing_bits} : ${spec.decoded};
% if spec.first:
        positions[n] = first[s];
% endif
    }
}
