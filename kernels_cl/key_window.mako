## Lists the distinct integers of an array that all lie in a window of ${window} values: two launches, no sort.
##
##   parts      | bit of each value, by work-group 0 | whether a value lies outside | .. of work-group 1 | ..
##   distinct   | values in their order | ..
##   state      | number of distinct values | whether a value lies outside |
##
## The window begins at 0, or is around the first elements. Used by clhist/grouped/distinct_keys.py.
## Note [One hash table of group keys], docs/decisions/0019.
<%namespace name="scan" file="scan.mako"/>\
<%
    cells = window // 32
    each = cells // lanes
    stride = cells + 1
%>\
<%include file="key_words.mako"/>

// The least word of the window.
word_t clhist_least(__global const key_t *keys, const long size)
{
    word_t low = CLHIST_EMPTY, high = 0;
    for (long i = 0; i < min(size, (long)${samples}); ++i) {
        const key_t b = keys[i];
        const word_t w = ${spec.encoded};
        low = min(low, w);
        high = max(high, w);
    }
    if (low >= ${zero} && high - ${zero} < ${window}) return ${zero};
    // As much room on both sides of them.
    const word_t room = high - low < ${window} ? (${window} - (high - low)) / 2 : 0;
    return low < room ? 0 : low - room;
}

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_mark(__global const char *keys_base, const ulong keys_offset, __global uint *parts, const long size)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __local uint bits[${cells}], outside;
    const uint lane = get_local_id(0);
    for (uint k = lane; k < ${cells}; k += ${lanes}) bits[k] = 0;
    if (lane == 0) outside = 0;
    const word_t least = clhist_least(keys, size);
    // Barrier: all bits are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long i = get_global_id(0); i < size; i += get_global_size(0)) {
        const key_t b = keys[i];
        const word_t w = ${spec.encoded};
        if (w < least || w - least >= ${window}) {
            outside = 1;
            break;
        }
        const uint s = (uint)(w - least);
        // A plain load first: most values have their bit already, and an atomic on one cell waits for the others.
        if (!(bits[s / 32] >> s % 32 & 1)) atomic_or(bits + s / 32, 1u << s % 32);
    }
    // Barrier: all elements are marked.
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint *part = parts + get_group_id(0) * ${stride};
    for (uint k = lane; k < ${cells}; k += ${lanes}) part[k] = bits[k];
    if (lane == 0) part[${cells}] = outside;
}

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_list(
    __global const char *keys_base, const ulong keys_offset, __global const uint *parts,
    __global char *distinct_base, const ulong distinct_offset, __global char *state_base, const ulong state_offset,
    const long size)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __global key_t *distinct = (__global key_t *)(distinct_base + distinct_offset);
    __global uint *state = (__global uint *)(state_base + state_offset);
    __local uint bits[${cells}], sums[${lanes}], outside;
    const uint lane = get_local_id(0);
    if (lane == 0) outside = 0;
    // Barrier: the flag is 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = lane; k < ${cells}; k += ${lanes}) {
        uint cell = 0;
        #pragma unroll 8
        for (uint g = 0; g < ${groups}; ++g) cell |= parts[g * ${stride} + k];
        bits[k] = cell;
    }
    for (uint g = lane; g < ${groups}; g += ${lanes})
        if (parts[g * ${stride} + ${cells}]) outside = 1;
    // Barrier: the bits of all work-groups are joined.
    barrier(CLK_LOCAL_MEM_FENCE);
    // Each work-item counts the values of cells next to each other.
    uint mine = 0;
    for (uint k = lane * ${each}; k < (lane + 1) * ${each}; ++k) mine += popcount(bits[k]);
    sums[lane] = mine;
    ${scan.inclusive("sums", "lane", lanes)}
    if (lane == 0) {
        state[0] = sums[${lanes - 1}];
        state[1] = outside;
    }
    if (outside) return;
    const word_t least = clhist_least(keys, size);
    // A work-item for each bit, so that stores of neighbours coalesce.
    for (uint s = lane; s < ${window}; s += ${lanes}) {
        const uint cell = s / 32, bit = s % 32, first = cell - cell % ${each};
        if (!(bits[cell] >> bit & 1)) continue;
        uint at = first ? sums[first / ${each} - 1] : 0;
        for (uint k = first; k < cell; ++k) at += popcount(bits[k]);
        at += popcount(bits[cell] & ((1u << bit) - 1));
        const word_t w = least + s;
        distinct[at] = ${spec.decoded};
    }
}
