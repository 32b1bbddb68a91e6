"""Tuples of index arrays for the leading dimensions of the bins, as `numpy.ravel_multi_index` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, check_array, common_kind, is_device_array, mask_of
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.call import queue_for, queue_of
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on
from clhist._core.runtime.reading import as_indices
from clhist._core.runtime.scatter import native
from clhist.operators.c_types import c_name


def flat_indices(
    indices: tuple[Any, ...], shape: Sequence[int], queue: cl.CommandQueue | None, wait_for: Sequence[cl.Event]
) -> Array:
    """Ravel a tuple of index arrays in C order; the result is -1 where an index is outside or masked.

    Parameters
    ----------
    indices : tuple of array of integers
        One for each leading dimension; they are broadcast together. All NumPy's, or PyOpenCL's and numbers.
    shape : sequence of int
        Of the bins.
    queue : pyopencl.CommandQueue or None
        The caller's.
    wait_for : sequence of pyopencl.Event
        Events that kernels wait for, if the arrays are on a device.

    Returns
    -------
    array of int64
        In the broadcast shape, on the host or the device as `indices` are.

    Raises
    ------
    TypeError, ValueError
        If the tuple is empty or longer than `shape`, if one is not an array of integers, or if shapes do not broadcast.
    """
    if not 0 < len(indices) <= len(shape):
        raise ValueError(
            f"indices: expected a tuple of 1 to {len(shape)} arrays, one for each leading dimension of dest, "
            f"got {len(indices)}; a sequence of numbers is given as a list or an array"
        )
    names, masks = [f"indices[{k}]" for k in range(len(indices))], list(map(mask_of, indices))
    arrays = [as_indices(index_array, name=name) for name, index_array in zip(names, indices, strict=True)]
    try:
        whole = np.broadcast_shapes(*[array.shape for array in arrays])
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"indices: expected arrays whose shapes broadcast together, got {shapes}") from None
    ends = list(shape[: len(arrays)])
    on_device = [array for array in arrays if is_device_array(array)]
    if not on_device:
        # An index outside counts as 0 meanwhile, so that the sums stay in range; the mask decides at the end.
        outside = np.zeros(whole, np.bool_)
        flat = np.zeros(whole, np.int64)
        for array, end, mask in zip(arrays, ends, masks, strict=True):
            outside |= (array < 0) | (array >= end)
            flat = flat * end + np.where((array < 0) | (array >= end), 0, array).astype(np.int64)
            if mask is not None:
                outside |= mask
        return np.where(outside, np.int64(-1), flat)
    # Numbers, which have no dimensions, may stand beside device arrays.
    common_kind([(name, array) for name, array in zip(names, arrays, strict=True) if array.ndim])
    queue = queue_for(queue, on_device[0].context, queue_of(*on_device))
    chain = chain_on(queue, "for the indices")
    chain.events += wait_for
    places: list[Any] = []
    for name, array, mask in zip(names, arrays, masks, strict=True):
        steps = np.zeros(len(whole), np.int64)  # strides in elements; 0 in dimensions that are broadcast
        size = 1
        for k in reversed(range(array.ndim)):
            steps[len(whole) - array.ndim + k] = 0 if array.shape[k] == 1 else size
            size *= array.shape[k]
        if is_device_array(array):
            argument = check_array(name, array, native(array.dtype), written=False)
        else:  # a number; a masked one is outside, as -1 is
            argument = np.int64(array if mask is None or not mask else -1)
        places += [argument, *steps]
    flat, memory = chain.result(prod(whole), np.int64)
    kinds = tuple(array.dtype if is_device_array(array) else None for array in arrays)
    kernel = _raveling(queue.context, kinds, len(whole))
    kernel(chain, prod(whole), [memory, *places, *map(np.int64, (*whole, *ends))])
    chain.finish()
    return flat.reshape(whole)


@kept_by_context
def _raveling(context: cl.Context, kinds: tuple[np.dtype | None, ...], dimensions: int) -> Elementwise:
    """Return the kernel that ravels indices of the dtypes `kinds` (None for a number), in so many dimensions."""
    declared, code = ["long *flat"], ["long rest = i, whole = 0; bool inside = true"]
    for n, dtype in enumerate(kinds):
        declared.append(f"const long x{n}" if dtype is None else f"const {c_name(dtype)} *x{n}")
        declared += [f"const long step{n}_{d}" for d in range(dimensions)]
        code.append(f"long at{n} = 0")
    declared += [f"const long size{d}" for d in range(dimensions)] + [f"const long end{n}" for n in range(len(kinds))]
    # The element's number is divided by the sizes from the last dimension on, as in C order.
    for d in reversed(range(dimensions)):
        code += [f"const long of{d} = rest % size{d}", f"rest /= size{d}"]
        code += [f"at{n} += of{d} * step{n}_{d}" for n in range(len(kinds))]
    for n, dtype in enumerate(kinds):
        # The cast makes a negative index larger than every dimension, so that one comparison is enough.
        code.append(f"const ulong index{n} = (ulong){f'x{n}' if dtype is None else f'x{n}[at{n}]'}")
        code += [f"inside = inside && index{n} < (ulong)end{n}", f"whole = whole * end{n} + (long)index{n}"]
    code.append("flat[i] = inside ? whole : -1")
    return Elementwise(context, ", ".join(declared), "; ".join(code), "clhist_ravel")
