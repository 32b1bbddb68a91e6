## The sweep over the input: every element is mapped to (bin, value) pairs, and each pair updates one copy of its bin.
## A launch has work-groups along dimension 0 and passes, each over its own range of bins, along dimension 1.
<%namespace name="update" file="update.mako"/>
<%
    local = spec.memory == "local"
    space = "__local" if local else "__global"
    locked = spec.update == "lock"
    BLOCK = 4096
    index_t, bin_t = ("long", "ulong") if spec.wide else ("int", "uint")

    def parameters(streamed_as_values):
        """What the map sees of the caller's arguments."""
        for argument in spec.arguments:
            if argument in streamed and streamed_as_values:
                yield f"const {argument.c_type} clhist_{argument.name}"
            else:
                yield argument.parameter

    def arguments(element):
        """The same in a call; `element` gives the C expression of a streamed argument's element."""
        for argument in spec.arguments:
            yield element(argument) if argument in streamed else argument.name

    state = [f"{space} cell_t *clhist_cells", f"const {bin_t} clhist_first", f"const {bin_t} clhist_count"]
    passed = ["clhist_cells", "clhist_first", "clhist_count"]
    if local:
        state.append("const uint clhist_copies")
        passed.append("clhist_copies")
    if locked:
        state.append(f"volatile {space} int *clhist_locks")
        passed.append("clhist_locks")
    state, passed = ", ".join(state), ", ".join(passed)
    cell = "bin * clhist_copies" if local else "bin"
%>
<%include file="operator.mako" args="operator=spec.operator, declare=declare, c_name=c_name, word=word"/>
% if word == "ulong" or spec.update == "native":
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
% endif
% if spec.update == "private":
${update.private(space)}
% elif spec.update == "native":
${update.native(space, atomic)}
% elif spec.update == "cas":
${update.cas(space, "atomic_cmpxchg" if word == "uint" else "atom_cmpxchg")}
% else:
${update.lock(space, fence)}
% endif

typedef ${index_t} clhist_index_t;
typedef ${bin_t} clhist_bin_t;

## A negative bin becomes one that is larger than every histogram.
% if spec.wide:
#define CLHIST_BIN(bin) ((clhist_bin_t)(long)(bin))
% else:
clhist_bin_t clhist_narrow(const long bin)
{
    return (ulong)bin < 0xfffffffful ? (clhist_bin_t)bin : 0xffffffffu;
}
#define CLHIST_BIN(bin) (sizeof(bin) > 4 ? clhist_narrow((long)(bin)) : (clhist_bin_t)(int)(bin))
% endif

void clhist_emit(const clhist_bin_t target, const value_t value, ${state})
{
    const clhist_bin_t bin = target - clhist_first;  // unsigned: what lies before the first is beyond the last
    if (bin < clhist_count)
        clhist_update(clhist_cells + ${cell}, ${f"clhist_locks + {cell}, " if locked else ""}clhist_lift(value));
}

% for name, dtype in spec.structs:
${declare(dtype, name)}
% endfor
${spec.preamble}

% if spec.reach:
## The largest bin is looked for apart from the updates, which leaves both loops simple enough for compilers to do well.
#define EMIT(bin, value) (clhist_reach = max(clhist_reach, CLHIST_BIN(bin)))
clhist_bin_t clhist_largest(${", ".join([*parameters(True), "const clhist_index_t i"])})
{
    clhist_bin_t clhist_reach = 0;
    ${map_body};
    return clhist_reach;
}
#undef EMIT
% endif

#define EMIT(bin, value) clhist_emit(CLHIST_BIN(bin), (value), ${passed})
void clhist_map(${", ".join([*parameters(True), "const clhist_index_t i", state])})
{
    ${map_body};
}

__kernel __attribute__((reqd_work_group_size(${spec.work_group_size}, 1, 1)))
void clhist_sweep(${"".join(f"{argument.kernel_parameter}, " for argument in spec.arguments)}
                  const clhist_index_t clhist_size, const clhist_bin_t clhist_num_bins,
                  const clhist_bin_t clhist_bins_per_pass, const uint clhist_copies,
                  __global cell_t *clhist_global_cells, volatile __global int *clhist_global_locks,
                  volatile __global clhist_bin_t *clhist_global_reach)
{
% for argument in spec.arguments:
% if argument.is_array:
    ${argument.parameter} = (${argument.pointer})((__global const char *)${argument.name}__base + ${argument.name}__offset);
% endif
% endfor
    const size_t clhist_item = get_global_id(0), clhist_items = get_global_size(0);
    const clhist_bin_t clhist_first = (clhist_bin_t)get_group_id(1) * clhist_bins_per_pass;
    const clhist_bin_t clhist_count
        = clhist_first < clhist_num_bins ? min(clhist_bins_per_pass, clhist_num_bins - clhist_first) : 0;
% if spec.reach:
    clhist_bin_t clhist_reach = 0;
% endif

% if local:
    ## Bin-major: the copies of a bin are neighbours, so neighbouring work-items meet neither in a bin nor in a bank.
    __local cell_t clhist_group_cells[${spec.capacity}];
    const uint clhist_lane = get_local_id(0);
    const uint clhist_in_use = (uint)clhist_count * clhist_copies;
    __local cell_t *clhist_cells = clhist_group_cells + clhist_lane % clhist_copies;
% if locked:
    __local int clhist_group_locks[${spec.capacity}];
    volatile __local int *clhist_locks = clhist_group_locks + clhist_lane % clhist_copies;
% endif
    for (uint k = clhist_lane; k < clhist_in_use; k += ${spec.work_group_size}) {
        clhist_group_cells[k].value = clhist_neutral();
% if locked:
        clhist_group_locks[k] = 0;
% endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% else:
    const size_t clhist_copy = clhist_item * clhist_copies / clhist_items;
    __global cell_t *clhist_cells = clhist_global_cells + clhist_copy * clhist_num_bins + clhist_first;
% if locked:
    volatile __global int *clhist_locks = clhist_global_locks + clhist_copy * clhist_num_bins + clhist_first;
% endif
% if spec.update == "private":
    for (clhist_bin_t k = 0; k < clhist_count; ++k)
        clhist_cells[k].value = clhist_neutral();
% endif
% endif

% if spec.order == "blocked":
    const clhist_index_t clhist_last = (clhist_index_t)((ulong)clhist_size * (clhist_item + 1) / clhist_items);
    clhist_index_t clhist_start = (clhist_index_t)((ulong)clhist_size * clhist_item / clhist_items);
    while (clhist_start < clhist_last) {
        ## A block stays in the first-level cache between the loops.
        const clhist_index_t clhist_end = ${f"min(clhist_last, clhist_start + {BLOCK})" if spec.reach else "clhist_last"};
% if spec.reach:
        for (clhist_index_t i = clhist_start; i < clhist_end; ++i)
            clhist_reach = max(clhist_reach, clhist_largest(${", ".join([*arguments(lambda a: f"{a.name}[i]"), "i"])}));
% endif
        for (clhist_index_t i = clhist_start; i < clhist_end; ++i)
            clhist_map(${", ".join([*arguments(lambda a: f"{a.name}[i]"), "i", passed])});
        clhist_start = clhist_end;
    }
% else:
<%
    lanes = spec.vector_width
    loads = spec.loads
    tile = spec.work_group_size * lanes * loads
%>
    clhist_index_t clhist_done = 0;
% if lanes * loads > 1:
    ## Wide loads, several in flight before the first of their elements is used.
    const clhist_index_t clhist_tiles = clhist_size / ${tile};
    for (clhist_index_t clhist_tile = get_group_id(0); clhist_tile < clhist_tiles; clhist_tile += get_num_groups(0)) {
        const clhist_index_t clhist_start = clhist_tile * ${tile} + (clhist_index_t)get_local_id(0) * ${lanes};
% for load in range(loads):
% for argument in streamed:
<% kind = c_name(argument.dtype) + (str(lanes) if lanes > 1 else "") %>\
        const ${kind} clhist_${argument.name}_${load}
            = *(__global const ${kind} *)(${argument.name} + clhist_start + ${load * lanes * spec.work_group_size});
% endfor
% endfor
% for load in range(loads):
% for lane in range(lanes):
<% part = f".s{lane:x}" if lanes > 1 else "" %>\
<% element = [*arguments(lambda a: f"clhist_{a.name}_{load}{part}"), f"clhist_start + {load * lanes * spec.work_group_size + lane}"] %>\
% if spec.reach:
        clhist_reach = max(clhist_reach, clhist_largest(${", ".join(element)}));
% endif
        clhist_map(${", ".join([*element, passed])});
% if spec.converges:
        __asm__ volatile("bar.warp.sync 0xffffffff;");
% endif
% endfor
% endfor
    }
    clhist_done = clhist_tiles * ${tile};
% endif
    for (clhist_index_t i = clhist_done + (clhist_index_t)clhist_item; i < clhist_size; i += (clhist_index_t)clhist_items) {
% if spec.reach:
        clhist_reach = max(clhist_reach, clhist_largest(${", ".join([*arguments(lambda a: f"{a.name}[i]"), "i"])}));
% endif
        clhist_map(${", ".join([*arguments(lambda a: f"{a.name}[i]"), "i", passed])});
    }
% endif
% if spec.reach:

    if (clhist_reach > *clhist_global_reach)
        atomic_max(clhist_global_reach, clhist_reach);
% endif
% if local:

    barrier(CLK_LOCAL_MEM_FENCE);
    __global cell_t *clhist_result = clhist_global_cells + get_group_id(0) * (size_t)clhist_num_bins + clhist_first;
    ## With few bins several neighbouring work-items, a power of two, combine the copies of one bin between them.
    uint clhist_team = 1;
    while (2 * clhist_team * (uint)clhist_count <= ${spec.work_group_size} && 2 * clhist_team <= clhist_copies)
        clhist_team *= 2;
    const uint clhist_member = clhist_lane % clhist_team;
    const uint clhist_steps = (clhist_copies + clhist_team - 1) / clhist_team;
    for (uint k = clhist_lane / clhist_team; k < clhist_count; k += ${spec.work_group_size} / clhist_team) {
        if (clhist_copies == 1) {
            clhist_result[k].value = clhist_group_cells[k].value;
            continue;
        }
        ## Neighbouring bins start at different copies, and so in different banks.
        uint step = k % clhist_steps;
        accumulator_t total = clhist_neutral();
        for (uint s = 0; s < clhist_steps; ++s) {
            const uint copy = clhist_member + step * clhist_team;
            if (copy < clhist_copies)
                total = clhist_combine(total, clhist_group_cells[k * clhist_copies + copy].value);
            step = step + 1 < clhist_steps ? step + 1 : 0;
        }
        if (clhist_team == 1)
            clhist_result[k].value = total;
        else  // a copy that nobody else reads
            clhist_group_cells[k * clhist_copies + clhist_member].value = total;
    }
% if spec.work_group_size > 1:
    for (uint span = clhist_team / 2; span > 0; span /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint k = clhist_lane / clhist_team;
        if (k < clhist_count && clhist_member < span) {
            __local cell_t *mine = clhist_group_cells + k * clhist_copies + clhist_member;
            mine->value = clhist_combine(mine->value, mine[span].value);
            if (span == 1)
                clhist_result[k].value = mine->value;
        }
    }
% endif
% endif
}
