"""Histograms by a device, and by calls that repeat earlier ones."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.runtime.reading import check_out
from clhist._core.runtime.signature import signature_of_data
from clhist.binned.bits import are_few_kinds, of_bits
from clhist.binned.counting import counted, counting
from clhist.binned.counts import check_device_dtypes, flat, may_round, present
from clhist.binned.device_inputs import numpy_axis, queue_for
from clhist.binned.device_points import binned_points, edges_of
from clhist.binned.extent import extent
from clhist.binned.found import FoundBins, found_bins
from clhist.binned.host import even_edges, histogram_on_host, histogramdd_on_host, numpy_edges
from clhist.binned.inputs import are_usable, check_number, last_axes, range_ends, shape_of_bins, taken
from clhist.binned.points import Points
from clhist.binned.prepared import Prepared, are_fixed, are_repeated, keep, prepared_for, repeated
from clhist.binned.rules import number_of_bins
from clhist.binned.sweep import Binned

_Data = tuple[Array, Array | None, Array | None]
_Repeat = tuple[Hashable, Any, bool]  # the signature of a call, the extent of its data, whether none was alike


def repeated_call(
    arrays: tuple[Any, Any, Any, Any], form: tuple[Any, Any, Any, bool], density: bool | None, queue: Any
) -> tuple[tuple[Array, np.ndarray] | None, _Repeat]:
    """Return the result of a histogram if the call repeats an earlier one, else None; and what is kept by.

    Parameters
    ----------
    arrays : tuple
        The arguments `a`, `weights`, `where` and `out` of `clhist.histogram`.
    form : tuple
        Its arguments `bins`, `range`, `axis` and `reproducible`.
    density, queue
        As of `clhist.histogram`.
    """
    a, weights, where, out = arrays
    bins, range, axis, reproducible = form
    options = range, axis, reproducible, _density_of(out, density)
    key = None if isinstance(bins, str) else signature_of_data(arrays, queue, bins, *options)
    result, found, is_new = repeated(key, (a, where, weights), density, out)
    return result, (key, found, is_new)


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
    (a, weights, where), out, (_, range, axis, reproducible), (key, found, is_new) = data, arrays[3], form, repeat
    on_device = is_device_array(a)
    queue = queue_for(queue, present(a=a, weights=weights, where=where, out=out))
    rest = None
    if axis is not None:
        rest, (a, weights, where) = last_axes(axis, (a, weights, where))
    _check_out(out, a, weights, density, bins, rest or ())
    if axis is None and are_few_kinds(a, weights, where):
        _check_bins(bins, range)
        return of_bits(flat(a), _number_of_bins(a, bins, range, queue), range, density, queue, out)
    a, weights, where = flat(a), flat(weights), flat(where)
    evenly = found_bins(a, bins, range, queue)
    asked: Any = {"key": key, "density": density, "out": out, "reproducible": reproducible}
    if is_new and (result := _in_found_range(evenly, a, weights, where, rest, **asked)):
        return result
    edges, ends, found = _bin_edges(a, bins, range, weights, where, queue, found)
    if not are_usable(edges):
        if on_device or rest:
            raise ValueError(f"bins: expected two edges or more, none of them NaN, got {edges!r}")
        options = {"axis": axis, "reproducible": reproducible and may_round(weights)}
        return histogram_on_host(a, bins, range, density, weights, where, out, queue, options)
    prepared, hist = _counted(a, weights, where, edges, ends, rest, queue, reproducible=reproducible)
    if are_repeated(key, arrays, (a, weights), axis):
        keep(key, prepared, (found,) if range is None and np.ndim(bins) == 0 else None, any_size=True)
    return prepared.finished(hist, density, out), edges


def _density_of(out: Array | None, density: bool | None) -> bool | None:
    """Return `density` for a signature, which needs it where the dtype of `out` is checked by it."""
    return None if out is None else density


def _check_out(
    out: Array | None, a: Array, weights: Array | None, density: bool | None, bins: Any, rest: tuple[int, ...]
) -> None:
    """Raise TypeError or ValueError if `out` cannot take the result; a rule for the bins leaves its shape open."""
    if out is None:
        return
    dtype = np.dtype(np.intp if weights is None else weights.dtype)
    shape = shape_of_bins([bins])
    check_out(
        out, np.result_type(np.float64, dtype) if density else dtype, a, None if shape is None else (*rest, *shape)
    )


def _check_bins(bins: Any, range: Any) -> None:
    """Raise TypeError or ValueError, as NumPy does, if bins or their range are wrong, whatever the data."""
    if type(bins) is not int or bins <= 0 or range is not None:
        numpy_edges(np.empty(0), min(bins, 1) if isinstance(bins, int | np.integer) else bins, range)


def _number_of_bins(a: Array, bins: Any, range: Any, queue: cl.CommandQueue) -> Any:
    """Return `bins`, or how many a rule makes."""
    return len(_bin_edges(flat(a), bins, range, None, None, queue)[0]) - 1 if isinstance(bins, str) else bins


def _in_found_range(
    bins: FoundBins | None, a: Array, weights: Any, where: Any, rest: Any, *, key: Any, reproducible: bool, **asked: Any
) -> tuple[Array, np.ndarray] | None:
    """Return the histogram in bins that the device makes, and its edges, if there are such; arrays are flat."""
    if bins is None:
        return None
    rows = None if rest is None else prod(rest)
    sweep = counting(Binned((bins.axis,), (a,), where, a.size), weights, bins.queue, rows, reproducible=reproducible)
    dtype = np.dtype(np.intp if weights is None else weights.dtype)
    prepared = Prepared(bins.queue, sweep, dtype, (), rest, bins)
    result = prepared.again((a, where, weights), **asked)
    if result is not None:
        keep(key, prepared, any_size=True)
    return result


def _counted(
    a: Any, weights: Any, where: Any, edges: np.ndarray, ends: Any, rest: Any, queue: cl.CommandQueue, **options: bool
) -> tuple[Prepared, Array]:
    """Return the histogram by edges, before it is finished, and what computes and finishes it; arrays are flat."""
    axis = numpy_axis(edges, kernel_dtype(a.dtype), queue, ends=ends)
    binned = None if axis is None else Binned((axis,), (a,), where, a.size)
    rows, shape = None if rest is None else prod(rest), (len(edges) - 1,)
    hist, swept = counted(binned, shape, weights, queue, on_device=is_device_array(a), rows=rows, **options)
    return Prepared(queue, swept, hist.dtype, (edges,), rest), hist


def repeated_points(
    points: Points, arrays: tuple[Any, Any, Any], form: tuple[Any, Any, bool], density: bool | None, queue: Any
) -> tuple[tuple[Array, list[np.ndarray]] | None, Hashable]:
    """Return the result of a histogram of device arrays if it repeats an earlier one, else None; and its signature.

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
    """
    bins, range, reproducible = form
    if not are_fixed(bins, range):
        return None, None
    weights, where, out = arrays
    options = range, reproducible, _density_of(out, density)
    key = signature_of_data((*points.arrays, weights, where, out), queue, "dd", bins, *options)
    known = prepared_for(key, points.size)
    if not isinstance(known, Prepared):
        return None, key
    return (known((*points.arrays, where, weights), density, out), list(map(np.copy, known.edges))), key


def histogramdd(
    data: tuple[Points, Array | None, Array | None],
    form: tuple[Any, Any, bool],
    density: bool | None,
    out: Array | None,
    queue: cl.CommandQueue | None,
    key: Hashable,
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
    shape = tuple(len(each) - 1 for each in edges)
    if not points.on_device and not points.are_countable(edges):
        options = {"reproducible": reproducible and may_round(weights)}
        return histogramdd_on_host(points, bins, range, density, weights, where, out, queue, options)
    binned = binned_points(points, edges, where, queue)
    hist, swept = counted(
        binned, shape, weights, queue, on_device=points.on_device, reproducible=reproducible, in_float64=True
    )
    prepared = Prepared(queue, swept, hist.dtype, tuple(edges))
    keep(key, prepared, any_size=True)
    return prepared.finished(hist, density, out), edges


def _check_out_of_points(out: Array | None, points: Points, bins: Any) -> None:
    """Raise TypeError or ValueError if `out` cannot take the result, before the data is read."""
    if out is not None:
        shape = shape_of_bins(list(bins) if np.iterable(bins) else [bins] * points.dims)
        check_out(out, np.dtype(np.float64), points.arrays[0], shape)


def edges_of_array(
    a: Array, bins: Any, range: Any, weights: Any, where: Any, queue: cl.CommandQueue | None
) -> np.ndarray:
    """Return the edges of bins of a device array."""
    check_device_dtypes("a", (a,), None)
    queue = queue_for(queue, [("a", a)] + ([] if where is None else [("where", where)]))
    return _bin_edges(flat(a), bins, range, weights, flat(where), queue)[0]


def _bin_edges(
    a: Array, bins: Any, range: Any, weights: Any, where: Any, queue: cl.CommandQueue, found: Any = None
) -> tuple[np.ndarray, Any, Any]:
    """Return NumPy's edges, the ends of bins of one width, and the extent of flat data unless there is a range."""
    if not isinstance(bins, str) and np.ndim(bins) > 0:
        return numpy_edges(np.empty(0, a.dtype), bins, range), None, None
    if range is None and found is None:
        few = min(bins, 1) if isinstance(bins, int | np.integer) else bins
        numpy_edges(np.empty(0), few, None, None if weights is None else np.empty(0))  # raises what is wrong
        found = extent(a, where, queue)
    if isinstance(bins, str) and not is_device_array(a):
        return numpy_edges(taken(a, where), bins, range, taken(weights, where)), range_ends(found, range), found
    if isinstance(bins, str):
        numpy_edges(np.empty(0, a.dtype), bins, range, None if weights is None else np.empty(0))  # raises what is wrong
        ends = range_ends(found, range)
        numpy_edges(np.array([] if found is None else found, a.dtype), 1, range)

        def counts(number: int) -> np.ndarray:
            check_number(number)
            arrays, form = (a, None, where, None), (number, ends, None, False)
            hist: np.ndarray = histogram((a, None, where), number, None, queue, arrays, form)[0].get(queue)
            return hist

        bins = number_of_bins(bins, a, where, ends, range, counts, queue)
    if range is not None:
        return even_edges(bins, range, a.dtype), range_ends(None, range), None
    stub = np.array([] if found is None else found, a.dtype)
    return numpy_edges(stub, bins), range_ends(found, None), found
