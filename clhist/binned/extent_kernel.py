"""The least and the greatest element: from what the kernel that finds them is rendered. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist._core.elements import bits_of, key_of_bits
from clhist._core.kernels.render import render
from clhist._core.kernels.signatures import with_arrays
from clhist._core.keys import bits_dtype, key_dtype
from clhist.operators.c_types import c_name, literal


@dataclass(frozen=True)
class ExtentSpec:
    """The parameters of the kernel.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the data.
    data : numpy.dtype
        As which the kernel reads it.
    masked : bool
        Whether an array says which elements count.
    pitch, column : int
        How many elements a point has, and which of them is meant.
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
    def ends(self) -> np.dtype:
        """The dtype of the ends that a work-group finds."""
        return ends_dtype(self.dtype)


def ends_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the least and the greatest key of data, and of how many elements count."""
    key = key_dtype(dtype)
    return np.dtype([("low", key), ("high", key), ("count", np.int64)], align=True)


def render_extent(spec: ExtentSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_extent``, which finds the least and the greatest key."""
    key, mask = key_dtype(spec.dtype), "const uchar *where, " if spec.masked else ""
    numbers = f"const {c_name(key)} least, const {c_name(key)} greatest"
    numbers += "".join(f", const long {name}" for name in ("count", "block", "span", "step"))
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
        element=bits_of("x[j]" if spec.pitch == 1 else f"x[j * {spec.pitch} + {spec.column}]", spec.data),
        key_of=key_of_bits(spec.dtype),
    )
