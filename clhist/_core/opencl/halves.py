"""Arrays of half precision as arrays of float32; PyOpenCL is imported only for device arrays."""

from __future__ import annotations

from clhist._core.opencl.arrays import Array, is_device_array
from clhist.operators.halves import half_name, number_of


def as_numbers(x: Array) -> Array:
    """Return an array of half precision as one of float32, for kernels that do not read it; others as they are.

    Copies of arrays of PyOpenCL are contiguous.
    """
    if not half_name(x.dtype):
        return x
    if not is_device_array(x):
        return x.astype(number_of(x.dtype))
    from clhist._core.opencl.elementwise import numbers_of_halves

    return numbers_of_halves(x)
