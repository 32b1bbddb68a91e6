"""Histograms by NumPy: for few elements, and for dtypes that OpenCL lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import Array, check_layout, is_device_array
from clhist._core.runtime.caller import at_caller
from clhist._core.runtime.reading import check_width, into
from clhist._core.runtime.small import check_host_way, is_small
from clhist.axes.thresholds import GREATEST, are_exact
from clhist.bincount import bincount
from clhist.binned.counts import are_real, can_sum, check_device_dtypes, densities
from clhist.binned.inputs import (
    are_ascending,
    are_numbers,
    are_usable,
    check_ends,
    elements_where,
    is_binnable,
    range_ends,
)
from clhist.binned.points import Points, numpy_histogramdd
from clhist.operators.halves import half_name, number_of

if TYPE_CHECKING:
    import pyopencl as cl

# Bound at import: a program may replace NumPy's functions by ours, which would then call themselves.
_histogram, _edges, _digitize = np.histogram, np.histogram_bin_edges, np.digitize
_MOST_COUNTED = 2**15  # numbers of a cached array
_FLOAT64 = np.dtype(np.float64)
# Edges whose distance is more than so much of the greatest of them are different numbers.
_LEAST_STEP = {"f": 2.0**-20, "d": 2.0**-48}
_SUBNORMAL = {"f": 2.0**-126, "d": 0.0}  # below it float32 rounds numbers of float64 more
_BLOCK = 2**16  # elements whose weights NumPy's histogram sums in float64 before it rounds


def numpy_histogram(a: Array, *args: Any) -> tuple[Any, np.ndarray]:
    """Call `numpy.histogram`, with clearer errors; warnings of booleans point to the caller."""
    return _with_room(_histogram, a, *args)


def numpy_edges(a: Array, *args: Any) -> np.ndarray:
    """Call `numpy.histogram_bin_edges`, with clearer errors; warnings of booleans point to the caller."""
    return _with_room(_edges, a, *args)


def numpy_digitize(x: Array, bins: Any, right: bool) -> Any:
    """Call `numpy.digitize`; raise an error that names `bins` if they are not edges.

    NumPy compares edges in float64 to see whether they rise or fall. Integers that it rounds are compared here.
    """
    try:
        numbers = _digitize(x, bins, right)
        edges = np.asarray(bins)
        if edges.dtype.kind not in "iu" or edges.dtype.itemsize < 8 or len(edges) < 2:
            return numbers
        # Compare the integers exactly: NumPy took these for ascending or descending in float64.
        rises = edges[1:] >= edges[:-1]
        if rises.all():
            return numbers
        if (edges[1:] > edges[:-1]).any():
            raise ValueError("bins must be monotonically increasing or decreasing")
        # Descending edges are searched in ascending order, and counted from the other end.
        return len(edges) - np.searchsorted(edges[::-1], x, "left" if right else "right")
    except (TypeError, ValueError):
        edges = np.asarray(bins)
        if edges.ndim != 1:
            raise ValueError(f"bins: expected edges of one dimension, got {bins!r:.60}") from None
        if edges.dtype.kind not in "biuf":
            raise TypeError(f"bins: expected edges that are real numbers on the host, got {bins!r:.60}") from None
        raise


def _with_room(function: Callable[..., Any], a: Array, *args: Any) -> Any:
    """Call a function of NumPy on an array and bins; name the argument if its memory or numbers exceed the limits."""
    if a.dtype.kind == "O" and np.ndim(args[0]) == 0:
        check_width("a", a, a)
    try:
        return at_caller(function, a, *args) if a.dtype.kind == "b" else function(a, *args)
    except MemoryError as error:
        raise MemoryError(f"bins: expected a number that there is memory for, got {args[0]!r:.60}: {error}") from error
    except (OverflowError, TypeError, ValueError) as error:
        ends = args[1] if len(args) > 1 else None
        if isinstance(ends, list | tuple) and any(isinstance(end, int) and abs(end) >= 2**63 for end in ends):
            raise ValueError(f"range: expected ends that int64 holds, or floats, got {ends!r:.80}") from error
        # NumPy's own errors do not name the range; an error of another argument is raised as it is.
        if ends is not None:
            check_ends("range", ends)
        raise


def even_edges(bins: Any, ends: Any, dtype: np.dtype) -> np.ndarray:
    """Return NumPy's edges of equal-width bins for data of `dtype`."""
    # Edges of integers are of float64; those of short ones may be narrower before NumPy 2.
    of_edges = _FLOAT64 if dtype.kind in "iu" and dtype.itemsize >= 4 else dtype
    if type(bins) is int and bins > 0 and type(ends) in (tuple, list) and len(ends) == 2 and of_edges.char in "fd":
        # Scalars of NumPy may widen the edges.
        is_exact = all((type(end) is np.float64 and of_edges.char == "d") or are_exact(end) for end in ends)
        low, high = ends
        edges = counted_edges(bins, low, high, of_edges) if is_exact else None
        if edges is not None:
            return edges
    return numpy_edges(np.empty(0, dtype), bins, ends)


def counted_edges(bins: int, low: float, high: float, dtype: np.dtype = _FLOAT64) -> np.ndarray | None:
    """Return what `numpy.linspace` returns, in a quarter of its time; None of many bins, or if edges may be equal.

    The ends `are_exact`, and `dtype` is float32 or float64.
    """
    low, high = float(low), float(high)
    step, greatest = (high - low) / bins, max(abs(low), abs(high))
    is_narrow = not max(greatest * _LEAST_STEP[dtype.char], _SUBNORMAL[dtype.char]) < step < np.inf
    if bins > _MOST_COUNTED or is_narrow or greatest > GREATEST[dtype.char]:
        return None
    edges: np.ndarray = _numbers(bins + 1) * step
    edges += low
    edges[-1] = high
    return edges.astype(dtype, copy=False)


def edges_of_caller(bins: Any, range: Any, dtype: np.dtype) -> np.ndarray:
    """Return NumPy's edges for data of `dtype` from the edges of the caller."""
    # NumPy takes a sorted array as it is. It takes ten times as long, and checks a range as well.
    if range is None and are_ascending(bins):
        edges: np.ndarray = bins
        return edges
    return numpy_edges(np.empty(0, dtype), bins, range)


@lru_cache(maxsize=16)
def _numbers(number: int) -> np.ndarray:
    return np.arange(number, dtype=np.float64)


def edges_of_extent(
    bins: Any, data_extent: tuple[Any, Any] | None, dtype: np.dtype
) -> tuple[np.ndarray, tuple[Any, Any]]:
    """Return NumPy's edges of equal-width bins for data of this extent (None of no data), and their ends."""
    if data_extent is not None and dtype == np.float64 and type(bins) is int and bins <= _MOST_COUNTED:
        low, high = map(float, data_extent)
        if 0 < high - low < np.inf:
            return even_edges(bins, (low, high), dtype), (low, high)
    # Edges depend on the extremes alone, so these two stand for the data.
    stub = np.array([] if data_extent is None else data_extent, dtype)
    return numpy_edges(stub, bins), range_ends(data_extent, None)


def is_for_numpy(a: Any, bins: Any, weights: Any, queue: cl.CommandQueue | None, options: Mapping[str, Any]) -> bool:
    """Return whether NumPy computes the histogram: kernels do not support the array, or it is small."""
    call = "rule" if type(bins) is str else "edges" if type(bins) in (np.ndarray, list, tuple) else "1 dimension"
    if is_small(call, a.size, queue, **options):
        return True
    return not (is_binnable(a.dtype) and can_sum(weights) and are_numbers(bins))


def are_few(dims: int, size: int, queue: cl.CommandQueue | None, **options: Any) -> bool:
    """Return whether NumPy computes the histogram since the points are few."""
    # The size for 2 dimensions serves for more.
    return is_small("1 dimension" if dims == 1 else "2 dimensions", size, queue, **options)


def are_for_numpy(points: Points, weights: Any, queue: cl.CommandQueue | None, options: Mapping[str, Any]) -> bool:
    """Return whether NumPy computes the histogram of points; raise if kernels must, but do not support the arrays."""
    if points.on_device:
        check_device_dtypes("sample", points.arrays, None)
    else:
        # NumPy also computes dtypes that kernels lack.
        few = are_few(points.dims, points.size, queue, **options)
        if few or not (is_binnable(points.dtype) and are_real(weights)):
            return True
    if weights is not None and weights.shape != (points.size,):
        raise ValueError("The weights and list don't have the same length.")
    if weights is not None and not are_real(weights):
        raise TypeError(f"weights: expected a device array of integers or floats, got one of {weights.dtype}")
    if is_device_array(weights):
        check_layout("weights", weights)
    return False


def histogram_on_host(
    a: Array,
    bins: Any,
    range: Any,
    density: bool | None,
    weights: Any,
    where: Any,
    out: Array | None,
    queue: Any,
    options: Mapping[str, Any],
) -> tuple[Array, np.ndarray]:
    """Return NumPy's histogram; sums of weights that NumPy would round on the way are computed as by kernels.

    Raises
    ------
    TypeError
        If one of `options` is set, which only kernels have, or if `queue` is not a queue.
    """
    a, weights = elements_where(a, where), elements_where(weights, where)
    if a.dtype.itemsize == 2 and half_name(a.dtype) and np.ndim(bins) == 1:
        # NumPy sorts the data, and its sort of float16 fails with AVX-512 (NumPy 2.4).
        a = a.astype(number_of(a.dtype))
    reproducible = weights is not None and bool(options.get("reproducible"))
    # NumPy rounds sums of integers to float64, and sums of other weights after each block of elements.
    if weights is not None and (
        _sums_better(a, bins, weights) or (reproducible and a.dtype.kind in "biuf" and can_sum(weights))
    ):
        edges = numpy_edges(a, bins, range)
        if are_usable(edges):
            check_host_way(_OF_NUMPY, queue, **{**options, "reproducible": None})
            ends = (edges[0], edges[-1]) if np.ndim(bins) == 1 else range_ends(_extent(a), range)
            sums_of: Callable[..., Array] = np.bincount
            if reproducible:
                sums_of = partial(bincount, queue=queue, reproducible=True)
            hist = _sums(a.reshape(-1), edges, ends, weights.reshape(-1), sums_of)
            return into(out, densities(hist, [edges], None) if density else hist), edges
    check_host_way(_OF_NUMPY, queue, **options)
    hist, edges = numpy_histogram(a, bins, range, density, weights)
    return into(out, hist), edges


def histogramdd_on_host(
    points: Points,
    bins: Any,
    range: Any,
    density: bool | None,
    weights: Any,
    where: Any,
    out: Array | None,
    queue: Any,
    options: Mapping[str, Any],
) -> tuple[Array, list[np.ndarray]]:
    """Return NumPy's histogram of several dimensions; raise as `histogram_on_host`."""
    check_host_way(_OF_NUMPY, queue, **options)
    sample = points.as_given
    if points.dtype.kind == "O":
        for column in points.arrays:
            check_width("sample", column, column)
    if where is not None:
        # NumPy has no mask: pass it the chosen points.
        sample = [column[where] for column in sample] if points.rows is None else sample[where]
    hist, edges = numpy_histogramdd(sample, bins, range, density, elements_where(weights, where))
    return into(out, hist), list(edges)


_OF_NUMPY = "data, weights or edges that OpenCL has no type for"


def _sums_better(a: np.ndarray, bins: Any, weights: np.ndarray) -> bool:
    """Return whether NumPy's sums of these weights would be less exact: it rounds integers to float64, too."""
    if isinstance(bins, str) or not is_binnable(a.dtype) or not can_sum(weights):
        return False
    return weights.dtype.kind in "iu" or np.ndim(bins) == 1 or a.size > _BLOCK


def _extent(a: np.ndarray) -> tuple[Any, Any] | None:
    return (a.min(), a.max()) if a.size else None


def _sums(
    a: np.ndarray, edges: np.ndarray, ends: tuple[Any, Any], weights: np.ndarray, bincount: Callable[..., Array]
) -> np.ndarray:
    """Return sums of weights of the elements within `ends`: of integers in int64, of others by `bincount`."""
    size = len(edges) - 1
    inside = (a >= ends[0]) & (a <= ends[1])
    # The last bin contains its upper edge.
    number = np.clip(np.searchsorted(edges, a, "right") - 1, 0, size - 1)[inside]
    weights = weights[inside]
    if weights.dtype.kind in "iu":
        # Integers in int64: numpy.bincount would round sums beyond 2^53 in float64.
        total = np.zeros(size, np.int64)
        np.add.at(total, number, weights.astype(np.int64))
        return total.astype(weights.dtype)
    parts = (weights.real, weights.imag) if weights.dtype.kind == "c" else (weights,)
    sums = [bincount(number, part, size) for part in parts]
    with np.errstate(over="ignore"):
        return (sums[0] if len(sums) == 1 else sums[0] + 1j * sums[1]).astype(weights.dtype)
