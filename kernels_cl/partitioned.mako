## The sweep over pairs that partition.mako grouped by ranges of bins. Work-groups have equal shares of what all pairs cost,
## so a share lies in one partition or in several consecutive ones, and the work-group goes through them in order.

## The work-group that place number `place` of all belongs to.
<%def name="group_of()">
uint clhist_group_of(const ulong place, const ulong all, const uint groups)
{
    return all == 0 ? 0 : min((uint)(place * groups / all), groups - 1);
}
</%def>

## Opens the loop over the partitions of a work-group's share. A partition has one copy for each work-group whose share
## overlaps it, and none if it is empty; its copies follow one another, and a work-group that spans two partitions has a
## copy of each.
<%def name="begin_part()">
    const uint clhist_group = get_group_id(0), clhist_groups = get_num_groups(0);
    ## Part of the pool: a second array might exceed the local memory of the device.
    __local uint *clhist_range = (__local uint *)(clhist_pool + ${spec.capacity - 8});
    ulong clhist_all = 0;
    for (uint k = 0; k < clhist_partitions; ++k)
        clhist_all += clhist_totals[k];
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
    const ulong clhist_from = (clhist_group * clhist_all + clhist_groups - 1) / clhist_groups;
    const ulong clhist_to = ((clhist_group + 1) * clhist_all + clhist_groups - 1) / clhist_groups;
    ulong clhist_before = 0;
    uint clhist_part = 0, clhist_filled = 0;
    while (clhist_part + 1 < clhist_partitions
           && clhist_group_of(clhist_before + clhist_totals[clhist_part], clhist_all, clhist_groups) < clhist_group) {
        clhist_filled += clhist_totals[clhist_part] > 0;
        clhist_before += clhist_totals[clhist_part++];
    }
    for (; clhist_part < clhist_partitions && clhist_group_of(clhist_before, clhist_all, clhist_groups) <= clhist_group; ++clhist_part) {
    if (clhist_totals[clhist_part] == 0)
        continue;
    const ulong clhist_after = clhist_before + clhist_totals[clhist_part];
    const bool clhist_is_open = true;
    const size_t clhist_slot = clhist_group + clhist_filled++;
</%def>

## An empty range of tiles, until a work-item finds its ends.
<%def name="clear_range()">
    if (clhist_lane == 0)
        clhist_range[0] = clhist_range[1] = clhist_tiles;
</%def>

## The pairs of a share that lie in one partition: whole tiles, from the one that has the share's first place. Several
## work-items, `span` of them, read the pairs of one tile, all in the same number of rounds, so that the lanes of a warp
## stay together; the pairs of the next round are asked for before those of this one are counted.
<%def name="walk()">
<% lanes, first = spec.vector_width, spec.arguments[0] %>\
    {
    const ulong from = max(clhist_from, clhist_before) - clhist_before;
    const ulong to = max(min(clhist_to, clhist_after), clhist_before) - clhist_before;
    const ulong total = clhist_after - clhist_before;
    __global const uint *sums = clhist_sums + (ulong)clhist_part * clhist_tiles;
    ## The tiles that have the places `from` and `to`; without pairs a tile has no place.
    for (uint tile = clhist_lane; tile < clhist_tiles; tile += ${spec.work_group_size}) {
        const ulong sum = sums[tile], next = tile + 1 < clhist_tiles ? sums[tile + 1] : total;
        if (sum <= from && from < next)
            clhist_range[0] = tile;
        if (sum <= to && to < next)
            clhist_range[1] = tile;
        if (to == total && sum < next && next == total)
            clhist_range[1] = tile + 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% if spec.hot_bin:
${local.get_namespace("hot_bin.mako").start()}
% endif
    __global const uint *starts = clhist_starts + (ulong)clhist_part * clhist_tiles, *ends = starts + clhist_tiles;
    uint tile = clhist_range[0];
    const uint last_tile = clhist_range[1];
    ## Eight rounds or so for the pairs of a tile, by their mean.
    ulong loads = 0;
    if (tile < last_tile)
        loads = ((last_tile < clhist_tiles ? sums[last_tile] : total) - sums[tile]) / (last_tile - tile) / ${lanes};
    uint span = clhist_span;
    while (8 * span <= loads && ${spec.work_group_size} % (2 * span) == 0)
        span *= 2;
    const uint stride = ${spec.work_group_size} / span, step = span * ${lanes}, own = clhist_lane % span * ${lanes};
    tile += clhist_lane / span;
    uint round = 0, end = 0, next_round = 0, next_end = 0;
    if (tile < last_tile) {
        round = starts[tile];
        end = ends[tile];
    }
    if (tile + stride < last_tile) {
        next_round = starts[tile + stride];
        next_end = ends[tile + stride];
    }
    bool is_inside = round + own < end;
% for argument in streamed:
    ${state.loaded_type(argument)} clhist_${argument.name}_next = ${0 if lanes > 1 else '{0}'};
% endfor
    if (is_inside) {
${load_next()}
    }
    while (tile < last_tile) {
        const bool was_inside = is_inside;
        const clhist_index_t first = (clhist_index_t)(tile * clhist_region + round + own);
% for argument in streamed:
        ${state.loaded_type(argument)} clhist_${argument.name}_now = clhist_${argument.name}_next;
% endfor
        round += step;
        if (round >= end) {
            tile += stride;
            round = next_round;
            end = next_end;
            if (tile + stride < last_tile) {
                next_round = starts[tile + stride];
                next_end = ends[tile + stride];
            }
        }
        is_inside = tile < last_tile && round + own < end;
        if (is_inside) {
${load_next()}
        }
        if (!was_inside)
            clhist_${first.name}_now = ${f"({state.loaded_type(first)})(0xffff)" if lanes > 1 else "0xffff"};
% for lane in range(lanes):
        clhist_map(${state.map_arguments(lambda a: f"clhist_{a.name}_now{state.lane(lane)}", f"first + {lane}")}, ${state.passed});
% if spec.reconvergence:
        ${spec.reconvergence};
% endif
% endfor
    }
    }
</%def>

<%def name="load_next()">
% for argument in streamed:
<% kind = state.loaded_type(argument) %>\
            clhist_${argument.name}_next = *(__global const ${kind} *)(${argument.name} + (clhist_index_t)(tile * clhist_region + round + own));
% endfor
</%def>
