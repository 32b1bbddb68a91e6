## Rows of values, combined by bin. On a GPU the rows of each bin are counted and their numbers placed bin after bin (or
## offsets say where they are); then some lanes gather the rows of a bin, combine them in registers and write its result
## once. The rows of a bin that has very many are shared out in pieces. On a CPU each work-item adds rows to bins of its own.
<%namespace name="types" file="types.mako"/>
<%!
    from clhist.codegen.state import wrapped
    from clhist.planning.rows import COUNTED_TILE, FEW_ELEMENTS, LEAST_PIECE, SCANNED_BINS
%>\
<%
    sweep, output, text = spec.sweep, spec.sweep.outputs[0], spec.text
    operator, group, d = output.operator, spec.sweep.work_group_size, spec.text.rows.components
    v, lanes, is_sorted, known = spec.vector, spec.lanes, spec.text.rows.is_sorted, {}
    bank = 1024  # bins that a work-group which counts holds in local memory, a power of two
%>
// Rows of ${d} components, gathered by bin: ${"each work-item has bins of its own" if sweep.order == "blocked" else f"{lanes} lanes a bin, {v} components each"}.
${types.prologue(sweep, preamble_of, known)}
<%types:functions operator="${operator}" suffix="" preamble="">
% for n, part in enumerate(operator.parts):
${types.part(part, n, c_name)}
% endfor
</%types:functions>
${types.whole(operator)}
value_t clhist_finish(const accumulator_t a)
{
    return ${operator.finish};
}
#define CLHIST_ROW_VALUE(element) (${text.value})
% if sweep.order == "blocked":
${types.ahead()}
${blocked()}
% else:
${gathering()}
% endif

<%def name="begin(name, size=None)">
__kernel __attribute__((reqd_work_group_size(${size or group}, 1, 1)))
void clhist_rows_${name}(
${wrapped([parameter.declaration for parameter in parameters[name]])})
{\
</%def>

<%def name="results()">\
    __global const value_t *dest = (__global const value_t *)(clhist_dest_base + clhist_dest_offset);
    __global value_t *out = (__global value_t *)(clhist_out_base + clhist_out_offset);
</%def>

## A CPU: P parts of the elements, each with a copy of all bins, and ranges of bins for the work-items of a part. Rows are
## looked for block by block, and those found added without a branch.
<%def name="blocked()">
// Adds a row to the accumulators of its bin. A function, so that no array is taken to be another.
void clhist_add_row(${", ".join(["__global accumulator_t *restrict to", "const ulong clhist_row", *(a.parameter for a in sweep.arguments)])})
{
    uint clhist_c = 0;
% if v > 1:
    for (; clhist_c + ${v} <= ${d}; clhist_c += ${v}) {
        // All loads before the first store, for vectors.
% for c in range(v):
        const accumulator_t clhist_sum_${c} = clhist_combine(to[clhist_c + ${c}], clhist_lift(CLHIST_ROW_VALUE(clhist_row * ${d} + clhist_c + ${c})));
% endfor
% for c in range(v):
        to[clhist_c + ${c}] = clhist_sum_${c};
% endfor
    }
% endif
    for (; clhist_c < ${d}; ++clhist_c)
        to[clhist_c] = clhist_combine(to[clhist_c], clhist_lift(CLHIST_ROW_VALUE(clhist_row * ${d} + clhist_c)));
}

// Each work-item has a part of the elements and a range of bins.
${begin("add")}
${types.arrays(sweep)}\
${results()}\
    const uint clhist_item = get_global_id(0), clhist_ranges = get_global_size(0) / clhist_parts;
    const uint clhist_part = clhist_item / clhist_ranges, clhist_range = clhist_item % clhist_ranges;
    if (clhist_part >= clhist_parts)
        return;
% if is_sorted:
    // Ranges of bins that have about as many rows each.
    uint clhist_ends[2];
    for (uint k = 0; k < 2; ++k) {
        const ulong clhist_rows = (ulong)clhist_elements * (clhist_range + k) / clhist_ranges;
        uint low = 0, high = clhist_row_bins;
        while (low < high) {
            const uint middle = low + (high - low) / 2;
            if ((ulong)(${text.index}[middle] - ${text.index}[0]) < clhist_rows)
                low = middle + 1;
            else
                high = middle;
        }
        clhist_ends[k] = clhist_range + k == 0 ? 0 : clhist_range + k == clhist_ranges ? clhist_row_bins : low;
    }
    const uint clhist_first = clhist_ends[0], clhist_count = clhist_ends[1] - clhist_ends[0];
% else:
    const uint clhist_first = (ulong)clhist_row_bins * clhist_range / clhist_ranges;
    const uint clhist_count = (uint)((ulong)clhist_row_bins * (clhist_range + 1) / clhist_ranges) - clhist_first;
% endif
% if spec.copies:
    __global accumulator_t *clhist_to = clhist_held + ((ulong)clhist_part * clhist_row_bins + clhist_first) * ${d};
    for (ulong k = 0; k < (ulong)clhist_count * ${d}; ++k)
        clhist_to[k] = clhist_neutral();
% else:
    // An accumulator is a value: it is where the result belongs.
    __global accumulator_t *clhist_to = (__global accumulator_t *)out + (ulong)clhist_first * ${d};
    if (clhist_has_dest)
        for (ulong k = 0; k < (ulong)clhist_count * ${d}; ++k)
            clhist_to[k] = clhist_combine(clhist_lift(dest[(ulong)clhist_first * ${d} + k]), clhist_neutral());
    else
        for (ulong k = 0; k < (ulong)clhist_count * ${d}; ++k)
            clhist_to[k] = clhist_neutral();
% endif
% if is_sorted:
    for (uint b = 0; b < clhist_count; ++b) {
        const ulong end = (ulong)${text.index}[clhist_first + b + 1];
        for (ulong k = (ulong)${text.index}[clhist_first + b]; k < end; ++k)
            clhist_add_row(${", ".join(["clhist_to + (ulong)b * " + str(d), "k", *(a.name for a in sweep.arguments)])});
    }
% else:
    const uint clhist_stop = (ulong)clhist_elements * (clhist_part + 1) / clhist_parts;
    uint clhist_bins[${128}], clhist_rows[${128}];
    for (uint block = (ulong)clhist_elements * clhist_part / clhist_parts; block < clhist_stop; block += 128) {
        uint found = 0;
        for (uint i = block; i < min(block + 128, clhist_stop); ++i) {
            const uint bin = CLHIST_BIN(${text.index}) - clhist_first;
            clhist_bins[found] = bin;
            clhist_rows[found] = i;
            found += bin < clhist_count;
        }
        for (uint k = 0; k < found; ++k) {
% if spec.ahead:
            __global const accumulator_t *ahead = clhist_to + (ulong)clhist_bins[min(k + ${spec.ahead}, found - 1)] * ${d};
% for line in range(0, min(d * operator.accumulator.itemsize, 256), 64):
            CLHIST_AHEAD((__global const char *)ahead + ${line});
% endfor
% endif
            clhist_add_row(${", ".join([f"clhist_to + (ulong)clhist_bins[k] * {d}", "clhist_rows[k]", *(a.name for a in sweep.arguments)])});
        }
    }
% endif
}

// Combines the copies of all parts with what dest has.
${begin("join")}
${results()}\
    const ulong clhist_cells = (ulong)clhist_row_bins * ${d};
    const ulong end = clhist_cells * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_cells * get_global_id(0) / get_global_size(0); k < end; ++k) {
        accumulator_t total = clhist_has_dest ? clhist_lift(dest[k]) : clhist_neutral();
        for (uint part = 0; part < clhist_parts; ++part)
            total = clhist_combine(total, clhist_held[part * clhist_cells + k]);
        out[k] = clhist_finish(total);
    }
}
</%def>

<%def name="gathering()">
// Sets the numbers of rows of all bins, and those of the call, to 0.
${begin("clear")}
    for (uint k = get_global_id(0); k < clhist_words; k += get_global_size(0))
        clhist_counts[k] = 0;
}
% if is_sorted:
#define CLHIST_ROWS_BEGIN(bin) ((uint)${text.index}[bin])
#define CLHIST_ROWS_COUNT(bin) ((uint)(${text.index}[(bin) + 1] - ${text.index}[bin]))
#define CLHIST_ROWS_ID(k) (k)
% else:
// The first words are those of the call.
#define CLHIST_ROWS_BEGIN(bin) clhist_begins[bin]
#define CLHIST_ROWS_COUNT(bin) clhist_counts[(bin) + 4]
#define CLHIST_ROWS_ID(k) clhist_ids[k]
% endif

% if not is_sorted and not spec.few_bins:
${counting()}
% endif
% if spec.few_bins:
${few()}
% endif

// Gives each bin room for its rows, wherever there is some, and shares out the rows of those with very many.
${begin("begin")}
${types.arrays(sweep)}\
    const uint clhist_lane = get_local_id(0);
    const uint clhist_bin = (uint)get_group_id(0) * ${group * SCANNED_BINS} + clhist_lane;
    __local uint clhist_long[${group * SCANNED_BINS}], clhist_number, clhist_piece_at;
    if (clhist_lane == 0)
        clhist_number = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
% for k in range(SCANNED_BINS):
    const uint clhist_count_${k} = clhist_bin + ${k * group} < clhist_row_bins ? CLHIST_ROWS_COUNT(clhist_bin + ${k * group}) : 0;
% endfor
% if not is_sorted:
    __local uint clhist_ends[${group}], clhist_base;
    const uint clhist_own = ${" + ".join(f"clhist_count_{k}" for k in range(SCANNED_BINS))};
    clhist_ends[clhist_lane] = clhist_own;
    barrier(CLK_LOCAL_MEM_FENCE);
${scan("clhist_ends", group)}
    if (clhist_lane == ${group - 1})
        clhist_base = atomic_add(clhist_cursors, clhist_ends[clhist_lane]);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_at = clhist_base + clhist_ends[clhist_lane] - clhist_own;
% endif
% for k in range(SCANNED_BINS):
    if (clhist_bin + ${k * group} < clhist_row_bins) {
% if not is_sorted:
        clhist_begins[clhist_bin + ${k * group}] = clhist_at;
        clhist_at += clhist_count_${k};
% endif
        if (clhist_count_${k} > clhist_piece)
            clhist_long[atomic_inc(&clhist_number)] = clhist_bin + ${k * group};
    }
% endfor
${share(group)}
}

// Combines the rows of each bin, or of a piece of one: ${lanes} lanes have ${v} components each. Pieces come first.
${begin("gather")}
${types.arrays(sweep)}\
${results()}\
    const uint clhist_lane = get_local_id(0) % ${lanes}, clhist_slot = get_local_id(0) / ${lanes};
    const uint clhist_groups = (clhist_slots + ${spec.slots - 1}) / ${spec.slots}, clhist_group = get_group_id(0);
    if (clhist_slot >= ${spec.slots})
        return;
    const bool is_piece = clhist_group < clhist_groups;
    const uint at = (is_piece ? clhist_group : clhist_group - clhist_groups) * ${spec.slots} + clhist_slot;
    uint begin, end;
    if (is_piece) {
        if (at >= clhist_cursors[1])
            return;
        begin = clhist_pieces[at].x;
        end = clhist_pieces[at].y;
    } else {
        if (at >= clhist_row_bins)
            return;
        begin = CLHIST_ROWS_BEGIN(at);
        end = CLHIST_ROWS_COUNT(at);
        if (end > clhist_piece)
            return;
        end += begin;
    }
    for (uint clhist_c = clhist_lane * ${v}; clhist_c < ${d}; clhist_c += ${lanes * v}) {
% for c in range(v):
        accumulator_t total_${c} = clhist_neutral();
% endfor
        uint k = begin;
        for (; k + ${loads} <= end; k += ${loads}) {
% for u in range(loads):
            const ulong row_${u} = (ulong)CLHIST_ROWS_ID(k + ${u}) * ${d} + clhist_c;
% endfor
% for u in range(loads):
            ${load(u)}
% endfor
% for u in range(loads):
            ${add(u)}
% endfor
        }
        for (; k < end; ++k) {
            const ulong row_0 = (ulong)CLHIST_ROWS_ID(k) * ${d} + clhist_c;
            ${load(0)}
            ${add(0)}
        }
        const ulong to = (ulong)at * ${d} + clhist_c;
        if (is_piece) {
% for c in range(v):
            clhist_held[to + ${c}] = total_${c};
% endfor
        } else {
${store("            ")}
        }
    }
}

<% rows = spec.joined %>\
// Joins the pieces of a bin: ${rows} rows of a work-group take them in turn.
${begin("join")}
${results()}\
    __local accumulator_t clhist_totals[${rows * lanes * v}];
    if (get_group_id(0) >= clhist_cursors[2])
        return;
    const uint4 shared = clhist_pieces[clhist_slots + get_group_id(0)];
    const uint at = shared.x, clhist_row = get_local_id(0) / ${lanes};
    for (uint base = 0; base < ${d}; base += ${lanes * v}) {
        const uint clhist_c = base + get_local_id(0) % ${lanes} * ${v};
        const bool takes_part = clhist_row < ${rows} && clhist_c < ${d};
% for c in range(v):
        accumulator_t total_${c} = clhist_neutral();
% endfor
        if (takes_part) {
            for (uint k = clhist_row; k < shared.z; k += ${rows}) {
                const ulong from = (ulong)(shared.y + k) * ${d} + clhist_c;
% for c in range(v):
                total_${c} = clhist_combine(total_${c}, clhist_held[from + ${c}]);
% endfor
            }
        }
% if rows > 1:
        __local accumulator_t *own = clhist_totals + get_local_id(0) * ${v};
        if (clhist_row < ${rows}) {
% for c in range(v):
            own[${c}] = total_${c};
% endfor
        }
<% half = rows // 2 %>\
% while half:
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_row < ${half}) {
% for c in range(v):
            own[${c}] = clhist_combine(own[${c}], own[${half * lanes * v + c}]);
% endfor
        }
<% half //= 2 %>\
% endwhile
        if (clhist_row == 0 && clhist_c < ${d}) {
% for c in range(v):
            total_${c} = own[${c}];
% endfor
        }
% endif
        const ulong to = (ulong)at * ${d} + clhist_c;
        if (clhist_row == 0 && clhist_c < ${d}) {
${store("            ")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
</%def>

<%!
    loads = 4
%>
<%def name="load(u)">\
% if v > 1:
const ${c_name(operator.dtype)}${v} loaded_${u} = *(__global const ${c_name(operator.dtype)}${v} *)(${text.loads} + row_${u});
% else:
const value_t loaded_${u} = CLHIST_ROW_VALUE(row_${u});
% endif
</%def>
<%def name="add(u)">\
% for c in range(v):
            total_${c} = clhist_combine(total_${c}, clhist_lift(loaded_${u}${f".s{c:x}" if v > 1 else ""}));
% endfor
</%def>
<%def name="store(space)">\
% for c in range(v):
${space}total_${c} = clhist_combine(clhist_has_dest ? clhist_lift(dest[to + ${c}]) : clhist_neutral(), total_${c});
% endfor
% if v > 1:
${space}*(__global ${c_name(operator.dtype)}${v} *)(out + to) = (${c_name(operator.dtype)}${v})(${", ".join(f"clhist_finish(total_{c})" for c in range(v))});
% else:
${space}out[to] = clhist_finish(total_0);
% endif
</%def>

## Has the rows of bins with very many shared out: notes the pieces, and which of them are of which bin.
<%def name="share(size)">\
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (uint clhist_k = 0; clhist_k < clhist_number; ++clhist_k) {
        const uint bin = clhist_long[clhist_k], begin = CLHIST_ROWS_BEGIN(bin), end = begin + CLHIST_ROWS_COUNT(bin);
        const uint number = (end - begin + clhist_piece - 1) / clhist_piece;
        if (clhist_lane == 0) {
            clhist_piece_at = atomic_add(clhist_cursors + 1, number);
            clhist_pieces[clhist_slots + atomic_inc(clhist_cursors + 2)] = (uint4)(bin, clhist_piece_at, number, 0);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = clhist_lane; k < number; k += ${size})
            clhist_pieces[clhist_piece_at + k] = (uint4)(begin + k * clhist_piece, min(begin + (k + 1) * clhist_piece, end), 0, 0);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## Where a call has few elements and bins: one work-group counts and places all in local memory.
<%def name="few()">
<% size = spec.few_group %>\
${begin("few", size)}
${types.arrays(sweep)}\
    __local uint clhist_own[${spec.few_bins}], clhist_ends[${size}];
    __local uint clhist_long[${FEW_ELEMENTS // LEAST_PIECE}], clhist_number, clhist_piece_at;
    const uint clhist_lane = get_local_id(0);
    if (clhist_lane == 0)
        clhist_number = 0;
    for (uint k = clhist_lane; k < clhist_row_bins; k += ${size})
        clhist_own[k] = 0;
    for (uint k = clhist_lane; k < 4; k += ${size})
        clhist_cursors[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (uint i = clhist_lane; i < clhist_elements; i += ${size}) {
        const uint bin = CLHIST_BIN(${text.index});
        if (bin < clhist_row_bins)
            atomic_inc(clhist_own + bin);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint clhist_first = clhist_row_bins * clhist_lane / ${size};
    const uint clhist_last = clhist_row_bins * (clhist_lane + 1) / ${size};
    uint clhist_sum = 0;
    for (uint k = clhist_first; k < clhist_last; ++k)
        clhist_sum += clhist_own[k];
    clhist_ends[clhist_lane] = clhist_sum;
    barrier(CLK_LOCAL_MEM_FENCE);
${scan("clhist_ends", size)}
    uint clhist_at = clhist_ends[clhist_lane] - clhist_sum;
    for (uint k = clhist_first; k < clhist_last; ++k) {
        const uint count = clhist_own[k];
        CLHIST_ROWS_COUNT(k) = count;
        clhist_begins[k] = clhist_at;
        clhist_own[k] = clhist_at;
        if (count > clhist_piece)
            clhist_long[atomic_inc(&clhist_number)] = k;
        clhist_at += count;
    }
${share(size)}
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = clhist_lane; i < clhist_elements; i += ${size}) {
        const uint bin = CLHIST_BIN(${text.index});
        if (bin < clhist_row_bins)
            clhist_ids[atomic_inc(clhist_own + bin)] = i;
    }
}
</%def>

## A bin that many elements of a tile have is counted in local memory first: elements of one bin wait for each other.
<%def name="counting()">
// Counts the rows of each bin, and gives each row its number among them. A work-group looks at its first elements: if
// many are of the same bins, it counts in local memory as far as that has room, and each bin there once for all.
${begin("count")}
${types.arrays(sweep)}\
    __local uint clhist_keys[${bank}], clhist_own[${bank}], clhist_again;
    const uint clhist_lane = get_local_id(0);
    const uint clhist_start = (uint)get_group_id(0) * ${group * COUNTED_TILE} + clhist_lane;
    for (uint k = clhist_lane; k < ${bank}; k += ${group}) {
        clhist_keys[k] = 0xffffffffu;
        clhist_own[k] = 0;
    }
    if (clhist_lane == 0)
        clhist_again = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    bool clhist_holds = true;
% for k in range(COUNTED_TILE):
    uint clhist_bin_${k} = 0xffffffffu, clhist_rank_${k} = 0, clhist_cell_${k} = ${bank};
    {
        const uint i = clhist_start + ${k * group};
        if (i < clhist_elements)
            clhist_bin_${k} = CLHIST_BIN(${text.index});
    }
% endfor
% for k in range(COUNTED_TILE):
    if (clhist_bin_${k} < clhist_row_bins) {
        const uint cell = clhist_bin_${k} * 2654435761u >> 22;
        if (clhist_holds) {
            uint key = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_keys + cell);
            if (key == 0xffffffffu)
                key = atomic_cmpxchg(clhist_keys + cell, 0xffffffffu, clhist_bin_${k});
            if (key == 0xffffffffu || key == clhist_bin_${k}) {
                clhist_cell_${k} = cell;
                clhist_rank_${k} = atomic_inc(clhist_own + cell);
% if k == 0:
                if (clhist_rank_${k} == 1)
                    atomic_inc(&clhist_again);
                else if (clhist_rank_${k} > 1)
                    atomic_max(&clhist_again, ${group});
% endif
            }
        }
        if (clhist_cell_${k} == ${bank})
            clhist_rank_${k} = atomic_inc(&CLHIST_ROWS_COUNT(clhist_bin_${k}));
    }
% if k == 0:
    barrier(CLK_LOCAL_MEM_FENCE);
    clhist_holds = clhist_again >= ${max(1, group // 8)};
% endif
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = clhist_lane; k < ${bank}; k += ${group})
        if (clhist_own[k])
            clhist_own[k] = atomic_add(&CLHIST_ROWS_COUNT(clhist_keys[k]), clhist_own[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
% for k in range(COUNTED_TILE):
    if (clhist_bin_${k} < clhist_row_bins)
        clhist_ranks[clhist_start + ${k * group}] = clhist_rank_${k} + (clhist_cell_${k} < ${bank} ? clhist_own[clhist_cell_${k}] : 0);
% endfor
}

// Puts the number of each row where its bin has room for it.
${begin("place")}
${types.arrays(sweep)}\
    const uint i = get_global_id(0);
    if (i < clhist_elements) {
        const uint bin = CLHIST_BIN(${text.index});
        if (bin < clhist_row_bins)
            clhist_ids[clhist_begins[bin] + clhist_ranks[i]] = i;
    }
}
</%def>

## Inclusive sums of a local array of `size` words, one for each work-item.
<%def name="scan(name, size)">
<% span = 1 %>\
% while span < size:
    {
        const uint before = clhist_lane >= ${span} ? ${name}[clhist_lane - ${span}] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        ${name}[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
<% span *= 2 %>\
% endwhile
</%def>
