## Counters of W bits: 32 / W of them share a word of local memory, so that many more bins fit. Their words are written to
## global memory as they are; what a counter cannot hold is recorded there, in one more copy of whole counters.
##
## Exact for every interleaving, without waiting. An addition to a word that carries out of some field is seen by one
## work-item alone, in what its own atomic returned. It records 2^W for the bin of that field, and takes the carry back
## from the field above by another atomic, of which the same is true with borrows for carries. So after each step
##     field + record = updates of the bin + carries into the field that are still to be taken back
## and each step that is still owed is of a higher field than the one before: after 32 / W of them none is left.
<%def name="emit(s)">
<% bits, fields = spec.counter_bits, 32 // spec.counter_bits %>\
void clhist_spill${s}(const clhist_bin_t bin, const uint amount, ${state.declared})
{
% if spec.raises_flag:
    if (atomic_inc(clhist_spills) >= clhist_most_spills) {  // all is to be counted again
        CLHIST_RELAXED_STORE(atomic_xchg, clhist_flag, 1u);
        return;
    }
% endif
    atomic_add(clhist_beyond + clhist_first${s} + bin, amount);
}

## The carries of an addition of `added` to the word of `bin`, which returned `seen`. Inlined 16 times it took compilers long.
__attribute__((noinline)) void clhist_carry${s}(const clhist_bin_t bin, uint added, uint seen, ${state.declared})
{
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
                clhist_spill${s}(lowest + field, is_borrowed ? -${1 << bits}u : ${1 << bits}u, ${state.passed});
                back |= above < 32 ? 1u << above : 0;
            }
        }
        added = back;
        is_borrowed = !is_borrowed;
        if (added)
            seen = is_borrowed ? atomic_sub(clhist_words + bin / ${fields}, added) : atomic_add(clhist_words + bin / ${fields}, added);
    }
}

void clhist_emit${s}(const clhist_bin_t target, const value${s}_t value, ${state.declared})
{
    const clhist_bin_t bin = target - clhist_first${s};  // unsigned: what lies before the first is beyond the last
    if (bin < clhist_count${s}) {
        const uint shift = bin % ${fields} * ${bits}, seen = atomic_add(clhist_words + bin / ${fields}, 1u << shift);
        if ((seen >> shift & ${hex((1 << bits) - 1)}) == ${hex((1 << bits) - 1)})
            clhist_carry${s}(bin, 1u << shift, seen, ${state.passed});
    }
}
</%def>

<%def name="pool()">
    volatile __local uint *clhist_words = (volatile __local uint *)clhist_pool;
% if spec.raises_flag:
    volatile __local uint *clhist_spills = (volatile __local uint *)(clhist_pool + ${spec.capacity - 4});
% endif
</%def>

## In scratch memory: what is beyond the counters' range for each bin, the flag, and the words of each work-group.
<%def name="arrays(s)">
    volatile __global uint *clhist_beyond = (volatile __global uint *)clhist_all0;
    const size_t clhist_records = ${records(f"(size_t)clhist_num_bins{s}")};
% if spec.raises_flag:
    volatile __global uint *clhist_flag = clhist_beyond + clhist_records - 1;
% endif
</%def>

<%def name="records(bins)">(${bins} + 15) / 8 * 8</%def>

<%def name="clear(s)">
<% fields = 32 // spec.counter_bits %>\
% if spec.raises_flag:
    ## No spills, or no need to begin.
    if (clhist_lane == 0)
        *clhist_spills = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*clhist_spills > 0)
        return;
% endif
    for (uint k = clhist_lane; k < (clhist_count${s} + ${fields - 1}) / ${fields}; k += ${spec.team_size})
        clhist_words[k] = 0;
</%def>

<%def name="flush(s)">
<% fields = 32 // spec.counter_bits %>\
% if spec.raises_flag:
    if (CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag) > 0)
        return;
% endif
    __global uint *clhist_row = (__global uint *)clhist_all0 + clhist_records
        + clhist_slot * ((clhist_num_bins${s} + ${fields - 1}) / ${fields}) + clhist_first${s} / ${fields};
    for (uint k = clhist_lane; k < (clhist_count${s} + ${fields - 1}) / ${fields}; k += ${spec.team_size})
        clhist_row[k] = clhist_words[k];
</%def>

## Where the flag is raised, what is left of the sweep does not matter.
<%def name="load_flag()">
% if spec.raises_flag:
        const uint clhist_is_raised = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_flag);
% endif
</%def>
<%def name="heed_flag()">
% if spec.raises_flag:
        if (clhist_is_raised)
            break;
% endif
</%def>
## Whoever spilled more than that has raised the flag.
<%def name="heed_spills()">
% if spec.raises_flag:
        if (CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_spills) > clhist_most_spills)
            break;
% endif
</%def>

## The second stage: work-items add a row's words in lanes of 16 bits, several of them those of each word.
<%def name="combine(given, store, place, held, stride)">
<%
    bits, fields, columns, rows = spec.counter_bits, 32 // spec.counter_bits, spec.columns, spec.rows
    lanes = max(1, fields // 2)  # words that hold the sums of two counters each; of one, with counters of 16 bits
    mask = ((1 << bits) - 1) * 0x10001
    bins = columns * fields
%>\
    __global const uint *beyond = (__global const uint *)(clhist_scratch + clhist_packed_place);
    __global const uint *words = beyond + ${records("clhist_num_bins")};
    const ulong row_words = (clhist_num_bins + ${fields - 1}) / ${fields};
    __local uint sums[${bins * rows}];
    const uint row = get_local_id(0) / ${columns}, column = get_local_id(0) % ${columns};
    const ulong word = get_group_id(0) * ${columns} + column;
% if spec.has_flag:
    const bool is_raised = clhist_rows > 0 && words[-1] != 0;
% endif
    uint counts[${fields}] = {0};
% if spec.has_flag:
    uint parts = ${rows};  // sums of each bin
    if (is_raised) {
        parts = ${columns * rows // bins};
        const ulong k = get_group_id(0) * ${bins} + get_local_id(0) % ${bins};
        uint count = 0;
        if (k < clhist_num_bins) {
            ${place}
            for (ulong copy = get_local_id(0) / ${bins}; copy < copies; copy += parts)
                count += (uint)${held(f"at + copy * {stride}")};
        }
        sums[get_local_id(0)] = count;
    } else {
% endif
    if (word < row_words) {
% if bits == 16:
        for (ulong k = row; k < clhist_rows; k += ${rows}) {
            const uint one = words[k * row_words + word];
            counts[0] += one & 0xffff;
            counts[1] += one >> 16;
        }
% else:
        ## Of ${0xffff // ((1 << bits) - 1)} rows the sums still fit 16 bits.
        for (ulong begin = row; begin < clhist_rows; begin += ${256 * rows}) {
            const ulong end = min(clhist_rows, begin + ${256 * rows});
            uint pairs[${lanes}] = {0};
            for (ulong k = begin; k < end; k += ${rows}) {
                const uint one = words[k * row_words + word];
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
% if spec.has_flag:
    }
% endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = get_local_id(0); j < ${bins}; j += ${columns * rows}) {
        const ulong k = get_group_id(0) * ${bins} + j;
        if (k >= clhist_num_bins)
            break;
        accumulator_t total = has_dest ? ${given("k")} : clhist_neutral();
        if (clhist_rows > 0) {
            uint count = ${"is_raised ? 0 : " if spec.has_flag else ""}beyond[k];
            for (uint r = 0; r < ${"parts" if spec.has_flag else rows}; ++r)
                count += sums[r * ${bins} + j];
            total = clhist_combine(total, (accumulator_t)count);
        }
        ${store("k")}
% if spec.used:
        if (k > clhist_known && ${spec.used})
            atomic_max(clhist_found, (uint)k);
% endif
    }
</%def>
