"""Exact sums of values of similar sizes: the few words of a long integer that they lie in.

Which words those are is known when a kernel runs: the last bit is that of numbers with the exponent `base`. A value
with a smaller exponent, or too large a one, is not added but raises a flag. Whoever sees the flag raised computes the
sums again, with accumulators for all values (`clhist.operators.fixed_point`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from clhist.operators import fixed_point
from clhist.operators.fixed_point import ADDED, FORMATS, TERM
from clhist.operators.operator import Operator

# An odd number: where bins are updated side by side, their first words are then in all banks.
_WORDS = {4: 3, 8: 5}
NOT_ADDED = 1  # flags of a term: a value that does not fit, and no value but 0
NOTHING = 2


@lru_cache(maxsize=4)
def exact(dtype: np.dtype) -> Operator:
    """Return the operator that adds all values of `dtype`, float32 or float64, exactly, with its narrow form."""
    return fixed_point.exact(dtype).changed(narrow=narrow(dtype))


@lru_cache(maxsize=4)
def narrow(dtype: np.dtype) -> Operator:
    """Return the accumulators of values of `dtype` in few words, which have neither `lift` nor `finish`."""
    words, name = _WORDS[dtype.itemsize], f"{dtype.name}_narrow"
    held = np.dtype([("words", np.dtype((np.int32, (words,))))])
    form = Operator(
        dtype,
        f"clhist_added_{name}(&a, &b)",
        np.zeros((), held)[()],
        "narrow_add",
        accumulator=held,
        lift="v",
        finish="a",
        preamble=TERM.replace("NAME", name)
        + _term(dtype, name)
        + ADDED.replace("    both.flags = a->flags | b->flags;\n", "")
        .replace("NAME", name)
        .replace("WORDS", str(words)),
        verified=True,
    )
    return form.with_words(words, f"clhist_term_{name}", "clhist_base, clhist_most").changed(lift="", finish="")


def most_shift(operator: Operator, count: int) -> int:
    """Return by how many bits a significand may be shifted where a bin gets so many values; negative if by none."""
    words = operator.parts[0].words
    return min(32 * words - 1 - count.bit_length() - FORMATS[operator.dtype].precision, 32 * (words - 1) - 1)


def _term(dtype: np.dtype, name: str) -> str:
    """Return C of the term of a value: its significand, shifted by its exponent less `base`, unless that is beyond."""
    fmt, long = FORMATS[dtype], dtype.itemsize == 8
    unsigned, suffix = ("ulong", "ul") if long else ("uint", "u")
    high = "term.high = (uint)(significand >> 1 >> (63 - within));\n    " if long else ""
    return f"""clhist_term_{name}_t clhist_term_{name}(const value_t v, const uint base, const uint most)
{{
    const {unsigned} bits = as_{unsigned}(v);
    const uint exponent = (uint)(bits >> {fmt.shift}) & {fmt.specials}u;
    const {unsigned} fraction = bits & 0x{(1 << fmt.shift) - 1:x}{suffix};
    const {unsigned} significand = exponent ? fraction | 0x{1 << fmt.shift:x}{suffix} : fraction;
    const uint shift = (exponent ? exponent : 1) - base, within = shift & 31;  // less than 0 is beyond
    clhist_term_{name}_t term = {{0, 0, -(uint)(bits >> {8 * dtype.itemsize - 1}), shift / 32, 0}};
    term.flags = shift <= most ? 0 : significand ? {NOT_ADDED} : {NOTHING};
    term.low = (ulong)significand << within;
    {high}return term;
}}

"""
