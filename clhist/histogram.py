"""NumPy's histograms on an OpenCL device: `histogram`, `histogram2d`, `histogramdd`, `histogram_bin_edges`.

NumPy makes the edges and its own comparison decides to which bin a number belongs; see `clhist.binned`.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.runtime.labelled import has_names, histogram_along
from clhist._core.runtime.missing import any_missing
from clhist._core.runtime.reading import check_out
from clhist._core.runtime.signature import signature_of_data
from clhist._core.runtime.small import check_host_way
from clhist.binned.bits import are_few_kinds, of_bits
from clhist.binned.counts import (
    check_device_dtypes,
    checked_data,
    counted,
    counting,
    flat,
    may_round,
    present,
)
from clhist.binned.extent import extent
from clhist.binned.found import FoundBins, found_bins
from clhist.binned.host import (
    are_few,
    are_for_numpy,
    even_edges,
    histogram_on_host,
    histogramdd_on_host,
    is_for_numpy,
    numpy_edges,
    numpy_histogram,
    numpy_histogramdd,
)
from clhist.binned.inputs import (
    are_plain,
    are_usable,
    as_edges,
    check_number,
    last_axes,
    mask_array,
    numpy_axis,
    queue_for,
    range_ends,
    split_array,
    taken,
    without,
)
from clhist.binned.points import edges_of, points_of
from clhist.binned.prepared import Prepared, are_fixed, are_repeated, keep, prepared_for, repeated
from clhist.binned.rules import number_of_bins
from clhist.binned.sweep import Binned
from clhist.typing import Axes, Devices, HostArray


def histogram(  # noqa: PLR0913  # NumPy's arguments, and ours
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    where: Any = None,
    axis: Axes | None = None,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
    reproducible: bool = False,
    devices: Devices | None = None,
) -> tuple[Any, np.ndarray]:
    """Count data by bins: `numpy.histogram` on an OpenCL device.

    Edges, counts, dtypes, errors and warnings are NumPy's; counts are equal to its counts for data of any dtype, on
    edges, infinite, NaN. Sums of weights are not bitwise NumPy's but more accurate, see Notes.

    Parameters
    ----------
    a : array_like
        Data, of any shape. NumPy's, PyOpenCL's, or what `numpy.asarray` takes.
    bins : int, sequence of scalars or str, optional
        Number of bins, their edges, or a rule of `numpy.histogram_bin_edges` for the number.
    range : (float, float), optional
        Lower and upper end of the bins. Defaults to the least and the greatest element.
    density : bool, optional
        Whether to return the probability density at each bin instead of the count.
    weights : array_like of the shape of `a`, optional
        What each element contributes to its bin.
    where : array_like of bool of the shape of `a`, optional
        Elements that count. The others are left out of the range, too.
    axis : int, str, or sequence of them, optional
        Dimensions of `a` to count over; the others remain, and all share the same edges. Those of device arrays must
        be the last ones. Names are of dimensions of xarray, and `hist` is a `DataArray` then. Defaults to all.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then. Defaults to that of `a`, or the default queue.
    out : array, optional
        Where the result goes, of its shape and dtype.
    reproducible : bool
        Whether sums of weights are bitwise the same in any order and on any device; see `clhist.reduce_by_index`.
    devices : "all" or sequence of pyopencl.Device, optional
        Several devices that count parts of NumPy arrays at the same time; see `MultiAccumulator`.

    Returns
    -------
    hist : array of shape (..., H)
        Counts of `numpy.intp`, sums of the dtype of `weights`, or densities of float64; of the kind of `a`.
    bin_edges : numpy.ndarray of shape (H + 1,)
        NumPy's also for device arrays.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, of the same text. TypeError also for device arrays that no kernel takes, such as complex data, and
        if sums have to be `reproducible` of weights that only NumPy adds up.

    Notes
    -----
    Weights are summed in float64, or complex128, and converted once to their dtype; those of integers in int64. A NaN
    affects its own bin only. (`numpy.histogram` with an array of edges computes cumulative sums in the dtype of the
    weights.) Without double precision, sums of float32 are the reproducible ones; float64 weights are refused.

    Small NumPy arrays are counted by NumPy itself (`clhist calibrate` measures how small), and so is what OpenCL has no
    type for: objects, dates, complex numbers, extended precision, booleans as weights, NaN as an edge. Of a device
    array only the least and the greatest element, or what a rule needs, is copied to the host.

    Examples
    --------
    >>> counts, edges = clhist.histogram(np.array([0.1, 0.2, 0.9]), bins=2, range=(0, 1))
    >>> counts, edges
    (array([2, 1]), array([0. , 0.5, 1. ]))
    """
    if _are_few_numbers(a, bins, queue, (axis, weights, where, out)):
        return numpy_histogram(a, bins, range, density)
    given = a, weights, where, out
    key = None if isinstance(bins, str) else signature_of_data(given, queue, bins, range, axis, reproducible)
    result, found, is_new = repeated(key, (a, where, weights), density, out)
    if result is not None:
        return result
    if has_names(axis):
        call = partial(histogram, bins=bins, range=range, density=density, queue=queue, reproducible=reproducible)
        return histogram_along(call, a, axis, weights=weights, where=where, out=out)
    check_number(bins)
    bins = as_edges("bins", bins)
    a, weights, where = checked_data(a, weights, where, whole=axis is not None)
    on_device = is_device_array(a)
    options = {"axis": axis, "reproducible": reproducible and may_round(weights)}
    if not on_device and is_for_numpy(a, bins, weights, queue, options):
        return histogram_on_host(a, bins, range, density, weights, where, out, queue, options)
    queue = queue_for(queue, present(a=a, weights=weights, where=where, out=out))
    _check_counts(out, a, weights, density)
    if axis is None and are_few_kinds(a, weights, where):
        return of_bits(flat(a), _number_of_bins(a, bins, range, queue), range, density, queue, out)
    rest = None
    if axis is not None:
        rest, (a, weights, where) = last_axes(axis, (a, weights, where))
    a, weights, where = flat(a), flat(weights), flat(where)
    evenly = found_bins(a, bins, range, queue)
    asked: Any = {"key": key, "density": density, "out": out, "reproducible": reproducible}
    if is_new and (result := _in_found_range(evenly, a, weights, where, rest, **asked)):
        return result
    edges, ends, found = _bin_edges(a, bins, range, weights, where, queue, found)
    if not are_usable(edges):
        if on_device or rest:
            raise ValueError(f"bins: expected two edges or more, none of them NaN, got {edges!r}")
        return histogram_on_host(a, bins, range, density, weights, where, out, queue, options)
    prepared, hist = _counted(a, weights, where, edges, ends, rest, queue, reproducible=reproducible)
    if are_repeated(key, given, (a, weights), axis):
        keep(key, prepared, (found,) if range is None and np.ndim(bins) == 0 else None, any_size=True)
    return prepared.finished(hist, density, out), edges


def _are_few_numbers(a: Any, bins: Any, queue: cl.CommandQueue | None, others: tuple[Any, Any, Any, Any]) -> bool:
    """Whether NumPy counts plain numbers since they are few, without `others`."""
    axis, weights, where, out = others
    is_bare = axis is weights is where is out is None
    return is_bare and are_plain((a,), bins) and is_for_numpy(a, bins, None, queue, {})


def _check_counts(out: Array | None, a: Array, weights: Array | None, density: bool | None) -> None:
    """Raise TypeError if `out` cannot take counts; of sums and densities the dtype is seen from the result."""
    if weights is None and not density:
        check_out(out, np.dtype(np.intp), a)


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


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    where: Any = None,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
    reproducible: bool = False,
) -> tuple[Any, list[np.ndarray]]:
    """Count points by bins of several dimensions: `numpy.histogramdd` on an OpenCL device.

    Parameters
    ----------
    sample : array_like of shape (N, D), or sequence of D array_likes of shape (N,)
        Points, of NumPy or PyOpenCL. Device arrays may be of different dtypes.
    bins : int, sequence of int, or sequence of arrays, optional
        Number of bins of all dimensions or of each, or the edges of each.
    range : sequence of (float, float) or None, optional
        Lower and upper end of each dimension. Defaults to the least and the greatest coordinate.
    density, weights, where, queue, out, reproducible
        As of `histogram`; `weights` and `where` of shape (N,).

    Returns
    -------
    hist : array of shape (H_1, ..., H_D)
        Counts, sums or densities of float64, as NumPy's; of the kind of `sample`.
    edges : list of numpy.ndarray
        Of each dimension.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, of the same text; for device arrays also of what no kernel takes. Weights are real, as NumPy's.

    Notes
    -----
    As of `histogram`; NumPy is slower here, and fewer points are left to it.

    Examples
    --------
    >>> points = np.array([[0.1, 0.3], [0.2, 0.4], [0.9, 0.8]])
    >>> counts, edges = clhist.histogramdd(points, bins=2)
    >>> counts
    array([[2., 0.],
           [0., 1.]])
    """
    if _are_few_columns(sample, bins, queue, (weights, where, out)):
        hist, every = numpy_histogramdd(sample, bins, range, density)
        return hist, list(every)
    points, key = points_of(sample), None
    if points is not None and points.on_device and points.dims and are_fixed(bins, range):
        key = signature_of_data((*points.arrays, weights, where, out), queue, "dd", bins, range, reproducible)
        if isinstance(known := prepared_for(key, points.size), Prepared):
            return known((*points.arrays, where, weights), density, out), list(map(np.copy, known.edges))
    weights, missing = (None, None) if weights is None else split_array("weights", weights)
    if points is None or points.dims == 0:
        check_host_way("a sample without dimensions", queue, where=where, out=out)
        hist, every = numpy_histogramdd(sample, bins, range, density, weights)
        return hist, list(every)
    check_number(bins, points.dims)
    bins = bins if type(bins) is int else as_edges("bins", bins)
    where = mask_array(where, (points.size,))
    if weights is not None and weights.shape != (points.size,):
        raise ValueError("The weights and list don't have the same length.")
    missing = missing if points.missing is None else any_missing(points.missing, missing)
    if missing is not None:
        points, weights, where = points.without(missing), *without(missing, weights, where)
    options = {"reproducible": reproducible and may_round(weights)}
    if are_for_numpy(points, weights, queue, options):
        return histogramdd_on_host(points, bins, range, density, weights, where, out, queue, options)
    queue = queue_for(queue, present(sample=tuple(points.arrays), weights=weights, where=where, out=out))
    weights, where = flat(weights), flat(where)
    edges = edges_of(points, bins, range, where, queue)
    shape = tuple(len(each) - 1 for each in edges)
    if not points.are_countable(edges):
        if points.on_device:
            raise ValueError(f"bins: expected fewer than 2**31 between edges without NaN, got shape {shape}")
        return histogramdd_on_host(points, bins, range, density, weights, where, out, queue, options)
    binned = points.binned(edges, where, queue)
    hist, swept = counted(
        binned, shape, weights, queue, on_device=points.on_device, reproducible=reproducible, in_float64=True
    )
    prepared = Prepared(queue, swept, hist.dtype, tuple(edges))
    keep(key, prepared, any_size=True)
    return prepared.finished(hist, density, out), edges


def _are_few_columns(sample: Any, bins: Any, queue: cl.CommandQueue | None, others: tuple[Any, Any, Any]) -> bool:
    """Whether a sample is a list of plain columns that NumPy counts since they are few, without `others`."""
    if type(sample) is not list or not are_plain(sample, bins) or sample[0].ndim != 1:
        return False
    weights, where, out = others
    if not weights is where is out is None:
        return False
    return are_few(len(sample), sample[0].size, queue)


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    where: Any = None,
    queue: cl.CommandQueue | None = None,
    out: Array | None = None,
    reproducible: bool = False,
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Count points by bins of two dimensions: `numpy.histogram2d` on an OpenCL device.

    Parameters
    ----------
    x, y : array_like of shape (N,)
        Coordinates.
    bins : int, array_like, or pair of these, optional
        Number of bins or edges, of both dimensions or of each.
    range : pair of (float, float), optional
        Lower and upper ends of both dimensions.
    density, weights, where, queue, out, reproducible
        As of `histogramdd`.

    Returns
    -------
    hist : array of shape (H_x, H_y)
        As of `histogramdd`.
    x_edges, y_edges : numpy.ndarray
        Edges of each dimension.

    Raises
    ------
    TypeError, ValueError
        As NumPy's.

    Examples
    --------
    >>> counts, x_edges, y_edges = clhist.histogram2d([0.1, 0.2, 0.9], [0.3, 0.4, 0.8], bins=2)
    >>> counts
    array([[2., 0.],
           [0., 1.]])
    """
    options: Any = {"where": where, "queue": queue, "out": out, "reproducible": reproducible}
    if type(x) is not np.ndarray or type(y) is not np.ndarray:
        # What has missing elements stays as it is: histogramdd skips these.
        (of_x, missing_x), (of_y, missing_y) = split_array("x", x), split_array("y", y)
        x, y = of_x if missing_x is None else x, of_y if missing_y is None else y
    if len(x) != len(y):
        raise ValueError("x and y must have the same length.")
    try:
        number = len(bins)
    except TypeError:
        number = 1
    if number not in (1, 2):
        bins = [np.asarray(bins)] * 2
    hist, edges = histogramdd([x, y], bins, range, density, weights, **options)
    return hist, edges[0], edges[1]


def histogram_bin_edges(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    *,
    where: Any = None,
    queue: cl.CommandQueue | None = None,
) -> HostArray:
    """Return the edges that `histogram` uses: `numpy.histogram_bin_edges`, for device arrays as well.

    Parameters
    ----------
    a, bins, range, weights, where, queue
        As of `histogram`.

    Returns
    -------
    numpy.ndarray of shape (H + 1,)
        On the host. The automatic rules take of a device array only what they need: its extent, moments computed in
        float64, quartiles found by selection.

    Raises
    ------
    TypeError, ValueError
        As NumPy's.

    Examples
    --------
    >>> clhist.histogram_bin_edges([0.0, 1.0, 4.0], bins=2)
    array([0., 2., 4.])
    """
    check_number(bins)
    bins = as_edges("bins", bins)
    a, weights, where = checked_data(a, weights, where)
    if not is_device_array(a):
        return numpy_edges(taken(a, where), bins, range, taken(weights, where))
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
            return histogram(a, number, ends, where=where, queue=queue)[0].get(queue)

        bins = number_of_bins(bins, a, where, ends, range, counts, queue)
    if range is not None:
        return even_edges(bins, range, a.dtype), range_ends(None, range), None
    stub = np.array([] if found is None else found, a.dtype)
    return numpy_edges(stub, bins), range_ends(found, None), found
