## A CPU, rows in the order of their bins: each work-item has the bins from that of its first row on, and their rows.
<%namespace name="types" file="types.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%
    from itertools import product
    from clhist._core.kernels.combine_code import dest_or_neutral, has_bytes
    sweep, text = spec.sweep, spec.text
    group, d = sweep.work_group_size, text.rows.components
    operator = sweep.outputs[0].operator
    block = min(d, 16)
    rows = max(1, 4 // block)  # at once, whose sums do not wait for each other
    value = lambda c: f"CLHIST_VALUE_OF_ROW(clhist_row, {c})" if text.of_row else f"CLHIST_ROW_VALUE(clhist_row * {d} + {c})"
%>\
#define CLHIST_ROW_INDEX(i) ((long)(${text.bin}))
% if has_bytes(operator.dtype):
${types.choice()}
% endif
<%def name="combined(base, number)">\
% for c in range(number):
            accumulator_t total_${c} = clhist_neutral();
% endfor
            ulong clhist_row = clhist_begin;
% if rows > 1:
% for u, c in product(range(1, rows), range(number)):
            accumulator_t total_${c}_${u} = clhist_neutral();
% endfor
            for (; clhist_row + ${rows} <= clhist_end; ++clhist_row) {
% for u in range(rows):
% for c in range(number):
                total_${c}${f"_{u}" if u else ""} = clhist_combine(total_${c}${f"_{u}" if u else ""}, clhist_lift(${value(f"{base} + {c}")}));
% endfor
${"                ++clhist_row;" if u + 1 < rows else ""}
% endfor
            }
% for u, c in product(range(1, rows), range(number)):
            total_${c} = clhist_combine(total_${c}, total_${c}_${u});
% endfor
% endif
            for (; clhist_row < clhist_end; ++clhist_row) {
% for c in range(number):
                total_${c} = clhist_combine(total_${c}, clhist_lift(${value(f"{base} + {c}")}));
% endfor
            }
% for c in range(number):
            if (clhist_has_dest)
                total_${c} = clhist_combine(${dest_or_neutral("clhist_has_dest", f'clhist_lift({loaded(f"dest[clhist_to + {base} + {c}]", operator.dtype)})', operator.dtype)}, total_${c});
% endfor
% for c in range(number):
            out[clhist_to + ${base} + ${c}] = ${stored(("CLHIST_FINISHED" if operator.by_count else "clhist_finish") + f"(total_{c})", operator.dtype)};
% endfor
</%def>\
// If the indices decrease somewhere, rows are left out: bins are those of the work-item, one after the other.
${kernel.begin("add", group)}
${types.arrays(sweep)}\
${kernel.results()}\
    const ulong clhist_item = get_global_id(0), clhist_items = get_global_size(0);
    const uint clhist_at = clhist_elements * clhist_item / clhist_items;
    const uint clhist_next = clhist_elements * (clhist_item + 1) / clhist_items;
    const long clhist_bins = clhist_row_bins;
    const uint clhist_first = clhist_item ? clamp(CLHIST_ROW_INDEX(clhist_at), 0L, clhist_bins) : 0;
    const uint clhist_stop = clhist_item + 1 < clhist_items ? clamp(CLHIST_ROW_INDEX(clhist_next), 0L, clhist_bins) : clhist_row_bins;
    uint low = 0, high = clhist_elements;
    while (low < high) {
        const uint i = low + (high - low) / 2;
        if (CLHIST_ROW_INDEX(i) < (long)clhist_first)
            low = i + 1;
        else
            high = i;
    }
    uint clhist_end = low;
    for (uint bin = clhist_first; bin < clhist_stop; ++bin) {
        const uint clhist_begin = clhist_end;
        while (clhist_end < clhist_elements && CLHIST_ROW_INDEX(clhist_end) == (long)bin)
            ++clhist_end;
% if operator.by_count:
        const uint clhist_count = clhist_end - clhist_begin;
% endif
        const ulong clhist_to = (ulong)bin * ${d};
        for (uint clhist_base = 0; clhist_base + ${block} <= ${d}; clhist_base += ${block}) {
${combined("clhist_base", block)}\
        }
% if d % block:
        {
${combined(d // block * block, d % block)}\
        }
% endif
    }
}
