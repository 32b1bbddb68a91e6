## Numbers keys of any range, as unsigned integers in their order ("words"). Each distinct key has a slot.
##
##   hash table (open addressing)   | w7 | -- | w2 | w9 | ..  | slot of the key of all ones | slot of missing keys |
##   marks, for close keys          | 1  | 0  | 1  | 1  | ..    slot = key - least key
##   state                          | keys | too full | has the key of all ones | has missing keys | elements inserted |
##
## A plain load finds a key that is there; only a slot that looks empty needs a compare-exchange.
## keys_in_order.mako then numbers the slots.
##
## Note [One hash table of group keys], docs/decisions/0019.
<%namespace name="types" file="types.mako"/>\
<%
    exchange = "atom_cmpxchg" if spec.word.itemsize == 8 else "atomic_cmpxchg"
    codes = "" if several else ", __global const uint *codes"
%>\
% if spec.word.itemsize == 8 and not spec.marked:
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
% endif
<%include file="key_words.mako"/>
#define CLHIST_BLOCK ${block}
#define CLHIST_LANES ${lanes}
#define CLHIST_EACH ${each}
% if not several:
${types.ahead()}\
#define CLHIST_LATER 32
#define CLHIST_ASKED ${ahead_from}
% endif

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
% if several or not in_order:

// Marks the keys that occur.
__kernel ${alone}void clhist_mark(
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
__kernel ${alone}void clhist_look_up(
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
% endif
% else:
// Behind the table are the slots of the key that is like an empty slot, and of elements without a key.
#define CLHIST_WORD(slot) ((slot) < least ? table[slot] : CLHIST_EMPTY)
#define CLHIST_IS_KEY(slot) ((slot) < least ? table[slot] != CLHIST_EMPTY : state[(slot) == least ? 2 : 3])
#define CLHIST_IS_MISSING(slot) ((slot) > least)
typedef word_t slot_t;
% if several or not in_order:

// Where a search in the table begins; the slot behind it of the key that is like an empty one.
uint clhist_begin(const word_t w, const uint mask, const ulong seed)
{
    return w == CLHIST_EMPTY ? mask + 1 : clhist_hash(w, seed) & mask;
}

// The slot of a key from the `s`-th on, CLHIST_NONE where the table is too full; *added says whether it is a new one.
uint clhist_slot(const word_t w, uint s, __global word_t *table, const uint mask, bool *added)
{
    for (uint tries = 0; tries < ${most_tries}; ++tries) {
        // A plain load first: most keys are there already, and keys never leave a slot.
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

// The same of a key that is put into the table if there is room; else this is *full.
uint clhist_added(
    const word_t w, const uint begin, __global word_t *table, const uint mask, const uint most, const uint told,
    __global volatile uint *state, __local uint *local_added, bool *full)
{
    bool added = false;
    const uint s = clhist_slot(w, begin, table, mask, &added);
    if (added) {
        // The work-group tells so many at a time that it has added them.
        const uint before = atomic_inc(local_added);
        *full = state[1];
        if (before % told == told - 1 && atomic_add(state, told) > most) *full = state[1] = 1;
    }
    if (s == CLHIST_NONE) *full = state[1] = 1;
    return s;
}

// Puts keys into the table, those `stride` apart, and writes the slot of each. state: keys that are there, whether the
// table is too full, whether there is the key that is like an empty slot, and one without a key, and how many were put.
__kernel ${alone}void clhist_insert(
    __global const char *keys_base, const ulong keys_offset, const long size, const long stride,
    __global word_t *table, const uint mask, const uint most, const uint told, const ulong seed,
    __global volatile uint *state, __global uint *slots, __global uint *first${codes})
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local uint local_added, local_seen;
    if (get_local_id(0) == 0) local_added = local_seen = 0;
    // Barrier: the counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint seen = 0;
    bool full = false;
${each_block("size")}\
        // Those who add a key ask whether there is room, and all of them now and then.
        if (block / get_num_groups(0) % 8 == 7) full = state[1];
        for (long i = begin; i < end; i += lanes) {
% if not several:
            if (mask >= CLHIST_ASKED && i + CLHIST_LATER < end) {  // a slot that is not in the cache
                const key_t b = keys[(i + CLHIST_LATER) * stride];
                const word_t w = ${spec.encoded};
                CLHIST_AHEAD(table + clhist_begin(w, mask, seed));
            }
% endif
            const key_t b = keys[i * stride];
            const bool is_missing = ${spec.is_missing};
            const word_t w = ${spec.encoded};
            uint s = is_missing ? mask + 2 : clhist_begin(w, mask, seed);
            if (s > mask) state[s - mask + 1] = 1;
% if several:
            else s = clhist_added(w, s, table, mask, most, told, state, &local_added, &full);
            slots[i] = s;
            ++seen;
            if (full) break;
% else:
            // Most keys are in the slot where their search begins.
            else if (table[s] != w) s = clhist_added(w, s, table, mask, most, told, state, &local_added, &full);
            ++seen;
            if (full) break;
            if (slots) slots[i] = codes ? codes[s] : s;
% endif
${keep_first("s")}\
        }
        if (full) break;
    }
    atomic_add(&local_seen, seen);
    // Barrier: all have counted their keys.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        if (local_added % told) atomic_add(state, local_added % told);
        atomic_add(state + 4, local_seen);
    }
}

// The number of each element in the place of its slot.
__kernel ${alone}void clhist_number(__global uint *slots, const long size, __global const uint *ranks)
{
${each_block("size")}\
% if several:
        for (long i = begin; i < end; i += lanes) slots[i] = ranks[slots[i]];
% else:
        for (long i = begin; i < end; ++i) slots[i] = slots[i] == CLHIST_NONE ? CLHIST_NONE : ranks[slots[i]];
% endif
    }
}
% endif

% endif

% if in_order:
<%include file="keys_in_order.mako"/>\
% endif
