## Computes every combination of two and three values that the laws of an operator compare. One work-item has
## one triple.
##
##   held, results    row 0: x of all triples | row 1: n + x | .. | row 12: (n + n) + x      n: identity element
##
## `clhist/_core/runtime/operator_check.py` names the rows and compares them.
<%namespace name="types" file="types.mako"/>
${types.of_operator(operator, operator.preamble, {})}
value_t clhist_finish(const accumulator_t a)
{
    return ${operator.finish};
}

${types.whole(operator)}
__kernel ${alone}void clhist_check(__global const value_t *values, __global const uint *chosen,
                           __global accumulator_t *held, __global value_t *results)
{
    const size_t i = get_global_id(0), n = get_global_size(0);
    const accumulator_t x = clhist_lift(values[chosen[i]]), y = clhist_lift(values[chosen[i + n]]),
                        z = clhist_lift(values[chosen[i + 2 * n]]);
    const accumulator_t clhist_one = clhist_neutral(), clhist_two = clhist_combine(clhist_one, clhist_one);
    held[i] = x;
    held[i + n] = clhist_combine(clhist_one, x);
    held[i + 2 * n] = clhist_combine(x, clhist_one);
    held[i + 3 * n] = clhist_combine(x, y);
    held[i + 4 * n] = clhist_combine(y, x);
    held[i + 5 * n] = clhist_combine(clhist_combine(x, y), z);
    held[i + 6 * n] = clhist_combine(x, clhist_combine(y, z));
    held[i + 7 * n] = y;
    held[i + 8 * n] = z;
    held[i + 9 * n] = clhist_combine(y, z);
    held[i + 10 * n] = clhist_two;
    held[i + 11 * n] = clhist_one;
    held[i + 12 * n] = clhist_combine(clhist_two, x);
    for (int k = 0; k < 13; ++k)
        results[i + k * n] = clhist_finish(held[i + k * n]);
}
