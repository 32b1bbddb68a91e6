## Looks at some elements: how many of their pairs go to bins that others of them go to as well.
## `clhist_count_distinct` looks at windows of consecutive elements, for the race factor; each has a bit for each bin.
## `clhist_clear_and_look` clears the records of packed counters; its first work-group looks at a few elements of
## the whole input, and raises the flag at once where the counters would: the sweep then leaves, and whole ones follow.
<%namespace name="types" file="types.mako"/>
<%!
    from clhist.planning.packed import SAMPLE

    RUN = 32  # neighbours that are looked at together: a load of a warp
    MOST_TRIES = 32
%>\
<%
    sweep = spec.sweep
    known = {}
    state = "volatile __local uint *clhist_table, uint *clhist_seen" if spec.table_bits else (
        "volatile __global uint *clhist_bits, uint *clhist_seen, "
        + ", ".join(f"const clhist_bin_t clhist_num_bins{output.suffix}" for output in sweep.outputs)
    )
    passed = "clhist_table, clhist_seen" if spec.table_bits else (
        "clhist_bits, clhist_seen, " + ", ".join(f"clhist_num_bins{output.suffix}" for output in sweep.outputs)
    )
%>
% if any(each.operator.needs_fp64 for each in (*sweep.outputs, *sweep.ignored)):
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% for each in (*sweep.outputs, *sweep.ignored):
${types.values(each.operator, each.suffix, declare, known)}
% endfor
${types.bins(sweep.wide)}
${types.relaxed_access()}
% for each in (*sweep.ignored, *sweep.outputs):
% if preamble_of[each]:
#define value_t value${each.suffix}_t
#define accumulator_t accumulator${each.suffix}_t
${preamble_of[each]}
#undef value_t
#undef accumulator_t
% endif
% endfor
${types.caller_code(sweep, declare, known)}

## `clhist_seen` has the pairs of bins that exist, and how many were the first of their bin.
% if spec.table_bits:
## Bins that were seen, by hashing; after so many places it does not matter any more which they are.
void clhist_look_at(const clhist_bin_t target, const clhist_bin_t num_bins, ${state})
{
    if (target >= num_bins)
        return;
    ++clhist_seen[0];
    const uint key = (uint)target + 1;
    uint place = key * 2654435761u >> ${32 - spec.table_bits};
    for (uint tried = 0; tried < ${MOST_TRIES}; ++tried) {
        uint found = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_table + place);
        if (found == 0)
            found = atomic_cmpxchg(clhist_table + place, 0, key);
        if (found == key)
            return;
        if (found == 0)
            break;
        place = (place + 1) % ${1 << spec.table_bits};
    }
    ++clhist_seen[1];
}
% else:
void clhist_look_at(const clhist_bin_t target, const clhist_bin_t num_bins, const clhist_bin_t before, volatile __global uint *bits, uint *clhist_seen)
{
    if (target >= num_bins)
        return;
    ++clhist_seen[0];
    const ulong place = (ulong)before + target;
    volatile __global uint *word = bits + place / 32;
    const uint bit = 1u << (uint)(place % 32);
    uint found = CLHIST_RELAXED_LOAD(atomic_cmpxchg, word);
    if ((found & bit) == 0) {
        found = atomic_or(word, bit);
        clhist_seen[1] += (found & bit) == 0;
    }
}
% endif

% for n, output in enumerate(sweep.outputs):
<% before = " + ".join(f"clhist_num_bins{earlier.suffix}" for earlier in sweep.outputs[:n]) or "0" %>\
% if spec.table_bits:
#define EMIT${output.suffix}(bin, value) ((void)(value), clhist_look_at(CLHIST_BIN(bin), clhist_limit, clhist_table, clhist_seen))
% else:
#define EMIT${output.suffix}(bin, value) ((void)(value), clhist_look_at(CLHIST_BIN(bin), clhist_num_bins${output.suffix}, ${before}, clhist_bits, clhist_seen))
% endif
% endfor
void clhist_map(${", ".join([*sweep.map_parameters(), "const clhist_index_t i", *["const clhist_bin_t clhist_limit"] * bool(spec.table_bits), state])})
{
    ${map_body};
}
<% element = ", ".join(sweep.map_arguments(lambda argument: f"{argument.name}[i]")) %>\

__kernel __attribute__((reqd_work_group_size(${sweep.work_group_size}, 1, 1)))
% if spec.table_bits:
void clhist_clear_and_look(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
    __local uint clhist_table[${1 << spec.table_bits}];
    __local uint clhist_sums[2];
    __global uint *clhist_beyond = (__global uint *)(clhist_scratch + clhist_packed_place);
    const size_t clhist_last = (clhist_flag_place - clhist_packed_place) / 4;
    for (size_t clhist_k = get_global_id(0); clhist_k < clhist_last; clhist_k += get_global_size(0))
        clhist_beyond[clhist_k] = 0;
    if (get_group_id(0) > 0)
        return;
${types.arrays(sweep)}\
    const uint clhist_lane = get_local_id(0);
    for (uint clhist_k = clhist_lane; clhist_k < ${1 << spec.table_bits}; clhist_k += ${sweep.work_group_size})
        clhist_table[clhist_k] = 0;
    if (clhist_lane == 0)
        clhist_sums[0] = clhist_sums[1] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_seen[2] = {0, 0};
    ## Runs of neighbours, evenly spread.
    const clhist_index_t clhist_apart = clhist_size / ${SAMPLE // RUN};
    for (uint clhist_k = clhist_lane; clhist_k < ${SAMPLE}; clhist_k += ${sweep.work_group_size}) {
        const clhist_index_t i = clhist_apart < ${RUN} ? (clhist_index_t)clhist_k : clhist_k / ${RUN} * clhist_apart + clhist_k % ${RUN};
        if (i < clhist_size)
            clhist_map(${element + ", " if element else ""}i, clhist_num_bins, clhist_table, clhist_seen);
    }
    atomic_add(clhist_sums, clhist_seen[0]);
    atomic_add(clhist_sums + 1, clhist_seen[1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clhist_lane == 0)
        clhist_beyond[clhist_last] = ((ulong)clhist_sums[1] << 16) < (ulong)clhist_sums[0] * clhist_least_distinct;
}
% else:
void clhist_count_distinct(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
    __local uint clhist_sums[2];
    volatile __global uint *clhist_totals = (volatile __global uint *)clhist_scratch;
${types.arrays(sweep)}\
    const uint clhist_lane = get_local_id(0), clhist_window = get_group_id(1);
    if (clhist_lane == 0)
        clhist_sums[0] = clhist_sums[1] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_seen[2] = {0, 0};
    volatile __global uint *clhist_bits = clhist_totals + 2 + (ulong)clhist_window * clhist_words;
    const clhist_index_t clhist_begin = (clhist_index_t)((ulong)(clhist_size - clhist_length) * clhist_window / max((uint)get_num_groups(1) - 1, 1u));
    for (clhist_index_t clhist_k = get_global_id(0); clhist_k < clhist_length; clhist_k += get_global_size(0)) {
        const clhist_index_t i = clhist_begin + clhist_k;
        clhist_map(${element + ", " if element else ""}i, ${passed});
    }
    atomic_add(clhist_sums, clhist_seen[0]);
    atomic_add(clhist_sums + 1, clhist_seen[1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clhist_lane == 0) {
        atomic_add(clhist_totals, clhist_sums[0]);
        atomic_add(clhist_totals + 1, clhist_sums[1]);
    }
}
% endif
