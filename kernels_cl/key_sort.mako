## Lists the distinct keys of few elements by one work-group: a bitonic sort in local memory, and a scan of the heads.
##
##   words      | keys in their order | missing keys, and what is beyond the last element: all bits set |
##   state      | number of distinct keys | 0 |
##
## Used by clhist/grouped/distinct_keys.py. Note [One hash table of group keys], docs/decisions/0019.
<%namespace name="scan" file="scan.mako"/>\
<% each = room // lanes %>\
<%include file="key_words.mako"/>

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_sort(
    __global const char *keys_base, const ulong keys_offset, __global char *distinct_base, const ulong distinct_offset,
    __global char *state_base, const ulong state_offset, const long size)
{
    __global const key_t *keys = (__global const key_t *)(keys_base + keys_offset);
    __global key_t *distinct = (__global key_t *)(distinct_base + distinct_offset);
    __global uint *state = (__global uint *)(state_base + state_offset);
    __local word_t words[${room}];
    __local uint sums[${lanes}];
    const uint lane = get_local_id(0);
    // The least power of 2 with room for all elements is sorted.
    const uint number = size < 2 ? 2 : 1u << (32 - clz((uint)size - 1));
    for (uint k = lane; k < number; k += ${lanes}) {
        word_t w = CLHIST_EMPTY;
        if (k < size) {
            const key_t b = keys[k];
            if (!(${spec.is_missing})) w = ${spec.encoded};
        }
        words[k] = w;
    }
    for (uint span = 2; span <= number; span *= 2)
        for (uint step = span / 2; step > 0; step /= 2) {
            // Barrier: the pairs of the step before are in order.
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = lane; k < number / 2; k += ${lanes}) {
                const uint i = 2 * k - (k & (step - 1));
                const word_t one = words[i], other = words[i + step];
                if ((one > other) == ((i & span) == 0)) {
                    words[i] = other;
                    words[i + step] = one;
                }
            }
        }
    // Barrier: all words are in order.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint mine = 0;
    for (uint i = lane * ${each}; i < min((uint)size, (lane + 1) * ${each}); ++i)
        mine += i == 0 || words[i] != words[i - 1] ? 1 : 0;
    sums[lane] = mine;
    ${scan.inclusive("sums", "lane", lanes)}
    uint at = sums[lane] - mine;
    if (lane == 0) {
        state[0] = sums[${lanes - 1}];
        state[1] = 0;
    }
    for (uint i = lane * ${each}; i < min((uint)size, (lane + 1) * ${each}); ++i) {
        const word_t w = words[i];
        if (i == 0 || w != words[i - 1]) distinct[at++] = ${f"w == CLHIST_EMPTY ? {spec.missing_bits} : {spec.decoded}" if spec.dtype.kind == "f" else spec.decoded};
    }
}
