## The rows of each bin, counted, and their numbers placed bin after bin; those of bins with very many are shared out.
<%namespace name="types" file="types.mako"/>
<%namespace name="scan" file="scan.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%!
    from math import gcd
    from clhist.planning.rows import COUNTED_TILE, FEW_ELEMENTS, LEAST_PIECE, SCANNED_BINS
%>\
<%
    sweep, text, group = spec.sweep, spec.text, spec.sweep.work_group_size
    bank = 1024  # bins that a work-group which counts holds in local memory, a power of two
%>\
// Sets the numbers of rows of all bins, and those of the call, to 0.
${kernel.begin("clear", group)}
    for (uint k = get_global_id(0); k < clhist_words; k += get_global_size(0))
        clhist_counts[k] = 0;
}
// The first words are those of the call.
#define CLHIST_ROWS_BEGIN(bin) clhist_begins[bin]
#define CLHIST_ROWS_COUNT(bin) clhist_counts[(bin) + 4]
#define CLHIST_ROWS_ID(k) clhist_ids[k]

% if not spec.few_bins:
${counting()}
% endif
% if spec.few_bins:
${few()}
% endif

// Gives each bin room for its rows, wherever there is some, and shares out the rows of those with very many.
${kernel.begin("begin", group)}
${types.arrays(sweep)}\
    const uint clhist_lane = get_local_id(0);
    const uint clhist_bin = (uint)get_group_id(0) * ${group * SCANNED_BINS} + clhist_lane;
    __local uint clhist_long[${group * SCANNED_BINS}], clhist_places[${group * SCANNED_BINS}], clhist_number;
    if (clhist_lane == 0)
        clhist_number = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
% for k in range(SCANNED_BINS):
    const uint clhist_count_${k} = clhist_bin + ${k * group} < clhist_row_bins ? CLHIST_ROWS_COUNT(clhist_bin + ${k * group}) : 0;
% endfor
    __local uint clhist_ends[${group}], clhist_base;
    const uint clhist_own = ${" + ".join(f"clhist_count_{k}" for k in range(SCANNED_BINS))};
    clhist_ends[clhist_lane] = clhist_own;
    ${scan.inclusive("clhist_ends", "clhist_lane", group)}
    if (clhist_lane == ${group - 1})
        clhist_base = atomic_add(clhist_cursors, clhist_ends[clhist_lane]);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint clhist_at = clhist_base + clhist_ends[clhist_lane] - clhist_own;
% for k in range(SCANNED_BINS):
    if (clhist_bin + ${k * group} < clhist_row_bins) {
        clhist_begins[clhist_bin + ${k * group}] = clhist_at;
        clhist_at += clhist_count_${k};
        if (clhist_count_${k} > clhist_piece)
            clhist_long[atomic_inc(&clhist_number)] = clhist_bin + ${k * group};
    }
% endfor
${share(group)}
}

## Has the rows of bins with very many shared out: notes the pieces, and which of them are of which bin.
<%def name="share(size)">\
<% team = gcd(32, size) %>\
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // Each bin by some work-items, which are not many of ${size} where a work-group has many such bins.
    for (uint clhist_k = clhist_lane; clhist_k < clhist_number; clhist_k += ${size}) {
        const uint bin = clhist_long[clhist_k];
        const uint number = (CLHIST_ROWS_COUNT(bin) + clhist_piece - 1) / clhist_piece;
        clhist_places[clhist_k] = atomic_add(clhist_cursors + 1, number);
        clhist_pieces[clhist_slots + atomic_inc(clhist_cursors + 2)] = (uint4)(bin, clhist_places[clhist_k], number, 0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint clhist_k = clhist_lane / ${team}; clhist_k < clhist_number; clhist_k += ${size // team}) {
        const uint bin = clhist_long[clhist_k], begin = CLHIST_ROWS_BEGIN(bin), end = begin + CLHIST_ROWS_COUNT(bin);
        for (uint k = clhist_lane % ${team}; begin + k * clhist_piece < end; k += ${team})
            clhist_pieces[clhist_places[clhist_k] + k]
                = (uint4)(begin + k * clhist_piece, min(begin + (k + 1) * clhist_piece, end), 0, 0);
    }
</%def>

## Where a call has few elements and bins: one work-group counts and places all in local memory.
<%def name="few()">
<% size = spec.few_group %>\
${kernel.begin("few", size)}
${types.arrays(sweep)}\
    __local uint clhist_own[${spec.few_bins}], clhist_ends[${size}];
    __local uint clhist_long[${FEW_ELEMENTS // LEAST_PIECE}], clhist_places[${FEW_ELEMENTS // LEAST_PIECE}], clhist_number;
    const uint clhist_lane = get_local_id(0);
    if (clhist_lane == 0)
        clhist_number = 0;
    for (uint k = clhist_lane; k < clhist_row_bins; k += ${size})
        clhist_own[k] = 0;
    for (uint k = clhist_lane; k < 4; k += ${size})
        clhist_cursors[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (uint i = clhist_lane; i < clhist_elements; i += ${size}) {
        const uint bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            atomic_inc(clhist_own + bin);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint clhist_first = clhist_row_bins * clhist_lane / ${size};
    const uint clhist_last = clhist_row_bins * (clhist_lane + 1) / ${size};
    uint clhist_sum = 0;
    for (uint k = clhist_first; k < clhist_last; ++k)
        clhist_sum += clhist_own[k];
    clhist_ends[clhist_lane] = clhist_sum;
    ${scan.inclusive("clhist_ends", "clhist_lane", size)}
    uint clhist_at = clhist_ends[clhist_lane] - clhist_sum;
    for (uint k = clhist_first; k < clhist_last; ++k) {
        const uint count = clhist_own[k];
        CLHIST_ROWS_COUNT(k) = count;
        clhist_begins[k] = clhist_at;
        clhist_own[k] = clhist_at;
        if (count > clhist_piece)
            clhist_long[atomic_inc(&clhist_number)] = k;
        clhist_at += count;
    }
${share(size)}
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = clhist_lane; i < clhist_elements; i += ${size}) {
        const uint bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            clhist_ids[atomic_inc(clhist_own + bin)] = i;
    }
}
</%def>

## A bin that many elements of a tile have is counted in local memory first: elements of one bin wait for each other.
<%def name="counting()">
// Counts the rows of each bin, and gives each row its number among them. A work-group looks at its first elements: if
// many are of the same bins, it counts in local memory as far as that has room, and each bin there once for all.
${kernel.begin("count", group)}
${types.arrays(sweep)}\
    __local uint clhist_keys[${bank}], clhist_own[${bank}], clhist_again;
    const uint clhist_lane = get_local_id(0);
    const uint clhist_start = (uint)get_group_id(0) * ${group * COUNTED_TILE} + clhist_lane;
    for (uint k = clhist_lane; k < ${bank}; k += ${group}) {
        clhist_keys[k] = 0xffffffffu;
        clhist_own[k] = 0;
    }
    if (clhist_lane == 0)
        clhist_again = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    bool clhist_holds = true;
% for k in range(COUNTED_TILE):
    uint clhist_bin_${k} = 0xffffffffu, clhist_rank_${k} = 0, clhist_cell_${k} = ${bank};
    {
        const uint i = clhist_start + ${k * group};
        if (i < clhist_elements)
            clhist_bin_${k} = CLHIST_BIN(${text.bin});
    }
% endfor
% for k in range(COUNTED_TILE):
    if (clhist_bin_${k} < clhist_row_bins) {
        const uint cell = clhist_bin_${k} * 2654435761u >> 22;
        if (clhist_holds) {
            uint key = CLHIST_RELAXED_LOAD(atomic_cmpxchg, clhist_keys + cell);
            if (key == 0xffffffffu)
                key = atomic_cmpxchg(clhist_keys + cell, 0xffffffffu, clhist_bin_${k});
            if (key == 0xffffffffu || key == clhist_bin_${k}) {
                clhist_cell_${k} = cell;
                clhist_rank_${k} = atomic_inc(clhist_own + cell);
% if k == 0:
                if (clhist_rank_${k} == 1)
                    atomic_inc(&clhist_again);
                else if (clhist_rank_${k} > 1)
                    atomic_max(&clhist_again, ${group});
% endif
            }
        }
        if (clhist_cell_${k} == ${bank})
            clhist_rank_${k} = atomic_inc(&CLHIST_ROWS_COUNT(clhist_bin_${k}));
    }
% if k == 0:
    barrier(CLK_LOCAL_MEM_FENCE);
    clhist_holds = clhist_again >= ${max(1, group // 8)};
% endif
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = clhist_lane; k < ${bank}; k += ${group})
        if (clhist_own[k])
            clhist_own[k] = atomic_add(&CLHIST_ROWS_COUNT(clhist_keys[k]), clhist_own[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
% for k in range(COUNTED_TILE):
    if (clhist_bin_${k} < clhist_row_bins)
        clhist_ranks[clhist_start + ${k * group}] = clhist_rank_${k} + (clhist_cell_${k} < ${bank} ? clhist_own[clhist_cell_${k}] : 0);
% endfor
}

// Puts the number of each row where its bin has room for it.
${kernel.begin("place", group)}
${types.arrays(sweep)}\
    const uint i = get_global_id(0);
    if (i < clhist_elements) {
        const uint bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            clhist_ids[clhist_begins[bin] + clhist_ranks[i]] = i;
    }
}
</%def>
