"""Counts and sums of weights by bins on a device, with NumPy's dtypes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import has_fp64
from clhist._core.opencl.new_arrays import to_device, zeros
from clhist.axes.block_search import BLOCK
from clhist.binned.densities import as_float64
from clhist.binned.sweep import Binned, Sweep
from clhist.operators.halves import half_name, number_of
from clhist.operators.operator import Operator

_MOST_COUNTED = 2**32 - BLOCK  # elements that 32 bits count; a last block may repeat some, see `BLOCK_OF_ELEMENTS`


def counted(
    binned: Binned | None,
    shape: tuple[int, ...],
    weights: Array | None,
    queue: cl.CommandQueue,
    *,
    on_device: bool,
    rows: int | None = None,
    reproducible: bool = False,
    in_float64: bool = False,
) -> tuple[Array, Sweep | None]:
    """Count elements by bin (int64), or sum their weights (in the weights' dtype).

    Parameters
    ----------
    binned : Binned or None
        The data with its axes; None if no element lies in a bin.
    shape : tuple of int
        Bins of each axis.
    weights : array, optional
        One for each element, flat.
    queue : pyopencl.CommandQueue
        The queue that computes.
    on_device : bool
        Whether the result is PyOpenCL's.
    rows : int, optional
        The number of histograms, each of an equal share of the elements.
    reproducible : bool
        Whether sums of weights are bitwise the same in any order.
    in_float64 : bool
        Whether the result is float64, as of NumPy's histograms of several dimensions.

    Returns
    -------
    hist : array
        Of shape `shape`, or `(rows, *shape)`.
    sweep : Sweep or None
        The sweep, for calls with other data; None if nothing was launched.
    """
    dtype = np.dtype(np.float64 if in_float64 else np.intp if weights is None else weights.dtype)
    # Kernels need elements and rows; without these all counts are 0.
    if binned is None or not binned.size or rows == 0:
        whole = shape if rows is None else (rows, *shape)
        return (zeros(queue, whole, dtype) if on_device else np.zeros(whole, dtype)), None
    sweep = counting(binned, weights, queue, rows, reproducible=reproducible, in_float64=in_float64)
    return as_dtype(sweep([*binned.arrays, weights])[""], dtype, queue), sweep


def counting(
    binned: Binned,
    weights: Array | None,
    queue: cl.CommandQueue,
    rows: int | None = None,
    *,
    reproducible: bool = False,
    in_float64: bool = False,
) -> Sweep:
    """Return the sweep of `counted`; its result may have a wider dtype."""
    weights_dtype = None if weights is None else weights.dtype.newbyteorder("=")
    # Sums of integers are exact in any order, so only these need exact sums to be reproducible.
    rounds = weights_dtype is not None and (number_of(weights_dtype).kind in "fc" or in_float64)
    fp64 = has_fp64(queue.device)
    if weights_dtype is not None and half_name(weights_dtype) and not in_float64:
        # Halves are summed in float64 and rounded once; without it, or if reproducible, by the operator of their dtype.
        operator, value, exact = _summing_halves(weights_dtype, fp64 and not reproducible), "v0[i]", False
    else:
        operator, value, exact = _summing(weights_dtype, binned.size < _MOST_COUNTED, fp64, in_float64)
    return Sweep.of(
        binned,
        (("", operator, value),),
        () if weights is None else (weights,),
        queue=queue,
        rows=rows,
        reproducible=rounds and (reproducible or exact),
    )


@lru_cache(maxsize=64)
def _summing(weights: np.dtype | None, few: bool, fp64: bool, in_float64: bool) -> tuple[Operator, str, bool]:
    """Return the operator, the C expression of an element's value, and whether sums must be exact."""
    # Use counters of 32 bits while they suffice.
    if weights is None:
        return (operators.count(np.intp) if few else operators.add(np.intp)), "1", False
    if weights.kind in "iu" and not in_float64:
        return operators.add(np.int64), "(long)v0[i]", False
    if weights.kind == "c":
        return operators.add(np.complex128), "convert_double2(v0[i])", False
    if fp64 or number_of(weights) != np.float32:
        return operators.add(np.float64), "v0[i]", False
    # Without float64, sums are exact (reproducible): float32 would round at each addition.
    return operators.add(np.float32), "v0[i]", True


@lru_cache(maxsize=8)
def _summing_halves(dtype: np.dtype, fp64: bool) -> Operator:
    """Return the sum of half-precision numbers, accumulated in float64 if the device has it."""
    if not fp64:
        return operators.add(dtype)
    return Operator(dtype, "a + b", 0, "add", accumulator=np.float64, lift="v", finish="(float)a")


def as_dtype(array: Array, dtype: np.dtype, queue: cl.CommandQueue) -> Array:
    """Convert a result to `dtype`, on the host if the device lacks 64-bit floats."""
    if array.dtype == dtype:
        return array
    if is_device_array(array) and not (has_fp64(queue.device) or dtype.itemsize < 8):
        return to_device(queue, array.get(queue).astype(dtype))
    if dtype == np.float64 and is_device_array(array) and array.size:
        return as_float64(queue, array)
    with np.errstate(over="ignore"):
        return array.astype(dtype)
