## What every kernel of one operator starts with: its types, and the functions lift, combine and finish.
<%page args="operator, declare, c_name, word"/>
% if operator.needs_fp64:
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
${declare(operator.dtype, "value_t")}
% if operator.accumulator == operator.dtype:
typedef value_t accumulator_t;
% else:
${declare(operator.accumulator, "accumulator_t")}
% endif

## An accumulator as it lies in memory: never less than the word that an atomic needs.
% if word is None:
typedef union { accumulator_t value; } cell_t;
% else:
typedef ${word} word_t;
typedef union { accumulator_t value; word_t word; } cell_t;
% endif

${operator.preamble}

accumulator_t clhist_neutral(void)
{
    return ${operator.neutral_literal};
}

accumulator_t clhist_lift(const value_t v)
{
    return ${operator.lift};
}

accumulator_t clhist_combine(const accumulator_t a, const accumulator_t b)
{
    return ${operator.combine};
}

value_t clhist_finish(const accumulator_t a)
{
    return ${operator.finish};
}
