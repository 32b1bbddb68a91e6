"""Sums of floats that are exact: long integers, to which each value is added as the multiple of a quantum that it is.

The accumulator is that of Kulisch ("Computer Arithmetic and Validity", 2008), a superaccumulator: a fixed-point number
as wide as the dtype's range and a number of values need. It is kept in words of 32 bits, each a signed digit of base
2^32, so that sums near zero change few of them and 0 is all zeros. Native integer additions update it, and each passes
on the carry that its own returned word shows (kernels_cl/update.mako). Nothing is rounded but the result, once, and
values of a window to its quantum. Terms are made of bits alone, or by conversions that are exact or round half to even,
also where a device takes subnormal numbers for zero.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import frexp, ldexp
from typing import NamedTuple

import numpy as np

from clhist.operators.c_types import c_name
from clhist.operators.halves import half_name, number_of
from clhist.operators.operator import Operator

# A program is compiled for each exponent of a window: steps leave few of them, and cost at most so many bits less one.
_EXPONENT_STEP = 4
MOST_VALUES = 2**47 - 1  # of a window
MOST_EXACT_VALUES = 2**42 - 1  # of the whole range: float32 then has ten words
_WORD_BITS = 32

_NAN, _INFINITY, _NEGATIVE_INFINITY, _TOO_LARGE = 1, 2, 4, 8  # flags of an accumulator


class _Format(NamedTuple):
    """A floating-point format: the bits of a significand, the exponent of the least number, that of infinity, and the
    NaN that says that a value was larger than it may be."""

    precision: int
    least: int
    beyond: int
    mark: int

    @property
    def shift(self) -> int:
        """Where the exponent lies."""
        return self.precision - 1

    @property
    def specials(self) -> int:
        """The biased exponent of infinities and NaN."""
        return 2 * self.beyond - 1


FORMATS = {
    np.dtype(np.float32): _Format(24, -149, 128, 0x7FC00F10),
    np.dtype(np.float64): _Format(53, -1074, 1024, 0x7FF8000000000F10),
}
_ROUNDED_TO = {"float16": _Format(11, -24, 16, 0x7E0F), "bfloat16": _Format(8, -133, 128, 0x7FC1)}


def has_format(dtype: np.dtype) -> bool:
    """Whether there are exact sums of this dtype."""
    return dtype in FORMATS


def least_of(dtype: np.dtype) -> float:
    """Return the least number of a dtype."""
    return float(ldexp(1.0, _result_format(dtype).least))


def _result_format(dtype: np.dtype) -> _Format:
    """Return the format to which sums are rounded: of half precision its own, while values are floats."""
    half = half_name(dtype)
    return _ROUNDED_TO[half] if half else FORMATS[dtype]


def exponent_of(max_abs: float, dtype: np.dtype, bits: int) -> int:
    """Return e such that values of at most `max_abs` are less than 2^e: a multiple of a step, at least the format's."""
    fmt = FORMATS[number_of(dtype)]
    # The least multiple of the step that is no less than frexp's exponent, the e with max_abs < 2^e.
    exponent = -(-frexp(max_abs)[1] // _EXPONENT_STEP) * _EXPONENT_STEP if max_abs else fmt.least
    # No quantum is smaller than the least float.
    return min(max(exponent, fmt.least + bits), fmt.beyond)


# Cached: making an operator takes longer than launching its kernels.
@lru_cache(maxsize=64)
def exact(dtype: np.dtype) -> Operator:
    """Return the operator that adds all values of `dtype`, a float, exactly."""
    fmt = FORMATS[number_of(dtype)]
    name, bits = f"{dtype.name}_exact", fmt.beyond - fmt.least
    words = _words(bits, MOST_EXACT_VALUES)
    return _operator(dtype, name, _exact_term(dtype, name), fmt.least, words, most_values=MOST_EXACT_VALUES - 1)


@lru_cache(maxsize=64)
def window(dtype: np.dtype, exponent: int, bits: int, count: int) -> Operator:
    """Return the operator that adds values of less than 2^exponent as multiples of 2^(exponent - bits).

    Parameters
    ----------
    dtype : numpy.dtype
        A float.
    exponent : int
        As `exponent_of` gives it.
    bits : int
        At most 64.
    count : int
        How many values a bin may get.
    """
    words = _words(bits, count)
    name = f"{dtype.name}_{'m' * (exponent < 0)}{abs(exponent)}_{bits}_{words}"
    number = number_of(dtype)
    # A power of two with the exponent of infinity overflows: the bound is the largest finite number then.
    largest = np.nextafter(number.type(np.inf), number.type(0)) if exponent == FORMATS[number].beyond else None
    if largest is None:
        largest = np.nextafter(np.ldexp(number.type(1), exponent), number.type(0))
    term, whole = _window_term(dtype, name, exponent, bits), window_whole(number, name, exponent, bits)
    return _operator(
        dtype,
        name,
        term + whole,
        exponent - bits,
        words,
        most_values=count - 1,
        largest=float(largest),
        is_whole=bool(whole),
    )


def _words(bits: int, count: int) -> int:
    """Return the words of a sum of so many integers of so many bits, and of its sign."""
    return -(-(bits + count.bit_length() + 1) // _WORD_BITS)


def _operator(
    dtype: np.dtype,
    name: str,
    term: str,
    quantum: int,
    words: int,
    *,
    most_values: int,  # one more is for dest
    largest: float | None = None,
    is_whole: bool = False,
) -> Operator:
    # An odd number of words: where bins are updated side by side, their first words are then in all banks.
    fields: list[tuple[str, object]] = [("words", np.dtype((np.int32, (words,)))), ("flags", np.uint32)]
    accumulator = np.dtype(fields if words % 2 == 0 else [*fields, ("unused", np.uint32)])
    operator = Operator(
        dtype,
        f"clhist_added_{name}(&a, &b)",
        np.zeros((), accumulator)[()],
        "reproducible_add",
        accumulator=accumulator,
        lift=f"clhist_lifted_{name}(v)",
        finish=f"clhist_rounded_{name}(&a)",
        preamble=TERM.replace("NAME", name)
        + term
        + (_LIFTED + ADDED).replace("NAME", name).replace("WORDS", str(words))
        + _rounded(dtype, name, quantum, words),
        most_values=most_values,
        largest=largest,
        verified=True,
    )
    return with_words(operator, words, f"clhist_term_{name}(v)", f"clhist_whole_{name}(v)" if is_whole else "")


def with_words(operator: Operator, words: int, term: str, whole: str = "") -> Operator:
    """Return an operator whose accumulators are long integers of so many words; see `Part` for the other two."""
    (part,) = operator.parts
    return operator.changed(parts=(replace(part, words=words, term=term, whole=whole),))


# What a value adds: an integer of 96 bits, `low` and `high`, from the word `at` on; `minus` is all ones if it is
# negative. Flags instead, if it is no number.
TERM = """typedef struct { ulong low; uint high, minus, at, flags; } clhist_term_NAME_t;

"""

# The same where it is one integer of 64 bits from the first word on.
WHOLE = """typedef struct { long value; uint flags; } clhist_whole_NAME_t;

"""

# Pointers: a compiler (PoCL 3.0 with LLVM 14) loses the flags of a struct that functions pass on by value.
# Digits are signed: the least of them that is congruent to a sum modulo 2^32 leaves a carry of -1, 0 or 1.
_LIFTED = """accumulator_t clhist_lifted_NAME(const value_t v)
{
    const clhist_term_NAME_t term = clhist_term_NAME(v);
    accumulator_t held = {{0}};  // padding, too
    long carry = 0;
    for (int k = 0; k < WORDS; ++k) {
        const int n = k - (int)term.at;
        const long digit = n == 0 ? (uint)term.low : n == 1 ? (uint)(term.low >> 32) : n == 2 ? term.high : 0;
        carry += term.minus ? -digit : digit;
        held.words[k] = (int)carry;
        carry = (carry - (int)carry) >> 32;
    }
    held.flags = term.flags;
    return held;
}

"""
ADDED = """accumulator_t clhist_added_NAME(const accumulator_t *a, const accumulator_t *b)
{
    accumulator_t both = {{0}};
    long carry = 0;
    for (int k = 0; k < WORDS; ++k) {
        carry += (long)a->words[k] + b->words[k];
        both.words[k] = (int)carry;
        carry = (carry - (int)carry) >> 32;
    }
    both.flags = a->flags | b->flags;
    return both;
}

"""


def _of_bits(dtype: np.dtype, name: str, exponent: int) -> str:
    """Return the beginning of a term: sign, exponent and fraction of `v`, and the flags of what is no smaller value."""
    dtype = number_of(dtype)
    fmt = FORMATS[dtype]
    return f"""clhist_term_{name}_t clhist_term_{name}(const value_t v)
{{
    const ulong bits = as_{"uint" if dtype.itemsize == 4 else "ulong"}(v);
    const int exponent = (int)(bits >> {fmt.shift} & {fmt.specials});
    const ulong fraction = bits & 0x{(1 << fmt.shift) - 1:x}ul;
    clhist_term_{name}_t term = {{0, 0, -(uint)(bits >> {8 * dtype.itemsize - 1}), 0, 0}};
    if (exponent >= {exponent + fmt.beyond - 1}) {{
        const uint infinity = term.minus ? {_NEGATIVE_INFINITY}u : {_INFINITY}u;
        term.flags = exponent < {fmt.specials} ? {_TOO_LARGE}u : fraction ? {_NAN}u : infinity;
        return term;
    }}
    const ulong significand = exponent > 0 ? fraction | 0x{1 << fmt.shift:x}ul : fraction;
"""


def _exact_term(dtype: np.dtype, name: str) -> str:
    """Return C of the term of any value, in least numbers: significand * 2^shift, in two words or three."""
    high = "term.high = (uint)(significand >> 1 >> (63 - within));\n    " if dtype.itemsize == 8 else ""
    return f"""{_of_bits(dtype, name, FORMATS[number_of(dtype)].beyond)}\
    const uint shift = (uint)(exponent > 0 ? exponent - 1 : 0), within = shift & {_WORD_BITS - 1};
    term.at = shift / {_WORD_BITS};
    term.low = significand << within;
    {high}return term;
}}

"""


def _window_term(dtype: np.dtype, name: str, exponent: int, bits: int) -> str:
    fmt = FORMATS[number_of(dtype)]
    # In one word where that holds a term and half a quantum: shifts of 64 bits take a GPU several instructions.
    kind, one, last = ("uint", "1u", 31) if bits == 32 and fmt.precision < 31 else ("ulong", "1ul", 63)
    return f"""{_of_bits(dtype, name, exponent)}\
    const int shift = (exponent > 0 ? exponent : 1) + ({fmt.least - 1 - (exponent - bits)});  // in quanta: * 2^shift
    const {kind} all = ({kind})significand;
    {kind} kept = all << (shift & {last});
    if (shift < 0) {{  // some bits are rounded away, half to even
        const int drop = shift < -{fmt.precision} ? {fmt.precision + 1} : -shift;
        kept = (all + ({one} << (drop - 1)) - 1 + (all >> drop & 1)) >> drop;
    }}
    term.low = kept;
    return term;
}}

"""


def window_whole(number: np.dtype, name: str, exponent: int, bits: int, *, flag: str = "", more: str = "") -> str:
    """Return C of the term as one integer of 64 bits, or nothing.

    A float32 times a power of two is exact unless it is then subnormal, or was, which is less than half a quantum.
    Conversion rounds half to even. `flag` is that of all that is no smaller value, if there is one; `more` parameters.
    """
    fmt = FORMATS[number]
    if number.itemsize != 4 or bits != 32 or exponent - bits < fmt.least + fmt.precision:
        return ""
    infinity = f"bits >> 31 ? {_NEGATIVE_INFINITY}u : {_INFINITY}u"
    flag = flag or f"size < 0x7f800000u ? {_TOO_LARGE}u : size > 0x7f800000u ? {_NAN}u : {infinity}"
    return f"""{WHOLE.replace("NAME", name)}\
clhist_whole_{name}_t clhist_whole_{name}(const value_t v{more})
{{
    const uint bits = as_uint(v), size = bits & 0x7fffffffu;
    const bool is_inside = size < {exponent + fmt.beyond - 1}u << {fmt.shift};
    const clhist_whole_{name}_t term = {{
        is_inside ? convert_long_rte(v * 0x1p{bits - exponent}f) : 0,
        is_inside ? 0 : {flag}
    }};
    return term;
}}

"""


def _rounded(dtype: np.dtype, name: str, quantum: int, words: int) -> str:
    fmt, half, kind = _result_format(dtype), half_name(dtype), c_name(dtype)
    unsigned = {2: "ushort", 4: "uint", 8: "ulong"}[dtype.itemsize]
    infinity, sign = fmt.specials << fmt.shift, 1 << (8 * dtype.itemsize - 1)
    quiet = infinity | 1 << (fmt.shift - 1)
    number = f"clhist_of_{half}" if half else f"as_{kind}"
    # That of half precision must outlive the way to a float and back.
    mark = "as_float(0x7fc1e000u)" if half else f"{number}(({unsigned})0x{fmt.mark:x}ul)"
    # Numbers of a narrower format may be less than half of its least one.
    left = "(left & 63)" if fmt.least > quantum else "left"
    rounded = """    ulong kept = head >> (64 - left);
    kept += cut > half_way || (cut == half_way && (tail || (kept & 1)));"""
    if fmt.least > quantum:
        # `left` can be less than 1 then, and C has no shift by 64 bits or more. Below 0 nothing is rounded up.
        rounded = (
            rounded.replace("head", "left < 1 ? 0 : head")
            .replace("kept += ", "kept += left >= 0 && (")
            .replace("1)));", "1))));")
        )
    return f"""// Digits of a magnitude, from the lowest: the highest that is not 0, two below, whether there is more.
typedef struct {{ uint above, before, rest, first, second, third, more; int at; }} clhist_digits_{name}_t;

void clhist_take_{name}(clhist_digits_{name}_t *held, const uint digit, const int k)
{{
    if (digit) {{
        held->first = digit, held->second = held->above, held->third = held->before, held->more = held->rest;
        held->at = k;
    }}
    held->rest |= held->before, held->before = held->above, held->above = digit;
}}

// The number of these digits in multiples of 2^`offset` least numbers, rounded to nearest.
{kind} clhist_nearest_{name}(const clhist_digits_{name}_t *held, const int offset, const uint minus)
{{
    if (held->first == 0)
        return 0;
    // Its first 64 bits, and whether there are others.
    const uint zeros = clz(held->first);
    const ulong head = (((ulong)held->first << 32 | held->second) << zeros) | ((ulong)held->third << zeros) >> 32;
    const bool tail = (held->third << zeros) | held->more;
    // Rounded to {fmt.precision} bits, half to even, but not to less than the least number.
    const int length = {_WORD_BITS} * (held->at + 1) - (int)zeros;
    const int drop = max(length - {fmt.precision}, -offset), left = length - drop;
    const ulong cut = head << {left}, half_way = 0x8000000000000000ul;
{rounded}
    const ulong bits = ((ulong)(drop + offset) << {fmt.shift}) + kept;
    return {number}(({unsigned})(min(bits, 0x{infinity:x}ul) | (minus ? 0x{sign:x}ul : 0)));
}}

{kind} clhist_rounded_{name}(const accumulator_t *sum)
{{
    if (sum->flags & {_NAN} || (sum->flags & {_INFINITY} && sum->flags & {_NEGATIVE_INFINITY}))
        return {number}(({unsigned})0x{quiet:x}ul);
    if (sum->flags & {_INFINITY | _NEGATIVE_INFINITY})
        return {number}(({unsigned})(sum->flags & {_INFINITY} ? 0x{infinity:x}ul : 0x{infinity | sign:x}ul));
    if (sum->flags)
        return {mark};
    // The sign is what the digits carry beyond the last.
    long carry = 0;
    for (int k = 0; k < {words}; ++k)
        carry = (carry + sum->words[k]) >> 32;
    const uint minus = (uint)carry;
    clhist_digits_{name}_t held = {{0, 0, 0, 0, 0, 0, 0, 0}};
    ulong one = minus & 1;  // -x is ~x + 1
    carry = 0;
    for (int k = 0; k < {words}; ++k) {{
        carry += sum->words[k];
        one += (uint)carry ^ minus;
        clhist_take_{name}(&held, (uint)one, k);
        carry >>= 32;
        one >>= 32;
    }}
    return clhist_nearest_{name}(&held, {quantum - fmt.least}, minus);
}}"""


def check_range(name: str, operator: Operator, result: np.ndarray) -> None:
    """Raise OverflowError if a bin of `result` says that it got a value which is too large for `operator`."""
    if operator.largest is None:
        return
    # Bits are compared, since a NaN equals nothing, and other NaN are results of the data.
    marked = result.view(f"u{result.itemsize}") == _result_format(operator.dtype).mark
    if marked.any():
        first = tuple(int(k) for k in np.argwhere(marked)[0])
        raise OverflowError(
            f"max_abs: expected no less than the largest |value|, got one for values up to {operator.largest:g}; "
            f"{int(marked.sum())} bins of the result{name} got larger ones and are NaN, the first at {first}"
        )
