"""Parameters and source of the kernel that finds the least and the greatest element.

Imports no PyOpenCL; `clhist.binned.extent` launches the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist._core.elements import bits_of, key_of_bits
from clhist._core.kernel_code import with_arrays
from clhist._core.kernels.stored_source import stored_source
from clhist._core.keys import bits_dtype, key_dtype
from clhist._core.templates import render
from clhist.operators.c_types import c_name, literal


@dataclass(frozen=True)
class ExtentSpec:
    """The parameters of the kernel.

    Attributes
    ----------
    dtype : numpy.dtype
        The dtype of the data.
    data : numpy.dtype
        The dtype that the kernel reads it as.
    masked : bool
        Whether a mask selects the elements that count.
    pitch, column : int
        Elements of a point, and the index of the one to read.
    lanes : int
        Work-items of a work-group.
    """

    dtype: np.dtype
    data: np.dtype
    masked: bool
    pitch: int
    column: int
    lanes: int

    @property
    def width(self) -> int:
        """Elements that a work-item takes at once: on CPUs, whose work-groups have one, as many as 32 bytes of keys."""
        # PoCL 3.0 (LLVM 14) compiles wrong code of vectors of 64 bytes for AVX-512; 32 are no slower.
        return 32 // key_dtype(self.dtype).itemsize if self.lanes == 1 and self.pitch == 1 else 1

    @property
    def ends(self) -> np.dtype:
        """The dtype of a work-group's result."""
        return ends_dtype(self.dtype)


def ends_dtype(dtype: np.dtype) -> np.dtype:
    """Return the struct of an extent, for data of `dtype`: least key, greatest key, and count of elements."""
    key = key_dtype(dtype)
    return np.dtype([("low", key), ("high", key), ("count", np.int64)], align=True)


@stored_source
def render_extent(spec: ExtentSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_extent``."""
    key, mask = key_dtype(spec.dtype), "const uchar *where, " if spec.masked else ""
    numbers = f"const {c_name(key)} least, const {c_name(key)} greatest"
    numbers += "".join(f", const long {name}" for name in ("count", "block", "span", "step"))
    wide = f"vload{spec.width}(0, x + begin)"
    if spec.data.kind == "f":
        elements = f"as_{c_name(bits_dtype(spec.data))}{spec.width}({wide})"
    else:
        elements = wide if spec.data == key else f"convert_{c_name(key)}{spec.width}({wide})"
    declared, arrays = with_arrays(f"const {c_name(spec.data)} *x, {mask}ends_t *ends, {numbers}")
    return render(
        "binned/extent.mako",
        spec=spec,
        declared=declared,
        pointers=arrays,
        key=c_name(key),
        bits=c_name(bits_dtype(spec.dtype)),
        lowest=literal(np.iinfo(key).min, key),
        highest=literal(np.iinfo(key).max, key),
        signed=c_name(np.dtype(f"i{key.itemsize}")),
        elements=elements,
        element=bits_of("x[j]" if spec.pitch == 1 else f"x[j * {spec.pitch} + {spec.column}]", spec.data),
        key_of=key_of_bits(spec.dtype),
    )
