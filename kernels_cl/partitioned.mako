## The sweep over pairs that partition.mako grouped by ranges of bins. Work-groups have equal shares of all pairs, so a
## share lies in one partition or in several consecutive ones, and the work-group goes through them in order.

## The work-group that pair number `place` of all belongs to.
<%def name="group_of()">
uint clhist_group_of(const ulong place, const ulong all, const uint groups)
{
    return all == 0 ? 0 : min((uint)(place * groups / all), groups - 1);
}
</%def>

## Opens the loop over the partitions of a work-group's share. A partition has one copy for each work-group whose share
## overlaps it; its copies follow one another, and a work-group that spans two partitions has a copy of each.
<%def name="begin_part()">
    const uint clhist_group = get_group_id(0), clhist_groups = get_num_groups(0);
    ## Part of the pool: a second array might exceed the local memory of the device.
    __local uint *clhist_range = (__local uint *)(clhist_pool + ${spec.capacity - 8});
    ulong clhist_all = 0;
    for (uint k = 0; k < clhist_partitions; ++k)
        clhist_all += clhist_totals[k];
    if (clhist_group == 0 && clhist_lane == 0) {
        ulong before = 0;
        for (uint k = 0; k < clhist_partitions; ++k) {
            clhist_whose[k] = clhist_group_of(before, clhist_all, clhist_groups) + k;
            before += clhist_totals[k];
        }
        clhist_whose[clhist_partitions] = clhist_group_of(before, clhist_all, clhist_groups) + clhist_partitions;
    }
    const ulong clhist_from = (clhist_group * clhist_all + clhist_groups - 1) / clhist_groups;
    const ulong clhist_to = ((clhist_group + 1) * clhist_all + clhist_groups - 1) / clhist_groups;
    ulong clhist_before = 0;
    uint clhist_part = 0;
    while (clhist_part + 1 < clhist_partitions
           && clhist_group_of(clhist_before + clhist_totals[clhist_part], clhist_all, clhist_groups) < clhist_group)
        clhist_before += clhist_totals[clhist_part++];
    for (; clhist_part < clhist_partitions && clhist_group_of(clhist_before, clhist_all, clhist_groups) <= clhist_group; ++clhist_part) {
    const ulong clhist_after = clhist_before + clhist_totals[clhist_part];
    const bool clhist_is_open = true;
    const size_t clhist_slot = clhist_group + clhist_part;
</%def>

## An empty range of tiles, until a work-item finds its ends.
<%def name="clear_range()">
    if (clhist_lane == 0)
        clhist_range[0] = clhist_range[1] = clhist_tiles;
</%def>

## The pairs of a share that lie in one partition: the tiles that begin in it, whole. `clhist_span` work-items read the
## pairs of one tile, all in the same number of rounds, so that the lanes of a warp stay together.
<%def name="walk()">
<% lanes, first = spec.vector_width, spec.arguments[0] %>\
    {
    const ulong from = max(clhist_from, clhist_before) - clhist_before;
    const ulong to = max(min(clhist_to, clhist_after), clhist_before) - clhist_before;
    __global const uint *sums = clhist_sums + (ulong)clhist_part * clhist_tiles;
    ## The first tile that begins at `from` or later, and the first at `to` or later; one work-item finds each.
    for (uint tile = clhist_lane; tile < clhist_tiles; tile += ${spec.work_group_size}) {
        const ulong sum = sums[tile], before = tile > 0 ? sums[tile - 1] : 0;
        if (sum >= from && (tile == 0 || before < from))
            clhist_range[0] = tile;
        if (sum >= to && (tile == 0 || before < to))
            clhist_range[1] = tile;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% if spec.hot_bin:
${local.get_namespace("hot_bin.mako").start()}
% endif
    __global const uint *starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
    const uint last_tile = clhist_range[1];
    for (uint tile = clhist_range[0] + clhist_lane / clhist_span; tile < last_tile; tile += ${spec.work_group_size} / clhist_span) {
        const uint end = starts[clhist_tiles + tile];
        const clhist_index_t region = (clhist_index_t)(tile * clhist_region);
        for (uint round = starts[tile]; round < end; round += clhist_span * ${lanes}) {
            const uint at = round + clhist_lane % clhist_span * ${lanes};
            const bool is_inside = at < end;
            const clhist_index_t first = region + (is_inside ? at : round);
% for argument in streamed:
<% kind = state.loaded_type(argument) %>\
            ${kind} clhist_${argument.name}_now = *(__global const ${kind} *)(${argument.name} + first);
% endfor
            if (!is_inside)
                clhist_${first.name}_now = ${f"({state.loaded_type(first)})(0xffff)" if lanes > 1 else "0xffff"};
% for lane in range(lanes):
            clhist_map(${state.map_arguments(lambda a: f"clhist_{a.name}_now{state.lane(lane)}", f"first + {lane}")}, ${state.passed});
% if spec.reconvergence:
            ${spec.reconvergence};
% endif
% endfor
        }
    }
    }
</%def>
