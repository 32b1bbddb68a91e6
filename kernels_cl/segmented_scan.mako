## An inclusive segmented scan in three launches.
##
##   elements     | share of group 0 | share of group 1 | ..
##   1 totals     one total for each share, from its last segment on
##   2 carries    one work-group scans the totals
##   3 scan       each work-group scans its share, beginning with the total before it
##
## No work-group waits for another, since OpenCL does not promise that both run. A combination gets the
## earlier operand first, so it need not be commutative. The first element begins a segment. Work-groups of
## one work-item (CPUs) go from element to element; others read a tile into local memory, padded against bank
## conflicts.
##
## Used by sorts, ranks and running sums (clhist/_core/runtime/scan.py). Decision 0020.
<%! from clhist._core.kernels.state import wrapped %>\
% if "double" in f"{spec}":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
#define LANES ${lanes}
% if lanes > 1:
#define EACH ${per_lane}
#define TILE (LANES * EACH)
// Local memory is spread over its banks: work-items read items EACH apart.
#define SPREAD(k) ((k) + (k) / EACH)
#define SPREAD_TILE (TILE + LANES)
% endif
${spec.preamble}
typedef ${spec.item} item_t;

item_t clhist_combined(const item_t a, const item_t b)
{
    return ${spec.combine};
}
<% begins = f"(i == 0 || {spec.begins})" if spec.begins else "i == 0" %>\
## What begins a kernel: the share of a work-group, and arrays of the caller's.
<%def name="kernel(name, more)">\
__kernel __attribute__((reqd_work_group_size(${"1" if lanes == 1 else "LANES"}, 1, 1)))
void clhist_${name}(
${wrapped([*declared, "const ulong size", "const ulong share", *more])})
</%def>\
<%def name="arrays()">\
% for pointer in pointers:
    ${pointer}
% endfor
    const uint group = get_group_id(0);
    const long begin = group * share, end = min(size, begin + share);
</%def>\
## The scan of the elements from `begin` to `end`, from `carry` on.
<%def name="scan(input, begins, output)">\
% if lanes == 1:
    for (long i = begin; i < end; ++i) {
        const item_t next = ${input};
        item = ${begins} ? next : clhist_combined(item, next);
        ${output}
    }
% else:
    for (long from = begin; from < end; from += TILE) {
        ${load(input, begins)}\
        clhist_combine_lane(tile, starts, sums, begun, &carry, true);
        const uint at = clhist_scan_lanes(sums, begun);
        item_t last = lane == 0 ? carry : sums[at + lane - 1];
        for (uint k = lane * EACH; k < (lane + 1) * EACH; ++k) {
            last = starts[k] ? tile[SPREAD(k)] : clhist_combined(last, tile[SPREAD(k)]);
            tile[SPREAD(k)] = last;
        }
        barrier(CLK_LOCAL_MEM_FENCE);  // other work-items write these results
        for (uint k = lane; k < TILE && from + k < end; k += LANES) {
            const long i = from + k;
            const item_t item = tile[SPREAD(k)];
            ${output}
        }
        if (lane == 0) carry = tile[SPREAD(TILE - 1)];
        barrier(CLK_LOCAL_MEM_FENCE);  // the tile has been read
    }
% endif
</%def>\
## Reads the tile that begins at `from`.
<%def name="load(input, begins)">\
for (uint k = lane; k < TILE; k += LANES) {
            const long i = from + k;
            starts[k] = i < end && ${begins};
            if (i < end)
                tile[SPREAD(k)] = ${input};
            else
                tile[SPREAD(k)] = ${spec.neutral};
        }
        barrier(CLK_LOCAL_MEM_FENCE);  // the tile is complete
</%def>\
<%def name="local_arrays()">\
    __local item_t tile[SPREAD_TILE], sums[2 * LANES], carry;
    __local uchar starts[TILE], begun[2 * LANES];
    const uint lane = get_local_id(0);
</%def>\
% if lanes > 1:

// What the elements of a work-item are combined to since the last of them that begins a segment, and whether one does;
// with `carry` before the first work-item's, if it is `carried`.
void clhist_combine_lane(
    __local const item_t *tile, __local const uchar *starts, __local item_t *sums, __local uchar *begun,
    __local const item_t *carry, const bool carried)
{
    const uint lane = get_local_id(0);
    item_t sum = tile[SPREAD(lane * EACH)];
    uchar found = starts[lane * EACH];
    if (lane == 0 && carried && !found) sum = clhist_combined(*carry, sum);
    for (uint k = lane * EACH + 1; k < (lane + 1) * EACH; ++k) {
        sum = starts[k] ? tile[SPREAD(k)] : clhist_combined(sum, tile[SPREAD(k)]);
        found |= starts[k];
    }
    sums[lane] = sum;
    begun[lane] = found;
}

// Scans these of all work-items, and returns in which half of the arrays they are then. Each step reads one half and
// writes the other: no item is kept across a barrier, which PoCL's compiler may lose.
uint clhist_scan_lanes(__local item_t *sums, __local uchar *begun)
{
    const uint lane = get_local_id(0);
    uint at = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // each work-item has written its own
    for (uint step = 1; step < LANES; step *= 2) {
        const uint mine = at + lane, to = LANES - at + lane;
        if (lane >= step && !begun[mine]) {
            sums[to] = clhist_combined(sums[mine - step], sums[mine]);
            begun[to] = begun[mine - step];
        } else {
            sums[to] = sums[mine];
            begun[to] = begun[mine];
        }
        at = LANES - at;
        barrier(CLK_LOCAL_MEM_FENCE);  // the other half is complete
    }
    return at;
}
% endif

// What each share is combined to since the last segment that begins in it, and whether one does. From the end: what is
// before that segment is not read.
${kernel(f"{spec.name}_totals", ["__global item_t *totals", "__global uchar *begins"])}\
{
${arrays()}\
% if lanes == 1:
    long i = ${"end - 1" if spec.begins else "begin"};
% if spec.begins:
    while (i > begin && !(${spec.begins})) --i;
% endif
    begins[group] = ${begins};
    item_t item = ${spec.input};
    for (++i; i < end; ++i) {
        const item_t next = ${spec.input};
        item = clhist_combined(item, next);
    }
    totals[group] = item;
% else:
${local_arrays()}\
    for (long from = end - TILE; from >= begin; from -= TILE) {
        ${load(spec.input, begins)}\
        clhist_combine_lane(tile, starts, sums, begun, &carry, false);
        const uint last = clhist_scan_lanes(sums, begun) + LANES - 1;
        if (lane == 0) {
            carry = from + TILE < end ? clhist_combined(sums[last], carry) : sums[last];
            totals[group] = carry;
            begins[group] = begun[last];
        }
        if (begun[last]) break;
    }
% endif
}

// What is before each share but the first, by one work-group.
__kernel __attribute__((reqd_work_group_size(${"1" if lanes == 1 else "LANES"}, 1, 1)))
void clhist_${spec.name}_carries(__global item_t *totals, __global const uchar *begins, const ulong size)
{
    const long begin = 0, end = size;
% if lanes == 1:
    item_t item = ${spec.neutral};
% else:
${local_arrays()}\
    if (lane == 0) carry = ${spec.neutral};
% endif
${scan("totals[i]", "begins[i]", "totals[i] = item;")}\
}

// The scan of each share.
${kernel(spec.name, ["__global const item_t *totals"])}\
{
${arrays()}\
% if lanes == 1:
    item_t item = ${spec.neutral};
    if (group) item = totals[group - 1];
% else:
${local_arrays()}\
    if (lane == 0) carry = ${spec.neutral};
    if (lane == 0 && group) carry = totals[group - 1];
% endif
${scan(spec.input, begins, spec.output)}\
}
