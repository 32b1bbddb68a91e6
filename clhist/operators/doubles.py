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
    whole = operator.largest is None and operator.dtype in FORMATS and not half_name(operator.dtype)
    return whole and operator.accumulator.names is not None and operator.parts[0].words > 0


def functions_of_doubles(operator: Operator) -> str:
    """Return C that adds to ``clhist_doubles_t``, NaN if a sum was not exact, and makes a result or digits of it."""
    text = _OF_FLOAT32 if operator.dtype == np.float32 else _OF_FLOAT64
    return text.replace("WORDS", str(operator.parts[0].words))


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

clhist_doubles_t clhist_doubles_join(const clhist_doubles_t held, const clhist_doubles_t other)
{
    return clhist_doubles_add(held, other);
}

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

accumulator_t clhist_doubles_digits(const clhist_doubles_t held)
{
    const ulong bits = as_ulong(held);
    const int exponent = (int)(bits >> 52 & 0x7ff), from_least = exponent - 1075 + 149;
    ulong significand = exponent > 0 ? (bits & 0xffffffffffffful) | 1ul << 52 : 0;
    significand >>= max(0, min(-from_least, 63));
    const uint shift = max(0, from_least), within = shift & 31;
    const ulong low = significand << within, high = significand >> 1 >> (63 - within);
    accumulator_t digits = {{0}};
    long carry = 0;
    for (uint k = 0; k < WORDS; ++k) {
        const uint n = k - shift / 32;
        const long digit = n == 0 ? (uint)low : n == 1 ? (uint)(low >> 32) : n == 2 ? (uint)high : 0;
        carry += held < 0 ? -digit : digit;
        digits.words[k] = (int)carry;
        carry = (carry - (int)carry) >> 32;
    }
    return digits;
}
"""

_OF_FLOAT64 = """
typedef double2 clhist_doubles_t;

double clhist_double_of(const value_t v)
{
    return v;
}

clhist_doubles_t clhist_doubles_add(const clhist_doubles_t held, const double x)
{
    const double sum = held.x + x, part = sum - held.x;
    const double error = (held.x - (sum - part)) + (x - part), low = held.y + error;
    return (clhist_doubles_t)((low - held.y == error) & (low - error == held.y) ? sum : NAN, low);
}

clhist_doubles_t clhist_doubles_join(const clhist_doubles_t held, const clhist_doubles_t other)
{
    return clhist_doubles_add(clhist_doubles_add(held, other.x), other.y);
}

bool clhist_doubles_are_numbers(const clhist_doubles_t held)
{
    return held.x == held.x;
}

bool clhist_doubles_are_exact(const clhist_doubles_t held)
{
    return isfinite(held.x + held.y);
}

value_t clhist_doubles_rounded(const clhist_doubles_t held)
{
    return held.x + held.y;
}

accumulator_t clhist_doubles_digits(const clhist_doubles_t held)
{
    return clhist_combine(clhist_lift(held.x), clhist_lift(held.y));
}
"""
