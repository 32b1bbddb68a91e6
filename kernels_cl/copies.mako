## The copies that one sweep updates: in local memory a pool with the cells and locks of each team, which one flush
## combines and writes to global memory; otherwise the cells in global memory itself.
<%namespace name="section" file="section.mako"/>
## Layout of the pool: the cells of each part for all teams, then the locks.
## Bin-major: the copies of a bin are neighbours, so neighbouring work-items collide neither in a bin nor in a bank.
<%def name="pool()">
<%
    team, in_pool = spec.team_size, [*(part.n for part in parts), *(-1 for _ in state.locked)]
    several = len(in_pool) > 1
%>\
    __local uchar clhist_pool[${spec.capacity}] __attribute__((aligned(16)));
% if spec.replaces_cells:
${section.fill("pool")}
% else:
    // The copies of a bin are neighbours, so that neighbouring work-items collide neither in a bin nor in a bank.
% if several:
    uint clhist_room = 0;
% endif
% if spec.teams > 1:
    const uint clhist_team_number = get_local_id(0) / ${team};
% endif
% for k, part in enumerate(parts):
<%
    n, alignment = part.n, state.end_alignment(part)
    is_last = k + 1 == len(in_pool)
    begin = f"(__local cell{n}_t *)" + ("(clhist_pool + clhist_room)" if several else "clhist_pool")
    own = f" + clhist_team_number * clhist_cells_of_team{n}" if spec.teams > 1 else ""
    teams = f" * {spec.teams}" if spec.teams > 1 else ""
%>\
% if own or not is_last:
    const uint clhist_cells_of_team${n} = (uint)clhist_bins_per_pass${part.output.suffix} * clhist_copies;
% endif
    __local cell${n}_t *clhist_own${n} = ${begin}${own};
% if not is_last:
    clhist_room += clhist_cells_of_team${n}${teams} * (uint)sizeof(cell${n}_t);
    clhist_room = (clhist_room + ${alignment - 1}) / ${alignment} * ${alignment};
% endif
% endfor
% for part in state.locked:
<% teams = f" * {spec.teams}" if spec.teams > 1 else "" %>\
    volatile __local int *clhist_locks${part.n} = (volatile __local int *)(clhist_pool + clhist_room);
    const uint clhist_num_locks${part.n} = min(clhist_lock_mask, clhist_cells_of_team${part.n}${teams} - 1) + 1;
% if part is not state.locked[-1]:
    clhist_room += clhist_num_locks${part.n} * (uint)sizeof(int);
% endif
% endfor
% endif
</%def>

## The arrays in scratch memory: all copies of each part, and the locks of those that are updated there.
<%def name="arrays()">
% for part in parts:
    __global cell${part.n}_t *clhist_all${part.n} = (__global cell${part.n}_t *)(clhist_scratch + clhist_place${part.n});
% endfor
% if not state.is_local:
% for part in state.locked:
    volatile __global int *clhist_locks${part.n}
        = (volatile __global int *)(clhist_scratch + clhist_lock_place${part.n});
% endfor
% endif
</%def>

## The bins of this pass: a range.
<%def name="bins()">
% for output in spec.outputs:
<% s = output.suffix %>\
% if state.taken("range_of_bins"):
${section.fill("range_of_bins", s)}
% else:
    const clhist_bin_t clhist_first${s} = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass${s};
    const clhist_bin_t clhist_count${s} = ${"clhist_is_open && " * state.has_tasks}clhist_first${s} < clhist_num_bins${s}
        ? min(clhist_bins_per_pass${s}, clhist_num_bins${s} - clhist_first${s}) : 0;
% endif
% endfor
</%def>

## The cells that this work-item updates, and the number of the lock of its bin 0.
<%def name="cells_and_locks()">
% if spec.replaces_cells:
${section.fill("cells")}
% else:
% for part in parts:
% if state.is_local:
    __local cell${part.n}_t *clhist_cells${part.n} = clhist_own${part.n} + clhist_lane % clhist_copies;
% else:
    __global cell${part.n}_t *clhist_cells${part.n}
        = clhist_all${part.n} + clhist_slot * ${state.stride(part.output.suffix)} + clhist_first${part.output.suffix};
% endif
% endfor
% for s in state.locked_suffixes:
% if state.is_local:
<% team = f"clhist_team_number * (uint)clhist_bins_per_pass{s} * clhist_copies + " if spec.teams > 1 else "" %>\
    const uint clhist_lock_base${s} = ${team}clhist_lane % clhist_copies;
% else:
    const ulong clhist_lock_base${s} = clhist_slot * clhist_num_bins${s} + clhist_first${s};
% endif
% endfor
% endif
</%def>

## Sets the copies to the neutral element. Shared copies in global memory were cleared by another kernel.
<%def name="initialise()">
% if state.is_local:
% if spec.replaces_cells:
${section.fill("initialise")}
% else:
% for part in parts:
    for (uint k = clhist_lane; k < (uint)clhist_count${part.output.suffix} * clhist_copies; k += ${spec.team_size})
        clhist_own${part.n}[k].value = clhist_neutral${part.n}();
% endfor
% for part in state.locked:
    for (uint k = get_local_id(0); k < clhist_num_locks${part.n}; k += ${spec.work_group_size})
        clhist_locks${part.n}[k] = 0;
% endfor
% endif
${section.fill("initialise_more")}
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set
% elif state.is_private:
% if spec.block:
<% s = spec.outputs[0].suffix %>\
    // Behind the bins there is one for each pass, which takes what is not in the pass.
    const clhist_bin_t clhist_spare = clhist_num_bins${s} + (clhist_bin_t)get_group_id(1) - clhist_first${s};
% endif
% for part in parts:
<%
    s, n = part.output.suffix, part.n
    turn = f"(size_t)turn * {state.stride(s)} + " if state.takes_turns else ""
%>\
% if state.takes_turns:
    for (uint turn = 0; turn < clhist_turns; ++turn) {
        for (clhist_bin_t k = 0; k < clhist_count${s}; ++k)
            clhist_cells${n}[${turn}k].value = clhist_neutral${n}();
% if spec.block:
        clhist_cells${n}[${turn}clhist_spare].value = clhist_neutral${n}();
% endif
    }
% elif spec.order == "interleaved":
## clspv makes pointers of the other loop's index, and then rejects their comparison.
    for (clhist_bin_t k = 0; k < clhist_bins_per_pass${s}; ++k)
        if (k < clhist_count${s})
            clhist_cells${n}[k].value = clhist_neutral${n}();
% else:
    for (clhist_bin_t k = 0; k < clhist_count${s}; ++k)
        clhist_cells${n}[k].value = clhist_neutral${n}();
% if spec.block:
    clhist_cells${n}[clhist_spare].value = clhist_neutral${n}();
% endif
% endif
% endfor
% endif
</%def>

## Combines the local copies of each team and writes one copy to global memory.
<%def name="flush()">
    barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
% if spec.replaces_cells:
${section.fill("flush")}
% else:
% if state.taken("store"):
${section.fill("store", capture(copied))}
% else:
${copied()}
% endif
% endif
% if state.has_tasks or state.is_partitioned:
    barrier(CLK_LOCAL_MEM_FENCE);  // before the next share sets the cells
% endif
</%def>

<%def name="copied()">
% for part in parts:
${flush_part(part.n, part.output.suffix, spec.team_size)}
% endfor
</%def>

<%def name="flush_part(n, s, team)">
    {
% if state.taken("first_result"):
${section.fill("first_result", n, s)}
% else:
        __global cell${n}_t *clhist_result = clhist_all${n} + clhist_slot * clhist_num_bins${s} + clhist_first${s};
% endif
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
