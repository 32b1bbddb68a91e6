## Numbers keys of ranges of about equally many elements, whose number is large.
##
##   1 divide    a work-group groups the words of a tile by ranges, in local memory (a multisplit)
##                 tile   | range 0 | range 1 | .. | key of all ones | elements without a key |
##   2 number    a work-group numbers the distinct keys of a range by a hash table in local memory (key_numbers.mako)
##   3 put back  a work-group returns the numbers of a tile to the places of its elements
##
## So no memory is read at random, and only the sample is sorted. A key of very many elements is a range of
## its own, "alone". Where two ranges begin with the same key, its elements are in the first of them; of
## several, in the last but one. The last two ranges are for the key that looks like an empty slot, and for
## elements without a key.
##
## Included by sampled_keys.mako. Decision 0019.
<%namespace name="scan" file="scan.mako"/>\
<%
    exchange = "atom_cmpxchg" if spec.word.itemsize == 8 else "atomic_cmpxchg"
    lanes, per_lane, most, cells, slots = sizes.lanes, sizes.per_lane, sizes.most_ranges, sizes.cells, sizes.slots
    tile = lanes * per_lane
%>\
#define CLHIST_TILE ${tile}
#define CLHIST_PIECES ${pieces}  // of a range, at most
#define CLHIST_ALONE 0x80000000u  // beside a number, and beside how many keys a range has

// Where a range begins: the first begins below all keys.
word_t clhist_begin(__global const word_t *sorted, const uint valid, const uint ranges, const uint range)
{
    return range > 0 ? sorted[(uint)((ulong)range * valid / ranges)] : 0;
}

// The last of the ranges from `low` to `high` that begins at a word, or before.
uint clhist_last(__local const word_t *begins, const word_t w, uint low, uint high)
{
    while (low < high) {
        const uint middle = (low + high + 1) / 2;
        if (begins[middle] <= w) low = middle;
        else high = middle - 1;
    }
    return low;
}

// How far words are shifted so that there are at most so many different ones, a power of two of these.
uint clhist_shift(const word_t extent, const uint bits)
{
    const int width = ${8 * spec.word.itemsize} - (int)clz(extent);
    return max(0, width - (int)bits);
}

// The slot of a key from the `s`-th on, into which it is put if it is not there.
uint clhist_slot(
    const word_t w, uint s, __local word_t *table, __local uint *added, __local volatile uint *failed)
{
    for (;; s = (s + 1) & ${slots - 1}) {
        word_t there = ((volatile __local word_t *)table)[s];
        if (there == w) return s;
        if (there != CLHIST_EMPTY) continue;
        if (*failed) return s;
        there = ${exchange}((volatile __local word_t *)table + s, CLHIST_EMPTY, w);
        if (there == CLHIST_EMPTY && atomic_inc(added) >= ${sizes.most_keys}) *failed = 1;
        if (there == CLHIST_EMPTY || there == w) return s;
    }
}

// Where ranges begin. Words near each other are of one cell, which knows the first and the last range that they may be of.
__kernel void clhist_begin_cells(
    __global const word_t *sorted, const uint valid, const uint ranges, __global word_t *begins, __global uint *cells)
{
    const word_t least = sorted[0];
    const uint shift = clhist_shift(sorted[valid - 1] - least, ${cells.bit_length() - 1});
    for (uint r = get_global_id(0); r < ranges; r += get_global_size(0)) begins[r] = clhist_begin(sorted, valid, ranges, r);
    for (uint c = get_global_id(0); c < ${cells}; c += get_global_size(0)) {
        uint found[2];
        for (uint k = 0; k < 2; ++k) {
            const word_t w = least + ((word_t)(c + k) << shift);
            uint low = c + k == ${cells} || w < least ? ranges - 1 : 0, high = ranges - 1;
            while (low < high) {
                const uint middle = (low + high + 1) / 2;
                if (clhist_begin(sorted, valid, ranges, middle) <= w) low = middle;
                else high = middle - 1;
            }
            found[k] = low;
        }
        cells[c] = found[0] | found[1] << 16;
    }
}

// Groups the words of tiles by ranges; starts are where each range begins in a tile, twice, for the kernels behind.
__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_divide(
    __global const char *keys_base, const ulong keys_offset, const long size, __global const word_t *sorted,
    const uint valid, const uint ranges, const uint tiles, __global const word_t *all_begins,
    __global const uint *all_cells, __global word_t *words, __global ushort *places, __global ushort *starts,
    __global ushort *starts_of_tiles)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local word_t begins[${most}], staged[CLHIST_TILE];
    __local ushort staged_places[CLHIST_TILE];
    __local uint cells[${cells}], counts[${most + 2}], sums[${lanes}], alone;
    const uint lane = get_local_id(0), t = get_group_id(0), parts = ranges + 2, own = (parts + ${lanes - 1}) / ${lanes};
    const long start = (long)t * CLHIST_TILE;
% for e in range(per_lane):
    const long i_${e} = start + ${e * lanes} + lane;
    const key_t key_${e} = i_${e} < size ? keys[i_${e}] : 0;
% endfor
    for (uint r = lane; r < ranges; r += ${lanes}) begins[r] = all_begins[r];
    for (uint c = lane; c < ${cells}; c += ${lanes}) cells[c] = all_cells[c];
    for (uint r = lane; r < parts; r += ${lanes}) counts[r] = 0;
    if (lane == 0) alone = 0;
    const word_t least = sorted[0];
    const uint shift = clhist_shift(sorted[valid - 1] - least, ${cells.bit_length() - 1});
    // Barrier: begins, cells and counters are in local memory.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint r = lane + 1; r < ranges; r += ${lanes})
        if (begins[r] == begins[r - 1]) alone = 1;
    // Barrier: it is known whether a key is alone.
    barrier(CLK_LOCAL_MEM_FENCE);
% for e in range(per_lane):
    uint range_${e} = ranges + 1;
    {
        const key_t b = key_${e};
        const word_t w = ${spec.encoded};
        if (!(${spec.is_missing})) {
            range_${e} = w == CLHIST_EMPTY ? ranges : 0;
            if (w >= least && w != CLHIST_EMPTY) {
                const uint cell = cells[(uint)min((w - least) >> shift, (word_t)${cells - 1})];
                range_${e} = clhist_last(begins, w, cell & 0xffff, cell >> 16);
                if (alone && range_${e} > 0 && begins[range_${e} - 1] == w) --range_${e};
            }
        }
        // Its place among those of the range is kept beside it.
        if (i_${e} < size) range_${e} |= atomic_inc(counts + range_${e}) << 16;
    }
% endfor
    // Barrier: all words are counted by range.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint total = 0;
    for (uint r = lane * own; r < min(parts, (lane + 1) * own); ++r) total += counts[r];
    sums[lane] = total;
    ${scan.inclusive("sums", "lane", lanes)}
    uint before = sums[lane] - total;
    for (uint r = lane * own; r < min(parts, (lane + 1) * own); ++r) {
        const uint count = counts[r];
        counts[r] = before;
        starts[(ulong)r * tiles + t] = (ushort)before;
        before += count;
    }
    if (lane == ${lanes - 1}) starts[(ulong)parts * tiles + t] = (ushort)before;
    // Barrier: all counts have become places.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint r = lane; r < parts; r += ${lanes}) starts_of_tiles[(ulong)t * (parts + 1) + r] = (ushort)counts[r];
    if (lane == 0) starts_of_tiles[(ulong)t * (parts + 1) + parts] = (ushort)sums[${lanes - 1}];
    // Barrier: all places are in global memory before the sums are overwritten.
    barrier(CLK_LOCAL_MEM_FENCE);
% for e in range(per_lane):
    if (i_${e} < size) {
        const key_t b = keys[i_${e}];
        const uint at = counts[range_${e} & 0xffff] + (range_${e} >> 16);
        staged[at] = ${spec.encoded};
        staged_places[at] = (ushort)(${e * lanes} + lane);
    }
% endfor
    // Barrier: the tile is staged before it is copied in order.
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint all = sums[${lanes - 1}];
    for (uint k = lane; k < all; k += ${lanes}) words[start + k] = staged[k];
    for (uint k = lane; k < all; k += ${lanes}) places[start + k] = staged_places[k];
}

<%include file="key_numbers.mako"/>
// The number of the first key of each piece of a range, by one work-group; `missing` says whether elements without a key
// have one.
__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_begin_ranges(
    __global const uint *counts, const uint ranges, const uint missing, __global uint *begins, __global uint *state)
{
    __local uint sums[${lanes}];
    const uint lane = get_local_id(0), all_pieces = ranges * CLHIST_PIECES, own = (all_pieces + ${lanes - 1}) / ${lanes};
    uint total = 0;
    for (uint r = lane * own; r < min(all_pieces, (lane + 1) * own); ++r) total += counts[r] & ~CLHIST_ALONE;
    sums[lane] = total;
    ${scan.inclusive("sums", "lane", lanes)}
    uint before = sums[lane] - total;
    for (uint r = lane * own; r < min(all_pieces, (lane + 1) * own); ++r) {
        begins[r] = before | (counts[r] & CLHIST_ALONE);
        before += counts[r] & ~CLHIST_ALONE;
    }
    if (lane == 0) {
        const uint all = sums[${lanes - 1}], ones = counts[all_pieces] & 1, none = counts[all_pieces + CLHIST_PIECES] & 1;
        begins[all_pieces] = all | CLHIST_ALONE;
        begins[all_pieces + CLHIST_PIECES] = missing ? all + ones | CLHIST_ALONE : CLHIST_NONE;
        state[DIFFERENT] = all;
        state[ONES] = ones;
        state[MISSING] = none;
    }
}

// The keys of all ranges in order, or by their ranks, and their first positions; one of both if the other is null.
__kernel void clhist_join_ranges(
    __global const word_t *different, __global const uint *first, __global const uint *counts,
    __global const uint *where, __global const uint *begins, const uint ranges, __global const uint *ranks,
    __global key_t *labels, __global long *positions)
{
    const uint range = get_group_id(0);
    if (begins[range * CLHIST_PIECES] == CLHIST_NONE) return;
    for (uint piece = range * CLHIST_PIECES; piece < (range + 1) * CLHIST_PIECES; ++piece) {
        const uint count = counts[piece] & ~CLHIST_ALONE, to = begins[piece] & ~CLHIST_ALONE, from = where[piece];
        for (uint n = get_local_id(0); n < count; n += get_local_size(0)) {
            const word_t w = different[from + n];
            if (labels) labels[ranks ? ranks[to + n] : to + n] = range > ranges ? ${spec.missing_bits} : ${spec.decoded};
% if spec.first:
            if (positions) positions[to + n] = first[from + n];
% endif
        }
    }
}

// The last of some ranges that begins at a place of a tile, or before, which is not empty.
uint clhist_part(__local const ushort *starts, const uint place, uint low, uint high)
{
    while (low < high) {
        const uint middle = (low + high + 1) / 2;
        if (starts[middle] <= place) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The numbers of the elements of a tile, or the ranks of these.
__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_put_back(
    __global const ushort *places, __global const ushort *numbers, __global const ushort *starts_of_tiles,
    __global const uint *begins, const uint parts, const long size, __global const uint *ranks, __global uint *to)
{
    __local uint staged[CLHIST_TILE];
    __local ushort starts[${most + 3}];
    const uint lane = get_local_id(0);
    const ulong start = (ulong)get_group_id(0) * CLHIST_TILE;
    for (uint r = lane; r <= parts; r += ${lanes}) starts[r] = starts_of_tiles[(ulong)get_group_id(0) * (parts + 1) + r];
    // Barrier: all starts are in local memory.
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint end = starts[parts];
    uint range = 0, behind = 0, begin = 0;
    if (lane * ${per_lane} < end) {
        range = clhist_part(starts, lane * ${per_lane}, 0, parts - 1);
        behind = starts[range + 1];
        begin = begins[range * CLHIST_PIECES];
    }
% for part in range(0, per_lane, 8):
    const ushort8 places_${part} = vload8(lane * ${per_lane // 8} + ${part // 8}, places + start);
    const ushort8 numbers_${part} = vload8(lane * ${per_lane // 8} + ${part // 8}, numbers + start);
% for e in range(8):
    {
        const uint k = lane * ${per_lane} + ${part + e};
        if (k >= behind && k < end) {
            // Mostly the next one.
            if (starts[++range + 1] <= k) range = clhist_part(starts, k, range, parts - 1);
            behind = starts[range + 1];
            begin = begins[range * CLHIST_PIECES];
        }
        uint number = begin;
        if (begin != CLHIST_NONE) {
            number = begin & CLHIST_ALONE ? begin ^ CLHIST_ALONE : begin + numbers_${part}.s${e};
            if (ranks && k < end) number = ranks[number];
        }
        if (k < end) staged[places_${part}.s${e}] = number;
    }
% endfor
% endfor
    // Barrier: all numbers are staged before they are copied in order.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = lane; k < CLHIST_TILE && (long)(start + k) < size; k += ${lanes}) to[start + k] = staged[k];
}
