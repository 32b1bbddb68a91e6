"""Rows of tensors combined by index, as arrays that kernels take."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.spi import (
    Elementwise,
    chain_on,
    is_cuda,
    kept_by_context,
    operator_by_count,
    reduce_sorted,
    row_kernels,
    takes_cuda,
)
from clhist.operators import mean
from clhist.operators.by_count import finished_by_count, mean_or
from clhist.operators.c_types import c_name
from clhist.operators.halves import number_of
from clhist.operators.names import operator_on_bins
from clhist.operators.reproducible import reproducible_form
from clhist.reduce import reduce_by_index


def reduce_rows(
    shape: tuple[int, ...],
    reduce: str,
    indices: Any,
    src: Any,
    *,
    dtype: np.dtype | None = None,
    reproducible: bool = False,
    is_sorted: bool = False,
) -> Any:
    """Return rows combined by index, as `clhist.reduce_by_index` does it.

    Parameters
    ----------
    shape : tuple of int
        Of the result.
    reduce : {"sum", "min", "max", "prod"}
        How rows are combined.
    indices, src : arrays of shapes (N,) and (N, ...)
        Bins and values.
    dtype : numpy.dtype, optional
        Of sums and products. Defaults to that of `src`.
    reproducible : bool
        Whether the result depends on no order of values.
    is_sorted : bool
        Whether the indices do not decrease, by the caller's word.
    """
    if is_sorted:
        # Each bin is a run of rows, which needs no atomics; None where this is impossible or slower.
        operator = operator_on_bins(reduce, dtype or src.dtype)
        if reproducible:
            operator = reproducible_form(operator, None, indices.size + 1)
        result = reduce_sorted(shape, operator, indices, "src[{element}]", {"src": src})
        if result is not None:
            return result
    # Sums and products of narrow types would be wider by default; PyTorch Geometric's have the dtype of `src`.
    options: dict[str, Any] = {"dtype": dtype or src.dtype} if reduce in ("sum", "prod") else {}
    named: Any = reduce
    return reduce_by_index(shape, named, indices, src, reproducible=reproducible, **options)


def combine_rows(
    shape: tuple[int, ...],
    reduce: str,
    indices: Any,
    src: Any,
    empty: float | None,
    *,
    dtype: np.dtype | None = None,
    reproducible: bool = False,
    is_sorted: bool = False,
) -> Any:
    """Return rows combined by index; bins without a value have `empty`, or the identity element.

    Parameters are those of `reduce_rows`, whose reductions this has besides "mean"; `dtype` is that of means.
    """
    mean_dtype = dtype or src.dtype
    if not reproducible and (reduce == "mean" or empty is not None):
        result = _by_count(shape, reduce, indices, src, empty, mean_dtype, is_sorted)
        if result is not None:
            return result
    # Means of rows are sums divided by counts, which cost less than an atomic of a count for each component.
    if reduce == "mean" and empty is not None and not reproducible and is_cuda(src) and prod(shape[1:]) == 1:
        return reduce_by_index(shape, mean_or(mean_dtype, empty), indices, src)
    # Bins without a value are filled by a second kernel, from counts.
    if empty is not None:
        result = combine_rows(
            shape, reduce, indices, src, None, dtype=dtype, reproducible=reproducible, is_sorted=is_sorted
        )
        return row_kernels.filled(result, count_rows(indices, shape[0]), empty)
    if reduce != "mean":
        return reduce_rows(shape, reduce, indices, src, reproducible=reproducible, is_sorted=is_sorted)
    if not reproducible:
        return reduce_by_index(shape, mean(mean_dtype), indices, src)
    # Reproducible means are exact sums, divided once.
    number = number_of(src.dtype)
    sums = reduce_rows(shape, "sum", indices, src, dtype=number, reproducible=True, is_sorted=is_sorted)
    return row_kernels.means(sums, count_rows(indices, shape[0]), mean_dtype)


def _by_count(
    shape: tuple[int, ...],
    reduce: str,
    indices: Any,
    src: Any,
    empty: float | None,
    mean_dtype: np.dtype,
    is_sorted: bool,
) -> Any:
    """Return rows combined by kernels that know the number of rows of each bin; None where these are not faster."""
    if is_sorted:
        operator = finished_by_count(reduce, mean_dtype if reduce == "mean" else src.dtype, empty)
        result = reduce_sorted(shape, operator, indices, "src[{element}]", {"src": src})
        if result is not None:
            return result
    # These kernels work in the dtype of the values, so means of another dtype need another way.
    by_count = None if mean_dtype != src.dtype else operator_by_count(reduce, indices, src, shape, empty)
    return None if by_count is None else reduce_by_index(shape, by_count, indices, src, update="gather")


def count_rows(indices: Any, bins: int) -> Any:
    """Return how often each bin is named, as int64."""
    return reduce_by_index(bins, "count", indices, 1)


@takes_cuda
def segments(offsets: Any, size: int) -> Any:
    """Return the segment of each of `size` rows, of CUDA, by binary search: -1 in front of all, S behind them."""
    chain = chain_on(offsets.queue, "for the segments of rows")
    result, memory = chain.result(size, np.int32)
    _segments(offsets.context, offsets.dtype)(chain, size, [offsets, memory, np.int64(offsets.size)])
    chain.finish(result)
    return result


@kept_by_context
def _segments(context: cl.Context, dtype: np.dtype) -> Elementwise:
    code = """
        long first = 0, end = number;
        while (first < end) {
            const long middle = (first + end) / 2;
            if ((long)offsets[middle] <= i) first = middle + 1; else end = middle;
        }
        segments[i] = (int)(first - 1)"""
    arguments = f"const {c_name(dtype)} *offsets, int *segments, const long number"
    return Elementwise(context, arguments, code, "clhist_segments")
