"""What is made of device arrays element by element, by PyOpenCL, or by the library of CUDA's arrays."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array

from clhist.opencl.arrays import Array, zeros
from clhist.opencl.cuda_arrays import CudaArray


def are_positive(x: Array) -> Array:
    """Return an int8 for each integer: 1 where it is above 0."""
    if isinstance(x, CudaArray):
        # Libraries compute with few unsigned types.
        is_unsigned = x.dtype.kind == "u"
        x = _as_signed(x)
        return x.computed(lambda own, _: own != 0 if is_unsigned else own > 0).astype(np.int8)
    return (x > 0).astype(np.int8)


def zero_where_none(x: Array, sizes: Array) -> Array:
    """Return `x`, and 0 in the place of elements whose size, an int64, is 0."""
    if isinstance(x, CudaArray):
        nothing = False if x.dtype.kind == "b" else 0
        sizes = sizes.computed(lambda own, _: own > 0).of_library()
        return _as_signed(x).computed(lambda own, module: module.where(sizes, own, nothing)).view(x.dtype)
    return cl_array.if_positive(sizes, x, zeros(x.queue, x.shape, x.dtype))


def taken(x: Array, index: np.ndarray) -> Array:
    """Return the elements of an array of one dimension, or the rows of one of two, that `index` has the numbers of."""
    if isinstance(x, CudaArray):
        x.check_not_captured()
        places = x.memory.library.from_host(index, None, x.of_library())
        return _as_signed(x).computed(lambda own, _: own[places]).view(x.dtype)
    if x.ndim == 1:
        flat = cl_array.take(x, cl_array.to_device(x.queue, index.ravel().astype(np.int32)))
        return flat.reshape(index.shape)
    columns = np.arange(x.shape[1])
    numbers = (index.ravel()[:, None] * x.shape[1] + columns).astype(np.int32)
    rows = cl_array.take(x.reshape(-1), cl_array.to_device(x.queue, numbers.ravel()))
    return rows.reshape(*index.shape, x.shape[1])


def _as_signed(x: CudaArray) -> CudaArray:
    return x.view(np.dtype(f"i{x.dtype.itemsize}")) if x.dtype.kind == "u" else x
