## The sweep over pairs that partition.mako grouped by ranges of bins. Work-groups have equal shares of what all pairs cost,
## so a share lies in one partition or in several consecutive ones, and the work-group goes through them in order.

<%!
    from textwrap import dedent, indent
%>
<%def name="helpers(feature)">
// The work-group that a place among all pairs belongs to.
uint clhist_group_of(const ulong place, const ulong all, const uint groups)
{
    return all == 0 ? 0 : min((uint)(place * groups / all), groups - 1);
}
</%def>

## The loop over the partitions of a work-group's share, in which `share` is what is done with each. A partition has one
## copy for each work-group whose share overlaps it, and none if it is empty; its copies follow one another, and a
## work-group that spans two partitions has a copy of each.
<%def name="shares(feature, share)">
    const uint clhist_group = get_group_id(0), clhist_groups = get_num_groups(0);
    ## Part of the pool: a second array might exceed the local memory of the device.
    __local uint *clhist_range = (__local uint *)(clhist_pool + ${spec.capacity - 8});
    ulong clhist_all = 0;
    for (uint k = 0; k < clhist_partitions; ++k)
        clhist_all += clhist_totals[k];
    // Where the copies of each partition begin, for the second stage.
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
    // The group's share of all pairs, and the first partition that has some of them.
    const ulong clhist_from = (clhist_group * clhist_all + clhist_groups - 1) / clhist_groups;
    const ulong clhist_to = ((clhist_group + 1) * clhist_all + clhist_groups - 1) / clhist_groups;
    ulong clhist_before = 0;
    uint clhist_part = 0, clhist_filled = 0;
    while (clhist_part + 1 < clhist_partitions
           && clhist_group_of(clhist_before + clhist_totals[clhist_part], clhist_all, clhist_groups) < clhist_group) {
        clhist_filled += clhist_totals[clhist_part] > 0;
        clhist_before += clhist_totals[clhist_part++];
    }
    for (; clhist_part < clhist_partitions
           && clhist_group_of(clhist_before, clhist_all, clhist_groups) <= clhist_group; ++clhist_part) {
        if (clhist_totals[clhist_part] == 0)
            continue;
        const ulong clhist_after = clhist_before + clhist_totals[clhist_part];
        const size_t clhist_slot = clhist_group + clhist_filled++;
${indent(share, "    ")}
        clhist_before = clhist_after;
    }
</%def>

## An empty range of tiles, until a work-item finds its ends.
<%def name="initialise_more(feature)">
    if (clhist_lane == 0)
        clhist_range[0] = clhist_range[1] = clhist_tiles;
</%def>

<%def name="find(feature)">
    // The tiles that have the places where the share begins and ends; without pairs a tile has no place.
    const ulong clhist_begin_place = max(clhist_from, clhist_before) - clhist_before;
    const ulong clhist_end_place = max(min(clhist_to, clhist_after), clhist_before) - clhist_before;
    const ulong clhist_total = clhist_after - clhist_before;
    __global const uint *clhist_own_sums = clhist_sums + (ulong)clhist_part * clhist_tiles;
    for (uint clhist_tile = clhist_lane; clhist_tile < clhist_tiles; clhist_tile += ${spec.work_group_size}) {
        const ulong clhist_sum = clhist_own_sums[clhist_tile];
        const ulong clhist_next = clhist_tile + 1 < clhist_tiles ? clhist_own_sums[clhist_tile + 1] : clhist_total;
        if (clhist_sum <= clhist_begin_place && clhist_begin_place < clhist_next)
            clhist_range[0] = clhist_tile;
        if (clhist_sum <= clhist_end_place && clhist_end_place < clhist_next)
            clhist_range[1] = clhist_tile;
        if (clhist_end_place == clhist_total && clhist_sum < clhist_next && clhist_next == clhist_total)
            clhist_range[1] = clhist_tile + 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item reads the range that others have found
</%def>

## The pairs of a share that lie in one partition: whole tiles, from the one that has the share's first place. Several
## work-items, `span` of them, read the pairs of one tile, all in the same number of rounds, so that the lanes of a warp
## stay together; the pairs of the next round are asked for before those of this one are counted.
<%def name="walk(feature)">
<% lanes, bins = spec.vector_width, spec.arguments[0] %>\
    __global const uint *clhist_own_starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
    __global const uint *clhist_ends = clhist_own_starts + clhist_tiles;
    uint clhist_tile = clhist_range[0];
    const uint clhist_last_tile = clhist_range[1];
    // Eight rounds or so for the pairs of a tile, by their mean.
    ulong clhist_loads = 0;
    if (clhist_tile < clhist_last_tile) {
        const ulong clhist_sum = clhist_last_tile < clhist_tiles ? clhist_own_sums[clhist_last_tile] : clhist_total;
        clhist_loads = (clhist_sum - clhist_own_sums[clhist_tile]) / (clhist_last_tile - clhist_tile) / ${lanes};
    }
    uint clhist_crew = clhist_span;
    while (8 * clhist_crew <= clhist_loads && ${spec.work_group_size} % (2 * clhist_crew) == 0)
        clhist_crew *= 2;
    const uint clhist_stride = ${spec.work_group_size} / clhist_crew, clhist_step = clhist_crew * ${lanes};
    const uint clhist_own = clhist_lane % clhist_crew * ${lanes};
    clhist_tile += clhist_lane / clhist_crew;
    uint clhist_round = 0, clhist_end = 0, clhist_next_round = 0, clhist_next_end = 0;
    if (clhist_tile < clhist_last_tile) {
        clhist_round = clhist_own_starts[clhist_tile];
        clhist_end = clhist_ends[clhist_tile];
    }
    if (clhist_tile + clhist_stride < clhist_last_tile) {
        clhist_next_round = clhist_own_starts[clhist_tile + clhist_stride];
        clhist_next_end = clhist_ends[clhist_tile + clhist_stride];
    }
    bool clhist_is_inside = clhist_round + clhist_own < clhist_end;
% for argument in streamed:
    ${state.loaded_type(argument)} clhist_${argument.name}_next = ${0 if lanes > 1 else '{0}'};
% endfor
    if (clhist_is_inside) {
${indent(dedent(capture(load_next)), "        ")}
    }
    while (clhist_tile < clhist_last_tile) {
        const bool clhist_was_inside = clhist_is_inside;
        const clhist_index_t clhist_place
            = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
% for argument in streamed:
        ${state.loaded_type(argument)} clhist_${argument.name}_now = clhist_${argument.name}_next;
% endfor
        clhist_round += clhist_step;
        if (clhist_round >= clhist_end) {
            clhist_tile += clhist_stride;
            clhist_round = clhist_next_round;
            clhist_end = clhist_next_end;
            if (clhist_tile + clhist_stride < clhist_last_tile) {
                clhist_next_round = clhist_own_starts[clhist_tile + clhist_stride];
                clhist_next_end = clhist_ends[clhist_tile + clhist_stride];
            }
        }
        clhist_is_inside = clhist_tile < clhist_last_tile && clhist_round + clhist_own < clhist_end;
        if (clhist_is_inside) {
${load_next()}
        }
        if (!clhist_was_inside)
            clhist_${bins.name}_now = ${f"({state.loaded_type(bins)})(0xffff)" if lanes > 1 else "0xffff"};
% for lane in range(lanes):
${state.map_call(2, lambda a: f"clhist_{a.name}_now{state.lane(lane)}", f"clhist_place + {lane}")}
% if spec.reconvergence:
        ${spec.reconvergence};
% endif
% endfor
    }
</%def>

<%def name="load_next()">
            const clhist_index_t clhist_next_place
                = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
% for argument in streamed:
<% kind = state.loaded_type(argument) %>\
            clhist_${argument.name}_next = *(__global const ${kind} *)(${argument.name} + clhist_next_place);
% endfor
</%def>
