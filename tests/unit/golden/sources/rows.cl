// === rows: cpu, add float32, 5, 1000 rows: rows
// Rows of 5 components, gathered by bin: each work-item has bins of its own.
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

value_t clhist_finish(const accumulator_t a)
{
    return a;
}

#define CLHIST_ROW_VALUE(element) (w[element])
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
// Adds a row to the accumulators of its bin. A function, so that no array is taken to be another.
void clhist_add_row(__global accumulator_t *restrict to, const ulong clhist_row, __global const int *restrict x, __global const float *restrict w)
{
    uint clhist_c = 0;
    // These are vectors already. Compilers that look for others here make them of every 4-th component, ten times as slow.
#ifdef __x86_64__
    #pragma clang loop vectorize(disable)
#else
    #pragma nounroll
#endif
    for (; clhist_c + 4 <= 5; clhist_c += 4) {
        // All loads before the first store, for vectors.
        const accumulator_t clhist_sum_0 = clhist_combine(to[clhist_c + 0], clhist_lift(CLHIST_ROW_VALUE(clhist_row * 5 + clhist_c + 0)));
        const accumulator_t clhist_sum_1 = clhist_combine(to[clhist_c + 1], clhist_lift(CLHIST_ROW_VALUE(clhist_row * 5 + clhist_c + 1)));
        const accumulator_t clhist_sum_2 = clhist_combine(to[clhist_c + 2], clhist_lift(CLHIST_ROW_VALUE(clhist_row * 5 + clhist_c + 2)));
        const accumulator_t clhist_sum_3 = clhist_combine(to[clhist_c + 3], clhist_lift(CLHIST_ROW_VALUE(clhist_row * 5 + clhist_c + 3)));
        to[clhist_c + 0] = clhist_sum_0;
        to[clhist_c + 1] = clhist_sum_1;
        to[clhist_c + 2] = clhist_sum_2;
        to[clhist_c + 3] = clhist_sum_3;
    }
    for (; clhist_c < 5; ++clhist_c)
        to[clhist_c] = clhist_combine(to[clhist_c], clhist_lift(CLHIST_ROW_VALUE(clhist_row * 5 + clhist_c)));
}

#define CLHIST_ROW_BIN(i) CLHIST_BIN(x[i])
// Each work-item has a part of the elements and a range of bins.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void clhist_rows_add(
    __global char * x__base, const ulong x__offset, __global char * w__base, const ulong w__offset,
    const uint clhist_elements, const uint clhist_row_bins, const uint clhist_parts,
    __global accumulator_t * clhist_held, const int clhist_has_dest, __global const char * clhist_dest_base,
    const ulong clhist_dest_offset, __global char * clhist_out_base, const ulong clhist_out_offset)
{
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    __global const float *restrict w = (__global const float *)(w__base + w__offset);
    __global const value_t *dest = (__global const value_t *)(clhist_dest_base + clhist_dest_offset);
    __global value_t *out = (__global value_t *)(clhist_out_base + clhist_out_offset);
    const uint clhist_item = get_global_id(0), clhist_ranges = get_global_size(0) / clhist_parts;
    const uint clhist_part = clhist_item / clhist_ranges, clhist_range = clhist_item % clhist_ranges;
    if (clhist_part >= clhist_parts)
        return;
    const uint clhist_first = (ulong)clhist_row_bins * clhist_range / clhist_ranges;
    const uint clhist_count = (uint)((ulong)clhist_row_bins * (clhist_range + 1) / clhist_ranges) - clhist_first;
    // An accumulator is a value: the first copy is where the results belong.
    __global accumulator_t *clhist_to = (ulong)clhist_first * 5 + (clhist_part == 0
        ? (__global accumulator_t *)out : clhist_held + (ulong)(clhist_part - 1) * clhist_row_bins * 5);
    if (clhist_part == 0 && clhist_has_dest)
        for (ulong k = 0; k < (ulong)clhist_count * 5; ++k)
            clhist_to[k] = clhist_combine(clhist_lift(dest[(ulong)clhist_first * 5 + k]), clhist_neutral());
    else
        for (ulong k = 0; k < (ulong)clhist_count * 5; ++k)
            clhist_to[k] = clhist_neutral();
    const uint clhist_stop = (ulong)clhist_elements * (clhist_part + 1) / clhist_parts;
    uint clhist_bins[128], clhist_rows[128];
    for (uint block = (ulong)clhist_elements * clhist_part / clhist_parts; block < clhist_stop; block += 128) {
        uint found = 0;
        for (uint i = block; i < min(block + 128, clhist_stop); ++i) {
            const uint bin = CLHIST_ROW_BIN(i) - clhist_first;
            clhist_bins[found] = bin;
            clhist_rows[found] = i;
            found += bin < clhist_count;
        }
        for (uint k = 0; k < found; ++k) {
            __global const char *ahead = (__global const char *)(clhist_to + (ulong)(clhist_bins[min(k + 8, found - 1)]) * 5);
            CLHIST_AHEAD(ahead + 0);
            CLHIST_AHEAD((__global const char *)(w + (ulong)clhist_rows[k] * 5) + 8192);
            clhist_add_row(clhist_to + (ulong)(clhist_bins[k]) * 5, clhist_rows[k], x, w);
        }
    }
}

// Combines the copies of all parts with what dest has.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void clhist_rows_join(
    const uint clhist_row_bins, const uint clhist_parts, __global accumulator_t * clhist_held,
    const int clhist_has_dest, __global const char * clhist_dest_base, const ulong clhist_dest_offset,
    __global char * clhist_out_base, const ulong clhist_out_offset)
{
    __global const value_t *dest = (__global const value_t *)(clhist_dest_base + clhist_dest_offset);
    __global value_t *out = (__global value_t *)(clhist_out_base + clhist_out_offset);
    const ulong clhist_cells = (ulong)clhist_row_bins * 5;
    const ulong end = clhist_cells * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_cells * get_global_id(0) / get_global_size(0); k < end; ++k) {
        accumulator_t total = out[k];
        for (uint part = 0; part + 1 < clhist_parts; ++part)
            total = clhist_combine(total, clhist_held[part * clhist_cells + k]);
        out[k] = clhist_finish(total);
    }
}
