"""Half precision: float16 and bfloat16, which arrays hold and which kernels compute with as float. Pure.

An element of such an array is a ushort in C, its bits. What is read from it is converted to a float, and what is
written is rounded once, to the nearest, half to even; bfloat16 is the upper half of a float.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

ELEMENT = "ushort"  # what C calls an element in memory

_NAMES = ("float16", "bfloat16")
_FLOAT32 = np.dtype(np.float32)
# Of users' C, and of ours: a number of such an array.
_C_TYPES = {"half": "float16", "bfloat16": "bfloat16", **{f"clhist_{name}_t": name for name in _NAMES}}

# What these do to NaN is written out: devices differ in what they keep of its bits.
_FUNCTIONS = {
    "float16": """float clhist_of_float16(const ushort bits)
{
#ifdef __x86_64__
    // Times 2^112, which numbers below the normal ones are exact in; PoCL's vload_half takes twice as long.
    const uint shifted = (bits & 0x7fffu) << 13;
    const float number = as_float(shifted) * as_float(0x77800000u);
    return as_float(as_uint(number) | (shifted >= 0x0f800000u) * 0x7f800000u | (bits & 0x8000u) << 16);
#else
    return vload_half(0, (const half *)&bits);
#endif
}
ushort clhist_as_float16(const float number)
{
    ushort bits = (ushort)((as_uint(number) >> 16 & 0x8000u) | (as_uint(number) >> 13 & 0x3ffu) | 0x7e00u);
    if (number == number)
        vstore_half_rte(number, 0, (half *)&bits);
    return bits;
}""",
    "bfloat16": """float clhist_of_bfloat16(const ushort bits)
{
    return as_float((uint)bits << 16);
}
ushort clhist_as_bfloat16(const float number)
{
    const uint bits = as_uint(number);
    return (ushort)((number == number ? bits + 0x7fffu + (bits >> 16 & 1u) : bits | 0x400000u) >> 16);
}""",
}


@lru_cache(maxsize=256)
def half_name(dtype: np.dtype) -> str:
    """Return "float16" or "bfloat16" for such a dtype, and nothing for others."""
    return dtype.name if dtype.itemsize == 2 and dtype.names is None and dtype.name in _NAMES else ""


def number_of(dtype: np.dtype) -> np.dtype:
    """Return the dtype of a number in a kernel: float32 of half precision, `dtype` itself of others."""
    # The size first, since the cache hashes a dtype in 0.4 us.
    return _FLOAT32 if dtype.itemsize == 2 and half_name(dtype) else dtype


def half_of(c_type: str) -> np.dtype | None:
    """Return the dtype of half precision that C calls `c_type`, or None.

    Raises
    ------
    TypeError
        If it is bfloat16, which is the package ml_dtypes' own, and that is not installed.
    """
    name = _C_TYPES.get(c_type)
    return bfloat16() if name == "bfloat16" else np.dtype(name) if name else None


def bfloat16() -> np.dtype:
    """Return the dtype of ml_dtypes; raises TypeError if it is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("bfloat16: NumPy has no such dtype but that of ml_dtypes; pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


def declared(dtype: np.dtype) -> str:
    """Return C of the type of a number of `dtype` and of its conversions, once in a program; nothing of others."""
    name = half_name(dtype)
    if not name:
        return ""
    guard = f"CLHIST_{name.upper()}"
    return f"#ifndef {guard}\n#define {guard}\ntypedef float clhist_{name}_t;\n{_FUNCTIONS[name]}\n#endif\n"


def loaded(element: str, dtype: np.dtype) -> str:
    """Return C of the number that an element of an array of `dtype` is."""
    name = half_name(dtype)
    return f"clhist_of_{name}({element})" if name else element


def stored(number: str, dtype: np.dtype) -> str:
    """Return C of the element that a number becomes in an array of `dtype`."""
    name = half_name(dtype)
    return f"clhist_as_{name}({number})" if name else number


def with_numbers(name: str, dtype: np.dtype, code: str) -> str:
    """Return C in which each element ``name[...]`` of an array of half precision is converted.

    Raises
    ------
    ValueError
        If the array is used otherwise; it is named.
    """
    converted, done = "", 0
    for use in re.finditer(rf"(?<!\.)(?<!->)\b{name}\b", code):
        if code.endswith("CLHIST_AHEAD(", 0, use.start()):  # an address to be read from later
            continue
        bracket = re.compile(r"\s*\[").match(code, use.end())
        end = None if bracket is None else _closing(code, bracket.end())
        # An address of an element would give the kernel raw bits, which nothing converts.
        if end is None or re.search(r"(?<!&)&\s*\(*\s*$", code[: use.start()]):
            raise ValueError(
                f"arguments: expected {name!r}, an array of {half_name(dtype)}, to be read as {name}[...], which is a "
                "float; got another use of it"
            )
        # This element is inside the index of the one before, which was converted with its text as it stands.
        if use.start() < done:
            raise ValueError(f"arguments: expected no element of {name!r} as the index of another")
        converted += code[done : use.start()] + loaded(code[use.start() : end], dtype)
        done = end
    return converted + code[done:]


def _closing(code: str, start: int) -> int | None:
    """Return where the bracket ends whose content begins at `start`; None if it does not."""
    depth = 1
    for position in range(start, len(code)):
        depth += (code[position] == "[") - (code[position] == "]")
        if depth == 0:
            return position + 1
    return None
