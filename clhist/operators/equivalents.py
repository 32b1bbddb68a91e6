"""Operators lifted to others of the same results that hardware updates better (design: order-preserving integers).

A float is ordered as an integer by its bits, with all of them turned if it is negative and the sign bit alone if not.
A (value, index) pair of 32 bits each is ordered as one integer of 64. A saturating sum is an exact one, clamped when it
is read. All that is decided here is how; whether it pays is decided where an update is chosen
(`clhist._core.devices.vendors`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from clhist.operators.c_types import c_name, literal
from clhist.operators.halves import number_of
from clhist.operators.operator import Equivalent, Operator

# All bits of a word of 32, and its sign bit.
_ALL, _SIGN = 0xFFFFFFFF, 0x80000000


def minimum(dtype: np.dtype) -> Operator:
    """`clhist.operators.minimum` of floats: NaN below all, -0 below +0."""
    return _ordered("minimum", dtype, "min(a, b)", _key(np.inf, dtype), nan=0)


def maximum(dtype: np.dtype) -> Operator:
    """`clhist.operators.maximum` of floats: NaN above all, -0 below +0."""
    return _ordered("maximum", dtype, "max(a, b)", _key(-np.inf, dtype), nan=_ones(dtype))


def minimum_or_nan(dtype: np.dtype) -> Operator:
    """The minimum of floats, NaN for a bin without values as well as for one with a NaN."""
    return _ordered("minimum", dtype, "min(a, b)", _ones(dtype), nan=0)


def maximum_or_nan(dtype: np.dtype) -> Operator:
    """The maximum of floats, NaN for a bin without values as well as for one with a NaN."""
    return _ordered("maximum", dtype, "max(a, b)", 0, nan=_ones(dtype))


def fmin(dtype: np.dtype) -> Operator:
    """`clhist.operators.fmin` of floats: NaN, the neutral element, above all."""
    return _ordered("fmin", dtype, "min(a, b)", _ones(dtype), nan=_ones(dtype))


def fmax(dtype: np.dtype) -> Operator:
    """`clhist.operators.fmax` of floats: NaN, the neutral element, below all."""
    return _ordered("fmax", dtype, "max(a, b)", 0, nan=0)


def arg(name: str, pair: np.dtype, neutral: tuple[object, int]) -> Iterable[Equivalent]:
    """`clhist.operators.argmin` and `argmax` of 32 bits each: the order of values above, that of indices below.

    Of equal values the lower index must win: where the largest integer does, the order of indices is turned.
    """
    value, index = pair["value"], pair["index"]
    # Value and index share the 64 bits of one atomic.
    if value.itemsize > 4 or index.itemsize > 4:
        return ()
    largest = name == "argmax"
    turned = "~" if largest else ""
    # A NaN has the key that wins, as in NumPy.
    nan = _ALL if largest else 0
    if value.kind == "f":
        # Adding +0 makes +0 of -0: equal values need equal keys, so that the index decides.
        high = f"(v.value != v.value ? 0x{nan:x}u : {_encode('v.value + 0.0f', value)})"
        back = _decode("(uint)(a >> 32)", value)
    else:
        high, back = _ordered_integer("v.value", value), _restored_integer("(uint)(a >> 32)", value)
    low, restored = _ordered_integer("v.index", index), _restored_integer(f"{turned}(uint)a", index)
    # The key of the identity element is that of `lift`, with the index turned likewise.
    key = _key(neutral[0], value) << 32 | (_key(neutral[1], index) ^ (_ALL if largest else 0))
    operator = Operator(
        pair,
        "max(a, b)" if largest else "min(a, b)",
        key,
        name,
        accumulator=np.uint64,
        lift=f"(ulong){high} << 32 | (uint){turned}{low}",
        finish=f"(value_t){{{back}, {restored}}}",
    )
    return (Equivalent(operator),)


def position(name: str, pair: np.dtype, neutral: tuple[object, int]) -> Iterable[Equivalent]:
    """`clhist.operators.first` and `last` of 32 bits each: the order of indices above, the value's bits below."""
    value, index = pair["value"], pair["index"]
    if value.itemsize > 4 or index.itemsize > 4:
        return ()
    # An index may be that of the neutral element, which must lose: it has the largest bits, or for the last the least.
    turned = "~" if name == "first" else ""
    low = "as_uint(v.value)" if value.kind == "f" else "(uint)v.value"
    back = f"as_float({turned}(uint)a)" if value.kind == "f" else f"({c_name(value)})({turned}(uint)a)"
    operator = Operator(
        pair,
        "min(a, b)" if name == "first" else "max(a, b)",
        _key(neutral[1], index) << 32 | (_ALL if turned else 0),
        name,
        accumulator=np.uint64,
        lift=f"(ulong){_ordered_integer('v.index', index)} << 32 | (uint){turned}{low}",
        finish=f"(value_t){{{back}, {_restored_integer('(uint)(a >> 32)', index)}}}",
    )
    return (Equivalent(operator),)


def exact_sums(dtype: np.dtype, limit: int) -> tuple[Equivalent, ...]:
    """`clhist.operators.saturating_add` of integers: exact sums, as long as so many terms cannot wrap."""
    forms = []
    # 32 bits first: each device has their atomics, while those of 64 bits are an extension.
    for accumulator, suffix in ((np.dtype(np.uint32), "u"), (np.dtype(np.uint64), "ul")):
        most = np.iinfo(accumulator).max // limit
        if most > 1:
            kind = c_name(accumulator)
            # Terms are clamped to the limit, so that `most` of them cannot overflow.
            operator = Operator(
                dtype,
                "a + b",
                0,
                "saturating_add",
                accumulator=accumulator,
                lift=f"({kind})(v < {literal(limit, dtype)} ? v : {literal(limit, dtype)})",
                finish=f"({c_name(dtype)})min(a, ({kind}){limit}{suffix})",
            )
            forms.append(Equivalent(operator, int(most)))
    return tuple(forms)


def _ordered(name: str, dtype: np.dtype, combine: str, neutral: int, nan: int) -> Operator:
    number = number_of(dtype)
    bits = np.dtype(f"u{number.itemsize}")
    return Operator(
        dtype,
        combine,
        neutral,
        name,
        accumulator=bits,
        lift=f"v != v ? ({c_name(bits)})0x{nan:x}ul : {_encode('v', number)}",
        finish=_decode("a", number),
    )


def _words(dtype: np.dtype) -> tuple[str, str, str, str]:
    return (
        ("uint", "int", "0x80000000u", "31") if dtype.itemsize == 4 else ("ulong", "long", "0x8000000000000000ul", "63")
    )


def _encode(number: str, dtype: np.dtype) -> str:
    unsigned, signed, sign, shift = _words(dtype)
    # The arithmetic shift makes a mask of the sign: all bits of a negative number, else the sign bit alone.
    return f"(as_{unsigned}({number}) ^ (({unsigned})(as_{signed}({number}) >> {shift}) | {sign}))"


def _decode(key: str, dtype: np.dtype) -> str:
    unsigned, signed, sign, shift = _words(dtype)
    # Keys have the sign bit inverted, and so the mask is inverted, too.
    return f"as_{c_name(dtype)}({key} ^ (~({unsigned})(({signed})({key}) >> {shift}) | {sign}))"


def _ordered_integer(number: str, dtype: np.dtype) -> str:
    return f"((uint){number} ^ 0x{_SIGN:x}u)" if dtype.kind == "i" else f"((uint){number})"


def _restored_integer(key: str, dtype: np.dtype) -> str:
    return f"({c_name(dtype)})({key} ^ 0x{_SIGN:x}u)" if dtype.kind == "i" else f"({c_name(dtype)})({key})"


def _key(number: object, dtype: np.dtype) -> int:
    """Return the key that the C above makes of `number`."""
    dtype = number_of(dtype)
    if dtype.kind == "f":
        width = 8 * dtype.itemsize
        bits = int(np.asarray(number, dtype).view(f"u{dtype.itemsize}"))
        return bits ^ ((1 << width) - 1 if bits >> (width - 1) else 1 << (width - 1))
    # Python's integers have no width: the mask makes two's complement of 32 bits, before the sign bit is turned.
    return int(number) & _ALL ^ (_SIGN if dtype.kind == "i" else 0)  # type: ignore[call-overload]


def _ones(dtype: np.dtype) -> int:
    return (1 << 8 * number_of(dtype).itemsize) - 1


def encoded(number: str, dtype: np.dtype) -> str:
    """Return C of an unsigned integer, of 32 bits or 64, in the order of the numbers of `dtype`; -0 is below +0."""
    if dtype.kind == "f":
        return _encode(number, dtype)
    if dtype.itemsize == 8:
        return f"((ulong){number} ^ 0x8000000000000000ul)" if dtype.kind == "i" else f"((ulong){number})"
    return _ordered_integer(f"(int){number}" if dtype.kind == "i" else number, dtype)


def decoded(key: str, dtype: np.dtype) -> str:
    """Return C of the number of which `encoded` makes `key`."""
    if dtype.kind == "f":
        return _decode(key, dtype)
    if dtype.itemsize == 8:
        return f"((long)({key} ^ 0x8000000000000000ul))" if dtype.kind == "i" else key
    return _restored_integer(key, dtype)
