## Stores the number of the bin of each element.
##
##   data       | share of item 0 | share of item 1 | ..       on GPUs work-items take every n-th element instead
##   result     one number for each element
##
## Used by clhist/binned/numbers.py.
% if "double" in functions + declared:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
% if "CLHIST_AHEAD" in body:
#define CLHIST_AHEAD(p) ((void)0)
% endif
${functions}

__kernel ${alone}void clhist_numbers(${declared})
{
    ${pointers}
    const long item = get_global_id(0), items = get_global_size(0);
% if in_shares:
    // A CPU's work-item reads elements that follow each other, which one core's cache and its vector loads need.
    const long number = (count + ${block - 1}) / ${block}, share = (number + items - 1) / items;
    for (long i = item * share; i < min(number, (item + 1) * share); ++i) {
% else:
    for (long i = item; i < count; i += items) {  // loads of a work-group coalesce
% endif
${body}
    }
}
