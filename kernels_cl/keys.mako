## Keys of any range as numbers, of the keys as unsigned integers in their order ("words"). Each different key has a slot:
## in a hash table of open addressing, or, where keys are close to each other, in a table of marks, its distance from the
## least. A plain load finds a key that is there; a compare-exchange is needed where a slot looks empty alone.
<%namespace name="scan" file="scan.mako"/>
<%
    word = c_name(spec.word)
    exchange = "atom_cmpxchg" if spec.word.itemsize == 8 else "atomic_cmpxchg"
%>\
% if spec.word.itemsize == 8 and not spec.marked:
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
% endif
typedef ${c_name(spec.bits)} key_t;
typedef ${word} word_t;
#define CLHIST_EMPTY ((word_t)-1)
#define CLHIST_NONE 0xffffffffu
#define CLHIST_BLOCK ${block}
#define CLHIST_LANES ${lanes}
#define CLHIST_EACH ${each}

<%def name="each_block(size)">\
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    for (long block = get_group_id(0); block * CLHIST_BLOCK < ${size}; block += get_num_groups(0)) {
        const long begin = block * CLHIST_BLOCK + lane, end = min(${size}, (block + 1) * CLHIST_BLOCK);
</%def>\
<%def name="keep_first(place)">\
% if spec.first:
            if (first[${place}] > i) atomic_min((volatile __global uint *)first + ${place}, (uint)i);
% endif
</%def>\
% if spec.marked:
#define CLHIST_WORD(slot) ((word_t)least + (word_t)(slot))
#define CLHIST_IS_KEY(slot) table[slot]
#define CLHIST_IS_MISSING(slot) false
typedef uchar slot_t;

// Marks the keys that occur.
__kernel void clhist_mark(
    __global const char *keys_base, const ulong keys_offset, const long size, const ulong least,
    __global slot_t *table, __global uint *first)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
${each_block("size")}\
        for (long i = begin; i < end; i += lanes) {
            const key_t b = keys[i];
            if (${spec.is_missing}) continue;
            const uint n = (uint)(${spec.encoded} - (word_t)least);
            if (!table[n]) table[n] = 1;
${keep_first("n")}\
        }
    }
}

// The number of each element from the slots' numbers, CLHIST_NONE where it has none.
__kernel void clhist_look_up(
    __global const char *keys_base, const ulong keys_offset, const long size, const ulong least,
    __global const uint *ranks, __global uint *numbers)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
${each_block("size")}\
        for (long i = begin; i < end; i += lanes) {
            const key_t b = keys[i];
            numbers[i] = ${spec.is_missing} ? CLHIST_NONE : ranks[(uint)(${spec.encoded} - (word_t)least)];
        }
    }
}
% else:
// Behind the table are the slots of the key that is like an empty slot, and of elements without a key.
#define CLHIST_WORD(slot) ((slot) < least ? table[slot] : CLHIST_EMPTY)
#define CLHIST_IS_KEY(slot) ((slot) < least ? table[slot] != CLHIST_EMPTY : state[(slot) == least ? 2 : 3])
#define CLHIST_IS_MISSING(slot) ((slot) > least)
typedef word_t slot_t;

// Where a search for a key begins. The seed is another in each call, so no keys collide in all of them.
uint clhist_hash(word_t w, const ulong seed)
{
% if spec.word.itemsize == 8:
    w ^= seed;
    w = (w ^ w >> 32) * 0x9e3779b97f4a7c15ul;
    w = (w ^ w >> 29) * 0xbf58476d1ce4e5b9ul;
    return (uint)(w >> 32);
% else:
    w ^= (uint)seed;
    w = (w ^ w >> 16) * 0x7feb352du;
    w = (w ^ w >> 15) * 0x846ca68bu;
    return w ^ w >> 16;
% endif
}

// The slot of a key, CLHIST_NONE where the table is too full; *added says whether it is a new one.
uint clhist_slot(const word_t w, __global word_t *table, const uint mask, const ulong seed, bool *added)
{
    if (w == CLHIST_EMPTY) return mask + 1;
    uint s = clhist_hash(w, seed) & mask;
    for (uint tries = 0; tries < ${most_tries}; ++tries) {
        word_t there = table[s];
        if (there == CLHIST_EMPTY) {
            there = ${exchange}((volatile __global word_t *)table + s, CLHIST_EMPTY, w);
            if (there == CLHIST_EMPTY) {
                *added = true;
                return s;
            }
        }
        if (there == w) return s;
        s = (s + 1) & mask;
    }
    return CLHIST_NONE;
}

// Puts keys into the table, those `stride` apart, and writes the slot of each. state: keys that are there, whether the
// table is too full, whether there is the key that is like an empty slot, and one without a key, and how many were put.
__kernel void clhist_insert(
    __global const char *keys_base, const ulong keys_offset, const long size, const long stride,
    __global word_t *table, const uint mask, const uint most, const uint told, const ulong seed,
    __global volatile uint *state, __global uint *slots, __global uint *first)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local uint local_added, local_seen;
    if (get_local_id(0) == 0) local_added = local_seen = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint seen = 0;
    bool full = false;
${each_block("size")}\
        // Those who add a key ask whether there is room, and all of them now and then.
        if (block / get_num_groups(0) % 8 == 7) full = state[1];
        for (long i = begin; i < end && !full; i += lanes) {
            const key_t b = keys[i * stride];
            const bool is_missing = ${spec.is_missing};
            bool added = false;
            const uint s = is_missing ? mask + 2 : clhist_slot(${spec.encoded}, table, mask, seed, &added);
            slots[i] = s;
            ++seen;
            if (added) {
                // The work-group tells so many at a time that it has added them.
                const uint before = atomic_inc(&local_added);
                full = state[1];
                if (before % told == told - 1 && atomic_add(state, told) > most) full = state[1] = 1;
            }
            if (s > mask) {
                state[s == CLHIST_NONE ? 1 : is_missing ? 3 : 2] = 1;
                full = full || s == CLHIST_NONE;
            }
            if (full) break;
${keep_first("s")}\
        }
        if (full) break;
    }
    atomic_add(&local_seen, seen);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        if (local_added % told) atomic_add(state, local_added % told);
        atomic_add(state + 4, local_seen);
    }
}

// The number of each element in the place of its slot.
__kernel void clhist_number(__global uint *slots, const long size, __global const uint *ranks)
{
${each_block("size")}\
        for (long i = begin; i < end; i += lanes) slots[i] = ranks[slots[i]];
    }
}
% endif

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

// The slots that have a key, in their order, with what sorts them: their words, or their first positions.
__kernel void clhist_list(
    __global const slot_t *table, const uint num_slots, const uint share, const ulong least,
    __global const uint *state, __global const uint *tallies, __global const uint *first, const uint by_first,
    __global word_t *sorts, __global uint *places)
{
    __local uint sums[CLHIST_LANES], found;
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
                sorts[at] = by_first ? (word_t)first[s] : CLHIST_WORD(s);
                places[at++] = (uint)s;
            }
        }
    }
}

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
