## Numbers the distinct keys of each range in local memory; one work-group has one range, from all tiles.
##
##   table    slots of words (open addressing, load 0.45)      ranks    slot -> number within the range
##   order    slots by bucket; a bucket has neighbouring words, which are compared to rank them
##
## Loops are not unrolled, and what can be found again is not kept: AMD's compiler lacks scalar registers for
## it.
##
## Included by key_ranges.mako. Note [Load of a range], docs/decisions/0019.
<%namespace name="scan" file="scan.mako"/>\
<%
    slots = sizes.slots
    buckets, own = slots // 2, slots // 2 // sizes.numbering_lanes
%>\
## The words of a range, from the tiles where they are: work-items that follow each other take words that do, ${at_once} of them
## at once. Blocks of words know in which of ${sizes.numbering_lanes} tiles they begin.
<%def name="segments(tiles='tiles')">\
    for (uint from = 0; from < ${tiles}; from += lanes) {
        // Barrier: all have finished the tiles before.
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool is_tile = from + lane < tiles;
        const uint begin = is_tile ? starts[(ulong)range * tiles + from + lane] : 0;
        const uint length = is_tile ? starts[(ulong)(range + 1) * tiles + from + lane] - begin : 0;
        sums[lane] = length;
        ${scan.inclusive("sums", "lane", sizes.numbering_lanes)}
        const uint all = sums[lanes - 1], before = sums[lane] - length;
        const uint width = max(5, 32 - (int)clz(all / ${blocks}));
        offsets[lane] = begin - before;
        for (uint block = (before + (1u << width) - 1) >> width; block << width < before + length; ++block)
            blocks[block] = (ushort)lane;
        // Barrier: offsets and blocks of these tiles are complete.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = lane; k < all; k += ${at_once} * lanes) {
% for u in range(at_once):
            const uint k_${u} = min(k + ${u} * lanes, all - 1);
            const bool is_${u} = k + ${u} * lanes < all;
            uint tile_${u} = blocks[k_${u} >> width];
            while (sums[tile_${u}] <= k_${u}) ++tile_${u};
            const uint at_${u} = (from + tile_${u}) * CLHIST_TILE + (k_${u} + offsets[tile_${u}]);
% endfor
${caller.body()}\
        }
    }
</%def>\
// The different keys of a range in their order, and the number among them of each word. They go to where there is room
// for them, which is noted. If they are too many for local memory, pieces of the range are numbered one after the other.
__kernel __attribute__((reqd_work_group_size(${sizes.numbering_lanes}, 1, 1)))
void clhist_number_range(
    __global const word_t *words, __global const ushort *places, __global const ushort *starts,
    __global const word_t *sorted, const uint valid, const uint ranges, const uint tiles, const uint first_pieces,
    const ulong seed, const uint most, __global uint *counts, __global uint *where, __global word_t *different,
    __global uint *first, __global ushort *numbers, __global volatile uint *state)
{
    __local word_t table[${slots}], bounds[4];
    __local uint shared[${sizes.shared}];  // first by tiles, then by keys
    __local uint *offsets = shared;
    __local ushort *blocks = (__local ushort *)(shared + ${sizes.numbering_lanes}), *order = (__local ushort *)shared;
    __local ushort ranks[${slots}];
    __local uint ends[${buckets}], sums[${sizes.numbering_lanes}], added, room, failed;
    const uint lane = get_local_id(0), lanes = ${sizes.numbering_lanes}, range = get_group_id(0);
    const uint2 factors = clhist_factors(seed);
    const bool is_last = range + 1 >= ranges;
    const word_t low = range < ranges ? clhist_begin(sorted, valid, ranges, range) : CLHIST_EMPTY;
    const word_t high = is_last ? sorted[valid - 1] : clhist_begin(sorted, valid, ranges, range + 1);
    if (lane == 0) {
        for (uint piece = 0; piece < CLHIST_PIECES; ++piece) counts[range * CLHIST_PIECES + piece] = 0;
        room = CLHIST_NONE;
    }
    // A range that is alone has elements where several begin alike if it is the last of them but one.
    const bool is_alone = range >= ranges || (!is_last && low == high);
    uint least_place = CLHIST_NONE;
    #pragma unroll 1
    for (uint t = lane; is_alone && t < tiles && least_place == CLHIST_NONE; t += lanes) {
        const uint begin = starts[(ulong)range * tiles + t], end = starts[(ulong)(range + 1) * tiles + t];
% if spec.first:
        for (uint k = begin; k < end; ++k)
            least_place = min(least_place, t * CLHIST_TILE + places[(ulong)t * CLHIST_TILE + k]);
% else:
        least_place = begin < end ? t : CLHIST_NONE;
% endif
    }
    // Barrier: work-item 0 has initialised `room`.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (least_place != CLHIST_NONE) atomic_min(&room, least_place);
    // Barrier: all have offered their least place.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (is_alone && lane == 0) {
        const bool is_there = room != CLHIST_NONE;
        const uint at = is_there ? atomic_inc(state + KEYS) : 0;
        counts[range * CLHIST_PIECES] = (is_there ? 1 : 0) | CLHIST_ALONE;
        where[range * CLHIST_PIECES] = at;
        if (is_there && at < most) {
            different[at] = low;
% if spec.first:
            first[at] = room;
% endif
        } else if (is_there) {
            state[FAILED] = 1;
        }
    }
    uint pieces = is_alone ? 0 : first_pieces, piece = 0, base = 0;
    for (uint turn = 0; turn < 2 * CLHIST_PIECES && piece < pieces; ++turn) {
        // Barrier: all have finished the piece before.
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0) {
            // By the samples of the range. Beyond the first and the last sample there are keys, too.
            const uint from = (uint)((ulong)range * valid / ranges);
            const uint samples = (uint)((ulong)(range + 1) * valid / ranges) - from;
            const word_t begin = sorted[from + samples * piece / pieces];
            const word_t end = sorted[min(from + samples * (piece + 1) / pieces, valid - 1)];
            bounds[0] = piece > 0 ? begin : 0;
            bounds[1] = piece + 1 < pieces ? end : CLHIST_EMPTY;
            bounds[2] = range + piece > 0 ? begin : begin - min(begin, end - begin);
            bounds[3] = range + 1 < ranges || piece + 1 < pieces ? end : end + min(CLHIST_EMPTY - end, end - begin);
        }
        #pragma unroll 1
        for (uint s = lane; s < ${slots}; s += lanes) table[s] = CLHIST_EMPTY;
        #pragma unroll 1
        for (uint c = lane; c < ${buckets}; c += lanes) ends[c] = 0;
        if (lane == 0) added = failed = 0;
        // Barrier: bounds are set, table and counters are empty.
        barrier(CLK_LOCAL_MEM_FENCE);
#define CLHIST_IS_IN(w) (pieces == 1 || ((w) >= bounds[0] && (w) < bounds[1]))
<%local:segments>
% for u in range(at_once):
            const word_t w_${u} = words[at_${u}];
% endfor
% for u in range(at_once):
            const bool is_in_${u} = is_${u} && CLHIST_IS_IN(w_${u});
            uint s_${u} = clhist_mixed(w_${u}, factors) & ${slots - 1};
            word_t there_${u} = is_in_${u} ? table[s_${u}] : w_${u};
% endfor
% for u in range(at_once):
            while (there_${u} != w_${u} && there_${u} != CLHIST_EMPTY) {
                s_${u} = (s_${u} + 1) & ${slots - 1};
                there_${u} = table[s_${u}];
            }
% endfor
% for u in range(at_once):
            if (is_in_${u}) {
                if (there_${u} == CLHIST_EMPTY) s_${u} = clhist_slot(w_${u}, s_${u}, table, &added, &failed);
                numbers[at_${u}] = (ushort)s_${u};
            }
% endfor
</%local:segments>
        // Barrier: all words of the piece have a slot.
        barrier(CLK_LOCAL_MEM_FENCE);
        // If there is no room for its keys, all that follows does nothing.
        const bool is_full = failed;
        const uint number = is_full ? 0 : added;
        // Barrier: all have read `added` and `failed`.
        barrier(CLK_LOCAL_MEM_FENCE);
        // Atomic: ranges reserve room for their keys in any order; `where` notes it.
        if (lane == 0) room = atomic_add(state + KEYS, number);
        // In order: by buckets of words near each other, and within one by comparing.
        const word_t least = bounds[2];
        const uint shift = clhist_shift(bounds[3] - least, ${buckets.bit_length() - 1});
#define CLHIST_BUCKET(w) ((w) < least ? 0 : (uint)min(((w) - least) >> shift, (word_t)${buckets - 1}))
        #pragma unroll 1
        for (uint s = lane; s < ${slots}; s += lanes)
            if (table[s] != CLHIST_EMPTY) atomic_inc(ends + CLHIST_BUCKET(table[s]));
        // Barrier: all keys are counted by bucket, and work-item 0 has stored `room`.
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool fits = room <= most && number <= most - room && base + number <= 0xffff;
        uint total = 0;
        #pragma unroll 1
        for (uint c = lane * ${own}; c < (lane + 1) * ${own}; ++c) total += ends[c];
        sums[lane] = total;
        ${scan.inclusive("sums", "lane", sizes.numbering_lanes)}
        uint before = sums[lane] - total;
        #pragma unroll 1
        for (uint c = lane * ${own}; c < (lane + 1) * ${own}; ++c) {
            const uint count = ends[c];
            ends[c] = before;
            before += count;
        }
        // Barrier: all buckets have their places.
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 1
        for (uint s = lane; s < ${slots}; s += lanes)
            if (table[s] != CLHIST_EMPTY && number) order[atomic_inc(ends + CLHIST_BUCKET(table[s]))] = (ushort)s;
        // Barrier: all slots are in `order`.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint n = lane; n < number; n += lanes) {
            const uint s = order[n];
            const word_t w = table[s];
            const uint c = CLHIST_BUCKET(w), begin = c > 0 ? ends[c - 1] : 0, end = ends[c];
            uint rank = begin;
            #pragma unroll 1
            for (uint m = begin; m < end; ++m) rank += table[order[m]] < w ? 1 : 0;
            ranks[s] = (ushort)(base + rank);
            if (fits) different[room + rank] = w;
        }
        // Barrier: all ranks are stored, and the words are needed no more.
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool is_over = !fits || (is_full && pieces == CLHIST_PIECES);
        if (lane == 0) {
            counts[range * CLHIST_PIECES + piece] = number;
            where[range * CLHIST_PIECES + piece] = room;
            if (is_over) state[FAILED] = 1;
        }
% if spec.first:
        // First positions take the place of the words.
        __local uint *firsts = (__local uint *)table;
        #pragma unroll 1
        for (uint s = lane; s < ${slots}; s += lanes) firsts[s] = CLHIST_NONE;
% endif
<%local:segments tiles="(number ? tiles : 0)">
% for u in range(at_once):
            const bool is_in_${u} = is_${u} && CLHIST_IS_IN(words[at_${u}]);
            const uint s_${u} = is_in_${u} ? numbers[at_${u}] : 0;
% endfor
% for u in range(at_once):
            if (is_in_${u}) {
                numbers[at_${u}] = ranks[s_${u}];
% if spec.first:
                const uint i = (from + tile_${u}) * CLHIST_TILE + places[at_${u}];
                if (firsts[s_${u}] > i) atomic_min(firsts + s_${u}, i);
% endif
            }
% endfor
</%local:segments>
% if spec.first:
        // Barrier: all first positions are found.
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 1
        for (uint s = lane; fits && s < ${slots}; s += lanes)
            if (firsts[s] != CLHIST_NONE) first[room + ranks[s] - base] = firsts[s];
% endif
        base = is_full ? 0 : base + number;
        piece = is_over ? CLHIST_PIECES : is_full ? 0 : piece + 1;
        pieces = is_full ? 2 * pieces : pieces;
    }
}
