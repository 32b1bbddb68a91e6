## How kernels of rows begin, and the arrays of results.
<%! from clhist.codegen.state import wrapped %>
<%def name="begin(name, size)">
__kernel __attribute__((reqd_work_group_size(${size}, 1, 1)))
void clhist_rows_${name}(
${wrapped([parameter.declaration for parameter in parameters[name]])})
{\
</%def>

<%def name="results()">\
    __global const value_t *dest = (__global const value_t *)(clhist_dest_base + clhist_dest_offset);
    __global value_t *out = (__global value_t *)(clhist_out_base + clhist_out_offset);
</%def>
