"""NumPy's own histograms: for small arrays, and for what OpenCL has no type for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import Array, check_layout, is_device_array
from clhist._core.runtime.caller import at_caller
from clhist._core.runtime.reading import check_width, into
from clhist._core.runtime.small import check_host_way, is_small
from clhist.bincount import bincount
from clhist.binned.counts import are_real, can_sum, check_device_dtypes, densities
from clhist.binned.inputs import (
    are_numbers,
    are_usable,
    check_ends,
    is_binnable,
    range_ends,
    taken,
)
from clhist.binned.points import Points, numpy_histogramdd
from clhist.operators.halves import half_name, number_of

if TYPE_CHECKING:
    import pyopencl as cl

# As they are now: if a program replaced them by ours, ours would call themselves.
_histogram, _edges, _digitize = np.histogram, np.histogram_bin_edges, np.digitize
_MOST_KEPT = 2**15  # edges
_BLOCK = 2**16  # elements whose weights NumPy's histogram sums in float64 before it rounds


def numpy_histogram(a: Array, *args: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return `numpy.histogram` of an array; it warns of booleans."""
    return _with_room(_histogram, a, *args)


def numpy_edges(a: Array, *args: Any) -> np.ndarray:
    """Return `numpy.histogram_bin_edges` of an array; it warns of booleans."""
    return _with_room(_edges, a, *args)


def numpy_digitize(x: Array, bins: Any, right: bool) -> Any:
    """Return what `numpy.digitize` does; raise what names `bins` that are no edges."""
    try:
        return _digitize(x, bins, right)
    except (TypeError, ValueError):
        edges = np.asarray(bins)
        if edges.ndim != 1:
            raise ValueError(f"bins: expected edges of one dimension, got {bins!r:.60}") from None
        if edges.dtype.kind not in "biufO":
            raise TypeError(f"bins: expected edges that are real numbers, got {bins!r:.60}") from None
        raise


def _with_room(function: Callable[..., Any], a: Array, *args: Any) -> Any:
    """Return what NumPy does of an array and bins; raise what names the argument where it has no room for one."""
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
        if ends is not None:
            check_ends("range", ends)
        raise


def even_edges(bins: Any, ends: Any, dtype: np.dtype) -> np.ndarray:
    """Return NumPy's edges of bins of one width for data of a dtype, kept for the next call with the same numbers."""
    if type(bins) is int and bins <= _MOST_KEPT and type(ends) is tuple and list(map(type, ends)) == [float, float]:
        return _even_edges(bins, ends, tuple(map(str, ends)), dtype).copy()
    return numpy_edges(np.empty(0, dtype), bins, ends)


@lru_cache(maxsize=64)
def _even_edges(bins: int, ends: tuple[float, float], as_text: tuple[str, ...], dtype: np.dtype) -> np.ndarray:
    # The text tells zeros of both signs apart.
    if dtype == np.float64 and 0 < ends[1] - ends[0] < np.inf and bins > 0:
        edges = np.linspace(*ends, bins + 1)  # as NumPy does, behind checks that take as long
        if (edges[:-1] < edges[1:]).all():
            return edges
    return numpy_edges(np.empty(0, dtype), bins, ends)


def is_for_numpy(a: Any, bins: Any, weights: Any, queue: cl.CommandQueue | None, options: Mapping[str, Any]) -> bool:
    """Whether NumPy counts its array: one that kernels cannot take, or a small one."""
    if is_small("1 dimension", a.size, queue, **options):
        return True
    return not (is_binnable(a.dtype) and can_sum(weights) and are_numbers(bins))


def are_few(dims: int, size: int, queue: cl.CommandQueue | None, **options: Any) -> bool:
    """Whether points on the host are left to NumPy since they are few."""
    return is_small("1 dimension" if dims == 1 else "2 dimensions", size, queue, **options)  # or more


def are_for_numpy(points: Points, weights: Any, queue: cl.CommandQueue | None, options: Mapping[str, Any]) -> bool:
    """Whether NumPy counts points of its arrays; raises an exception if kernels are to, and cannot."""
    if points.on_device:
        check_device_dtypes("sample", points.arrays, None)
    else:
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
    """Return NumPy's own histogram, but for sums of weights that it rounds on the way.

    Raises
    ------
    TypeError
        If one of the `options` is given, which only kernels have, or `queue` is none.
    """
    a, weights = taken(a, where), taken(weights, where)
    if a.dtype.itemsize == 2 and half_name(a.dtype) and np.ndim(bins) == 1:
        a = a.astype(number_of(a.dtype))  # NumPy sorts data, and its sort of float16 fails with AVX-512 (NumPy 2.4)
    reproducible = weights is not None and bool(options.get("reproducible"))
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
    """Return NumPy's own histogram of several dimensions; raises as `histogram_on_host`."""
    check_host_way(_OF_NUMPY, queue, **options)
    given = points.as_given
    if points.dtype.kind == "O":
        for column in points.arrays:
            check_width("sample", column, column)
    if where is not None:
        given = [column[where] for column in given] if points.rows is None else given[where]
    hist, edges = numpy_histogramdd(given, bins, range, density, taken(weights, where))
    return into(out, hist), list(edges)


_OF_NUMPY = "data, weights or edges that OpenCL has no type for"


def _sums_better(a: np.ndarray, bins: Any, weights: np.ndarray) -> bool:
    """Whether sums of these weights are other than those of NumPy, which rounds integers to float64, too."""
    if isinstance(bins, str) or not is_binnable(a.dtype) or not can_sum(weights):
        return False
    return weights.dtype.kind in "iu" or np.ndim(bins) == 1 or a.size > _BLOCK


def _extent(a: np.ndarray) -> tuple[Any, Any] | None:
    return (a.min(), a.max()) if a.size else None


def _sums(
    a: np.ndarray, edges: np.ndarray, ends: tuple[Any, Any], weights: np.ndarray, bincount: Callable[..., Array]
) -> np.ndarray:
    """Return sums of weights within `ends` as kernels have them: of integers in int64, of others by `bincount`."""
    size = len(edges) - 1
    inside = (a >= ends[0]) & (a <= ends[1])
    number = np.clip(np.searchsorted(edges, a, "right") - 1, 0, size - 1)[inside]
    weights = weights[inside]
    if weights.dtype.kind in "iu":
        total = np.zeros(size, np.int64)
        np.add.at(total, number, weights.astype(np.int64))
        return total.astype(weights.dtype)
    parts = (weights.real, weights.imag) if weights.dtype.kind == "c" else (weights,)
    sums = [bincount(number, part, size) for part in parts]
    with np.errstate(over="ignore"):
        return (sums[0] if len(sums) == 1 else sums[0] + 1j * sums[1]).astype(weights.dtype)
