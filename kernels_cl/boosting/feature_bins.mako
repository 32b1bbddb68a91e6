## The bin of each value by the thresholds of its feature: how many of them are less than the value.
##
##   x            | row 0: features 0 1 .. 7, 8 .. 15, .. | row 1 | ..     floats, rows and features any bytes apart
##   thresholds   | feature 0: t0 < t1 < .., +inf .., least | feature 1 | ..    256 of each feature; what is not at
##                  least the last one is missing
##   binned       | feature 0: row 0 1 2 .. | feature 1 | ..               bytes
##
## Work-groups in dimension 0 share the rows; those in dimension 1 have eight features each, whose thresholds are in
## local memory on GPUs, and in caches on CPUs. A work-item searches for eight values at once, since each of the eight
## steps of a search waits for the one before it, but not for those of other values.
##
## scikit-learn's `_map_col_to_bins` has the same bins. Decision 0022.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define FEATURES ${features}  // of a work-group
#define TABLE ${table}  // thresholds of a feature, of which a search reaches all but the last one

% if lanes == 1:
#define SHARE(i, size) ((i) * (size) / get_num_groups(0))
#define EACH(i, size) ulong i = SHARE(get_group_id(0), size); i < SHARE(get_group_id(0) + 1, size); ++i
% else:
#define EACH(i, size) ulong i = get_global_id(0); i < size; i += get_global_size(0)
% endif

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_bin_features(
    __global const uchar *x, const ulong offset, const long row_step, const long feature_step, const ulong rows,
    const uint features, const uint before, __global const uchar *thresholds,
    const ulong thresholds_offset, const uint missing, __global uchar *binned, const ulong begin, const ulong column)
{
    // The part of the array has so many rows and features, after `before` others; its first bin is stored at `begin`.
    const uint first = get_group_id(1) * FEATURES, count = min((uint)FEATURES, features - first);
    __global const double *own = (__global const double *)(thresholds + thresholds_offset) + (size_t)(before + first) * TABLE;
    binned += begin + first * column;
% if lanes == 1:
    __global const double *table = own;
% else:
    __local double table[FEATURES * TABLE];
    for (uint k = get_local_id(0); k < count * TABLE; k += ${lanes})
        table[k] = own[k];
    barrier(CLK_LOCAL_MEM_FENCE);  // before any work-item searches what others have copied
% endif
    x += offset + first * feature_step;
    for (EACH(i, rows)) {
        double values[FEATURES];
        uint bins[FEATURES];
        #pragma unroll
        for (uint k = 0; k < FEATURES; ++k) {
            // Beyond the last feature, that one again: its bin is not stored.
            values[k] = *(__global const ${value} *)(x + (long)i * row_step + min(k, count - 1) * feature_step);
            bins[k] = 0;
        }
        #pragma unroll
        for (uint step = TABLE / 2; step > 0; step /= 2) {
            #pragma unroll
            for (uint k = 0; k < FEATURES; ++k)
                bins[k] += table[min(k, count - 1) * TABLE + bins[k] + step - 1] < values[k] ? step : 0;
        }
        // NaN is not at least -inf, and negative numbers are not at least 0, the least category.
        #pragma unroll
        for (uint k = 0; k < FEATURES; ++k)
            if (k < count)
                binned[k * column + i] = (uchar)(values[k] >= table[k * TABLE + TABLE - 1] ? bins[k] : missing);
    }
}
