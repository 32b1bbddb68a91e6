// === packed: nvidia: sweep
// Sweep: native updates of M = clhist_copies copies of a work-group in local memory, in S = get_num_groups(1) passes.
// Work-groups of 256; neighbouring work-items have neighbouring elements.
// Policy: work-group 256, team 256, tile 4096, vector 4, loads 4, unroll 16.
// Counters of 16 bits, 2 to a word; what they cannot hold is spilled.
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
    const uint clhist_first, const uint clhist_count, volatile __local uint *clhist_words, \
    volatile __local uint *clhist_spills, volatile __global uint *clhist_table, \
    volatile __global uint *clhist_flag, const uint clhist_table_size, const uint clhist_most_spills
#define CLHIST_STATE \
    clhist_first, clhist_count, clhist_words, clhist_spills, clhist_table, clhist_flag, clhist_table_size, \
    clhist_most_spills
// An update of which it is not known yet whether it carried.
typedef struct { clhist_bin_t bin; uint seen; } clhist_pending_t;
// Counts what a counter cannot hold, by bin; too much of it raises the flag.
void clhist_spill(const clhist_bin_t bin, const uint amount, CLHIST_STATE_PARAMETERS)
{
    const uint key = (uint)(clhist_first + bin);
    uint place = key & clhist_table_size - 1;
    // Atomic: counts the spills of the work-group, which beyond a limit gives up.
    uint tries = atomic_inc(clhist_spills) < clhist_most_spills ? clhist_table_size : 0;
    for (bool is_there = false; tries > 0 && !is_there;) {
        // Atomic: one of several work-items takes a free slot (open addressing).
        const uint found = atomic_cmpxchg(clhist_table + 2 * place, 0xffffffffu, key);
        is_there = found == 0xffffffffu || found == key;
        tries -= is_there ? 0 : 1;
        place = is_there ? place : place + 1 & clhist_table_size - 1;
    }
    if (tries > 0) {
        atomic_add(clhist_table + 2 * place + 1, amount);
    } else {
        // A maximum, since others may increment meanwhile. The flag may be stored by many: all store the same.
        atomic_max(clhist_spills, clhist_most_spills + 1);
        CLHIST_RELAXED_STORE(atomic_xchg, clhist_flag, 0x9e3779b9u);
    }
}

// Takes back the carries of the addition to the counter of `bin`, which returned `seen`.
__attribute__((noinline))
void clhist_carry(const clhist_bin_t bin, uint seen, CLHIST_STATE_PARAMETERS)
{
    uint added = 1u << (uint)(bin % 2) * 16;
    volatile __local uint *word = clhist_words + bin / 2;
    const clhist_bin_t lowest = bin / 2 * 2;
    bool is_borrowed = false;
    while (added) {
        const uint now = is_borrowed ? seen - added : seen + added;
        const uint into = seen ^ added ^ now;  // the bits that a carry or a borrow went into
        uint back = 0;
        for (uint field = 0; field < 2; ++field) {
            const uint above = 16 * (field + 1);
            const bool is_out = above < 32 ? into >> above & 1 : is_borrowed ? seen < added : now < seen;
            if (is_out) {
                clhist_spill(lowest + field, is_borrowed ? -65536u : 65536u, CLHIST_STATE);
                back |= above < 32 ? 1u << above : 0;
            }
        }
        added = back;
        is_borrowed = !is_borrowed;
        // Atomic: its result shows the carries, or borrows, that this step causes in turn.
        if (added)
            seen = is_borrowed ? atomic_sub(word, added) : atomic_add(word, added);
    }
}

// Adds 1 to the counter of a bin of this pass; whether that carried is asked later.
void clhist_emit(
    const clhist_bin_t target, const value_t value, CLHIST_STATE_PARAMETERS, clhist_pending_t *clhist_pending)
{
    const clhist_bin_t bin = target - clhist_first;  // unsigned: what lies before the first is beyond the last
    clhist_pending->bin = bin;
    // Atomic: the result is kept, to find the carry later while further atomics are under way. The cast makes the shift one
    // of 32 bits where bins have 64.
    if (bin < clhist_count)
        clhist_pending->seen = atomic_add(clhist_words + bin / 2, 1u << (uint)(bin % 2) * 16);
}

// Whether the counter was full, so that the addition carried.
bool clhist_is_full(const clhist_pending_t pending)
{
    return (pending.seen >> (uint)(pending.bin % 2) * 16 & 0xffff) == 0xffff;
}

// Looks ahead at a bin. Those seen are kept by hashing, and behind them how often each came again. `clhist_seen` has
// the pairs of bins that exist, how many were the first of their bin, and how often at most a bin came again.
void clhist_look_at(
    const clhist_bin_t target, const clhist_bin_t num_bins, volatile __local uint *clhist_bins_seen, uint *clhist_seen)
{
    const uint key = (uint)target + 1;
    bool is_looking = target < num_bins, is_first = is_looking;
    clhist_seen[0] += is_looking;
    uint place = key * 2654435761u >> 20;
    uint at = place;
    for (uint tried = 0; tried < 32 && is_looking; ++tried) {
        at = place;
        uint found = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_bins_seen + place);
        if (found == 0)
            found = atomic_cmpxchg(clhist_bins_seen + place, 0, key);
        is_looking = found != 0 && found != key;
        is_first = found != key;
        place = (place + 1) % 4096;
    }
    clhist_seen[1] += is_first;
    if (target < num_bins && !is_first)
        clhist_seen[2] = max(clhist_seen[2], atomic_inc(clhist_bins_seen + 4096 + at) + 1);
}

// The caller's code, and the map of one element to pairs.
#define EMIT(bin, value) \
    clhist_emit(CLHIST_BIN(bin), (value), CLHIST_STATE, clhist_pending)
void clhist_map(
    const int clhist_element_x, const clhist_index_t i,
    CLHIST_STATE_PARAMETERS, clhist_pending_t *clhist_pending)
{
    EMIT(clhist_element_x, 1);
}

// The same for an element that is only looked at.
#undef EMIT
#define EMIT(bin, value) ((void)(value), clhist_look_at(CLHIST_BIN(bin), clhist_limit, clhist_words, clhist_seen))
void clhist_map_ahead(
    const int clhist_element_x, const clhist_index_t i,
    const clhist_bin_t clhist_limit, volatile __local uint *clhist_words, uint *clhist_seen)
{
    EMIT(clhist_element_x, 1);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_sweep(
    __global char * x__base, const ulong x__offset, const clhist_index_t clhist_size,
    const clhist_bin_t clhist_num_bins, const clhist_bin_t clhist_bins_per_pass, const uint clhist_copies,
    __global char * clhist_scratch, const ulong clhist_place0, const uint clhist_table_size,
    const uint clhist_most_spills, const uint clhist_least_distinct, const uint clhist_most_alike)
{
    // Begin: the arrays of the call, and those of the copies.
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    const uint clhist_lane = get_local_id(0);
    __local uchar clhist_pool[49152] __attribute__((aligned(16)));
    // Behind the words: how often the group spilled, and what it found when it looked ahead.
    volatile __local uint *clhist_words = (volatile __local uint *)clhist_pool;
    volatile __local uint *clhist_spills = (volatile __local uint *)(clhist_pool + 49148);
    volatile __local uint *clhist_totals = (volatile __local uint *)(clhist_pool + 49136);
    __global cell0_t *clhist_all0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    const clhist_index_t clhist_group = (clhist_index_t)get_group_id(0);
    const clhist_index_t clhist_groups = (clhist_index_t)get_num_groups(0);
    const size_t clhist_slot = get_group_id(0);

    // Bins: the range of this pass, in a copy of the work-group, set to the neutral element.
    const clhist_bin_t clhist_first = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass;
    const clhist_bin_t clhist_count = clhist_first < clhist_num_bins
        ? min(clhist_bins_per_pass, clhist_num_bins - clhist_first) : 0;
    // In scratch memory: the flag, how often each work-group spilled, its table of bins and amounts, and its words.
    volatile __global uint *clhist_flag = (volatile __global uint *)clhist_all0;
    const uint clhist_all_groups = get_num_groups(0) * get_num_groups(1);
    const size_t clhist_group_number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
    __global uint *clhist_spilled = (__global uint *)clhist_all0 + 8;
    volatile __global uint *clhist_table
        = clhist_spilled + clhist_all_groups + 2 * clhist_group_number * clhist_table_size;
    // Looks at a few elements of the whole input, the same in each work-group: if too few of them are the first of
    // their bin, or one comes again too often, counters would spill, and whole ones are taken at once.
    if (clhist_lane == 0) {
        *clhist_spills = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag) == 0x9e3779b9u ? clhist_most_spills + 1 : 0;
        clhist_totals[0] = clhist_totals[1] = clhist_totals[2] = 0;
    }
    for (uint k = clhist_lane; k < 8192; k += 256)
        clhist_words[k] = 0;
    for (uint k = clhist_lane; k < 2 * clhist_table_size; k += 256)
        clhist_table[k] = k % 2 ? 0 : 0xffffffffu;
    // Barrier: table and words are set, and work-item 0 has read the flag, before any work-item looks ahead.
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    {
        uint clhist_seen[3] = {0, 0, 0};
        // Runs of neighbours, evenly spread.
        const clhist_index_t clhist_apart = clhist_size / 64;
        for (uint clhist_k = clhist_lane; clhist_k < 2048; clhist_k += 256) {
            const clhist_index_t i = clhist_apart < 32
                ? (clhist_index_t)clhist_k : clhist_k / 32 * clhist_apart + clhist_k % 32;
            if (i < clhist_size)
                clhist_map_ahead(x[i], i, clhist_num_bins, clhist_words, clhist_seen);
        }
        atomic_add(clhist_totals, clhist_seen[0]);
        atomic_add(clhist_totals + 1, clhist_seen[1]);
        atomic_max(clhist_totals + 2, clhist_seen[2]);
    }
    // Barrier: all have added what they have seen.
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool clhist_is_hot = clhist_totals[2] >= clhist_most_alike
        || ((ulong)clhist_totals[1] << 16) < (ulong)clhist_totals[0] * clhist_least_distinct;
    if (clhist_lane == 0 && clhist_is_hot) {
        CLHIST_RELAXED_STORE(atomic_xchg, clhist_flag, 0x9e3779b9u);
        *clhist_spills = clhist_most_spills + 1;
    }
    // Barrier: work-item 0 has decided; all leave, or none.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*clhist_spills > clhist_most_spills)
        return;
    for (uint k = clhist_lane; k < (clhist_count + 1) / 2; k += 256)
        clhist_words[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set

    // Update: tiles of 4096 elements, with 4 loads in flight of 4 elements each.
    const clhist_index_t clhist_tiles = clhist_size / 4096;
    uint clhist_whose_turn = 0;  // to ask whether the flag is raised: another work-item in each tile
    for (clhist_index_t clhist_tile = clhist_group; clhist_tile < clhist_tiles; clhist_tile += clhist_groups) {
        const clhist_index_t clhist_start = clhist_tile * 4096 + (clhist_index_t)clhist_lane * 4;
        uint clhist_is_raised = 0;
        if (clhist_lane == clhist_whose_turn)
            clhist_is_raised = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag) == 0x9e3779b9u;
        clhist_whose_turn = clhist_whose_turn + 32 < 256 ? clhist_whose_turn + 32 : 0;
        const int4 clhist_from_x_0 = *(__global const int4 *)(x + clhist_start + 0);
        const int4 clhist_from_x_1 = *(__global const int4 *)(x + clhist_start + 1024);
        const int4 clhist_from_x_2 = *(__global const int4 *)(x + clhist_start + 2048);
        const int4 clhist_from_x_3 = *(__global const int4 *)(x + clhist_start + 3072);
        clhist_pending_t clhist_waiting[4];
        clhist_pending_t *clhist_pending;
        clhist_pending = clhist_waiting + 0;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_0.s0, clhist_start + 0, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 1;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_0.s1, clhist_start + 1, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 2;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_0.s2, clhist_start + 2, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 3;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_0.s3, clhist_start + 3, CLHIST_STATE, clhist_pending);
        if (clhist_is_full(clhist_waiting[0])
            | clhist_is_full(clhist_waiting[1])
            | clhist_is_full(clhist_waiting[2])
            | clhist_is_full(clhist_waiting[3])) {
            if (clhist_is_full(clhist_waiting[0]))
                clhist_carry(clhist_waiting[0].bin, clhist_waiting[0].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[1]))
                clhist_carry(clhist_waiting[1].bin, clhist_waiting[1].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[2]))
                clhist_carry(clhist_waiting[2].bin, clhist_waiting[2].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[3]))
                clhist_carry(clhist_waiting[3].bin, clhist_waiting[3].seen, CLHIST_STATE);
        }
        clhist_pending = clhist_waiting + 0;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_1.s0, clhist_start + 1024, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 1;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_1.s1, clhist_start + 1025, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 2;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_1.s2, clhist_start + 1026, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 3;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_1.s3, clhist_start + 1027, CLHIST_STATE, clhist_pending);
        if (clhist_is_full(clhist_waiting[0])
            | clhist_is_full(clhist_waiting[1])
            | clhist_is_full(clhist_waiting[2])
            | clhist_is_full(clhist_waiting[3])) {
            if (clhist_is_full(clhist_waiting[0]))
                clhist_carry(clhist_waiting[0].bin, clhist_waiting[0].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[1]))
                clhist_carry(clhist_waiting[1].bin, clhist_waiting[1].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[2]))
                clhist_carry(clhist_waiting[2].bin, clhist_waiting[2].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[3]))
                clhist_carry(clhist_waiting[3].bin, clhist_waiting[3].seen, CLHIST_STATE);
        }
        clhist_pending = clhist_waiting + 0;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_2.s0, clhist_start + 2048, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 1;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_2.s1, clhist_start + 2049, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 2;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_2.s2, clhist_start + 2050, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 3;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_2.s3, clhist_start + 2051, CLHIST_STATE, clhist_pending);
        if (clhist_is_full(clhist_waiting[0])
            | clhist_is_full(clhist_waiting[1])
            | clhist_is_full(clhist_waiting[2])
            | clhist_is_full(clhist_waiting[3])) {
            if (clhist_is_full(clhist_waiting[0]))
                clhist_carry(clhist_waiting[0].bin, clhist_waiting[0].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[1]))
                clhist_carry(clhist_waiting[1].bin, clhist_waiting[1].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[2]))
                clhist_carry(clhist_waiting[2].bin, clhist_waiting[2].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[3]))
                clhist_carry(clhist_waiting[3].bin, clhist_waiting[3].seen, CLHIST_STATE);
        }
        clhist_pending = clhist_waiting + 0;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_3.s0, clhist_start + 3072, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 1;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_3.s1, clhist_start + 3073, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 2;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_3.s2, clhist_start + 3074, CLHIST_STATE, clhist_pending);
        clhist_pending = clhist_waiting + 3;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(clhist_from_x_3.s3, clhist_start + 3075, CLHIST_STATE, clhist_pending);
        if (clhist_is_full(clhist_waiting[0])
            | clhist_is_full(clhist_waiting[1])
            | clhist_is_full(clhist_waiting[2])
            | clhist_is_full(clhist_waiting[3])) {
            if (clhist_is_full(clhist_waiting[0]))
                clhist_carry(clhist_waiting[0].bin, clhist_waiting[0].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[1]))
                clhist_carry(clhist_waiting[1].bin, clhist_waiting[1].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[2]))
                clhist_carry(clhist_waiting[2].bin, clhist_waiting[2].seen, CLHIST_STATE);
            if (clhist_is_full(clhist_waiting[3]))
                clhist_carry(clhist_waiting[3].bin, clhist_waiting[3].seen, CLHIST_STATE);
        }
        // Asked before the updates and heeded behind them, so that elements need not wait for the answer.
        if (clhist_is_raised)
            atomic_max(clhist_spills, clhist_most_spills + 1);
        if (CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_spills) > clhist_most_spills)
            break;
    }
    const clhist_index_t clhist_done = clhist_tiles * 4096;
    // What is left, element by element.
    for (clhist_index_t i = clhist_done + clhist_group * 256 + (clhist_index_t)clhist_lane; i < clhist_size;
         i += clhist_groups * 256) {
        clhist_pending_t clhist_waiting[1];
        clhist_pending_t *clhist_pending;
        clhist_pending = clhist_waiting + 0;
        clhist_pending->bin = clhist_pending->seen = 0;
        clhist_map(x[i], i, CLHIST_STATE, clhist_pending);
        if (clhist_is_full(clhist_waiting[0])) {
            if (clhist_is_full(clhist_waiting[0]))
                clhist_carry(clhist_waiting[0].bin, clhist_waiting[0].seen, CLHIST_STATE);
        }
    }

    // Store: the copies of the work-group, combined, in global memory.
    barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
    // Words go to global memory as they are; whether the group gave up, the flag says.
    if (*clhist_spills > clhist_most_spills)
        return;
    if (clhist_lane == 0)
        clhist_spilled[clhist_group_number] = *clhist_spills;
    __global uint *clhist_row = (__global uint *)clhist_all0
        + ((size_t)clhist_all_groups * (1 + 2 * (size_t)clhist_table_size) + 8 + 7) / 8 * 8
        + clhist_slot * ((clhist_num_bins + 1) / 2) + clhist_first / 2;
    for (uint k = clhist_lane; k < (clhist_count + 1) / 2; k += 256)
        clhist_row[k] = clhist_words[k];
}
