## Rows on a CPU: P parts of the elements, each with a copy of all bins, and ranges of bins for the work-items
## of a part.
##
##                 bins  | range 0 | range 1 | ..
##   part 0 (copy 0)     | item 0  | item 1  | ..     each item reads all rows of its part and adds those in its range
##   part 1 (copy 1)     | item n  | item n+1| ..
##
## A work-item finds its rows in blocks of 128 without a branch, and then adds them. One that has all bins
## adds each row at once. `join` combines the copies.
##
## Part of rows.mako. Note [Rows on CPUs], docs/decisions/0018.
<%namespace name="types" file="types.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%!
    BYTES_AHEAD = 8192  # that values are asked for
%>\
<%
    from clhist._core.kernels.combine_code import dest_or_neutral, has_bytes
    sweep, text = spec.sweep, spec.text
    group, d, v = sweep.work_group_size, text.rows.components, spec.vector
    operator = sweep.outputs[0].operator
%>\
<%def name="value(component)">${f"CLHIST_VALUE_OF_ROW(clhist_row, {component})" if text.of_row else f"CLHIST_ROW_VALUE(clhist_row * {d} + {component})"}</%def>\
// Adds a row to the accumulators of its bin. A function, so that no array is taken to be another.
void clhist_add_row(${", ".join(["__global accumulator_t *restrict to", "const ulong clhist_row", *(a.parameter for a in sweep.arguments)])})
{
    uint clhist_c = 0;
% if v > 1:
    // These are vectors already. Compilers that look for others here make them of every ${v}-th component, ten times as slow.
#ifdef __x86_64__
    #pragma clang loop vectorize(disable)
#else
    #pragma nounroll
#endif
    for (; clhist_c + ${v} <= ${d}; clhist_c += ${v}) {
        // All loads before the first store, for vectors.
% for c in range(v):
        const accumulator_t clhist_sum_${c} = clhist_combine(to[clhist_c + ${c}], clhist_lift(${value(f"clhist_c + {c}")}));
% endfor
% for c in range(v):
        to[clhist_c + ${c}] = clhist_sum_${c};
% endfor
    }
% endif
    for (; clhist_c < ${d}; ++clhist_c)
        to[clhist_c] = clhist_combine(to[clhist_c], clhist_lift(${value("clhist_c")}));
}

#define CLHIST_ROW_BIN(i) CLHIST_BIN(${text.bin})
<%def name="add(bin, row)">clhist_add_row(${", ".join([f"clhist_to + (ulong)({bin}) * {d}", row, *(a.name for a in sweep.arguments)])})</%def>\
## Asks for a bin that is wanted soon, and for what lies behind a row, since hardware prefetches to the end of a page.
<%def name="ask_ahead(space, bin, row)">\
${space}__global const char *ahead = (__global const char *)(clhist_to + (ulong)(${bin}) * ${d});
% for line in range(0, min(d * operator.accumulator.itemsize, 256), 64):
${space}CLHIST_AHEAD(ahead + ${line});
% endfor
% if text.loads:
% for line in range(0, min(d * operator.dtype.itemsize, 512), 64):
${space}CLHIST_AHEAD((__global const char *)(${text.loads} + (ulong)${row} * ${d}) + ${BYTES_AHEAD + line});
% endfor
% endif
</%def>\
// Each work-item has a part of the elements and a range of bins.
${kernel.begin("add", group)}
${types.arrays(sweep)}\
${kernel.results()}\
    const uint clhist_item = get_global_id(0), clhist_ranges = get_global_size(0) / clhist_parts;
    const uint clhist_part = clhist_item / clhist_ranges, clhist_range = clhist_item % clhist_ranges;
    if (clhist_part >= clhist_parts)
        return;
    const uint clhist_first = (ulong)clhist_row_bins * clhist_range / clhist_ranges;
    const uint clhist_count = (uint)((ulong)clhist_row_bins * (clhist_range + 1) / clhist_ranges) - clhist_first;
% if operator.holds_values:
    // An accumulator is a value: the first copy is where the results belong.
    __global accumulator_t *clhist_to = (ulong)clhist_first * ${d} + (clhist_part == 0
        ? (__global accumulator_t *)out : clhist_held + (ulong)(clhist_part - 1) * clhist_row_bins * ${d});
    if (clhist_part == 0 && clhist_has_dest)
        for (ulong k = 0; k < (ulong)clhist_count * ${d}; ++k)
            clhist_to[k] = clhist_combine(clhist_lift(${loaded(f"dest[(ulong)clhist_first * {d} + k]", operator.dtype)}), clhist_neutral());
    else
% else:
    __global accumulator_t *clhist_to = clhist_held + ((ulong)clhist_part * clhist_row_bins + clhist_first) * ${d};
% endif
        for (ulong k = 0; k < (ulong)clhist_count * ${d}; ++k)
            clhist_to[k] = clhist_neutral();
    const uint clhist_stop = (ulong)clhist_elements * (clhist_part + 1) / clhist_parts;
% if spec.near_bins:
    // Three numbers and one more are one vector, which is loaded, added to and stored at once.
    __local ${c_name(operator.accumulator)}4 clhist_near[${spec.near_bins}];
    for (uint bin = 0; bin < clhist_count; ++bin)
        clhist_near[bin] = 0;
    for (uint i = (ulong)clhist_elements * clhist_part / clhist_parts; i < clhist_stop; ++i) {
        const uint bin = CLHIST_ROW_BIN(i);
        if (bin < clhist_count)
            clhist_near[bin] += (${c_name(operator.accumulator)}4)(${"".join(f"clhist_lift(CLHIST_ROW_VALUE((ulong)i * 3 + {c})), " for c in range(3))}0);
    }
    for (uint bin = 0; bin < clhist_count; ++bin) {
% for c in range(3):
        clhist_to[bin * 3 + ${c}] = clhist_combine(clhist_to[bin * 3 + ${c}], clhist_near[bin].s${c});
% endfor
    }
% elif spec.is_alone:
    for (uint i = (ulong)clhist_elements * clhist_part / clhist_parts; i < clhist_stop; ++i) {
        const uint bin = CLHIST_ROW_BIN(i), next = CLHIST_ROW_BIN(i + ${spec.ahead} < clhist_stop ? i + ${spec.ahead} : i);
${ask_ahead("        ", "next < clhist_count ? next : 0", "i")}\
        if (bin < clhist_count)
            ${add("bin", "i")};
    }
% else:
    uint clhist_bins[${128}], clhist_rows[${128}];
    for (uint block = (ulong)clhist_elements * clhist_part / clhist_parts; block < clhist_stop; block += 128) {
        uint found = 0;
        for (uint i = block; i < min(block + 128, clhist_stop); ++i) {
            const uint bin = CLHIST_ROW_BIN(i) - clhist_first;
            clhist_bins[found] = bin;
            clhist_rows[found] = i;
            found += bin < clhist_count;
        }
        for (uint k = 0; k < found; ++k) {
${ask_ahead("            ", f"clhist_bins[min(k + {spec.ahead}, found - 1)]", "clhist_rows[k]")}\
            ${add("clhist_bins[k]", "clhist_rows[k]")};
        }
    }
% endif
}

% if has_bytes(operator.dtype):
${types.choice()}
% endif
// Combines the copies of all parts with what dest has.
${kernel.begin("join", group)}
${kernel.results()}\
    const ulong clhist_cells = (ulong)clhist_row_bins * ${d};
    const ulong end = clhist_cells * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_cells * get_global_id(0) / get_global_size(0); k < end; ++k) {
% if operator.holds_values:
        accumulator_t total = out[k];
        for (uint part = 0; part + 1 < clhist_parts; ++part)
% else:
        accumulator_t total = ${dest_or_neutral("clhist_has_dest", f'clhist_lift({loaded("dest[k]", operator.dtype)})', operator.dtype)};
        for (uint part = 0; part < clhist_parts; ++part)
% endif
            total = clhist_combine(total, clhist_held[part * clhist_cells + k]);
        out[k] = ${stored("clhist_finish(total)", operator.dtype)};
    }
}
