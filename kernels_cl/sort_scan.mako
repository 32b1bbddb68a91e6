## Functions for PyOpenCL's segmented scan of the sorted pairs (SC'20, Listing 4): read, combine and write accumulators.
<%namespace name="types" file="types.mako"/>
% if operator.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
${types.values(operator, "", declare, {})}
typedef union { accumulator_t value; uint words[${words}]; } ${held};
<%types:functions operator="${operator}" suffix="" preamble="${operator.preamble}">
% for n, part in enumerate(operator.parts):
${types.part(part, n, c_name)}
% endfor
</%types:functions>
${held} clhist_neutral(void)
{
    ${held} neutral;
% for n, part in enumerate(operator.parts):
    neutral.value${part.accessor} = clhist_neutral${n}();
% endfor
    return neutral;
}

${held} clhist_joined(const ${held} a, const ${held} b, const bool across_segments)
{
    ${held} both = b;
    if (!across_segments) {
% for n, part in enumerate(operator.parts):
        both.value${part.accessor} = clhist_combine${n}(a.value${part.accessor}, b.value${part.accessor});
% endfor
    }
    return both;
}

void clhist_publish(const ${held} item, const uint bin, __global uchar *scratch${"".join(f", const ulong place{n}" for n in range(len(operator.parts)))})
{
% for n, part in enumerate(operator.parts):
    ((__global cell${n}_t *)(scratch + place${n}))[bin].value = item.value${part.accessor};
% endfor
}
