## One row of results per element: the row of its bin, divided or compared with the element's own.
##
## A work-item computes vectors of up to 16 bytes. On a GPU work-items take every n-th vector, so that neighbours read
## and write neighbouring memory; on a CPU each takes a block. A bin outside [0, bins) gives zeros.
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
