## One row of results for each element: the row of its bin, divided by or compared with the element's own row.
##
##   element e, bin b    out[e][0..D-1] = f(by_bin[b][0..D-1], by_element[e][0..D-1])
##   GPU   a work-item takes every n-th vector of up to 16 bytes, so that neighbours access neighbouring memory
##   CPU   a work-item takes a block of vectors
##
## A bin outside [0, bins) gives zeros. Used for means and gradients of rows
## (clhist/_core/runtime/row_kernels.py).
<%
    arrays = spec.arrays
    declared, pointers = spec.declarations
    has_bin = "indices" in arrays
%>\
% for dtype in dict.fromkeys((*spec.dtypes,)):
${declared_half(dtype)}
% endfor

#define ROW ${spec.row}  // vectors in a row

__kernel void clhist_row_${spec.kind}(${", ".join(declared)})
{
    ${"\n    ".join(pointers)}
% if spec.blocked:
    const ${spec.offset} begin = (${spec.offset})min(size, (ulong)get_global_id(0) * share);
    const ${spec.offset} end = (${spec.offset})min(size, begin + share), step = 1;
% else:
    const ${spec.offset} begin = (${spec.offset})get_global_id(0), end = (${spec.offset})size;
    const ${spec.offset} step = (${spec.offset})get_global_size(0);
% endif
    for (${spec.offset} i = begin; i < end; i += step) {
        const ${spec.offset} element = i / ROW;
% if has_bin:
        const long bin = (long)indices[element];
        if (bin < 0 || bin >= (long)bins) {
% if spec.kind != "ties":
            out[i] = 0;
% endif
            continue;
        }
        const ${spec.offset} place = (${spec.offset})bin * ROW + i % ROW;
% endif
% for name, (dtype, where) in arrays.items():
% if where == "element":
        const ${spec.type_of(name)} ${name}_v = ${name}[i];
% elif where == "bin":
        const ${spec.type_of(name)} ${name}_v = ${name}[place];
% elif where == "count":
        const ${spec.type_of(name)} count = ${name}[bin];
% elif where == "count of element":
        const ${spec.type_of(name)} count = ${name}[element];
% endif
% endfor
% if spec.kind == "ties":
% for number in range(spec.vector):
        if (${spec.is_extreme(number)})
            atomic_inc((volatile __global int *)(out + place)${f" + {number}" if number else ""});
% endfor
% else:
        out[i] = ${spec.value};
% endif
    }
}
