## A search of all elements among the distinct keys of a sample, if these are few.
##
## The kernel `find` is for work-groups of which many fit on a compute unit, `find_more` for large local memory.
##
## Included by sampled_keys.mako. Note [Sampled keys], docs/decisions/0019.
<%
    exchange = "atom_cmpxchg" if spec.word.itemsize == 8 else "atomic_cmpxchg"
    most_known, slots = (known, 4 * known) if stage == "find" else (sizes.more_known, 2 * sizes.more_known)
%>\
#define CLHIST_UNKNOWN (CLHIST_NONE - 1)

// Few different words in order, with their slots: each as many work-items as a row has compare with a part of the others.
__kernel void clhist_known(
    __global const word_t *different, const uint number, const uint has_ones, __global word_t *words, __global uint *slots)
{
    __local uint before;
    const uint n = get_group_id(0);
    const word_t w = n < number ? different[n] : CLHIST_EMPTY;
    if (get_local_id(0) == 0) before = 0;
    // Barrier: the counter is 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint mine = 0;
    for (uint k = get_local_id(0); k < number; k += get_local_size(0)) mine += different[k] < w ? 1 : 0;
    atomic_add(&before, mine);
    // Barrier: all smaller words are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        // Behind them come the slots of what is like an empty one, and of elements without a key.
        const uint at = n < number ? before : n;
        words[at] = w;
        slots[at] = n == number && !has_ones ? n + 1 : at;
    }
}

// Adds a key that no sample had; returns whether there was room.
bool clhist_add(
    const word_t w, const ulong seed, __global volatile word_t *table, __global word_t *different,
    __global volatile uint *state)
{
    uint s = clhist_hash(w, seed) % CLHIST_KNOWN;
    for (uint tries = 0; tries < CLHIST_KNOWN; ++tries, s = (s + 1) % CLHIST_KNOWN) {
        word_t there = table[s];
        if (there == CLHIST_EMPTY) there = ${exchange}(table + s, CLHIST_EMPTY, w);
        if (there == w) return true;
        if (there != CLHIST_EMPTY) continue;
        const uint at = atomic_inc(state + DIFFERENT);
        if (at < CLHIST_KNOWN) different[at] = w;
        return at < CLHIST_KNOWN;
    }
    return false;
}

// The place of each element's key among few words, which each work-group has in a table of its own. `ones` and `missing`
// are what is written for the key that is like an empty slot, and for elements without one. Keys that are not there are
// added to the `different` ones, each once by a table, if there is one; else, or if there are too many, the numbering fails.
__kernel void clhist_${stage}(
    __global const char *keys_base, const ulong keys_offset, const long size, const uint block,
    __global const word_t *words, const uint number, const uint ones, const uint missing, const ulong seed,
    __global word_t *different, __global volatile word_t *table, __global volatile uint *state, __global uint *numbers,
    __global uint *first)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local uint own[${slots}];
    __local word_t own_words[${most_known}];
% if spec.first:
    __local uint own_first[${most_known + 2}];
% endif
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const uint2 factors = clhist_factors(seed);
    for (uint s = lane; s < ${slots}; s += lanes) own[s] = CLHIST_NONE;
    // Barrier: the table is empty.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = lane; n < number; n += lanes) {
        const word_t w = words[n];
        own_words[n] = w;
        uint s = clhist_mixed(w, factors) & (${slots - 1});
        while (atomic_cmpxchg(own + s, CLHIST_NONE, n) != CLHIST_NONE) s = (s + 1) & (${slots - 1});
    }
% if spec.first:
    for (uint n = lane; n < number + 2; n += lanes) own_first[n] = CLHIST_NONE;
% endif
    // Barrier: all words are in the table.
    barrier(CLK_LOCAL_MEM_FENCE);
    bool failed = false;
    for (long from = (long)get_group_id(0) * block; from < size && !failed; from += (long)get_num_groups(0) * block) {
        const long end = min(size, from + block);
        failed = state[FAILED];
        for (long i = from + lane; i < end && !failed; i += lanes) {
            const key_t b = keys[i];
            const word_t w = ${spec.encoded};
            const bool is_missing = ${spec.is_missing};
            uint n = CLHIST_NONE;
            if (is_missing) {
                n = missing;
            } else if (w == CLHIST_EMPTY) {
                n = ones;
            } else {
                uint s = clhist_mixed(w, factors) & (${slots - 1});
                n = own[s];
                while (n != CLHIST_NONE && own_words[n] != w) n = own[s = (s + 1) & (${slots - 1})];
                if (n == CLHIST_NONE) n = CLHIST_UNKNOWN;
            }
            if (n == CLHIST_UNKNOWN) {
                if (!table || is_missing || w == CLHIST_EMPTY || !clhist_add(w, seed, table, different, state)) {
                    failed = true;
                    state[FAILED] = 1;
                }
            }
            numbers[i] = n;
% if spec.first:
            const uint place = is_missing ? number + 1 : n;
            if (place < number + 2 && own_first[place] > i) atomic_min(own_first + place, (uint)i);
% endif
        }
    }
% if spec.first:
    // Barrier: all first positions are written.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = lane; n < number + 2; n += lanes)
        if (first[n] > own_first[n]) atomic_min((volatile __global uint *)first + n, own_first[n]);
% endif
}
