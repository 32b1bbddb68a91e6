## CUDA Handbook, Listings 5 to 8: a histogram of 8-bit counters for each work-item, in local memory.
## layout: where counter `bin` of work-item `t` lies (Figures 4 to 6). overflow: what keeps counters below 256.
## The published periodic merge has a barrier that not all threads reach, and none after the merge; here each work-group
## takes the same number of steps, and both barriers are there.
<%include file="strategies/common.mako"/>
#define GROUP ${group}u
#define STEPS_BETWEEN_MERGES 63u

% if layout == "row":
#define COUNTER(bin) ((volatile __local uchar *)cells)[t * pitch + (bin)]
#define COUNTER_OF(bin, u) ((volatile __local uchar *)cells)[(u) * pitch + (bin)]
% elif layout == "column":
#define COUNTER(bin) ((volatile __local uchar *)cells)[(bin) * GROUP + t]
#define COUNTER_OF(bin, u) ((volatile __local uchar *)cells)[(bin) * GROUP + (u)]
% endif

void count(volatile __local uint *cells, const uint t, const uint pitch, const uint num_bins, const uint bin,
           volatile __global uint *histogram)
{
    if (bin >= num_bins)
        return;
% if layout == "interleaved":
    volatile __local uint *word = &cells[bin / 4 * GROUP + t];
    const uint shift = bin % 4 * 8;
%     if overflow == "check":
    const uint old = *word;
    if ((old >> shift & 255u) == 255u) {
        *word = old & ~(255u << shift);
        atomic_add(&histogram[bin], 256u);
        return;
    }
    *word = old + (1u << shift);
%     else:
    *word += 1u << shift;
%     endif
% elif overflow == "check":
    const uchar increased = COUNTER(bin) + 1;
    COUNTER(bin) = increased;
    if (increased == 0)
        atomic_add(&histogram[bin], 256u);
% else:
    COUNTER(bin) += 1;
% endif
}

void merge(volatile __local uint *cells, const uint t, const uint pitch, const uint num_bins,
           volatile __global uint *histogram)
{
% if layout == "interleaved":
    for (uint row = t; row < pitch / 4; row += GROUP) {
        uint sum02 = 0, sum13 = 0;
        #pragma unroll 4
        for (uint k = 0; k < GROUP; ++k) {
            const uint place = row * GROUP + (k + t) % GROUP;
            const uint four = cells[place];
            cells[place] = 0;
            sum02 += four & 0xff00ffu;
            sum13 += four >> 8 & 0xff00ffu;
        }
% for k, sum in enumerate(("(sum02 & 0xffffu)", "(sum13 & 0xffffu)", "(sum02 >> 16)", "(sum13 >> 16)")):
        if (${sum})
            atomic_add(&histogram[4 * row + ${k}], ${sum});
% endfor
    }
% else:
    for (uint bin = t; bin < num_bins; bin += GROUP) {
        uint sum = 0;
        for (uint k = 0; k < GROUP; ++k) {
            const uint u = (k + t) % GROUP;
            sum += COUNTER_OF(bin, u);
            COUNTER_OF(bin, u) = 0;
        }
        if (sum)
            atomic_add(&histogram[bin], sum);
    }
% endif
}

__kernel void clhist_strategy(__global const element_t *x, const uint size, const uint num_bins,
                              volatile __global uint *histogram, volatile __local uint *cells)
{
    const uint t = get_local_id(0), pitch = (num_bins + 3) / 4 * 4;
    for (uint k = t; k < pitch / 4 * GROUP; k += GROUP)
        cells[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint steps = (size + 4 * get_global_size(0) - 1) / (4 * get_global_size(0));
    for (uint step = 0; step < steps; ++step) {
        const uint i = step * get_global_size(0) + get_global_id(0);
        if (4 * i + 3 < size) {
            const ${element}4 four = vload4(i, x);
% for name in "s0", "s1", "s2", "s3":
            count(cells, t, pitch, num_bins, bin_of(four.${name}), histogram);
% endfor
        } else
            for (uint k = 4 * i; k < size; ++k)
                count(cells, t, pitch, num_bins, bin_of(x[k]), histogram);
% if overflow == "merge":
        if (step % STEPS_BETWEEN_MERGES == STEPS_BETWEEN_MERGES - 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
            merge(cells, t, pitch, num_bins, histogram);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
% endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    merge(cells, t, pitch, num_bins, histogram);
}
