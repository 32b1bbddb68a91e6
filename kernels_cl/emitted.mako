## Stores some values that a map emits to existing bins, for the check of an operator
## (clhist/_core/runtime/operator_check.py). Each work-item runs the map for one element, evenly spread over
## the input, and stores `most` values for each output.
##
##   clhist_scratch   | is a slot filled: output 0 .. | output 1 .. | values of output 0 | values of output 1 | ..
<%namespace name="types" file="types.mako"/>
<%
    sweep = spec.sweep
    declared_types = {}
    bins = [f"clhist_num_bins{output.suffix}" for output in sweep.outputs]
    state = "__global char *clhist_scratch, uint *clhist_seen, " + ", ".join(f"const clhist_bin_t {name}" for name in bins)
    passed = ", ".join(["clhist_scratch", "clhist_seen", *bins])
%>\
${types.prologue(sweep, preamble_of, declared_types)}
${types.caller_code(sweep, declare, declared_types)}

% for n, (output, place) in enumerate(zip(sweep.outputs, places)):
void clhist_store${output.suffix}(const clhist_bin_t target, const clhist_bin_t num_bins, const value${output.suffix}_t value, __global char *scratch, uint *seen)
{
    if (target >= num_bins || seen[${n}] == ${most})
        return;
    const size_t slot = get_global_id(0) * ${most} + seen[${n}]++;
    ((__global uint *)scratch)[${n * slots} + slot] = 1;
    ((__global value${output.suffix}_t *)(scratch + ${place}))[slot] = value;
}
#define EMIT${output.suffix}(bin, value) clhist_store${output.suffix}(CLHIST_BIN(bin), clhist_num_bins${output.suffix}, (value), clhist_scratch, clhist_seen)
% endfor
void clhist_map(${", ".join([*sweep.map_parameters(), "const clhist_index_t i", state])})
{
    ${map_body};
}
<% element = ", ".join(sweep.map_arguments(lambda argument: f"{argument.name}[i]")) %>\

__kernel __attribute__((reqd_work_group_size(${sweep.work_group_size}, 1, 1)))
void clhist_emitted(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
${types.arrays(sweep)}\
    const clhist_index_t clhist_k = get_global_id(0);
    uint clhist_seen[${len(sweep.outputs)}] = {0};
    if (clhist_k >= clhist_length)
        return;
    const clhist_index_t i = (clhist_index_t)((ulong)(clhist_size - 1) * clhist_k / max(clhist_length - 1, (clhist_index_t)1));
    clhist_map(${element + ", " if element else ""}i, ${passed});
}
