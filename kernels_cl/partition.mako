## Partitioning (a multisplit): groups the pairs of a map by ranges of bins that fit local memory. A work-group takes one
## tile of ${spec.tile} elements, groups its pairs in local memory and writes them to its own region; `clhist_starts` records where
## each partition begins in it. A bin is stored as its 16-bit offset in its partition; 0xffff marks padding.
## Pairs are counted before they are placed: to keep the place of each, found while counting, took more registers.
<%namespace name="types" file="types.mako"/>
<%!
    from clhist.codegen.state import wrapped
    from clhist.planning.packed import Guarded
%>\
<%
    sweep, output, s = spec.sweep, spec.sweep.outputs[0], spec.sweep.outputs[0].suffix
    group, lanes, most, counters, padding = sweep.work_group_size, sweep.vector_width, spec.most, spec.counters, spec.padding
    loads = spec.elements // lanes
    items = [(load, lane) for load in range(loads) for lane in range(lanes)]
    room = spec.tile + padding * most
    value_t = f"value{s}_t"
    ## PoCL's compiler loses structs of more than 16 bytes that live across barriers, so these live as words.
    words = -(-spec.value_bytes // 4) if spec.has_values and output.operator.dtype.names is not None else 0
    known = {}
    state = "clhist_bin_t *clhist_bin" + f", {value_t} *clhist_value" * spec.has_values

    def part(bin):
        """The partition of a bin: a division by the width of partitions, as a multiplication."""
        return f"(mul_hi({bin}, clhist_magic) >> clhist_shift)"
%>
// Partitioning: the pairs of a tile of ${spec.tile} elements are grouped by ranges of bins, in a region of their own.
// A bin is stored as 16 bits, its number within the range; 0xffff is no bin.
${types.prologue(sweep, preamble_of, known)}
${types.caller_code(sweep, declare, known)}
% if words:
typedef union { ${value_t} value; uint words[${words}]; } clhist_union_t;
% endif

void clhist_put(const clhist_bin_t bin, const ${value_t} value, ${state})
{
    *clhist_bin = bin;
% if spec.has_values:
    *clhist_value = value;
% endif
}
#define EMIT${s}(bin, value) clhist_put(CLHIST_BIN(bin), (value), clhist_bin${", clhist_value" * spec.has_values})
void clhist_map(
${wrapped([*sweep.map_parameters(), "const clhist_index_t i", state])})
{
    ${map_body};
}

// Counts the pairs of each partition in a tile, then puts each pair in its place.
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void clhist_split(
${wrapped([parameter.declaration for parameter in split_parameters])})
{
% if guarded := sweep.feature(Guarded):
${local.get_namespace(guarded.template).leave(guarded)}
% endif
${types.arrays(sweep)}\
    __local uint clhist_counts[${most * counters}];
    __local uint clhist_ends[${most}];
    __local uint4 clhist_staged_bins[${room * 2 // 16}];
    __local ushort *clhist_places = (__local ushort *)clhist_staged_bins;
% if spec.has_values:
    __local uint4 clhist_staged_values[${-(-room * spec.value_bytes // 16)}];
    __local ${value_t} *clhist_values = (__local ${value_t} *)clhist_staged_values;
% endif
    const uint clhist_lane = get_local_id(0), clhist_tile = get_group_id(0);
    for (uint k = clhist_lane; k < clhist_partitions * ${counters}; k += ${group})
        clhist_counts[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // before pairs are counted
    const clhist_index_t clhist_start = (clhist_index_t)clhist_tile * ${spec.tile};
    const clhist_index_t clhist_own_start = clhist_start + (clhist_index_t)clhist_lane * ${lanes};
    const bool clhist_is_full = clhist_size - clhist_start >= ${spec.tile};
    // All loads, before the first element is used.
% for argument in sweep.streamed:
% for load in range(loads):
<%
    kind, name = c_name(argument.dtype) + (str(lanes) if lanes > 1 else ""), f"clhist_{argument.name}_{load}"
    first = load * group * lanes
%>\
    ${kind} ${name} = 0;
    if (clhist_is_full) {
        ${name} = *(__global const ${kind} *)(${argument.name} + clhist_own_start + ${first});
    } else {
% for lane in range(lanes):
        if (clhist_own_start + ${first + lane} < clhist_size)
            ${name}${f".s{lane:x}" if lanes > 1 else ""} = ${argument.name}[clhist_own_start + ${first + lane}];
% endfor
    }
% endfor
% endfor
% for n, (load, lane) in enumerate(items):
<%
    index = f"clhist_own_start + {load * group * lanes + lane}"
    of = f".s{lane:x}" if lanes > 1 else ""
    given = ", ".join([*sweep.map_arguments(lambda a: f"clhist_{a.name}_{load}{of}"), index])
%>\
    clhist_bin_t clhist_bin_${n} = ~(clhist_bin_t)0;
% if words:
    uint ${", ".join(f"clhist_value_{n}_{k}" for k in range(words))};
    {
        clhist_union_t emitted = {.words = {0}};
        if (${index} < clhist_size)
            clhist_map(${given}, &clhist_bin_${n}, &emitted.value);
% for k in range(words):
        clhist_value_${n}_${k} = emitted.words[${k}];
% endfor
    }
% else:
% if spec.has_values:
    ${value_t} clhist_value_${n};
% endif
    if (${index} < clhist_size)
        clhist_map(${given}, &clhist_bin_${n}${f", &clhist_value_{n}" * spec.has_values});
% endif
    if (clhist_bin_${n} < clhist_num_bins)
        atomic_inc(clhist_counts + ${part(f"clhist_bin_{n}")} * ${counters} + clhist_lane % ${counters});
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);

    // Exclusive sums: where each partition begins, rounded up for wide loads, and within it the pairs of each counter.
    uint clhist_total = 0;
    if (clhist_lane < clhist_partitions) {
        for (uint k = 0; k < ${counters}; ++k) {
            // Neighbouring partitions start at different counters, and so in different banks.
            const uint counter = clhist_lane * ${counters} + (clhist_lane + k) % ${counters};
            const uint count = clhist_counts[counter];
            clhist_counts[counter] = clhist_total;
            clhist_total += count;
        }
    }
    const uint clhist_padded = (clhist_total + ${padding - 1}) / ${padding} * ${padding};
    if (clhist_lane < ${most})
        clhist_ends[clhist_lane] = clhist_padded;
    barrier(CLK_LOCAL_MEM_FENCE);
${scan("clhist_ends", most)}
    if (clhist_lane < clhist_partitions) {
        const uint begin = clhist_ends[clhist_lane] - clhist_padded;
        clhist_starts[(ulong)clhist_lane * clhist_tiles + clhist_tile] = begin;
        if (clhist_lane + 1 == clhist_partitions)
            clhist_starts[(ulong)clhist_partitions * clhist_tiles + clhist_tile] = begin + clhist_padded;
        for (uint k = begin + clhist_total; k < begin + clhist_padded; ++k)
            clhist_places[k] = 0xffff;
% if spec.has_values:
#ifdef CLHIST_CHECKED  // what nobody looks at is written, and so should be something
        for (uint k = begin + clhist_total; k < begin + clhist_padded; ++k)
            clhist_values[k] = (${value_t}){0};
#endif
% endif
        for (uint k = 0; k < ${counters}; ++k)
            clhist_counts[clhist_lane * ${counters} + (clhist_lane + k) % ${counters}] += begin;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% for n, _ in enumerate(items):
    if (clhist_bin_${n} < clhist_num_bins) {
        const uint partition = ${part(f"clhist_bin_{n}")};
        const uint at = atomic_inc(clhist_counts + partition * ${counters} + clhist_lane % ${counters});
        clhist_places[at] = (ushort)(clhist_bin_${n} - partition * clhist_width);
% if words:
        const clhist_union_t emitted = {.words = {${", ".join(f"clhist_value_{n}_{k}" for k in range(words))}}};
        clhist_values[at] = emitted.value;
% elif spec.has_values:
        clhist_values[at] = clhist_value_${n};
% endif
    }
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint clhist_all = clhist_ends[clhist_partitions - 1];
    __global uint4 *clhist_to = (__global uint4 *)(clhist_pairs + clhist_bins_place + (ulong)clhist_tile * ${room * 2});
    for (uint k = clhist_lane; k < clhist_all * 2 / 16; k += ${group})
        clhist_to[k] = clhist_staged_bins[k];
% if spec.has_values:
    clhist_to = (__global uint4 *)(clhist_pairs + clhist_values_place + (ulong)clhist_tile * ${room * spec.value_bytes});
    for (uint k = clhist_lane; k < clhist_all * ${spec.value_bytes} / 16; k += ${group})
        clhist_to[k] = clhist_staged_values[k];
% endif
}

<% group = spec.index_group %>\
uint clhist_cost(const uint pairs)
{
    return pairs > 0 ? pairs + ${spec.segment_cost} : 0;
}

// One work-group for each partition adds up what its pairs cost, in pairs: before each tile, and in all.
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void clhist_index(
${wrapped([parameter.declaration for parameter in index_parameters])})
{
% if guarded := sweep.feature(Guarded):
${local.get_namespace(guarded.template).leave(guarded)}
% endif
    __local uint clhist_ends[${group}];
    const uint clhist_lane = get_local_id(0);
    const ulong clhist_row = (ulong)get_group_id(0) * clhist_tiles;
    const uint clhist_first = (ulong)clhist_tiles * clhist_lane / ${group};
    const uint clhist_last = (ulong)clhist_tiles * (clhist_lane + 1) / ${group};
    uint clhist_own = 0;
    for (uint tile = clhist_first; tile < clhist_last; ++tile) {
        const ulong at = clhist_row + tile;
        clhist_own += clhist_cost(clhist_starts[at + clhist_tiles] - clhist_starts[at]);
    }
    clhist_ends[clhist_lane] = clhist_own;
    barrier(CLK_LOCAL_MEM_FENCE);
${scan("clhist_ends", group)}
    uint clhist_before = clhist_ends[clhist_lane] - clhist_own;
    for (uint tile = clhist_first; tile < clhist_last; ++tile) {
        clhist_sums[clhist_row + tile] = clhist_before;
        const ulong at = clhist_row + tile;
        clhist_before += clhist_cost(clhist_starts[at + clhist_tiles] - clhist_starts[at]);
    }
    if (clhist_lane == ${group - 1})
        clhist_totals[get_group_id(0)] = clhist_ends[clhist_lane];
}

## Inclusive sums of the first `size` words of a local array; `size` is a power of two, at most the number of work-items.
<%def name="scan(name, size)">
<% span = 1 %>\
% while span < size:
    {
        const uint before = clhist_lane >= ${span} && clhist_lane < ${size} ? ${name}[clhist_lane - ${span}] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (clhist_lane < ${size})
            ${name}[clhist_lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
<% span *= 2 %>\
% endwhile
</%def>
