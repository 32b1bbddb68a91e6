## The keys that `keys.mako` has put into a table in their order, or in that of their first positions, and their numbers.
<%namespace name="scan" file="scan.mako"/>
<%
    narrows = spec.word.itemsize == 8 and several  # work-items, which sort few bits first
%>\
## The least and the largest of what the work-items of a work-group have, in `lows` and `highs`.
<%def name="extremes(low, high)">\
lows[lane] = ${low};
    highs[lane] = ${high};
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint g = 0; g < lanes; ++g) {
        ${low} = min(${low}, lows[g]);
        ${high} = max(${high}, highs[g]);
    }\
</%def>\
// How many slots of each share have a key; state[0] is how many there are in all of them.
__kernel void clhist_tally(
    __global const slot_t *table, const uint num_slots, const uint share, const ulong least,
    __global volatile uint *state, __global uint *tallies)
{
    __local uint tally;
    const ulong begin = (ulong)get_group_id(0) * share, end = min((ulong)num_slots, begin + share);
    if (get_local_id(0) == 0) tally = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint mine = 0;
    for (ulong s = begin + get_local_id(0); s < end; s += get_local_size(0)) mine += CLHIST_IS_KEY(s) ? 1 : 0;
    atomic_add(&tally, mine);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        tallies[get_group_id(0)] = tally;
% if spec.marked:
        atomic_add(state, tally);
% endif
    }
}

// The slots that have a key, in their order, with what sorts them: their words, or their first positions; and the least
// and the largest of these that each work-group has.
__kernel void clhist_list(
    __global const slot_t *table, const uint num_slots, const uint share, const ulong least,
    __global const uint *state, __global const uint *tallies, __global const uint *first, const uint by_first,
    __global word_t *sorts, __global uint *places, __global word_t *extents)
{
    __local uint sums[CLHIST_LANES], found;
% if narrows:
    __local word_t lows[CLHIST_LANES], highs[CLHIST_LANES];
    word_t low = CLHIST_EMPTY, high = 0;
% endif
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const ulong begin = (ulong)get_group_id(0) * share, end = min((ulong)num_slots, begin + share);
    if (lane == 0) found = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint before = 0;
    for (uint g = lane; g < get_group_id(0); g += lanes) before += tallies[g];
    atomic_add(&found, before);
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
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; mine && k < CLHIST_EACH; ++k) {
            const ulong s = from + lane * CLHIST_EACH + k;
            if (s < end && CLHIST_IS_KEY(s)) {
                const word_t w = by_first ? (word_t)first[s] : CLHIST_WORD(s);
% if narrows:
                low = min(low, w);
                high = max(high, w);
% endif
                sorts[at] = w;
                places[at++] = (uint)s;
            }
        }
    }
% if narrows:
    ${extremes("low", "high")}
    if (lane == 0) {
        extents[2 * get_group_id(0)] = low;
        extents[2 * get_group_id(0) + 1] = high;
    }
% endif
}
% if narrows:

// 32 bits of each word, those in which they differ first, with its place among them: what is sorted.
__kernel void clhist_narrow(
    __global const word_t *sorts, const uint size, __global const word_t *extents, const uint shares,
    __global uint *keys, __global uint *order)
{
    __local word_t lows[CLHIST_LANES], highs[CLHIST_LANES];
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    word_t low = CLHIST_EMPTY, high = 0;
    for (uint g = lane; g < shares; g += lanes) {
        low = min(low, extents[2 * g]);
        high = max(high, extents[2 * g + 1]);
    }
    ${extremes("low", "high")}
    const uint shift = max(32, 64 - (int)clz(high - low)) - 32;
    for (uint n = get_global_id(0); n < size; n += get_global_size(0)) {
        keys[n] = (uint)((sorts[n] - low) >> shift);
        order[n] = n;
    }
}

// Words and their slots in order, from that of their 32 bits. Each finds its place among those whose bits are alike; if
// these are too many, state[1] says so.
__kernel void clhist_settle(
    __global const uint *keys, __global const uint *order, const uint size, __global const word_t *sorts,
    __global const uint *places, __global word_t *to_sorts, __global uint *to_places, __global volatile uint *state)
{
    for (uint n = get_global_id(0); n < size; n += get_global_size(0)) {
        const uint key = keys[n], at = order[n];
        const word_t w = sorts[at];
        uint begin = n, end = n + 1;
        while (begin > 0 && n - begin < ${most_alike} && keys[begin - 1] == key) --begin;
        while (end < size && end - n <= ${most_alike} && keys[end] == key) ++end;
        if (end - begin > ${most_alike}) state[1] = 1;
        uint to = begin;
        for (uint m = begin; m < end; ++m) {
            const word_t other = m == n ? w : sorts[order[m]];
            to += other < w || (other == w && m < n) ? 1 : 0;
        }
        to_sorts[to] = w;
        to_places[to] = places[at];
    }
}
% endif

// The number of each slot, and the key and the first position of each number, from the slots in their order, and their
// words, if they were sorted by these.
__kernel void clhist_rank(
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
