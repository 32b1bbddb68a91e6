"""Elements as kernels get them: bits, and C of their bits and keys."""

from __future__ import annotations

import numpy as np

from clhist._core.keys import bits_dtype
from clhist.operators.c_types import c_name


def bits_of(element: str, dtype: np.dtype) -> str:
    """Return C of the bits of an element of an array of `dtype`."""
    return f"as_{c_name(bits_dtype(dtype))}({element})" if dtype.kind == "f" else element


def key_of_bits(dtype: np.dtype, bits: str = "bits") -> str:
    """Return C of the key of an element whose bits are `bits`."""
    if dtype.kind != "f":
        return bits
    width = 8 * dtype.itemsize
    suffix = "L" if width == 64 else ""
    return f"({bits} ^ (({bits} >> {width - 1}) & {hex(2 ** (width - 1) - 1)}{suffix}))"


def has_no_type(dtype: np.dtype, fp64: bool) -> bool:
    """Whether kernels get arrays of `dtype` as integers: float16, and float64 without double precision."""
    return dtype.kind == "f" and dtype.itemsize != 4 and not (fp64 and dtype.itemsize == 8)


def kernel_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which a kernel gets data, and compares or converts it: booleans as bytes."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def are_converted(dtype: np.dtype, fp64: bool) -> bool:
    """Whether kernels convert data of `dtype` to double precision."""
    return fp64 and not has_no_type(dtype, fp64)
