// === batches: nvidia, equal: sweep
// Sweep: native updates of M = clhist_copies copies of a work-group in local memory, in S = get_num_groups(1) passes.
// Work-groups of 256, in 8 teams; neighbouring work-items have neighbouring elements.
// Policy: work-group 256, team 32, tile 512, vector 4, loads 4, unroll 16.
// A batch: chunks of each histogram's elements, equal shares.
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

// Where a chunk of a histogram begins, counted from its first element.
ulong clhist_part(const ulong size, const ulong chunk, const ulong chunks)
{
    return chunks == 1 ? size * chunk : size * chunk / chunks;
}

// The caller's code, and the map of one element to pairs.
#define EMIT(bin, value) \
    clhist_emit(CLHIST_BIN(bin), (value), CLHIST_STATE)
void clhist_map(
    const int clhist_element_x, const clhist_index_t i, CLHIST_STATE_PARAMETERS)
{
    EMIT(clhist_element_x, 1);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_sweep(
    __global char * x__base, const ulong x__offset, const clhist_index_t clhist_size,
    const clhist_bin_t clhist_num_bins, const clhist_bin_t clhist_bins_per_pass, const uint clhist_copies,
    __global char * clhist_scratch, const ulong clhist_place0, const ulong clhist_tasks,
    const ulong clhist_chunks, const ulong clhist_histogram_size)
{
    // Begin: the arrays of the call, and those of the copies.
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
    const uint clhist_lane = get_local_id(0) % 32;
    __local uchar clhist_pool[49152] __attribute__((aligned(16)));
    // The copies of a bin are neighbours, so that neighbouring work-items collide neither in a bin nor in a bank.
    const uint clhist_team_number = get_local_id(0) / 32;
    const uint clhist_cells_of_team0 = (uint)clhist_bins_per_pass * clhist_copies;
    __local cell0_t *clhist_own0 = (__local cell0_t *)clhist_pool + clhist_team_number * clhist_cells_of_team0;
    __global cell0_t *clhist_all0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    // Each team takes a task at a time. All go through as many rounds, since every work-item must reach the barriers.
    const ulong clhist_teams = clhist_items / 32;
    const ulong clhist_rounds = (clhist_tasks + clhist_teams - 1) / clhist_teams;
    for (ulong clhist_round = 0; clhist_round < clhist_rounds; ++clhist_round) {
        const ulong clhist_task = clhist_round * clhist_teams + clhist_item / 32;
        const bool clhist_is_open = clhist_task < clhist_tasks;
        // Divisions of 64 bits are slow, and one chunk of a histogram is the usual case.
        const ulong clhist_histogram = clhist_chunks == 1 ? clhist_task : clhist_task / clhist_chunks;
        const ulong clhist_chunk = clhist_task - clhist_histogram * clhist_chunks;
        const ulong clhist_from = clhist_histogram * clhist_histogram_size;
        const clhist_index_t clhist_begin = clhist_is_open
            ? (clhist_index_t)(clhist_from + clhist_part(clhist_histogram_size, clhist_chunk, clhist_chunks)) : 0;
        const clhist_index_t clhist_end = clhist_is_open
            ? (clhist_index_t)(clhist_from + clhist_part(clhist_histogram_size, clhist_chunk + 1, clhist_chunks)) : 0;
        const size_t clhist_slot = clhist_is_open ? clhist_task : 0;

        // Bins: the range of this pass, in a copy of the work-group, set to the neutral element.
        const clhist_bin_t clhist_first = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass;
        const clhist_bin_t clhist_count = clhist_is_open && clhist_first < clhist_num_bins
            ? min(clhist_bins_per_pass, clhist_num_bins - clhist_first) : 0;
        __local cell0_t *clhist_cells0 = clhist_own0 + clhist_lane % clhist_copies;
        for (uint k = clhist_lane; k < (uint)clhist_count * clhist_copies; k += 32)
            clhist_own0[k].value = clhist_neutral0();
        barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set

        // Update: tiles of 512 elements, with 4 loads in flight of 4 elements each.
        // The elements before the first aligned address.
        clhist_index_t clhist_done = min(clhist_end, (clhist_begin + 3) / 4 * 4);
        for (clhist_index_t i = clhist_begin + (clhist_index_t)clhist_lane; i < clhist_done; i += 32)
            clhist_map(x[i], i, CLHIST_STATE);
        const clhist_index_t clhist_tiles = (clhist_end - clhist_done) / 512;
        for (clhist_index_t clhist_tile = 0; clhist_tile < clhist_tiles; ++clhist_tile) {
            const clhist_index_t clhist_start
                = clhist_done + clhist_tile * 512 + (clhist_index_t)clhist_lane * 4;
            const int4 clhist_from_x_0 = *(__global const int4 *)(x + clhist_start + 0);
            const int4 clhist_from_x_1 = *(__global const int4 *)(x + clhist_start + 128);
            const int4 clhist_from_x_2 = *(__global const int4 *)(x + clhist_start + 256);
            const int4 clhist_from_x_3 = *(__global const int4 *)(x + clhist_start + 384);
            clhist_map(clhist_from_x_0.s0, clhist_start + 0, CLHIST_STATE);
            clhist_map(clhist_from_x_0.s1, clhist_start + 1, CLHIST_STATE);
            clhist_map(clhist_from_x_0.s2, clhist_start + 2, CLHIST_STATE);
            clhist_map(clhist_from_x_0.s3, clhist_start + 3, CLHIST_STATE);
            clhist_map(clhist_from_x_1.s0, clhist_start + 128, CLHIST_STATE);
            clhist_map(clhist_from_x_1.s1, clhist_start + 129, CLHIST_STATE);
            clhist_map(clhist_from_x_1.s2, clhist_start + 130, CLHIST_STATE);
            clhist_map(clhist_from_x_1.s3, clhist_start + 131, CLHIST_STATE);
            clhist_map(clhist_from_x_2.s0, clhist_start + 256, CLHIST_STATE);
            clhist_map(clhist_from_x_2.s1, clhist_start + 257, CLHIST_STATE);
            clhist_map(clhist_from_x_2.s2, clhist_start + 258, CLHIST_STATE);
            clhist_map(clhist_from_x_2.s3, clhist_start + 259, CLHIST_STATE);
            clhist_map(clhist_from_x_3.s0, clhist_start + 384, CLHIST_STATE);
            clhist_map(clhist_from_x_3.s1, clhist_start + 385, CLHIST_STATE);
            clhist_map(clhist_from_x_3.s2, clhist_start + 386, CLHIST_STATE);
            clhist_map(clhist_from_x_3.s3, clhist_start + 387, CLHIST_STATE);
        }
        clhist_done += clhist_tiles * 512;
        // What is left, element by element.
        for (clhist_index_t i = clhist_done + (clhist_index_t)clhist_lane; i < clhist_end;
             i += 32) {
            clhist_map(x[i], i, CLHIST_STATE);
        }

        // Store: the copies of each team, combined, in global memory.
        barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
        {
            __global cell0_t *clhist_result = clhist_all0 + clhist_slot * clhist_num_bins + clhist_first;
            // crew: work-items of a bin, member: number within it, steps: copies that each adds up before the tree below.
            // With few bins, a power of two of neighbouring work-items shares the copies of one bin.
            uint clhist_crew = 1;
            while (2 * clhist_crew * (uint)clhist_bins_per_pass <= 32 && 2 * clhist_crew <= clhist_copies)
                clhist_crew *= 2;
            const uint clhist_member = clhist_lane % clhist_crew;
            const uint clhist_steps = (clhist_copies + clhist_crew - 1) / clhist_crew;
            for (uint k = clhist_lane / clhist_crew; k < clhist_count; k += 32 / clhist_crew) {
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
                // Barrier: the members to add must have stored their totals.
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
    }
}
