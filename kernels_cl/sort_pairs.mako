## Writes the (bin, value) pairs of a map for sorting: `max_pairs` for each element.
##
##   clhist_keys           | bin of pair 0 | bin of pair 1 | ..     pairs that are not emitted: a key above all bins
##                         | .. | above that, if an element emits more than it has room for (`checked`)
##   clhist_positions      | 0 | 1 | ..                             sorted along with the keys
##   clhist_accumulators   | accumulator of pair 0 | ..             stays in place; the scan reads it by position
##
## Plan: SortedPlan (clhist/_core/model/sort.py). Paper: SC'20, Listing 4. Decision 0020.
<%!
    from clhist._core.kernels.state import wrapped
    from clhist._core.model.feature import BatchChunks
%>\
<%namespace name="types" file="types.mako"/>
<%
    operator, s = output.operator, output.suffix
    declared_types = {}
    state = [
        "__global uint *clhist_keys", "__global clhist_held_t *clhist_accumulators", "const uint clhist_num_bins",
        *["const uint clhist_no_bin"] * checked, "const uint clhist_first", "const uint clhist_end", "uint *clhist_next",
    ]
    passed = [
        "clhist_keys", "clhist_accumulators", "clhist_num_bins", *["clhist_no_bin"] * checked, "clhist_first", "clhist_end",
    ]
    arguments = [argument.name for argument in spec.arguments]
%>
// The pairs of a map, to be sorted by bin: ${max_pairs} for each element. What is in no bin gets a larger key than all bins.
${types.prologue(spec, {}, declared_types)}
// An accumulator, of an odd number of words, as the scan needs it.
typedef struct { uint words[${words}]; } clhist_held_t;
## The parts are unused here; compiling them reports errors in the caller's operator with this source.
<%types:functions operator="${operator}" suffix="${s}" preamble="${operator.preamble}">
% for n, part in enumerate(operator.parts):
${types.part(part, n, c_name)}
% endfor
</%types:functions>

void clhist_emit${s}(
${wrapped(["const clhist_bin_t bin", f"const value{s}_t value", *state])})
{
    if (bin < clhist_num_bins && *clhist_next < clhist_end) {
        clhist_keys[*clhist_next] = clhist_first + bin;
        union { accumulator${s}_t value; uint words[${words}]; } lifted = {.words = {0}};
        lifted.value = clhist_lift${s}(value);
        // By words, as the scan reads it.
% for k in range(words):
        clhist_accumulators[*clhist_next].words[${k}] = lifted.words[${k}];
% endfor
        ++*clhist_next;
    }
% if checked:
    else if (bin < clhist_num_bins)
        clhist_keys[clhist_end - 1] = clhist_no_bin + 1;
% endif
}

${types.caller_code(spec, declare, declared_types)}
#define EMIT${s}(bin, value) ${chr(92)}
    clhist_emit${s}( ${chr(92)}
${wrapped(["CLHIST_BIN(bin)", "(value)", *passed, "clhist_next"], "        ", f" {chr(92)}")})
void clhist_map(
${wrapped([*(argument.parameter for argument in spec.arguments), "const clhist_index_t i", *state])})
{
    ${spec.map};
}

__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_pairs(
${wrapped([parameter.declaration for parameter in kernel_parameters])})
{
${types.arrays(spec)}\
    const uint clhist_item = get_global_id(0), clhist_items = get_global_size(0);
% if spec.order == "blocked":
    const uint clhist_stop = (ulong)clhist_size * (clhist_item + 1) / clhist_items;
    for (uint i = (ulong)clhist_size * clhist_item / clhist_items; i < clhist_stop; ++i) {
% else:
    for (uint i = clhist_item; i < (uint)clhist_size; i += clhist_items) {
% endif
        const uint clhist_first = ${"i / (uint)clhist_histogram_size * clhist_num_bins" if spec.feature(BatchChunks) else "0"};
        const uint clhist_end = (i + 1) * ${max_pairs};
        uint clhist_next = i * ${max_pairs};
        for (uint k = clhist_next; k < clhist_end; ++k)
            clhist_positions[k] = k;
        clhist_map(
${wrapped([*arguments, "(int)i", *passed, "&clhist_next"], "            ")});
        for (; clhist_next < clhist_end; ++clhist_next)
            clhist_keys[clhist_next] = clhist_no_bin;
    }
}
