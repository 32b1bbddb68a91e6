## A sorted sample of keys.
##
##   input     share 0: one key | share 1: one key | ..       a pseudo-random place in each share
##   chunks    each work-group sorts CLHIST_CHUNK words in local memory (bitonic), then all chunks are put in order
##
## Included by sampled_keys.mako. Note [Sampled keys], docs/decisions/0019.
#define CLHIST_CHUNK ${chunk}
#define CLHIST_BITS ${bits}

// Chunks of the words of elements, one somewhere in each share of them, each in order; empty ones are behind them. Of the
// others, how many are like an empty slot, and how many have no key.
__kernel void clhist_sample(
    __global const char *keys_base, const ulong keys_offset, const long size, const uint samples, const ulong seed,
    __global word_t *chunks, __global uint *others, __global uint *bits, __global uint *state)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local word_t chunk[CLHIST_CHUNK];
    __local uint local_others[2];
    const uint lane = get_local_id(0), lanes = get_local_size(0), begin = get_group_id(0) * CLHIST_CHUNK;
    const ulong share = size / samples;
    if (get_group_id(0) == 0 && lane < ENDS) state[lane] = 0;
    for (uint k = get_global_id(0); k < CLHIST_BITS / 32; k += get_global_size(0)) bits[k] = 0;
    if (lane < 2) local_others[lane] = 0;
    // Barrier: the counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint missing = 0, ones = 0;
    for (uint k = lane; k < CLHIST_CHUNK; k += lanes) {
        word_t w = CLHIST_EMPTY;
        if (begin + k < samples) {
            const key_t b = keys[(begin + k) * share + clhist_hash((word_t)(begin + k), seed) % share];
            const bool is_missing = ${spec.is_missing};
            if (!is_missing) w = ${spec.encoded};
            missing += is_missing;
            ones += !is_missing && w == CLHIST_EMPTY;
        }
        chunk[k] = w;
    }
    if (ones) atomic_add(local_others, ones);
    if (missing) atomic_add(local_others + 1, missing);
    // A bitonic sort.
    for (uint both = 2; both <= CLHIST_CHUNK; both *= 2) {
        for (uint apart = both / 2; apart > 0; apart /= 2) {
            // Barrier: the step before has exchanged its pairs.
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = lane; k < CLHIST_CHUNK / 2; k += lanes) {
                const uint low = 2 * k - (k & (apart - 1)), high = low + apart;
                const word_t one = chunk[low], other = chunk[high];
                if ((one > other) == !(low & both)) {
                    chunk[low] = other;
                    chunk[high] = one;
                }
            }
        }
    }
    // Barrier: the chunk is in order.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = lane; k < CLHIST_CHUNK; k += lanes) chunks[begin + k] = chunk[k];
    if (lane < 2) others[2 * get_group_id(0) + lane] = local_others[lane];
}

// All chunks in order; the different words, as many as may be known, in any. A few work-items share the chunks in which a
// word is searched. The work-groups behind set bits by the hash of more elements' keys, which say how many differ (linear
// counting, Whang, Vander-Zanden and Taylor 1990).
__kernel void clhist_merge(
    __global const char *keys_base, const ulong keys_offset, const long size_of_keys, const uint more, const ulong seed,
    __global const word_t *chunks, __global const uint *others, const uint size, const uint samples,
    __global word_t *sorted, __global word_t *different, __global volatile uint *bits, __global volatile uint *state)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local uint ranks[${most_lanes // merging}], alike[${most_lanes // merging}], added, alone, at, ones, missing, set, seen;
    const uint lane = get_local_id(0), lanes = get_local_size(0), words = max(lanes / ${merging}, 1u), groups = size / words;
    if (lane < words) ranks[lane] = alike[lane] = 0;
    if (lane == 0) added = alone = ones = missing = set = seen = 0;
    // Barrier: ranks and counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool is_merging = get_group_id(0) < groups, is_mine = is_merging && lane < words;
    const uint n = is_merging ? get_group_id(0) * words + lane % words : 0, own = n / CLHIST_CHUNK;
    const word_t w = chunks[n];
    if (is_merging) {
        for (uint c = lane; c < size / CLHIST_CHUNK; c += lanes) {
            if (others[2 * c]) atomic_add(&ones, others[2 * c]);
            if (others[2 * c + 1]) atomic_add(&missing, others[2 * c + 1]);
        }
        // How many of each other chunk are before: of words that are alike those of chunks before come first.
        uint before = 0, mine = 0;
        for (uint c = lane / words; c < size / CLHIST_CHUNK; c += lanes / words) {
            __global const word_t *chunk = chunks + c * CLHIST_CHUNK;
            uint rank = 0;
            for (uint step = CLHIST_CHUNK / 2; step > 0; step /= 2) {
                const word_t other = chunk[rank + step - 1];
                rank += other < w || (c < own && other == w) ? step : 0;
            }
            const word_t last = chunk[rank];
            rank += last < w || (c < own && last == w) ? 1 : 0;
            if (c < own && rank > 0 && chunk[rank - 1] == w) mine |= 1;
            if (c > own && rank < CLHIST_CHUNK && chunk[rank] == w) mine |= 2;
            before += c == own ? n % CLHIST_CHUNK : rank;
        }
        atomic_add(ranks + lane % words, before);
        if (mine) atomic_or(alike + lane % words, mine);
    } else {
        const ulong share = size_of_keys / more;
        uint set_here = 0, seen_here = 0;
        for (uint k = get_global_id(0) - groups * lanes; k < more; k += get_global_size(0) - groups * lanes) {
            const key_t b = keys[k * share + clhist_hash((word_t)k, ~seed) % share];
            if (${spec.is_missing}) continue;
            const uint bit = clhist_hash(${spec.encoded}, seed) % CLHIST_BITS, mask = 1u << bit % 32;
            set_here += !(bits[bit / 32] & mask) && !(atomic_or(bits + bit / 32, mask) & mask);
            ++seen_here;
        }
        atomic_add(&set, set_here);
        atomic_add(&seen, seen_here);
    }
    // Barrier: all work-items have added to the ranks.
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint rank = is_mine ? ranks[lane] : CLHIST_NONE, others_alike = is_mine ? alike[lane] : 1;
    bool is_new = w != CLHIST_EMPTY && !(others_alike & 1) && (n % CLHIST_CHUNK == 0 || chunks[n - 1] != w);
    bool is_alone = is_new && !others_alike && (n % CLHIST_CHUNK == CLHIST_CHUNK - 1 || chunks[n + 1] != w);
    if (is_mine) sorted[rank] = w;
    const uint place = is_new ? atomic_inc(&added) : 0;
    if (is_alone) atomic_inc(&alone);
    // Barrier: all new words of the group are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0 && added) at = atomic_add(state + DIFFERENT, added);
    if (lane == 0 && alone) atomic_add(state + ONCE, alone);
    if (lane == 0 && seen) {
        atomic_add(state + SET, set);
        atomic_add(state + SEEN, seen);
    }
    __global volatile ulong *ends = (__global volatile ulong *)(state + ENDS);
    if (rank == 0) {
        state[ONES] = ones;
        state[MISSING] = missing;
        ends[0] = w;
    }
    if (is_mine && rank + 1 == samples - ones - missing) ends[1] = w;
    // Barrier: work-item 0 has stored where the new words go.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (is_new && at + place < CLHIST_KNOWN) different[at + place] = w;
}
