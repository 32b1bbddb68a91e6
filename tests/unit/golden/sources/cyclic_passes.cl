// === cyclic passes: core, argmax int64: sweep
// Sweep: lock updates of M = clhist_copies copies of a work-group in local memory, in S = get_num_groups(1) passes.
// Work-groups of 256; neighbouring work-items have neighbouring elements.
// Policy: work-group 256, team 256, tile 4096, vector 4, loads 4, unroll 16.
// Each work-item holds one bin in registers.
// Pass p has the bins b with b % S == p.
typedef struct { long value; long index; } value_t;
typedef value_t accumulator_t;
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

typedef accumulator_t part0_t;
typedef union { part0_t value; } cell0_t;
part0_t clhist_neutral0(void)
{
    return ((accumulator_t){(-0x7fffffffffffffffl - 1), ((long)9223372036854775807l)});
}

part0_t clhist_combine0(const part0_t a, const part0_t b)
{
    return (b.value > a.value || (a.value == b.value && b.index < a.index)) ? b : a;
}

// What is done under a lock, word by word.
void clhist_guarded0(volatile __local cell0_t *bin, const part0_t value)
{
    volatile __local ulong *words = (volatile __local ulong *)bin;
    union { part0_t value; ulong words[2]; } held;
    held.words[0] = CLHIST_RELAXED_LOAD(atom_cmpxchg, words + 0);
    held.words[1] = CLHIST_RELAXED_LOAD(atom_cmpxchg, words + 1);
    held.value = clhist_combine0(held.value, value);
    CLHIST_RELAXED_STORE(atom_xchg, words + 0, held.words[0]);
    CLHIST_RELAXED_STORE(atom_xchg, words + 1, held.words[1]);
}

// Under a spinlock. The result of its release ends the loop: a flag of its own would let lanes wait forever.
void clhist_update0(__local cell0_t *cell, volatile __local int *lock, const part0_t value)
{
    volatile __local cell0_t *bin = cell;
    int done = 0;
    while (!done) {
        if (atomic_xchg(lock, 1) == 0) {
            mem_fence(CLK_LOCAL_MEM_FENCE);
            clhist_guarded0(bin, value);
            mem_fence(CLK_LOCAL_MEM_FENCE);
            done = atomic_xchg(lock, 0);
        }
    }
}

// The same, tried once.
bool clhist_try0(__local cell0_t *cell, volatile __local int *lock, const part0_t value)
{
    volatile __local cell0_t *bin = cell;
    int done = 0;
    if (atomic_xchg(lock, 1) == 0) {
        mem_fence(CLK_LOCAL_MEM_FENCE);
        clhist_guarded0(bin, value);
        mem_fence(CLK_LOCAL_MEM_FENCE);
        done = atomic_xchg(lock, 0);
    }
    return done;
}

// The bins of this pass and the cells of a copy, with what else an update needs.
#define CLHIST_STATE_PARAMETERS \
    const uint clhist_first, const uint clhist_count, const uint clhist_lock_base, \
    __local cell0_t *clhist_cells0, volatile __local int *clhist_locks0, const uint clhist_copies, \
    const uint clhist_lock_mask, clhist_bin_t *clhist_hot_bin, accumulator_t *clhist_hot_value, \
    const uint clhist_passes, const uint clhist_magic, const uint clhist_shift
#define CLHIST_STATE \
    clhist_first, clhist_count, clhist_lock_base, clhist_cells0, clhist_locks0, clhist_copies, \
    clhist_lock_mask, clhist_hot_bin, clhist_hot_value, clhist_passes, clhist_magic, clhist_shift
// Combines a value into a bin of a copy of the work-group.
void clhist_update_bin(const clhist_bin_t bin, const accumulator_t lifted, CLHIST_STATE_PARAMETERS)
{
    clhist_update0(
        clhist_cells0 + bin * clhist_copies,
        clhist_locks0 + ((bin * clhist_copies + clhist_lock_base) & clhist_lock_mask), lifted);
}

// Updates of one bin wait for each other, so each work-item holds one bin in registers:
// the last whose update failed. What it held before is updated then.
void clhist_accumulate(clhist_bin_t bin, accumulator_t lifted, CLHIST_STATE_PARAMETERS)
{
    if (bin == *clhist_hot_bin) {
        *clhist_hot_value = clhist_combine0(*clhist_hot_value, lifted);
        return;
    }
    if (clhist_try0(
            clhist_cells0 + bin * clhist_copies,
            clhist_locks0 + ((bin * clhist_copies + clhist_lock_base) & clhist_lock_mask),
            lifted))
        return;
    const clhist_bin_t before = *clhist_hot_bin;
    const accumulator_t total = *clhist_hot_value;
    *clhist_hot_bin = bin;
    *clhist_hot_value = lifted;
    if (before < clhist_count)  // not so of the bin that is held before the first
        clhist_update_bin(before, total, CLHIST_STATE);
}

// Takes a pair of the map, if its bin is in this pass.
void clhist_emit(const clhist_bin_t target, const value_t value, CLHIST_STATE_PARAMETERS)
{
    const clhist_bin_t bin = mul_hi(target, clhist_magic) >> clhist_shift;  // target / clhist_passes
    if (bin * clhist_passes + clhist_first != target)
        return;
    if (bin < clhist_count) {
        clhist_accumulate(bin, clhist_lift(value), CLHIST_STATE);
    }
}

// The caller's code, and the map of one element to pairs.
#define EMIT(bin, value) \
    clhist_emit(CLHIST_BIN(bin), (value), CLHIST_STATE)
void clhist_map(
    const int clhist_element_x, const clhist_index_t i, CLHIST_STATE_PARAMETERS)
{
    EMIT(clhist_element_x, ((value_t){clhist_element_x, i}));
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void clhist_sweep(
    __global char * x__base, const ulong x__offset, const clhist_index_t clhist_size,
    const clhist_bin_t clhist_num_bins, const clhist_bin_t clhist_bins_per_pass, const uint clhist_copies,
    __global char * clhist_scratch, const ulong clhist_place0, const uint clhist_lock_mask,
    const uint clhist_passes, const uint clhist_magic, const uint clhist_shift)
{
    // Begin: the arrays of the call, and those of the copies.
    __global const int *restrict x = (__global const int *)(x__base + x__offset);
    clhist_bin_t clhist_hot_bin[1];
    accumulator_t clhist_hot_value[1];
    const uint clhist_lane = get_local_id(0);
    __local uchar clhist_pool[49152] __attribute__((aligned(16)));
    // The copies of a bin are neighbours, so that neighbouring work-items collide neither in a bin nor in a bank.
    uint clhist_room = 0;
    const uint clhist_cells_of_team0 = (uint)clhist_bins_per_pass * clhist_copies;
    __local cell0_t *clhist_own0 = (__local cell0_t *)(clhist_pool + clhist_room);
    clhist_room += clhist_cells_of_team0 * (uint)sizeof(cell0_t);
    clhist_room = (clhist_room + 3) / 4 * 4;
    volatile __local int *clhist_locks0 = (volatile __local int *)(clhist_pool + clhist_room);
    const uint clhist_num_locks0 = min(clhist_lock_mask, clhist_cells_of_team0 - 1) + 1;
    __global cell0_t *clhist_all0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    const clhist_index_t clhist_group = (clhist_index_t)get_group_id(0);
    const clhist_index_t clhist_groups = (clhist_index_t)get_num_groups(0);
    const size_t clhist_slot = get_group_id(0);

    // Bins: every S-th bin, those of this pass, in a copy of the work-group, set to the neutral element.
    const clhist_bin_t clhist_first = get_group_id(1);  // every bin of which this is the rest
    const clhist_bin_t clhist_count = clhist_first < clhist_num_bins
        ? (clhist_num_bins - clhist_first - 1) / clhist_passes + 1 : 0;
    __local cell0_t *clhist_cells0 = clhist_own0 + clhist_lane % clhist_copies;
    const uint clhist_lock_base = clhist_lane % clhist_copies;
    for (uint k = clhist_lane; k < (uint)clhist_count * clhist_copies; k += 256)
        clhist_own0[k].value = clhist_neutral0();
    for (uint k = get_local_id(0); k < clhist_num_locks0; k += 256)
        clhist_locks0[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set
    // No bin is held yet: this number is beyond every histogram.
    *clhist_hot_bin = ~(clhist_bin_t)0;
    *clhist_hot_value = clhist_neutral0();

    // Update: tiles of 4096 elements, with 4 loads in flight of 4 elements each.
    const clhist_index_t clhist_tiles = clhist_size / 4096;
    for (clhist_index_t clhist_tile = clhist_group; clhist_tile < clhist_tiles; clhist_tile += clhist_groups) {
        const clhist_index_t clhist_start = clhist_tile * 4096 + (clhist_index_t)clhist_lane * 4;
        const int4 clhist_from_x_0 = *(__global const int4 *)(x + clhist_start + 0);
        const int4 clhist_from_x_1 = *(__global const int4 *)(x + clhist_start + 1024);
        const int4 clhist_from_x_2 = *(__global const int4 *)(x + clhist_start + 2048);
        const int4 clhist_from_x_3 = *(__global const int4 *)(x + clhist_start + 3072);
        clhist_map(clhist_from_x_0.s0, clhist_start + 0, CLHIST_STATE);
        clhist_map(clhist_from_x_0.s1, clhist_start + 1, CLHIST_STATE);
        clhist_map(clhist_from_x_0.s2, clhist_start + 2, CLHIST_STATE);
        clhist_map(clhist_from_x_0.s3, clhist_start + 3, CLHIST_STATE);
        clhist_map(clhist_from_x_1.s0, clhist_start + 1024, CLHIST_STATE);
        clhist_map(clhist_from_x_1.s1, clhist_start + 1025, CLHIST_STATE);
        clhist_map(clhist_from_x_1.s2, clhist_start + 1026, CLHIST_STATE);
        clhist_map(clhist_from_x_1.s3, clhist_start + 1027, CLHIST_STATE);
        clhist_map(clhist_from_x_2.s0, clhist_start + 2048, CLHIST_STATE);
        clhist_map(clhist_from_x_2.s1, clhist_start + 2049, CLHIST_STATE);
        clhist_map(clhist_from_x_2.s2, clhist_start + 2050, CLHIST_STATE);
        clhist_map(clhist_from_x_2.s3, clhist_start + 2051, CLHIST_STATE);
        clhist_map(clhist_from_x_3.s0, clhist_start + 3072, CLHIST_STATE);
        clhist_map(clhist_from_x_3.s1, clhist_start + 3073, CLHIST_STATE);
        clhist_map(clhist_from_x_3.s2, clhist_start + 3074, CLHIST_STATE);
        clhist_map(clhist_from_x_3.s3, clhist_start + 3075, CLHIST_STATE);
    }
    const clhist_index_t clhist_done = clhist_tiles * 4096;
    // What is left, element by element.
    for (clhist_index_t i = clhist_done + clhist_group * 256 + (clhist_index_t)clhist_lane; i < clhist_size;
         i += clhist_groups * 256) {
        clhist_map(x[i], i, CLHIST_STATE);
    }

    // End: the bin that is still held.
    if (*clhist_hot_bin < clhist_count)
        clhist_update_bin(*clhist_hot_bin, *clhist_hot_value, CLHIST_STATE);

    // Store: the copies of the work-group, combined, in global memory.
    barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
    {
        __global cell0_t *clhist_result
            = clhist_all0 + (clhist_slot * clhist_passes + clhist_first) * clhist_bins_per_pass;
        // crew: work-items of a bin, member: number within it, steps: copies that each adds up before the tree below.
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
}
