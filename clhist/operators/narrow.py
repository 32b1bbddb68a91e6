"""Exact sums of values of similar sizes: the few words of a long integer that they lie in.

Which words those are is known when a kernel runs: the last bit is that of numbers with the exponent `base`. A value
with a smaller exponent, or too large a one, is not added but raises a flag. Whoever sees the flag raised computes the
sums again, with accumulators for all values (`clhist.operators.fixed_point`). Of windows, whose words are known before,
a CPU's own copies have narrow sums as well, in integers of 64 bits.
"""

from __future__ import annotations

from functools import lru_cache
from math import frexp
from typing import NamedTuple

import numpy as np

from clhist.operators import fixed_point
from clhist.operators.fixed_point import ADDED, FORMATS, TERM, WHOLE
from clhist.operators.halves import half_name, number_of
from clhist.operators.operator import Operator, Part

# An odd number: where bins are updated side by side, their first words are then in all banks.
_WORDS = {4: 3, 8: 5}
_WORDS_OF_A_WINDOW = 2  # of one, and of as many values as these have room for
_DIGIT_BITS = 32  # of a multiple of a window's quantum, which an integer of 64 bits has
NOT_ADDED = 1  # flags of a term: a value that does not fit, and no value but 0
NOTHING = 2


@lru_cache(maxsize=4)
def exact(dtype: np.dtype) -> Operator:
    """Return the operator that adds all values of `dtype`, a float, exactly, with its narrow forms, if it has any."""
    whole = fixed_point.exact(dtype)
    if half_name(dtype):  # rounded to fewer bits than the values have in a kernel
        return whole
    return whole.changed(narrow=(_digits(dtype), _parts(dtype)))


@lru_cache(maxsize=64)
def window(dtype: np.dtype, exponent: int, bits: int, count: int) -> Operator:
    """Return the operator of `clhist.operators.fixed_point.window`, with its narrow form, if it has any."""
    whole = fixed_point.window(dtype, exponent, bits, count)
    # A value that is not normal, which a device may take for zero, is less than half a quantum.
    fmt, double = FORMATS[number_of(dtype)], FORMATS[np.dtype(np.float64)]
    # Nor are 2^53 units of the first digit too large.
    if half_name(dtype) or exponent - bits < fmt.least + fmt.precision or exponent + 53 - _DIGIT_BITS > double.beyond:
        return whole
    narrow = [_quanta(dtype, exponent, bits)]
    if whole.parts[0].whole and whole.parts[0].words == _WORDS_OF_A_WINDOW:
        narrow.append(_digits(dtype, exponent, bits))
    return whole.changed(narrow=tuple(form.changed(largest=whole.largest) for form in narrow))


def has_quanta(part: Part) -> bool:
    """Whether a narrow form has multiples of a window's quantum."""
    return part.dtype.names == ("quanta",)


class Range(NamedTuple):
    """Which exponents narrow sums take: `most` above that of `base`, which is from `lowest` to `highest`."""

    most: int
    lowest: int
    highest: int


def range_of(operator: Operator, count: int) -> Range:
    """Return the exponents that a narrow form takes where a bin gets so many values; `most` is negative for none."""
    part, fmt, bits = operator.parts[0], FORMATS[operator.dtype], count.bit_length()
    if has_quanta(part):
        # Less than 2^bits multiples of 32 bits each must fit an integer of 64 with its sign.
        most = frexp(operator.largest or 0.0)[1] + fmt.beyond - 3  # smaller ones are rounded
        return Range(most if bits + _DIGIT_BITS < 64 else -1, 1, 1)
    if part.is_split:
        most = taken_by(operator) - part.words * (max(bits, _LEAST_BITS) if part.words > 2 else bits)
        # Numbers of double precision that are normal, and below infinity, make all parts.
        margin = 0 if operator.dtype.itemsize == 4 else 64
        return Range(most, 1 + margin, fmt.specials - 1 - most - margin)
    # The sum and its sign must fit all words, and no term may begin in the last one.
    most = min(32 * part.words - 1 - bits - fmt.precision, 32 * (part.words - 1) - 1)
    if part.whole:  # its terms are less than 2^60
        most = min(most, 60 - fmt.precision)
    return Range(most, 1, fmt.specials - 1 - most)


def _digits(dtype: np.dtype, exponent: int = 0, bits: int = 0) -> Operator:
    """Return sums in signed digits of 32 bits, for atomic additions: those of a window, if it has that many bits."""
    words, field = (_WORDS_OF_A_WINDOW, "quanta") if bits else (_WORDS[dtype.itemsize], "words")
    # Narrow accumulators have no flags, so that the line which combines them goes.
    added = ADDED.replace("    both.flags = a->flags | b->flags;\n", "").replace("WORDS", str(words))
    is_whole = dtype.itemsize == 4
    terms = WHOLE + _WHOLE_TERM if is_whole else TERM + _TERM
    if bits:
        more = ", const uint base, const uint most"
        terms = fixed_point.window_whole(dtype, "NAME", exponent, bits, flag=str(NOT_ADDED), more=more)
    added = added.replace("->words", f"->{field}").replace(".words", f".{field}")
    return _narrow(dtype, (field, np.dtype((np.int32, (words,)))), words, terms + added, is_whole=is_whole)


def _parts(dtype: np.dtype) -> Operator:
    """Return sums in parts of double precision, each exact, for a CPU's own copies.

    Exactness: a part has multiples of a unit, which are summed without rounding as long as they are less than 2^53
    units; adding and taking away 1.5 * 2^52 units of the next part rounds a value to these, and what is left is less
    than one (Demmel and Nguyen, "Parallel Reproducible Summation", 2015). The unit of the first is the last bit of the
    least value; of n < 2^b values with a part of less than 2^(53 - b) units each the sum has less than 2^53.
    """
    parts = _PARTS[dtype.itemsize]
    return _narrow(dtype, ("parts", np.dtype((np.float64, (parts,)))), parts, _split(dtype, parts) + _ADDED_PARTS)


def _quanta(dtype: np.dtype, exponent: int, bits: int) -> Operator:
    """Return sums of multiples of 2^(exponent - bits), in integers of 64 bits, for a CPU's own copies.

    Exactness: 1.5 * 2^52 units and a number of less than 2^51 is their sum, rounded to a unit, half to even, and its
    last bits say how many. What is left by the first 32 bits is at most half a unit, and a number of double precision.
    """
    digits = bits // _DIGIT_BITS
    return _narrow(
        dtype, ("quanta", np.dtype((np.uint64, (digits,)))), digits, _multiple(exponent, digits) + _ADDED_PARTS
    )


def _narrow(
    dtype: np.dtype, field: tuple[str, np.dtype], words: int, preamble: str, *, is_whole: bool = False
) -> Operator:
    """Return the operator of accumulators of one field, which have neither `lift` nor `finish`."""
    name, accumulator = f"{dtype.name}_narrow", np.dtype([field])
    preamble = preamble.replace("NAME", name).replace("FIELD", field[0]).replace("PARTS", str(words))
    added, neutral = f"clhist_added_{name}(&a, &b)", np.zeros((), accumulator)[()]
    own = {"accumulator": accumulator, "lift": "v", "finish": "a", "preamble": preamble}
    # The constructor wants both conversions. Kernels use the functions of the preamble instead.
    form = Operator(dtype, added, neutral, "narrow_add", verified=True, **own)  # type: ignore[arg-type]
    term = f"clhist_{'whole' if is_whole else 'term'}_{name}(v, clhist_base, clhist_most)"
    return fixed_point.with_words(form, words, term, term if is_whole else "").changed(lift="", finish="")


# An exponent and so many above it are those of `parts` parts of 54 - b bits, less the bits of a significand.
_PARTS = {4: 2, 8: 3}
_LEAST_BITS = 23  # with which two parts are less than 64 bits below a third
_TAKEN = {4: 2 * 54 - 1 - 24, 8: 3 * 54 - 1 - 53}


def taken_by(operator: Operator) -> int:
    """Return the bits that all parts of a narrow form have for exponents and the number of values."""
    return _TAKEN[operator.dtype.itemsize]


def quantum_of(operator: Operator) -> int:
    """Return the quantum of a window's narrow form, as an exponent above that of the least number."""
    part = operator.parts[0]
    bits = _DIGIT_BITS * (part.words if part.is_split else 1)
    return frexp(operator.largest or 0.0)[1] - bits - FORMATS[operator.dtype].least


_ADDED_PARTS = """accumulator_t clhist_added_NAME(const accumulator_t *a, const accumulator_t *b)
{
    accumulator_t both;
    for (int k = 0; k < PARTS; ++k)
        both.FIELD[k] = a->FIELD[k] + b->FIELD[k];
    return both;
}

"""


# A float32 with a larger exponent, so that its last bit is 1, is a whole number, which conversion does not round.
_WHOLE_TERM = f"""clhist_whole_NAME_t clhist_whole_NAME(const value_t v, const uint base, const uint most)
{{
    const uint bits = as_uint(v);
    const bool is_inside = (bits & 0x7fffffffu) - (base << 23) < (most + 1) << 23;
    const clhist_whole_NAME_t term = {{
        is_inside ? (long)as_float(bits + ((150u - base) << 23)) : 0,
        is_inside ? 0 : bits << 1 ? {NOT_ADDED} : {NOTHING}
    }};
    return term;
}}

"""

# Of a float64 its significand, shifted by its exponent less `base`, unless that is beyond.
_TERM = f"""clhist_term_NAME_t clhist_term_NAME(const value_t v, const uint base, const uint most)
{{
    const ulong bits = as_ulong(v);
    const uint exponent = (uint)(bits >> 52) & 2047u;
    const ulong fraction = bits & 0xffffffffffffful;
    const ulong significand = exponent ? fraction | 0x10000000000000ul : fraction;
    const uint shift = (exponent ? exponent : 1) - base;  // less than 0 is beyond
    const uint flags = shift <= most ? 0 : significand ? {NOT_ADDED} : {NOTHING};
    const ulong low = (ulong)significand << (shift & 31);
    const uint high = (uint)(significand >> 1 >> (63 - (shift & 31)));
    const clhist_term_NAME_t term = {{low, high, -(uint)(bits >> 63), shift / 32, flags}};
    return term;
}}

"""


def _split(dtype: np.dtype, parts: int) -> str:
    """Return C of the unit of each part, of the parts of a value, and of whether it has them."""
    fmt, long = FORMATS[dtype], dtype.itemsize == 8
    unsigned, suffix = ("ulong", "ul") if long else ("uint", "u")
    below = (1 << (8 * dtype.itemsize - 1)) - 1
    least = fmt.least - 1 + 1023  # of the exponent 0, biased
    # From the highest part on: each takes the multiples of its unit, and leaves the rest to the next.
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
    term.flags = is_inside || bits == 0 ? 0 : {NOT_ADDED};
    return term;
}}

"""


def _multiple(exponent: int, digits: int) -> str:
    """Return C of the multiple of its quantum that a value less than 2^exponent is, digit by digit from the highest."""
    terms = []
    for k in range(digits):
        # 1.5 * 2^52 units of the digit. Rounding is done once more, where options may let a compiler leave it out:
        # Intel's calls a function that makes a double of a long.
        magic = (1023 + 52 + exponent - (k + 1) * _DIGIT_BITS) << 52 | 1 << 51
        rest = f"rest_{k - 1} - (nearest_{k - 1} - magic_{k - 1})" if k else "v"
        terms.append(f"""\
    const double magic_{k} = as_double(0x{magic:x}ul), rest_{k} = {rest}, nearest_{k} = rest_{k} + magic_{k};
    term.parts[{k}] = as_ulong(nearest_{k}) - as_ulong(magic_{k});
""")
    return f"""typedef struct {{ ulong parts[{digits}]; uint flags; }} clhist_term_NAME_t;

__attribute__((always_inline)) clhist_term_NAME_t clhist_term_NAME(const value_t v, const uint base, const uint most)
{{
    clhist_term_NAME_t term;
{"".join(terms)}\
    // Compilers make vectors of this comparison, but not of one of the value.
    term.flags = term.parts[0] + 0xfffffffful <= 0x1fffffffeul ? 0 : {NOT_ADDED};
    return term;
}}

"""
