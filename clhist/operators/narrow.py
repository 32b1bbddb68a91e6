"""Exact sums of values of similar sizes: the few words of a long integer that they lie in.

Which words those are is known when a kernel runs: the last bit is that of numbers with the exponent `base`. A value
with a smaller exponent, or too large a one, is not added but raises a flag. Whoever sees the flag raised computes the
sums again, with accumulators for all values (`clhist.operators.fixed_point`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from clhist.operators import fixed_point
from clhist.operators.fixed_point import ADDED, FORMATS, TERM
from clhist.operators.halves import half_name
from clhist.operators.operator import Operator

# An odd number: where bins are updated side by side, their first words are then in all banks.
_WORDS = {4: 3, 8: 5}
NOT_ADDED = 1  # flags of a term: a value that does not fit, and no value but 0
NOTHING = 2


@lru_cache(maxsize=4)
def exact(dtype: np.dtype) -> Operator:
    """Return the operator that adds all values of `dtype`, a float, exactly, with its narrow forms, if it has any."""
    whole = fixed_point.exact(dtype)
    if half_name(dtype):  # rounded to fewer bits than the values have in a kernel
        return whole
    return whole.changed(narrow=(_digits(dtype), _parts(dtype)))


class Range(NamedTuple):
    """Which exponents narrow sums take: `most` above that of `base`, which is from `lowest` to `highest`."""

    most: int
    lowest: int
    highest: int


def range_of(operator: Operator, count: int) -> Range:
    """Return the exponents that a narrow form takes where a bin gets so many values; `most` is negative for none."""
    part, fmt, bits = operator.parts[0], FORMATS[operator.dtype], count.bit_length()
    if part.is_split:
        most = taken_by(operator) - part.words * (max(bits, _LEAST_BITS) if part.words > 2 else bits)
        # Numbers of double precision that are normal, and below infinity, make all parts.
        apart = 0 if operator.dtype.itemsize == 4 else 64
        return Range(most, 1 + apart, fmt.specials - 1 - most - apart)
    most = min(32 * part.words - 1 - bits - fmt.precision, 32 * (part.words - 1) - 1)
    return Range(most, 1, fmt.specials - 1 - most)


def _digits(dtype: np.dtype) -> Operator:
    """Return sums in signed digits of 32 bits, for atomic additions."""
    words = _WORDS[dtype.itemsize]
    added = ADDED.replace("    both.flags = a->flags | b->flags;\n", "").replace("WORDS", str(words))
    return _narrow(dtype, ("words", np.dtype((np.int32, (words,)))), words, TERM + _term(dtype) + added)


def _parts(dtype: np.dtype) -> Operator:
    """Return sums in parts of double precision, each exact, for a CPU's own copies.

    Exactness: a part has multiples of a unit, which are summed without rounding as long as they are less than 2^53
    units; adding and taking away 1.5 * 2^52 units of the next part rounds a value to these, and what is left is less
    than one (Demmel and Nguyen, "Parallel Reproducible Summation", 2015). The unit of the first is the last bit of the
    least value; of n < 2^b values with a part of less than 2^(53 - b) units each the sum has less than 2^53.
    """
    parts = _PARTS[dtype.itemsize]
    text = _split(dtype, parts) + _ADDED_PARTS.replace("PARTS", str(parts))
    return _narrow(dtype, ("parts", np.dtype((np.float64, (parts,)))), parts, text)


def _narrow(dtype: np.dtype, field: tuple[str, np.dtype], words: int, preamble: str) -> Operator:
    """Return the operator of accumulators of one field, which have neither `lift` nor `finish`."""
    name, held = f"{dtype.name}_narrow", np.dtype([field])
    added, neutral = f"clhist_added_{name}(&a, &b)", np.zeros((), held)[()]
    own = {"accumulator": held, "lift": "v", "finish": "a", "preamble": preamble.replace("NAME", name)}
    form = Operator(dtype, added, neutral, "narrow_add", verified=True, **own)  # type: ignore[arg-type]
    return form.with_words(words, f"clhist_term_{name}", "clhist_base, clhist_most").changed(lift="", finish="")


# An exponent and so many above it are those of `parts` parts of 54 - b bits, less the bits of a significand.
_PARTS = {4: 2, 8: 3}
_LEAST_BITS = 23  # with which two parts are less than 64 bits below a third
_TAKEN = {4: 2 * 54 - 1 - 24, 8: 3 * 54 - 1 - 53}


def taken_by(operator: Operator) -> int:
    """Return the bits that all parts of a narrow form have for exponents and the number of values."""
    return _TAKEN[operator.dtype.itemsize]


_ADDED_PARTS = """accumulator_t clhist_added_NAME(const accumulator_t *a, const accumulator_t *b)
{
    accumulator_t both;
    for (int k = 0; k < PARTS; ++k)
        both.parts[k] = a->parts[k] + b->parts[k];
    return both;
}

"""


def _term(dtype: np.dtype) -> str:
    """Return C of the term of a value: its significand, shifted by its exponent less `base`, unless that is beyond."""
    fmt, long = FORMATS[dtype], dtype.itemsize == 8
    unsigned, suffix = ("ulong", "ul") if long else ("uint", "u")
    high = "(uint)(significand >> 1 >> (63 - (shift & 31)))" if long else "0"
    return f"""clhist_term_NAME_t clhist_term_NAME(const value_t v, const uint base, const uint most)
{{
    const {unsigned} bits = as_{unsigned}(v);
    const uint exponent = (uint)(bits >> {fmt.shift}) & {fmt.specials}u;
    const {unsigned} fraction = bits & 0x{(1 << fmt.shift) - 1:x}{suffix};
    const {unsigned} significand = exponent ? fraction | 0x{1 << fmt.shift:x}{suffix} : fraction;
    const uint shift = (exponent ? exponent : 1) - base;  // less than 0 is beyond
    const uint flags = shift <= most ? 0 : significand ? {NOT_ADDED} : {NOTHING};
    const ulong low = (ulong)significand << (shift & 31);
    const clhist_term_NAME_t term = {{low, {high}, -(uint)(bits >> {8 * dtype.itemsize - 1}), shift / 32, flags}};
    return term;
}}

"""


def _split(dtype: np.dtype, parts: int) -> str:
    """Return C of the unit of each part, of the parts of a value, and of whether it has them."""
    fmt, long = FORMATS[dtype], dtype.itemsize == 8
    unsigned, suffix = ("ulong", "ul") if long else ("uint", "u")
    below = (1 << (8 * dtype.itemsize - 1)) - 1
    least = fmt.least - 1 + 1023  # of the exponent 0, biased
    rounded = "\n".join(
        f"    term.parts[{k}] = (rest + clhist_round_NAME(base, most, {k})) - clhist_round_NAME(base, most, {k});\n"
        f"    rest -= term.parts[{k}];"
        for k in range(parts - 1, 0, -1)
    )
    return f"""typedef struct {{ double parts[{parts}]; uint flags; }} clhist_term_NAME_t;

// The exponent, biased, of the unit of a part.
__attribute__((always_inline)) uint clhist_unit_NAME(const uint base, const uint most, const uint part)
{{
    return base + {least}u + part * (54u - ({_TAKEN[dtype.itemsize]}u - most) / {parts}u);
}}

__attribute__((always_inline)) double clhist_round_NAME(const uint base, const uint most, const uint part)
{{
    return as_double((ulong)(clhist_unit_NAME(base, most, part) + 52) << 52 | 0x8000000000000ul);
}}

__attribute__((always_inline)) clhist_term_NAME_t clhist_term_NAME(const value_t v, const uint base, const uint most)
{{
    const {unsigned} bits = as_{unsigned}(v) & 0x{below:x}{suffix};
    clhist_term_NAME_t term;
    double rest = v;
{rounded}
    term.parts[0] = rest;
    const bool is_inside = bits - (({unsigned})base << {fmt.shift}) < ({unsigned})(most + 1) << {fmt.shift};
    term.flags = is_inside ? 0 : bits ? {NOT_ADDED} : {NOTHING};
    return term;
}}

"""
