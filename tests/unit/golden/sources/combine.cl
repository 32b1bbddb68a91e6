// === combine: add float32, 16 rows
// The second stage: copies are cleared before the sweep, and combined after it with what dest has.
typedef float value_t;
typedef float accumulator_t;
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

// Sets shared copies to the neutral element, and their locks free.
__kernel void clhist_clear(
    __global char * clhist_scratch, const ulong clhist_num_cells, const ulong clhist_place0,
    const ulong clhist_lock_place0, const ulong clhist_num_locks0)
{
    __global cell0_t *cells0 = (__global cell0_t *)(clhist_scratch + clhist_place0);
    __global int *locks0 = (__global int *)(clhist_scratch + clhist_lock_place0);
    for (size_t k = get_global_id(0); k < clhist_num_cells; k += get_global_size(0))
        cells0[k].value = clhist_neutral0();
    for (size_t k = get_global_id(0); k < clhist_num_locks0; k += get_global_size(0))
        locks0[k] = 0;
}

// Work-groups have 16 rows; each row combines every 16th copy of a bin, then the rows are combined in a tree.
__kernel void clhist_combine_copies(
    __global const char * clhist_scratch, const ulong clhist_place0, const ulong clhist_num_bins,
    const ulong clhist_bins, const ulong clhist_copies, const int has_dest, __global const char * dest_base,
    const ulong dest_offset, __global char * out_base, const ulong out_offset)
{
    __global const cell0_t *cells0 = (__global const cell0_t *)(clhist_scratch + clhist_place0);
    __global const value_t *dest = (__global const value_t *)(dest_base + dest_offset);
    __global value_t *out = (__global value_t *)(out_base + out_offset);
    const uint row = get_local_id(0) / 32;
    const ulong k = get_group_id(0) * 32 + get_local_id(0) % 32;
    accumulator_t total = clhist_neutral();
    if (k < clhist_num_bins) {
        const ulong copies = clhist_copies, at = k;
        if (row == 0 && has_dest)
            total = clhist_lift(dest[k]);
        if (copies == 0)
            total = clhist_combine(total, clhist_neutral());
        for (ulong copy = row; copy < copies; copy += 16)
            total = clhist_combine(total, clhist_cell_of(cells0, at + copy * clhist_bins));
    }
    __local accumulator_t totals[512];
    totals[get_local_id(0)] = total;
    barrier(CLK_LOCAL_MEM_FENCE);  // before totals of the row below are read
    if (row < 8)
        totals[get_local_id(0)]
            = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + 256]);
    barrier(CLK_LOCAL_MEM_FENCE);  // before totals of the row below are read
    if (row < 4)
        totals[get_local_id(0)]
            = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + 128]);
    barrier(CLK_LOCAL_MEM_FENCE);  // before totals of the row below are read
    if (row < 2)
        totals[get_local_id(0)]
            = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + 64]);
    barrier(CLK_LOCAL_MEM_FENCE);  // before totals of the row below are read
    if (row < 1)
        totals[get_local_id(0)]
            = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + 32]);
    total = totals[get_local_id(0)];
    if (row == 0 && k < clhist_num_bins) {
        out[k] = clhist_finish(total);
    }
}
