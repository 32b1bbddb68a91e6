## Before and after the sweep: one kernel sets shared copies to the neutral element, the other combines all copies.
## In the program of a sweep (`is_within`), the types and functions of the operator are the sweep's; a sweep that combines
## its copies itself has a function in the place of both kernels.
<%namespace name="types" file="types.mako"/>
<%namespace name="section" file="section.mako"/>
<%
    from clhist._core.kernels.state import wrapped
    from clhist.operators.c_types import bytes_of
    operator = spec.operator
    cells = ", ".join(f"__global const cell{n}_t *cells{n}" for n in range(len(operator.parts)))
    parameters = wrapped([parameter.declaration for parameter in combine_parameters])
    is_function = function == "clhist_combine_bins"
    # Cells of many words that are all 0 are written word after word.
    held = operator.accumulator
    by_words = len(operator.parts) == 1 and held.itemsize > 8 and held.itemsize % 4 == 0
    by_words = by_words and not any(bytes_of(operator.neutral, held))
%>
% if not is_within:
// The second stage: copies are cleared before the sweep, and combined after it with what dest has.
% if operator.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
${types.values(operator, "", declare, {})}
<%types:functions operator="${operator}" suffix="" preamble="${preamble}">
% for n, part in enumerate(operator.parts):
${types.part(part, n, c_name)}
% endfor
</%types:functions>
% endif
% if state.sums:
// What rounding loses of the sum of a and b; nothing of infinities.
double clhist_lost(const double a, const double b, const double sum)
{
    const double rest = sum - a;
    return sum - sum == 0 ? (a - (sum - rest)) + (b - rest) : 0;
}

% endif
% if not spec.out_is_partial:
value_t clhist_finish(const accumulator_t a)
{
    return ${operator.finish};
}
% endif

${types.whole(operator)}
// The accumulator of a cell, of which each part has an array.
accumulator_t clhist_cell_of(${cells}, const ulong at)
{
    accumulator_t held;
% for n, part in enumerate(operator.parts):
    held${part.accessor} = cells${n}[at].value;
% endfor
    return held;
}

% if state.has_bytes:
${types.choice()}
% endif
% if function == "clhist_write_bin":
// Combines what the pairs of a bin make with what dest has, writes the result, and returns its accumulator.
accumulator_t clhist_write_bin(
${wrapped(["const ulong k", "const accumulator_t held", *[p.declaration for p in result_parameters]])})
{
${arrays()}
    const accumulator_t total = clhist_combine(${state.dest_or_neutral("has_dest", "k")}, held);
    ${state.store("k")}
    return total;
}
% if spec.largest_bin_condition:

// Whether a bin beyond those that are known to have a value has one.
bool clhist_has_value(const ulong k, const accumulator_t total, const ulong clhist_known)
{
    return k > clhist_known && ${spec.largest_bin_condition};
}
% endif
<% return STOP_RENDERING %>\
% endif
% if not is_function:
// Sets shared copies to the neutral element, and their locks free.
__kernel void clhist_clear(
${wrapped([parameter.declaration for parameter in clear_parameters])})
{
% for n, part in enumerate(operator.parts):
    __global cell${n}_t *cells${n} = (__global cell${n}_t *)(clhist_scratch + clhist_place${n});
    __global int *locks${n} = (__global int *)(clhist_scratch + clhist_lock_place${n});
% if by_words:
    for (size_t k = get_global_id(0); k < clhist_num_cells * (sizeof(cell${n}_t) / 4); k += get_global_size(0))
        ((__global uint *)cells${n})[k] = 0;
% else:
    for (size_t k = get_global_id(0); k < clhist_num_cells; k += get_global_size(0))
        cells${n}[k].value = clhist_neutral${n}();
% endif
    for (size_t k = get_global_id(0); k < clhist_num_locks${n}; k += get_global_size(0))
        locks${n}[k] = 0;
% endfor
}
% endif

% if spec.rows > 1:
// Work-groups have ${spec.rows} rows; each row combines every ${spec.rows}th copy of a bin, then the rows are combined in a tree.
% endif
% if is_function:
void clhist_combine_bins(
    const ulong begin, const ulong end, const ulong step,
${parameters})
% else:
__kernel void clhist_combine_copies(
${parameters})
% endif
{
${section.fill("leave")}
% if spec.whole:
    __global const accumulator_t *whole = (__global const accumulator_t *)(clhist_scratch + clhist_place0);
% else:
% for n, part in enumerate(operator.parts):
    __global const cell${n}_t *cells${n} = (__global const cell${n}_t *)(clhist_scratch + clhist_place${n});
% endfor
% endif
${arrays()}
% if any("combine" in feature.sections for feature in spec.features):
${section.fill("combine")}
% elif is_function or spec.order == "blocked":
% if spec.largest_bin_condition:
    uint largest = 0${", sum = 0" if spec.sums_counts else ""};
% endif
% if is_function:
    for (ulong k = begin; k < end; k += step) {
% else:
    const ulong end = clhist_num_bins * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_num_bins * get_global_id(0) / get_global_size(0); k < end; ++k) {
% endif
        ${state.place}
        accumulator_t total = ${state.dest_or_neutral("has_dest", "k")};
${without_copies()}
% if state.sums:
        double ${", ".join(f"lost{n} = 0" for n in range(len(state.sums)))};
        for (ulong copy = 0; copy < copies; ++copy) {
            const accumulator_t held = ${state.copy}, before = total;
            total = clhist_combine(before, held);
% for n, accessor in enumerate(state.sums):
            lost${n} += clhist_lost(before${accessor}, held${accessor}, total${accessor});
% endfor
        }
% for n, accessor in enumerate(state.sums):
        if (lost${n} != 0)  // the sign of a zero stays, which says whether a bin has values
            total${accessor} += lost${n};
% endfor
% else:
        for (ulong copy = 0; copy < copies; ++copy)
            total = clhist_combine(total, ${state.copy});
% endif
        ${state.store("k")}
% if spec.largest_bin_condition:
        if (k > clhist_known && ${spec.largest_bin_condition})
            largest = k;
% endif
% if spec.sums_counts:
        sum += total;
% endif
    }
% if spec.largest_bin_condition:
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
        ${state.place}
% if state.has_bytes:
        total = ${state.dest_or_neutral("row == 0 && has_dest", "k")};
% else:
        if (row == 0 && has_dest)
            total = ${state.dest("k")};
% endif
${without_copies()}
        for (ulong copy = row; copy < copies; copy += ${spec.rows})
            total = clhist_combine(total, ${state.copy});
    }
% if spec.rows > 1:
    __local accumulator_t totals[${spec.rows * spec.columns}];
    totals[get_local_id(0)] = total;
<% half = spec.rows // 2 %>
% while half:
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row < ${half})
        totals[get_local_id(0)]
            = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + ${half * spec.columns}]);
<% half //= 2 %>\
% endwhile
    total = totals[get_local_id(0)];
% endif
    if (row == 0 && k < clhist_num_bins) {
        ${state.store("k")}
% if spec.largest_bin_condition:
        if (k > clhist_known && ${spec.largest_bin_condition})
            atomic_max(clhist_found, (uint)k);
% endif
    }
% endif
}

## Where results go.
<%def name="arrays()">\
% for suffix, dest_t, out_t in state.arrays:
    __global const ${dest_t} *dest${suffix} = (__global const ${dest_t} *)(dest_base${suffix} + dest_offset${suffix});
    __global ${out_t} *out${suffix} = (__global ${out_t} *)(out_base${suffix} + out_offset${suffix});
% endfor
% if spec.largest_bin_condition:
    volatile __global uint *clhist_found = (volatile __global uint *)(clhist_found_base + clhist_found_offset);
% endif
</%def>

## Without elements there are no copies; dest is combined all the same, as each of its bins is that gets no value.
<%def name="without_copies()">\
% if not spec.dest_is_partial:
        if (copies == 0)
            total = clhist_combine(total, clhist_neutral());\
% endif
</%def>
