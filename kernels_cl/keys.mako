## Keys of any range as numbers, of the keys as unsigned integers in their order ("words"). Each different key has a slot:
## in a hash table of open addressing, or, where keys are close to each other, in a table of marks, its distance from the
## least. A plain load finds a key that is there; a compare-exchange is needed where a slot looks empty alone.
<%namespace name="scan" file="scan.mako"/>
<%
    word = c_name(spec.word)
    narrows = spec.word.itemsize == 8 and batch > 1  # by several work-items, which sort few bits first
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
#define CLHIST_BATCH ${batch}

<%def name="each_block(size)">\
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    for (long block = get_group_id(0); block * CLHIST_BLOCK < ${size}; block += get_num_groups(0)) {
        const long begin = block * CLHIST_BLOCK + lane, end = min(${size}, (block + 1) * CLHIST_BLOCK);
</%def>\
<%def name="keep_first(place, i='i')">\
% if spec.first:
            if (first[${place}] > ${i}) atomic_min((volatile __global uint *)first + ${place}, (uint)${i});
% endif
</%def>\
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
## Several elements of a work-item at once, so that it waits for their slots together.
<%def name="each_of_batch()">\
        #pragma unroll
        for (uint k = 0; k < CLHIST_BATCH; ++k)
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

// Where a search in the table begins; the slot behind it of the key that is like an empty one.
uint clhist_begin(const word_t w, const uint mask, const ulong seed)
{
    return w == CLHIST_EMPTY ? mask + 1 : clhist_hash(w, seed) & mask;
}

// The slot of a key from the `s`-th on, CLHIST_NONE where the table is too full; *added says whether it is a new one.
uint clhist_slot(const word_t w, uint s, __global word_t *table, const uint mask, bool *added)
{
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

## Writes the slot of an element whose search begins there.
<%def name="put(at, word, place, there)">\
            uint s = ${place};
            if (${there} != ${word}) s = clhist_added(${word}, s, table, mask, most, told, state, &local_added, &full);
            else if (s > mask) state[s - mask + 1] = 1;
            slots[${at}] = s;
            ++seen;
            if (full) break;
${keep_first("s", at)}\
</%def>\
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
        long i = begin;
% if batch > 1:
        for (; i + (CLHIST_BATCH - 1) * lanes < end && !full; i += CLHIST_BATCH * lanes) {
            word_t words[CLHIST_BATCH], there[CLHIST_BATCH];
            uint begins[CLHIST_BATCH];
${each_of_batch()}\
            {
                const key_t b = keys[(i + k * lanes) * stride];
                words[k] = ${spec.encoded};
                begins[k] = ${spec.is_missing} ? mask + 2 : clhist_begin(words[k], mask, seed);
                there[k] = begins[k] > mask ? words[k] : table[begins[k]];
            }
${each_of_batch()}\
            {
${put("i + k * lanes", "words[k]", "begins[k]", "there[k]")}\
            }
        }
% endif
        for (; i < end && !full; i += lanes) {
            const key_t b = keys[i * stride];
            const word_t w = ${spec.encoded};
            const uint place = ${spec.is_missing} ? mask + 2 : clhist_begin(w, mask, seed);
            const word_t there = place > mask ? w : table[place];
${put("i", "w", "place", "there")}\
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
        long i = begin;
% if batch > 1:
        for (; i + (CLHIST_BATCH - 1) * lanes < end; i += CLHIST_BATCH * lanes) {
            uint found[CLHIST_BATCH];
${each_of_batch()}\
                found[k] = ranks[slots[i + k * lanes]];
${each_of_batch()}\
                slots[i + k * lanes] = found[k];
        }
% endif
        for (; i < end; i += lanes) slots[i] = ranks[slots[i]];
    }
}

// The place of each element's key among `known` ones, which each work-group has in a table of its own; of others the
// slot in the large table, into which they are put, with CLHIST_NEW. `ones` and `missing` are what is written for the key
// that is like an empty slot, and for elements without a key.
#define CLHIST_NEW ${new}u
#define CLHIST_OWN ${own}
__kernel void clhist_find(
    __global const char *keys_base, const ulong keys_offset, const long size,
    __global const word_t *known_words, __global const uint *places, const uint known, const uint ones, const uint missing,
    __global word_t *table, const uint mask, const uint most, const uint told, const ulong seed,
    __global volatile uint *state, __global uint *numbers, __global uint *first)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local word_t own_words[CLHIST_OWN];
    __local uint own_numbers[CLHIST_OWN], local_added;
% if spec.first:
    __local uint own_first[CLHIST_OWN];
% endif
    for (uint s = get_local_id(0); s < CLHIST_OWN; s += get_local_size(0)) {
        own_words[s] = CLHIST_EMPTY;
        own_numbers[s] = CLHIST_NONE;
% if spec.first:
        own_first[s] = CLHIST_NONE;
% endif
    }
    if (get_local_id(0) == 0) local_added = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = get_local_id(0); n < known; n += get_local_size(0)) {
        if (places[n] > mask) continue;
        uint s = clhist_hash(known_words[n], seed) & (CLHIST_OWN - 1);
        while (atomic_cmpxchg(own_numbers + s, CLHIST_NONE, n) != CLHIST_NONE) s = (s + 1) & (CLHIST_OWN - 1);
        own_words[s] = known_words[n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    bool full = false;
${each_block("size")}\
        if (block / get_num_groups(0) % 8 == 7) full = state[1];
        for (long i = begin; i < end && !full; i += lanes) {
            const key_t b = keys[i];
            const bool is_missing = ${spec.is_missing};
            const word_t w = ${spec.encoded};
            uint s = clhist_begin(w, CLHIST_OWN - 1, seed);
            if (is_missing || s == CLHIST_OWN) {
                state[is_missing ? 3 : 2] = 1;
                numbers[i] = is_missing ? missing : ones;
                s = is_missing ? mask + 2 : mask + 1;
${keep_first("s")}\
                continue;
            }
            while (own_words[s] != w && own_words[s] != CLHIST_EMPTY) s = (s + 1) & (CLHIST_OWN - 1);
            if (own_words[s] == w) {
                numbers[i] = own_numbers[s];
% if spec.first:
                if (own_first[s] > i) atomic_min(own_first + s, (uint)i);
% endif
            } else {
                const uint place = clhist_begin(w, mask, seed);
                s = clhist_added(w, place, table, mask, most, told, state, &local_added, &full);
                numbers[i] = CLHIST_NEW | s;
                if (full) break;
${keep_first("s")}\
            }
        }
        if (full) break;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0 && local_added % told) atomic_add(state, local_added % told);
% if spec.first:
    for (uint s = get_local_id(0); s < CLHIST_OWN; s += get_local_size(0)) {
        const uint i = own_first[s];
        if (i != CLHIST_NONE) {
            const uint at = places[own_numbers[s]];
${keep_first("at")}\
        }
    }
% endif
}

// The number of each element in the place of what `clhist_find` wrote.
__kernel void clhist_renumber(
    __global uint *numbers, const long size, __global const uint *places, __global const uint *ranks)
{
${each_block("size")}\
        for (long i = begin; i < end; i += lanes) {
            const uint n = numbers[i];
            if (n != CLHIST_NONE) numbers[i] = ranks[n & CLHIST_NEW ? n ^ CLHIST_NEW : places[n]];
        }
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
