## Samples values before narrow sums (narrow.mako): their least and largest exponent decide which words of a
## long integer are kept. Raises the flag if not even these values fit, or if one is NaN or infinite.
##
##   input         [run of 32]......[run of 32]......[run of 32]     LOOKED_AT elements in evenly spaced runs
##   local memory  | least exponent | largest exponent |
##   clhist_call   | flag | flag before the sweep | base | most: exponents that fit above it |
##
## Decision 0012, note [Exponents of a window]: a quarter of the spare bits lie above the sample, the rest
## below.
<%namespace name="types" file="types.mako"/>
<%!
    from clhist.operators.fixed_point import FORMATS
    from clhist._core.model.narrow import LOOKED_AT
    from clhist._core.model.feature import RAISED

    RUN = 32  # neighbouring elements
%>\
<%
    sweep, output, s = spec.sweep, spec.sweep.outputs[0], spec.sweep.outputs[0].suffix
    declared_types, fmt = {}, FORMATS[output.operator.dtype]
    word = "uint" if output.operator.dtype.itemsize == 4 else "ulong"
    # Of windows it only spares a sweep over values that are too large.
    looked = LOOKED_AT if output.operator.largest is None else LOOKED_AT // 8
    runs = looked // RUN
    element = ", ".join(sweep.map_arguments(lambda argument: f"{argument.name}[i]"))
%>\
// Looks at ${looked} elements, in runs of ${RUN}.
${types.prologue(sweep, preamble_of, declared_types)}
${types.caller_code(sweep, declare, declared_types)}

// `clhist_seen` has the least and the largest exponent of values that are not 0.
void clhist_look_at(const bool clhist_is_inside, const value${s}_t value, uint *clhist_seen)
{
    const ${word} bits = as_${word}(value) << 1;
    if (!clhist_is_inside || bits == 0)
        return;
    const uint exponent = (uint)(bits >> ${fmt.shift + 1});
    clhist_seen[0] = min(clhist_seen[0], exponent);
    clhist_seen[1] = max(clhist_seen[1], exponent);
}

#define EMIT${s}(bin, value) clhist_look_at(CLHIST_BIN(bin) < clhist_num_bins${s}, (value), clhist_seen)
void clhist_map(${", ".join([*sweep.map_parameters(), "const clhist_index_t i", f"const clhist_bin_t clhist_num_bins{s}", "uint *clhist_seen"])})
{
    ${map_body};
}

__kernel __attribute__((reqd_work_group_size(${sweep.work_group_size}, 1, 1)))
void clhist_look(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
    __local uint clhist_range[2];
${types.arrays(sweep)}\
    if (get_local_id(0) == 0) {
        clhist_range[0] = ${fmt.specials};
        clhist_range[1] = 0;
    }
    // Barrier: the range is initialised.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_seen[2] = {${fmt.specials}, 0};
    for (uint clhist_k = get_local_id(0); clhist_k < ${looked}; clhist_k += ${sweep.work_group_size}) {
        const ulong clhist_begin = (ulong)(clhist_size - ${RUN}) * (clhist_k / ${RUN}) / ${runs - 1};
        const clhist_index_t i = (clhist_index_t)clhist_begin + (clhist_index_t)(clhist_k % ${RUN});
        clhist_map(${element + ", " if element else ""}i, clhist_num_bins${s}, clhist_seen);
    }
    // Atomics in local memory: once for each work-item.
    atomic_min(clhist_range, clhist_seen[0]);
    atomic_max(clhist_range + 1, clhist_seen[1]);
    // Barrier: all have added their exponents.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) > 0)
        return;
    const bool is_none = clhist_range[1] == 0;
    const int least = is_none ? ${fmt.specials // 2} : clhist_range[0];
    const int largest = is_none ? least : clhist_range[1];
    // Values that were not seen may be larger and, more often, nearer to 0.
    const int spare = (int)clhist_most - (largest - least);
    const int above = min(spare / 2, max(4, spare / 4));
    const int base = clamp(least - max(spare - above, 0), (int)clhist_lowest, (int)clhist_highest);
    const bool is_raised = largest == ${fmt.specials} || least < base || largest - base > (int)clhist_most;
    clhist_call[0] = is_raised ? ${hex(RAISED)}u : 0;
    clhist_call[1] = is_raised;
    clhist_call[2] = base;
    clhist_call[3] = clhist_most;
}
