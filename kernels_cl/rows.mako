## Rows of D values, combined by bin (embedding gradients, graph layers).
##
##   GPU   rows_placed.mako counts the rows of each bin and places their numbers:
##           clhist_ids   | rows of bin 0 | rows of bin 1 | ..          (CSR)
##         `gather`: some lanes gather the rows of a bin, combine them in registers, write the result once
##           lanes of a bin   | v components | v components | ..  x  work-items that share the rows
##         `join`: combines the pieces of bins that have very many rows
##         rows_at_once.mako instead: adds rows by atomics, for few rows
##   CPU   rows_added.mako: each work-item adds rows to its own bins
##
## Plan: RowsPlan (clhist/_core/model/rows.py). Decision 0018. SC'20, section IV-D combines components as bins
## instead.
<%namespace name="types" file="types.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%namespace name="bounds" file="rows_bounds.mako"/>
<%!
    from clhist._core.kernels.state import wrapped
    from clhist.operators.doubles import functions_of_doubles
%>\
<%
    sweep, output, text = spec.sweep, spec.sweep.outputs[0], spec.text
    operator, group, d = output.operator, spec.sweep.work_group_size, spec.text.rows.components
    v, lanes, sharers, declared_types = spec.vector, spec.lanes, spec.sharers, {}
    total_t = "clhist_doubles_t" if spec.in_doubles else "accumulator_t"
    no_total = "0" if spec.in_doubles else "clhist_neutral()"
%>
// Rows of ${d} components, gathered by bin: ${"each work-item has bins of its own" if sweep.order == "blocked" else f"{lanes} lanes a bin, {v} components each"}.
${types.prologue(sweep, preamble_of, declared_types)}
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
% if operator.by_count:
#define CLHIST_FINISHED(total) clhist_finished(total, clhist_count)
value_t clhist_finished(const accumulator_t ${"a" if operator.finish == "a" else "total"}, const uint n)
{
% if operator.finish != "a":
    const value_t a = clhist_finish(total);
% endif
    return ${operator.by_count};
}
% endif
#define CLHIST_ROW_VALUE(element) (${text.value})
% if text.of_row:
#define CLHIST_VALUE_OF_ROW(row, component) (${text.of_row})
% endif
% if spec.in_doubles:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
${functions_of_doubles(operator)}
<%include file="rows_again.mako"/>
% endif
% if sweep.order == "blocked" and spec.is_sorted:
<%include file="rows_ordered.mako"/>
% elif sweep.order == "blocked":
${types.ahead()}
<%include file="rows_added.mako"/>
% else:
% if spec.atomic:
<%include file="rows_at_once.mako"/>
% else:
${gathering()}
% endif
% endif

<%def name="gathering()">
% if spec.is_sorted:
<%include file="rows_bounds.mako"/>
% else:
<%include file="rows_placed.mako"/>
% endif
// Combines the rows of each bin, or of a piece of one: ${lanes} lanes have ${v} components each${f", and {sharers} work-items share the rows" if sharers > 1 else ""}. Pieces come first.
${kernel.begin("gather", group)}
${types.arrays(sweep)}\
${kernel.results()}\
    const uint clhist_lane = get_local_id(0) % ${lanes}, clhist_row = get_local_id(0) / ${lanes} % ${sharers};
    const uint clhist_slot = get_local_id(0) / ${lanes * sharers};
    const uint clhist_groups = (clhist_slots + ${spec.slots - 1}) / ${spec.slots}, clhist_group = get_group_id(0);
    const bool is_piece = clhist_group < clhist_groups;
    const uint at = (is_piece ? clhist_group : clhist_group - clhist_groups) * ${spec.slots} + clhist_slot;
    bool is_there = clhist_slot < ${spec.slots} && at < (is_piece ? ${"clhist_slots" if spec.is_sorted else "clhist_cursors[1]"} : clhist_row_bins);
    uint begin = 0, end = 0;
    if (is_there && is_piece) {
% if spec.is_sorted:
${bounds.piece()}\
% else:
        begin = clhist_pieces[at].x;
        end = clhist_pieces[at].y;
% endif
    } else if (is_there) {
        begin = CLHIST_ROWS_BEGIN(at);
        end = CLHIST_ROWS_COUNT(at);
        is_there = end <= clhist_piece;
        end += begin;
    }
% if sharers > 1:
    __local ${total_t} clhist_totals[${group * v}];
% else:
    if (!is_there)
        return;
% endif
    for (uint base = 0; base < ${d}; base += ${lanes * v}) {
        const uint clhist_c = base + clhist_lane * ${v};
        const bool takes_part = is_there && clhist_c < ${d};
% for c in range(v):
        ${total_t} total_${c} = ${no_total};
% endfor
        uint k = begin + clhist_row;
        if (takes_part && k < end) {
            // Those beyond a multiple of ${loads} first: most bins have few rows, which are loaded at once.
            const uint clhist_more = (end - k - 1) / ${sharers} % ${loads};
${batch([f"k + min({u}u, clhist_more) * {sharers}" if u else "k" for u in range(loads)], is_first=True)}
            for (k += (clhist_more + 1) * ${sharers}; k < end; k += ${loads * sharers}) {
${batch([f"k + {u * sharers}" for u in range(loads)])}
            }
        }
% if sharers > 1:
${tree(sharers, "clhist_row", "clhist_doubles_join" if spec.in_doubles else "clhist_combine", total_t)}
% endif
        const ulong to = (ulong)at * ${d} + clhist_c;
        if (takes_part${" && clhist_row == 0" if sharers > 1 else ""}) {
% if spec.in_doubles:
            bool is_exact = true;
            if (is_piece) {
% for c in range(v):
                CLHIST_DOUBLES_OF_PIECES[to + ${c}] = total_${c};
                is_exact &= clhist_doubles_are_numbers(total_${c});
% endfor
            } else {
% for c in range(v):
                if (clhist_has_dest)
                    total_${c} = clhist_doubles_add(total_${c}, clhist_double_of(dest[to + ${c}]));
                is_exact &= clhist_doubles_are_exact(total_${c});
% endfor
                if (is_exact) {
${write("                    ", "clhist_doubles_rounded")}\
                }
            }
            if (!is_exact) {
                const ulong mark = ((is_piece ? 0 : clhist_slots) + (ulong)at) * ${d // v} + clhist_c / ${v};
                atomic_or(clhist_counts + clhist_marks_place + mark / 32, 1u << mark % 32);
            }
% else:
            if (is_piece) {
% for c in range(v):
                clhist_held[to + ${c}] = total_${c};
% endfor
            } else {
% if operator.by_count:
                const uint clhist_count = end - begin;
% endif
${store("                ", "", "", "")}\
            }
% endif
        }
% if sharers > 1:
        barrier(CLK_LOCAL_MEM_FENCE);  // before the next totals
% endif
    }
}

% if spec.in_doubles:
// Adds up again, in long integers, the vectors of bins and pieces that are marked.
${kernel.begin("again", group)}
${types.arrays(sweep)}\
${kernel.results()}\
    const uint k = get_global_id(0);
    for (uint marks = k < clhist_marked ? clhist_counts[clhist_marks_place + k / 4] >> k % 4 * 8 & 255 : 0; marks > 0; marks &= marks - 1) {
        const ulong mark = (ulong)k * 8 + (31 - clz(marks & -marks)), of = mark / ${d // v};
        const bool is_piece = of < clhist_slots;
        const uint at = (uint)(is_piece ? of : of - clhist_slots), first = (uint)(mark % ${d // v}) * ${v};
% if spec.is_sorted:
        bool is_there = true;
        uint begin = 0, end = 0;
        if (is_piece) {
${bounds.piece()}\
        } else {
            begin = CLHIST_ROWS_BEGIN(at);
            end = CLHIST_ROWS_BEGIN(at + 1);
        }
% else:
        const uint begin = is_piece ? clhist_pieces[at].x : CLHIST_ROWS_BEGIN(at);
        const uint end = is_piece ? clhist_pieces[at].y : begin + CLHIST_ROWS_COUNT(at);
% endif
        for (uint c = first; c < first + ${v}; ++c) {
            const ulong to = (ulong)at * ${d} + c;
            const value_t before = clhist_has_dest && !is_piece ? dest[to] : 0;
            clhist_sum_again(${", ".join(a.name for a in sweep.arguments)}, ${"0" if spec.is_sorted else "clhist_ids"}, begin, end, c, before,
                is_piece ? CLHIST_DIGITS_OF_PIECES + to : 0, out + to);
        }
    }
}
% endif

<%
    rows, joined_t, joining, joined = spec.joined, "accumulator_t", "clhist_combine", "clhist_combine"
    if spec.in_doubles:
        joined_t, joining, joined = "clhist_pair_t", "clhist_pair_with", "clhist_pair_join"
%>\
// Joins the pieces of a bin: ${rows} rows of a work-group take them in turn.
${kernel.begin("join", group)}
${types.arrays(sweep) if spec.is_sorted else ""}\
${kernel.results()}\
    __local ${joined_t} clhist_totals[${rows * lanes * v}];
% if spec.is_sorted:
${bounds.shared()}\
% else:
    for (uint clhist_shared = get_group_id(0); clhist_shared < clhist_cursors[2]; clhist_shared += get_num_groups(0)) {
        const uint4 shared = clhist_pieces[clhist_slots + clhist_shared];
        const uint at = shared.x, clhist_row = get_local_id(0) / ${lanes};
% endif
        for (uint base = 0; base < ${d}; base += ${lanes * v}) {
            const uint clhist_c = base + get_local_id(0) % ${lanes} * ${v};
            const bool takes_part = clhist_row < ${rows} && clhist_c < ${d};
% for c in range(v):
            ${joined_t} total_${c} = ${no_total};
% endfor
            if (takes_part) {
                for (uint k = clhist_row; k < ${"clhist_parts" if spec.is_sorted else "shared.z"}; k += ${rows}) {
                    const ulong from = (ulong)(${"CLHIST_PLACE_OF_PIECE(clhist_first, k)" if spec.is_sorted else "shared.y + k"}) * ${d} + clhist_c;
% for c in range(v):
                    total_${c} = ${joining}(total_${c}, ${"CLHIST_DOUBLES_OF_PIECES" if spec.in_doubles else "clhist_held"}[from + ${c}]);
% endfor
                }
            }
% if rows > 1:
${tree(rows, "clhist_row", joined, joined_t)}
% endif
            const ulong to = (ulong)at * ${d} + clhist_c;
            if (clhist_row == 0 && clhist_c < ${d}) {
% if spec.in_doubles:
                uint clhist_again = 0;
                value_t ${", ".join(f"before_{c} = 0" for c in range(v))};
% endif
% if operator.by_count:
                const uint clhist_count = CLHIST_ROWS_COUNT(at);
% endif
${store("                ", "clhist_pair_add", "clhist_pair_is_exact", "clhist_pair_rounded")}
% if spec.in_doubles:
                for (uint c = 0; clhist_again >> c > 0; ++c)
                    if (clhist_again >> c & 1)
                        out[to + c] = clhist_pieces_again(
                            clhist_held, clhist_slots, ${"clhist_first, CLHIST_PLACE_OF_PIECE(clhist_first, clhist_parts)" if spec.is_sorted else "shared.y, shared.y + shared.z"}, clhist_c + c, ${one_of("before")});
% endif
            }
            // Barrier: all have read the totals before the next ones.
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
</%def>

<%!
    loads = 4
%>
## The totals of several rows of work-items in local memory, combined by halves; the first of them has that of all.
<%def name="tree(rows, row, joined, total_t)">\
        __local ${total_t} *own = clhist_totals + get_local_id(0) * ${v};
        if (${row} < ${rows}) {
% for c in range(v):
            own[${c}] = total_${c};
% endfor
        }
<% half = rows // 2 %>\
% while half:
        // Barrier: the lower half must have stored its totals.
        barrier(CLK_LOCAL_MEM_FENCE);
        if (${row} < ${half}) {
% for c in range(v):
            own[${c}] = total_${c} = ${joined}(total_${c}, own[${half * lanes * v + c}]);
% endfor
        }
<% half //= 2 %>\
% endwhile
</%def>
## The rows at some places, all loaded before the first is added. The first batch begins the totals, and may be short.
<%def name="batch(places, is_first=False)">\
% for u, place in enumerate(places):
                const ulong row_${u} = (ulong)CLHIST_ROWS_ID(${place}) * ${d} + clhist_c;
% endfor
% for u in range(len(places)):
                ${load(u)}\
% endfor
% for u in range(len(places)):
% if is_first and u:
                if (clhist_more >= ${u}) {
${add(u)}\
                }
% else:
${add(u, is_first)}\
% endif
% endfor
</%def>
<%def name="load(u)">\
% if v > 1:
const ${element_name(operator.dtype)}${v} loaded_${u} = *(__global const ${element_name(operator.dtype)}${v} *)(${text.loads} + row_${u});
% else:
const value_t loaded_${u} = CLHIST_ROW_VALUE(row_${u});
% endif
</%def>
<%def name="add(u, is_first=False)">\
% for c in range(v):
<% value = loaded(f"loaded_{u}.s{c:x}", operator.dtype) if v > 1 else f"loaded_{u}" %>\
% if spec.in_doubles:
                total_${c} = clhist_doubles_${f"first(" if is_first else f"add(total_{c}, "}clhist_double_of(${value}));
% elif is_first:
                total_${c} = clhist_lift(${value});
% else:
                total_${c} = clhist_combine(total_${c}, clhist_lift(${value}));
% endif
% endfor
</%def>
<%def name="store(space, adding, is_exact, rounded)">\
% for c in range(v):
% if spec.in_doubles:
${space}if (clhist_has_dest) {
${space}    before_${c} = dest[to + ${c}];
${space}    total_${c} = ${adding}(total_${c}, clhist_double_of(before_${c}));
${space}}
${space}clhist_again |= !${is_exact}(total_${c}) << ${c};
% else:
${space}total_${c} = clhist_combine(clhist_has_dest ? clhist_lift(${loaded(f"dest[to + {c}]", operator.dtype)}) : clhist_neutral(), total_${c});
% endif
% endfor
${write(space, rounded)}\
</%def>
<%def name="write(space, rounded)">\
<% finished = (rounded if spec.in_doubles else "CLHIST_FINISHED" if operator.by_count else "clhist_finish") + "(total_%d)" %>\
% if v > 1:
${space}*(__global ${element_name(operator.dtype)}${v} *)(out + to) = (${element_name(operator.dtype)}${v})(${", ".join(stored(finished % c, operator.dtype) for c in range(v))});
% else:
${space}out[to] = ${stored(finished % 0, operator.dtype)};
% endif
</%def>

<%def name="one_of(name)">${" : ".join([*(f"c == {c} ? {name}_{c}" for c in range(v - 1)), f"{name}_{v - 1}"])}</%def>
