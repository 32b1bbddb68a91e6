"""Sums of floats whose result does not depend on the order of their terms: values as integers, which add exactly.

A value is rounded once, to a multiple of a quantum 2^q that suits the largest |value|, and this multiple is kept in
limbs: 64-bit integers which each take so few bits of a value that no sum of `count` values can overflow. The total is
rounded once more, to a float. Conversions are of bits alone, so that no device's rounding or flushing takes part.
"""

from __future__ import annotations

from math import frexp
from typing import NamedTuple

import numpy as np

from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator

# A program is compiled for each exponent: steps leave few of them, and cost at most so many bits less one.
_EXPONENT_STEP = 4
MOST_VALUES = 2**47 - 1  # then a limb takes 16 bits, and a total of four limbs fits 128

_NAN, _INFINITY, _NEGATIVE_INFINITY, _TOO_LARGE = 1, 2, 4, 8


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


FORMATS = {
    np.dtype(np.float32): _Format(24, -149, 128, 0x7FC00F10),
    np.dtype(np.float64): _Format(53, -1074, 1024, 0x7FF8000000000F10),
}


def exponent_of(max_abs: float, dtype: np.dtype, bits: int) -> int:
    """Return e such that values of at most `max_abs` are less than 2^e: a multiple of a step, at least the format's."""
    fmt = FORMATS[dtype]
    exponent = -(-frexp(max_abs)[1] // _EXPONENT_STEP) * _EXPONENT_STEP if max_abs else fmt.least
    return min(max(exponent, fmt.least + bits), fmt.beyond)  # no quantum is less than the least float


def operator_on(dtype: np.dtype, exponent: int, bits: int, count: int) -> Operator:
    """Return the operator that adds values of less than 2^exponent as multiples of 2^(exponent - bits).

    Parameters
    ----------
    dtype : numpy.dtype
        float32 or float64.
    exponent : int
        As `exponent_of` gives it.
    bits : int
        At most 64.
    count : int
        How many values a bin may get.
    """
    width = min(32, 63 - count.bit_length())
    limbs = -(-bits // width)
    sums = Operator(np.int64, "a + b", 0)
    flags = Operator(np.uint32, "a | b", 0)
    name = f"{dtype.name}_{'m' * (exponent < 0)}{abs(exponent)}_{bits}_{width}"
    largest = np.nextafter(dtype.type(np.inf), dtype.type(0)) if exponent == FORMATS[dtype].beyond else None
    if largest is None:
        largest = np.nextafter(np.ldexp(dtype.type(1), exponent), dtype.type(0))
    return Operator(
        dtype,
        {f"limb{k}": sums for k in range(limbs)} | {"flags": flags},
        name="reproducible_add",
        lift=f"clhist_to_limbs_{name}(v)",
        finish=f"clhist_from_limbs_{name}(a)",
        preamble=_to_limbs(dtype, name, exponent, bits, width, limbs)
        + _from_limbs(dtype, name, exponent - bits, width, limbs),
        most_values=count - 1,  # one is for dest
        largest=float(largest),
    )


def _to_limbs(dtype: np.dtype, name: str, exponent: int, bits: int, width: int, limbs: int) -> str:
    fmt = FORMATS[dtype]
    specials = 2 * fmt.beyond - 1  # biased exponent of infinities and NaN
    parts = [f"whole >> {k * width}" for k in range(limbs)]
    mask = f" & 0x{(1 << width) - 1:x}ul"
    lines = "\n    ".join(
        f"limbs.limb{k} = (long)({part}{mask if k < limbs - 1 else ''}) * sign;" for k, part in enumerate(parts)
    )
    return f"""accumulator_t clhist_to_limbs_{name}(const value_t v)
{{
    const ulong bits = as_{"uint" if dtype.itemsize == 4 else "ulong"}(v);
    const int exponent = (int)(bits >> {fmt.shift} & {specials});
    const ulong fraction = bits & 0x{(1 << fmt.shift) - 1:x}ul;
    const bool is_negative = bits >> {8 * dtype.itemsize - 1};
    accumulator_t limbs = {{{", ".join(["0"] * (limbs + 1))}}};
    if (exponent >= {exponent + fmt.beyond - 1}) {{
        const uint infinity = is_negative ? {_NEGATIVE_INFINITY}u : {_INFINITY}u;
        limbs.flags = exponent < {specials} ? {_TOO_LARGE}u : fraction ? {_NAN}u : infinity;
        return limbs;
    }}
    const ulong significand = exponent > 0 ? fraction | 0x{1 << fmt.shift:x}ul : fraction;
    const int shift = max(exponent, 1) + ({fmt.least - 1 - (exponent - bits)});  // in quanta: significand * 2^shift
    const int drop = clamp(-shift, 1, {fmt.precision + 1});  // bits to round away, half to even
    const ulong rounded = (significand + (1ul << (drop - 1)) - 1 + (significand >> drop & 1)) >> drop;
    const ulong whole = shift < 0 ? rounded : significand << shift;
    const long sign = is_negative ? -1 : 1;
    {lines}
    return limbs;
}}
"""


def _from_limbs(dtype: np.dtype, name: str, quantum: int, width: int, limbs: int) -> str:
    fmt = FORMATS[dtype]
    unsigned = "uint" if dtype.itemsize == 4 else "ulong"
    infinity, sign = (2 * fmt.beyond - 1) << fmt.shift, 1 << (8 * dtype.itemsize - 1)
    quiet = infinity | 1 << (fmt.shift - 1)
    more = "\n    ".join(
        f"term = (ulong)limbs.limb{k} << {k * width}, low += term, "
        f"high += (limbs.limb{k} >> {64 - k * width}) + (low < term);"
        for k in range(1, limbs)
    )
    declared = "    ulong term;\n" if limbs > 1 else ""
    return f"""{c_name(dtype)} clhist_from_limbs_{name}(const accumulator_t limbs)
{{
    if (limbs.flags & {_NAN} || (limbs.flags & {_INFINITY} && limbs.flags & {_NEGATIVE_INFINITY}))
        return as_{c_name(dtype)}(({unsigned})0x{quiet:x}ul);
    if (limbs.flags & {_INFINITY | _NEGATIVE_INFINITY})
        return as_{c_name(dtype)}(({unsigned})(limbs.flags & {_INFINITY} ? 0x{infinity:x}ul : 0x{infinity | sign:x}ul));
    if (limbs.flags)
        return as_{c_name(dtype)}(({unsigned})0x{fmt.mark:x}ul);
    // The total in two words, and its magnitude.
    ulong low = (ulong)limbs.limb0;
    long high = limbs.limb0 >> 63;
{declared}    {more}
    const bool is_negative = high < 0;
    if (is_negative) {{
        low = -low;
        high = ~high + (low == 0);
    }}
    if (high == 0 && low == 0)
        return 0;
    // Rounded to {fmt.precision} bits, half to even, but not to less than the least number.
    const int length = high ? 128 - (int)clz(high) : 64 - (int)clz(low);
    const int drop = max(length - {fmt.precision}, {fmt.least - quantum});
    ulong kept;
    if (drop <= 0) {{
        kept = low << -drop;
    }} else {{
        const int before = drop - 1;
        ulong rest;
        if (before == 0) {{
            kept = low;
            rest = 0;
        }} else if (before < 64) {{
            kept = (ulong)high << (64 - before) | low >> before;
            rest = low << (64 - before);
        }} else {{
            kept = (ulong)high >> (before - 64);
            rest = low | ((ulong)high & ((1ul << (before - 64)) - 1));
        }}
        const bool is_half = kept & 1;
        kept >>= 1;
        kept += is_half && (rest || kept & 1);
    }}
    const ulong bits = ((ulong)(drop + ({quantum - fmt.least})) << {fmt.shift}) + kept;
    return as_{c_name(dtype)}(({unsigned})(min(bits, 0x{infinity:x}ul) | (is_negative ? 0x{sign:x}ul : 0)));
}}"""


def check_range(name: str, operator: Operator, result: np.ndarray) -> None:
    """Raise OverflowError if a bin of `result` says that it got a value which is too large for `operator`."""
    if operator.largest is None:
        return
    marked = result.view(f"u{result.itemsize}") == FORMATS[operator.dtype].mark
    if marked.any():
        first = tuple(int(k) for k in np.argwhere(marked)[0])
        raise OverflowError(
            f"max_abs: expected no less than the largest |value|, got one for values up to {operator.largest:g}; "
            f"{int(marked.sum())} bins of the result{name} got larger ones and are NaN, the first at {first}"
        )
