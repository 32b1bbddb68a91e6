## Rows of values, combined by bin. On a GPU the rows of each bin are counted and their numbers placed bin after bin;
## then some lanes gather the rows of a bin, combine them in registers and write its result
## once. The rows of a bin that has very many are shared out in pieces. On a CPU each work-item adds rows to bins of its own.
<%namespace name="types" file="types.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%!
    from clhist.codegen.state import wrapped
    from clhist.operators.doubles import functions_of_doubles
    from clhist.planning.rows import COUNTED_TILE, FEW_ELEMENTS, LEAST_PIECE, LOOKED_AT, LOOKED_CELLS, SCANNED_BINS
%>\
<%
    sweep, output, text = spec.sweep, spec.sweep.outputs[0], spec.text
    operator, group, d = output.operator, spec.sweep.work_group_size, spec.text.rows.components
    v, lanes, known = spec.vector, spec.lanes, {}
    no_total = "0" if spec.in_doubles else "clhist_neutral()"
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
% if spec.in_doubles:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
${functions_of_doubles(operator)}
${again()}
% endif
% if sweep.order == "blocked":
${types.ahead()}
<%include file="rows_added.mako"/>
% else:
% if spec.atomic:
${adding()}
% endif
${gathering()}
% endif

## Where the device has atomics of several numbers, and no bin has very many rows.
<%def name="adding()">
// Looks at the bins of some rows, and raises the flag if many are of the same one.
${kernel.begin("look", group)}
${types.arrays(sweep)}\
    __local uint clhist_seen[${LOOKED_CELLS}], clhist_most;
    const uint clhist_lane = get_local_id(0);
    for (uint k = clhist_lane; k < ${LOOKED_CELLS}; k += ${group})
        clhist_seen[k] = 0;
    if (clhist_lane == 0)
        clhist_most = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = clhist_lane; k < ${LOOKED_AT}; k += ${group}) {
        const uint i = (uint)((ulong)clhist_elements * k / ${LOOKED_AT}), bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            atomic_max(&clhist_most, atomic_inc(clhist_seen + bin % ${LOOKED_CELLS}) + 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clhist_lane == 0)
        *clhist_flag = clhist_most > clhist_most_alike;
}

// Begins the results: with what dest has, or with zeros.
${kernel.begin("start", group)}
${kernel.results()}\
    const uint clhist_numbers = clhist_row_bins * ${d // spec.atomic.numbers}, k = get_global_id(0);
    if (k < clhist_numbers && !(clhist_has_dest && dest == out))
        ((__global ${spec.atomic.word} *)out)[k] = clhist_has_dest ? ((__global const ${spec.atomic.word} *)dest)[k] : 0;
}

void clhist_add_numbers(__global ${spec.atomic.word} *to, const ${spec.atomic.word} v)
{
    volatile __global ${spec.atomic.word} *p = (volatile __global ${spec.atomic.word} *)to;
    ${spec.atomic.code}
}

// Adds ${spec.atomic.numbers} numbers of a row at once.
${kernel.begin("add", group)}
${types.arrays(sweep)}\
${kernel.results()}\
    // There may be more of them than numbers of 32 bits, which is what some drivers make of get_global_id.
    const ulong clhist_k = (ulong)get_group_id(0) * ${group} + get_local_id(0);
    const uint i = (uint)(clhist_k / ${d // spec.atomic.numbers});
    if (i < clhist_elements) {
        const uint bin = CLHIST_BIN(${text.bin}), part = (uint)(clhist_k - (ulong)i * ${d // spec.atomic.numbers});
        if (bin < clhist_row_bins)
            clhist_add_numbers((__global ${spec.atomic.word} *)out + (ulong)bin * ${d // spec.atomic.numbers} + part,
                ((__global const ${spec.atomic.word} *)${text.loads})[clhist_k]);
    }
}
</%def>

<%def name="gathering()">
// Sets the numbers of rows of all bins, and those of the call, to 0.
${kernel.begin("clear", group)}
    for (uint k = get_global_id(0); k < clhist_words; k += get_global_size(0))
        clhist_counts[k] = 0;
}
// The first words are those of the call.
#define CLHIST_ROWS_BEGIN(bin) clhist_begins[bin]
#define CLHIST_ROWS_COUNT(bin) clhist_counts[(bin) + 4]
#define CLHIST_ROWS_ID(k) clhist_ids[k]

% if not spec.few_bins:
${counting()}
% endif
% if spec.few_bins:
${few()}
% endif

// Gives each bin room for its rows, wherever there is some, and shares out the rows of those with very many.
${kernel.begin("begin", group)}
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
    __local uint clhist_ends[${group}], clhist_base;
    const uint clhist_own = ${" + ".join(f"clhist_count_{k}" for k in range(SCANNED_BINS))};
    clhist_ends[clhist_lane] = clhist_own;
    barrier(CLK_LOCAL_MEM_FENCE);
${scan("clhist_ends", group)}
    if (clhist_lane == ${group - 1})
        clhist_base = atomic_add(clhist_cursors, clhist_ends[clhist_lane]);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_at = clhist_base + clhist_ends[clhist_lane] - clhist_own;
% for k in range(SCANNED_BINS):
    if (clhist_bin + ${k * group} < clhist_row_bins) {
        clhist_begins[clhist_bin + ${k * group}] = clhist_at;
        clhist_at += clhist_count_${k};
        if (clhist_count_${k} > clhist_piece)
            clhist_long[atomic_inc(&clhist_number)] = clhist_bin + ${k * group};
    }
% endfor
${share(group)}
}

// Combines the rows of each bin, or of a piece of one: ${lanes} lanes have ${v} components each. Pieces come first.
${kernel.begin("gather", group)}
${types.arrays(sweep)}\
${kernel.results()}\
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
        ${"clhist_doubles_t" if spec.in_doubles else "accumulator_t"} total_${c} = ${no_total};
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
% if spec.in_doubles:
        uint clhist_again = 0;
        value_t ${", ".join(f"before_{c} = 0" for c in range(v))};
        if (is_piece) {
% for c in range(v):
            CLHIST_DOUBLES_OF_PIECES[to + ${c}] = total_${c};
            clhist_again |= !clhist_doubles_are_numbers(total_${c}) << ${c};
% endfor
        } else {
${store("            ", "clhist_doubles_add", "clhist_doubles_are_exact", "clhist_doubles_rounded")}
        }
        for (uint c = 0; clhist_again >> c > 0; ++c)
            if (clhist_again >> c & 1)
                clhist_rows_again(${", ".join(a.name for a in sweep.arguments)}, clhist_ids, begin, end, clhist_c + c,
                    ${one_of("before")}, is_piece ? CLHIST_DIGITS_OF_PIECES + to + c : 0, out + to + c);
% else:
        if (is_piece) {
% for c in range(v):
            clhist_held[to + ${c}] = total_${c};
% endfor
        } else {
${store("            ", "clhist_doubles_add", "clhist_doubles_are_exact", "clhist_doubles_rounded")}
        }
% endif
    }
}

<%
    rows, total_t, joining, joined = spec.joined, "accumulator_t", "clhist_combine", "clhist_combine"
    if spec.in_doubles:
        total_t, joining, joined = "clhist_pair_t", "clhist_pair_with", "clhist_pair_join"
%>\
// Joins the pieces of a bin: ${rows} rows of a work-group take them in turn.
${kernel.begin("join", group)}
${kernel.results()}\
    __local ${total_t} clhist_totals[${rows * lanes * v}];
    if (get_group_id(0) >= clhist_cursors[2])
        return;
    const uint4 shared = clhist_pieces[clhist_slots + get_group_id(0)];
    const uint at = shared.x, clhist_row = get_local_id(0) / ${lanes};
    for (uint base = 0; base < ${d}; base += ${lanes * v}) {
        const uint clhist_c = base + get_local_id(0) % ${lanes} * ${v};
        const bool takes_part = clhist_row < ${rows} && clhist_c < ${d};
% for c in range(v):
        ${total_t} total_${c} = ${no_total};
% endfor
        if (takes_part) {
            for (uint k = clhist_row; k < shared.z; k += ${rows}) {
                const ulong from = (ulong)(shared.y + k) * ${d} + clhist_c;
% for c in range(v):
                total_${c} = ${joining}(total_${c}, ${"CLHIST_DOUBLES_OF_PIECES" if spec.in_doubles else "clhist_held"}[from + ${c}]);
% endfor
            }
        }
% if rows > 1:
        __local ${total_t} *own = clhist_totals + get_local_id(0) * ${v};
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
            own[${c}] = ${joined}(own[${c}], own[${half * lanes * v + c}]);
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
% if spec.in_doubles:
            uint clhist_again = 0;
            value_t ${", ".join(f"before_{c} = 0" for c in range(v))};
% endif
${store("            ", "clhist_pair_add", "clhist_pair_is_exact", "clhist_pair_rounded")}
% if spec.in_doubles:
            for (uint c = 0; clhist_again >> c > 0; ++c)
                if (clhist_again >> c & 1)
                    out[to + c] = clhist_pieces_again(
                        clhist_held, clhist_slots, shared.y, shared.y + shared.z, clhist_c + c, ${one_of("before")});
% endif
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
const ${element_name(operator.dtype)}${v} loaded_${u} = *(__global const ${element_name(operator.dtype)}${v} *)(${text.loads} + row_${u});
% else:
const value_t loaded_${u} = CLHIST_ROW_VALUE(row_${u});
% endif
</%def>
<%def name="add(u)">\
% for c in range(v):
<% value = loaded(f"loaded_{u}.s{c:x}", operator.dtype) if v > 1 else f"loaded_{u}" %>\
% if spec.in_doubles:
            total_${c} = clhist_doubles_add(total_${c}, clhist_double_of(${value}));
% else:
            total_${c} = clhist_combine(total_${c}, clhist_lift(${value}));
% endif
% endfor
</%def>
<%def name="store(space, adding, is_exact, rounded)">\
<% finished = (rounded if spec.in_doubles else "clhist_finish") + "(total_%d)" %>\
% for c in range(v):
% if spec.in_doubles:
${space}before_${c} = clhist_has_dest ? dest[to + ${c}] : 0;
${space}total_${c} = ${adding}(total_${c}, clhist_double_of(before_${c}));
${space}clhist_again |= !${is_exact}(total_${c}) << ${c};
% else:
${space}total_${c} = clhist_combine(clhist_has_dest ? clhist_lift(${loaded(f"dest[to + {c}]", operator.dtype)}) : clhist_neutral(), total_${c});
% endif
% endfor
% if v > 1:
${space}*(__global ${element_name(operator.dtype)}${v} *)(out + to) = (${element_name(operator.dtype)}${v})(${", ".join(stored(finished % c, operator.dtype) for c in range(v))});
% else:
${space}out[to] = ${stored(finished % 0, operator.dtype)};
% endif
</%def>

<%def name="again()">
<% term = lambda value: operator.parts[0].term.replace("(v)", f"({value})") %>\
// Pieces have doubles, and behind those of all pieces digits, where the doubles are NaN.
#define CLHIST_DOUBLES_OF_PIECES ((__global clhist_doubles_t *)clhist_held)
#define CLHIST_DIGITS_OF_PIECES ((__global accumulator_t *)(CLHIST_DOUBLES_OF_PIECES + (ulong)clhist_slots * ${d}))

// Adds up rows in long integers. A function, whose registers nobody else has to have.
__attribute__((noinline)) void clhist_rows_again(
${wrapped([*(a.parameter for a in sweep.arguments), "__global const uint *clhist_ids", "uint k", "const uint end",
    "const uint clhist_c", "const value_t before", "__global accumulator_t *digits", "__global value_t *to"])})
{
    accumulator_t total = clhist_neutral();
    clhist_digits_add(&total, ${term("before")});
    for (; k < end; ++k)
        clhist_digits_add(&total, ${term(f"CLHIST_ROW_VALUE((ulong)clhist_ids[k] * {d} + clhist_c)")});
    if (digits)
        *digits = total;
    else
        *to = clhist_finish(total);
}

// The same of pieces.
__attribute__((noinline)) value_t clhist_pieces_again(
${wrapped(["__global accumulator_t *clhist_held", "const uint clhist_slots", "uint k", "const uint end", "const uint clhist_c",
    "const value_t before"])})
{
    accumulator_t total = clhist_neutral();
    clhist_digits_add(&total, ${term("before")});
    for (; k < end; ++k) {
        const ulong from = (ulong)k * ${d} + clhist_c;
        const clhist_doubles_t held = CLHIST_DOUBLES_OF_PIECES[from];
        if (clhist_doubles_are_numbers(held))
            clhist_digits_add_doubles(&total, held);
        else
            clhist_digits_join(&total, CLHIST_DIGITS_OF_PIECES + from);
    }
    return clhist_finish(total);
}
</%def>

<%def name="one_of(name)">${" : ".join([*(f"c == {c} ? {name}_{c}" for c in range(v - 1)), f"{name}_{v - 1}"])}</%def>

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
${kernel.begin("few", size)}
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
        const uint bin = CLHIST_BIN(${text.bin});
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
        const uint bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            clhist_ids[atomic_inc(clhist_own + bin)] = i;
    }
}
</%def>

## A bin that many elements of a tile have is counted in local memory first: elements of one bin wait for each other.
<%def name="counting()">
// Counts the rows of each bin, and gives each row its number among them. A work-group looks at its first elements: if
// many are of the same bins, it counts in local memory as far as that has room, and each bin there once for all.
${kernel.begin("count", group)}
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
            clhist_bin_${k} = CLHIST_BIN(${text.bin});
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
${kernel.begin("place", group)}
${types.arrays(sweep)}\
    const uint i = get_global_id(0);
    if (i < clhist_elements) {
        const uint bin = CLHIST_BIN(${text.bin});
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
