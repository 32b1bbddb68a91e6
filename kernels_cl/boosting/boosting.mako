## Trees of gradient boosting. Features are bins of 8 bits; gradients and hessians are integers of one unit a
## tree.
##
##   by_row        | row 0: bins of features 0 1 2 3, 4 5 6 7, .. | row 1 | ..
##   rows          | rows of node 0 | rows of node 1 | ..          even and odd levels in two arrays
##   sums          [node][rows, gradients, hessians][feature][bin], 64-bit integers
##
## For each node that is split: sums of its smaller child (boosting_sweep.mako), those of the larger by
## subtraction, the best split of each feature (best_splits.mako), and its rows moved to the children.
## Decision 0022.
<%namespace name="types" file="types.mako"/>
<%
    names = ("gradients", "hessians") if hessians else ("gradients",)
    declarations = "".join(f"__global const {of} *{name}, " for name, of in zip(names, values))
    ahead = 1 if lanes == 1 else 4  # rows whose loads are under way
    several = "EACH(i, rows)" if ahead == 1 else f"ulong i = get_global_id(0); i < rows; i += {ahead} * get_global_size(0)"
%>\
#pragma OPENCL FP_CONTRACT OFF
#define LANES ${lanes}
#define SEEKERS ${seekers}
#define BINS ${bins}
#define WORDS ${words}  // of the bins of a row, 4 in each
#define SUMS ${len(names) + 1}  // of a bin: its rows, and what they add up to

% if lanes == 1:
#define SHARE(i, size) ((i) * (size) / get_global_size(0))
#define EACH(i, size) ulong i = SHARE(get_global_id(0), size); i < SHARE(get_global_id(0) + 1, size); ++i
% else:
#define EACH(i, size) ulong i = get_global_id(0); i < size; i += get_global_size(0)
% endif

typedef struct { ulong begin, end, first, groups, slot, odd; } clhist_rows_t;  // of a node, for these work-groups
typedef struct { ulong left, feature, bin, missing; uint set[8]; } clhist_split_t;
typedef struct { ulong slot; long rows, gradients, hessians; double value; } clhist_child_t;
typedef struct { double gain; long bin, rows, gradients, hessians; } clhist_found_t;

// The node whose rows this work-group gets, of so many, one after the other; `own` becomes the part that it gets.
uint clhist_node(__global const clhist_rows_t *nodes, const uint number, clhist_rows_t *own)
{
    const ulong group = get_group_id(0);
    uint n = 0;
    for (uint step = 1u << (31 - clz(number)); step; step >>= 1)
        if (n + step < number && nodes[n + step].first <= group) n += step;
    *own = nodes[n];
    const ulong size = (own->end - own->begin + own->groups - 1) / own->groups;
    own->begin += min((group - own->first) * size, own->end - own->begin);
    own->end = min(own->begin + size, own->end);
    return n;
}

// The bins of a row next to each other, from those whose rows and features are so many bytes apart.
__kernel void clhist_by_row(
    __global const uchar *binned, const ulong offset, const long row_step, const long feature_step,
    __global uint *by_row, const ulong rows, const uint features)
{
    binned += offset;
    for (EACH(i, rows))
        for (uint w = 0; w < WORDS; ++w) {
            uint word = 0;
            for (uint f = 4 * w; f < min(4 * w + 4, features); ++f) word |= (uint)binned[f * feature_step + (long)i * row_step] << 8 * (f & 3);
            by_row[i * WORDS + w] = word;
        }
}

// The largest absolute value of each; of floats as their bits, which are in the order of their values.
__kernel void clhist_largest(
    ${declarations}const ulong rows, volatile __global uint *largest)
{
% for name in names:
    uint ${name}_most = 0;
% endfor
    for (${several}) {
% for k in range(ahead):
<% at = f"min(i + {k} * get_global_size(0), rows - 1)" if k else "i" %>\
% for name in names:
        ${name}_most = max(${name}_most, ${f"(uint)abs({name}[{at}])" if whole else f"as_uint(fabs({name}[{at}]))"});
% endfor
% endfor
    }
% for n, name in enumerate(names):
    if (${name}_most > largest[${n}]) atomic_max(largest + ${n}, ${name}_most);
% endfor
}
% if not whole:

// How many units are 1, as an exponent: the power of 2 above the largest is `bits` bits long.
int clhist_units(const uint largest, const int bits) { return bits + 126 - (int)max(largest >> 23, 1u); }

// A float in units, rounded to the nearest, of two to the even one; subnormal ones as well, which devices may not have.
int clhist_rounded(const float value, const uint largest, const int bits)
{
    const uint word = as_uint(value), exponent = word >> 23 & 255, mantissa = (word & 0x7fffff) | (exponent ? 0x800000 : 0);
    const int places = (int)max(largest >> 23, 1u) - (int)max(exponent, 1u) + 24 - bits;  // that go
    uint units = 0;
    if (places <= 0) units = mantissa << -places;
    else if (places <= 24) units = (mantissa + (1u << (places - 1)) - 1 + (mantissa >> places & 1)) >> places;
    return word >> 31 ? -(int)units : (int)units;
}

__kernel void clhist_in_units(
    ${declarations}const ulong rows, __global const uint *largest,
    const int bits, __global int *values)
{
    for (${several}) {
% for k in range(ahead):
<% at = f"i + {k} * get_global_size(0)" if k else "i" %>\
        if (${at} < rows) {
% for n, name in enumerate(names):
            values[${len(names)} * (${at}) + ${n}] = clhist_rounded(${name}[${at}], largest[${n}], bits);
% endfor
        }
% endfor
    }
}
% endif
% if whole or doubles:

// Sums of nodes one after the other, of each its rows, which are counted, and the others: these apart, in units as float64.
__kernel void clhist_apart(
    __global const long *sums, const ulong nodes, const ulong plane, __global const uint *largest, const int bits,
    __global long *counts, ${", ".join(f"__global {'long' if whole else 'double'} *{name}" for name in names)})
{
    for (EACH(i, nodes * plane)) {
        __global const long *of = sums + i / plane * (SUMS * plane) + i % plane;
        counts[i] = of[0];
% for n, name in enumerate(names):
        ${name}[i] = ${f"of[{n + 1} * plane]" if whole else f"ldexp((double)of[{n + 1} * plane], -clhist_units(largest[{n}], bits))"};
% endfor
    }
}
% endif

// Adds to 64 bits by their two words: whichever addition makes the lower one wrap carries.
void clhist_add(volatile __global uint *cell, const ulong value)
{
    const uint low = (uint)value;
    const uint high = (uint)(value >> 32) + (low != 0 && atomic_add(cell, low) + low < low);
    if (high) atomic_add(cell + 1, high);
}

<%include file="boosting/boosting_sweep.mako"/>
bool clhist_is_left(const clhist_split_t *split, const uint bin, const uint missing_bin)
{
    if (split->bin > 255) return split->set[bin >> 5] >> (bin & 31) & 1;
    return bin <= split->bin || (split->missing && bin == missing_bin);
}

// Moves the rows of nodes to their children: those on the left from the begin on, the others behind them. Their order is
// of no account to any sum.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void clhist_split(
    __global const uchar *by_feature, const ulong rows, __global const clhist_rows_t *nodes, const uint number,
    __global const clhist_split_t *splits, __global uint *rows_even, __global uint *rows_odd,
    volatile __global uint *filled, const uint missing_bin)
{
    clhist_rows_t own;
    const uint node = clhist_node(nodes, number, &own);
    const clhist_split_t split = splits[node];
    const ulong first = nodes[node].begin;  // of the left; those of the right follow
    __global const uchar *column = by_feature + split.feature * rows;
    __global const uint *from = own.odd ? rows_odd : rows_even;
    __global uint *to = own.odd ? rows_even : rows_odd;
% if lanes == 1:
    uint lefts = 0;
    for (ulong k = own.begin; k < own.end; ++k) lefts += clhist_is_left(&split, column[from[k]], missing_bin);
    ulong left = first + atomic_add(filled + 2 * node, lefts);
    ulong right = first + split.left + atomic_add(filled + 2 * node + 1, (uint)(own.end - own.begin) - lefts);
    for (ulong k = own.begin; k < own.end; ++k) {
        const uint row = from[k], is_left = clhist_is_left(&split, column[row], missing_bin);
        to[is_left ? left : right] = row;
        left += is_left;
        right += !is_left;
    }
% else:
    __local uint counts[2], places[2];  // of the left, and of the right
    const uint lane = get_local_id(0);
    for (int is_placed = 0; is_placed < 2; ++is_placed) {
        for (uint side = lane; side < 2; side += LANES) {
            if (is_placed)
                places[side] = first + (side ? split.left : 0) + atomic_add(filled + 2 * node + side, counts[side]);
            counts[side] = 0;
        }
        // Barrier: counters are 0, and places are known.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (ulong k = own.begin + lane; k < own.end; k += LANES) {
            const uint row = from[k], side = !clhist_is_left(&split, column[row], missing_bin);
            const uint place = atomic_inc(counts + side);
            if (is_placed) to[places[side] + place] = row;
        }
        // Barrier: all rows are counted, or moved, before the next step uses the counters.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
% endif
}

// Rows in their order.
__kernel void clhist_number(__global uint *rows, const ulong size)
{
    for (EACH(i, size)) rows[i] = (uint)i;
}

// The number of the leaf of each row, which is in the place of slots, as an integer of so many bytes.
__kernel void clhist_leaves(
    __global const clhist_rows_t *nodes, const uint number, __global const uint *rows_even, __global const uint *rows_odd,
    const uint width, __global uchar *leaf_of)
{
    clhist_rows_t own;
    clhist_node(nodes, number, &own);
    __global const uint *rows = own.odd ? rows_odd : rows_even;
    for (ulong k = own.begin + get_local_id(0); k < own.end; k += get_local_size(0)) {
        const ulong row = rows[k];
        if (width == 1) leaf_of[row] = (uchar)own.slot;
        else if (width == 2) ((__global ushort *)leaf_of)[row] = (ushort)own.slot;
        else ((__global uint *)leaf_of)[row] = (uint)own.slot;
    }
}

// Clears the sums of nodes to which several work-groups add.
__kernel void clhist_clear(__global const ulong *slots, __global long *sums, const ulong size)
{
    __global long *of = sums + slots[get_group_id(0)] * size;
    for (ulong k = get_group_id(1) * get_local_size(0) + get_local_id(0); k < size; k += get_num_groups(1) * get_local_size(0))
        of[k] = 0;
}

// The sums of the larger child of each node, in the place of its parent's.
__kernel void clhist_subtract(__global const ulong2 *slots, __global long *sums, const ulong size)
{
    const ulong2 slot = slots[get_group_id(0)];
    for (ulong k = get_group_id(1) * get_local_size(0) + get_local_id(0); k < size; k += get_num_groups(1) * get_local_size(0))
        sums[slot.x * size + k] -= sums[slot.y * size + k];
}
% if doubles and not whole:
<%include file="boosting/best_splits.mako"/>
<%include file="boosting/losses.mako"/>
% endif
