// === sort: nvidia, add float32: pairs


// The pairs of a map, to be sorted by bin: 1 for each element. What is in no bin gets a larger key than all bins.


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


// An accumulator, of an odd number of words, as the scan needs it.
typedef struct { uint words[1]; } clhist_held_t;



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




void clhist_emit(
    const clhist_bin_t bin, const value_t value, __global uint *clhist_keys,
    __global clhist_held_t *clhist_accumulators, const uint clhist_num_bins, const uint clhist_first,
    const uint clhist_end, uint *clhist_next)
{
    if (bin < clhist_num_bins && *clhist_next < clhist_end) {
        clhist_keys[*clhist_next] = clhist_first + bin;
        union { accumulator_t value; uint words[1]; } lifted = {.words = {0}};
        lifted.value = clhist_lift(value);
        // By words, as the scan reads it.
        clhist_accumulators[*clhist_next].words[0] = lifted.words[0];
        ++*clhist_next;
    }
}





#define EMIT(bin, value) \
    clhist_emit( \
        CLHIST_BIN(bin), (value), clhist_keys, clhist_accumulators, clhist_num_bins, clhist_first, clhist_end, \
        clhist_next)
void clhist_map(
    __global const int *restrict x, __global const float *restrict w, const clhist_index_t i,
    __global uint *clhist_keys, __global clhist_held_t *clhist_accumulators, const uint clhist_num_bins,
    const uint clhist_first, const uint clhist_end, uint *clhist_next)
{
    EMIT(x[i], w[i]);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_pairs(
    __global char * x__base, const ulong x__offset, __global char * w__base, const ulong w__offset,
    const int clhist_size, const uint clhist_num_bins, const uint clhist_no_bin, __global uint * clhist_keys,
    __global uint * clhist_positions, __global clhist_held_t * clhist_accumulators)
{
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    __global const float *restrict w = (__global const float *)(w__base + w__offset);
    const uint clhist_item = get_global_id(0), clhist_items = get_global_size(0);
    for (uint i = clhist_item; i < (uint)clhist_size; i += clhist_items) {
        const uint clhist_first = 0;
        const uint clhist_end = (i + 1) * 1;
        uint clhist_next = i * 1;
        for (uint k = clhist_next; k < clhist_end; ++k)
            clhist_positions[k] = k;
        clhist_map(
            x, w, (int)i, clhist_keys, clhist_accumulators, clhist_num_bins, clhist_first, clhist_end,
            &clhist_next);
        for (; clhist_next < clhist_end; ++clhist_next)
            clhist_keys[clhist_next] = clhist_no_bin;
    }
}

// === sort: nvidia, add float32: scan of sorted pairs


typedef float value_t;
typedef float accumulator_t;

typedef struct { uint words[1]; } clhist_held_t;
typedef union { accumulator_t value; uint words[2]; } clhist_union_t;



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



clhist_union_t clhist_of_words(const clhist_held_t item)
{
    clhist_union_t found = {.words = {0}};
    found.words[0] = item.words[0];
    return found;
}

clhist_held_t clhist_as_words(const clhist_union_t found)
{
    clhist_held_t item;
    item.words[0] = found.words[0];
    return item;
}

clhist_held_t clhist_no_words(void)
{
    clhist_union_t neutral = {.words = {0}};
    neutral.value = clhist_neutral0();
    return clhist_as_words(neutral);
}

clhist_held_t clhist_read(const bool has_bin, __global const uint *accumulators, const uint position)
{
    if (!has_bin) return clhist_no_words();
    return ((__global const clhist_held_t *)accumulators)[position];
}

clhist_held_t clhist_joined(const clhist_held_t a, const clhist_held_t b)
{
    const clhist_union_t first = clhist_of_words(a);
    clhist_union_t both = clhist_of_words(b);
    both.value = clhist_combine0(first.value, both.value);
    return clhist_as_words(both);
}

void clhist_publish(const clhist_held_t item, const uint bin, __global uchar *scratch, const ulong place0)
{
    const clhist_union_t found = clhist_of_words(item);
    ((__global cell0_t *)(scratch + place0))[bin].value = found.value;
}
