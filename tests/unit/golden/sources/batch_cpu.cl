// === batches: cpu, ragged: sweep
// Sweep: private updates of a copy for each work-item in global memory, in S = get_num_groups(1) passes.
// Work-groups of 1; each work-item has consecutive elements.
// A batch: chunks of each histogram's elements, by a table.
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

// The work-item owns the cell: no atomic.
void clhist_update0(__global cell0_t *cell, const part0_t value)
{
    __global cell0_t *bin = cell;
    bin->value = clhist_combine0(bin->value, value);
}

// The bins of this pass and the cells of a copy, with what else an update needs.
#define CLHIST_STATE_PARAMETERS \
    const uint clhist_first, const uint clhist_count, __global cell0_t *clhist_cells0
#define CLHIST_STATE \
    clhist_first, clhist_count, clhist_cells0
// Combines a value into a bin of this work-item's copy.
void clhist_update_bin(const clhist_bin_t bin, const accumulator_t lifted, CLHIST_STATE_PARAMETERS)
{
    clhist_update0(clhist_cells0 + bin, lifted);
}

// Takes a pair of the map, if its bin is in this pass.
void clhist_emit(const clhist_bin_t target, const value_t value, CLHIST_STATE_PARAMETERS)
{
    const clhist_bin_t bin = target - clhist_first;  // unsigned: what lies before the first is beyond the last
    if (bin < clhist_count) {
        clhist_update_bin(bin, clhist_lift(value), CLHIST_STATE);
    }
}

// The caller's code, and the map of one element to pairs.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"  // where a loop is not made of vectors
#endif
#if defined(__has_builtin) && !defined(CLHIST_CHECKED) && !defined(__NV_CL_C_VERSION)  // Oclgrind has none
#if __has_builtin(__builtin_prefetch)
#define CLHIST_AHEAD(p) __builtin_prefetch((const void *)(size_t)(p))
#endif
#endif
#ifndef CLHIST_AHEAD
#define CLHIST_AHEAD(p) ((void)0)
#endif
#define EMIT(bin, value) \
    clhist_emit(CLHIST_BIN(bin), (value), CLHIST_STATE)
void clhist_map(
    const int clhist_element_x, const clhist_index_t i, CLHIST_STATE_PARAMETERS)
{
    EMIT(clhist_element_x, 1);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void clhist_sweep(
    __global char * x__base, const ulong x__offset, const clhist_index_t clhist_size,
    const clhist_bin_t clhist_num_bins, const clhist_bin_t clhist_bins_per_pass, const uint clhist_copies,
    __global char * clhist_scratch, const ulong clhist_place0, const ulong clhist_tasks,
    __global const clhist_index_t * clhist_table)
{
    // Begin: the arrays of the call, and those of the copies.
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
    const uint clhist_lane = get_local_id(0);
    __global cell0_t *clhist_all0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    // Each team takes a task at a time. All go through as many rounds, since every work-item must reach the barriers.
    const ulong clhist_teams = clhist_items / 1;
    const ulong clhist_rounds = (clhist_tasks + clhist_teams - 1) / clhist_teams;
    for (ulong clhist_round = 0; clhist_round < clhist_rounds; ++clhist_round) {
        const ulong clhist_task = clhist_round * clhist_teams + clhist_item / 1;
        const bool clhist_is_open = clhist_task < clhist_tasks;
        __global const clhist_index_t *clhist_row = clhist_table + 3 * (clhist_is_open ? clhist_task : 0);
        const clhist_index_t clhist_begin = clhist_row[0], clhist_end = clhist_is_open ? clhist_row[1] : clhist_begin;
        const ulong clhist_histogram = (ulong)clhist_row[2];
        const size_t clhist_slot = clhist_is_open ? clhist_task : 0;

        // Bins: the range of this pass, in this work-item's copy, set to the neutral element.
        const clhist_bin_t clhist_first = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass;
        const clhist_bin_t clhist_count = clhist_is_open && clhist_first < clhist_num_bins
            ? min(clhist_bins_per_pass, clhist_num_bins - clhist_first) : 0;
        __global cell0_t *clhist_cells0
            = clhist_all0 + clhist_slot * clhist_num_bins + clhist_first;
        for (clhist_bin_t k = 0; k < clhist_count; ++k)
            clhist_cells0[k].value = clhist_neutral0();

        // Update: each work-item goes through consecutive elements.
        const clhist_index_t clhist_last
            = clhist_begin + (clhist_index_t)((ulong)(clhist_end - clhist_begin) * (clhist_lane + 1) / 1);
        clhist_index_t i = clhist_begin + (clhist_index_t)((ulong)(clhist_end - clhist_begin) * clhist_lane / 1);
        for (; clhist_last - i >= 8; i += 8) {
            // 8 elements, while memory is asked for those that are read later.
            CLHIST_AHEAD(x + i + 1024);
            #pragma unroll 8
            for (int clhist_k = 0; clhist_k < 8; ++clhist_k) {
                clhist_map(x[i + clhist_k], i + clhist_k, CLHIST_STATE);
            }
        }
        for (; i < clhist_last; ++i)
            clhist_map(x[i], i, CLHIST_STATE);
    }
}
