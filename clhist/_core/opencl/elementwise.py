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


def gather(x: Array, index: np.ndarray) -> Array:
    """Return the elements of an array of one dimension, or the rows of one of two, that `index` has the numbers of.

    Memory may be that of `x`, where these follow one another.
    """
    first = int(index.flat[0]) if index.size else 0
    # Consecutive numbers, such as those of all regions, need no upload: a call on arrays of CUDA can be replayed then.
    if index.size and np.array_equal(index.ravel(), np.arange(first, first + index.size)):
        if index.size == x.shape[0]:
            return x.reshape(*index.shape, *x.shape[1:])
        if isinstance(x, CudaArray):
            return x[first : first + index.size].reshape(*index.shape, *x.shape[1:])
    if isinstance(x, CudaArray):
        x.check_not_captured()
        places = x.memory.library.from_host(index, None, x.of_library())
        return _as_signed(x).computed(lambda own, _: own[places]).view(x.dtype)
    if x.dtype.kind == "b":
        return gather(as_bytes(x), index).view(x.dtype)
    if x.ndim == 1:
        flat = cl_array.take(x, cl_array.to_device(x.queue, index.ravel().astype(np.int32)))
        return flat.reshape(index.shape)
    # PyOpenCL's `take` has one dimension: rows are gathered element by element.
    columns = np.arange(x.shape[1])
    numbers = (index.ravel()[:, None] * x.shape[1] + columns).astype(np.int32)
    rows = cl_array.take(x.reshape(-1), cl_array.to_device(x.queue, numbers.ravel()))
    return rows.reshape(*index.shape, x.shape[1])


def _as_signed(x: CudaArray) -> CudaArray:
    return x.view(np.dtype(f"i{x.dtype.itemsize}")) if x.dtype.kind == "u" else x
