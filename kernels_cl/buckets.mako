## Pairs wait in buckets, by ranges of bins, until their work-item updates its copy: see clhist/planning/bucketed.py.

## Empties a bucket: its pairs update a range of bins that fits the second-level cache.
<%def name="emptied(s, bins_are_computed)">
<% value = f"clhist_bucket_values[first + k]" if spec.value is None else "value" %>\
void clhist_empty${s}(const uint bucket, const uint filled, ${"" if spec.value is None else f"const value{s}_t value, "}${state.declared})
{
    const size_t first = (size_t)bucket * clhist_bucket_room;
    const clhist_bin_t range = (clhist_bin_t)bucket << clhist_bucket_bits;
    #pragma unroll 8
    for (uint k = 0; k < filled; ++k)
        clhist_update_bin${s}(range + clhist_bucket_places[first + k], clhist_lift${s}(${value}), ${state.passed});
}
</%def>

<%def name="append(s, bins_are_computed)">
<% volatile = "volatile " if bins_are_computed else "" %>\
        const uint bucket = (uint)(bin >> clhist_bucket_bits);
        ${volatile}__global uint *end = clhist_bucket_ends + bucket;
        uint filled = *end;
        const size_t at = (size_t)bucket * clhist_bucket_room + filled;
        clhist_bucket_places[at] = (ushort)(bin & (((clhist_bin_t)1 << clhist_bucket_bits) - 1));
% if spec.value is None:
        clhist_bucket_values[at] = value;
% endif
        if (++filled == clhist_bucket_room) {
            clhist_empty${s}(bucket, filled, ${"" if spec.value is None else "value, "}${state.passed});
            filled = 0;
        }
        *end = filled;\
</%def>

<%def name="start(s)">
    __global char *clhist_own = clhist_waiting + clhist_item * clhist_waiting_stride;
    __global uint *clhist_bucket_ends = (__global uint *)clhist_own;
    __global ushort *clhist_bucket_places = (__global ushort *)(clhist_own + clhist_waiting_places);
% if spec.value is None:
    __global value${s}_t *clhist_bucket_values = (__global value${s}_t *)(clhist_own + clhist_waiting_values);
% endif
    for (uint k = 0; k < clhist_buckets; ++k)
        clhist_bucket_ends[k] = 0;
</%def>

<%def name="finish(s)">
    for (uint k = 0; k < clhist_buckets; ++k)
        clhist_empty${s}(k, clhist_bucket_ends[k], ${"" if spec.value is None else f"({spec.value}), "}${state.passed});
</%def>
