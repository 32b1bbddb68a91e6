## The sweep over the input: every element is mapped to (bin, value) pairs, and each pair updates one copy of its bin.
## A launch has work-groups along dimension 0 and passes, each over its own range of bins, along dimension 1.
## Several outputs, each a histogram with an operator of its own, may be filled by one sweep; an output's operator may be
## a product, whose parts lie in arrays of their own and are updated each by itself.
## If the pairs were partitioned (partition.mako), a work-group has a share of them, which lies in one partition or more.
## In a batch a work-group is divided into teams, and each team has a task: a chunk of one histogram's elements.
<%namespace name="operators" file="operator.mako"/>
<%namespace name="update" file="update.mako"/>
<%
    local = spec.memory == "local"
    space = "__local" if local else "__global"
    private = spec.update == "private"
    locked = [part for part in parts if part.update == "lock"]
    team = spec.team_size
    BLOCK = 4096
    MOST_VOTES = 8  # after so many values of other bins a bin that was met often is given up
    bin_t = "ulong" if spec.wide else "uint"
    lock_t = "uint" if local else "ulong"

    ## What an update must know besides bin and value: declarations and names.
    state = []
    for output in spec.outputs:
        state += [(f"const {bin_t}", f"clhist_first{output.suffix}"), (f"const {bin_t}", f"clhist_count{output.suffix}")]
        if any(part.output is output for part in locked):
            state.append((f"const {lock_t}", f"clhist_lock_base{output.suffix}"))
    for part in parts:
        state.append((f"{space} cell{part.n}_t *", f"clhist_cells{part.n}"))
    for part in locked:
        state.append((f"volatile {space} int *", f"clhist_locks{part.n}"))
    if local:
        state.append(("const uint", "clhist_copies"))
    if locked:
        state.append((f"const {lock_t}", "clhist_lock_mask"))
    if spec.packed:
        state = [(f"const {bin_t}", f"clhist_count{spec.outputs[0].suffix}"), ("__local uint *", "clhist_words"),
                 ("__global uint *", "clhist_beyond")]
    if spec.holds:
        state += [("clhist_bin_t *", "clhist_held_bin"), (f"accumulator{output.suffix}_t *", "clhist_held")]
    if spec.holds and not local:
        state.append(("uint *", "clhist_votes"))
    flat = spec.batch == "flat"
    segments = spec.batch == "segments"
    batch = spec.batch in ("even", "table")
    if flat:
        state += [(f"const {bin_t}", f"clhist_bins_each{output.suffix}") for output in spec.outputs]
    declared, passed = ", ".join(f"{kind} {name}" for kind, name in state), ", ".join(name for _, name in state)
    known = {}

    def alignment(part):
        """Where the next array begins: others of cells suit all types, locks follow."""
        return 4 if part is parts[-1] else 16

    cell = "bin * clhist_copies" if local else "bin"

    def lock_of(part):
        """The argument of an update that needs a lock."""
        suffix = part.output.suffix
        return f"clhist_locks{part.n} + (({cell} + clhist_lock_base{suffix}) & clhist_lock_mask), " if part.update == "lock" else ""

    def unless_neutral(part):
        """The condition of an update: bits of a product are mostly flags, and mostly none is set."""
        is_flag = part.part.accessor and part.part.operation == "bitwise_or"
        return f"if (lifted{part.part.accessor} != 0) " if is_flag else ""

    def element(value, index):
        """The arguments of the map for one element."""
        histogram = [f"(clhist_bin_t)(({index}) / (clhist_index_t)clhist_each)"] if flat else []
        return ", ".join([*spec.map_arguments(value), index, *histogram])

    ## The histogram that an element of a flat batch belongs to.
    whose = ["const clhist_bin_t clhist_histogram"] if flat else []
%>
% if any(output.operator.needs_fp64 for output in (*spec.outputs, *spec.ignored)):
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if any(part.part.cell_bytes == 8 or part.update == "native" for part in parts):
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
% endif
% for output in (*spec.outputs, *spec.ignored):
${operators.types(output.operator, output.suffix, declare, known)}
% endfor

${operators.bins(spec.wide)}
${operators.look()}
% for output in spec.ignored:
% if preamble_of[output]:
#define value_t value${output.suffix}_t
#define accumulator_t accumulator${output.suffix}_t
${preamble_of[output]}
#undef value_t
#undef accumulator_t
% endif
% endfor
% for output in spec.outputs:
<%operators:functions operator="${output.operator}" suffix="${output.suffix}" preamble="${preamble_of[output]}">
% for part in parts:
% if part.output is output:
${operators.part(part.part, part.n, c_name)}
% if part.update == "private":
${update.private(part.n, space, bins_are_computed)}
% elif part.update == "native":
${update.native(part.n, space, part.atomic)}
% elif part.update == "cas":
${update.cas(part.n, space, "atomic_cmpxchg" if part.part.cell_bytes == 4 else "atom_cmpxchg")}
% else:
${update.guarded(part.n, space, part.part)}
${update.lock(part.n, space, fence)}
% endif
% if spec.holds and local:
% if part.update == "lock":
${update.try_lock(part.n, space, fence)}
% else:
${update.try_cas(part.n, space, "atomic_cmpxchg" if part.part.cell_bytes == 4 else "atom_cmpxchg")}
% endif
% endif
% endif
% endfor
</%operators:functions>
% endfor

% if spec.packed:
${counters_of_16_bits(spec.outputs[0].suffix)}
% endif
% for output in [] if spec.packed else spec.outputs:
<% s = output.suffix %>\
void clhist_update_bin${s}(const clhist_bin_t bin, const accumulator${s}_t lifted, ${declared})
{
% for part in parts:
% if part.output is output:
    ${unless_neutral(part)}clhist_update${part.n}(clhist_cells${part.n} + ${cell}, ${lock_of(part)}lifted${part.part.accessor});
% endif
% endfor
}

% if spec.holds:
${hold(s)}
% endif
void clhist_emit${s}(const clhist_bin_t target, const value${s}_t value, ${declared})
{
    const clhist_bin_t bin = target - clhist_first${s};  // unsigned: what lies before the first is beyond the last
    if (bin < clhist_count${s}) {
% if spec.holds:
        clhist_hold(bin, clhist_lift${s}(value), ${passed});
% else:
        clhist_update_bin${s}(bin, clhist_lift${s}(value), ${passed});
% endif
    }
}
% endfor

${operators.before_the_map(spec, declare, known)}
% if spec.reach:
## The largest bin is looked for apart from the updates, which leaves both loops simple enough for compilers to do well.
#define EMIT(bin, value) (clhist_reach = max(clhist_reach, CLHIST_BIN(bin)))
clhist_bin_t clhist_largest(${", ".join([*spec.map_parameters(), "const clhist_index_t i"])})
{
    clhist_bin_t clhist_reach = 0;
    ${map_body};
    return clhist_reach;
}
#undef EMIT
% endif

% if flat:
clhist_bin_t clhist_flat(const clhist_bin_t bin, const clhist_bin_t bins, const clhist_bin_t histogram)
{
    return bin < bins ? histogram * bins + bin : ~(clhist_bin_t)0;
}
% endif
% for output in spec.outputs:
<% bin = f"clhist_flat(CLHIST_BIN(bin), clhist_bins_each{output.suffix}, clhist_histogram)" if flat else "CLHIST_BIN(bin)" %>\
#define EMIT${output.suffix}(bin, value) clhist_emit${output.suffix}(${bin}, (value), ${passed})
% endfor
void clhist_map(${", ".join([*spec.map_parameters(), "const clhist_index_t i", *whose, declared])})
{
    ${map_body};
}

% if spec.batch == "even":
ulong clhist_part(const ulong each, const ulong chunk, const ulong chunks)
{
    return chunks == 1 ? each * chunk : each * chunk / chunks;
}

% endif
% if segments:
## The work-group that the element number `place` of all belongs to.
uint clhist_group_of(const ulong place, const ulong all, const uint groups)
{
    return all == 0 ? 0 : min((uint)(place * groups / all), groups - 1);
}

% endif
__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_sweep(${", ".join(parameter.declaration for parameter in kernel_parameters)})
{
% for argument in spec.arguments:
% if argument.is_array:
    ${argument.parameter} = (${argument.pointer})((__global const char *)${argument.name}__base + ${argument.name}__offset);
% endif
% endfor
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
% if spec.holds:
    clhist_bin_t clhist_held_bin[1];
    accumulator${spec.outputs[0].suffix}_t clhist_held[1];
% if not local:
    uint clhist_votes[1];
% endif
% endif
    const uint clhist_lane = get_local_id(0)${"" if team == spec.work_group_size else f" % {team}"};
% if spec.reach:
    clhist_bin_t clhist_reach = 0;
% endif
% if local:
    ## Bin-major: the copies of a bin are neighbours, so neighbouring work-items meet neither in a bin nor in a bank.
    ## Each team has its own copies.
    __local uchar clhist_pool[${spec.capacity}] __attribute__((aligned(16)));
    uint clhist_room = 0;
    const uint clhist_team_number = get_local_id(0) / ${team};
% if spec.packed:
    __local uint *clhist_words = (__local uint *)clhist_pool;
% endif
% for part in [] if spec.packed else parts:
    const uint clhist_cells_of_team${part.n} = (uint)clhist_bins_per_pass${part.output.suffix} * clhist_copies;
    __local cell${part.n}_t *clhist_own${part.n}
        = (__local cell${part.n}_t *)(clhist_pool + clhist_room) + clhist_team_number * clhist_cells_of_team${part.n};
    clhist_room += clhist_cells_of_team${part.n} * ${spec.teams} * (uint)sizeof(cell${part.n}_t);
    clhist_room = (clhist_room + ${alignment(part) - 1}) / ${alignment(part)} * ${alignment(part)};
% endfor
% for part in locked:
    volatile __local int *clhist_locks${part.n} = (volatile __local int *)(clhist_pool + clhist_room);
    const uint clhist_num_locks${part.n} = min(clhist_lock_mask, clhist_cells_of_team${part.n} * ${spec.teams} - 1) + 1;
    clhist_room += clhist_num_locks${part.n} * (uint)sizeof(int);
% endfor
% endif
% for part in parts:
    __global cell${part.n}_t *clhist_all${part.n} = (__global cell${part.n}_t *)(clhist_scratch + clhist_place${part.n});
% endfor
% if not local:
% for part in locked:
    volatile __global int *clhist_locks${part.n} = (volatile __global int *)(clhist_scratch + clhist_lock_place${part.n});
% endfor
% endif

% if batch:
    ## As many rounds for every team, since barriers are met by all.
    const ulong clhist_teams = clhist_items / ${team};
    const ulong clhist_rounds = (clhist_tasks + clhist_teams - 1) / clhist_teams;
    for (ulong clhist_round = 0; clhist_round < clhist_rounds; ++clhist_round) {
    const ulong clhist_task = clhist_round * clhist_teams + clhist_item / ${team};
    const bool clhist_is_open = clhist_task < clhist_tasks;
% if spec.batch == "table":
    __global const clhist_index_t *clhist_row = clhist_table + 3 * (clhist_is_open ? clhist_task : 0);
    const clhist_index_t clhist_begin = clhist_row[0], clhist_end = clhist_is_open ? clhist_row[1] : clhist_begin;
    const ulong clhist_histogram = (ulong)clhist_row[2];
% else:
    ## Divisions of 64 bits are slow: mostly there is one chunk of each histogram.
    const ulong clhist_histogram = clhist_chunks == 1 ? clhist_task : clhist_task / clhist_chunks;
    const ulong clhist_chunk = clhist_task - clhist_histogram * clhist_chunks;
    const clhist_index_t clhist_begin
        = clhist_is_open ? (clhist_index_t)(clhist_histogram * clhist_each + clhist_part(clhist_each, clhist_chunk, clhist_chunks)) : 0;
    const clhist_index_t clhist_end
        = clhist_is_open ? (clhist_index_t)(clhist_histogram * clhist_each + clhist_part(clhist_each, clhist_chunk + 1, clhist_chunks)) : 0;
% endif
    const clhist_index_t clhist_rank = 0, clhist_ranks = 1;
% if local or private:
    const size_t clhist_slot = clhist_is_open ? clhist_task : 0;
% else:
    const size_t clhist_slot = clhist_is_open ? clhist_histogram * clhist_copies
        + clhist_task % clhist_copies : 0;
% endif
% elif segments:
    ## Each partition has a copy for each work-group whose share begins, lies or ends in it: those of a partition follow
    ## one another, and a work-group that ends one partition and begins the next has one of each.
    const uint clhist_group = get_group_id(0), clhist_groups = get_num_groups(0);
    ## In the pool, since together with another array it may be more than a device has.
    __local uint *clhist_range = (__local uint *)(clhist_pool + ${spec.capacity - 8});
    ulong clhist_all = 0;
    for (uint k = 0; k < clhist_partitions; ++k)
        clhist_all += clhist_totals[k];
    if (clhist_group == 0 && clhist_lane == 0) {
        ulong before = 0;
        for (uint k = 0; k < clhist_partitions; ++k) {
            clhist_whose[k] = clhist_group_of(before, clhist_all, clhist_groups) + k;
            before += clhist_totals[k];
        }
        clhist_whose[clhist_partitions] = clhist_group_of(before, clhist_all, clhist_groups) + clhist_partitions;
    }
    const ulong clhist_from = (clhist_group * clhist_all + clhist_groups - 1) / clhist_groups;
    const ulong clhist_to = ((clhist_group + 1) * clhist_all + clhist_groups - 1) / clhist_groups;
    ulong clhist_before = 0;
    uint clhist_part = 0;
    while (clhist_part + 1 < clhist_partitions
           && clhist_group_of(clhist_before + clhist_totals[clhist_part], clhist_all, clhist_groups) < clhist_group)
        clhist_before += clhist_totals[clhist_part++];
    for (; clhist_part < clhist_partitions && clhist_group_of(clhist_before, clhist_all, clhist_groups) <= clhist_group; ++clhist_part) {
    const ulong clhist_after = clhist_before + clhist_totals[clhist_part];
    const bool clhist_is_open = true;
    const size_t clhist_slot = clhist_group + clhist_part;
% else:
    const bool clhist_is_open = true;
    const clhist_index_t clhist_begin = 0, clhist_end = clhist_size;
    const clhist_index_t clhist_rank = (clhist_index_t)get_group_id(0), clhist_ranks = (clhist_index_t)get_num_groups(0);
    const size_t clhist_slot = ${"get_group_id(0)" if local else "clhist_item * clhist_copies / clhist_items"};
% endif

% for output in spec.outputs:
<% s = output.suffix %>\
    const clhist_bin_t clhist_first${s} = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass${s};
    const clhist_bin_t clhist_count${s} = clhist_is_open && clhist_first${s} < clhist_num_bins${s}
        ? min(clhist_bins_per_pass${s}, clhist_num_bins${s} - clhist_first${s}) : 0;
% endfor
% if spec.packed:
    __global uint *clhist_beyond
        = (__global uint *)clhist_all0 + (size_t)get_num_groups(0) * clhist_num_bins${spec.outputs[0].suffix};
% endif
% for part in [] if spec.packed else parts:
<% s = part.output.suffix %>\
% if local:
    __local cell${part.n}_t *clhist_cells${part.n} = clhist_own${part.n} + clhist_lane % clhist_copies;
% else:
    __global cell${part.n}_t *clhist_cells${part.n} = clhist_all${part.n} + clhist_slot * clhist_num_bins${s} + clhist_first${s};
% endif
% endfor
% for output in spec.outputs:
% if any(part.output is output for part in locked):
<% s = output.suffix %>\
% if local:
    const uint clhist_lock_base${s} = clhist_team_number * (uint)clhist_bins_per_pass${s} * clhist_copies + clhist_lane % clhist_copies;
% else:
    const ulong clhist_lock_base${s} = clhist_slot * clhist_num_bins${s} + clhist_first${s};
% endif
% endif
% endfor

% if local:
% if spec.packed:
    for (uint k = clhist_lane; k < (clhist_count${spec.outputs[0].suffix} + 1) / 2; k += ${team})
        clhist_words[k] = 0;
% endif
% for part in [] if spec.packed else parts:
    for (uint k = clhist_lane; k < (uint)clhist_count${part.output.suffix} * clhist_copies; k += ${team})
        clhist_own${part.n}[k].value = clhist_neutral${part.n}();
% endfor
% for part in locked:
    for (uint k = get_local_id(0); k < clhist_num_locks${part.n}; k += ${spec.work_group_size})
        clhist_locks${part.n}[k] = 0;
% endfor
% if segments:
    if (clhist_lane == 0)
        clhist_range[0] = clhist_range[1] = clhist_tiles;
% endif
    barrier(CLK_LOCAL_MEM_FENCE);
% elif private:
% for part in parts:
    for (clhist_bin_t k = 0; k < clhist_count${part.output.suffix}; ++k)
        clhist_cells${part.n}[k].value = clhist_neutral${part.n}();
% endfor
% endif

% if not segments:
${hold_nothing()}
% endif
% if segments:
${segments_of_share()}
% elif spec.order == "blocked":
% if batch:
    clhist_index_t clhist_start = clhist_begin + (clhist_index_t)((ulong)(clhist_end - clhist_begin) * clhist_lane / ${team});
    const clhist_index_t clhist_last = clhist_begin + (clhist_index_t)((ulong)(clhist_end - clhist_begin) * (clhist_lane + 1) / ${team});
% else:
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    clhist_index_t clhist_start = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);
% endif
    while (clhist_start < clhist_last) {
        ## A block stays in the first-level cache between the loops.
        const clhist_index_t clhist_stop = ${f"min(clhist_last, clhist_start + {BLOCK})" if spec.reach else "clhist_last"};
% if spec.reach:
        for (clhist_index_t i = clhist_start; i < clhist_stop; ++i)
            clhist_reach = max(clhist_reach, clhist_largest(${element(lambda a: f"{a.name}[i]", "i")}));
% endif
        for (clhist_index_t i = clhist_start; i < clhist_stop; ++i)
            clhist_map(${element(lambda a: f"{a.name}[i]", "i")}, ${passed});
        clhist_start = clhist_stop;
    }
% else:
<%
    lanes = spec.vector_width
    loads = spec.loads
    tile = team * lanes * loads
%>
    clhist_index_t clhist_done = clhist_begin;
% if lanes * loads > 1:
% if batch:
    ## What lies before the first wide load.
    clhist_done = min(clhist_end, (clhist_begin + ${lanes - 1}) / ${lanes} * ${lanes});
    for (clhist_index_t i = clhist_begin + (clhist_index_t)clhist_lane; i < clhist_done; i += ${team})
        clhist_map(${element(lambda a: f"{a.name}[i]", "i")}, ${passed});
% endif
    ## Wide loads, several in flight before the first of their elements is used.
    const clhist_index_t clhist_tiles = (clhist_end - clhist_done) / ${tile};
    for (clhist_index_t clhist_tile = clhist_rank; clhist_tile < clhist_tiles; clhist_tile += clhist_ranks) {
        const clhist_index_t clhist_start = clhist_done + clhist_tile * ${tile} + (clhist_index_t)clhist_lane * ${lanes};
% for load in range(loads):
% for argument in streamed:
<% kind = c_name(argument.dtype) + (str(lanes) if lanes > 1 else "") %>\
        const ${kind} clhist_${argument.name}_${load}
            = *(__global const ${kind} *)(${argument.name} + clhist_start + ${load * lanes * team});
% endfor
% endfor
% for load in range(loads):
% for lane in range(lanes):
<% lane_of = f".s{lane:x}" if lanes > 1 else "" %>\
<% these = element(lambda a: f"clhist_{a.name}_{load}{lane_of}", f"clhist_start + {load * lanes * team + lane}") %>\
% if spec.reach:
        clhist_reach = max(clhist_reach, clhist_largest(${these}));
% endif
        clhist_map(${these}, ${passed});
% if spec.converges:
        __asm__ volatile("bar.warp.sync 0xffffffff;");
% endif
% endfor
% endfor
    }
    clhist_done += clhist_tiles * ${tile};
% endif
    for (clhist_index_t i = clhist_done + clhist_rank * ${team} + (clhist_index_t)clhist_lane; i < clhist_end; i += clhist_ranks * ${team}) {
% if spec.reach:
        clhist_reach = max(clhist_reach, clhist_largest(${element(lambda a: f"{a.name}[i]", "i")}));
% endif
        clhist_map(${element(lambda a: f"{a.name}[i]", "i")}, ${passed});
    }
% endif
% if spec.holds:
    if (*clhist_held_bin < clhist_count${spec.outputs[0].suffix})
        clhist_update_bin${spec.outputs[0].suffix}(*clhist_held_bin, *clhist_held, ${passed});
% endif
% if spec.reach:

    if (clhist_reach > CLHIST_LOOK(atomic_cmpxchg, clhist_global_reach))
        atomic_max(clhist_global_reach, clhist_reach);
% endif
% if local:

    barrier(CLK_LOCAL_MEM_FENCE);
% if spec.packed:
    __global cell0_t *clhist_result = clhist_all0 + clhist_slot * clhist_num_bins${spec.outputs[0].suffix};
    for (uint k = clhist_lane; k < clhist_count${spec.outputs[0].suffix}; k += ${team})
        clhist_result[k].word = clhist_words[k / 2] >> k % 2 * 16 & 0xffff;
% endif
% for part in [] if spec.packed else parts:
${flush(part.n, part.output.suffix, team)}
% endfor
% if batch or segments:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% endif
% if segments:
    clhist_before = clhist_after;
% endif
% if batch or segments:
    }
% endif
}

## The pairs of a share that lie in one partition: whole tiles, those that begin in it. `clhist_span` work-items read the
## pairs of a tile; all of them go through as many rounds, so that those of a warp stay together.
<%def name="segments_of_share()">
<% lanes = spec.vector_width %>\
    {
    const ulong from = max(clhist_from, clhist_before) - clhist_before;
    const ulong to = max(min(clhist_to, clhist_after), clhist_before) - clhist_before;
    __global const uint *sums = clhist_sums + (ulong)clhist_part * clhist_tiles;
    ## The first tile that begins at `from` or later, and the first at `to` or later: one work-item finds each.
    for (uint tile = clhist_lane; tile < clhist_tiles; tile += ${spec.work_group_size}) {
        const ulong sum = sums[tile], before = tile > 0 ? sums[tile - 1] : 0;
        if (sum >= from && (tile == 0 || before < from))
            clhist_range[0] = tile;
        if (sum >= to && (tile == 0 || before < to))
            clhist_range[1] = tile;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
${hold_nothing()}
    __global const uint *starts = clhist_starts + (ulong)clhist_part * clhist_tiles;
    const uint last_tile = clhist_range[1];
    for (uint tile = clhist_range[0] + clhist_lane / clhist_span; tile < last_tile; tile += ${spec.work_group_size} / clhist_span) {
        const uint end = starts[clhist_tiles + tile];
        const clhist_index_t region = (clhist_index_t)(tile * clhist_region);
        for (uint round = starts[tile]; round < end; round += clhist_span * ${lanes}) {
            const uint at = round + clhist_lane % clhist_span * ${lanes};
            const bool is_inside = at < end;
            const clhist_index_t first = region + (is_inside ? at : round);
% for argument in streamed:
<% kind = c_name(argument.dtype) + (str(lanes) if lanes > 1 else "") %>\
            ${kind} clhist_${argument.name}_now = *(__global const ${kind} *)(${argument.name} + first);
% endfor
            if (!is_inside)
                clhist_${spec.arguments[0].name}_now = ${f"({c_name(spec.arguments[0].dtype)}{lanes})(0xffff)" if lanes > 1 else "0xffff"};
% for lane in range(lanes):
            clhist_map(${element(lambda a: f"clhist_{a.name}_now" + (f".s{lane:x}" if lanes > 1 else ""), f"first + {lane}")}, ${passed});
% if spec.converges:
            __asm__ volatile("bar.warp.sync 0xffffffff;");
% endif
% endfor
        }
    }
    }
</%def>

## Two counters in a word. A work-item that finds half of what a counter can hold moves that half to global memory, or
## waits until another has: so each is ahead by one at most, and no counter runs into its neighbour.
<%def name="counters_of_16_bits(s)">
void clhist_emit${s}(const clhist_bin_t bin, const value${s}_t value, ${declared})
{
    if (bin < clhist_count${s}) {
        volatile __local uint *word = clhist_words + bin / 2;
        const uint shift = bin % 2 * 16;
        uint seen = atomic_add(word, 1u << shift) + (1u << shift);
        while (seen >> shift & 0x8000) {
            const uint found = atomic_cmpxchg(word, seen, seen - (0x8000u << shift));
            if (found == seen) {
                atomic_add(clhist_beyond + bin, 0x8000u);
                break;
            }
            seen = found;
        }
    }
}
</%def>

## Behind the last barrier before the updates: PoCL's compiler loses large structs that are kept across one.
<%def name="hold_nothing()">
% if spec.holds:
    *clhist_held_bin = ~(clhist_bin_t)0;
% if not local:
    *clhist_votes = 0;
% endif
% for part in parts:
    (*clhist_held)${part.part.accessor} = clhist_neutral${part.n}();
% endfor
% endif
</%def>

## Updates of one bin by many work-items wait for each other. So each work-item holds one bin, and combines by itself what
## it meets of it. In local memory that is a bin whose update did not succeed at once; in global memory, where any update
## takes long, it is chosen by votes: every value of the bin that is held is for it, every other one against it.
<%def name="hold(s)">
void clhist_hold(clhist_bin_t bin, accumulator${s}_t lifted, ${declared})
{
    if (bin == *clhist_held_bin) {
% for part in parts:
        (*clhist_held)${part.part.accessor} = clhist_combine${part.n}((*clhist_held)${part.part.accessor}, lifted${part.part.accessor});
% endfor
% if not local:
        *clhist_votes = min(*clhist_votes + 1, ${MOST_VOTES}u);
% endif
        return;
    }
% if local:
    if (clhist_try${parts[0].n}(clhist_cells${parts[0].n} + ${cell}, ${lock_of(parts[0])}lifted))
        return;
% else:
    if (*clhist_votes > 0) {
        *clhist_votes -= 1;
        clhist_update_bin${s}(bin, lifted, ${passed});
        return;
    }
    *clhist_votes = 1;
% endif
    const clhist_bin_t before = *clhist_held_bin;
    const accumulator${s}_t total = *clhist_held;
    *clhist_held_bin = bin;
    *clhist_held = lifted;
    if (before < clhist_count${s})  // not so of the bin that is held before the first
        clhist_update_bin${s}(before, total, ${passed});
}
</%def>

## The copies of a team become one in global memory.
<%def name="flush(n, s, team)">
    {
    __global cell${n}_t *clhist_result = clhist_all${n} + clhist_slot * clhist_num_bins${s} + clhist_first${s};
    ## With few bins several neighbouring work-items, a power of two, combine the copies of one bin between them.
    uint clhist_crew = 1;
    while (2 * clhist_crew * (uint)clhist_bins_per_pass${s} <= ${team} && 2 * clhist_crew <= clhist_copies)
        clhist_crew *= 2;
    const uint clhist_member = clhist_lane % clhist_crew;
    const uint clhist_steps = (clhist_copies + clhist_crew - 1) / clhist_crew;
    for (uint k = clhist_lane / clhist_crew; k < clhist_count${s}; k += ${team} / clhist_crew) {
        if (clhist_copies == 1) {
            clhist_result[k].value = clhist_own${n}[k].value;
            continue;
        }
        ## Neighbouring bins start at different copies, and so in different banks.
        uint step = k % clhist_steps;
        part${n}_t total = clhist_neutral${n}();
        for (uint s = 0; s < clhist_steps; ++s) {
            const uint copy = clhist_member + step * clhist_crew;
            if (copy < clhist_copies)
                total = clhist_combine${n}(total, clhist_own${n}[k * clhist_copies + copy].value);
            step = step + 1 < clhist_steps ? step + 1 : 0;
        }
        if (clhist_crew == 1)
            clhist_result[k].value = total;
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
                clhist_result[k].value = mine->value;
        }
    }
% endif
    }
</%def>
