## Before and after the sweep: one kernel sets shared copies to the neutral element, the other combines all copies.
## In the program of a sweep (`is_within`), the types and functions of the operator are the sweep's; a sweep that combines
## its copies itself has a function in the place of both kernels.
<%namespace name="types" file="types.mako"/>
<%
    operator = spec.operator
    dest_t = "accumulator_t" if spec.dest_is_partial else "value_t"
    out_t = "accumulator_t" if spec.out_is_partial else "value_t"
    cells = ", ".join(f"cells{n}" for n in range(len(operator.parts)))
    stride = "clhist_bins" if spec.batch or spec.is_dealt or (spec.order == "blocked" and not spec.counter_bits) else "clhist_num_bins"

    ## Where the copies of bin k of all histograms begin, and how many there are.
    place = {
        "ragged": "const ulong first = clhist_first[k / clhist_bins], copies = clhist_first[k / clhist_bins + 1] - first, "
        "at = first * clhist_bins + k % clhist_bins;",
        "equal": "const ulong copies = clhist_copies, at = k / clhist_bins * copies * clhist_bins + k % clhist_bins;",
        "": "const ulong copies = clhist_copies, at = k;",
    }[spec.batch]
    if spec.is_dealt:
        place = "const ulong copies = clhist_copies, at = k % clhist_passes * (clhist_bins / clhist_passes) + k / clhist_passes;"

    def held(at):
        """The accumulator of a copy."""
        return f"whole[{at}]" if spec.whole else f"clhist_cell_of({cells}, {at})"

    def given(index):
        """The accumulator that dest has for a bin."""
        if spec.dest_is_partial:
            return f"dest[{index}]"
        if spec.fields:
            return f"clhist_lift((value_t){{{', '.join(f'dest_{name}[{index}]' for name, _ in spec.fields)}}})"
        return f"clhist_lift(dest[{index}])"

    def store(index):
        """The statement that writes the result of a bin."""
        if spec.out_is_partial:
            return f"out[{index}] = total;"
        if spec.fields:
            each = " ".join(f"out_{name}[{index}] = result.{name};" for name, _ in spec.fields)
            return f"const value_t result = clhist_finish(total); {each}"
        return f"out[{index}] = clhist_finish(total);"
%>
% if not is_within:
% if operator.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
${types.values(operator, "", declare, {})}
<%types:functions operator="${operator}" suffix="" preamble="${operator.preamble}">
% for n, part in enumerate(operator.parts):
${types.part(part, n, c_name)}
% endfor
</%types:functions>
% endif
% if not spec.out_is_partial:
value_t clhist_finish(const accumulator_t a)
{
    return ${operator.finish};
}
% endif

accumulator_t clhist_combine(const accumulator_t a, const accumulator_t b)
{
    accumulator_t both;
% for n, part in enumerate(operator.parts):
    both${part.accessor} = clhist_combine${n}(a${part.accessor}, b${part.accessor});
% endfor
    return both;
}

accumulator_t clhist_neutral(void)
{
    accumulator_t neutral;
% for n, part in enumerate(operator.parts):
    neutral${part.accessor} = clhist_neutral${n}();
% endfor
    return neutral;
}

accumulator_t clhist_cell_of(${", ".join(f"__global const cell{n}_t *cells{n}" for n in range(len(operator.parts)))}, const ulong at)
{
    accumulator_t held;
% for n, part in enumerate(operator.parts):
    held${part.accessor} = cells${n}[at].value;
% endfor
    return held;
}

% if not is_function:
__kernel void clhist_clear(${", ".join(parameter.declaration for parameter in clear_parameters)})
{
% for n, part in enumerate(operator.parts):
    __global cell${n}_t *cells${n} = (__global cell${n}_t *)(clhist_scratch + clhist_place${n});
    __global int *locks${n} = (__global int *)(clhist_scratch + clhist_lock_place${n});
    for (size_t k = get_global_id(0); k < clhist_num_cells; k += get_global_size(0))
        cells${n}[k].value = clhist_neutral${n}();
    for (size_t k = get_global_id(0); k < clhist_num_locks${n}; k += get_global_size(0))
        locks${n}[k] = 0;
% endfor
}
% endif

% if spec.rows > 1:
## Work-groups have ${spec.rows} rows; each row combines every ${spec.rows}th copy of a bin, then the rows are combined in a tree.
% endif
% if is_function:
void clhist_combine_bins(const ulong begin, const ulong end, const ulong step, ${", ".join(parameter.declaration for parameter in combine_parameters)})
% else:
__kernel void clhist_combine_copies(${", ".join(parameter.declaration for parameter in combine_parameters)})
% endif
{
% if spec.whole:
    __global const accumulator_t *whole = (__global const accumulator_t *)(clhist_scratch + clhist_place0);
% else:
% for n, part in enumerate(operator.parts):
    __global const cell${n}_t *cells${n} = (__global const cell${n}_t *)(clhist_scratch + clhist_place${n});
% endfor
% endif
% for name, kind in spec.fields or (("", ""),):
<% suffix = f"_{name}" if name else "" %>\
    __global const ${kind or dest_t} *dest${suffix} = (__global const ${kind or dest_t} *)(dest_base${suffix} + dest_offset${suffix});
    __global ${kind or out_t} *out${suffix} = (__global ${kind or out_t} *)(out_base${suffix} + out_offset${suffix});
% endfor
% if spec.used:
    volatile __global uint *clhist_found = (volatile __global uint *)(clhist_found_base + clhist_found_offset);
% endif
% if spec.counter_bits:
${local.get_namespace("packed.mako").combine(given, store, place, held, stride)}
% elif is_function or spec.order == "blocked":
% if spec.used:
    uint largest = 0${", sum = 0" if spec.sums_counts else ""};
% endif
% if is_function:
    for (ulong k = begin; k < end; k += step) {
% else:
    const ulong end = clhist_num_bins * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_num_bins * get_global_id(0) / get_global_size(0); k < end; ++k) {
% endif
        ${place}
        accumulator_t total = has_dest ? ${given("k")} : clhist_neutral();
${without_copies()}
        for (ulong copy = 0; copy < copies; ++copy)
            total = clhist_combine(total, ${held(f"at + copy * {stride}")});
        ${store("k")}
% if spec.used:
        if (k > clhist_known && ${spec.used})
            largest = k;
% endif
% if spec.sums_counts:
        sum += total;
% endif
    }
% if spec.used:
    if (largest)
        atomic_max(clhist_found, largest);
% endif
% if spec.sums_counts:
    atomic_add(clhist_found + 1, sum);
% endif
% else:
    const uint row = get_local_id(0) / ${spec.columns};
    const ulong k = get_group_id(0) * ${spec.columns} + get_local_id(0) % ${spec.columns};
    accumulator_t total = clhist_neutral();
    if (k < clhist_num_bins) {
        ${place}
        if (row == 0 && has_dest)
            total = ${given("k")};
${without_copies()}
        for (ulong copy = row; copy < copies; copy += ${spec.rows})
            total = clhist_combine(total, ${held(f"at + copy * {stride}")});
    }
% if spec.rows > 1:
    __local accumulator_t totals[${spec.rows * spec.columns}];
    totals[get_local_id(0)] = total;
<% half = spec.rows // 2 %>
% while half:
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row < ${half})
        totals[get_local_id(0)] = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + ${half * spec.columns}]);
<% half //= 2 %>\
% endwhile
    total = totals[get_local_id(0)];
% endif
    if (row == 0 && k < clhist_num_bins) {
        ${store("k")}
% if spec.used:
        if (k > clhist_known && ${spec.used})
            atomic_max(clhist_found, (uint)k);
% endif
    }
% endif
}

## Without elements there are no copies; dest is combined all the same, as each of its bins is that gets no value.
<%def name="without_copies()">\
% if not spec.dest_is_partial:
        if (copies == 0)
            total = clhist_combine(total, clhist_neutral());\
% endif
</%def>
