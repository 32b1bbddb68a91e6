## Counts the rows of each bin and places their numbers bin after bin; bins with very many rows are split into
## pieces.
##
##   clhist_counts   | words of the call (4) | rows of bin 0 | rows of bin 1 | ..
##   clhist_begins   | first place of bin 0 | first place of bin 1 | ..
##   clhist_ids      | rows of bin 7 | rows of bin 0 | ..        bins take places in any order
##   clhist_pieces   | (begin, end) of each piece | (bin, first piece, pieces) of each split bin |
##
## `few`: one work-group does all in local memory. `by_ranges`: partition.mako groups 16-bit row numbers by
## ranges of bins, and a work-group places each range in local memory.
##
## Part of rows.mako. Note [Ranges of rows in local memory], docs/decisions/0018.
<%namespace name="types" file="types.mako"/>
<%namespace name="scan" file="scan.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%!
    from math import gcd
    from clhist._core.model.row_ranges import LEAST_PIECE
    from clhist._core.model.rows import FEW_ELEMENTS
%>\
<%
    sweep, text = spec.sweep, spec.text
    read, number = ("bin", "k + %d * clhist_crew") if spec.carried_bytes else ("bin number", "from + (number_%d & (clhist_region - 1))")
    size, loads = spec.placing_group, 4
%>\
// The first words are those of the call.
#define CLHIST_ROWS_BEGIN(bin) clhist_begins[bin]
#define CLHIST_ROWS_COUNT(bin) clhist_counts[(bin) + 4]
#define CLHIST_ROWS_ID(k) clhist_ids[k]

${few() if spec.few_bins else by_ranges()}

## Has the rows of bins with very many shared out: notes the pieces, and which of them are of which bin.
<%def name="share()">\
<% team = gcd(32, size) %>\
    // Barrier, of both memories: the list of long bins is complete, and so are their begins and counts in global memory.
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // Each bin by some work-items, which are not many of ${size} where a work-group has many such bins.
    for (uint clhist_k = clhist_lane; clhist_k < clhist_number; clhist_k += ${size}) {
        const uint bin = clhist_long[clhist_k];
        const uint number = (CLHIST_ROWS_COUNT(bin) + clhist_piece - 1) / clhist_piece;
        clhist_places[clhist_k] = atomic_add(clhist_cursors + 1, number);
        clhist_pieces[clhist_slots + atomic_inc(clhist_cursors + 2)] = (uint4)(bin, clhist_places[clhist_k], number, 0);
    }
    // Barrier: each long bin has the place of its pieces.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_team = ${team};
    while (2 * clhist_team * clhist_number <= ${size} && ${size} % (2 * clhist_team) == 0)
        clhist_team *= 2;
    for (uint clhist_k = clhist_lane / clhist_team; clhist_k < clhist_number; clhist_k += ${size} / clhist_team) {
        const uint bin = clhist_long[clhist_k], begin = CLHIST_ROWS_BEGIN(bin), end = begin + CLHIST_ROWS_COUNT(bin);
        for (uint k = clhist_lane % clhist_team; begin + k * clhist_piece < end; k += clhist_team)
            clhist_pieces[clhist_places[clhist_k] + k]
                = (uint4)(begin + k * clhist_piece, min(begin + (k + 1) * clhist_piece, end), 0, 0);
    }
</%def>

## Where a call has few elements and bins: one work-group counts and places all in local memory.
<%def name="few()">
${kernel.begin("few", size)}
${types.arrays(sweep)}\
    __local uint clhist_own[${spec.few_bins}];
    const uint clhist_lane = get_local_id(0);
${words(FEW_ELEMENTS // LEAST_PIECE)}
    for (uint k = clhist_lane; k < clhist_row_bins; k += ${size})
        clhist_own[k] = 0;
    for (uint k = clhist_lane; k < clhist_cleared; k += ${size})
        clhist_counts[k] = 0;
    // Barrier, of both memories: local and global counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (uint i = clhist_lane; i < clhist_elements; i += ${size}) {
        const uint bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            atomic_inc(clhist_own + bin);
    }
    // Barrier: all rows are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
${begun("clhist_row_bins", "k", "0")}
${share()}
    // Barrier: all bins have their places.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = clhist_lane; i < clhist_elements; i += ${size}) {
        const uint bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            clhist_ids[atomic_inc(clhist_own + bin)] = i;
    }
}
</%def>

## Where it has more, their numbers are grouped by ranges of bins before, by partition.mako. A work-group has all of a
## range, for which it has room, or a piece of those of one that has more.
<%def name="by_ranges()">
// Counts and places the rows of each range that a work-group has alone. Pieces of others count theirs, and learn how many
// rows those before have of each bin.
${kernel.begin("ranges", size)}
${tasks("clhist_task < clhist_shared + clhist_partitions")}
    __local uint clhist_staged[${spec.staged}];
    if (clhist_is_whole && clhist_range.w > 1)
        return;
${words(spec.staged // LEAST_PIECE)}
    for (uint k = clhist_lane; k < clhist_own_bins; k += ${size})
        clhist_own[k] = 0;
    // Barrier: counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
${pairs("bin", "atomic_inc(clhist_own + bin_%d);")}
    // Barrier: all rows are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!clhist_is_whole) {
        for (uint k = clhist_lane; k < clhist_own_bins; k += ${size}) {
            const uint count = clhist_own[k];
            clhist_befores[(ulong)clhist_task * clhist_width + k]
                = count ? atomic_add(&CLHIST_ROWS_COUNT(clhist_first + k), count) : 0;
        }
        return;
    }
${begun("clhist_own_bins", "clhist_first + k", "atomic_add(clhist_cursors, clhist_ends[clhist_lane])")}
${share()}
    // Barrier: all bins have their places.
    barrier(CLK_LOCAL_MEM_FENCE);
${pairs(read, f"clhist_staged[atomic_inc(clhist_own + bin_%d)] = {number};")}
    // Barrier: all row numbers are staged before they are copied in order.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = clhist_lane; k < clhist_ends[${size - 1}]; k += ${size})
        clhist_ids[clhist_base + k] = clhist_staged[k];
}

// Gives each bin of the ranges that are shared out room for its rows, wherever there is some.
${kernel.begin("begin", size)}
    const uint clhist_lane = get_local_id(0), clhist_first = (uint)get_group_id(0) * clhist_width;
    if (clhist_ranges[get_group_id(0)].w < 2)
        return;
    __local uint clhist_own[${spec.width}];
${own_bins()}
${words(spec.width)}
    for (uint k = clhist_lane; k < clhist_own_bins; k += ${size})
        clhist_own[k] = CLHIST_ROWS_COUNT(clhist_first + k);
    // Barrier: all counts are loaded.
    barrier(CLK_LOCAL_MEM_FENCE);
${begun("clhist_own_bins", "clhist_first + k", "atomic_add(clhist_cursors, clhist_ends[clhist_lane])")}
${share()}
}

// Puts the numbers of the rows of pieces where their bins have room for them.
${kernel.begin("place", size)}
${tasks("clhist_task < clhist_shared")}
    for (uint k = clhist_lane; k < clhist_own_bins; k += ${size})
        clhist_own[k] = CLHIST_ROWS_BEGIN(clhist_first + k) + clhist_befores[(ulong)clhist_task * clhist_width + k];
    // Barrier: all places are loaded.
    barrier(CLK_LOCAL_MEM_FENCE);
${pairs(read, f"clhist_ids[atomic_inc(clhist_own + bin_%d)] = {number};")}
}
</%def>

## Local memory of what follows, and of bins with very many rows, of which there are no more than `most`.
<%def name="words(most)">\
    __local uint clhist_ends[${size}], clhist_base, clhist_long[${most}], clhist_places[${most}], clhist_number;
    if (clhist_lane == 0)
        clhist_number = 0;\
</%def>

<%def name="own_bins()">\
    const uint clhist_own_bins = clhist_first < clhist_row_bins ? min(clhist_width, clhist_row_bins - clhist_first) : 0;\
</%def>

## Where the rows of each bin begin, by the sums of the counts in clhist_own, which become places within the range.
<%def name="begun(bins, bin, base)">\
    const uint clhist_from = ${bins} * clhist_lane / ${size}, clhist_to = ${bins} * (clhist_lane + 1) / ${size};
    uint clhist_sum = 0;
    for (uint k = clhist_from; k < clhist_to; ++k)
        clhist_sum += clhist_own[k];
    clhist_ends[clhist_lane] = clhist_sum;
    ${scan.inclusive("clhist_ends", "clhist_lane", size)}
    if (clhist_lane == ${size - 1})
        clhist_base = ${base};
    // Barrier: the base is stored.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_at = clhist_ends[clhist_lane] - clhist_sum;
    for (uint k = clhist_from; k < clhist_to; ++k) {
        const uint count = clhist_own[k];
        clhist_own[k] = clhist_at;
        clhist_at += count;
    }
    // Barrier: all counts have become places.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = clhist_lane; k < ${bins}; k += ${size}) {
        const uint begin = clhist_own[k], count = (k + 1 < ${bins} ? clhist_own[k + 1] : clhist_ends[${size - 1}]) - begin;
        CLHIST_ROWS_COUNT(${bin}) = count;
        CLHIST_ROWS_BEGIN(${bin}) = clhist_base + begin;
        if (count > clhist_piece)
            clhist_long[atomic_inc(&clhist_number)] = ${bin};
    }
</%def>

## Which bins and tiles a work-group has.
<%def name="tasks(condition)">\
    __local uint clhist_own[${spec.width}];
    const uint clhist_lane = get_local_id(0), clhist_task = get_group_id(0), clhist_shared = clhist_listed[0];
    if (!(${condition}))
        return;
    const bool clhist_is_whole = clhist_task >= clhist_shared;
    const uint clhist_part = clhist_is_whole ? clhist_task - clhist_shared : clhist_tasks[clhist_task].x;
    const uint4 clhist_range = clhist_ranges[clhist_part];
    uint clhist_tile = clhist_is_whole ? clhist_range.x : clhist_tasks[clhist_task].y;
    const bool clhist_is_last = clhist_is_whole || clhist_task + 1 == clhist_task_bounds[2 * clhist_part + 1];
    const uint clhist_last_tile = clhist_is_last ? clhist_range.y : clhist_tasks[clhist_task + 1].y;
    const uint clhist_first = clhist_part * clhist_width;
${own_bins()}
    __global const uint *clhist_begins_of = clhist_starts + (ulong)clhist_part * clhist_tiles;
    __global const ushort *clhist_bins = (__global const ushort *)clhist_pairs;
% if not spec.carried_bytes:
    __global const ushort *clhist_numbers = (__global const ushort *)(clhist_pairs + clhist_values_place);
% endif
    // A crew has the pairs of one tile, several of them for each of its work-items.
    uint clhist_crew = 1;
    while (${2 * loads} * clhist_crew <= clhist_range.z && ${size} % (2 * clhist_crew) == 0)
        clhist_crew *= 2;\
</%def>

## What is done with each pair.
<%def name="pairs(read, what)">\
    for (uint tile = clhist_tile + clhist_lane / clhist_crew; tile < clhist_last_tile; tile += ${size} / clhist_crew) {
        const uint from = tile * clhist_region, end = from + clhist_begins_of[tile + clhist_tiles];
        uint k = from + clhist_begins_of[tile] + clhist_lane % clhist_crew;
        for (; k < end; k += ${loads} * clhist_crew) {
% for u in range(loads):
            const bool is_pair_${u} = k + ${u} * clhist_crew < end;
% for name in read.split():
            const uint ${name}_${u} = is_pair_${u} ? clhist_${name}s[k + ${u} * clhist_crew] : 0;
% endfor
% endfor
% for u in range(loads):
            if (is_pair_${u})
                ${what.replace("%d", str(u))}
% endfor
        }
    }\
</%def>
