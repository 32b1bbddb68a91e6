## Counts the distinct bins in windows of consecutive elements, for the race factor RF of SC'20.
##
##   clhist_scratch   | pairs | distinct | bits of window 0: one for each bin | bits of window 1 | ..
##   launch           dimension 0: work-items over a window; dimension 1: windows
##
## Used by clhist/_core/runtime/distinct_bins.py. Decision 0005.
<%namespace name="types" file="types.mako"/>
<%
    sweep = spec.sweep
    declared_types = {}
    state = "volatile __global uint *clhist_bits, uint *clhist_seen, " + ", ".join(
        f"const clhist_bin_t clhist_num_bins{output.suffix}" for output in sweep.outputs
    )
    passed = "clhist_bits, clhist_seen, " + ", ".join(f"clhist_num_bins{output.suffix}" for output in sweep.outputs)
%>\
${types.prologue(sweep, preamble_of, declared_types)}
${types.caller_code(sweep, declare, declared_types)}

## `clhist_seen` has the pairs of bins that exist, and how many were the first of their bin.
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

% for n, output in enumerate(sweep.outputs):
<% before = " + ".join(f"clhist_num_bins{earlier.suffix}" for earlier in sweep.outputs[:n]) or "0" %>\
#define EMIT${output.suffix}(bin, value) ((void)(value), clhist_look_at(CLHIST_BIN(bin), clhist_num_bins${output.suffix}, ${before}, clhist_bits, clhist_seen))
% endfor
void clhist_map(${", ".join([*sweep.map_parameters(), "const clhist_index_t i", state])})
{
    ${map_body};
}
<% element = ", ".join(sweep.map_arguments(lambda argument: f"{argument.name}[i]")) %>\

__kernel __attribute__((reqd_work_group_size(${sweep.work_group_size}, 1, 1)))
void clhist_count_distinct(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
    __local uint clhist_sums[2];
    volatile __global uint *clhist_totals = (volatile __global uint *)clhist_scratch;
${types.arrays(sweep)}\
    const uint clhist_lane = get_local_id(0), clhist_window = get_group_id(1);
    if (clhist_lane == 0)
        clhist_sums[0] = clhist_sums[1] = 0;
    // Barrier: the sums are initialised.
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_seen[2] = {0, 0};
    volatile __global uint *clhist_bits = clhist_totals + 2 + (ulong)clhist_window * clhist_words;
    const clhist_index_t clhist_begin = (clhist_index_t)((ulong)(clhist_size - clhist_length) * clhist_window / max((uint)get_num_groups(1) - 1, 1u));
    for (clhist_index_t clhist_k = get_global_id(0); clhist_k < clhist_length; clhist_k += get_global_size(0)) {
        const clhist_index_t i = clhist_begin + clhist_k;
        clhist_map(${element + ", " if element else ""}i, ${passed});
    }
    // Atomics: first of each work-item in local memory, then of each work-group in global memory.
    atomic_add(clhist_sums, clhist_seen[0]);
    atomic_add(clhist_sums + 1, clhist_seen[1]);
    // Barrier: all have added theirs.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clhist_lane == 0) {
        atomic_add(clhist_totals, clhist_sums[0]);
        atomic_add(clhist_totals + 1, clhist_sums[1]);
    }
}
