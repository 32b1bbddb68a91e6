## The copies of a work-group in local memory, or of its teams, and how they reach global memory.
##
##   one pool for a work-group (`clhist_pool`):
##     | cells of part 0: team 0, team 1, .. | cells of part 1 | .. | locks |
##     cells of a team, bin-major:  bin 0: copy 0 copy 1 .. | bin 1: copy 0 copy 1 .. | ..
##     Neighbouring work-items use different copies, so they collide neither in a bin nor in a bank.
##
##   global memory (`clhist_all`):  | work-group 0: bin 0 .. H-1 | work-group 1 | ..
##
## `flush` combines the copies of a team and writes one copy to global memory.
##
## Part of sweep.mako. Declarations of the arrays: clhist/_core/kernels/local_memory.py. Plans: LocalPlan and those on it. Paper: SC'20, section III, equations 1 to 6. Decision 0007.
<%namespace name="section" file="section.mako"/>
<%!
    from clhist._core.kernels.sweep_code import result_of_copy
    from clhist._core.kernels.local_memory import arrays_in_pool, barrier_before_next_share, own_locks
%>\
## The memory of the copies: the cells of each part for all teams, then the locks.
<%def name="memory()">
    __local uchar clhist_pool[${spec.capacity}] __attribute__((aligned(16)));
    // The copies of a bin are neighbours, so that neighbouring work-items collide neither in a bin nor in a bank.
${arrays_in_pool(state)}
${state.all_copies}
</%def>

## The cells that this work-item updates, and the number of the lock of its bin 0.
<%def name="cells_and_locks()">
${state.for_each_part("    __local cell{n}_t *clhist_cells{n} = clhist_own{n} + clhist_lane % clhist_copies;")}
${own_locks(state)}
</%def>

## Sets the copies to the neutral element.
<%def name="initialise()">
${state.for_each_part("""
    for (uint k = clhist_lane; k < (uint)clhist_count{s} * clhist_copies; k += {team})
        clhist_own{n}[k].value = clhist_neutral{n}();""", team=spec.team_size)}
${state.for_each_part("""
    for (uint k = get_local_id(0); k < clhist_num_locks{n}; k += {group})
        clhist_locks{n}[k] = 0;""", state.locked, group=spec.work_group_size)}
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set
</%def>

## Combines the local copies of each team and writes one copy to global memory.
<%def name="flush()">

    // Store: the copies of ${"each team" if spec.teams > 1 else "the work-group"}, combined, in global memory.
    barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
% if state.has_section("store"):
${section.fill("store", capture(copied))}
% else:
${copied()}
% endif
${barrier_before_next_share(state)}
</%def>

<%def name="copied()">
% for part in parts:
${flush_part(part.n, part.output.suffix, spec.team_size)}
% endfor
</%def>

<%def name="flush_part(n, s, team)">
    {
${result_of_copy(state, n, s)}
        // crew: work-items of a bin, member: number within it, steps: copies that each adds up before the tree below.
        // With few bins, a power of two of neighbouring work-items shares the copies of one bin.
        uint clhist_crew = 1;
        while (2 * clhist_crew * (uint)clhist_bins_per_pass${s} <= ${team} && 2 * clhist_crew <= clhist_copies)
            clhist_crew *= 2;
        const uint clhist_member = clhist_lane % clhist_crew;
        const uint clhist_steps = (clhist_copies + clhist_crew - 1) / clhist_crew;
        for (uint k = clhist_lane / clhist_crew; k < clhist_count${s}; k += ${team} / clhist_crew) {
            if (clhist_copies == 1) {
                clhist_result[k].value = ${state.counted(n, f"clhist_own{n}[k].value")};
                continue;
            }
            // Neighbouring bins start at different copies, and so in different banks.
            uint step = k % clhist_steps;
            part${n}_t total = clhist_neutral${n}();
            for (uint s = 0; s < clhist_steps; ++s) {
                const uint copy = clhist_member + step * clhist_crew;
                if (copy < clhist_copies)
                    total = clhist_combine${n}(total, clhist_own${n}[k * clhist_copies + copy].value);
                step = step + 1 < clhist_steps ? step + 1 : 0;
            }
            if (clhist_crew == 1)
                clhist_result[k].value = ${state.counted(n, "total")};
            else  // a copy that nobody else reads
                clhist_own${n}[k * clhist_copies + clhist_member].value = total;
        }
% if team > 1:
        for (uint span = clhist_crew / 2; span > 0; span /= 2) {
            // Barrier: the members to add must have stored their totals.
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint k = clhist_lane / clhist_crew;
            if (k < clhist_count${s} && clhist_member < span) {
                __local cell${n}_t *mine = clhist_own${n} + k * clhist_copies + clhist_member;
                mine->value = clhist_combine${n}(mine->value, mine[span].value);
                if (span == 1)
                    clhist_result[k].value = ${state.counted(n, "mine->value")};
            }
        }
% endif
    }
</%def>
