## Longer sums of a CPU's private copies: float64 sums stay within a few units in the last place.
##
##   copies   | sums of a few terms |       updated by the walk, as without this
##                  |  added now and then, with what rounding loses of them
##   sums     | totals | losses |           one of each for each bin of a work-item, in global memory
##                  |  at the end: total + loss
##   copies   | corrected sums |            which the second stage combines
##
## Part of walk_blocked.mako, for plans with the feature SumsOfSums (clhist/_core/model/private.py). The statements that
## call these functions are in clhist/_core/kernels/sweep_code.py. The
## rounding error of an addition is that of TwoSum: six operations, for summands of any size.
## The functions of the sweep.
<%def name="helpers(feature)">

// A sum and what rounding lost of it; the sign of a zero stays, which says whether a bin has values.
double clhist_corrected(const double sum, const double lost)
{
    return lost == 0 ? sum : sum + lost;
}
% for part, accessor, name in state.sums:

// Adds the sums of several copies to longer ones, and what rounding loses to further sums behind those.
void ${name}_add(
    __global cell${part.n}_t *restrict cells, __global double *restrict sums, const uint turns, const size_t stride,
    const size_t count)
{
    for (uint turn = 1; turn < turns; ++turn) {
        __global cell${part.n}_t *restrict others = cells + turn * stride;
        #pragma clang loop vectorize(enable)
        for (size_t k = 0; k < count; ++k) {
            cells[k].value${accessor} += others[k].value${accessor};
            others[k].value${accessor} = clhist_neutral${part.n}()${accessor};
        }
    }
    __global double *restrict losses = sums + stride;
    #pragma clang loop vectorize(enable)
    for (size_t k = 0; k < count; ++k) {
        const double a = sums[k], b = cells[k].value${accessor}, sum = a + b, rest = sum - a;
        const double lost = (a - (sum - rest)) + (b - rest);
        sums[k] = sum;
        losses[k] += sum - sum == 0 ? lost : 0;  // of infinities nothing is lost
        cells[k].value${accessor} = clhist_neutral${part.n}()${accessor};
    }
}
% endfor
</%def>
