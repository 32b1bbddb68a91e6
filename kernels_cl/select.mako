## Order statistics of many groups on CPUs: sort values by group, by counting, then run a quickselect in each
## group.
##
##   places   | chunk 0: group 0 group 1 .. | chunk 1: group 0 group 1 .. | ..    each chunk writes to places of its own
##   sorted   | keys of group 0: chunk 0, chunk 1, .. | keys of group 1 | ..
##
## Each chunk of the elements has its own places in every group, so nothing is atomic. Note [Groups sorted on
## CPUs], docs/decisions/0021.
<% key, real, result = c_name(order.key), c_name(order.real), c_name(order.result) %>\
% if "double" in (real, result, c_name(order.dtype)):
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
typedef ${key} key_t;
#define CLHIST_FEW 24
${order.functions()}
<%def name="chunk()">\
    const long chunk = get_global_id(0), chunks = get_global_size(0);
    const long begin = chunk * size / chunks, end = (chunk + 1) * size / chunks;
    __global const ${c_name(order.group)} *keys = (__global const ${c_name(order.group)} *)(keys_base + keys_offset);
    __global const ${c_name(order.dtype)} *values =
        (__global const ${c_name(order.dtype)} *)(values_base + values_offset);
    __global uint *mine = places + chunk * groups;
</%def>\
<%def name="elements(name, more)">\
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void ${name}(
    __global const char *keys_base, const ulong keys_offset, __global const char *values_base,
    const ulong values_offset, const long size, const long groups, __global uint *places${more})
</%def>\

// Counts of the values of each group in each chunk.
${elements("clhist_count", "")}\
{
${chunk()}\
    for (long g = 0; g < groups; ++g) mine[g] = 0;
    for (long i = begin; i < end; ++i) {
        ${order.element("++mine[g];")}
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
<% zeros = f" + (k == {order.ones} >> 1)" if order.counts and order.dtype.kind == "f" else "" %>\
${elements("clhist_arrange", ", __global key_t *sorted")}\
{
${chunk()}\
    for (long i = begin; i < end; ++i) {
        ${order.element(f"sorted[mine[g]++] = k{zeros};")}
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
% if order.counts:

// How many keys differ: what is below a pivot comes first, what is left of each division waits.
uint clhist_different(__global key_t *a, const uint n)
{
    uint ends[96], found = 0;
    uchar rounds[96];
    ends[0] = n;
    rounds[0] = 0;
    uint at = 0;
    for (int top = 0; top >= 0;) {
        __global key_t *left = a + at;
        const uint number = ends[top] - at;
        if (number <= CLHIST_FEW) {
            clhist_sort_few(left, number);
            for (uint j = 0; j < number; ++j) found += j == 0 || left[j] != left[j - 1];
            at += number;
            --top;
            continue;
        }
        const key_t pivot = clhist_pivot(left, number, rounds[top]++);
        const uint less = clhist_divide(left, number, pivot);
        if (less > 0) {
            ends[top + 1] = at + less;
            rounds[top + 1] = rounds[top];
            ++top;
            continue;
        }
        const uint equal = clhist_divide(left, number, pivot + 1); // none is below 0, so after the largest key
        at += equal > 0 ? equal : number;
        ++found;
    }
    return found;
}
% else:

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
% endif

// The order statistic of each group.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void clhist_select(
    __global const char *ends_base, const ulong ends_offset, __global key_t *sorted, const long groups, const ${c_name(order.probability)} q, __global ${result} *out)
{
    __global const uint *ends = (__global const uint *)(ends_base + ends_offset);
    const long first = get_global_id(0) * groups / get_global_size(0);
    const long last = (get_global_id(0) + 1) * groups / get_global_size(0);
    for (long g = first; g < last; ++g) {
        const uint begin = g ? ends[g - 1] : 0, n = ends[g] - begin;
        __global key_t *a = sorted + begin;
% if order.counts:
        out[g] = clhist_different(a, n);
% else:
        if (n == 0) {
            out[g] = ${order.none};
            continue;
        }
% if order.propagates:
        key_t top = 0;
        for (uint j = 0; j < n; ++j) top = max(top, a[j]);
        if (top == ${order.ones}) {
            out[g] = ${order.none};
            continue;
        }
% endif
        const uint rank = clhist_rank(n, q);
        const ${c_name(order.probability)} share = clhist_share(n, q);
        const key_t low = clhist_nth(a, n, rank);
        key_t high = low;
        if (share > 0) {
            uint reached = 0;
            key_t above = ${order.ones};
            for (uint j = 0; j < n; ++j) {
                reached += a[j] <= low;
                above = a[j] > low ? min(above, a[j]) : above;
            }
            high = rank + 1 < reached ? low : above;
        }
        out[g] = clhist_between(low, high, share);
% endif
    }
}
