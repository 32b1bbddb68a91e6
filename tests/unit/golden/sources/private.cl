// === private: cpu, global, add float32: sweep
// Sweep: private updates of a copy for each work-item in global memory, in S = get_num_groups(1) passes.
// Work-groups of 1; each work-item has consecutive elements.
// Policy: work-group 1, team 1, round 8, unroll 8, block 512.
// Copies are padded, so that none shares cache lines with another.
// Neighbouring elements go to several copies of a work-item in turn.
typedef float value_t;
typedef float accumulator_t;
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

typedef float part0_t;
typedef uint word0_t;
typedef union { part0_t value; word0_t word; } cell0_t;
part0_t clhist_neutral0(void)
{
    return as_float(0x00000000u);
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

// An update of a bin that is in the pass, as has been compared.
void clhist_emit_inside(
    const clhist_bin_t bin, const value_t value, CLHIST_STATE_PARAMETERS)
{
    clhist_update_bin(bin, clhist_lift(value), CLHIST_STATE);
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
#if defined(CLHIST_NO_PREFETCH) || defined(CLHIST_CHECKED) || defined(__NV_CL_C_VERSION)  // Oclgrind has none
#elif defined(__has_builtin)
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
    const int clhist_element_x, const float clhist_element_w, const clhist_index_t i, CLHIST_STATE_PARAMETERS)
{
    EMIT(clhist_element_x, clhist_element_w);
}

// The same for an element whose bin has been compared with those of the pass.
#undef EMIT
#define EMIT(bin, value) clhist_emit_inside(clhist_target, (value), CLHIST_STATE)
void clhist_map_inside(
    const clhist_bin_t clhist_target, const int clhist_element_x, const float clhist_element_w,
    const clhist_index_t i, CLHIST_STATE_PARAMETERS)
{
    EMIT(clhist_element_x, clhist_element_w);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void clhist_sweep(
    __global char * x__base, const ulong x__offset, __global char * w__base, const ulong w__offset,
    const clhist_index_t clhist_size, const clhist_bin_t clhist_num_bins,
    const clhist_bin_t clhist_bins_per_pass, const clhist_bin_t clhist_stride, const uint clhist_copies,
    __global char * clhist_scratch, const ulong clhist_place0)
{
    // Begin: the arrays of the call, and those of the copies.
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    __global const float *restrict w = (__global const float *)(w__base + w__offset);
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
    const uint clhist_lane = get_local_id(0);
    __global cell0_t *clhist_all0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    const size_t clhist_slot = clhist_item * clhist_copies / clhist_items;
    const uint clhist_turns = clhist_copies / (uint)clhist_items;  // copies that neighbouring elements go to in turn

    // Bins: the range of this pass, in this work-item's copy, set to the neutral element.
    const clhist_bin_t clhist_first = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass;
    const clhist_bin_t clhist_count = clhist_first < clhist_num_bins
        ? min(clhist_bins_per_pass, clhist_num_bins - clhist_first) : 0;
    __global cell0_t *clhist_cells0
        = clhist_all0 + clhist_slot * clhist_stride + clhist_first;
    // Behind the bins there is one for each pass, which takes what is not in the pass.
    const clhist_bin_t clhist_spare = clhist_num_bins + (clhist_bin_t)get_group_id(1) - clhist_first;
    for (uint turn = 0; turn < clhist_turns; ++turn) {
        for (clhist_bin_t k = 0; k < clhist_count; ++k)
            clhist_cells0[(size_t)turn * clhist_stride + k].value = clhist_neutral0();
        clhist_cells0[(size_t)turn * clhist_stride + clhist_spare].value = clhist_neutral0();
    }

    // Update: each work-item goes through consecutive elements.
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    clhist_index_t i = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);
    __global cell0_t *clhist_first_copy0 = clhist_cells0;
#ifndef CLHIST_NO_ROUNDS
    for (; clhist_last - i >= 512; i += 512) {
        // 512 bins are compared with those of the pass by vectors. These bins are what is updated then:
        // somebody may write to the array meanwhile.
        clhist_bin_t clhist_ahead[512];
        #pragma clang loop vectorize_width(16) unroll(disable)
        for (int clhist_k = 0; clhist_k < 512; ++clhist_k) {
            const clhist_bin_t clhist_bin = CLHIST_BIN(x[i + clhist_k]) - clhist_first;
            clhist_ahead[clhist_k] = clhist_bin < clhist_count ? clhist_bin : clhist_spare;
        }
        for (int clhist_round = 0; clhist_round < 512; clhist_round += 8) {
            // 8 elements, while memory is asked for those that are read later.
            CLHIST_AHEAD(x + i + clhist_round + 1024);
            CLHIST_AHEAD(w + i + clhist_round + 768);
            #pragma unroll 8
            for (int clhist_k = 0; clhist_k < 8; ++clhist_k) {
                // Neighbouring elements go to different copies, so that an update need not wait for the one before it.
                const size_t clhist_turn = (size_t)(clhist_k & (clhist_turns - 1)) * clhist_stride;
                __global cell0_t *clhist_cells0 = clhist_first_copy0 + clhist_turn;
                clhist_map_inside(
                    clhist_ahead[clhist_round + clhist_k], x[i + clhist_round + clhist_k],
                    w[i + clhist_round + clhist_k], i + clhist_round + clhist_k, CLHIST_STATE);
            }
        }
    }
#endif
    for (; i < clhist_last; ++i)
        clhist_map(x[i], w[i], i, CLHIST_STATE);
}

value_t clhist_finish(const accumulator_t a)
{
    return a;
}

accumulator_t clhist_combine(const accumulator_t a, const accumulator_t b)
{
    accumulator_t both;
    both = clhist_combine0(a, b);
    return both;
}

accumulator_t clhist_neutral(void)
{
    accumulator_t neutral;
    neutral = clhist_neutral0();
    return neutral;
}

// The accumulator of a cell, of which each part has an array.
accumulator_t clhist_cell_of(__global const cell0_t *cells0, const ulong at)
{
    accumulator_t held;
    held = cells0[at].value;
    return held;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void clhist_combine_copies(
    __global const char * clhist_scratch, const ulong clhist_place0, const ulong clhist_num_bins,
    const ulong clhist_bins, const ulong clhist_copies, const int has_dest, __global const char * dest_base,
    const ulong dest_offset, __global char * out_base, const ulong out_offset)
{
    __global const cell0_t *cells0 = (__global const cell0_t *)(clhist_scratch + clhist_place0);
    __global const value_t *dest = (__global const value_t *)(dest_base + dest_offset);
    __global value_t *out = (__global value_t *)(out_base + out_offset);
    const ulong end = clhist_num_bins * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_num_bins * get_global_id(0) / get_global_size(0); k < end; ++k) {
        // In a batch, the copies of a histogram are neighbours: `at` is the bin in the first of them.
        const ulong copies = clhist_copies, at = k;
        accumulator_t total = has_dest ? clhist_lift(dest[k]) : clhist_neutral();
        if (copies == 0)
            total = clhist_combine(total, clhist_neutral());
        for (ulong copy = 0; copy < copies; ++copy)
            total = clhist_combine(total, clhist_cell_of(cells0, at + copy * clhist_bins));
        out[k] = clhist_finish(total);
    }
}
