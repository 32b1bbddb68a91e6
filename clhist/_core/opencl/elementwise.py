"""Element-wise operations on device arrays, by PyOpenCL, or by the library of CUDA's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.elementwise import ElementwiseKernel

from clhist._core.opencl.arrays import Array, as_bytes
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.new_arrays import to_device, zeros
from clhist._core.opencl.program import building, kept_by_context
from clhist.operators.halves import ELEMENT, declared, loaded, number_of


def numbers_of_halves(x: Array) -> Array:
    """Return a device array of half precision as one of float32; copies of arrays of PyOpenCL are contiguous."""
    number = number_of(x.dtype)
    if isinstance(x, CudaArray):
        return x.astype(number)
    # The kernel counts elements from the first one on, without strides.
    contiguous = x if x.flags.c_contiguous else x.copy()
    numbers = cl_array.empty(x.queue, x.shape, number)
    if numbers.size:
        _conversion(x.context, x.dtype)(contiguous.view(np.uint16).reshape(-1), numbers.reshape(-1))
    return numbers


@kept_by_context
def _conversion(context: cl.Context, dtype: np.dtype) -> Any:
    """Return the kernel that converts numbers of half precision."""
    with building(context):
        return ElementwiseKernel(
            context,
            f"const {ELEMENT} *x, float *numbers",
            f"numbers[i] = {loaded('x[i]', dtype)}",
            "clhist_numbers",
            preamble=declared(dtype),
        )


def are_positive(x: Array) -> Array:
    """Return an int8 for each integer: 1 where it is above 0."""
    if isinstance(x, CudaArray):
        # Libraries compute with few unsigned types.
        is_unsigned = x.dtype.kind == "u"
        x = _as_signed(x)
        return x.computed(lambda own, _: own != 0 if is_unsigned else own > 0).astype(np.int8)
    return (x > 0).astype(np.int8)


def added(x: Array, y: Array) -> Array:
    """Return the sums of two arrays of the device, of one dtype and shape."""
    if isinstance(x, CudaArray) and isinstance(y, CudaArray):
        if not x.memory.is_like(y.memory):  # of two libraries
            return to_device(y.stands_for, x.get() + y.get())
        # Sums modulo 2^bits have the same bits in signed and unsigned types.
        other = _as_signed(y).of_library()
        return _as_signed(x).computed(lambda own, _: own + other).view(x.dtype)
    return x + y


def zero_where_none(x: Array, sizes: Array) -> Array:
    """Return `x`, and 0 in the place of elements whose size, an int64, is 0."""
    if isinstance(x, CudaArray):
        nothing = False if x.dtype.kind == "b" else 0
        sizes = sizes.computed(lambda own, _: own > 0).of_library()
        return _as_signed(x).computed(lambda own, module: module.where(sizes, own, nothing)).view(x.dtype)
    if x.dtype.kind == "b":  # which PyOpenCL has no kernels for
        return zero_where_none(as_bytes(x), sizes).view(x.dtype)
    return cl_array.if_positive(sizes, x, zeros(x.queue, x.shape, x.dtype))


def _as_signed(x: CudaArray) -> CudaArray:
    return x.view(np.dtype(f"i{x.dtype.itemsize}")) if x.dtype.kind == "u" else x
