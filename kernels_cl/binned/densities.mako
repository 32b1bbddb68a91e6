## Makes float64 of counts: as they are, or divided by the widths of their bins and by their total.
##
##   counts     | cells of row 0, axis by axis | row 1 | ..     a total for each row
##   edges      | widths of the bins of axis 0, float64 | of axis 1 | ..   or NumPy's edges behind a struct of even_edges.mako
##
## The divisions are NumPy's: axis by axis, the total last. Totals of integers are exact in any order.
## Used by clhist/binned/densities.py.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define LANES ${lanes}

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_float64(${", ".join(declared["float64"])})
{
    ${" ".join(pointers["float64"])}
    for (long i = get_global_id(0); i < cells; i += get_global_size(0)) result[i] = (double)counts[i];
}

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void clhist_densities(${", ".join(declared["densities"])})
{
    ${" ".join(pointers["densities"])}
    __local ${total} sums[LANES];
    const int lane = get_local_id(0);
% if edge:
    __global const ${edge} *ends = (__global const ${edge} *)((__global const char *)edges + ${begin});
% endif
    // Several work-groups share a row if there are fewer rows; each adds up all of it.
    const long parts = max(1l, (long)get_num_groups(0) / rows);
    for (long task = get_group_id(0); task < rows * parts; task += get_num_groups(0)) {
        const long first = task / parts * cells;
        ${total} sum = 0;
        #pragma unroll 8
        for (long i = lane; i < cells; i += LANES) sum += counts[first + i];
        // Barrier: all have read the total of the row before.
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[lane] = sum;
        for (int step = LANES / 2; step > 0; step /= 2) {
            // Barrier: the upper half has stored its sums.
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < step) sums[lane] += sums[lane + step];
        }
        // Barrier: the first place has the total.
        barrier(CLK_LOCAL_MEM_FENCE);
        const double total = (double)sums[0];
        for (long i = task % parts * LANES + lane; i < cells; i += parts * LANES) {
            double density = (double)counts[first + i];
% if edge:
            density /= (double)(${edge})((double)ends[i + 1] - (double)ends[i]);
% else:
% for n in range(dims):
            density /= edges[${" + ".join([*(f"bins{k}" for k in range(n)), ""])}${f"i{''.join(f' / bins{k}' for k in range(dims - 1, n, -1))} % bins{n}" if dims > 1 else "i"}];
% endfor
% endif
            result[first + i] = density / total;
        }
    }
}
