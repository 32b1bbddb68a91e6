## Pairs wait in buckets, by ranges of bins, until their work-item updates its copy: see clhist/planning/bucketed.py.

<%def name="functions(feature, s)">
<% own, output = feature.value is None, spec.outputs[0] %>\
// Empties a bucket: its pairs update a range of bins that fits the second-level cache.
void clhist_empty${s}(const uint bucket, const uint filled, ${"" if own else f"const value{s}_t value, "}CLHIST_STATE_PARAMETERS)
{
    const size_t first = (size_t)bucket * clhist_bucket_room;
    const clhist_bin_t range = (clhist_bin_t)bucket << clhist_bucket_bits;
    #pragma unroll 8
    for (uint k = 0; k < filled; ++k) {
        const ${state.taken_type(output)} lifted = ${state.lifted(output, "clhist_bucket_values[first + k]" if own else "value")};
        clhist_update_bin${s}(range + clhist_bucket_places[first + k], lifted, CLHIST_STATE);
    }
}
</%def>

<%def name="take(feature, s)">
<% volatile, own = "volatile " if bins_are_computed else "", feature.value is None %>\
    const uint bucket = (uint)(bin >> clhist_bucket_bits);
    ${volatile}__global uint *end = clhist_bucket_ends + bucket;
    uint filled = *end;
    const size_t at = (size_t)bucket * clhist_bucket_room + filled;
    clhist_bucket_places[at] = (ushort)(bin & (((clhist_bin_t)1 << clhist_bucket_bits) - 1));
% if own:
    clhist_bucket_values[at] = value;
% endif
    if (++filled == clhist_bucket_room) {
        clhist_empty${s}(bucket, filled, ${"" if own else "value, "}CLHIST_STATE);
        filled = 0;
    }
    *end = filled;
</%def>

<%def name="start(feature)">
    // Buckets: how many pairs each has, their places in a range of bins${", their values" if feature.value is None else ""}.
    __global char *clhist_own = clhist_waiting + clhist_item * clhist_waiting_stride;
    __global uint *clhist_bucket_ends = (__global uint *)clhist_own;
    __global ushort *clhist_bucket_places = (__global ushort *)(clhist_own + clhist_waiting_places);
% if feature.value is None:
<% kind = f"__global value{spec.outputs[0].suffix}_t *" %>\
    ${kind}clhist_bucket_values = (${kind})(clhist_own + clhist_waiting_values);
% endif
    for (uint k = 0; k < clhist_buckets; ++k)
        clhist_bucket_ends[k] = 0;
</%def>

<%def name="end(feature)">
    // End: the pairs that still wait.
    for (uint k = 0; k < clhist_buckets; ++k)
        clhist_empty${spec.outputs[0].suffix}(k, clhist_bucket_ends[k], ${"" if feature.value is None else f"({feature.value}), "}CLHIST_STATE);
</%def>
