"""Histograms of one and several dimensions on a device; calls that repeat an earlier one take its sweep."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array, is_device_array, on_host
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.reading import check_out, into
from clhist._core.runtime.signature import call_templates, signature_of_data
from clhist.axes.axis import Axis
from clhist.bincount import bincount
from clhist.binned.counting import counted, counting
from clhist.binned.counts import check_device_dtypes, flat, may_round, present
from clhist.binned.densities import Densities
from clhist.binned.device_edges import DeviceEdges, device_edges
from clhist.binned.device_inputs import most_cells, numpy_axis, queue_for
from clhist.binned.device_points import binned_points, edges_of
from clhist.binned.extent import extent
from clhist.binned.host import (
    edges_of_caller,
    edges_of_extent,
    even_edges,
    histogram_on_host,
    histogramdd_on_host,
    numpy_edges,
    numpy_histogram,
)
from clhist.binned.inputs import (
    are_usable,
    as_edges,
    check_number,
    elements_where,
    last_axes,
    range_ends,
    shape_of_bins,
)
from clhist.binned.points import Points
from clhist.binned.prepared import (
    PreparedHistogram,
    are_fixed,
    are_repeated,
    for_any_bins,
    repeated,
    store,
    store_for_any_bins,
)
from clhist.binned.rules import has_quick_rule, number_of_bins
from clhist.binned.sweep import Binned, size_class

_Data = tuple[Array, Array | None, Array | None]
# Signature of the call, extent of its data if the host found it, whether no earlier call had such data.
_Repeat = tuple[Hashable, Any, bool]


def repeated_call(
    arrays: tuple[Any, Any, Any, Any], form: tuple[Any, Any, Any, bool], density: bool | None, queue: Any
) -> tuple[tuple[Array, np.ndarray] | None, _Repeat]:
    """Look for an earlier call with the same signature, and repeat it.

    Parameters
    ----------
    arrays : tuple
        The arguments `a`, `weights`, `where` and `out` of `clhist.histogram`.
    form : tuple
        Its arguments `bins`, `range`, `axis` and `reproducible`.
    density, queue
        As of `clhist.histogram`.

    Returns
    -------
    result : (array, array) or None
        Histogram and edges; None if the call is new.
    repeat : tuple
        Argument `repeat` of `histogram`.
    """
    a, weights, where, out = arrays
    bins, range, axis, reproducible = form
    # A rule makes other bins of each data, so such calls have no signature; `size` is a method of PyTorch's tensors.
    if a is None or isinstance(bins, str) or callable(getattr(a, "size", len)):
        return None, (None, None, True)
    # Rows of a batch have a length each, so calls with an axis are of one size.
    size = size_class(a.size) if axis is None else a.size
    # The dtype of `out` depends on `density`, which nothing else does.
    of_out = None if out is None else density
    key = signature_of_data(arrays, queue, bins, range, axis, reproducible, of_out, size, results=1)
    result, data_extent, is_new = repeated(key, (a, where, weights), density, out)
    if is_new and key is not None and out is None and axis is None:
        result, data_extent = _with_other_bins(key, (a, where, weights), bins, range, density, data_extent)
    return result, (key, data_extent, is_new)


def _with_other_bins(
    key: Hashable, arrays: tuple[Any, Any, Any], bins: Any, range: Any, density: bool | None, data_extent: Any
) -> tuple[tuple[Array, np.ndarray] | None, Any]:
    """Repeat an earlier call that differs in bins and range alone; return the result or None, and the extent or None.

    Edges that depend on the extent of a device array are made by the device.
    """
    a = arrays[0]
    depends = range is None and (type(bins) is int or np.ndim(bins) == 0)
    if (depends and is_device_array(a)) or (kinds := for_any_bins(key)) is None:
        return None, data_extent
    check_number(bins)
    queue = kinds.of_kinds[0].queue
    flat_arrays = [flat(array) for array in arrays]
    data, where, _ = flat_arrays
    edges, ends, data_extent = _bin_edges(data, as_edges("bins", bins), range, None, where, queue, data_extent)
    prepared = kinds.of_edges(edges, ends, a.dtype, a.size)
    if prepared is None:
        return None, data_extent
    store(key, prepared, (data_extent,) if depends else None)
    return (prepared(flat_arrays, data.size, density, None), edges), data_extent


def histogram(
    data: _Data,
    bins: Any,
    density: bool | None,
    queue: cl.CommandQueue | None,
    arrays: tuple[Any, Any, Any, Any],
    form: tuple[Any, Any, Any, bool],
    repeat: _Repeat | None = None,
) -> tuple[Any, np.ndarray]:
    """Return a histogram and its edges.

    Parameters
    ----------
    data : tuple
        `a`, `weights` and `where` as arrays of one shape, without missing elements.
    bins
        As `clhist.binned.inputs.as_edges` returns them.
    density, queue
        As of `clhist.histogram`.
    arrays, form
        As of `repeated_call`.
    repeat : tuple, optional
        The second result of `repeated_call`.
    """
    if repeat is None:
        result, repeat = repeated_call(arrays, form, density, queue)
        if result is not None:
            return result
    (a, weights, where), out, (_, range, axis, reproducible), (key, data_extent, is_new) = data, arrays[3], form, repeat
    on_device = is_device_array(a)
    queue = queue_for(queue, present(a=a, weights=weights, where=where, out=out))
    rest = None
    if axis is not None:
        # A histogram for each index of the other dimensions: a batch of rows.
        rest, (a, weights, where) = last_axes(axis, (a, weights, where))
    _check_out(out, a, weights, density, bins, rest or ())
    if isinstance(bins, str):
        number, data_extent = _by_rule(flat(a), weights, flat(where), bins, range, queue)
        return _with_number(number, data_extent, data, density, queue, arrays, form)
    # At most 2^16 bit patterns: count these on the device, and let NumPy bin them.
    if axis is None and are_few_kinds(a, weights, where):
        _check_bins(bins, range)
        return of_bits(flat(a), bins, range, density, queue, out)
    a, weights, where = flat(a), flat(weights), flat(where)
    evenly = device_edges(a, bins, range, queue)
    request: Any = {"key": key, "density": density, "out": out, "reproducible": reproducible}
    # The device makes the edges, so that the host does not wait for the range of the data.
    if is_new and (result := _with_device_edges(evenly, a, weights, where, rest, **request)):
        return result
    # Edges by the host: it waits for the extent of the data, if they depend on that.
    edges, ends, data_extent = _bin_edges(a, bins, range, weights, where, queue, data_extent)
    # Kernels cannot search NaN among edges, and NumPy can.
    if not are_usable(edges, fewest=0):
        if on_device or rest:
            raise ValueError(f"bins: expected edges, none of them NaN, got {edges!r}")
        options = {"axis": axis, "reproducible": reproducible and may_round(weights)}
        return histogram_on_host(a, bins, range, density, weights, where, out, queue, options)
    most = most_cells(a.size, queue, None if key is None else for_any_bins(key)) if is_new else 0
    bins_axis = None  # fewer than two edges make no bin
    if len(edges) > 1:
        bins_axis = numpy_axis(edges, kernel_dtype(a.dtype), queue, ends=ends, most=most)
    prepared, hist = _counted(a, weights, where, edges, bins_axis, rest, queue, reproducible=reproducible)
    if are_repeated(key, arrays, (a, weights), axis):
        # Edges by a number of bins also depend on the extent of the data, which becomes a part of the key.
        store(key, prepared, (data_extent,) if range is None and np.ndim(bins) == 0 else None)
        store_for_any_bins(key, prepared)
    return prepared.finished(hist, density, out), edges


def _check_out(
    out: Array | None, a: Array, weights: Array | None, density: bool | None, bins: Any, rest: tuple[int, ...]
) -> None:
    """Raise TypeError or ValueError if `out` cannot hold the result; of bins by a rule the shape is not known yet."""
    if out is None:
        return
    dtype = np.dtype(np.intp if weights is None else weights.dtype)
    shape = shape_of_bins([bins])
    check_out(
        out, np.result_type(np.float64, dtype) if density else dtype, a, None if shape is None else (*rest, *shape)
    )


def _check_bins(bins: Any, range: Any) -> None:
    """Raise NumPy's TypeError or ValueError if bins or range are wrong for any data."""
    if type(bins) is not int or bins <= 0 or range is not None:
        numpy_edges(np.empty(0), min(bins, 1) if isinstance(bins, int | np.integer) else bins, range)


def _with_number(
    bins: int,
    data_extent: Any,
    data: _Data,
    density: bool | None,
    queue: cl.CommandQueue,
    arrays: tuple[Any, Any, Any, Any],
    form: tuple[Any, Any, Any, bool],
) -> tuple[Any, np.ndarray]:
    """Return `histogram` with a number of bins in the place of a rule; it may repeat an earlier call."""
    form = bins, *form[1:]
    result, (key, _, is_new) = repeated_call(arrays, form, density, queue)
    return result or histogram(data, bins, density, queue, arrays, form, (key, data_extent, is_new))


def _by_rule(
    a: Array, weights: Any, where: Any, rule: str, range: Any, queue: cl.CommandQueue
) -> tuple[int, tuple[Any, Any] | None]:
    """Return the number of bins that a rule makes for flat data, and the extent of the data, or None with a range.

    Raises
    ------
    TypeError, ValueError
        As `numpy.histogram_bin_edges`.
    """
    # NumPy's errors first.
    numpy_edges(np.empty(0, a.dtype), rule, range, None if weights is None else np.empty(0))
    data_extent = None if range is not None else extent(a, where, queue)
    if not is_device_array(a) and not has_quick_rule(a, rule, queue):
        return len(numpy_edges(elements_where(a, where), rule, range)) - 1, data_extent
    ends = range_ends(data_extent, range)
    numpy_edges(np.array([] if data_extent is None else data_extent, a.dtype), 1, range)

    def counts(number: int) -> np.ndarray:
        check_number(number)
        arrays, form = (a, None, where, None), (number, ends, None, False)
        hist: np.ndarray = histogram((a, None, where), number, None, queue, arrays, form)[0].get(queue)
        return hist

    return number_of_bins(rule, a, where, ends, range, counts, queue), data_extent


def _with_device_edges(
    bins: DeviceEdges | None,
    a: Array,
    weights: Any,
    where: Any,
    rest: Any,
    *,
    key: Any,
    reproducible: bool,
    **options: Any,
) -> tuple[Array, np.ndarray] | None:
    """Return histogram and edges by bins that the device makes from flat data.

    Return None without `bins`, or if the device's edges turn out not to be NumPy's.
    """
    if bins is None:
        return None
    kinds, kind, rows = for_any_bins(key), bins.axis.kind, None if rest is None else prod(rest)
    sweep = None if kinds is None or rest is not None else kinds.sweep_of(bins.axis)
    if sweep is None:
        binned = Binned((bins.axis,), (a,), where, a.size)
        sweep = counting(binned, weights, bins.queue, rows, reproducible=reproducible)
    # The dtype of NumPy's result, whatever the kernel accumulates in.
    dtype = np.dtype(np.intp if weights is None else weights.dtype)
    prepared = PreparedHistogram(bins.queue, sweep, dtype, (), rest, bins, kind)
    result = prepared.again((a, where, weights), **options)
    if result is not None:
        store(key, prepared)
        store_for_any_bins(key, prepared)
    return result


def _counted(
    a: Any,
    weights: Any,
    where: Any,
    edges: np.ndarray,
    axis: Axis | None,
    rest: Any,
    queue: cl.CommandQueue,
    **options: bool,
) -> tuple[PreparedHistogram, Array]:
    """Return a prepared histogram, and its counts or sums for flat data before they are finished."""
    binned = None if axis is None else Binned((axis,), (a,), where, a.size)
    rows, shape = None if rest is None else prod(rest), (max(0, len(edges) - 1),)
    hist, swept = counted(binned, shape, weights, queue, on_device=is_device_array(a), rows=rows, **options)
    own = (edges.copy(),)
    kind, searches = (None, False) if axis is None else (axis.kind, axis.is_searched)
    return PreparedHistogram(queue, swept, hist.dtype, own, rest, None, kind, Densities(queue, own), searches), hist


def repeated_points(
    points: Points, arrays: tuple[Any, Any, Any], form: tuple[Any, Any, bool], density: bool | None, queue: Any
) -> tuple[tuple[Array, list[np.ndarray]] | None, Hashable]:
    """Look for an earlier histogram of points with the same signature, and repeat it.

    Parameters
    ----------
    points : Points
        The sample.
    arrays : tuple
        The arguments `weights`, `where` and `out` of `clhist.histogramdd`.
    form : tuple
        Its arguments `bins`, `range` and `reproducible`.
    density, queue
        As of `clhist.histogramdd`.

    Returns
    -------
    result : (array, list of array) or None
        Histogram and edges; None if the call is new.
    key : hashable
        The signature; None if the edges depend on the data.
    """
    bins, range, reproducible = form
    # Edges that follow from the data cannot be reused for other data of the same signature.
    if not are_fixed(bins, range):
        return None, None
    weights, where, out = arrays
    options = range, reproducible, None if out is None else density, size_class(points.size)
    key = signature_of_data((*points.arrays, weights, where, out), queue, "dd", bins, *options, results=1)
    cached: PreparedHistogram | None = call_templates.get(key)
    if cached is None or cached.is_provisional(points.size):
        return None, key
    # Copies of the edges, which the caller may change.
    return (cached((*points.arrays, where, weights), points.size, density, out), list(map(np.copy, cached.edges))), key


def histogramdd(
    data: tuple[Points, Array | None, Array | None],
    form: tuple[Any, Any, bool],
    density: bool | None,
    out: Array | None,
    queue: cl.CommandQueue | None,
    key: Any,
) -> tuple[Any, list[np.ndarray]]:
    """Return a histogram of several dimensions and its edges.

    Parameters
    ----------
    data : tuple
        The sample, and `weights` and `where` as arrays of one element for each point.
    form
        As of `repeated_points`.
    density, out, queue
        As of `clhist.histogramdd`.
    key : hashable
        The signature of the call; None if no call can repeat it.
    """
    (points, weights, where), (bins, range, reproducible) = data, form
    queue = queue_for(queue, present(sample=tuple(points.arrays), weights=weights, where=where, out=out))
    _check_out_of_points(out, points, bins)
    weights, where = flat(weights), flat(where)
    edges = edges_of(points, bins, range, where, queue)
    shape = tuple(max(0, len(axis_edges) - 1) for axis_edges in edges)
    # Edges that kernels cannot search, or too many bins: NumPy counts, or raises.
    if not points.on_device and not points.are_countable(edges):
        options = {"reproducible": reproducible and may_round(weights)}
        return histogramdd_on_host(points, bins, range, density, weights, where, out, queue, options)
    # Calls on such points that had other bins may have the same kinds of axes.
    any_bins = None if key is None else (key[0], ("dd", "any bins", *key[1][3:]), key[2])
    most = most_cells(points.size, queue, call_templates.get(any_bins)) if call_templates.get(key) is None else 0
    call_templates.put(any_bins, True)
    of_axes = bins if np.iterable(bins) else [bins] * points.dims
    are_even = [type(axis_bins) is int or np.ndim(axis_bins) == 0 for axis_bins in of_axes]
    binned = None  # without bins
    if all(shape):
        binned = binned_points(points, edges, where, queue, are_even=are_even, most=most)
    searches, own = binned is not None and any(axis.is_searched for axis in binned.axes), tuple(map(np.copy, edges))
    of_bins: Any = {"edges": own, "divide": Densities(queue, own), "searches": searches}
    of_kinds = None if any_bins is None or binned is None else (any_bins, binned.kind)
    earlier: PreparedHistogram | None = call_templates.get(of_kinds)
    if earlier is not None and earlier.sweep is not None and binned is not None:
        prepared = PreparedHistogram(queue, earlier.sweep.of_axes(binned), earlier.dtype, **of_bins)
        store(key, prepared)
        return prepared((*points.arrays, where, weights), points.size, density, out), edges
    hist, swept = counted(
        binned, shape, weights, queue, on_device=points.on_device, reproducible=reproducible, in_float64=True
    )
    prepared = PreparedHistogram(queue, swept, hist.dtype, **of_bins)
    store(key, prepared)
    store(of_kinds, prepared)
    return prepared.finished(hist, density, out), edges


def _check_out_of_points(out: Array | None, points: Points, bins: Any) -> None:
    """Raise TypeError or ValueError if `out` cannot hold the result, before the data is read."""
    if out is not None:
        shape = shape_of_bins(list(bins) if np.iterable(bins) else [bins] * points.dims)
        check_out(out, np.dtype(np.float64), points.arrays[0], shape)


def edges_of_array(
    a: Array, bins: Any, range: Any, weights: Any, where: Any, queue: cl.CommandQueue | None
) -> np.ndarray:
    """Return NumPy's bin edges for a device array."""
    check_device_dtypes("a", (a,), None)
    queue, data_extent = queue_for(queue, [("a", a)] + ([] if where is None else [("where", where)])), None
    if isinstance(bins, str):
        bins, data_extent = _by_rule(flat(a), weights, flat(where), bins, range, queue)
    return _bin_edges(flat(a), bins, range, weights, flat(where), queue, data_extent)[0]


def _bin_edges(
    a: Array, bins: Any, range: Any, weights: Any, where: Any, queue: cl.CommandQueue, data_extent: Any = None
) -> tuple[np.ndarray, Any, Any]:
    """Return NumPy's edges for flat data.

    Parameters
    ----------
    a, bins, range, weights, where, queue
        As of `clhist.histogram`; arrays are flat.
    data_extent : pair, optional
        Least and greatest element, if they are known.

    Returns
    -------
    edges : array
        NumPy's.
    ends : pair or None
        The ends of bins of equal width; None for edges that the caller passed.
    data_extent : pair or None
        Least and greatest element, if the edges depend on them.
    """
    # Edges of the caller: NumPy checks them, and no data is read.
    if type(bins) is not int and np.ndim(bins) > 0:
        return edges_of_caller(bins, range, a.dtype), None, None
    if range is None and data_extent is None:
        # One bin has the same errors, and needs no memory for many edges.
        few = min(bins, 1) if isinstance(bins, int | np.integer) else bins
        numpy_edges(np.empty(0), few, None, None if weights is None else np.empty(0))  # raises NumPy's errors first
        data_extent = extent(a, where, queue)
    if range is not None:
        return even_edges(bins, range, a.dtype), range_ends(None, range), None
    return *edges_of_extent(bins, data_extent, a.dtype), data_extent


def are_few_kinds(a: Any, weights: Any, where: Any) -> bool:
    """Return whether data has at most 2^16 different values, and neither weights nor a mask."""
    return where is None and weights is None and a.dtype.itemsize <= 2 and a.size > 0


def of_bits(
    data: Any, bins: Any, range: Any, density: bool | None, queue: cl.CommandQueue, out: Array | None
) -> tuple[Array, np.ndarray]:
    """Return the histogram of flat `data` and its edges, from counts of its bit patterns."""
    bits = np.dtype(f"u{data.dtype.itemsize}")
    counts: Any = bincount(
        data if data.dtype.kind == "b" else data.view(bits), minlength=2 ** (8 * bits.itemsize), queue=queue
    )
    counts = on_host(counts, queue)
    there = np.flatnonzero(counts)
    # The bit patterns that occur, as numbers of the dtype of the data, with their counts as weights.
    hist, edges = numpy_histogram(there.astype(bits).view(data.dtype), bins, range, density, counts[there])
    return into(out, to_device(queue, hist) if is_device_array(data) else hist), edges
