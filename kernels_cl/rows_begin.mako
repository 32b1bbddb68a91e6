## Shared defs of the row kernels: the head of a kernel, and pointers to `dest` and `out`. A guarded kernel
## leaves if the flag is up, since the plan behind computes then.
##
## Used by rows.mako and the templates that it includes.
<%!
    from clhist._core.kernels.state import wrapped
    from clhist._core.model.feature import RAISED
    from clhist.operators.halves import ELEMENT, half_name
%>
<%def name="begin(name, size)">
__kernel __attribute__((reqd_work_group_size(${size}, 1, 1)))
void clhist_rows_${name}(
${wrapped([parameter.declaration for parameter in parameters[name]])})
{\
% if spec.is_guarded and name != "look":

    if (clhist_call[0] == ${hex(RAISED)}u)
        return;\
% endif
</%def>

<%def name="results()">\
<% element = ELEMENT if half_name(spec.sweep.outputs[0].operator.dtype) else "value_t" %>\
    __global const ${element} *dest = (__global const ${element} *)(clhist_dest_base + clhist_dest_offset);
    __global ${element} *out = (__global ${element} *)(clhist_out_base + clhist_out_offset);
</%def>
