## Keys of any range as numbers: a hash table of open addressing in global memory, of the keys as unsigned integers in
## their order. A plain load finds a key that is there; a compare-exchange is needed where a slot looks empty alone.
<%
    word = c_name(spec.word)
    exchange = "atom_cmpxchg" if spec.word.itemsize == 8 else "atomic_cmpxchg"
%>\
% if spec.word.itemsize == 8:
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
% endif
typedef ${c_name(spec.bits)} key_t;
typedef ${word} word_t;
#define CLHIST_EMPTY ((word_t)-1)
#define CLHIST_NONE 0xffffffffu
#define CLHIST_BLOCK ${block}

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

// The slot of a key, CLHIST_NONE where the table is too full; *added says whether it is a new one. The key that is
// like an empty slot has the slot behind all others.
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
// Puts all keys into the table, and writes the slot of each; elements without a key have the last one. state: keys that
// are there, whether the table is too small, whether there is the key that is like an empty slot, and one without a key.
__kernel void clhist_insert(
    __global const char *keys_base, const ulong keys_offset, const long size, __global word_t *table, const uint mask,
    const uint most, const ulong seed, __global volatile uint *state, __global uint *slots, __global uint *first)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local uint local_added, local_full;
${each_block("size")}\
        if (lane == 0) {
            local_added = 0;
            local_full = state[1] || state[0] > most;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (local_full) {
            if (lane == 0) state[1] = 1;
            break;
        }
        uint mine = 0;
        for (long i = begin; i < end; i += lanes) {
            const key_t b = keys[i];
            const bool is_missing = ${spec.is_missing};
            bool added = false;
            const uint s = is_missing ? mask + 2 : clhist_slot(${spec.encoded}, table, mask, seed, &added);
            slots[i] = s;
            mine += added;
            if (s > mask) {
                state[s == CLHIST_NONE ? 1 : is_missing ? 3 : 2] = 1;
                if (s == CLHIST_NONE) continue;
            }
${keep_first("s")}\
        }
        if (mine) atomic_add(&local_added, mine);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0 && local_added) atomic_add(state, local_added);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// The keys of the table, in any order, each with its slot; found counts them.
__kernel void clhist_gather(
    __global const word_t *table, const uint num_slots, __global const uint *state, __global uint *found,
    __global word_t *words, __global uint *places)
{
    __local uint local_found, local_begin;
    const long all = (long)num_slots + 1;
${each_block("all")}\
        if (lane == 0) local_found = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        uint mine = 0;
        for (long s = begin; s < end; s += lanes) mine += s == num_slots ? state[2] : table[s] != CLHIST_EMPTY;
        uint at = atomic_add(&local_found, mine);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0) local_begin = atomic_add(found, local_found);
        barrier(CLK_LOCAL_MEM_FENCE);
        at += local_begin;
        for (long s = begin; s < end; s += lanes)
            if (s == num_slots ? state[2] : table[s] != CLHIST_EMPTY) {
                words[at] = s == num_slots ? CLHIST_EMPTY : table[s];
                places[at++] = s;
            }
    }
}

// The number of each slot, from the order of the gathered keys.
__kernel void clhist_rank(
    __global const uint *order, __global const uint *places, const uint size, __global uint *ranks)
{
    for (uint n = get_global_id(0); n < size; n += get_global_size(0)) ranks[places[order[n]]] = n;
}

// The number of each element in the place of its slot.
__kernel void clhist_number(__global uint *slots, const long size, __global const uint *ranks)
{
${each_block("size")}\
        for (long i = begin; i < end; i += lanes) slots[i] = ranks[slots[i]];
    }
}

// Where keys are close to each other: marks those that occur.
__kernel void clhist_mark(
    __global const char *keys_base, const ulong keys_offset, const long size, const ulong least,
    __global uchar *marks, __global uint *first)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
${each_block("size")}\
        for (long i = begin; i < end; i += lanes) {
            const key_t b = keys[i];
            if (${spec.is_missing}) continue;
            const uint n = (uint)(${spec.encoded} - (word_t)least);
            if (!marks[n]) marks[n] = 1;
${keep_first("n")}\
        }
    }
}

// The number of each element from the marks' numbers, CLHIST_NONE where it has none.
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
