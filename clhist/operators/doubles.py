"""Exact sums in double precision, of values that a work-item has alone: those of rows, gathered by bin.

Sums of float32 are exact in one double, those of float64 in two, as long as the bits of all values lie near enough to
each other. That they are is seen from the sums themselves. A sum of two is exact if taking away either gives the other;
where it is not, what it rounds away is a double, too, which the second one adds up (Knuth, "The Art of Computer
Programming", volume 2, 4.2.2). Whoever finds a sum that is not exact adds the values up again in a long integer
(`clhist.operators.fixed_point`), so that results are the same: the exact sum, rounded once.
"""

from __future__ import annotations

import numpy as np

from clhist.operators.fixed_point import FORMATS
from clhist.operators.halves import half_name
from clhist.operators.operator import Operator


def has_doubles(operator: Operator) -> bool:
    """Whether sums in double precision may be those of `operator`, on a device that has it."""
    # A window rounds each value, and half precision rounds the result to fewer bits: both differ from the sums here.
    whole = operator.largest is None and operator.dtype in FORMATS and not half_name(operator.dtype)
    return whole and operator.accumulator.names is not None and operator.parts[0].words > 0


def functions_of_doubles(operator: Operator) -> str:
    """Return C of sums in double precision, NaN if one was not exact, and of what they are as results, or as digits.

    ``clhist_doubles_t`` is for values, and ``clhist_pair_t`` for sums of these.
    """
    text = _OF_FLOAT32 if operator.dtype == np.float32 else _OF_FLOAT64
    part = operator.parts[0]
    return (_DIGITS + _PAIRS + text).replace("WORDS", str(part.words)).replace("TERM", part.term.partition("(")[0])


# By loops that are not unrolled: else a kernel would have registers for all words, and few work-items at a time.
_DIGITS = """
void clhist_digits_add(accumulator_t *digits, const TERM_t term)
{
    long carry = 0;
    #pragma unroll 1
    for (uint n = 0; n < 3 || carry != 0; ++n) {
        const long digit = n == 0 ? (uint)term.low : n == 1 ? (uint)(term.low >> 32) : n == 2 ? term.high : 0;
        if (term.at + n >= WORDS)
            break;
        carry += digits->words[term.at + n] + (term.minus ? -digit : digit);
        digits->words[term.at + n] = (int)carry;
        carry = (carry - (int)carry) >> 32;
    }
    digits->flags |= term.flags;
}

void clhist_digits_join(accumulator_t *digits, __global const accumulator_t *others)
{
    long carry = 0;
    #pragma unroll 1
    for (uint k = 0; k < WORDS; ++k) {
        carry += (long)digits->words[k] + others->words[k];
        digits->words[k] = (int)carry;
        carry = (carry - (int)carry) >> 32;
    }
    digits->flags |= others->flags;
}
"""


# Knuth's sum of two doubles. Its error goes to the second double; NaN marks that this one rounded, too.
_PAIRS = """
typedef double2 clhist_pair_t;

clhist_pair_t clhist_pair_add(const clhist_pair_t held, const double x)
{
    const double sum = held.x + x, part = sum - held.x;
    const double error = (held.x - (sum - part)) + (x - part), low = held.y + error;
    return (clhist_pair_t)((low - held.y == error) & (low - error == held.y) ? sum : NAN, low);
}

clhist_pair_t clhist_pair_join(const clhist_pair_t held, const clhist_pair_t other)
{
    return clhist_pair_add(clhist_pair_add(held, other.x), other.y);
}
"""

# A device may take numbers of float32 that are not normal for 0: none is added, and no result is one.
_OF_FLOAT32 = """
typedef double clhist_doubles_t;

double clhist_double_of(const value_t v)
{
    return (as_uint(v) << 1) - 1 < 0xffffffu ? NAN : (double)v;
}

clhist_doubles_t clhist_doubles_add(const clhist_doubles_t held, const double x)
{
    const double sum = held + x;
    return (sum - held == x) & (sum - x == held) ? sum : NAN;
}

// 0.0 for -0.0, NaN if that is no number.
#define clhist_doubles_first(x) ((x) + ((x) - (x)))
#define clhist_doubles_join clhist_doubles_add

bool clhist_doubles_are_numbers(const clhist_doubles_t held)
{
    return held == held;
}

bool clhist_doubles_are_exact(const clhist_doubles_t held)
{
    return held == 0 || fabs(held) >= 0x1p-126;
}

value_t clhist_doubles_rounded(const clhist_doubles_t held)
{
    return (value_t)held;
}

clhist_pair_t clhist_pair_with(const clhist_pair_t held, const clhist_doubles_t other)
{
    return clhist_pair_add(held, other);
}

bool clhist_pair_is_exact(const clhist_pair_t held)
{
    return clhist_doubles_are_exact(held.x + held.y);
}

// To odd first, with the last bit set where that is not exact: the rounding to fewer bits then is as if alone.
value_t clhist_pair_rounded(const clhist_pair_t held)
{
    const double sum = held.x + held.y, part = sum - held.x, rest = (held.x - (sum - part)) + (held.y - part);
    const bool is_odd = as_ulong(sum) & 1;
    return (value_t)(rest == 0 || is_odd ? sum : as_double(as_long(sum) + ((rest > 0) == (sum > 0) ? 1 : -1)));
}

void clhist_digits_add_doubles(accumulator_t *digits, const clhist_doubles_t held)
{
    const ulong bits = as_ulong(held);
    const int exponent = (int)(bits >> 52 & 0x7ff), from_least = exponent - 1075 + 149;
    ulong significand = exponent > 0 ? (bits & 0xffffffffffffful) | 1ul << 52 : 0;
    significand >>= max(0, min(-from_least, 63));
    const uint shift = max(0, from_least), within = shift & 31;
    const uint high = (uint)(significand >> 1 >> (63 - within));
    const TERM_t term = {significand << within, high, -(uint)(held < 0), shift / 32, 0};
    clhist_digits_add(digits, term);
}
"""

# A sum of float64 values has the type of a sum of sums, since both need two doubles.
_OF_FLOAT64 = """
typedef clhist_pair_t clhist_doubles_t;
#define clhist_doubles_add clhist_pair_add
#define clhist_doubles_first(x) (clhist_pair_t)((x) + ((x) - (x)), 0.0)
#define clhist_doubles_join clhist_pair_join
#define clhist_doubles_are_exact clhist_pair_is_exact
#define clhist_doubles_rounded clhist_pair_rounded
#define clhist_pair_with clhist_pair_join

double clhist_double_of(const value_t v)
{
    return v;
}

bool clhist_doubles_are_numbers(const clhist_doubles_t held)
{
    return held.x == held.x;
}

bool clhist_pair_is_exact(const clhist_pair_t held)
{
    return isfinite(held.x + held.y);
}

value_t clhist_pair_rounded(const clhist_pair_t held)
{
    return held.x + held.y;
}

void clhist_digits_add_doubles(accumulator_t *digits, const clhist_doubles_t held)
{
    clhist_digits_add(digits, TERM(held.x));
    clhist_digits_add(digits, TERM(held.y));
}
"""
