// === partitioned: nvidia, counts: split and index
// Partitioning: the pairs of a tile of 4096 elements are grouped by ranges of bins, in a region of their own.
// A bin is stored as 16 bits, its number within the range; 0xffff is no bin.
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
    const ulong clhist_values_place, __global uint * clhist_starts)
{
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    __local uint clhist_counts[64];
    __local uint clhist_ends[16];
    __local uint4 clhist_staged_bins[528];
    __local ushort *clhist_places = (__local ushort *)clhist_staged_bins;
    const uint clhist_lane = get_local_id(0), clhist_tile = get_group_id(0);
    for (uint k = clhist_lane; k < clhist_partitions * 4; k += 256)
        clhist_counts[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // before pairs are counted
    const clhist_index_t clhist_start = (clhist_index_t)clhist_tile * 4096;
    const clhist_index_t clhist_own_start = clhist_start + (clhist_index_t)clhist_lane * 4;
    const bool clhist_is_full = clhist_size - clhist_start >= 4096;
    // All loads, before the first element is used.
    int4 clhist_x_0 = 0;
    if (clhist_is_full) {
        clhist_x_0 = *(__global const int4 *)(x + clhist_own_start + 0);
    } else {
        if (clhist_own_start + 0 < clhist_size)
            clhist_x_0.s0 = x[clhist_own_start + 0];
        if (clhist_own_start + 1 < clhist_size)
            clhist_x_0.s1 = x[clhist_own_start + 1];
        if (clhist_own_start + 2 < clhist_size)
            clhist_x_0.s2 = x[clhist_own_start + 2];
        if (clhist_own_start + 3 < clhist_size)
            clhist_x_0.s3 = x[clhist_own_start + 3];
    }
    int4 clhist_x_1 = 0;
    if (clhist_is_full) {
        clhist_x_1 = *(__global const int4 *)(x + clhist_own_start + 1024);
    } else {
        if (clhist_own_start + 1024 < clhist_size)
            clhist_x_1.s0 = x[clhist_own_start + 1024];
        if (clhist_own_start + 1025 < clhist_size)
            clhist_x_1.s1 = x[clhist_own_start + 1025];
        if (clhist_own_start + 1026 < clhist_size)
            clhist_x_1.s2 = x[clhist_own_start + 1026];
        if (clhist_own_start + 1027 < clhist_size)
            clhist_x_1.s3 = x[clhist_own_start + 1027];
    }
    int4 clhist_x_2 = 0;
    if (clhist_is_full) {
        clhist_x_2 = *(__global const int4 *)(x + clhist_own_start + 2048);
    } else {
        if (clhist_own_start + 2048 < clhist_size)
            clhist_x_2.s0 = x[clhist_own_start + 2048];
        if (clhist_own_start + 2049 < clhist_size)
            clhist_x_2.s1 = x[clhist_own_start + 2049];
        if (clhist_own_start + 2050 < clhist_size)
            clhist_x_2.s2 = x[clhist_own_start + 2050];
        if (clhist_own_start + 2051 < clhist_size)
            clhist_x_2.s3 = x[clhist_own_start + 2051];
    }
    int4 clhist_x_3 = 0;
    if (clhist_is_full) {
        clhist_x_3 = *(__global const int4 *)(x + clhist_own_start + 3072);
    } else {
        if (clhist_own_start + 3072 < clhist_size)
            clhist_x_3.s0 = x[clhist_own_start + 3072];
        if (clhist_own_start + 3073 < clhist_size)
            clhist_x_3.s1 = x[clhist_own_start + 3073];
        if (clhist_own_start + 3074 < clhist_size)
            clhist_x_3.s2 = x[clhist_own_start + 3074];
        if (clhist_own_start + 3075 < clhist_size)
            clhist_x_3.s3 = x[clhist_own_start + 3075];
    }
    clhist_bin_t clhist_bin_0 = ~(clhist_bin_t)0;
    if (clhist_own_start + 0 < clhist_size)
        clhist_map(clhist_x_0.s0, clhist_own_start + 0, &clhist_bin_0);
    if (clhist_bin_0 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_0, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_1 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1 < clhist_size)
        clhist_map(clhist_x_0.s1, clhist_own_start + 1, &clhist_bin_1);
    if (clhist_bin_1 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_1, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_2 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2 < clhist_size)
        clhist_map(clhist_x_0.s2, clhist_own_start + 2, &clhist_bin_2);
    if (clhist_bin_2 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_2, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_3 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3 < clhist_size)
        clhist_map(clhist_x_0.s3, clhist_own_start + 3, &clhist_bin_3);
    if (clhist_bin_3 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_3, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_4 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1024 < clhist_size)
        clhist_map(clhist_x_1.s0, clhist_own_start + 1024, &clhist_bin_4);
    if (clhist_bin_4 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_4, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_5 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1025 < clhist_size)
        clhist_map(clhist_x_1.s1, clhist_own_start + 1025, &clhist_bin_5);
    if (clhist_bin_5 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_5, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_6 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1026 < clhist_size)
        clhist_map(clhist_x_1.s2, clhist_own_start + 1026, &clhist_bin_6);
    if (clhist_bin_6 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_6, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_7 = ~(clhist_bin_t)0;
    if (clhist_own_start + 1027 < clhist_size)
        clhist_map(clhist_x_1.s3, clhist_own_start + 1027, &clhist_bin_7);
    if (clhist_bin_7 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_7, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_8 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2048 < clhist_size)
        clhist_map(clhist_x_2.s0, clhist_own_start + 2048, &clhist_bin_8);
    if (clhist_bin_8 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_8, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_9 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2049 < clhist_size)
        clhist_map(clhist_x_2.s1, clhist_own_start + 2049, &clhist_bin_9);
    if (clhist_bin_9 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_9, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_10 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2050 < clhist_size)
        clhist_map(clhist_x_2.s2, clhist_own_start + 2050, &clhist_bin_10);
    if (clhist_bin_10 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_10, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_11 = ~(clhist_bin_t)0;
    if (clhist_own_start + 2051 < clhist_size)
        clhist_map(clhist_x_2.s3, clhist_own_start + 2051, &clhist_bin_11);
    if (clhist_bin_11 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_11, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_12 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3072 < clhist_size)
        clhist_map(clhist_x_3.s0, clhist_own_start + 3072, &clhist_bin_12);
    if (clhist_bin_12 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_12, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_13 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3073 < clhist_size)
        clhist_map(clhist_x_3.s1, clhist_own_start + 3073, &clhist_bin_13);
    if (clhist_bin_13 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_13, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_14 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3074 < clhist_size)
        clhist_map(clhist_x_3.s2, clhist_own_start + 3074, &clhist_bin_14);
    if (clhist_bin_14 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_14, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    clhist_bin_t clhist_bin_15 = ~(clhist_bin_t)0;
    if (clhist_own_start + 3075 < clhist_size)
        clhist_map(clhist_x_3.s3, clhist_own_start + 3075, &clhist_bin_15);
    if (clhist_bin_15 < clhist_num_bins)
        atomic_inc(clhist_counts + (mul_hi(clhist_bin_15, clhist_magic) >> clhist_shift) * 4 + clhist_lane % 4);
    barrier(CLK_LOCAL_MEM_FENCE);
    // Exclusive sums: where each partition begins, rounded up for wide loads, and within it the pairs of each counter.
    uint clhist_total = 0;
    if (clhist_lane < clhist_partitions) {
        for (uint k = 0; k < 4; ++k) {
            // Neighbouring partitions start at different counters, and so in different banks.
            const uint counter = clhist_lane * 4 + (clhist_lane + k) % 4;
            const uint count = clhist_counts[counter];
            clhist_counts[counter] = clhist_total;
            clhist_total += count;
        }
    }
    const uint clhist_padded = (clhist_total + 7) / 8 * 8;
    if (clhist_lane < 16)
        clhist_ends[clhist_lane] = clhist_padded;
    barrier(CLK_LOCAL_MEM_FENCE);
    {
        const uint before = clhist_lane >= 1 && clhist_lane < 16 ? clhist_ends[clhist_lane - 1] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 16)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 2 && clhist_lane < 16 ? clhist_ends[clhist_lane - 2] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 16)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 4 && clhist_lane < 16 ? clhist_ends[clhist_lane - 4] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 16)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 8 && clhist_lane < 16 ? clhist_ends[clhist_lane - 8] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 16)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (clhist_lane < clhist_partitions) {
        const uint begin = clhist_ends[clhist_lane] - clhist_padded;
        clhist_starts[(ulong)clhist_lane * clhist_tiles + clhist_tile] = begin;
        if (clhist_lane + 1 == clhist_partitions)
            clhist_starts[(ulong)clhist_partitions * clhist_tiles + clhist_tile] = begin + clhist_padded;
        for (uint k = begin + clhist_total; k < begin + clhist_padded; ++k)
            clhist_places[k] = 0xffff;
        for (uint k = 0; k < 4; ++k)
            clhist_counts[clhist_lane * 4 + (clhist_lane + k) % 4] += begin;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
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
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint clhist_all = clhist_ends[clhist_partitions - 1];
    __global uint4 *clhist_to = (__global uint4 *)(clhist_pairs + clhist_bins_place + (ulong)clhist_tile * 8448);
    for (uint k = clhist_lane; k < clhist_all * 2 / 16; k += 256)
        clhist_to[k] = clhist_staged_bins[k];
}

uint clhist_cost(const uint pairs)
{
    return pairs > 0 ? pairs + 128 : 0;
}

// One work-group for each partition adds up what its pairs cost, in pairs: before each tile, and in all.
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_index(
    __global const uint * clhist_starts, __global uint * clhist_sums, __global uint * clhist_totals,
    const uint clhist_tiles)
{
    __local uint clhist_ends[256];
    const uint clhist_lane = get_local_id(0);
    const ulong clhist_row = (ulong)get_group_id(0) * clhist_tiles;
    const uint clhist_first = (ulong)clhist_tiles * clhist_lane / 256;
    const uint clhist_last = (ulong)clhist_tiles * (clhist_lane + 1) / 256;
    uint clhist_own = 0;
    for (uint tile = clhist_first; tile < clhist_last; ++tile) {
        const ulong at = clhist_row + tile;
        clhist_own += clhist_cost(clhist_starts[at + clhist_tiles] - clhist_starts[at]);
    }
    clhist_ends[clhist_lane] = clhist_own;
    barrier(CLK_LOCAL_MEM_FENCE);
    {
        const uint before = clhist_lane >= 1 && clhist_lane < 256 ? clhist_ends[clhist_lane - 1] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 2 && clhist_lane < 256 ? clhist_ends[clhist_lane - 2] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 4 && clhist_lane < 256 ? clhist_ends[clhist_lane - 4] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 8 && clhist_lane < 256 ? clhist_ends[clhist_lane - 8] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 16 && clhist_lane < 256 ? clhist_ends[clhist_lane - 16] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 32 && clhist_lane < 256 ? clhist_ends[clhist_lane - 32] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 64 && clhist_lane < 256 ? clhist_ends[clhist_lane - 64] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    {
        const uint before = clhist_lane >= 128 && clhist_lane < 256 ? clhist_ends[clhist_lane - 128] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < 256)
            clhist_ends[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    uint clhist_before = clhist_ends[clhist_lane] - clhist_own;
    for (uint tile = clhist_first; tile < clhist_last; ++tile) {
        clhist_sums[clhist_row + tile] = clhist_before;
        const ulong at = clhist_row + tile;
        clhist_before += clhist_cost(clhist_starts[at + clhist_tiles] - clhist_starts[at]);
    }
    if (clhist_lane == 255)
        clhist_totals[get_group_id(0)] = clhist_ends[clhist_lane];
}

// === partitioned: nvidia, counts: sweep
// Sweep: native updates of M = clhist_copies copies of a work-group in local memory, in S = get_num_groups(1) passes.
// Work-groups of 256; neighbouring work-items have neighbouring elements.
// The pairs of each range of bins are together, in tiles.
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
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
accumulator_t clhist_lift(const value_t v)
{
    return v;
}

typedef int part0_t;
typedef uint word0_t;
typedef union { part0_t value; word0_t word; } cell0_t;
part0_t clhist_neutral0(void)
{
    return ((int)0);
}

part0_t clhist_combine0(const part0_t a, const part0_t b)
{
    return a + b;
}

// By an atomic of the hardware.
void clhist_update0(__local cell0_t *cell, const part0_t v)
{
    volatile __local int *p = (volatile __local int *)cell;
    atomic_add(p, v);
}

// The bins of this pass and the cells of a copy, with what else an update needs.
#define CLHIST_STATE_PARAMETERS \
    const uint clhist_first, const uint clhist_count, __local cell0_t *clhist_cells0, const uint clhist_copies
#define CLHIST_STATE \
    clhist_first, clhist_count, clhist_cells0, clhist_copies
// Combines a value into a bin of a copy of the work-group.
void clhist_update_bin(const clhist_bin_t bin, const accumulator_t lifted, CLHIST_STATE_PARAMETERS)
{
    clhist_update0(clhist_cells0 + bin * clhist_copies, lifted);
}

// Takes a pair of the map, if its bin is in this pass.
void clhist_emit(const clhist_bin_t target, const value_t value, CLHIST_STATE_PARAMETERS)
{
    const clhist_bin_t bin = target - clhist_first;  // unsigned: what lies before the first is beyond the last
    if (bin < clhist_count) {
        clhist_update_bin(bin, clhist_lift(value), CLHIST_STATE);
    }
}

// The work-group that a place among all pairs belongs to.
uint clhist_group_of(const ulong place, const ulong all, const uint groups)
{
    return all == 0 ? 0 : min((uint)(place * groups / all), groups - 1);
}

// The caller's code, and the map of one element to pairs.
#define EMIT(bin, value) \
    clhist_emit(CLHIST_BIN(bin), (value), CLHIST_STATE)
void clhist_map(
    const ushort clhist_element_clhist_pair_bins, const clhist_index_t i, CLHIST_STATE_PARAMETERS)
{
    EMIT(clhist_element_clhist_pair_bins, 1);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_sweep(
    __global char * clhist_pair_bins__base, const ulong clhist_pair_bins__offset,
    const clhist_index_t clhist_size, const clhist_bin_t clhist_num_bins,
    const clhist_bin_t clhist_bins_per_pass, const uint clhist_copies, __global char * clhist_scratch,
    const ulong clhist_place0, __global const uint * clhist_starts, __global const uint * clhist_sums,
    __global const uint * clhist_totals, __global ulong * clhist_whose, const uint clhist_partitions,
    const uint clhist_tiles, const uint clhist_region, const uint clhist_span)
{
    // Begin: the arrays of the call, and those of the copies.
    __global const ushort *restrict clhist_pair_bins
        = (__global const ushort *)(clhist_pair_bins__base + clhist_pair_bins__offset);
    const uint clhist_lane = get_local_id(0);
    __local uchar clhist_pool[49152] __attribute__((aligned(16)));
    // The copies of a bin are neighbours, so that neighbouring work-items collide neither in a bin nor in a bank.
    __local cell0_t *clhist_own0 = (__local cell0_t *)clhist_pool;
    __global cell0_t *clhist_all0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    const uint clhist_group = get_group_id(0), clhist_groups = get_num_groups(0);
    __local uint *clhist_range = (__local uint *)(clhist_pool + 49144);
    ulong clhist_all = 0;
    for (uint k = 0; k < clhist_partitions; ++k)
        clhist_all += clhist_totals[k];
    // Where the copies of each partition begin, for the second stage.
    if (clhist_group == 0 && clhist_lane == 0) {
        ulong before = 0;
        uint filled = 0;
        for (uint k = 0; k < clhist_partitions; ++k) {
            clhist_whose[k] = clhist_group_of(before, clhist_all, clhist_groups) + filled;
            before += clhist_totals[k];
            filled += clhist_totals[k] > 0;
        }
        clhist_whose[clhist_partitions] = clhist_group_of(before, clhist_all, clhist_groups) + filled;
    }
    // The group's share of all pairs, and the first partition that has some of them.
    const ulong clhist_from = (clhist_group * clhist_all + clhist_groups - 1) / clhist_groups;
    const ulong clhist_to = ((clhist_group + 1) * clhist_all + clhist_groups - 1) / clhist_groups;
    ulong clhist_before = 0;
    uint clhist_part = 0, clhist_filled = 0;
    while (clhist_part + 1 < clhist_partitions
           && clhist_group_of(clhist_before + clhist_totals[clhist_part], clhist_all, clhist_groups) < clhist_group) {
        clhist_filled += clhist_totals[clhist_part] > 0;
        clhist_before += clhist_totals[clhist_part++];
    }
    for (; clhist_part < clhist_partitions
           && clhist_group_of(clhist_before, clhist_all, clhist_groups) <= clhist_group; ++clhist_part) {
        if (clhist_totals[clhist_part] == 0)
            continue;
        const ulong clhist_after = clhist_before + clhist_totals[clhist_part];
        const size_t clhist_slot = clhist_group + clhist_filled++;

        // Bins: the range of this pass, in a copy of the work-group, set to the neutral element.
        const clhist_bin_t clhist_first = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass;
        const clhist_bin_t clhist_count = clhist_first < clhist_num_bins
            ? min(clhist_bins_per_pass, clhist_num_bins - clhist_first) : 0;
        __local cell0_t *clhist_cells0 = clhist_own0 + clhist_lane % clhist_copies;
        for (uint k = clhist_lane; k < (uint)clhist_count * clhist_copies; k += 256)
            clhist_own0[k].value = clhist_neutral0();
        if (clhist_lane == 0)
            clhist_range[0] = clhist_range[1] = clhist_tiles;
        barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set
        // The tiles that have the places where the share begins and ends; without pairs a tile has no place.
        const ulong clhist_begin_place = max(clhist_from, clhist_before) - clhist_before;
        const ulong clhist_end_place = max(min(clhist_to, clhist_after), clhist_before) - clhist_before;
        const ulong clhist_total = clhist_after - clhist_before;
        __global const uint *clhist_own_sums = clhist_sums + (ulong)clhist_part * clhist_tiles;
        for (uint clhist_tile = clhist_lane; clhist_tile < clhist_tiles; clhist_tile += 256) {
            const ulong clhist_sum = clhist_own_sums[clhist_tile];
            const ulong clhist_next = clhist_tile + 1 < clhist_tiles ? clhist_own_sums[clhist_tile + 1] : clhist_total;
            if (clhist_sum <= clhist_begin_place && clhist_begin_place < clhist_next)
                clhist_range[0] = clhist_tile;
            if (clhist_sum <= clhist_end_place && clhist_end_place < clhist_next)
                clhist_range[1] = clhist_tile;
            if (clhist_end_place == clhist_total && clhist_sum < clhist_next && clhist_next == clhist_total)
                clhist_range[1] = clhist_tile + 1;
        }
        barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item reads the range that others have found

        // Update: work-items read the pairs of a tile in rounds, and load those of the next before they count these.
        __global const uint *clhist_own_starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
        __global const uint *clhist_ends = clhist_own_starts + clhist_tiles;
        uint clhist_tile = clhist_range[0];
        const uint clhist_last_tile = clhist_range[1];
        // Eight rounds or so for the pairs of a tile, by their mean.
        ulong clhist_loads = 0;
        if (clhist_tile < clhist_last_tile) {
            const ulong clhist_sum = clhist_last_tile < clhist_tiles ? clhist_own_sums[clhist_last_tile] : clhist_total;
            clhist_loads = (clhist_sum - clhist_own_sums[clhist_tile]) / (clhist_last_tile - clhist_tile) / 8;
        }
        uint clhist_crew = clhist_span;
        while (8 * clhist_crew <= clhist_loads && 256 % (2 * clhist_crew) == 0)
            clhist_crew *= 2;
        const uint clhist_stride = 256 / clhist_crew, clhist_step = clhist_crew * 8;
        const uint clhist_own = clhist_lane % clhist_crew * 8;
        clhist_tile += clhist_lane / clhist_crew;
        uint clhist_round = 0, clhist_end = 0, clhist_next_round = 0, clhist_next_end = 0;
        if (clhist_tile < clhist_last_tile) {
            clhist_round = clhist_own_starts[clhist_tile];
            clhist_end = clhist_ends[clhist_tile];
        }
        if (clhist_tile + clhist_stride < clhist_last_tile) {
            clhist_next_round = clhist_own_starts[clhist_tile + clhist_stride];
            clhist_next_end = clhist_ends[clhist_tile + clhist_stride];
        }
        bool clhist_is_inside = clhist_round + clhist_own < clhist_end;
        ushort8 clhist_clhist_pair_bins_next = 0;
        if (clhist_is_inside) {
            const clhist_index_t clhist_next_place
                = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
            clhist_clhist_pair_bins_next = *(__global const ushort8 *)(clhist_pair_bins + clhist_next_place);
        }
        while (clhist_tile < clhist_last_tile) {
            const bool clhist_was_inside = clhist_is_inside;
            const clhist_index_t clhist_place
                = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
            ushort8 clhist_clhist_pair_bins_now = clhist_clhist_pair_bins_next;
            clhist_round += clhist_step;
            if (clhist_round >= clhist_end) {
                clhist_tile += clhist_stride;
                clhist_round = clhist_next_round;
                clhist_end = clhist_next_end;
                if (clhist_tile + clhist_stride < clhist_last_tile) {
                    clhist_next_round = clhist_own_starts[clhist_tile + clhist_stride];
                    clhist_next_end = clhist_ends[clhist_tile + clhist_stride];
                }
            }
            clhist_is_inside = clhist_tile < clhist_last_tile && clhist_round + clhist_own < clhist_end;
            if (clhist_is_inside) {
                const clhist_index_t clhist_next_place
                    = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
                clhist_clhist_pair_bins_next = *(__global const ushort8 *)(clhist_pair_bins + clhist_next_place);
            }
            if (!clhist_was_inside)
                clhist_clhist_pair_bins_now = (ushort8)(0xffff);
            clhist_map(clhist_clhist_pair_bins_now.s0, clhist_place + 0, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s1, clhist_place + 1, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s2, clhist_place + 2, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s3, clhist_place + 3, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s4, clhist_place + 4, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s5, clhist_place + 5, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s6, clhist_place + 6, CLHIST_STATE);
            clhist_map(clhist_clhist_pair_bins_now.s7, clhist_place + 7, CLHIST_STATE);
        }

        // Store: the copies of the work-group, combined, in global memory.
        barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
        {
            __global cell0_t *clhist_result = clhist_all0 + clhist_slot * clhist_num_bins + clhist_first;
            // With few bins, a power of two of neighbouring work-items shares the copies of one bin.
            uint clhist_crew = 1;
            while (2 * clhist_crew * (uint)clhist_bins_per_pass <= 256 && 2 * clhist_crew <= clhist_copies)
                clhist_crew *= 2;
            const uint clhist_member = clhist_lane % clhist_crew;
            const uint clhist_steps = (clhist_copies + clhist_crew - 1) / clhist_crew;
            for (uint k = clhist_lane / clhist_crew; k < clhist_count; k += 256 / clhist_crew) {
                if (clhist_copies == 1) {
                    clhist_result[k].value = clhist_own0[k].value;
                    continue;
                }
                // Neighbouring bins start at different copies, and so in different banks.
                uint step = k % clhist_steps;
                part0_t total = clhist_neutral0();
                for (uint s = 0; s < clhist_steps; ++s) {
                    const uint copy = clhist_member + step * clhist_crew;
                    if (copy < clhist_copies)
                        total = clhist_combine0(total, clhist_own0[k * clhist_copies + copy].value);
                    step = step + 1 < clhist_steps ? step + 1 : 0;
                }
                if (clhist_crew == 1)
                    clhist_result[k].value = total;
                else  // a copy that nobody else reads
                    clhist_own0[k * clhist_copies + clhist_member].value = total;
            }
            for (uint span = clhist_crew / 2; span > 0; span /= 2) {
                barrier(CLK_LOCAL_MEM_FENCE);
                const uint k = clhist_lane / clhist_crew;
                if (k < clhist_count && clhist_member < span) {
                    __local cell0_t *mine = clhist_own0 + k * clhist_copies + clhist_member;
                    mine->value = clhist_combine0(mine->value, mine[span].value);
                    if (span == 1)
                        clhist_result[k].value = mine->value;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);  // before the next share sets the cells
        clhist_before = clhist_after;
    }
}
