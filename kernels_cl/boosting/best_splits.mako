## The best split of each feature of nodes, for ``boosting.mako``, whose types and macros it uses.
##
##   work-group   one feature of one node; work-items take consecutive bins, after the sums of all bins before them
##   found        | (gain, bin, rows, gradients, hessians) of each node and feature |
##
## Gains as in XGBoost's equations 6 and 7, in the order of scikit-learn's operations. Decision 0022.
double clhist_value(const double gradients, const double hessians, const double l2)
{
    return -gradients / (hessians + l2 + 1e-15);
}

// The best split of each feature of each child: XGBoost's equations 6 and 7, in the order of scikit-learn's operations. A
// work-group looks at the bins of one feature, each work-item at some that follow each other.
__kernel __attribute__((reqd_work_group_size(SEEKERS, 1, 1))) void clhist_find(
    __global const long *sums, __global const clhist_child_t *children, __global const uint *bins_of,
    __global const uchar *has_missing, __global const uint *largest, const int bits, const uint features,
    const long fewest_rows, const double least_hessian, const double least_gain, const double l2,
    __global clhist_found_t *found)
{
    __local clhist_found_t bests[SEEKERS];
% if lanes > 1:
    __local long before[${3 if hessians else 2}][SEEKERS];
% endif
    const size_t n = get_group_id(0);
    const int lane = get_local_id(0);
    const clhist_child_t child = children[n / features];
    const uint feature = n % features;
    const ulong plane = (ulong)features * BINS;
    __global const long *counts = sums + child.slot * SUMS * plane + feature * BINS;
    const int unit = -clhist_units(largest[0], bits);
    const double gradients = ldexp((double)child.gradients, unit), loss = gradients * child.value;
% if hessians:
    const int other_unit = -clhist_units(largest[1], bits);
    const double hessians = ldexp((double)child.hessians, other_unit);
% else:
    const double hessians = (double)child.rows;
% endif
    clhist_found_t best = {-1, 0, 0, 0, 0};  // of the first work-item
    const int used = bins_of[feature], is_missing = has_missing[feature];
    for (int side = 0; side <= is_missing; ++side) {  // missing values go to the other side
        const int steps = used - 1 + (is_missing && !side), each = (steps + SEEKERS - 1) / SEEKERS;
        const int begin = min(lane * each, steps), end = min(begin + each, steps);
        long rows = 0, gradient = 0, hessian = 0;
% if lanes > 1:
        for (int step = begin; step < end; ++step) {
            const int bin = side ? used - 1 - step : step;
            rows += counts[bin];
            gradient += counts[plane + bin];
% if hessians:
            hessian += counts[2 * plane + bin];
% endif
        }
        before[0][lane] = rows;
        before[1][lane] = gradient;
% if hessians:
        before[2][lane] = hessian;
% endif
        // Barrier: all have stored their sums.
        barrier(CLK_LOCAL_MEM_FENCE);
        rows = gradient = hessian = 0;
        for (int other = 0; other < lane; ++other) {
            rows += before[0][other];
            gradient += before[1][other];
% if hessians:
            hessian += before[2][other];
% endif
        }
% endif
        clhist_found_t own = {-1, 0, 0, 0, 0};
        for (int step = begin; step < end; ++step) {
            const int bin = side ? used - 1 - step : step;
            rows += counts[bin];
            gradient += counts[plane + bin];
% if hessians:
            hessian += counts[2 * plane + bin];
            const double one_hessian = ldexp((double)hessian, other_unit);
% else:
            const double one_hessian = (double)rows;
% endif
            const double other_hessian = hessians - one_hessian;
            if (rows < fewest_rows || one_hessian < least_hessian) continue;
            if (child.rows - rows < fewest_rows || other_hessian < least_hessian) break;
            const double one = ldexp((double)gradient, unit), other = gradients - one;
            const double one_loss = clhist_value(one, one_hessian, l2) * one;
            const double other_loss = clhist_value(other, other_hessian, l2) * other;
            const double gain = loss - (side ? other_loss : one_loss) - (side ? one_loss : other_loss);
            if (gain > own.gain && gain > least_gain) {
                own.gain = gain;
                own.bin = side ? bin - 1 + 256 : bin;
                own.rows = side ? child.rows - rows : rows;
                own.gradients = side ? child.gradients - gradient : gradient;
                own.hessians = side ? child.hessians - hessian : hessian;
            }
        }
        bests[lane] = own;
        // Barrier: all have stored their best splits.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int other = 0; lane == 0 && other < SEEKERS; ++other)
            if (bests[other].gain > best.gain) best = bests[other];  // of gains that are alike the first
        // Barrier: work-item 0 has read them before the other side overwrites them.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane == 0) found[n] = best;
}
