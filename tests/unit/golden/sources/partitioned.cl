// === partitioned: nvidia, counts: split and index
// Partitioning: the pairs of a tile of 4096 elements are grouped by ranges of bins, in a region of their own.
// A bin is stored as 16 bits, its number within the range.
typedef int value_t;
typedef int accumulator_t;
// Bins are unsigned: a negative one is larger than every histogram. The "| 0" refuses bins that are not integers.
typedef int clhist_index_t;
typedef uint clhist_bin_t;
clhist_bin_t clhist_narrow(const long bin)
{
    return (ulong)bin < 0xfffffffful ? (clhist_bin_t)bin : 0xffffffffu;
}

#define CLHIST_BIN(bin) (sizeof((bin) | 0) > 4 ? clhist_narrow((long)((bin) | 0)) : (clhist_bin_t)(int)((bin) | 0))
// Accesses beside atomic updates, which may be stale or are under a lock; atomic where programs are checked for races.
#ifdef CLHIST_CHECKED
#define CLHIST_RELAXED_LOAD(exchange, word) exchange(word, 0, 0)
#define CLHIST_RELAXED_STORE(exchange, word, value) exchange(word, value)
#else
#define CLHIST_RELAXED_LOAD(exchange, word) (*(word))
#define CLHIST_RELAXED_STORE(exchange, word, value) (*(word) = (value))
#endif
void clhist_put(const clhist_bin_t bin, const value_t value, clhist_bin_t *clhist_bin)
{
    *clhist_bin = bin;
}

#define EMIT(bin, value) clhist_put(CLHIST_BIN(bin), (value), clhist_bin)
void clhist_map(
    const int clhist_element_x, const clhist_index_t i, clhist_bin_t *clhist_bin)
{
    EMIT(clhist_element_x, 1);
}

// Counts the pairs of each partition in a tile, then puts each pair in its place.
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_split(
    __global char * x__base, const ulong x__offset, const int clhist_size, const uint clhist_num_bins,
    const uint clhist_width, const uint clhist_magic, const uint clhist_shift, const uint clhist_partitions,
    const uint clhist_tiles, __global char * clhist_pairs, const ulong clhist_bins_place,
    const ulong clhist_values_place, __global uint * clhist_starts, __global uint * clhist_cursors)
{
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    __local uint clhist_counts[64];
    __local uint clhist_ends[256];
    __local uint4 clhist_staged_bins[512];
    __local ushort *clhist_places = (__local ushort *)clhist_staged_bins;
    const uint clhist_lane = get_local_id(0), clhist_tile = get_group_id(0);
    if (clhist_tile == 0 && clhist_lane == 0)
        for (uint k = 0; k < 2; ++k)
            clhist_cursors[k] = 0;
    for (uint k = clhist_lane; k < clhist_partitions * 4; k += 256)
        clhist_counts[k] = 0;
#ifdef CLHIST_CHECKED  // what nobody looks at is written, and so should be something
    for (uint k = clhist_lane; k < 512; k += 256)
        clhist_staged_bins[k] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);  // before pairs are counted
    const clhist_index_t clhist_start = (clhist_index_t)clhist_tile * 4096;
    const bool clhist_is_full = clhist_size - clhist_start >= 4096;
    const clhist_index_t clhist_own_start = clhist_start + (clhist_index_t)clhist_lane * 4;
    // All loads, before the first element is used.
    int4 clhist_from_x_0 = 0;
    if (clhist_is_full) {
        clhist_from_x_0 = *(__global const int4 *)(x + clhist_own_start + 0);
    } else {
        if (clhist_own_start + 0 < clhist_size)
            clhist_from_x_0.s0 = x[clhist_own_start + 0];
        if (clhist_own_start + 1 < clhist_size)
            clhist_from_x_0.s1 = x[clhist_own_start + 1];
        if (clhist_own_start + 2 < clhist_size)
            clhist_from_x_0.s2 = x[clhist_own_start + 2];
        if (clhist_own_start + 3 < clhist_size)
            clhist_from_x_0.s3 = x[clhist_own_start + 3];
    }
    int4 clhist_from_x_1 = 0;
    if (clhist_is_full) {
        clhist_from_x_1 = *(__global const int4 *)(x + clhist_own_start + 1024);
    } else {
        if (clhist_own_start + 1024 < clhist_size)
            clhist_from_x_1.s0 = x[clhist_own_start + 1024];
        if (clhist_own_start + 1025 < clhist_size)
            clhist_from_x_1.s1 = x[clhist_own_start + 1025];
        if (clhist_own_start + 1026 < clhist_size)
            clhist_from_x_1.s2 = x[clhist_own_start + 1026];
        if (clhist_own_start + 1027 < clhist_size)
            clhist_from_x_1.s3 = x[clhist_own_start + 1027];
    }
    int4 clhist_from_x_2 = 0;
    if (clhist_is_full) {
        clhist_from_x_2 = *(__global const int4 *)(x + clhist_own_start + 2048);
    } else {
        if (clhist_own_start + 2048 < clhist_size)
            clhist_from_x_2.s0 = x[clhist_own_start + 2048];
        if (clhist_own_start + 2049 < clhist_size)
            clhist_from_x_2.s1 = x[clhist_own_start + 2049];
        if (clhist_own_start + 2050 < clhist_size)
            clhist_from_x_2.s2 = x[clhist_own_start + 2050];
        if (clhist_own_start + 2051 < clhist_size)
            clhist_from_x_2.s3 = x[clhist_own_start + 2051];
    }
    int4 clhist_from_x_3 = 0;
    if (clhist_is_full) {
        clhist_from_x_3 = *(__global const int4 *)(x + clhist_own_start + 3072);
    } else {
        if (clhist_own_start + 3072 < clhist_size)
            clhist_from_x_3.s0 = x[clhist_own_start + 3072];
        if (clhist_own_start + 3073 < clhist_size)
            clhist_from_x_3.s1 = x[clhist_own_start + 3073];
        if (clhist_own_start + 3074 < clhist_size)
            clhist_from_x_3.s2 = x[clhist_own_start + 3074];
        if (clhist_own_start + 3075 < clhist_size)
            clhist_from_x_3.s3 = x[clhist_own_start + 3075];
    }
    clhist_bin_t clhist_bin_0 = ~(clhist_bin_t)0;
    if (clhist_own_start + 0 < clhist_size)
        clhist_map(clhist_from_x_0.s0, clhist_own_start + 0, &clhist_bin_0);
    clhist_bin_t clhist_bin_1 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1 < clhist_size)
        clhist_map(clhist_from_x_0.s1, clhist_own_start + 1, &clhist_bin_1);
    clhist_bin_t clhist_bin_2 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2 < clhist_size)
        clhist_map(clhist_from_x_0.s2, clhist_own_start + 2, &clhist_bin_2);
    clhist_bin_t clhist_bin_3 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3 < clhist_size)
        clhist_map(clhist_from_x_0.s3, clhist_own_start + 3, &clhist_bin_3);
    clhist_bin_t clhist_bin_4 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1024 < clhist_size)
        clhist_map(clhist_from_x_1.s0, clhist_own_start + 1024, &clhist_bin_4);
    clhist_bin_t clhist_bin_5 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1025 < clhist_size)
        clhist_map(clhist_from_x_1.s1, clhist_own_start + 1025, &clhist_bin_5);
    clhist_bin_t clhist_bin_6 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1026 < clhist_size)
        clhist_map(clhist_from_x_1.s2, clhist_own_start + 1026, &clhist_bin_6);
    clhist_bin_t clhist_bin_7 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1027 < clhist_size)
        clhist_map(clhist_from_x_1.s3, clhist_own_start + 1027, &clhist_bin_7);
    clhist_bin_t clhist_bin_8 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2048 < clhist_size)
        clhist_map(clhist_from_x_2.s0, clhist_own_start + 2048, &clhist_bin_8);
    clhist_bin_t clhist_bin_9 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2049 < clhist_size)
        clhist_map(clhist_from_x_2.s1, clhist_own_start + 2049, &clhist_bin_9);
    clhist_bin_t clhist_bin_10 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2050 < clhist_size)
        clhist_map(clhist_from_x_2.s2, clhist_own_start + 2050, &clhist_bin_10);
    clhist_bin_t clhist_bin_11 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2051 < clhist_size)
        clhist_map(clhist_from_x_2.s3, clhist_own_start + 2051, &clhist_bin_11);
    clhist_bin_t clhist_bin_12 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3072 < clhist_size)
        clhist_map(clhist_from_x_3.s0, clhist_own_start + 3072, &clhist_bin_12);
    clhist_bin_t clhist_bin_13 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3073 < clhist_size)
        clhist_map(clhist_from_x_3.s1, clhist_own_start + 3073, &clhist_bin_13);
    clhist_bin_t clhist_bin_14 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3074 < clhist_size)
        clhist_map(clhist_from_x_3.s2, clhist_own_start + 3074, &clhist_bin_14);
    clhist_bin_t clhist_bin_15 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3075 < clhist_size)
        clhist_map(clhist_from_x_3.s3, clhist_own_start + 3075, &clhist_bin_15);
    // Count: the partition of a bin is bin / clhist_width, as a multiplication by clhist_magic and a shift.
    if (clhist_bin_0 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_0, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_1 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_1, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_2 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_2, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_3 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_3, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_4 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_4, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_5 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_5, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_6 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_6, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_7 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_7, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_8 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_8, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_9 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_9, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_10 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_10, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_11 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_11, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_12 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_12, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_13 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_13, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_14 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_14, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    if (clhist_bin_15 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_15, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    // Barrier: all pairs are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
    // Exclusive sums: where each partition begins, and within it the pairs of each counter.
    const uint clhist_own = clhist_lane * 1;
    uint clhist_total = 0;
    for (uint p = clhist_own; p < min(clhist_own + 1, clhist_partitions); ++p) {
        for (uint k = 0; k < 4; ++k) {
            // Neighbouring partitions start at different counters, and so in different banks.
            const uint counter = p * 4 + (p + k) % 4;
            const uint count = clhist_counts[counter];
            clhist_counts[counter] = clhist_total;
            clhist_total += count;
        }
    }
    clhist_ends[clhist_lane] = clhist_total;
    barrier(CLK_LOCAL_MEM_FENCE);
        for (uint step = 1; step < 256; step *= 2) {
            const uint add = clhist_lane >= step ? clhist_ends[clhist_lane - step] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            clhist_ends[clhist_lane] += add;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    const uint clhist_begin = clhist_ends[clhist_lane] - clhist_total, clhist_all = clhist_ends[255];
    for (uint p = clhist_own; p < min(clhist_own + 1, clhist_partitions); ++p) {
        for (uint k = 0; k < 4; ++k) {
            const uint counter = p * 4 + (p + k) % 4;
            clhist_counts[counter] += clhist_begin;
            if (k == 0)
                clhist_starts[(ulong)p * clhist_tiles + clhist_tile] = clhist_counts[counter];
        }
    }
    if (clhist_lane == 0)
        clhist_starts[(ulong)clhist_partitions * clhist_tiles + clhist_tile] = clhist_all;
    // Barrier: all counters have become places.
    barrier(CLK_LOCAL_MEM_FENCE);
    // Place: a counter is the next free place of its partition.
    if (clhist_bin_0 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_0, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_0 - partition * clhist_width);
    }
    if (clhist_bin_1 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_1, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_1 - partition * clhist_width);
    }
    if (clhist_bin_2 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_2, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_2 - partition * clhist_width);
    }
    if (clhist_bin_3 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_3, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_3 - partition * clhist_width);
    }
    if (clhist_bin_4 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_4, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_4 - partition * clhist_width);
    }
    if (clhist_bin_5 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_5, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_5 - partition * clhist_width);
    }
    if (clhist_bin_6 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_6, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_6 - partition * clhist_width);
    }
    if (clhist_bin_7 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_7, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_7 - partition * clhist_width);
    }
    if (clhist_bin_8 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_8, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_8 - partition * clhist_width);
    }
    if (clhist_bin_9 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_9, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_9 - partition * clhist_width);
    }
    if (clhist_bin_10 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_10, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_10 - partition * clhist_width);
    }
    if (clhist_bin_11 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_11, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_11 - partition * clhist_width);
    }
    if (clhist_bin_12 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_12, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_12 - partition * clhist_width);
    }
    if (clhist_bin_13 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_13, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_13 - partition * clhist_width);
    }
    if (clhist_bin_14 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_14, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_14 - partition * clhist_width);
    }
    if (clhist_bin_15 < clhist_num_bins) {
        const uint partition = (mul_hi(clhist_bin_15, clhist_magic) >> clhist_shift);
        const uint at = atomic_inc(clhist_counts + partition * 4 + clhist_lane % 4);
        clhist_places[at] = (ushort)(clhist_bin_15 - partition * clhist_width);
    }
    // Barrier: the tile is complete before it is copied to global memory.
    barrier(CLK_LOCAL_MEM_FENCE);
    // Copy the tile to its region in global memory, 16 bytes at a time.
    __global uint4 *clhist_to = (__global uint4 *)(clhist_pairs + clhist_bins_place + (ulong)clhist_tile * 8192);
    for (uint k = clhist_lane; k < (clhist_all * 2 + 15) / 16; k += 256)
        clhist_to[k] = clhist_staged_bins[k];
}

// One work-group for each partition finds what its pairs cost, in pairs, and which tiles have some. Where they cost more
// than 3 pieces they are shared out: the tiles of each piece then are a task of their own.
__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void clhist_index(
    __global const uint * clhist_starts, __global uint4 * clhist_ranges, __global uint2 * clhist_tasks,
    __global ulong * clhist_task_bounds, volatile __global uint * clhist_cursors, const uint clhist_tiles,
    const uint clhist_piece, const uint clhist_segment_cost)
{
    __local uint clhist_ends[128];
    __local uint clhist_totals[4];
    const uint clhist_lane = get_local_id(0), clhist_part = get_group_id(0);
    __global const uint *clhist_own_starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
    for (uint k = clhist_lane; k < 4; k += 128)
        clhist_totals[k] = k == 2 ? clhist_tiles : 0;
    // Barrier: the totals are initialised before any work-item adds to them.
    barrier(CLK_LOCAL_MEM_FENCE);
    // The pairs of this partition, and its segments: the tiles that have some.
    uint clhist_pairs = 0, clhist_segments = 0, clhist_first = clhist_tiles, clhist_last = 0;
    for (uint tile = clhist_lane; tile < clhist_tiles; tile += 128) {
        const uint pairs = clhist_own_starts[tile + clhist_tiles] - clhist_own_starts[tile];
        if (pairs > 0) {
            clhist_pairs += pairs;
            ++clhist_segments;
            clhist_first = min(clhist_first, tile);
            clhist_last = tile + 1;
        }
    }
    // Atomics in local memory: each work-item adds its tiles once.
    if (clhist_segments > 0) {
        atomic_add(clhist_totals, clhist_pairs);
        atomic_add(clhist_totals + 1, clhist_segments);
        atomic_min(clhist_totals + 2, clhist_first);
        atomic_max(clhist_totals + 3, clhist_last);
    }
    // Barrier: all work-items have added their tiles.
    barrier(CLK_LOCAL_MEM_FENCE);
    clhist_pairs = clhist_totals[0];
    clhist_segments = clhist_totals[1];
    clhist_first = clhist_totals[2];
    clhist_last = clhist_totals[3];
    // Barrier: all have read the totals, whose words are used again.
    barrier(CLK_LOCAL_MEM_FENCE);
    // The cost in pairs: a segment has a fixed cost, too.
    const uint clhist_total = clhist_pairs + clhist_segments * clhist_segment_cost;
    uint clhist_pieces = clhist_total > 3 * clhist_piece ? (clhist_total + clhist_piece - 1) / clhist_piece : 1;
    if (clhist_pairs == 0)
        clhist_pieces = 0;
    // What is not shared out is a task only where results are made of copies.
    const uint clhist_tasks_more = clhist_pieces > 1 || false ? clhist_pieces : 0;
    if (clhist_lane == 0) {
        // Atomic: partitions reserve consecutive tasks in the list of all, in any order.
        const uint at = clhist_tasks_more ? atomic_add(clhist_cursors, clhist_tasks_more) : 0;
        clhist_totals[0] = at;
        clhist_task_bounds[2 * clhist_part] = at;
        clhist_task_bounds[2 * clhist_part + 1] = at + clhist_tasks_more;
        // The first tile with pairs, the tile behind the last one, the mean number of pairs of a segment, and the pieces.
        clhist_ranges[clhist_part] = (uint4)(
            min(clhist_first, clhist_last), clhist_last, clhist_segments ? clhist_pairs / clhist_segments : 0, clhist_pieces);
    }
    // Barrier: work-item 0 has stored the first task.
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint2 *clhist_own_tasks = clhist_tasks + clhist_totals[0];
    for (uint k = clhist_lane; k < clhist_tasks_more; k += 128)
        clhist_own_tasks[k].x = clhist_part;
    if (clhist_lane == 0 && clhist_tasks_more > 0)
        clhist_own_tasks[0].y = clhist_first;
    if (clhist_pieces < 2)
        return;
    // Where each further piece begins: behind the tile with which those before it have their part of the cost.
    uint clhist_before = 0;
    for (uint block = clhist_first; block < clhist_last; block += 128) {
        const uint tile = block + clhist_lane;
        uint cost = 0;
        if (tile < clhist_last) {
            const uint pairs = clhist_own_starts[tile + clhist_tiles] - clhist_own_starts[tile];
            cost = pairs > 0 ? pairs + clhist_segment_cost : 0;
        }
        clhist_ends[clhist_lane] = cost;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint step = 1; step < 128; step *= 2) {
            const uint add = clhist_lane >= step ? clhist_ends[clhist_lane - step] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            clhist_ends[clhist_lane] += add;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const ulong end = clhist_before + clhist_ends[clhist_lane];
        if (cost > 0) {
            // The products need 64 bits (`end` is ulong), the quotients do not.
            const uint last = min((uint)(end * clhist_pieces / clhist_total), clhist_pieces - 1);
            for (uint k = (uint)((end - cost) * clhist_pieces / clhist_total) + 1; k <= last; ++k)
                clhist_own_tasks[k].y = tile + 1;
        }
        clhist_before += clhist_ends[127];
        // Barrier: all have read the sums before the next block overwrites them.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
