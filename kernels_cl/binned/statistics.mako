## Makes statistics of bins of their parts: counts, sums, largest values, and sums around the means.
##
##   result | a statistic of each bin, float64 | 0 for each spare bin
##
## The operations are NumPy's, in the order of `finish` in clhist/statistics/table.py.
## Used by clhist/binned/finishing.py.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

double clhist_variance(const double number, const double shift, const double squares)
{
    ${variance}
}

% for name, text in texts.items():
__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_${name}(${", ".join(declared[name])})
{
    ${" ".join(pointers[name])}
    for (long i = get_global_id(0); i < cells + spare; i += get_global_size(0)) result[i] = i < cells ? ${text} : 0;
}
% endfor
