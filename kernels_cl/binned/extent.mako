## Finds the least and the greatest key of the data, and the number of elements that count, in one part for
## each work-group.
##
##   data       | part of group 0 | part of group 1 | ..       on GPUs work-items take every n-th element instead
##   ends       | (low, high, count) of group 0 | of group 1 | ..
##
## Used by clhist/binned/extent.py; `reduced` is also used by even_edges.mako.
<%def name="reduced(lanes)">\
    // What all work-items have found, in the first place.
    for (int width = ${lanes}, upper = (width + 1) / 2; width > 1; width = upper, upper = (width + 1) / 2) {
        // Barrier: the upper half must have stored its ends.
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < width / 2) {
            found_by[lane].low = min(found_by[lane].low, found_by[lane + upper].low);
            found_by[lane].high = max(found_by[lane].high, found_by[lane + upper].high);
            found_by[lane].count += found_by[lane + upper].count;
        }
    }
    // Barrier: the first place has the ends of all.
    barrier(CLK_LOCAL_MEM_FENCE);
</%def>\
${declare(spec.ends, "ends_t")}

__kernel __attribute__((reqd_work_group_size(${spec.lanes}, 1, 1)))
void clhist_extent(${", ".join(declared)})
{
    ${" ".join(pointers)}
    __local ends_t found_by[${spec.lanes}];
    const int lane = get_local_id(0);
    ${key} low = ${highest}, high = ${lowest};
    long number = 0;
    long begin = (long)get_global_id(0) * block;
    const long end = min(count, begin + span);
% if spec.width > 1:
    // A CPU's work-item takes several elements at once: compilers do not make vectors of the loop for single ones.
    ${key}${spec.width} lows = (${key}${spec.width})(low), highs = (${key}${spec.width})(high);
    ${signed}${spec.width} seen = 0;
    for (; begin + ${spec.width} <= end; begin += ${spec.width}) {
        const ${key}${spec.width} bits = ${elements};
        const ${key}${spec.width} key = ${key_of};
        // A comparison of vectors is -1 where it holds.
        ${signed}${spec.width} counts = (key >= least) & (key <= greatest);
% if spec.masked:
        counts &= convert_${signed}${spec.width}(vload${spec.width}(0, where + begin) != (uchar)0);
% endif
        lows = (counts & (key < lows)) ? key : lows;
        highs = (counts & (key > highs)) ? key : highs;
        seen -= counts;
    }
    for (int e = 0; e < ${spec.width}; ++e) {
        low = min(low, ((const ${key} *)&lows)[e]);
        high = max(high, ((const ${key} *)&highs)[e]);
        number += ((const ${signed} *)&seen)[e];
    }
% endif
    #pragma unroll 8
    for (long j = begin; j < end; j += step) {  // to read for nothing what does not count costs less than to wait
        const ${bits} bits = ${element};
        const ${key} key = ${key_of};
        const bool counts = ${"(where[j] != 0) & " if spec.masked else ""}(key >= least) & (key <= greatest);
        low = (counts & (key < low)) ? key : low;
        high = (counts & (key > high)) ? key : high;
        number += counts;
    }
    found_by[lane].low = low;
    found_by[lane].high = high;
    found_by[lane].count = number;
${reduced(spec.lanes)}\
    if (lane == 0) ends[get_group_id(0)] = found_by[0];
}
