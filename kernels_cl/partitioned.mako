## The sweep over pairs that partition.mako grouped by ranges of bins.
##
##   tasks    | pieces of split ranges, each fills a copy of its range | whole ranges, if results are written at once |
##   a task   the segments of its range in consecutive tiles:  tile 3: [==]  tile 4: [=====]  tile 5: [=] ..
##   crew     work-items that read one segment together; loads of the next round precede the updates of this one
##   cells    the bins of the range, in local memory (on CPUs: in the cache)
##
## Work-groups take the next task from a counter. A whole range is written once and densely, with no copy.
## `clhist_join` combines the copies of split ranges.
##
## Plan: PartitionedPlan (clhist/_core/model/partition.py). Decision 0008.

<%!
    from textwrap import dedent, indent
    from clhist._core.model.feature import Guarded
    from clhist._core.model.partition import ROUNDS
    from clhist._core.kernels.state import LINE_BYTES, statement
    from clhist._core.kernels.striped import updates
    JOINED_BYTES = 16384  # of local memory
    LINE = 8  # loads of 16 bytes of a cache line, which a crew of as many asks for at once
    TILES_AHEAD = 4  # whose pairs a CPU is asked for
    CROWDED = 4  # times the pairs of a range

    def joined(name, part):
        """Return C of four values of an array, from the i-th on, combined."""
        pairs = (f"clhist_combine{part.n}({name}[i + {k}], {name}[i + {k + 1}])" for k in (0, 2))
        return f"clhist_combine{part.n}({', '.join(pairs)})"
%>
<%def name="helpers(feature)">
% if spec.warp.any_lane:
// Whether a condition holds for some lane of a warp, whose lanes must all ask.
bool clhist_any(const bool condition)
{
    ${spec.warp.any_lane}
}

% endif
// The next task of a work-group.
uint clhist_next_task(volatile __global uint *taken, __local uint *task)
{
    barrier(CLK_LOCAL_MEM_FENCE);  // before the last task is forgotten
    // Atomic: work-groups take tasks in turn, since these cost different times.
    if (get_local_id(0) == 0)
        *task = atomic_inc(taken);
    // Barrier: work-item 0 has stored the task.
    barrier(CLK_LOCAL_MEM_FENCE);
    return *task;
}
</%def>

## The loop over the tasks of a work-group, in which `share` is what is done with each.
<%def name="shares(feature, share)">
    // Part of the pool: a second array might exceed the local memory of the device.
    __local uint *clhist_local_task = (__local uint *)(clhist_pool + ${spec.capacity - 8});
    volatile __global uint *clhist_task_counter = clhist_cursors + 1;
    const uint clhist_pieces = clhist_cursors[0];
    const uint clhist_ends = clhist_pieces${" + clhist_partitions" * feature.writes_results};
    for (uint clhist_task = clhist_next_task(clhist_task_counter, clhist_local_task); clhist_task < clhist_ends;
         clhist_task = clhist_next_task(clhist_task_counter, clhist_local_task)) {
% if feature.writes_results:
        const bool clhist_is_whole = clhist_task >= clhist_pieces;
        const uint clhist_part = clhist_is_whole ? clhist_task - clhist_pieces : clhist_tasks[clhist_task].x;
        const uint4 clhist_range = clhist_ranges[clhist_part];
        uint clhist_tile = clhist_is_whole ? clhist_range.x : clhist_tasks[clhist_task].y;
        const bool clhist_is_last = clhist_is_whole || clhist_task + 1 == clhist_task_bounds[2 * clhist_part + 1];
% else:
        const uint clhist_part = clhist_tasks[clhist_task].x;
        const uint4 clhist_range = clhist_ranges[clhist_part];
        uint clhist_tile = clhist_tasks[clhist_task].y;
        const bool clhist_is_last = clhist_task + 1 == clhist_task_bounds[2 * clhist_part + 1];
% endif
        const uint clhist_last_tile = clhist_is_last ? clhist_range.y : clhist_tasks[clhist_task + 1].y;
        const size_t clhist_slot = clhist_task;
% if feature.writes_results:
        const bool clhist_is_split = clhist_is_whole && clhist_range.w > 1;  // others have its pieces
        if (clhist_is_split)
            clhist_tile = clhist_last_tile;
% endif
${indent(share, "    ")}
    }
</%def>

## What is done with the cells of a task; `copied` writes them to a copy.
<%def name="store(feature, copied)">
<% assignment = "const accumulator_t written = " if state.reported else "" %>\
% if feature.writes_results:
    if (clhist_is_whole && !clhist_is_split) {
        const ulong clhist_begin = (ulong)clhist_part * clhist_bins_per_pass;
        const uint clhist_own_bins
            = min((ulong)clhist_bins_per_pass, clhist_all_bins - min(clhist_begin, (ulong)clhist_all_bins));
${seen()}\
        for (uint k = clhist_lane; k < clhist_own_bins; k += ${spec.work_group_size}) {
            accumulator_t held;
% for part in parts:
            held${part.part.accessor} = ${state.counted(part.n, f"clhist_own{part.n}[k].value")};
% endfor
${statement(f"{'' if spec.is_alone else assignment}clhist_write_bin", ["clhist_begin + k", "held", *results], 3)}
% if not spec.is_alone:
${see("clhist_begin + k", 3)}\
% endif
        }
% if spec.is_alone and state.reported:
${see_cells()}\
% endif
${report()}\
    }
    // Without a condition around barriers, which PoCL 3 does not compile: a range that was written whole has no bins here.
    const clhist_bin_t clhist_filled = clhist_is_whole ? 0 : clhist_count${spec.outputs[0].suffix};
    {
        const clhist_bin_t clhist_count${spec.outputs[0].suffix} = clhist_filled;
${indent(copied, "    ")}
    }
% else:
${copied}
% endif
</%def>

## The largest bin that a work-item has written with a value, and on a CPU the sum of its counts, where these are asked for.
<%def name="seen()">\
% if state.reported:
        uint ${", ".join(f"{name} = 0" for name in state.reported)};
% endif
</%def>
<%def name="see(bin, depth)">\
% if state.reported:
${indent(f"if (clhist_has_value({bin}, written, clhist_known))", "    " * depth)}
${indent(f"clhist_largest = max(clhist_largest, (uint)({bin}));", "    " * (depth + 1))}
% if "clhist_sum" in state.reported:
${indent("clhist_sum += written;", "    " * depth)}
% endif
% endif
</%def>
## The same of all cells of a range, apart, so that a compiler makes its loops of vectors.
<%def name="see_cells()">\
        for (uint k = clhist_own_bins; k > 0 && clhist_begin + k - 1 > clhist_known; --k) {
            accumulator_t held;
% for part in parts:
            held${part.part.accessor} = clhist_own${part.n}[k - 1].value;
% endfor
            if (clhist_has_value(clhist_begin + k - 1, held, clhist_known)) {
                clhist_largest = clhist_begin + k - 1;
                break;
            }
        }
% if "clhist_sum" in state.reported:
        for (uint k = 0; k < clhist_own_bins; ++k)
            clhist_sum += clhist_own0[k].value;
% endif
</%def>
<%def name="report()">\
% if state.reported:
        volatile __global uint *clhist_report = (volatile __global uint *)(clhist_report_base + clhist_report_offset);
        if (clhist_largest)
            atomic_max(clhist_report, clhist_largest);
% if "clhist_sum" in state.reported:
        atomic_add(clhist_report + 1, clhist_sum);
% endif
% endif
</%def>
## The kernel that combines the copies of ranges that were shared out: a work-group for each has a part of its bins.
<%def name="behind(feature)">
% if feature.writes_results:
// Combines the copies of each range that was shared out: for each piece a part of the bins.
__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_join(
${state.wrapped([parameter.declaration for parameter in join_parameters])})
{
% if guarded := spec.feature(Guarded):
${local.get_namespace(guarded.template).leave(guarded)}
% endif
% for part in parts:
    __global const cell${part.n}_t *cells${part.n} = (__global const cell${part.n}_t *)(clhist_scratch + clhist_place${part.n});
% endfor
<%
    cells = "".join(f"cells{part.n}, " for part in parts)
    group, size = spec.work_group_size, spec.outputs[0].operator.accumulator.itemsize
    totals = min(group, JOINED_BYTES // size)  # of several rows of work-items, where there is room for some
    rows = totals > 1
    assignment = "const accumulator_t written = " if state.reported else ""
%>\
    const uint lane = get_local_id(0);
% if rows:
    __local accumulator_t totals[${totals}];
% endif
    const uint clhist_pieces = clhist_cursors[0];
    for (uint task = get_group_id(0); task < clhist_pieces; task += get_num_groups(0)) {
        const uint part = clhist_tasks[task].x;
        const ulong first = clhist_task_bounds[2 * part], pieces = clhist_task_bounds[2 * part + 1] - first;
        const ulong begin = (ulong)part * clhist_bins_per_pass;
        const ulong bins = min((ulong)clhist_bins_per_pass, clhist_all_bins - min(begin, (ulong)clhist_all_bins));
        const ulong end = bins * (task - first + 1) / pieces;
${seen()}\
        const ulong from = bins * (task - first) / pieces;
% if rows:
        // With few bins, several rows of work-items have a part of the copies each.
        uint rows = 1;
        while (8 * rows <= pieces && 2 * rows * max(end - from, (ulong)1) <= ${totals})
            rows *= 2;
        const uint columns = ${group if totals == group else f"(rows > 1 ? {totals} : {group})"} / rows, row = lane / columns;
% else:
        const uint columns = ${group}, rows = 1, row = 0;
% endif
        for (ulong begun = from; begun < end; begun += columns) {
            const ulong k = begun + lane % columns;
            accumulator_t total = clhist_neutral();
            if (k < end${" && row < rows" if rows and totals < group else ""})
                for (ulong copy = first + row; copy < first + pieces; copy += rows)
                    total = clhist_combine(total, clhist_cell_of(${cells}copy * clhist_bins_per_pass + k));
% if rows:
            if (rows > 1) {
${"                if (row < rows)" if totals < group else ""}
                    totals[lane] = total;
                for (uint span = rows / 2; span > 0; span /= 2) {
                    // Barrier: the upper half must have stored its totals.
                    barrier(CLK_LOCAL_MEM_FENCE);
                    if (row < span)
                        totals[lane] = clhist_combine(totals[lane], totals[lane + span * columns]);
                }
                total = totals[lane % columns];
                barrier(CLK_LOCAL_MEM_FENCE);  // before the next sums
            }
% endif
            if (row == 0 && k < end) {
${statement(f"{assignment}clhist_write_bin", ["begin + k", "total", *results], 4)}
${see("begin + k", 4)}\
            }
        }
${report()}\
    }
}
% endif
</%def>

## The pairs of a task. Several work-items, a crew, read the pairs of one tile, in rounds; the pairs of the next round are
## asked for before those of this one are counted. Loads are of several pairs, from a place that they may begin at: pairs
## of other ranges are masked. Where the lanes of a warp must stay together, none leaves before all have come to the end.
<%def name="walk()">
<%
    lanes, bins = spec.vector_width, spec.arguments[0]
    # Pairs that store values, which an operator combines as it does accumulators.
    operator = spec.outputs[0].operator
    joins = len(streamed) == 2 and len(parts) == 1 and operator.holds_values and operator.dtype.names is None
%>\
    __global const uint *clhist_own_starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
    __global const uint *clhist_segment_ends = clhist_own_starts + clhist_tiles;
% if spec.is_alone:
% if joins:
    const bool clhist_is_crowded = (ulong)clhist_range.z * clhist_partitions > ${CROWDED} * (ulong)clhist_region;
% endif
    for (; clhist_tile < clhist_last_tile; ++clhist_tile) {
        // A segment is too short for the hardware to notice it.
        const uint clhist_next_tile = min(clhist_tile + ${TILES_AHEAD}, clhist_last_tile - 1);
        const size_t clhist_next = (size_t)(clhist_next_tile * clhist_region);
        const size_t clhist_next_begin = clhist_next + clhist_own_starts[clhist_next_tile];
        const size_t clhist_next_end = clhist_next + clhist_segment_ends[clhist_next_tile];
% for argument in streamed:
        for (size_t k = clhist_next_begin; k < clhist_next_end; k += ${max(1, LINE_BYTES // argument.dtype.itemsize)})
            CLHIST_AHEAD(${argument.name} + k);
% endfor
        const clhist_index_t clhist_first_place = (clhist_index_t)(clhist_tile * clhist_region);
        const clhist_index_t clhist_end = clhist_first_place + (clhist_index_t)clhist_segment_ends[clhist_tile];
        clhist_index_t i = clhist_first_place + (clhist_index_t)clhist_own_starts[clhist_tile];
% if joins:
        // In a range with many pairs one bin may have most of them: each update would wait for the one before.
        for (; clhist_is_crowded && i + 4 <= clhist_end; i += 4) {
            if (${" && ".join(f"{bins.name}[i] == {bins.name}[i + {k}]" for k in (1, 2, 3))}) {
${state.map_call(4, lambda a: f"{a.name}[i]" if a is bins else joined(a.name, parts[0]))}
            } else {
                #pragma unroll
                for (clhist_index_t k = i; k < i + 4; ++k)
${state.map_call(5, lambda a: f"{a.name}[k]", "k")}
            }
        }
% endif
        #pragma unroll 4
        for (; i < clhist_end; ++i) {
${state.map_call(3)}
        }
    }
% else:
    // Crew: a power of two of work-items that read one segment together. Longer segments have larger crews, so that each
    // work-item has few rounds, and short ones a crew that reads at most a cache line.
    const uint clhist_loads = clhist_range.z / ${lanes};
    uint clhist_crew = 1;
    while ((clhist_crew < min(${LINE}u, (clhist_range.z + ${lanes - 1}) / ${lanes} + 1) || ${ROUNDS} * clhist_crew <= clhist_loads)
           && ${spec.work_group_size} % (2 * clhist_crew) == 0)
        clhist_crew *= 2;
    const uint clhist_stride = ${spec.work_group_size} / clhist_crew, clhist_step = clhist_crew * ${lanes};
    const uint clhist_own = clhist_lane % clhist_crew * ${lanes};
    clhist_tile += clhist_lane / clhist_crew;
    uint clhist_round = 0, clhist_begin = 0, clhist_end = 0, clhist_next_begin = 0, clhist_next_end = 0;
    if (clhist_tile < clhist_last_tile) {
        clhist_begin = clhist_own_starts[clhist_tile];
        clhist_end = clhist_segment_ends[clhist_tile];
        clhist_round = clhist_begin / ${lanes} * ${lanes};  // aligned for a vector, perhaps before the first pair
    }
    if (clhist_tile + clhist_stride < clhist_last_tile) {
        clhist_next_begin = clhist_own_starts[clhist_tile + clhist_stride];
        clhist_next_end = clhist_segment_ends[clhist_tile + clhist_stride];
    }
    bool clhist_is_inside = clhist_round + clhist_own < clhist_end;
% for argument in streamed:
    ${state.loaded_type(argument)} clhist_${argument.name}_next = ${0 if lanes > 1 else '{0}'};
% endfor
    if (clhist_is_inside) {
${indent(dedent(capture(load_next)), "        ")}
    }
    while (${"clhist_any(clhist_tile < clhist_last_tile)" if spec.warp.any_lane else "clhist_tile < clhist_last_tile"}) {
        const clhist_index_t clhist_place
            = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
        // Pairs of the segment, and where this load begins among them; before the first it wraps to a large number.
        const uint clhist_pairs = clhist_is_inside ? clhist_end - clhist_begin : 0;
        const uint clhist_from = clhist_round + clhist_own - clhist_begin;
% for argument in streamed:
        ${state.loaded_type(argument)} clhist_${argument.name}_now = clhist_${argument.name}_next;
% endfor
        // Advance to the next round of this segment, or to the next segment of this crew.
        clhist_round += clhist_step;
        if (clhist_round >= clhist_end) {
            clhist_tile += clhist_stride;
            clhist_begin = clhist_next_begin;
            clhist_end = clhist_next_end;
            clhist_round = clhist_begin / ${lanes} * ${lanes};
            if (clhist_tile + clhist_stride < clhist_last_tile) {
                clhist_next_begin = clhist_own_starts[clhist_tile + clhist_stride];
                clhist_next_end = clhist_segment_ends[clhist_tile + clhist_stride];
            }
        }
        clhist_is_inside = clhist_tile < clhist_last_tile && clhist_round + clhist_own < clhist_end;
        if (clhist_is_inside) {
${load_next()}
        }
<%
    def element(a, lane):
        pair = f"clhist_{a.name}_now{state.lane(lane)}"
        return f"clhist_from + {lane} < clhist_pairs ? {pair} : (ushort)0xffff" if a is bins else pair
%>\
${updates(state, element, lambda lane: f"clhist_place + {lane}")}
    }
% endif
</%def>

<%def name="load_next()">
            const clhist_index_t clhist_next_place
                = (clhist_index_t)(clhist_tile * clhist_region + clhist_round + clhist_own);
% for argument in streamed:
<% kind = state.loaded_type(argument) %>\
            clhist_${argument.name}_next = *(__global const ${kind} *)(${argument.name} + clhist_next_place);
% endfor
</%def>
