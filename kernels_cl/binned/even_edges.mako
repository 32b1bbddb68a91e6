## Makes equal-width bins from the least to the greatest element, by one work-group.
##
##   ends      | (low, high, count) of each part |      from extent.mako
##   keys      | least key of each bin |
##   found     | struct: range, guess, margin | NumPy's edges .. |
##
## The edges result from NumPy's own operations in the same order, without contraction. The guess of a bin is
## tried at the ends of all bins, as `clhist.axes.guess.Guess.margin` does. No element lies outside, so
## nothing is tried there.
##
## Used by clhist/binned/device_edges.py. Note [Guess and check], docs/decisions/0028.
<%namespace name="extent" file="binned/extent.mako"/>\
<%
    is_float = spec.dtype.kind == "f"
    edge = c_name(spec.edge)
    least, most = (literal(end, info.dtype) for end in (info.min, info.max))
    finite = [literal(end, info.dtype) for end in spec.finite]
%>\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
${declare(spec.ends, "ends_t")}
${declare(spec.kind.found_dtype, "found_t")}

// The number of a key, as NumPy computes with it.
${edge} clhist_number(const ${key} key)
{
% if is_float:
    return as_${value}(${key_of_bits(spec.dtype, "key")});
% else:
    return key;
% endif
}

// Edge `k` but for the last one. Double precision between roundings leaves each operation of float32 as it is.
${edge} clhist_edge(const int k, const ${edge} first, const ${edge} step)
{
    return (${edge})((double)(${edge})((double)k * step) + first);
}

// The least key that is not below an edge.
${key} clhist_key(const ${edge} edge, const ${key} low)
{
% if is_float:
    const ${key} bits = as_${key}(edge), key = ${key_of};
    return key == 0 ? -1 : key;  // -0 equals +0
% else:
    return max((${key})ceil(edge), low);
% endif
}

// The guess of the bin of the element with a key.
float clhist_guess(const ${key} key, const ${value} low, const ${scale} scale)
{
    const ${key} bits = ${key_of_bits(spec.dtype, "key")};
    return ${guess};
}

__kernel __attribute__((reqd_work_group_size(${spec.lanes}, 1, 1)))
void clhist_even_edges(${", ".join(declared)})
{
    ${" ".join(pointers)}
    __local int farthest;  // of all guesses, as the integer of the same order
    __local ends_t found_by[${spec.lanes}];
    const int lane = get_local_id(0);
    if (lane == 0) farthest = 0;
    ends_t own = ends[lane % ${spec.parts}];
    if (lane >= ${spec.parts}) own.count = 0;
    for (int n = lane + ${spec.lanes}; n < ${spec.parts}; n += ${spec.lanes}) {
        own.low = min(own.low, ends[n].low);
        own.high = max(own.high, ends[n].high);
        own.count += ends[n].count;
    }
    found_by[lane] = own;
${extent.reduced(spec.lanes)}\
    const ${key} low = found_by[0].low, high = found_by[0].high;
    const long count = found_by[0].count;
    ${edge} first = clhist_number(low), end = clhist_number(high);
    if (first == end) {
        first = (${edge})(first - 0.5);
        end = (${edge})(end + 0.5);
    }
    const ${edge} step = (${edge})((double)(${edge})((double)end - first) / num_bins);
    __global ${edge} *edges = (__global ${edge} *)(found + 1);
    const ${key} start = clhist_key(first, low);
% if is_float:
    const ${edge} top = end;
    const ${key} bits = as_${key}(top), last = ${key_of};
    const ${value} begin = as_${value}(${key_of_bits(spec.dtype, "start")});
    const double extent = (double)top - begin;
    const ${scale} scale = (${scale})(num_bins / extent);
% else:
    const ${key} last = high, begin = start;
    // Between whole bins: the last one may be cut.
    const double extent = num_bins == 1 ? (double)last - start + 1
        : (double)clhist_key(clhist_edge(num_bins - 1, first, step), low) - start;
    const ${scale} scale = (${scale})((num_bins == 1 ? 1 : num_bins - 1) / extent);
% endif
    float off = 0;
    for (int k = lane; k < num_bins; k += ${spec.lanes}) {
        const ${edge} edge = clhist_edge(k, first, step);
        const ${key} key = clhist_key(edge, low);
        const ${key} next = k + 1 < num_bins ? clhist_key(clhist_edge(k + 1, first, step), low) - 1 : last;
        const float before = k - clhist_guess(key, begin, scale), behind = clhist_guess(next, begin, scale) - (k + 1);
        edges[k] = edge;
        keys[k] = key;
        off = before < ${most_off} && behind < ${most_off} ? fmax(off, fmax(before, behind)) : INFINITY;
    }
    atomic_max(&farthest, as_int(off));
    // Barrier: all guesses have been tried.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane > 0) return;
    edges[num_bins] = end;
    const float margin = as_float(farthest);
    const bool are_even = count > 0 && low >= ${finite[0]} && high <= ${finite[1]} && margin < ${most_off}
% if not is_float:
        && low < high
% endif
        && extent > ${smallest} && extent < INFINITY && scale > 0 && scale < INFINITY;
    found->least = low;
    found->greatest = high;
    found->count = count;
    found->are_even = are_even;
    // Of others, no key is in the range, and no guess is near enough.
    found->start = are_even ? start : ${most};
    found->last = are_even ? last : ${least};
    found->low = are_even ? begin : 0;
    found->scale = are_even ? scale : 0;
    found->margin = are_even ? margin + num_bins * ${slack} : 1;
}
