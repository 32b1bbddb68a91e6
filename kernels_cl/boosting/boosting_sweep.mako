## The sums of the bins of some features, for ``boosting.mako``, whose types and macros it uses. One 64-bit
## addition updates all sums of a cell:
##
##   packed   | gradients: 24 bits | hessians: 24 bits | rows: 16 bits |
##   else     | last of the sums: 48 bits              | rows: 16 bits |   with hessians, gradients have another cell
##
## No sum needs more bits than it has: see `has_room`. Decision 0022.
<%namespace name="types" file="types.mako"/>
<%
    names = ("gradient", "hessian") if hessians else ("gradient",)
    last = names[-1]
    arrays = [f"__global const {of} *{name}s" for name, of in zip(names, values)] if whole else ["__global const int *values"]
    largest_sums = {"packed": "max(gradients, hessians)", "narrow": "gradients"}
    proofs = {layout: f"{of} < 1u << {sum_bits[layout]}" for layout, of in largest_sums.items()}
    more = ", __global const uint *largest, const uint most_rows" if whole else ""
%>\
## What row i adds.
<%def name="load(layout)">
% for n, name in enumerate(names):
            const int ${name} = ${f"(int){name}s[i]" if whole else f"values[{len(names)} * i + {n}]"};
% endfor
            const long add = ${"((long)gradient << 40) + " if layout == "packed" else ""}((long)${last} << 16) + 1;
</%def>
## Adds cell k to the sums: what is in 64 bits of it, `cell`, and its gradients, if they are apart.
<%def name="store(layout, gradients, is_first)">
            clhist_put(to, k, cell & 65535, is_alone, ${is_first});
% if layout == "packed":
            const long hessian = cell << 24 >> 40;
            clhist_put(to, plane + k, ((cell >> 16) - hessian) >> 24, is_alone, ${is_first});
            clhist_put(to, 2 * plane + k, hessian, is_alone, ${is_first});
% else:
% if hessians:
            clhist_put(to, plane + k, ${gradients}, is_alone, ${is_first});
% endif
            clhist_put(to, ${len(names)} * plane + k, cell >> 16, is_alone, ${is_first});
% endif
</%def>
// Writes a part of a sum or, if it is not the first one, adds it, to those of other work-groups if this one is not alone.
void clhist_put(__global long *sums, const ulong cell, const long value, const bool alone, const bool first)
{
    if (alone && first) sums[cell] = value;
    else if (alone) sums[cell] += value;
    else if (value) clhist_add((volatile __global uint *)(sums + cell), (ulong)value);
}
% if len(sweeps) > 1:

// The first of the layouts that has room for the sums of so many rows.
uint clhist_layout(__global const uint *largest, const ulong rows)
{
    const ulong gradients = largest[0] * rows, hessians = largest[${len(names) - 1}] * rows;
    return ${" : ".join(f"{proofs[layout]} ? {n}" for n, (layout, _) in enumerate(sweeps[:-1]))} : ${len(sweeps) - 1};
}
% endif
% if lanes == 1:

${types.ahead()}\
#define AHEAD 16  // rows of a node are apart, so that nothing but this fetches them in time
% else:

// Adds 64 bits to two words in local memory. The lower one begins in the middle, so that sums near 0 do not carry.
void clhist_add_local(__local uint *low, __local uint *high, const long value)
{
    const uint part = (uint)value, more = (uint)(value >> 32) + (atomic_add(low, part) + part < part);
    if (more) atomic_add(high, more);
}
#define MIDDLE 0x80000000u
% endif
% for n, (layout, features) in enumerate(sweeps):

<%
    cells = features * bins
    is_apart = hessians and layout != "packed"
    cell, added = ("long2", "((long2)(gradient, add))") if is_apart else ("long", "add")
%>
// The sums of the bins of some features: of a work-item, which has cells of its own, or of a work-group, in local memory.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void clhist_sweep_${layout}(
    __global const uint *by_row, ${", ".join(arrays)}, __global const uint *rows_even, __global const uint *rows_odd,
    __global const clhist_rows_t *nodes, const uint number, __global long *sums, const uint features${more})
{
% if lanes == 1:
    __local ${cell} cells[${cells}];
% elif not is_apart:
    __local uint low[${cells}], high[${cells}];
% elif layout == "narrow":
    __local uint low[${cells}], high[${cells}], gradients_low[${cells}];
% else:
    __local uint low[${cells}], high[${cells}], gradients_low[${cells}], gradients_high[${cells}];
% endif
% if len(sweeps) > 1 and lanes == 1:
    if (largest && clhist_layout(largest, most_rows) != ${n}) return;
% endif
    clhist_rows_t own;
    clhist_node(nodes, number, &own);
% if len(sweeps) > 1 and lanes > 1:
    // Of another layout nothing is left to do. No return: PoCL 3 loses loops before the barriers behind one.
    const uint cells = largest && clhist_layout(largest, most_rows) != ${n} ? 0 : ${cells};
    own.end = cells ? own.end : own.begin;
% endif
    const bool is_alone = own.groups == 1;
    const uint lane = get_local_id(0), first = get_group_id(1) * ${features // 4}, parts = min(${features // 4}u, WORDS - first);
    const uint used = min(${"cells" if len(sweeps) > 1 and lanes > 1 else f"{cells}u"}, (features - first * 4) * BINS);
    __global const uint *rows = own.odd ? rows_odd : rows_even;
    __global long *to = sums + own.slot * SUMS * features * BINS + (ulong)first * 4 * BINS;
    const ulong plane = (ulong)features * BINS;
% if lanes == 1:
    for (ulong begin = own.begin; begin < own.end || begin == own.begin; begin += ${most_rows}) {
        const ulong end = min(own.end, begin + ${most_rows});
        for (uint k = 0; k < ${cells}; ++k) cells[k] = 0;
        for (ulong k = begin; k < end; ++k) {
            const ulong i = rows_even ? rows[k] : k;
${load(layout)}\
            const ulong ahead = rows_even ? rows[min(k + AHEAD, end - 1)] : min(k + AHEAD, end - 1);
            CLHIST_AHEAD(by_row + ahead * WORDS + first);
% for array in arrays:
            CLHIST_AHEAD(${array.split("*")[1]} + ${1 if whole else len(names)} * ahead);
% endfor
            __global const uint *row = by_row + i * WORDS + first;
            for (uint w = 0; w < parts; ++w) {
                const uint word = row[w];
                __local ${cell} *of = cells + w * 4 * BINS;
                of[word & 255] += ${added};
                of[BINS + (word >> 8 & 255)] += ${added};
                of[2 * BINS + (word >> 16 & 255)] += ${added};
                of[3 * BINS + (word >> 24)] += ${added};
            }
        }
        const bool is_first = begin == own.begin;
        for (uint k = 0; k < used; ++k) {
            const long cell = cells[k]${".y" if is_apart else ""};
${store(layout, "cells[k].x", "is_first")}\
        }
    }
% else:
    for (uint k = lane; k < ${"cells" if len(sweeps) > 1 else cells}; k += LANES) {
        low[k] = MIDDLE;
        high[k] = 0;
% if is_apart:
        gradients_low[k] = ${0 if layout == "narrow" else "MIDDLE"};
% if layout == "wide":
        gradients_high[k] = 0;
% endif
% endif
    }
    // Barrier: the cells are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (ulong k = own.begin + lane; k < own.end; k += LANES) {
        const ulong i = rows_even ? rows[k] : k;
${load(layout)}\
        __global const uint *row = by_row + i * WORDS + first;
        for (uint w = 0; w < parts; ++w) {
            const uint word = row[w];
            for (uint b = 0; b < 4; ++b) {
                const uint cell = (w * 4 + b) * BINS + (word >> 8 * b & 255);
                clhist_add_local(low + cell, high + cell, add);
% if is_apart and layout == "narrow":
                atomic_add(gradients_low + cell, (uint)gradient);
% elif is_apart:
                clhist_add_local(gradients_low + cell, gradients_high + cell, gradient);
% endif
            }
        }
    }
    // Barrier: all rows have been added.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = lane; k < used; k += LANES) {
        const long cell = (long)((ulong)high[k] << 32 | low[k]) - MIDDLE;
% if is_apart and layout == "wide":
        const long gradient = (long)((ulong)gradients_high[k] << 32 | gradients_low[k]) - MIDDLE;
% elif is_apart:
        const long gradient = (int)gradients_low[k];
% endif
${store(layout, "gradient", "true")}\
    }
% endif
}
% endfor
