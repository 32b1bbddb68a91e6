## Few rows, added to the results by atomics of several numbers. A work-item has the same numbers of
## `spec.merged` rows, and combines those of one bin first. If a sample shows that a few bins have very many
## rows, the flag is raised, and the plan that is enqueued behind computes instead.
##
##   row r        | n0 n1 n2 n3 | n4 n5 n6 n7 | ..      one atomic for each group of numbers
##   work-item    the same group of `spec.merged` rows
##
## Part of rows.mako. Note [Rows of one bin are one atomic], docs/decisions/0018.
<%namespace name="types" file="types.mako"/>
<%namespace name="kernel" file="rows_begin.mako"/>
<%!
    from clhist._core.model.feature import RAISED
    from clhist._core.model.rows import LOOKED_AT, LOOKED_CELLS
%>\
<%
    sweep, text, d = spec.sweep, spec.text, spec.text.rows.components
    group, vectors = sweep.work_group_size, d // spec.atomic.numbers
%>\
% if spec.is_guarded:
// Looks at the bins of some rows, and raises the flag if many are of the same one.
${kernel.begin("look", group)}
${types.arrays(sweep)}\
    __local uint clhist_seen[${LOOKED_CELLS}], clhist_most;
    const uint clhist_lane = get_local_id(0);
    for (uint k = clhist_lane; k < ${LOOKED_CELLS}; k += ${group})
        clhist_seen[k] = 0;
    if (clhist_lane == 0)
        clhist_most = 0;
    // Barrier: counters are 0.
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = clhist_lane; k < ${LOOKED_AT}; k += ${group}) {
        const uint i = (uint)((ulong)clhist_elements * k / ${LOOKED_AT}), bin = CLHIST_BIN(${text.bin});
        if (bin < clhist_row_bins)
            atomic_max(&clhist_most, atomic_inc(clhist_seen + bin % ${LOOKED_CELLS}) + 1);
    }
    // Barrier: all rows of the sample are counted.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clhist_lane == 0)
        clhist_call[0] = clhist_most > clhist_most_alike ? ${hex(RAISED)}u : 0;
}
% endif

// Begins the results: with what dest has, or with zeros.
${kernel.begin("start", group)}
${kernel.results()}\
    const uint clhist_numbers = clhist_row_bins * ${vectors}, k = get_global_id(0);
    if (k < clhist_numbers && !(clhist_has_dest && dest == out))
        ((__global ${spec.atomic.word} *)out)[k] = clhist_has_dest ? ((__global const ${spec.atomic.word} *)dest)[k] : 0;
}

void clhist_add_numbers(__global ${spec.atomic.word} *to, const ${spec.atomic.word} v)
{
    volatile __global ${spec.atomic.word} *p = (volatile __global ${spec.atomic.word} *)to;
    ${spec.atomic.code}
}

// Adds ${spec.atomic.numbers} numbers of ${spec.merged} rows at once.
${kernel.begin("add", group)}
${types.arrays(sweep)}\
${kernel.results()}\
    // There may be more of them than numbers of 32 bits, which is what some drivers make of get_global_id.
    const ulong clhist_k = (ulong)get_group_id(0) * ${group * spec.merged} + get_local_id(0);
    const uint part = (uint)(clhist_k % ${vectors});
    uint bins[${spec.merged}];
    ${spec.atomic.word} numbers[${spec.merged}];
    #pragma unroll
    for (uint r = 0; r < ${spec.merged}; ++r) {
        const uint i = (uint)((clhist_k + r * ${group}) / ${vectors});
        bins[r] = i < clhist_elements ? CLHIST_BIN(${text.bin}) : clhist_row_bins;
        if (bins[r] < clhist_row_bins)
            numbers[r] = ((__global const ${spec.atomic.word} *)${text.loads})[clhist_k + r * ${group}];
    }
    #pragma unroll
    for (uint r = 0; r < ${spec.merged}; ++r) {
        if (bins[r] >= clhist_row_bins)
            continue;
% if spec.merged > 1:
        // Atomics on one address wait for each other, so rows of one bin are one.
        #pragma unroll
        for (uint s = r + 1; s < ${spec.merged}; ++s)
            if (bins[s] == bins[r]) {
                numbers[r] += numbers[s];
                bins[s] = clhist_row_bins;
            }
% endif
        // Atomic: rows of other work-items may have the same bin.
        clhist_add_numbers((__global ${spec.atomic.word} *)out + (ulong)bins[r] * ${vectors} + part, numbers[r]);
    }
}
