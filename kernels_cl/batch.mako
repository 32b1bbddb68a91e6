## Batches of histograms: each team of a work-group takes one task at a time, a chunk of one histogram's
## elements.
##
##   elements     | histogram 0          | histogram 1   | histogram 2 ..
##   tasks        | t0     | t1    | t2  | t3     | t4   | ..
##   equal        a task's chunk is computed from its number
##   ragged       `clhist_table` has | first element | end | histogram | of each task
##
## A flat batch is one histogram of all bins instead, where the index of an element tells its histogram.
##
## Features: Chunks (BatchedPlan), FlatBatch (FlattenedPlan), clhist/_core/model/batch.py. Paper: SC'20,
## section IV-C. Note [Batches], docs/decisions/0007.
<%!
    from textwrap import indent
%>
<%def name="target(feature)">
// The bin of a histogram of the batch among the bins of all.
clhist_bin_t clhist_flat(const clhist_bin_t bin, const clhist_bin_t bins, const clhist_bin_t histogram)
{
    return bin < bins ? histogram * bins + bin : ~(clhist_bin_t)0;
}
</%def>

<%def name="helpers(feature)">
% if feature.equal_shares:
// Where a chunk of a histogram begins, counted from its first element.
ulong clhist_part(const ulong size, const ulong chunk, const ulong chunks)
{
    return chunks == 1 ? size * chunk : size * chunk / chunks;
}
% endif
</%def>

## The loop over the tasks of a team, in which `share` is what is done with each.
<%def name="shares(feature, share)">
    // Each team takes a task at a time. All go through as many rounds, since every work-item must reach the barriers.
    const ulong clhist_teams = clhist_items / ${spec.team_size};
    const ulong clhist_rounds = (clhist_tasks + clhist_teams - 1) / clhist_teams;
    for (ulong clhist_round = 0; clhist_round < clhist_rounds; ++clhist_round) {
        const ulong clhist_task = clhist_round * clhist_teams + clhist_item / ${spec.team_size};
        const bool clhist_is_open = clhist_task < clhist_tasks;
% if not feature.equal_shares:
        __global const clhist_index_t *clhist_row = clhist_table + 3 * (clhist_is_open ? clhist_task : 0);
        const clhist_index_t clhist_begin = clhist_row[0], clhist_end = clhist_is_open ? clhist_row[1] : clhist_begin;
        const ulong clhist_histogram = (ulong)clhist_row[2];
% else:
        // Divisions of 64 bits are slow, and one chunk of a histogram is the usual case.
        const ulong clhist_histogram = clhist_chunks == 1 ? clhist_task : clhist_task / clhist_chunks;
        const ulong clhist_chunk = clhist_task - clhist_histogram * clhist_chunks;
        const ulong clhist_from = clhist_histogram * clhist_histogram_size;
        const clhist_index_t clhist_begin = clhist_is_open
            ? (clhist_index_t)(clhist_from + clhist_part(clhist_histogram_size, clhist_chunk, clhist_chunks)) : 0;
        const clhist_index_t clhist_end = clhist_is_open
            ? (clhist_index_t)(clhist_from + clhist_part(clhist_histogram_size, clhist_chunk + 1, clhist_chunks)) : 0;
% endif
% if state.is_local or state.is_private:
        const size_t clhist_slot = clhist_is_open ? clhist_task : 0;
% else:
        const size_t clhist_slot = clhist_is_open ? clhist_histogram * clhist_copies + clhist_task % clhist_copies : 0;
% endif
${indent(share, "    ")}
    }
</%def>
