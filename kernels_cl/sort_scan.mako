## C functions that the segmented scan of sorted pairs calls: read, combine and publish accumulators.
##
##   sorted keys   | 3 3 3 | 5 | 7 7 | no bin ..      the last pair of each bin publishes its total to the bin's cells
##
## Plan: SortedPlan (clhist/_core/model/sort.py). Paper: SC'20, Listing 4. Decision 0020.
<%namespace name="types" file="types.mako"/>
% if operator.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
${types.values(operator, "", declare, {})}
## Accumulators pass between work-items as words, which need not be aligned for more.
typedef struct { uint words[${words}]; } clhist_held_t;
## The union has a word more than these, an odd number, so that no byte of it is padding.
typedef union { accumulator_t value; uint words[${words + 1}]; } clhist_union_t;
<%types:functions operator="${operator}" suffix="" preamble="${operator.preamble}">
% for n, part in enumerate(operator.parts):
${types.part(part, n, c_name)}
% endfor
</%types:functions>
clhist_union_t clhist_of_words(const clhist_held_t item)
{
    clhist_union_t found = {.words = {0}};
% for k in range(words):
    found.words[${k}] = item.words[${k}];
% endfor
    return found;
}

clhist_held_t clhist_as_words(const clhist_union_t found)
{
    clhist_held_t item;
% for k in range(words):
    item.words[${k}] = found.words[${k}];
% endfor
    return item;
}

clhist_held_t clhist_no_words(void)
{
    clhist_union_t neutral = {.words = {0}};
% for n, part in enumerate(operator.parts):
    neutral.value${part.accessor} = clhist_neutral${n}();
% endfor
    return clhist_as_words(neutral);
}

clhist_held_t clhist_read(const bool has_bin, __global const uint *accumulators, const uint position)
{
    if (!has_bin) return clhist_no_words();
    return ((__global const clhist_held_t *)accumulators)[position];
}

clhist_held_t clhist_joined(const clhist_held_t a, const clhist_held_t b)
{
    const clhist_union_t first = clhist_of_words(a);
    clhist_union_t both = clhist_of_words(b);
% for n, part in enumerate(operator.parts):
    both.value${part.accessor} = clhist_combine${n}(first.value${part.accessor}, both.value${part.accessor});
% endfor
    return clhist_as_words(both);
}

void clhist_publish(const clhist_held_t item, const uint bin, __global uchar *scratch${"".join(f", const ulong place{n}" for n in range(len(operator.parts)))})
{
    const clhist_union_t found = clhist_of_words(item);
% for n, part in enumerate(operator.parts):
    ((__global cell${n}_t *)(scratch + place${n}))[bin].value = found.value${part.accessor};
% endfor
}
