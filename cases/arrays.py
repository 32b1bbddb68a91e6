"""Reading of arguments, shared by the cases: pairs of arrays, and ranges found on the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.tools import dtype_to_ctype

from clhist import HistogramKernel, operators

__all__ = ["Range", "extent", "pair_of", "range_of", "ranges_of"]

Range = tuple[Any, Any]  # the low and the high end, both within

# Copies of the minimum and the maximum, so that atomics of work-items are spread over several bins.
_LANES = 64


def extent(array: Any, queue: cl.CommandQueue) -> Range:
    """Return the least and the largest element of a NumPy or device array of one element or more, as NumPy scalars.

    Both come from one sweep on the device; a NaN makes both NaN, as `numpy.min` has it.
    """
    extents = _extent_kernel(queue.context, array.dtype)(array, num_bins=_LANES, queue=queue)
    lanes = extents.get() if isinstance(extents, cl_array.Array) else extents
    return lanes["low"].min(), lanes["high"].max()


@lru_cache(maxsize=64)
def _extent_kernel(context: cl.Context, dtype: np.dtype) -> HistogramKernel:
    both = operators.product({"low": operators.minimum(dtype), "high": operators.maximum(dtype)})
    arguments = f"const {dtype_to_ctype(dtype)} *array"
    return HistogramKernel(
        context, both, arguments=arguments, map=f"EMIT(i % {_LANES}, ((value_t){{array[i], array[i]}}))"
    )


def range_of(name: str, array: Any, limits: Any, queue: cl.CommandQueue) -> Range:
    """Return the range of `array` as NumPy's histograms have it: `limits`, its extent, or (0, 1) of no elements.

    Raises
    ------
    TypeError, ValueError
        If `limits` is no pair of finite numbers in order, or the extent is not finite; the text has the `name`.
    """
    expected = "a pair (low, high) of finite numbers, low <= high,"
    if limits is None:
        limits = extent(array, queue) if array.size else (0.0, 1.0)
        expected = "a finite least and largest element, or a given range,"
    try:
        low, high = limits
        in_order = bool(np.isfinite(low) and np.isfinite(high) and low <= high)
    except (TypeError, ValueError):
        raise TypeError(f"range of {name}: expected {expected} got {limits!r}") from None
    if not in_order:
        raise ValueError(f"range of {name}: expected {expected} got ({low}, {high})")
    return low, high


def pair_of(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Return two arrays of real numbers, both NumPy's or both PyOpenCL's, as they are.

    Raises
    ------
    TypeError
        If they are not; the text has the `name` of both.
    """
    if isinstance(x, cl_array.Array) != isinstance(y, cl_array.Array):
        raise TypeError(f"{name}: expected two NumPy or two PyOpenCL arrays, got one of each")
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got {x.dtype} and {y.dtype}")
    return x, y


def ranges_of(name: str, x: Any, y: Any, limits: Any, queue: cl.CommandQueue) -> tuple[Range, Range]:
    """Return the ranges of two arrays, whose `name` is such as "x, y"; see `range_of`."""
    try:
        given_x, given_y = (None, None) if limits is None else limits
    except (TypeError, ValueError):
        raise TypeError(f"range: expected a pair of pairs (low, high), of {name}, got {limits!r}") from None
    first, _, second = name.partition(", ")
    return range_of(first, x, given_x, queue), range_of(second, y, given_y, queue)
