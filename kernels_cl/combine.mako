## Before and after the sweep: copies that work-items share are set to the neutral element, and all copies become one.
<%include file="operator.mako" args="operator=operator, declare=declare, c_name=c_name, word=word"/>

__kernel void clhist_clear(__global cell_t *cells, __global int *locks, const ulong count, const int locked)
{
    for (size_t k = get_global_id(0); k < count; k += get_global_size(0)) {
        cells[k].value = clhist_neutral();
        if (locked)
            locks[k] = 0;
    }
}

## One bin is combined by ${rows} neighbouring rows of a work-group, each over every ${rows}th copy.
__kernel void clhist_combine_copies(__global const cell_t *cells, const ulong num_bins, const ulong copies,
                                    __global const char *dest_base, const ulong dest_offset, const int has_dest,
                                    __global char *out_base, const ulong out_offset)
{
    __global const value_t *dest = (__global const value_t *)(dest_base + dest_offset);
    __global value_t *out = (__global value_t *)(out_base + out_offset);
% if order == "blocked":
    const ulong end = num_bins * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = num_bins * get_global_id(0) / get_global_size(0); k < end; ++k) {
        accumulator_t total = has_dest ? clhist_lift(dest[k]) : clhist_neutral();
        for (ulong copy = 0; copy < copies; ++copy)
            total = clhist_combine(total, cells[copy * num_bins + k].value);
        out[k] = clhist_finish(total);
    }
% else:
    const uint row = get_local_id(0) / ${columns};
    const ulong k = get_group_id(0) * ${columns} + get_local_id(0) % ${columns};
    accumulator_t total = clhist_neutral();
    if (k < num_bins) {
        if (row == 0 && has_dest)
            total = clhist_lift(dest[k]);
        for (ulong copy = row; copy < copies; copy += ${rows})
            total = clhist_combine(total, cells[copy * num_bins + k].value);
    }
% if rows > 1:
    __local cell_t totals[${rows * columns}];
    totals[get_local_id(0)].value = total;
<% half = rows // 2 %>
% while half:
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row < ${half})
        totals[get_local_id(0)].value
            = clhist_combine(totals[get_local_id(0)].value, totals[get_local_id(0) + ${half * columns}].value);
<% half //= 2 %>\
% endwhile
    total = totals[get_local_id(0)].value;
% endif
    if (row == 0 && k < num_bins)
        out[k] = clhist_finish(total);
% endif
}
