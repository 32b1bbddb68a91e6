// === selection: sorted by group, float32, quantile
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint key_t;
#define CLHIST_FEW 24
#pragma OPENCL FP_CONTRACT OFF
long clhist_rank(const long n, const double q) { return (long)(q * (n - 1)); }
double clhist_share(const long n, const double q) { return q * (n - 1) - (long)(q * (n - 1)); }
float clhist_between(const uint low, const uint high, const double share)
{
    const double a = as_float(low ^ (~(uint)((int)(low) >> 31) | 0x80000000u)), b = as_float(high ^ (~(uint)((int)(high) >> 31) | 0x80000000u));
    return low == high || a == b ? a : share < 0.5f ? a + (b - a) * share : b - (b - a) * (1 - share);
}

// Counts of the values of each group in each chunk.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void clhist_count(
    __global const char *keys_base, const ulong keys_offset, __global const char *values_base,
    const ulong values_offset, const long size, const long groups, __global uint *places)
{
    const long chunk = get_global_id(0), chunks = get_global_size(0);
    const long begin = chunk * size / chunks, end = (chunk + 1) * size / chunks;
    __global const int *keys = (__global const int *)(keys_base + keys_offset);
    __global const float *values =
        (__global const float *)(values_base + values_offset);
    __global uint *mine = places + chunk * groups;
    for (long g = 0; g < groups; ++g) mine[g] = 0;
    for (long i = begin; i < end; ++i) {
        const int g = keys[i]; const float v = values[i]; if (g >= 0 && g < groups && v == v) { const uint k = (v != v ? (uint)-1 : (as_uint(v) ^ ((uint)(as_int(v) >> 31) | 0x80000000u))); ++mine[g]; }
    }
}

// Where the values of each group of each chunk begin.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void clhist_begin(
    __global uint *places, const long groups, const long chunks)
{
    uint at = 0;
    for (long g = 0; g < groups; ++g)
        for (long c = 0; c < chunks; ++c) {
            const uint number = places[c * groups + g];
            places[c * groups + g] = at;
            at += number;
        }
}

// Keys of the values, sorted by group; places become ends. Where values are counted, -0.0 has the key of 0.0, the next.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void clhist_arrange(
    __global const char *keys_base, const ulong keys_offset, __global const char *values_base,
    const ulong values_offset, const long size, const long groups, __global uint *places, __global key_t *sorted)
{
    const long chunk = get_global_id(0), chunks = get_global_size(0);
    const long begin = chunk * size / chunks, end = (chunk + 1) * size / chunks;
    __global const int *keys = (__global const int *)(keys_base + keys_offset);
    __global const float *values =
        (__global const float *)(values_base + values_offset);
    __global uint *mine = places + chunk * groups;
    for (long i = begin; i < end; ++i) {
        const int g = keys[i]; const float v = values[i]; if (g >= 0 && g < groups && v == v) { const uint k = (v != v ? (uint)-1 : (as_uint(v) ^ ((uint)(as_int(v) >> 31) | 0x80000000u))); sorted[mine[g]++] = k; }
    }
}

// Moves the keys that are below `pivot` to the front, and returns their number.
uint clhist_divide(__global key_t *a, const uint n, const key_t pivot)
{
    uint less = 0;
    for (uint j = 0; j < n; ++j) {
        const key_t k = a[j];
        a[j] = a[less];
        a[less] = k;
        less += k < pivot;
    }
    return less;
}

// What divides keys. A median of three may be a bad choice again and again; the middle of the range of the keys that are
// left never is more than 64 times.
key_t clhist_pivot(__global const key_t *a, const uint n, const int round)
{
    const key_t x = a[0], y = a[n / 2], z = a[n - 1];
    if (round < 16) return max(min(x, y), min(max(x, y), z));
    key_t least = x, most = x;
    for (uint j = 0; j < n; ++j) {
        least = min(least, a[j]);
        most = max(most, a[j]);
    }
    return most - (most - least) / 2;
}

void clhist_sort_few(__global key_t *a, const uint n)
{
    for (uint j = 1; j < n; ++j) {
        const key_t k = a[j];
        uint to = j;
        for (; to > 0 && a[to - 1] > k; --to) a[to] = a[to - 1];
        a[to] = k;
    }
}

// The key of that rank.
key_t clhist_nth(__global key_t *a, uint n, uint rank)
{
    for (int round = 0; n > CLHIST_FEW; ++round) {
        const key_t pivot = clhist_pivot(a, n, round);
        uint less = clhist_divide(a, n, pivot);
        if (rank < less) {
            n = less;
            continue;
        }
        if (less == 0) { // the least key: it goes, with those that are equal
            less = clhist_divide(a, n, pivot + 1);
            if (rank < less || less == 0) return pivot;
        }
        a += less;
        n -= less;
        rank -= less;
    }
    clhist_sort_few(a, n);
    return a[rank];
}

// The order statistic of each group.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void clhist_select(
    __global const char *ends_base, const ulong ends_offset, __global key_t *sorted, const long groups, const double q, __global float *out)
{
    __global const uint *ends = (__global const uint *)(ends_base + ends_offset);
    const long first = get_global_id(0) * groups / get_global_size(0);
    const long last = (get_global_id(0) + 1) * groups / get_global_size(0);
    for (long g = first; g < last; ++g) {
        const uint begin = g ? ends[g - 1] : 0, n = ends[g] - begin;
        __global key_t *a = sorted + begin;
        if (n == 0) {
            out[g] = NAN;
            continue;
        }
        const uint rank = clhist_rank(n, q);
        const double share = clhist_share(n, q);
        const key_t low = clhist_nth(a, n, rank);
        key_t high = low;
        if (share > 0) {
            uint reached = 0;
            key_t above = (uint)-1;
            for (uint j = 0; j < n; ++j) {
                reached += a[j] <= low;
                above = a[j] > low ? min(above, a[j]) : above;
            }
            high = rank + 1 < reached ? low : above;
        }
        out[g] = clhist_between(low, high, share);
    }
}
