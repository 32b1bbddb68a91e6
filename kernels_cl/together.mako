## Few elements: the one work-group that has swept them combines its copies with dest, and writes the results.

## Of one output, before the caller's own code, whose macros then do not apply to it.
<%def name="function(output, parts)">
<%
    s, operator = output.suffix, output.operator
    cells = ", ".join(f"__global const cell{part.n}_t *cells{part.n}" for part in parts)
%>
% if s:
#define value_t value${s}_t
#define accumulator_t accumulator${s}_t
% endif
value_t clhist_finish${s}(const accumulator_t a)
{
    return ${operator.finish};
}

void clhist_combine_bins${s}(const clhist_bin_t bins, const ulong copies, const ulong stride, ${cells}, const int has_dest,
    __global const value_t *dest, __global value_t *out${", const ulong known, volatile __global uint *found" if spec.used else ""})
{
% if spec.used:
    uint largest = 0${", sum = 0" if spec.sums_counts else ""};
% endif
    for (clhist_bin_t k = get_local_id(0); k < bins; k += ${spec.work_group_size}) {
        accumulator_t total;
% for part in parts:
        total${part.part.accessor} = clhist_neutral${part.n}();
% endfor
        if (has_dest)
            total = clhist_lift${s}(dest[k]);
        for (ulong copy = 0; copy < copies; ++copy) {
            const ulong at = k + copy * stride;
% for part in parts:
            const part${part.n}_t held${part.n} = cells${part.n}[at].value;
% endfor
## All parts are read before any is changed: a part is the whole accumulator where it is structured.
% for part in parts:
            total${part.part.accessor} = clhist_combine${part.n}(total${part.part.accessor}, held${part.n});
% endfor
        }
        out[k] = clhist_finish${s}(total);
% if spec.used:
        if (k > known && ${spec.used})
            largest = k;
% endif
% if spec.sums_counts:
        sum += total;
% endif
    }
% if spec.used:
    if (largest)
        atomic_max(found, largest);
% endif
% if spec.sums_counts:
    atomic_add(found + 1, sum);
% endif
}
% if s:
#undef value_t
#undef accumulator_t
% endif
</%def>

## In the kernel, after the sweep.
<%def name="combine()">
% if spec.work_group_size > 1:
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
% endif
% for output in spec.outputs:
<%
    s = output.suffix
    cells = ", ".join(f"clhist_all{part.n}" for part in parts if part.output is output)
    copies, stride = ("1", "0") if state.is_local else ("clhist_copies", state.stride(s))
    found = ", clhist_known, (volatile __global uint *)(clhist_found_base + clhist_found_offset)" if spec.used else ""
%>
    clhist_combine_bins${s}(clhist_num_bins${s}, ${copies}, ${stride}, ${cells}, clhist_has_dest${s},
        (__global const value${s}_t *)(clhist_dest${s}__base + clhist_dest${s}__offset),
        (__global value${s}_t *)(clhist_out${s}__base + clhist_out${s}__offset)${found});
% endfor
</%def>
