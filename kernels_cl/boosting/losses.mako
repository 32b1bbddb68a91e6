## Gradients and hessians of losses, and predictions, for ``boosting.mako``, whose types and macros it uses.
## Rows whose float32 result is in doubt are listed, and the host computes them. Decision 0022.
<%
    names = ("gradients", "hessians") if hessians else ("gradients",)
%>\
// Writes what a float64 is as a float, if that is beyond doubt: the same for all numbers so near to it that other code may
// have got one of them. Says whether it is; numbers that are subnormal as floats never are, for devices may not have them.
bool clhist_is_sure(const double value, const double doubt, __global float *to)
{
    *to = convert_float_rte(value);
    return value == 0
        || (fabs(value) >= 0x1p-126
            && convert_float_rte(value * (1 - doubt)) == convert_float_rte(value * (1 + doubt)));
}

% for name, doubt in (("squared_error", "0"), ("log_loss", "0x1p-46")):
// Of each row what the loss's derivatives are; rows of which one is in doubt are listed, up to so many.
__kernel void clhist_${name}(
    __global const double *targets, __global const double *predictions, __global const double *weights, const ulong rows,
    ${"".join(f"__global float *{value}, " for value in names)}volatile __global uint *number, __global uint *unsure,
    const uint most)
{
    for (EACH(i, rows)) {
        const double target = targets[i], prediction = predictions[i], weight = weights ? weights[i] : 1.0;
% if name == "squared_error":
        const double gradient = prediction - target, hessian = 1;
% else:
        double gradient, hessian;
        if (prediction > -37) {  // beyond, 1 is nothing beside the exponential
            const double power = exp(-prediction), sum = 1 + power;
            gradient = ((1 - target) - target * power) / sum;
            hessian = power / (sum * sum);
        } else {
            hessian = exp(prediction);
            gradient = hessian - target;
        }
% endif
        bool is_sure = clhist_is_sure(weight * gradient, ${doubt}, gradients + i);
% if hessians:
        is_sure &= clhist_is_sure(weight * hessian, ${doubt}, hessians + i);
% endif
        if (!is_sure) {
            const uint n = atomic_inc(number);
            if (n < most) unsure[n] = (uint)i;
        }
    }
}

% endfor
// Adds to the prediction of each row the value of its leaf, whose number is in the place of slots.
__kernel void clhist_predict(
    __global const clhist_rows_t *nodes, const uint number, __global const uint *rows_even, __global const uint *rows_odd,
    __global const double *values, __global double *predictions)
{
    clhist_rows_t own;
    clhist_node(nodes, number, &own);
    __global const uint *rows = own.odd ? rows_odd : rows_even;
    for (ulong k = own.begin + get_local_id(0); k < own.end; k += get_local_size(0)) predictions[rows[k]] += values[own.slot];
}
