## Packed counters of W bits: 32 / W counters share a word of local memory, so that many more bins fit. The
## words are written to global memory as they are. A spill, which a counter cannot hold, is added by bin to a
## small table of the work-group.
##
##   word in local memory   | bin 3 | bin 2 | bin 1 | bin 0 |          W = 8
##   global memory          | flag | spills of each group | tables of (bin, amount) | words of each group |
##
## Plan: PackedPlan (clhist/_core/model/packed.py), with whole counters behind it (`robust`). Decision 0006.
## Not in SC'20.
##
## Exact for every interleaving, without waiting. An addition to a word that carries out of some field is seen
## by one work-item alone, in what its own atomic returned. It adds 2^W to the spills of that field's bin, and
## takes the carry back from the field above by another atomic, of which the same is true with borrows for
## carries. So after each step
##     field + spills = updates of the bin + carries into the field that are still to be taken back
## and each step that is still owed is of a higher field than the one before: after 32 / W of them none is
## left.
##
## A work-group that spills more bins than its table holds, or too often, raises a flag: the kernels behind
## then count all again in whole counters. The flag needs no clearing before, since anything but one number
## means "down"; the second stage lowers it. Should it have that number by chance, all is counted again, which
## is right as well. Note [No clearing of the flag], docs/decisions/0006.
<%!
    from clhist._core.kernels.striped import RUN
    from clhist._core.model.feature import CALL_WORDS, RAISED, SAMPLE, PackedCounters

    FREE = 0xFFFFFFFF  # no bin
    MOST_TRIES = 32
%>\
## The functions of the sweep, as emit.mako has them.
<%def name="functions()">
<% feature, s = spec.feature(PackedCounters), spec.outputs[0].suffix %>\
<% bits, fields, table_bits = feature.bits, feature.bins_per_word, feature.table_bits(spec.capacity) %>\
// An update of which it is not known yet whether it carried.
typedef struct { clhist_bin_t bin; uint seen; } clhist_pending_t;

// Counts what a counter cannot hold, by bin; too much of it raises the flag.
void clhist_spill${s}(const clhist_bin_t bin, const uint amount, CLHIST_STATE_PARAMETERS)
{
    const uint key = (uint)(clhist_first${s} + bin);
    uint place = key & clhist_table_size - 1;
    // Atomic: counts the spills of the work-group, which beyond a limit gives up.
    uint tries = atomic_inc(clhist_spills) < clhist_most_spills ? clhist_table_size : 0;
    for (bool is_there = false; tries > 0 && !is_there;) {
        // Atomic: one of several work-items takes a free slot (open addressing).
        const uint found = atomic_cmpxchg(clhist_table + 2 * place, ${hex(FREE)}u, key);
        is_there = found == ${hex(FREE)}u || found == key;
        tries -= is_there ? 0 : 1;
        place = is_there ? place : place + 1 & clhist_table_size - 1;
    }
    if (tries > 0) {
        atomic_add(clhist_table + 2 * place + 1, amount);
    } else {
        // A maximum, since others may increment meanwhile. The flag may be stored by many: all store the same.
        atomic_max(clhist_spills, clhist_most_spills + 1);
        CLHIST_RELAXED_STORE(atomic_xchg, clhist_flag, ${hex(RAISED)}u);
    }
}

// Takes back the carries of the addition to the counter of `bin`, which returned `seen`.
## Inlined 16 times it took compilers long.
__attribute__((noinline))
void clhist_carry${s}(const clhist_bin_t bin, uint seen, CLHIST_STATE_PARAMETERS)
{
    uint added = 1u << (uint)(bin % ${fields}) * ${bits};
    volatile __local uint *word = clhist_words + bin / ${fields};
    const clhist_bin_t lowest = bin / ${fields} * ${fields};
    bool is_borrowed = false;
    while (added) {
        const uint now = is_borrowed ? seen - added : seen + added;
        const uint into = seen ^ added ^ now;  // the bits that a carry or a borrow went into
        uint back = 0;
        for (uint field = 0; field < ${fields}; ++field) {
            const uint above = ${bits} * (field + 1);
            const bool is_out = above < 32 ? into >> above & 1 : is_borrowed ? seen < added : now < seen;
            if (is_out) {
                clhist_spill${s}(lowest + field, is_borrowed ? -${1 << bits}u : ${1 << bits}u, CLHIST_STATE);
                back |= above < 32 ? 1u << above : 0;
            }
        }
        added = back;
        is_borrowed = !is_borrowed;
        // Atomic: its result shows the carries, or borrows, that this step causes in turn.
        if (added)
            seen = is_borrowed ? atomic_sub(word, added) : atomic_add(word, added);
    }
}

// Adds 1 to the counter of a bin of this pass; whether that carried is asked later.
void clhist_emit${s}(
    const clhist_bin_t target, const value${s}_t value, ${state.map_declared})
{
    const clhist_bin_t bin = target - clhist_first${s};  // unsigned: what lies before the first is beyond the last
    clhist_pending->bin = bin;
    // Atomic: the result is kept, to find the carry later while further atomics are under way. The cast makes the shift one
    // of 32 bits where bins have 64.
    if (bin < clhist_count${s})
        clhist_pending->seen = atomic_add(clhist_words + bin / ${fields}, 1u << (uint)(bin % ${fields}) * ${bits});
}

// Whether the counter was full, so that the addition carried.
bool clhist_is_full(const clhist_pending_t pending)
{
    return (pending.seen >> (uint)(pending.bin % ${fields}) * ${bits} & ${hex((1 << bits) - 1)}) == ${hex((1 << bits) - 1)};
}

// Looks ahead at a bin. Those seen are kept by hashing, and behind them how often each came again. `clhist_seen` has
// the pairs of bins that exist, how many were the first of their bin, and how often at most a bin came again.
void clhist_look_at(
    const clhist_bin_t target, const clhist_bin_t num_bins, volatile __local uint *clhist_bins_seen, uint *clhist_seen)
{
    const uint key = (uint)target + 1;
    bool is_looking = target < num_bins, is_first = is_looking;
    clhist_seen[0] += is_looking;
    uint place = key * 2654435761u >> ${32 - table_bits};
    uint at = place;
    for (uint tried = 0; tried < ${MOST_TRIES} && is_looking; ++tried) {
        at = place;
        uint found = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_bins_seen + place);
        if (found == 0)
            found = atomic_cmpxchg(clhist_bins_seen + place, 0, key);
        is_looking = found != 0 && found != key;
        is_first = found != key;
        place = (place + 1) % ${1 << table_bits};
    }
    clhist_seen[1] += is_first;
    if (target < num_bins && !is_first)
        clhist_seen[2] = max(clhist_seen[2], atomic_inc(clhist_bins_seen + ${1 << table_bits} + at) + 1);
}
</%def>

## The map of an element that is only looked at.
<%def name="maps()">
<% s = spec.outputs[0].suffix %>\
// The same for an element that is only looked at.
#undef EMIT${s}
#define EMIT${s}(bin, value) ((void)(value), clhist_look_at(CLHIST_BIN(bin), clhist_limit, clhist_words, clhist_seen))
void clhist_map_ahead(
${state.wrapped(state.map_parameters)},
    const clhist_bin_t clhist_limit, volatile __local uint *clhist_words, uint *clhist_seen)
{
    ${map_body};
}
</%def>

## The copies of a work-group, as copies_local.mako has them.
<%def name="memory()">
    __local uchar clhist_pool[${spec.capacity}] __attribute__((aligned(16)));
    // Behind the words: how often the group spilled, and what it found when it looked ahead.
    volatile __local uint *clhist_words = (volatile __local uint *)clhist_pool;
    volatile __local uint *clhist_spills = (volatile __local uint *)(clhist_pool + ${spec.capacity - 4});
    volatile __local uint *clhist_totals = (volatile __local uint *)(clhist_pool + ${spec.capacity - 16});
${state.all_copies}
</%def>

<%def name="cells_and_locks()">
    // In scratch memory: the flag, how often each work-group spilled, its table of bins and amounts, and its words.
    volatile __global uint *clhist_flag = (volatile __global uint *)clhist_all0;
    const uint clhist_all_groups = get_num_groups(0) * get_num_groups(1);
    const size_t clhist_group_number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
    __global uint *clhist_spilled = (__global uint *)clhist_all0 + ${CALL_WORDS};
    volatile __global uint *clhist_table
        = clhist_spilled + clhist_all_groups + 2 * clhist_group_number * clhist_table_size;
</%def>

<%def name="records(groups)">((size_t)${groups} * (1 + 2 * (size_t)clhist_table_size) + ${CALL_WORDS} + 7) / 8 * 8</%def>

<%def name="initialise()">
<% feature = spec.feature(PackedCounters) %>\
<% s, fields, table_bits = spec.outputs[0].suffix, feature.bins_per_word, feature.table_bits(spec.capacity) %>\
    // Looks at a few elements of the whole input, the same in each work-group: if too few of them are the first of
    // their bin, or one comes again too often, counters would spill, and whole ones are taken at once.
    if (clhist_lane == 0) {
        *clhist_spills = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag) == ${hex(RAISED)}u ? clhist_most_spills + 1 : 0;
        clhist_totals[0] = clhist_totals[1] = clhist_totals[2] = 0;
    }
    for (uint k = clhist_lane; k < ${2 << table_bits}; k += ${spec.team_size})
        clhist_words[k] = 0;
    for (uint k = clhist_lane; k < 2 * clhist_table_size; k += ${spec.team_size})
        clhist_table[k] = k % 2 ? 0 : ${hex(FREE)}u;
    // Barrier: table and words are set, and work-item 0 has read the flag, before any work-item looks ahead.
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    {
        uint clhist_seen[3] = {0, 0, 0};
        // Runs of neighbours, evenly spread.
        const clhist_index_t clhist_apart = clhist_size / ${SAMPLE // RUN};
        for (uint clhist_k = clhist_lane; clhist_k < ${SAMPLE}; clhist_k += ${spec.team_size}) {
            const clhist_index_t i = clhist_apart < ${RUN}
                ? (clhist_index_t)clhist_k : clhist_k / ${RUN} * clhist_apart + clhist_k % ${RUN};
            if (i < clhist_size)
                clhist_map_ahead(${state.next_element}, clhist_num_bins${s}, clhist_words, clhist_seen);
        }
        atomic_add(clhist_totals, clhist_seen[0]);
        atomic_add(clhist_totals + 1, clhist_seen[1]);
        atomic_max(clhist_totals + 2, clhist_seen[2]);
    }
    // Barrier: all have added what they have seen.
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool clhist_is_hot = clhist_totals[2] >= clhist_most_alike
        || ((ulong)clhist_totals[1] << 16) < (ulong)clhist_totals[0] * clhist_least_distinct;
    if (clhist_lane == 0 && clhist_is_hot) {
        CLHIST_RELAXED_STORE(atomic_xchg, clhist_flag, ${hex(RAISED)}u);
        *clhist_spills = clhist_most_spills + 1;
    }
    // Barrier: work-item 0 has decided; all leave, or none.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*clhist_spills > clhist_most_spills)
        return;
    for (uint k = clhist_lane; k < (clhist_count${s} + ${fields - 1}) / ${fields}; k += ${spec.team_size})
        clhist_words[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item updates a cell that another one has set
</%def>

<%def name="flush()">
<% feature = spec.feature(PackedCounters) %>\
<% s, fields = spec.outputs[0].suffix, feature.bins_per_word %>\

    // Store: the copies of the work-group, combined, in global memory.
    barrier(CLK_LOCAL_MEM_FENCE);  // before what others have updated is read
    // Words go to global memory as they are; whether the group gave up, the flag says.
    if (*clhist_spills > clhist_most_spills)
        return;
    if (clhist_lane == 0)
        clhist_spilled[clhist_group_number] = *clhist_spills;
    __global uint *clhist_row = (__global uint *)clhist_all0
        + ${records("clhist_all_groups")}
        + clhist_slot * ((clhist_num_bins${s} + ${fields - 1}) / ${fields}) + clhist_first${s} / ${fields};
    for (uint k = clhist_lane; k < (clhist_count${s} + ${fields - 1}) / ${fields}; k += ${spec.team_size})
        clhist_row[k] = clhist_words[k];
</%def>

## The second stage: work-items add a row's words in lanes of 16 bits, several of them those of each word.
<%def name="combine(feature)">
<%
    bits, fields, columns, rows = feature.bits, feature.bins_per_word, spec.columns, spec.rows
    lanes = max(1, fields // 2)  # words that hold the sums of two counters each; of one, with counters of 16 bits
    mask = ((1 << bits) - 1) * 0x10001
    bins = columns * fields
    parts = max(1, rows // fields)  # sums of whole copies of each bin
%>\
    // The flag, how often each work-group spilled, their tables, and their words.
    __global uint *call = (__global uint *)(clhist_scratch + clhist_packed_place);
    __global const uint *spilled = call + ${CALL_WORDS}, *tables = spilled + clhist_tables;
    __global const uint *words = call + ${records("clhist_tables")};
    const uint row_words = (uint)((clhist_num_bins + ${fields - 1}) / ${fields});
    __local uint sums[${bins * rows}];
    const uint row = get_local_id(0) / ${columns}, column = get_local_id(0) % ${columns};
    const uint word = (uint)get_group_id(0) * ${columns} + column;
    const bool is_raised = clhist_rows > 0 && call[1] != 0;  // what came behind says so
    // If the flag was raised, the copies of whole counters that came behind; else the counters of all words.
    if (is_raised) {
        for (uint j = get_local_id(0); j < ${bins * parts}; j += ${columns * rows}) {
            const ulong k = get_group_id(0) * ${bins} + j % ${bins};
            uint count = 0;
            if (k < clhist_num_bins) {
                ${state.place}
                for (ulong copy = j / ${bins}; copy < copies; copy += ${parts})
                    count += (uint)${state.copy};
            }
            sums[j] = count;
        }
    } else {
        uint counts[${fields}] = {0};
        if (word < row_words) {
% if bits == 16:
            for (uint k = row; k < clhist_rows; k += ${rows}) {
                const uint one = words[(size_t)k * row_words + word];
                counts[0] += one & 0xffff;
                counts[1] += one >> 16;
            }
% else:
            // Of ${0xffff // ((1 << bits) - 1)} rows the sums still fit 16 bits.
            for (uint begin = row; begin < clhist_rows; begin += ${256 * rows}) {
                const uint end = min(clhist_rows, begin + ${256 * rows});
                uint pairs[${lanes}] = {0};
                for (uint k = begin; k < end; k += ${rows}) {
                    const uint one = words[(size_t)k * row_words + word];
                    for (uint lane = 0; lane < ${lanes}; ++lane)
                        pairs[lane] += one >> lane * ${bits} & ${hex(mask)};
                }
                for (uint lane = 0; lane < ${lanes}; ++lane) {
                    counts[lane] += pairs[lane] & 0xffff;
                    counts[lane + ${lanes}] += pairs[lane] >> 16;
                }
            }
% endif
        }
        for (uint field = 0; field < ${fields}; ++field)
            sums[row * ${bins} + column * ${fields} + field] = counts[field];
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // before spills are added to the sums
    if (!is_raised) {
        for (uint group = get_local_id(0); group < clhist_tables; group += ${columns * rows}) {
            __global const uint *table = tables + 2 * (size_t)group * clhist_table_size;
            for (uint k = 0; k < clhist_table_size && spilled[group] > 0; ++k) {
                const uint bin = table[2 * k] - (uint)get_group_id(0) * ${bins};
                if (bin < ${bins} && table[2 * k] != ${hex(FREE)}u)
                    atomic_add((volatile __local uint *)sums + bin, table[2 * k + 1]);
            }
        }
    }
    if (get_global_id(0) == 0 && clhist_rows > 0)
        call[0] = 0;
    // Barrier: all spills are in the sums.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = get_local_id(0); j < ${bins}; j += ${columns * rows}) {
        const ulong k = get_group_id(0) * ${bins} + j;
        if (k >= clhist_num_bins)
            break;
        accumulator_t total = has_dest ? ${state.dest("k")} : clhist_neutral();
        if (clhist_rows > 0) {
            uint count = 0;
            for (uint r = 0; r < (is_raised ? ${parts} : ${rows}); ++r)
                count += sums[r * ${bins} + j];
            total = clhist_combine(total, (accumulator_t)count);
        }
        ${state.store("k")}
% if spec.largest_bin_condition:
        if (k > clhist_known && ${spec.largest_bin_condition})
            atomic_max(clhist_report, (uint)k);
% endif
    }
</%def>
