## Exact sums of rows, computed again in long integers where those in double precision are not exact.
##
##   clhist_held   | doubles of each piece x component | digits of each piece x component, where the double is NaN |
##
## Part of rows.mako. Note [Exact sums of rows in doubles], docs/decisions/0018.
<%!
    from clhist._core.kernels.state import wrapped
%>\
<%
    sweep, d, operator = spec.sweep, spec.text.rows.components, spec.sweep.outputs[0].operator
%>\
<% term = lambda value: operator.parts[0].term.replace("(v)", f"({value})") %>\
// Pieces have doubles, and behind those of all pieces digits, where the doubles are NaN.
#define CLHIST_DOUBLES_OF_PIECES ((__global clhist_doubles_t *)clhist_held)
#define CLHIST_DIGITS_OF_PIECES ((__global accumulator_t *)(CLHIST_DOUBLES_OF_PIECES + (ulong)clhist_slots * ${d}))

// Adds up rows in long integers. A function, whose registers nobody else has to have.
__attribute__((noinline)) void clhist_sum_again(
${wrapped([*(a.parameter for a in sweep.arguments), "__global const uint *clhist_ids", "uint k", "const uint end",
    "const uint clhist_c", "const value_t before", "__global accumulator_t *digits", "__global value_t *to"])})
{
    accumulator_t total = clhist_neutral();
    clhist_digits_add(&total, ${term("before")});
    for (; k < end; ++k)
        clhist_digits_add(&total, ${term(f"CLHIST_ROW_VALUE((ulong){'k' if spec.is_sorted else 'clhist_ids[k]'} * {d} + clhist_c)")});
    if (digits)
        *digits = total;
    else
        *to = clhist_finish(total);
}

// The same of pieces.
__attribute__((noinline)) value_t clhist_pieces_again(
${wrapped(["__global accumulator_t *clhist_held", "const uint clhist_slots", "uint k", "const uint end", "const uint clhist_c",
    "const value_t before"])})
{
    accumulator_t total = clhist_neutral();
    clhist_digits_add(&total, ${term("before")});
    for (; k < end; ${"k += 2 - k % 2" if spec.is_sorted else "++k"}) {
        const ulong from = (ulong)k * ${d} + clhist_c;
        const clhist_doubles_t held = CLHIST_DOUBLES_OF_PIECES[from];
        if (clhist_doubles_are_numbers(held))
            clhist_digits_add_doubles(&total, held);
        else
            clhist_digits_join(&total, CLHIST_DIGITS_OF_PIECES + from);
    }
    return clhist_finish(total);
}
