"""Counts and sums of weights by bins, with NumPy's dtypes, and what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.opencl.arrays import Array, check_native, is_device_array, on_host
from clhist._core.opencl.device import has_fp64
from clhist._core.opencl.new_arrays import to_device, zeros
from clhist._core.runtime.missing import any_missing
from clhist.axes.block_search import BLOCK
from clhist.binned.inputs import is_binnable, mask_array, split_array, without
from clhist.binned.sweep import Binned, Sweep
from clhist.operators.halves import half_name, number_of
from clhist.operators.operator import Operator

_MOST_COUNTED = 2**32 - BLOCK  # in 32 bits


def flat(array: Array | None) -> Any:
    """Return an array as one dimension, a contiguous one of NumPy."""
    if array is None or (array.ndim == 1 and isinstance(array, cl_array.Array)):
        return array
    return array.reshape(-1) if isinstance(array, cl_array.Array) else np.ascontiguousarray(array).reshape(-1)


def can_sum(weights: Array | None) -> bool:
    """Whether kernels sum weights of this dtype."""
    if weights is None:
        return True
    dtype = number_of(weights.dtype)
    return dtype.itemsize <= {"i": 8, "u": 8, "f": 8, "c": 16}.get(dtype.kind, 0)


def may_round(weights: Array | None) -> bool:
    """Whether sums of weights may depend on their order; those of booleans are exact."""
    return weights is not None and weights.dtype.kind != "b"


def are_real(weights: Array | None) -> bool:
    """Whether weights are real numbers that kernels sum, as NumPy's histograms of several dimensions take."""
    return weights is None or (number_of(weights.dtype).kind in "iuf" and can_sum(weights))


def check_device_dtypes(name: str, arrays: Sequence[Array], weights: Array | None) -> None:
    """Raise TypeError if kernels do not take these device arrays; `name` is what the data is called."""
    for array in arrays:
        check_native(name, array)
        if not is_binnable(array.dtype):
            raise TypeError(f"{name}: expected a device array of booleans, integers or floats, got {array.dtype}")
    if weights is not None and not can_sum(weights):
        raise TypeError(f"weights: expected a device array that OpenCL can add up, got {weights.dtype}")


def checked_data(a: Any, weights: Any, where: Any, *, whole: bool = False) -> tuple[Any, Any, Any]:
    """Return all as arrays of one shape, where they are not None, without what is missing.

    If elements are missing, that shape has one dimension; with `whole` it is kept, and `where` excludes them.
    """
    a, missing = split_array("a", a)
    if weights is not None:
        weights, missing_weights = split_array("weights", weights)
        if weights.shape != a.shape:
            raise ValueError("weights should have the same shape as a.")
        missing = missing_weights if missing is None else any_missing(missing, missing_weights)
    where = None if where is None else mask_array(where, a.shape)
    if missing is not None and not whole:
        a, weights, where = without(missing, a, weights, where)
    elif missing is not None:
        where = ~missing if where is None else where & ~missing
        weights = None if weights is None else np.where(missing, weights.dtype.type(0), weights)  # may be huge
    if is_device_array(a):
        check_device_dtypes("a", (a,), weights)
    return a, weights, where


def present(**named: Any) -> list[tuple[str, Any]]:
    """Return the arguments that are not None, with their names; of a tuple each."""
    each = [(name, one) for name, value in named.items() for one in (value if isinstance(value, tuple) else (value,))]
    return [(name, value) for name, value in each if value is not None]


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
    """Return counts of int64, or sums of weights in their dtype, or either in float64; and the sweep, if any.

    Parameters
    ----------
    binned : Binned or None
        None of data that lies in no bin.
    shape : tuple of int
        Bins of each axis.
    weights : array, optional
        One for each element, flat.
    queue : pyopencl.CommandQueue
        Where it runs.
    on_device : bool
        Whether the result is PyOpenCL's.
    rows : int, optional
        How many histograms the elements belong to in equal shares.
    reproducible : bool
        Whether sums of weights are bitwise the same in any order.
    in_float64 : bool
        Whether the result is float64, as of NumPy's histograms of several dimensions.
    """
    dtype = np.dtype(np.float64 if in_float64 else np.intp if weights is None else weights.dtype)
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
    """Return the sweep of `counted`, whose result may be of a wider dtype."""
    given = None if weights is None else weights.dtype.newbyteorder("=")
    rounds = given is not None and (number_of(given).kind in "fc" or in_float64)
    fp64 = has_fp64(queue.device)
    if given is not None and half_name(given) and not in_float64:
        operator, value, exact = _summing_halves(given, fp64 and not reproducible), "v0[i]", False
    else:
        operator, value, exact = _summing(given, binned.size < _MOST_COUNTED, fp64, in_float64)
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
    """Return the operator, C of the value of an element, and whether sums must be the reproducible ones."""
    if weights is None:
        return (operators.count(np.intp) if few else operators.add(np.intp)), "1", False
    if weights.kind in "iu" and not in_float64:
        return operators.add(np.int64), "(long)v0[i]", False
    if weights.kind == "c":
        return operators.add(np.complex128), "convert_double2(v0[i])", False
    if fp64 or number_of(weights) != np.float32:
        return operators.add(np.float64), "v0[i]", False
    return operators.add(np.float32), "v0[i]", True


@lru_cache(maxsize=8)
def _summing_halves(dtype: np.dtype, fp64: bool) -> Operator:
    """Return the operator that adds up half precision, in float64 where it can."""
    if not fp64:
        return operators.add(dtype)
    return Operator(dtype, "a + b", 0, "add", accumulator=np.float64, lift="v", finish="(float)a")


def as_dtype(array: Array, dtype: np.dtype, queue: cl.CommandQueue) -> Array:
    """Return a result as `dtype`; by the host where the device has no such type."""
    if array.dtype == dtype:
        return array
    if is_device_array(array) and not (has_fp64(queue.device) or dtype.itemsize < 8):
        return to_device(queue, array.get(queue).astype(dtype))
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def densities(
    hist: Array, edges: Sequence[np.ndarray], queue: cl.CommandQueue | None, *, over: int | None = None
) -> Array:
    """Return the densities of a histogram, divided on the host as NumPy does it.

    Parameters
    ----------
    hist : array
        Of NumPy or PyOpenCL, as is the result.
    edges : sequence of array
        One for each of the last dimensions.
    queue : pyopencl.CommandQueue or None
        Of device arrays.
    over : int, optional
        How many of the last dimensions have a total of one; defaults to all.
    """
    counts = on_host(hist, queue)
    dims = tuple(range(-(over or counts.ndim), 0))
    total = counts.sum(axis=dims, keepdims=over is not None)
    found = counts
    for n, each in enumerate(edges):
        shape = [1] * len(edges)
        shape[n] = len(each) - 1
        found = found / np.array(np.diff(each), float).reshape(shape)
    found = found / total
    return to_device(queue or hist.queue, found) if is_device_array(hist) else found
