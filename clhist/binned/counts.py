"""Validates data and weights of histograms, on the host or a device, and divides counts into densities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import Array, check_layout, is_device_array, on_host
from clhist._core.runtime.missing import any_missing
from clhist.binned.inputs import is_binnable, mask_array, split_array, without
from clhist.operators.halves import number_of

if TYPE_CHECKING:
    import pyopencl as cl


def flat(array: Array | None) -> Any:
    """Return an array in one dimension; NumPy's is made contiguous."""
    if array is None or (array.ndim == 1 and is_device_array(array)):
        return array
    return array.reshape(-1) if is_device_array(array) else np.ascontiguousarray(array).reshape(-1)


def can_sum(weights: Array | None) -> bool:
    """Return whether kernels can sum weights of this dtype."""
    if weights is None:
        return True
    dtype = number_of(weights.dtype)
    return dtype.itemsize <= {"i": 8, "u": 8, "f": 8, "c": 16}.get(dtype.kind, 0)


def may_round(weights: Array | None) -> bool:
    """Return whether sums of weights may depend on their order; those of booleans are exact."""
    return weights is not None and weights.dtype.kind != "b"


def are_real(weights: Array | None) -> bool:
    """Return whether weights are real numbers that kernels can sum, which `numpy.histogramdd` requires."""
    return weights is None or (number_of(weights.dtype).kind in "iuf" and can_sum(weights))


def check_device_dtypes(name: str, arrays: Sequence[Array], weights: Array | None) -> None:
    """Raise TypeError if kernels do not support these device arrays; `name` is that of the data in errors."""
    for array in arrays:
        check_layout(name, array)
        if not is_binnable(array.dtype):
            raise TypeError(f"{name}: expected a device array of booleans, integers or floats, got {array.dtype}")
    if weights is not None and not can_sum(weights):
        raise TypeError(f"weights: expected a device array that OpenCL can add up, got {weights.dtype}")
    if is_device_array(weights):
        check_layout("weights", weights)


def checked_data(a: Any, weights: Any, where: Any, *, whole: bool = False) -> tuple[Any, Any, Any]:
    """Return data, weights and mask as arrays of one shape without missing elements; None stays None.

    Missing elements are removed, which leaves one dimension. With `whole` the shape stays, and `where` excludes them.
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
        # A missing weight has any value, so it may be huge.
        weights = None if weights is None else np.where(missing, weights.dtype.type(0), weights)
    if is_device_array(a):
        check_device_dtypes("a", (a,), weights)
    return a, weights, where


def present(**named: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of the arguments that are not None; a tuple yields a pair for each of its elements."""
    pairs = [(name, one) for name, value in named.items() for one in (value if isinstance(value, tuple) else (value,))]
    return [(name, value) for name, value in pairs if value is not None]


def densities(
    hist: Array, edges: Sequence[np.ndarray], queue: cl.CommandQueue | None, *, over: int | None = None
) -> Array:
    """Return the densities of a histogram, divided on the host by NumPy's operations.

    Parameters
    ----------
    hist : array
        NumPy's or PyOpenCL's, as is the result.
    edges : sequence of array
        One for each of the last dimensions.
    queue : pyopencl.CommandQueue or None
        Of device arrays.
    over : int, optional
        The integral is one over so many of the last dimensions; defaults to all.
    """
    counts = on_host(hist, queue)
    dims = tuple(range(-(over or counts.ndim), 0))
    total = counts.sum(axis=dims, keepdims=over is not None)
    density = counts
    # Axis by axis and the total last, in the order of NumPy's divisions: another one rounds otherwise.
    for n, axis_edges in enumerate(edges):
        shape = [1] * len(edges)
        shape[n] = len(axis_edges) - 1
        density = density / np.array(np.diff(axis_edges), float).reshape(shape)
    density = density / total
    if not is_device_array(hist):
        return density
    from clhist._core.opencl.new_arrays import to_device

    return to_device(queue or hist.queue, density)
