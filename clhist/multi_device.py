"""Counts and histograms of a part of the data as partial results, and of NumPy arrays over several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial as bound
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.spi import (
    Outputs,
    Pool,
    Worker,
    counted_by_numpy,
    device_name,
    flat_indices,
    is_device_array,
    mask_of,
    masked,
    queues_of,
    without_masked,
)
from clhist.accumulator import CHUNK_BYTES
from clhist.bincount import bincount
from clhist.binned.spi import check_number, densities, numpy_edges
from clhist.histogram import histogram
from clhist.multi import MultiAccumulator
from clhist.operators.halves import number_of
from clhist.operators.names import COUNT, operator_of_call, operator_on_bins
from clhist.operators.operator import Operator
from clhist.partial import Partial, merge
from clhist.spec import Spec

_COUNT = operators.add(np.int64)


def partial_of(operator: Operator, sums: np.ndarray, size: int) -> Partial:
    """Return results of an operator as a partial result; they must be its accumulators."""
    return Partial(Outputs.of(operator), (sums.astype(operator.dtype, copy=False),), size, size)


def counts_part(
    x: np.ndarray,
    weights: np.ndarray | None,
    minlength: int = 0,
    sums: Operator | None = None,
    *,
    queue: cl.CommandQueue | None = None,
) -> Partial:
    """Return the partial result of `clhist.bincount`, whose weights the operator `sums` adds if it is not None."""
    if sums is not None:
        x, weights = _present(x, weights)
        if x.min(initial=0) < 0:
            raise ValueError("'list' argument must have no negative elements")
        number = max(minlength, int(x.max(initial=0)) + 1)
        return Spec(sums, number).partial(x, weights, queue=queue)
    counts = bincount(x, weights, minlength, queue=queue)
    return partial_of(_COUNT if weights is None else operators.add(np.float64), counts, x.size)


def merge_padded(parts: Iterable[Partial]) -> Partial:
    """Merge partial results of different numbers of bins, padded to the largest."""
    parts = list(parts)
    most = max(part.arrays[0].size for part in parts)
    return merge(_padded(part, most) for part in parts)


def histogram_part(
    a: np.ndarray, weights: np.ndarray | None, bins: Any, ends: Any, *, queue: cl.CommandQueue | None = None
) -> Partial:
    """Return the partial result of `clhist.histogram`, with weights in the dtype of their sums."""
    # Parts have sums in the widest type of their kind, which are converted once, after the merge.
    if weights is not None:
        weights = weights.astype(
            {"f": np.float64, "c": np.complex128}.get(number_of(weights.dtype).kind, np.int64), copy=False
        )
    counts, _ = histogram(a, bins, ends, weights=weights, queue=queue)
    return partial_of(_COUNT if weights is None else operators.add(counts.dtype), counts, a.size)


def of_edges(whole: Partial, edges: Any, density: bool | None, dtype: np.dtype) -> np.ndarray:
    """Return the histogram, or densities, in the dtype of the weights."""
    result = whole.result()
    if density:
        result = densities(result, [edges] if isinstance(edges, np.ndarray) else edges, None)
    with np.errstate(over="ignore"):
        return np.asarray(result).astype(dtype)


def bincount_over(devices: Any, x: Any, weights: Any = None, minlength: int = 0) -> np.ndarray:
    """Return `clhist.bincount` of NumPy arrays, computed by several devices."""
    x, weights = _host(x=x, weights=weights)
    # NumPy refuses other numbers of dimensions below.
    arrays = _present(x, weights) if x.ndim == 1 else (x, weights)
    # Let NumPy raise its errors, on empty arrays.
    counted_by_numpy(arrays[0][:0], None if arrays[1] is None else arrays[1][:0], minlength)
    minlength = int(minlength)
    return np.asarray(_over(devices, bound(counts_part, minlength=minlength), arrays, merge_padded).result())


def histogram_over(
    devices: Any, a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> Any:
    """Return `clhist.histogram` of NumPy arrays, computed by several devices; NumPy finds the ends on the host."""
    check_number(bins)
    a, weights = _host(a=a, weights=weights)
    if weights is not None and weights.shape != a.shape:
        raise ValueError("weights should have the same shape as a.")
    a, weights = _present(a.reshape(-1), None if weights is None else weights.reshape(-1))
    edges = numpy_edges(a, bins, range, weights)
    # All chunks need the edges of the whole data, not of their own extent.
    if np.ndim(bins) == 0:
        low, high = (a.min(), a.max()) if range is None and a.size else (0, 1) if range is None else range
        bins, range = len(edges) - 1, (low, high)
    dtype = np.dtype(float) if density else np.dtype(np.int64) if weights is None else weights.dtype
    whole = _over(devices, bound(histogram_part, bins=bins, ends=range), (a, weights), merge)
    return of_edges(whole, edges, density, dtype), edges


def reduce_by_index_over(devices: Any, dest: Any, op: Any, indices: Any, values: Any, dtype: Any = None) -> np.ndarray:
    """Return `clhist.reduce_by_index` of NumPy arrays, computed by several devices."""
    host_values = values if isinstance(values, tuple) or np.ndim(values) == 0 else _host(values=values)[0]
    is_shape = isinstance(dest, int | np.integer | tuple)
    bins = dest if is_shape else np.asarray(dest).shape
    if isinstance(indices, tuple):
        shape = (bins,) if isinstance(bins, int | np.integer) else bins
        flat = flat_indices(
            tuple(_host(**{f"indices[{k}]": array for k, array in enumerate(indices)})), shape, None, ()
        )
        if len(indices) < len(shape):
            raise ValueError(
                f"indices: expected {len(shape)} arrays with devices=, one a dimension, got {len(indices)}"
            )
        raveled = prod(shape) if is_shape else np.asarray(dest).reshape(-1)
        return reduce_by_index_over(devices, raveled, op, flat, values, dtype).reshape(shape)
    (indices,) = _host(indices=indices)
    if not is_shape:
        if dtype is not None:
            raise TypeError(f"dtype: expected none, since dest is an array and has its own, got {dtype!r}")
        op = operator_on_bins(op, np.asarray(dest).dtype)
    elif dtype is not None or not (isinstance(op, Operator) or op == COUNT or isinstance(host_values, tuple)):
        op = operator_of_call(op, np.result_type(host_values), dtype)
    whole = MultiAccumulator(op, bins, devices=devices, dest=None if is_shape else np.asarray(dest))
    whole.add(indices, host_values)
    return np.asarray(whole.result())


def _over(
    devices: Any, compute: Callable[..., Partial], arrays: Sequence[Any], join: Callable[..., Partial]
) -> Partial:
    """Compute a partial result of each chunk of the arrays on several devices, and join them."""
    partials: list[Partial] = []

    def worker(queue: cl.CommandQueue) -> Worker[Sequence[Any], Partial]:
        parts: list[Partial] = []

        def give() -> Partial:
            part = join(parts)
            parts.clear()
            return part

        return Worker(device_name(queue), lambda piece: parts.append(compute(*piece, queue=queue)), give)

    pool = Pool([*map(worker, queues_of(devices))], lambda part, pieces: partials.append(part))
    pool.run(_chunks(arrays))
    return join(partials)


def _chunks(arrays: Sequence[Any]) -> Iterator[Sequence[Any]]:
    size, widest = len(arrays[0]), max(array.itemsize for array in arrays if array is not None)
    step = max(1, CHUNK_BYTES // widest)
    # Empty input makes one empty chunk, so that there is a partial result to merge.
    for begin in range(0, max(1, size), step):
        yield [None if array is None else array[begin : begin + step] for array in arrays]


def _host(**arrays: Any) -> list[Any]:
    for name, array in arrays.items():
        if is_device_array(array):
            raise TypeError(f"{name}: expected a NumPy array, since devices= is given, got one that is on a device")
    return [None if array is None else masked(name, array) for name, array in arrays.items()]


def _present(a: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return 1-D data and weights without the elements that are missing in either."""
    if weights is not None and weights.shape != a.shape:
        return a, weights  # a wrong shape is refused by the caller
    masks = mask_of(a), None if weights is None else mask_of(weights)
    a, weights = np.asarray(a), None if weights is None else np.asarray(weights)
    return without_masked(a, weights, masks) if any(mask is not None for mask in masks) else (a, weights)


def _padded(part: Partial, number: int) -> Partial:
    (array,), (operator,) = part.arrays, part.outputs.operators
    if array.size == number:
        return part
    # Bins that a part lacks are empty, and hold the identity element.
    more = np.full(number - array.size, operator.neutral, operator.accumulator)
    return Partial(part.outputs, (np.concatenate([array, more]),), part.size, part.values, part.positions)
