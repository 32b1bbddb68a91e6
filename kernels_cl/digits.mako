## Sorts unsigned keys with their values by digits of 8 bits, the least digit first (LSD radix sort, stable).
##
##   1 count     | digit 0: group 0 group 1 .. | digit 1: .. | .. |      keys of each digit in each work-group
##   2 scan      where the keys of each digit and group begin
##   3 move      a work-group sorts a tile by the digit in local memory, twice 4 bits, and writes each run at once
##
##   local memory is padded (SPREAD) so that work-items that read EACH keys apart use different banks
##
## A work-group of one work-item, as on CPUs, moves one key after another without tiles. Decision 0020.
<%namespace name="scan" file="scan.mako"/>
<%namespace name="types" file="types.mako"/>
<%! from clhist._core.kernels.state import LINE_BYTES %>\
% if lanes == 1:
${types.ahead()}
#define LINE (${LINE_BYTES} / sizeof(word_t))  // keys of a line of the caches
% endif
#define LANES ${lanes}
#define EACH ${per_lane}
#define TILE (LANES * EACH)
#define DIGIT(key) ((uint)((key) >> shift) & 255)
typedef ${c_name(word)} word_t;
% if lanes > 1:
// Local memory is spread over its banks: work-items read keys EACH apart, and counts 16 apart.
#define SPREAD(i) ((i) + (i) / EACH)
#define SPREAD_COUNTS(i) ((i) + (i) / 16 * 2)
#define SPREAD_TILE (TILE + LANES)
#define PAD ((word_t)-1)  // behind the last key: such keys stay behind all others

// Splits a tile by 4 bits of its keys. Each work-item counts its keys in a word with 4 bits for each value.
void clhist_split(
    __local word_t *keys, __local uint *values, __local ushort *counts, __local uint *sums, const uint shift)
{
    const uint lane = get_local_id(0);
    word_t held[EACH];
    uint numbers[EACH], ranks = 0;  // 4 bits for each
    ulong counted = 0;
    // Barrier: the tile has been written.
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (uint e = 0; e < EACH; ++e) {
        held[e] = keys[SPREAD(lane * EACH + e)];
        numbers[e] = values[SPREAD(lane * EACH + e)];
        const uint at = ((uint)(held[e] >> shift) & 15) * 4;
        ranks |= ((uint)(counted >> at) & 15) << 4 * e;
        counted += 1ul << at;
    }
    #pragma unroll 4
    for (uint d = 0; d < 16; ++d) counts[SPREAD_COUNTS(d * LANES + lane)] = (ushort)(counted >> d * 4 & 15);
    // Barrier: all counts are stored, since the sums go over other work-items' counts.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint sum = 0;
    #pragma unroll 4
    for (uint d = 0; d < 16; ++d) sum += counts[SPREAD_COUNTS(lane * 16 + d)];
    sums[lane] = sum;
    ${scan.inclusive("sums", "lane", "LANES")}
    uint at = sums[lane] - sum;
    #pragma unroll 4
    for (uint d = 0; d < 16; ++d) {
        const uint count = counts[SPREAD_COUNTS(lane * 16 + d)];
        counts[SPREAD_COUNTS(lane * 16 + d)] = (ushort)at;
        at += count;
    }
    // Barrier: all counts have become places.
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (uint e = 0; e < EACH; ++e) {
        const uint place = ((uint)(held[e] >> shift) & 15) * LANES + lane;
        const uint to = counts[SPREAD_COUNTS(place)] + (ranks >> 4 * e & 15);
        keys[SPREAD(to)] = held[e];
        values[SPREAD(to)] = numbers[e];
    }
    // Barrier: the tile is split before others read it.
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Sorts a single tile in place by the bits from `shift` up to `bits`.
__kernel __attribute__((reqd_work_group_size(${"1" if lanes == 1 else "LANES"}, 1, 1)))
void clhist_sort_tile(__global word_t *keys, __global uint *values, const uint size, const uint bits)
{
    __local word_t tile[SPREAD_TILE];
    __local uint numbers[SPREAD_TILE], sums[LANES];
    __local ushort counts[18 * LANES];
    for (uint i = get_local_id(0); i < TILE; i += LANES) {
        tile[SPREAD(i)] = i < size ? keys[i] : PAD;
        numbers[SPREAD(i)] = i < size ? values[i] : 0;
    }
    for (uint shift = 0; shift < bits; shift += 4) clhist_split(tile, numbers, counts, sums, shift);
    for (uint i = get_local_id(0); i < size; i += LANES) {
        keys[i] = tile[SPREAD(i)];
        values[i] = numbers[SPREAD(i)];
    }
}
% endif

// How often each work-group, of so many tiles, has each value of a digit.
__kernel __attribute__((reqd_work_group_size(${"1" if lanes == 1 else "LANES"}, 1, 1)))
void clhist_count_digits(
    __global const word_t *keys, const uint size, const uint share, const uint shift, __global uint *counts)
{
    const uint begin = get_group_id(0) * share, end = min(size, begin + share);
% if lanes == 1:
    // In turn: a processor may wait for one that it has just changed.
    uint each[4 * 256], found[256];
    for (uint d = 0; d < 4 * 256; ++d) each[d] = 0;
    #pragma unroll 4
    for (uint i = begin; i < end; ++i) ++each[4 * DIGIT(keys[i]) + (i & 3)];
    for (uint d = 0; d < 256; ++d) found[d] = each[4 * d] + each[4 * d + 1] + each[4 * d + 2] + each[4 * d + 3];
% else:
    __local uint found[256];
    for (uint d = get_local_id(0); d < 256; d += LANES) found[d] = 0;
    // Barrier: counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    // Atomic: work-items share the counters of their work-group.
    for (uint i = begin + get_local_id(0); i < end; i += LANES) atomic_inc(&found[DIGIT(keys[i])]);
    // Barrier: all keys are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (uint d = get_local_id(0); d < 256; d += LANES) counts[d * get_num_groups(0) + get_group_id(0)] = found[d];
}

// For each value of a digit, by a work-group of its own, the sums of the counts before; behind them their totals.
__kernel __attribute__((reqd_work_group_size(${"1" if lanes == 1 else "LANES"}, 1, 1)))
void clhist_scan_digits(__global uint *counts, const uint groups)
{
    __local uint sums[LANES];
    const uint lane = get_local_id(0);
    __global uint *mine = counts + get_group_id(0) * groups;
    uint before = 0;
    for (uint from = 0; from < groups; from += LANES) {
        const uint count = from + lane < groups ? mine[from + lane] : 0;
        sums[lane] = count;
        ${scan.inclusive("sums", "lane", "LANES")}
        if (from + lane < groups) mine[from + lane] = before + sums[lane] - count;
        before += sums[LANES - 1];
        // Barrier: all have read the sums before the next block overwrites them.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane == 0) counts[256 * groups + get_group_id(0)] = before;
}

// Moves keys and values to their places.
__kernel __attribute__((reqd_work_group_size(${"1" if lanes == 1 else "LANES"}, 1, 1)))
void clhist_move_digits(
    __global const word_t *keys, __global const uint *values, const uint size, const uint share, const uint shift,
    __global const uint *counts, __global word_t *to_keys, __global uint *to_values)
{
% if lanes == 1:
    const uint groups = get_num_groups(0), group = get_group_id(0);
    const uint begin = group * share, end = min(size, begin + share);
    uint next[256], before = 0;
    for (uint d = 0; d < 256; ++d) {
        next[d] = before + counts[d * groups + group];
        before += counts[256 * groups + d];
    }
    for (uint i = begin; i < end; ++i) {
        const uint to = next[DIGIT(keys[i])]++;
        to_keys[to] = keys[i];
        to_values[to] = values[i];
        // More places are written to in turn than a processor follows.
        if (to % LINE == 0) {
            CLHIST_AHEAD(to_keys + to + LINE);
            CLHIST_AHEAD(to_values + to + LINE);
        }
    }
% else:
    __local word_t tile[SPREAD_TILE];
    __local uint numbers[SPREAD_TILE], sums[LANES], next[256], begins[256];
    __local ushort counted[18 * LANES];
    const uint lane = get_local_id(0), groups = get_num_groups(0);
    const uint begin = get_group_id(0) * share, end = min(size, begin + share);
    uint sum = 0;
    for (uint d = lane * (256 / LANES); d < (lane + 1) * (256 / LANES); ++d) sum += counts[256 * groups + d];
    sums[lane] = sum;
    ${scan.inclusive("sums", "lane", "LANES")}
    sum = sums[lane] - sum;
    for (uint d = lane * (256 / LANES); d < (lane + 1) * (256 / LANES); ++d) {
        next[d] = sum + counts[d * groups + get_group_id(0)];
        sum += counts[256 * groups + d];
    }
    for (uint from = begin; from < end; from += TILE) {
        const uint number = min((uint)TILE, end - from);
        for (uint i = lane; i < TILE; i += LANES) {
            tile[SPREAD(i)] = i < number ? keys[from + i] : PAD;
            numbers[SPREAD(i)] = i < number ? values[from + i] : 0;
        }
        for (uint low = 0; low < 8; low += 4) clhist_split(tile, numbers, counted, sums, shift + low);
        for (uint i = lane; i < number; i += LANES)
            if (i == 0 || DIGIT(tile[SPREAD(i)]) != DIGIT(tile[SPREAD(i - 1)])) begins[DIGIT(tile[SPREAD(i)])] = i;
        // Barrier: the start of each run is stored.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = lane; i < number; i += LANES) {
            const uint to = next[DIGIT(tile[SPREAD(i)])] + i - begins[DIGIT(tile[SPREAD(i)])];
            to_keys[to] = tile[SPREAD(i)];
            to_values[to] = numbers[SPREAD(i)];
        }
        // Barrier: all keys have been moved by `next` before it advances.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = lane; i < number; i += LANES)
            if (i + 1 == number || DIGIT(tile[SPREAD(i)]) != DIGIT(tile[SPREAD(i + 1)]))
                next[DIGIT(tile[SPREAD(i)])] += i + 1 - begins[DIGIT(tile[SPREAD(i)])];
        // Barrier: `next` and the tile are free for the next tile.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
% endif
}
