## Partitioning (a multisplit): groups the pairs of a map by ranges of bins that fit into local memory.
##
##   tile of the input      e0 e1 e2 e3 e4 e5 ..                    one work-group
##   counts of partitions   p0: 2   p1: 3   p2: 1 ..                local memory, several counters a partition
##   exclusive sums         p0: 0   p1: 2   p2: 5 ..                also stored in `clhist_starts` [partition][tile]
##   region of the tile     | p0 p0 | p1 p1 p1 | p2 | ..            local memory, then global memory at once
##
## A pair stores its bin as the 16-bit offset in its partition. Pairs are counted before they are placed,
## since keeping the place of each took more registers. A tile of several rounds is read and mapped twice, the
## second time from the cache. `clhist_index` then finds the tiles and costs of each partition, and splits
## expensive ones into pieces.
##
## Plan: PartitionedPlan (clhist/_core/model/partition.py); also RowsPlan. Decision 0008. Not in SC'20.
<%namespace name="types" file="types.mako"/>
<%namespace name="scan" file="scan.mako"/>
<%!
    from textwrap import indent
    from clhist._core.kernels.state import LINE_BYTES, wrapped
    from clhist._core.model.feature import Guarded
    from clhist._core.model.partition import CURSORS, SHARED
%>\
<%
    sweep, output, s = spec.sweep, spec.sweep.outputs[0], spec.sweep.outputs[0].suffix
    group, lanes, most, counters, per_lane = sweep.work_group_size, sweep.vector_width, spec.most, spec.counters, spec.per_lane
    loads = spec.elements // lanes
    items = [(load, lane) for load in range(loads) for lane in range(lanes)]
    round_size, room = spec.elements * group, spec.tile
    value_t = f"value{s}_t"
    ## PoCL's compiler loses structs of more than 16 bytes that live across barriers, so these live as words.
    words = -(-spec.value_bytes // 4) if spec.has_values and output.operator.dtype.names is not None else 0
    ## Somebody may write to the array between both readings.
    mask = "" if spec.keeps else f" & {room - 1}"
    declared_types = {}
    state = "clhist_bin_t *clhist_bin" + f", {value_t} *clhist_value" * spec.has_values
    def part(bin):
        """The partition of a bin: a division by the width of partitions, as a shift or a multiplication."""
        return f"({bin} >> clhist_shift)" if spec.is_alone else f"(mul_hi({bin}, clhist_magic) >> clhist_shift)"
%>
// Partitioning: the pairs of a tile of ${spec.tile} elements are grouped by ranges of bins, in a region of their own.
// A bin is stored as 16 bits, its number within the range.
${types.prologue(sweep, preamble_of, declared_types)}
${types.caller_code(sweep, declare, declared_types)}
% if words:
typedef union { ${value_t} value; uint words[${words}]; } clhist_union_t;
% endif

void clhist_put(const clhist_bin_t bin, const ${value_t} value, ${state})
{
    *clhist_bin = bin;
% if spec.has_values:
    *clhist_value = value;
% endif
}
#define EMIT${s}(bin, value) clhist_put(CLHIST_BIN(bin), (value), clhist_bin${", clhist_value" * spec.has_values})
void clhist_map(
${wrapped([*sweep.map_parameters(), "const clhist_index_t i", state])})
{
    ${map_body};
}

${alone() if spec.is_alone else together()}

<% group = spec.index_group %>\
// One work-group for each partition finds what its pairs cost, in pairs, and which tiles have some. Where they cost more
// than ${SHARED} pieces they are shared out: the tiles of each piece then are a task of their own.
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void clhist_index(
${wrapped([parameter.declaration for parameter in index_parameters])})
{
% if guarded := sweep.feature(Guarded):
${local.get_namespace(guarded.template).leave(guarded)}
% endif
    __local uint clhist_ends[${group}];
    __local uint clhist_totals[4];
    const uint clhist_lane = get_local_id(0), clhist_part = get_group_id(0);
    __global const uint *clhist_own_starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
    for (uint k = clhist_lane; k < 4; k += ${group})
        clhist_totals[k] = k == 2 ? clhist_tiles : 0;
    // Barrier: the totals are initialised before any work-item adds to them.
    barrier(CLK_LOCAL_MEM_FENCE);
    // The pairs of this partition, and its segments: the tiles that have some.
    uint clhist_pairs = 0, clhist_segments = 0, clhist_first = clhist_tiles, clhist_last = 0;
    for (uint tile = clhist_lane; tile < clhist_tiles; tile += ${group}) {
        const uint pairs = clhist_own_starts[tile + clhist_tiles] - clhist_own_starts[tile];
        if (pairs > 0) {
            clhist_pairs += pairs;
            ++clhist_segments;
            clhist_first = min(clhist_first, tile);
            clhist_last = tile + 1;
        }
    }
    // Atomics in local memory: each work-item adds its tiles once.
    if (clhist_segments > 0) {
        atomic_add(clhist_totals, clhist_pairs);
        atomic_add(clhist_totals + 1, clhist_segments);
        atomic_min(clhist_totals + 2, clhist_first);
        atomic_max(clhist_totals + 3, clhist_last);
    }
    // Barrier: all work-items have added their tiles.
    barrier(CLK_LOCAL_MEM_FENCE);
    clhist_pairs = clhist_totals[0];
    clhist_segments = clhist_totals[1];
    clhist_first = clhist_totals[2];
    clhist_last = clhist_totals[3];
    // Barrier: all have read the totals, whose words are used again.
    barrier(CLK_LOCAL_MEM_FENCE);
    // The cost in pairs: a segment has a fixed cost, too.
    const uint clhist_total = clhist_pairs + clhist_segments * clhist_segment_cost;
    uint clhist_pieces = clhist_total > ${SHARED} * clhist_piece ? (clhist_total + clhist_piece - 1) / clhist_piece : 1;
    if (clhist_pairs == 0)
        clhist_pieces = 0;
    // What is not shared out is a task only where results are made of copies.
    const uint clhist_tasks_more = clhist_pieces > 1 || ${"true" if spec.lists_whole else "false"} ? clhist_pieces : 0;
    if (clhist_lane == 0) {
        // Atomic: partitions reserve consecutive tasks in the list of all, in any order.
        const uint at = clhist_tasks_more ? atomic_add(clhist_cursors, clhist_tasks_more) : 0;
        clhist_totals[0] = at;
        clhist_task_bounds[2 * clhist_part] = at;
        clhist_task_bounds[2 * clhist_part + 1] = at + clhist_tasks_more;
        // The first tile with pairs, the tile behind the last one, the mean number of pairs of a segment, and the pieces.
        clhist_ranges[clhist_part] = (uint4)(
            min(clhist_first, clhist_last), clhist_last, clhist_segments ? clhist_pairs / clhist_segments : 0, clhist_pieces);
    }
    // Barrier: work-item 0 has stored the first task.
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint2 *clhist_own_tasks = clhist_tasks + clhist_totals[0];
    for (uint k = clhist_lane; k < clhist_tasks_more; k += ${group})
        clhist_own_tasks[k].x = clhist_part;
    if (clhist_lane == 0 && clhist_tasks_more > 0)
        clhist_own_tasks[0].y = clhist_first;
    if (clhist_pieces < 2)
        return;
    // Where each further piece begins: behind the tile with which those before it have their part of the cost.
    uint clhist_before = 0;
    for (uint block = clhist_first; block < clhist_last; block += ${group}) {
        const uint tile = block + clhist_lane;
        uint cost = 0;
        if (tile < clhist_last) {
            const uint pairs = clhist_own_starts[tile + clhist_tiles] - clhist_own_starts[tile];
            cost = pairs > 0 ? pairs + clhist_segment_cost : 0;
        }
        clhist_ends[clhist_lane] = cost;
        ${scan.inclusive("clhist_ends", "clhist_lane", group)}
        const ulong end = clhist_before + clhist_ends[clhist_lane];
        if (cost > 0) {
            // The products need 64 bits (`end` is ulong), the quotients do not.
            const uint last = min((uint)(end * clhist_pieces / clhist_total), clhist_pieces - 1);
            for (uint k = (uint)((end - cost) * clhist_pieces / clhist_total) + 1; k <= last; ++k)
                clhist_own_tasks[k].y = tile + 1;
        }
        clhist_before += clhist_ends[${group - 1}];
        // Barrier: all have read the sums before the next block overwrites them.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

<%def name="together()">
// Counts the pairs of each partition in a tile, then puts each pair in its place.
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void clhist_split(
${wrapped([parameter.declaration for parameter in split_parameters])})
{
% if guarded := sweep.feature(Guarded):
${local.get_namespace(guarded.template).leave(guarded)}
% endif
${types.arrays(sweep)}\
    __local uint clhist_counts[${most * counters}];
    __local uint clhist_ends[${group}];
    __local uint4 clhist_staged_bins[${room * 2 // 16}];
    __local ushort *clhist_places = (__local ushort *)clhist_staged_bins;
% if spec.has_values:
    __local uint4 clhist_staged_values[${-(-room * spec.value_bytes // 16)}];
    __local ${value_t} *clhist_values = (__local ${value_t} *)clhist_staged_values;
% endif
    const uint clhist_lane = get_local_id(0), clhist_tile = get_group_id(0);
    if (clhist_tile == 0 && clhist_lane == 0)
        for (uint k = 0; k < ${CURSORS}; ++k)
            clhist_cursors[k] = 0;
% if spec.clears:
    for (uint k = clhist_tile * ${group} + clhist_lane; k < clhist_cleared; k += clhist_tiles * ${group})
        clhist_zeros[k] = 0;
% endif
    for (uint k = clhist_lane; k < clhist_partitions * ${counters}; k += ${group})
        clhist_counts[k] = 0;
#ifdef CLHIST_CHECKED  // what nobody looks at is written, and so should be something
    for (uint k = clhist_lane; k < ${room * 2 // 16}; k += ${group})
        clhist_staged_bins[k] = 0;
% if spec.has_values:
    for (uint k = clhist_lane; k < ${-(-room * spec.value_bytes // 16)}; k += ${group})
        clhist_staged_values[k] = 0;
% endif
#endif
    barrier(CLK_LOCAL_MEM_FENCE);  // before pairs are counted
    const clhist_index_t clhist_start = (clhist_index_t)clhist_tile * ${spec.tile};
    const bool clhist_is_full = clhist_size - clhist_start >= ${spec.tile};
% if spec.rounds > 1:
    for (uint clhist_round = 0; clhist_round < ${spec.rounds}; ++clhist_round) {
${mapped()}
${count()}
    }
% else:
${mapped()}
${count()}
% endif
    // Barrier: all pairs are counted.
    barrier(CLK_LOCAL_MEM_FENCE);

    // Exclusive sums: where each partition begins, and within it the pairs of each counter.
    const uint clhist_own = clhist_lane * ${per_lane};
    uint clhist_total = 0;
    for (uint p = clhist_own; p < min(clhist_own + ${per_lane}, clhist_partitions); ++p) {
        for (uint k = 0; k < ${counters}; ++k) {
            // Neighbouring partitions start at different counters, and so in different banks.
            const uint counter = p * ${counters} + (p + k) % ${counters};
            const uint count = clhist_counts[counter];
            clhist_counts[counter] = clhist_total;
            clhist_total += count;
        }
    }
    clhist_ends[clhist_lane] = clhist_total;
    ${scan.inclusive("clhist_ends", "clhist_lane", group)}
    const uint clhist_begin = clhist_ends[clhist_lane] - clhist_total, clhist_all = clhist_ends[${group - 1}];
    for (uint p = clhist_own; p < min(clhist_own + ${per_lane}, clhist_partitions); ++p) {
        for (uint k = 0; k < ${counters}; ++k) {
            const uint counter = p * ${counters} + (p + k) % ${counters};
            clhist_counts[counter] += clhist_begin;
            if (k == 0)
                clhist_starts[(ulong)p * clhist_tiles + clhist_tile] = clhist_counts[counter];
        }
    }
    if (clhist_lane == 0)
        clhist_starts[(ulong)clhist_partitions * clhist_tiles + clhist_tile] = clhist_all;
    // Barrier: all counters have become places.
    barrier(CLK_LOCAL_MEM_FENCE);
% if spec.rounds > 1:
    for (uint clhist_round = 0; clhist_round < ${spec.rounds}; ++clhist_round) {
${mapped()}
${place()}
    }
% else:
${place()}
% endif
    // Barrier: the tile is complete before it is copied to global memory.
    barrier(CLK_LOCAL_MEM_FENCE);
    // Copy the tile to its region in global memory, 16 bytes at a time.
    __global uint4 *clhist_to = (__global uint4 *)(clhist_pairs + clhist_bins_place + (ulong)clhist_tile * ${room * 2});
    for (uint k = clhist_lane; k < (clhist_all * 2 + 15) / 16; k += ${group})
        clhist_to[k] = clhist_staged_bins[k];
% if spec.has_values:
    clhist_to = (__global uint4 *)(clhist_pairs + clhist_values_place + (ulong)clhist_tile * ${room * spec.value_bytes});
    for (uint k = clhist_lane; k < (clhist_all * ${spec.value_bytes} + 15) / 16; k += ${group})
        clhist_to[k] = clhist_staged_values[k];
% endif
}
</%def>

## The same by one work-item of a CPU, whose tile stays in its second-level cache: it writes each pair to its region. Few
## partitions have several counters each, in turn: a processor waits for one that it has just changed.
<%def name="alone()">
<%
    line = LINE_BYTES // 2
    counter = part("clhist_bin") if counters == 1 else f'{part("clhist_bin")} * {counters} + clhist_k % {counters}'
%>\
// Counts the pairs of each partition in a tile, then puts each pair in its place.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void clhist_split(
${wrapped([parameter.declaration for parameter in split_parameters])})
{
% if guarded := sweep.feature(Guarded):
${local.get_namespace(guarded.template).leave(guarded)}
% endif
${types.arrays(sweep)}\
    __local uint clhist_counts[${most * counters}];
% if spec.keeps:
    __local uint clhist_kept_bins[${room}];
% if spec.has_values:
    __local ${value_t} clhist_kept_values[${room}];
% endif
% endif
    const uint clhist_tile = get_group_id(0);
    if (clhist_tile == 0)
        for (uint k = 0; k < ${CURSORS}; ++k)
            clhist_cursors[k] = 0;
    for (uint k = 0; k < clhist_partitions * ${counters}; ++k)
        clhist_counts[k] = 0;
    const clhist_index_t clhist_start = (clhist_index_t)clhist_tile * ${room};
    const uint clhist_length = clhist_start < clhist_size ? min((uint)${room}, (uint)(clhist_size - clhist_start)) : 0;
    __global ushort *clhist_places = (__global ushort *)(clhist_pairs + clhist_bins_place) + clhist_start;
% if spec.has_values:
    __global ${value_t} *clhist_values = (__global ${value_t} *)(clhist_pairs + clhist_values_place) + clhist_start;
% endif
    for (uint clhist_round = 0; clhist_round < clhist_length; clhist_round += ${line}) {
        // Pairs are placed all over the tile's region, which is asked for in order before.
        CLHIST_AHEAD(clhist_places + clhist_round);
% if spec.has_values:
        for (uint ahead = 0; ahead < ${line * spec.value_bytes}; ahead += ${LINE_BYTES})
            CLHIST_AHEAD((__global const uchar *)(clhist_values + clhist_round) + ahead);
% endif
        const uint clhist_end = min(clhist_round + ${line}, clhist_length);
        #pragma unroll 4
        for (uint clhist_k = clhist_round; clhist_k < clhist_end; ++clhist_k) {
            clhist_bin_t clhist_bin = ~(clhist_bin_t)0;
${indent(capture(mapped_alone), "    ")}
% if spec.keeps:
            clhist_kept_bins[clhist_k] = clhist_bin;
% if spec.has_values:
            clhist_kept_values[clhist_k] = clhist_value;
% endif
% endif
            if (clhist_bin < clhist_num_bins)
                ++clhist_counts[${counter}];
        }
    }
    uint clhist_all = 0;
    for (uint p = 0; p < clhist_partitions; ++p) {
        clhist_starts[(ulong)p * clhist_tiles + clhist_tile] = clhist_all;
        for (uint k = p * ${counters}; k < (p + 1) * ${counters}; ++k) {
            const uint count = clhist_counts[k];
            clhist_counts[k] = clhist_all;
            clhist_all += count;
        }
    }
    clhist_starts[(ulong)clhist_partitions * clhist_tiles + clhist_tile] = clhist_all;
    #pragma unroll 4
    for (uint clhist_k = 0; clhist_k < clhist_length; ++clhist_k) {
% if spec.keeps:
        const clhist_bin_t clhist_bin = clhist_kept_bins[clhist_k];
% else:
        clhist_bin_t clhist_bin = ~(clhist_bin_t)0;
${mapped_alone()}
% endif
        if (clhist_bin < clhist_num_bins) {
            const uint partition = ${part("clhist_bin")};
            const uint at = clhist_counts[${counter.replace(part("clhist_bin"), "partition")}]++${mask};
            clhist_places[at] = (ushort)(clhist_bin & (clhist_width - 1));
% if spec.has_values:
            clhist_values[at] = ${"clhist_kept_values[clhist_k]" if spec.keeps else "clhist_value"};
% endif
        }
    }
}
</%def>

<%def name="mapped_alone()">\
<% arguments = ", ".join([*sweep.map_arguments(lambda a: f"{a.name}[clhist_start + (clhist_index_t)clhist_k]"), "clhist_start + (clhist_index_t)clhist_k"]) %>\
% if spec.has_values:
        ${value_t} clhist_value;
% endif
        clhist_map(${arguments}, &clhist_bin${", &clhist_value" * spec.has_values});
</%def>

## The elements of a work-item in one round, mapped to pairs.
<%def name="mapped()">
<% start = "clhist_start + (clhist_index_t)clhist_round * %d" % round_size if spec.rounds > 1 else "clhist_start" %>\
    const clhist_index_t clhist_own_start = ${start} + (clhist_index_t)clhist_lane * ${lanes};
    // All loads, before the first element is used.
% for argument in sweep.streamed:
% for load in range(loads):
<%
    kind, name = element_name(argument.dtype) + (str(lanes) if lanes > 1 else ""), f"clhist_from_{argument.name}_{load}"
    first = load * group * lanes
%>\
    ${kind} ${name} = 0;
    if (clhist_is_full) {
        ${name} = *(__global const ${kind} *)(${argument.name} + clhist_own_start + ${first});
    } else {
% for lane in range(lanes):
        if (clhist_own_start + ${first + lane} < clhist_size)
            ${name}${f".s{lane:x}" if lanes > 1 else ""} = ${argument.name}[clhist_own_start + ${first + lane}];
% endfor
    }
% endfor
% endfor
% for n, (load, lane) in enumerate(items):
<%
    index = f"clhist_own_start + {load * group * lanes + lane}"
    of = f".s{lane:x}" if lanes > 1 else ""
    arguments = ", ".join([*sweep.map_arguments(lambda a: f"clhist_from_{a.name}_{load}{of}"), index])
%>\
    clhist_bin_t clhist_bin_${n} = ~(clhist_bin_t)0;
% if words:
    uint ${", ".join(f"clhist_value_{n}_{k}" for k in range(words))};
    {
        clhist_union_t clhist_emitted = {.words = {0}};
        if (${index} < clhist_size)
            clhist_map(${arguments}, &clhist_bin_${n}, &clhist_emitted.value);
% for k in range(words):
        clhist_value_${n}_${k} = clhist_emitted.words[${k}];
% endfor
    }
% else:
% if spec.has_values:
    ${value_t} clhist_value_${n};
% endif
    if (${index} < clhist_size)
        clhist_map(${arguments}, &clhist_bin_${n}${f", &clhist_value_{n}" * spec.has_values});
% endif
% endfor
</%def>

<%def name="count()">\
    // Count: the partition of a bin is bin / clhist_width${"" if spec.is_alone else ", as a multiplication by clhist_magic and a shift"}.
% for n, _ in enumerate(items):
    if (clhist_bin_${n} < clhist_num_bins)
        atomic_inc(clhist_counts + ${part(f"clhist_bin_{n}")} * ${counters} + clhist_lane % ${counters});
% endfor
</%def>

<%def name="place()">\
    // Place: a counter is the next free place of its partition.
% for n, _ in enumerate(items):
    if (clhist_bin_${n} < clhist_num_bins) {
        const uint partition = ${part(f"clhist_bin_{n}")};
        const uint at = atomic_inc(clhist_counts + partition * ${counters} + clhist_lane % ${counters})${mask};
        clhist_places[at] = (ushort)(clhist_bin_${n} - partition * clhist_width);
% if words:
        const clhist_union_t emitted = {.words = {${", ".join(f"clhist_value_{n}_{k}" for k in range(words))}}};
        clhist_values[at] = emitted.value;
% elif spec.has_values:
        clhist_values[at] = clhist_value_${n};
% endif
    }
% endfor
</%def>
