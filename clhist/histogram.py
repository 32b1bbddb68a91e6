"""NumPy's histograms on an OpenCL device: `histogram`, `histogram2d`, `histogramdd`, `histogram_bin_edges`.

NumPy makes the edges and its own comparison decides to which bin a number belongs; see `clhist.binned`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from clhist._core.opencl.arrays import Array, common_kind, is_device_array
from clhist._core.runtime.labelled import has_names, histogram_along
from clhist._core.runtime.missing import any_missing
from clhist._core.runtime.small import check_host_way
from clhist.binned.counts import checked_data, may_round, present
from clhist.binned.host import (
    are_few,
    are_for_numpy,
    histogram_on_host,
    histogramdd_on_host,
    is_for_numpy,
    numpy_edges,
    numpy_histogram,
    numpy_histogramdd,
)
from clhist.binned.inputs import are_plain, as_edges, check_number, elements_where, mask_array, split_array, without
from clhist.binned.points import points_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

    from clhist.typing import A, Axes, Bins, DeviceArray, Devices, Ends, Given, HostArray, Values


_device: Any = None  # the module of histograms by a device, which imports PyOpenCL, once a call needs one


def _on_device() -> Any:
    """Return the module of histograms by a device."""
    global _device
    if _device is None:
        from clhist.binned import histograms

        _device = histograms
    return _device


def histogram(  # noqa: PLR0913  # NumPy's arguments, and ours
    a: Given[A],
    bins: Bins = 10,
    range: Ends | None = None,
    density: bool | None = None,
    weights: Given[A] | None = None,
    *,
    where: Given[A] | None = None,
    axis: Axes | None = None,
    queue: cl.CommandQueue | None = None,
    out: A | None = None,
    reproducible: bool = False,
    devices: Devices | None = None,
) -> tuple[A, HostArray]:
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
    array only the least and the greatest element, or what a rule needs, is copied to the host. Its densities are
    divided on the device: NumPy's to the bit, but where no element is in a bin they are NaN without NumPy's warning.

    Examples
    --------
    >>> counts, edges = clhist.histogram(np.array([0.1, 0.2, 0.9]), bins=2, range=(0, 1))
    >>> counts, edges
    (array([2, 1]), array([0. , 0.5, 1. ]))
    """
    # Small plain arrays skip the checks below, which would dominate their time.
    if type(a) is np.ndarray and _are_few_numbers(a, bins, queue, (axis, weights, where, out)):
        return numpy_histogram(a, bins, range, density)
    arrays, form, repeat = (a, weights, where, out), (bins, range, axis, reproducible), None
    # A repeated call of the device skips all checks. NumPy may count its own arrays, which needs no signature.
    if _device is not None and (queue is not None or type(a) is not np.ndarray):
        result, repeat = _device.repeated_call(arrays, form, density, queue)
        if result is not None:
            return result
    if has_names(axis):
        call = partial(histogram, bins=bins, range=range, density=density, queue=queue, reproducible=reproducible)
        return histogram_along(call, a, axis, weights=weights, where=where, out=out)
    check_number(bins)
    bins = as_edges("bins", bins)
    data = a, weights, where = checked_data(a, weights, where, whole=axis is not None)
    # Counts are exact in any order: only sums that may round need the reproducible form.
    options = {"axis": axis, "reproducible": reproducible and may_round(weights)}
    if not is_device_array(a) and is_for_numpy(a, bins, weights, queue, options):
        common_kind(present(a=a, weights=weights, where=where, out=out))
        return histogram_on_host(a, bins, range, density, weights, where, out, queue, options)
    return _on_device().histogram(data, bins, density, queue, arrays, form, repeat)


def _are_few_numbers(a: Any, bins: Any, queue: cl.CommandQueue | None, others: tuple[Any, Any, Any, Any]) -> bool:
    """Whether NumPy counts plain numbers since they are few, without `others`."""
    axis, weights, where, out = others
    is_bare = axis is weights is where is out is None
    is_plain = is_bare and are_plain((a,), 1 if type(bins) is str else bins)
    return is_plain and is_for_numpy(a, bins, None, queue, {})


@overload
def histogramdd(  # type: ignore[overload-overlap]
    sample: DeviceArray | Sequence[DeviceArray], bins: Any = ..., range: Any = ..., density: bool | None = ...,
    weights: DeviceArray | None = ..., *, where: Any = ..., queue: cl.CommandQueue | None = ..., out: Any = ...,
    reproducible: bool = ...,
) -> tuple[DeviceArray, list[HostArray]]: ...  # fmt: skip


@overload
def histogramdd(
    sample: Values, bins: Any = ..., range: Any = ..., density: bool | None = ..., weights: Values | None = ..., *,
    where: Any = ..., queue: cl.CommandQueue | None = ..., out: Any = ..., reproducible: bool = ...,
) -> tuple[HostArray, list[HostArray]]: ...  # fmt: skip


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
    # A repeated call of device arrays skips all checks.
    if points is not None and points.on_device and points.dims:
        arrays, form = (weights, where, out), (bins, range, reproducible)
        result, key = _on_device().repeated_points(points, arrays, form, density, queue)
        if result is not None:
            return result
    weights, missing = (None, None) if weights is None else split_array("weights", weights)
    # NumPy defines what a sample without dimensions gives.
    if points is None or points.dims == 0:
        check_host_way("a sample without dimensions", queue, where=where, out=out)
        hist, every = numpy_histogramdd(sample, bins, range, density, weights)
        return hist, list(every)
    check_number(bins, points.dims)
    bins = bins if type(bins) is int else as_edges("bins", bins)
    where = mask_array(where, (points.size,))
    if weights is not None and weights.shape != (points.size,):
        raise ValueError("The weights and list don't have the same length.")
    # A point is left out if a coordinate or its weight is missing.
    missing = missing if points.missing is None else any_missing(points.missing, missing)
    if missing is not None:
        points, weights, where = points.without(missing), *without(missing, weights, where)
    options = {"reproducible": reproducible and may_round(weights)}
    if are_for_numpy(points, weights, queue, options):
        common_kind(present(sample=points.arrays, weights=weights, where=where, out=out))
        return histogramdd_on_host(points, bins, range, density, weights, where, out, queue, options)
    data, form = (points, weights, where), (bins, range, reproducible)
    return _on_device().histogramdd(data, form, density, out, queue, key)


def _are_few_columns(sample: Any, bins: Any, queue: cl.CommandQueue | None, others: tuple[Any, Any, Any]) -> bool:
    """Whether a sample is a list of plain columns that NumPy counts since they are few, without `others`."""
    if type(sample) is not list or not are_plain(sample, bins) or sample[0].ndim != 1:
        return False
    weights, where, out = others
    if not weights is where is out is None:
        return False
    return are_few(len(sample), sample[0].size, queue)


def histogram2d(
    x: Given[A],
    y: Given[A],
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[Ends | None] | None = None,
    density: bool | None = None,
    weights: Given[A] | None = None,
    *,
    where: Given[A] | None = None,
    queue: cl.CommandQueue | None = None,
    out: A | None = None,
    reproducible: bool = False,
) -> tuple[A, HostArray, HostArray]:
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
    options: Any = {"weights": weights, "where": where, "queue": queue, "out": out, "reproducible": reproducible}
    columns: list[Any] = [x, y]
    if type(x) is not np.ndarray or type(y) is not np.ndarray:
        # What has missing elements stays as it is: histogramdd skips these.
        (of_x, missing_x), (of_y, missing_y) = split_array("x", x), split_array("y", y)
        columns = [of_x if missing_x is None else x, of_y if missing_y is None else y]
    if len(columns[0]) != len(columns[1]):
        raise ValueError("x and y must have the same length.")
    by: Any = bins
    try:
        number = len(by)
    except TypeError:
        number = 1
    # As in numpy.histogram2d, bins of another length are the edges of both dimensions.
    if number not in (1, 2):
        by = [np.asarray(as_edges("bins", bins))] * 2
    hist, edges = histogramdd(columns, by, range, density, **options)
    return hist, edges[0], edges[1]


def histogram_bin_edges(
    a: Given[A],
    bins: Bins = 10,
    range: Ends | None = None,
    weights: Given[A] | None = None,
    *,
    where: Given[A] | None = None,
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
        common_kind(present(a=a, weights=weights, where=where))
        return numpy_edges(elements_where(a, where), bins, range, elements_where(weights, where))
    return _on_device().edges_of_array(a, bins, range, weights, where, queue)
