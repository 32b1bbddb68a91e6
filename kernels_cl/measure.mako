## Kernels that measure a device for its profile (clhist/calibration): each stresses one resource. One is
## rendered at a time, by `kernel`.
% if kernel == "local_memory":
## Writes every word, and checks each from another work-item than the one that wrote it.
__kernel void clhist_measure(__global int *wrong)
{
    __local uint cells[${words}];
    const uint lane = get_local_id(0), lanes = get_local_size(0), mark = 2654435761u * (uint)(get_group_id(0) + 1);
    for (uint k = lane; k < ${words}; k += lanes)
        cells[k] = k ^ mark;
    // Barrier: all words are written before others check them.
    barrier(CLK_LOCAL_MEM_FENCE);
    int bad = 0;
    for (uint k = lanes - 1 - lane; k < ${words}; k += lanes)
        bad |= cells[k] != (k ^ mark);
    if (bad)
        atomic_xchg(wrong, 1);
}
% elif kernel == "local_argument":
__kernel void clhist_measure(__global int *wrong, __local uint *cells, const uint words)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0), mark = 2654435761u * (uint)(get_group_id(0) + 1);
    for (uint k = lane; k < words; k += lanes)
        cells[k] = k ^ mark;
    // Barrier: all words are written before others check them.
    barrier(CLK_LOCAL_MEM_FENCE);
    int bad = 0;
    for (uint k = lanes - 1 - lane; k < words; k += lanes)
        bad |= cells[k] != (k ^ mark);
    if (bad)
        atomic_xchg(wrong, 1);
}
% elif kernel == "read":
## Reads vectors of 16 bytes, `rounds` times over, four loads in flight: neighbouring work-items read neighbours (GPU) or
## a block each (CPU).
__kernel void clhist_measure(__global const uint4 *x, const ulong vectors, const uint rounds, const uint blocked,
                             __global uint *sums)
{
    uint4 a = 0, b = 0, c = 0, d = 0;
    const ulong items = get_global_size(0), item = get_global_id(0), step = blocked ? 1 : items;
    const ulong begin = blocked ? vectors * item / items : item, end = blocked ? vectors * (item + 1) / items : vectors;
    for (uint round = 0; round < rounds; ++round) {
        ulong k = begin;
        for (; k + 3 * step < end; k += 4 * step) {
            a ^= x[k];
            b ^= x[k + step];
            c ^= x[k + 2 * step];
            d ^= x[k + 3 * step];
        }
        for (; k < end; k += step)
            a ^= x[k];
        a += round;
    }
    const uint4 all = a ^ b ^ c ^ d;
    if ((all.x ^ all.y ^ all.z ^ all.w) == 0xdeadbeefu)  // never so, but the compiler cannot know
        sums[0] = 1;
}
% elif kernel == "scatter":
## Atomic additions to pseudo-random words of a working set.
__kernel void clhist_measure(__global uint *x, const uint words, const uint each)
{
    uint state = 2654435761u * (uint)get_global_id(0) + 12345u;
    for (uint k = 0; k < each; ++k) {
        state = state * 1664525u + 1013904223u;
        atomic_inc(x + mul_hi(state, words));
    }
}
% elif kernel == "stride":
## Reads one word of every `stride`, once.
__kernel void clhist_measure(__global const uint *x, const ulong count, const ulong stride, __global uint *sums)
{
    uint sum = 0;
    for (ulong k = get_global_id(0); k < count; k += get_global_size(0))
        sum ^= x[k * stride];
    if (sum == 0xdeadbeefu)
        sums[0] = 1;
}
% elif kernel == "residents":
## Counts resident work-groups: each counts itself in, polls the count for a bounded time, and leaves.
__kernel void clhist_measure(volatile __global int *present, volatile __global int *most, const uint patience)
{
    if (get_local_id(0) == 0) {
        int seen = atomic_inc(present) + 1;
        for (uint k = 0; k < patience; ++k)
            seen = max(seen, atomic_add(present, 0));
        atomic_max(most, seen);
        atomic_dec(present);
    }
    // Barrier: the work-group stays resident until its first work-item has counted.
    barrier(CLK_GLOBAL_MEM_FENCE);
}
% else:
__kernel void clhist_measure(__global int *nothing)
{
}
% endif
