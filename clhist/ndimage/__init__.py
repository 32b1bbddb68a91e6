"""Statistics of labelled images: the functions of `scipy.ndimage` of the same names, on any OpenCL device.

All take `labels` and `index` as SciPy does: without `labels` the whole array is one region, with ``index=None`` all
labels above 0 are, and otherwise `index` names one region or several. NumPy arrays give SciPy's results. Device
arrays, and those of CUDA's libraries, give their own kind for several regions and NumPy scalars for one. Of equal
extremes the first is found, where SciPy leaves that open. Dtypes that no device takes are left to SciPy.

Labels that are not small non-negative integers are numbered by `numpy.unique` on the host, and refused on a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clhist._core.host_spi import takes_cuda
from clhist.ndimage.extremes import extremes_of
from clhist.ndimage.regions import by_scipy, few_on_host, regions_of, without_missing
from clhist.operators.c_types import integer
from clhist.statistic_types import (
    centres_of_regions,
    extrema_of_regions,
    floats_of_regions,
    histogram_of_regions,
    numbers_of_regions,
    places_of_regions,
)

__all__ = [
    "center_of_mass",
    "extrema",
    "histogram",
    "maximum",
    "maximum_position",
    "mean",
    "median",
    "minimum",
    "minimum_position",
    "standard_deviation",
    "sum",
    "sum_labels",
    "variance",
]


@numbers_of_regions
@takes_cuda
def sum_labels(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the sum of the values of each region, 0 for one without; `scipy.ndimage.sum_labels`.

    Parameters
    ----------
    input : array
        Values.
    labels : array of integers, optional
        Labels of the regions, of a shape that broadcasts with that of `input`.
    index : int or sequence of int, optional
        Labels of the regions asked for.

    Returns
    -------
    number, or array of the shape of `index`
        In float64 for several regions; for one in the dtype that `numpy.sum` has.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.sum_labels(image, labels, [1, 2])
    array([ 3., 11.])
    """
    return _statistic("sum_labels", "sum", input, labels, index)


sum = sum_labels


def _statistic(function: str, name: str, input: Any, labels: Any, index: Any) -> Any:
    """Return a statistic of `clhist.group_by` of each region, or what `function` of SciPy finds."""
    if (few := few_on_host(function, input, labels, index)) is not None:
        return few
    input, labels, index = without_missing(input, labels, index)
    regions = regions_of(input, labels, index)
    if regions is None or (regions.is_complex and name not in ("sum", "mean")):
        return by_scipy(function, input, labels, index)
    # As in SciPy, sums have double precision, and a median has the dtype of its values.
    real = np.complex128 if regions.is_complex else np.float64
    dtype = regions.real if name == "sum" else None if name == "median" else real
    return regions.picked(regions.of(name, dtype=dtype))


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'clhist.ndimage' has no attribute {name!r}")
    raise AttributeError(f"module 'clhist.ndimage' has no attribute {name!r}; {_ELSEWHERE[name]}")


_ELSEWHERE = {
    "labeled_comprehension": "for statistics write clhist.group_by(labels).agg(x=(image, 'mean', 'std')), for an "
    "operator clhist.reduce_by_index(num_bins, op, labels, image); for others "
    "use scipy.ndimage.labeled_comprehension",
    "percentile": "use clhist.group_by(labels).quantile(image, q)",
    "value_indices": "use scipy.ndimage.value_indices",
    "find_objects": "use scipy.ndimage.find_objects",
    "label": "use scipy.ndimage.label, whose labels clhist.ndimage takes",
}


@floats_of_regions
@takes_cuda
def mean(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the mean of each region, NaN for one without values; `scipy.ndimage.mean`, with its parameters.

    Sums are in float64, so that the mean of n equal values may differ from them by n units in the last place at
    most, as SciPy's may.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.mean(image, labels, [1, 2])
    array([1.5, 5.5])
    """
    return _statistic("mean", "mean", input, labels, index)


@floats_of_regions
@takes_cuda
def variance(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the variance of each region, NaN for one without values; `scipy.ndimage.variance`.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.variance(image, labels, [1, 2])
    array([0.25, 2.25])
    """
    return _statistic("variance", "var", input, labels, index)


@floats_of_regions
@takes_cuda
def standard_deviation(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the standard deviation of each region; `scipy.ndimage.standard_deviation`.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.standard_deviation(image, labels, [1, 2])
    array([0.5, 1.5])
    """
    return _statistic("standard_deviation", "std", input, labels, index)


@numbers_of_regions
@takes_cuda
def minimum(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the least value of each region, 0 for one without; `scipy.ndimage.minimum`.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.minimum(image, labels, [1, 2])
    array([1, 4])
    """
    return extremes_of("minimum", input, labels, index)


@numbers_of_regions
@takes_cuda
def maximum(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the largest value of each region, 0 for one without; `scipy.ndimage.maximum`.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.maximum(image, labels, [1, 2])
    array([2, 7])
    """
    return extremes_of("maximum", input, labels, index)


@places_of_regions
@takes_cuda
def minimum_position(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return where the least value of each region is, the first of several; `scipy.ndimage.minimum_position`.

    Returns
    -------
    tuple of int, or list of them
        The indices of an element; on a device read to the host.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> np.array(clhist.ndimage.minimum_position(image, labels, [1, 2]))
    array([[0, 0],
           [1, 1]])
    """
    return extremes_of("minimum_position", input, labels, index)


@places_of_regions
@takes_cuda
def maximum_position(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return where the largest value of each region is; see `minimum_position`.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> np.array(clhist.ndimage.maximum_position(image, labels, [1, 2]))
    array([[0, 1],
           [1, 0]])
    """
    return extremes_of("maximum_position", input, labels, index)


@extrema_of_regions
@takes_cuda
def extrema(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return minima, maxima and the positions of both, from one sweep; `scipy.ndimage.extrema`.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> lowest, highest, where_lowest, where_highest = clhist.ndimage.extrema(image, labels, [1, 2])
    >>> lowest, highest
    (array([1, 4]), array([2, 7]))
    """
    return extremes_of("extrema", input, labels, index)


@floats_of_regions
@takes_cuda
def median(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the median of each region; `scipy.ndimage.median`, but NaN for a region without values or with a NaN.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> clhist.ndimage.median(image, labels, [1, 2])
    array([1.5, 5.5])
    """
    return _statistic("median", "median", input, labels, index)


@centres_of_regions
@takes_cuda
def center_of_mass(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the centre of mass of each region, its values being the masses; `scipy.ndimage.center_of_mass`.

    Returns
    -------
    tuple of float, or list of them
        The coordinates; on a device read to the host. NaN for a region without mass.

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> np.array(clhist.ndimage.center_of_mass(image, labels, [1, 2])).round(2)
    array([[0.  , 0.67],
           [1.  , 0.36]])
    """
    input, labels, index = without_missing(input, labels, index)
    regions = regions_of(input, labels, index)
    if regions is None or regions.is_complex or not regions.shape:
        return by_scipy("center_of_mass", input, labels, index)
    from clhist.ndimage.kernels import center_kernel

    sums = regions.picked_host(center_kernel(regions.groups, regions.values, regions.shape))
    with np.errstate(invalid="ignore", divide="ignore"):
        centers = sums[..., 1:] / sums[..., :1]
    # As in SciPy, which transposes the results: an index of two dimensions has its axes swapped.
    return tuple(centers) if regions.is_one else [tuple(center) for center in np.moveaxis(centers, -1, 0).T]


@histogram_of_regions
@takes_cuda
def histogram(input: Any, min: Any, max: Any, bins: int, labels: Any = None, index: Any = None) -> Any:
    """Return the histogram of the values of each region; `scipy.ndimage.histogram`.

    Parameters
    ----------
    input, labels, index
        As in `sum_labels`.
    min, max : number
        Ends of the range.
    bins : int
        How many bins of equal width there are.

    Returns
    -------
    array of int64, or array of dtype object of such arrays
        None in the place of a region of `index` without values. Arrays on a device give one array of shape
        (len(index), bins).

    Examples
    --------
    >>> image, labels = np.array([[1, 2], [7, 4]]), np.array([[1, 1], [2, 2]])
    >>> list(clhist.ndimage.histogram(image, 0, 8, 2, labels, [1, 2]))
    [array([2, 0]), array([0, 2])]
    """
    input, labels, index = without_missing(input, labels, index)
    regions = regions_of(input, labels, index)
    if regions is None or regions.is_complex:
        return by_scipy("histogram", input, min, max, bins, labels, index)
    from clhist._core.spi import row_kernels
    from clhist.binned.spi import check_ends, check_number
    from clhist.ndimage.kernels import histogram_kernel

    check_number(bins)
    check_ends("min, max", (min, max))
    bins = integer("bins", bins, 0)
    edges = np.linspace(min, max, bins + 1)
    # Kernels need finite edges that do not descend; SciPy defines the result for others.
    if len(edges) < 2 or not bool(np.all(np.isfinite(edges))) or not np.all(edges[:-1] <= edges[1:]):
        return by_scipy("histogram", input, min, max, bins, labels, index)
    counts = histogram_kernel(regions.groups, regions.values, edges)
    # A device has no arrays of objects: regions without values have rows of zeros there.
    if regions.on_device and not regions.is_one:
        return counts if regions.index is None else row_kernels.picked(counts, regions.index)
    counts = regions.picked_host(counts)
    # SciPy returns None only for empty regions that `index` names.
    if regions.is_one and index is None:
        return counts
    sizes = regions.picked_host(regions.groups.size())
    if regions.is_one:
        return counts if sizes else None
    result: Any = np.empty(sizes.shape, object)
    for at in np.ndindex(sizes.shape):
        result[at] = counts[at] if sizes[at] else None
    return result
