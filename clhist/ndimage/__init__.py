"""Statistics of labelled images: the functions of `scipy.ndimage` of the same names, on any OpenCL device.

All take `labels` and `index` as SciPy does: without `labels` the whole array is one region, with ``index=None`` all
labels above 0 are, and otherwise `index` names one region or several. NumPy arrays give SciPy's results. Device
arrays give device arrays for several regions and NumPy scalars for one. Of equal extremes the first is found, where
SciPy leaves that open. Dtypes that no device takes are left to SciPy.

Labels that are not small non-negative integers are numbered by `numpy.unique` on the host, and refused on a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clhist.engine.scatter import as_array
from clhist.groupby import GroupBy, group_by
from clhist.ndimage.kernels import center_kernel, histogram_kernel
from clhist.opencl.arrays import Array, as_bytes, is_device_array
from clhist.opencl.lost import check_process
from clhist.operators.c_types import supported_dtype

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

_UNASKED_LABELS = 1 << 20


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
    """
    regions = _regions(input, labels, index)
    if regions is None:
        return _scipy("sum_labels", input, labels, index)
    return regions.picked(regions.of("sum", dtype=regions.real))


sum = sum_labels


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'clhist.ndimage' has no attribute {name!r}")
    raise AttributeError(f"module 'clhist.ndimage' has no attribute {name!r}; {_ELSEWHERE[name]}")


_ELSEWHERE = {
    "labeled_comprehension": "for statistics write clhist.group_by(labels).agg(x=(image, 'mean', 'std')), for an "
    "operator clhist.reduce_by_index(num_bins, op, labels, image); any other function needs scipy.ndimage",
    "percentile": "of percentiles there is median; others need numpy.percentile",
    "value_indices": "it needs scipy.ndimage",
    "find_objects": "it needs scipy.ndimage",
    "label": "it needs scipy.ndimage, whose labels clhist.ndimage takes",
}


def mean(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the mean of each region, NaN for one without values; `scipy.ndimage.mean`, with its parameters."""
    regions = _regions(input, labels, index)
    if regions is None:
        return _scipy("mean", input, labels, index)
    return regions.picked(regions.of("mean", dtype=np.complex128 if regions.is_complex else np.float64))


def variance(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the variance of each region, NaN for one without values; `scipy.ndimage.variance`."""
    regions = _regions(input, labels, index)
    if regions is None or regions.is_complex:
        return _scipy("variance", input, labels, index)
    return regions.picked(regions.of("var", dtype=np.float64))


def standard_deviation(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the standard deviation of each region; `scipy.ndimage.standard_deviation`."""
    regions = _regions(input, labels, index)
    if regions is None or regions.is_complex:
        return _scipy("standard_deviation", input, labels, index)
    return regions.picked(regions.of("std", dtype=np.float64))


def minimum(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the least value of each region, 0 for one without; `scipy.ndimage.minimum`."""
    return _extremes("minimum", input, labels, index)


def maximum(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the largest value of each region, 0 for one without; `scipy.ndimage.maximum`."""
    return _extremes("maximum", input, labels, index)


def minimum_position(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return where the least value of each region is, the first of several; `scipy.ndimage.minimum_position`.

    Returns
    -------
    tuple of int, or list of them
        The indices of an element; on a device read to the host.
    """
    return _extremes("minimum_position", input, labels, index)


def maximum_position(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return where the largest value of each region is; see `minimum_position`."""
    return _extremes("maximum_position", input, labels, index)


def extrema(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return minima, maxima and the positions of both, from one sweep; `scipy.ndimage.extrema`."""
    return _extremes("extrema", input, labels, index)


def median(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the median of each region; `scipy.ndimage.median`, but NaN for a region without values."""
    regions = _regions(input, labels, index)
    if regions is None or regions.is_complex:
        return _scipy("median", input, labels, index)
    return regions.picked(regions.of("median"))


def center_of_mass(input: Any, labels: Any = None, index: Any = None) -> Any:
    """Return the centre of mass of each region, its values being the masses; `scipy.ndimage.center_of_mass`.

    Returns
    -------
    tuple of float, or list of them
        The coordinates; on a device read to the host. NaN for a region without mass.
    """
    regions = _regions(input, labels, index)
    if regions is None or regions.is_complex or not regions.shape:
        return _scipy("center_of_mass", input, labels, index)
    sums = regions.picked_host(center_kernel(regions.groups, regions.values, regions.shape))
    with np.errstate(invalid="ignore", divide="ignore"):
        centers = sums[..., 1:] / sums[..., :1]
    return tuple(centers) if regions.is_one else [tuple(each) for each in np.moveaxis(centers, -1, 0).T]


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
    """
    regions = _regions(input, labels, index)
    if regions is None or regions.is_complex:
        return _scipy("histogram", input, min, max, bins, labels, index)
    edges = np.linspace(min, max, bins + 1)
    if len(edges) < 2 or not bool(np.all(np.isfinite(edges))) or not np.all(edges[:-1] <= edges[1:]):
        return _scipy("histogram", input, min, max, bins, labels, index)
    found = histogram_kernel(regions.groups, regions.values, edges)
    if regions.on_device and not regions.is_one:
        return found if regions.index is None else _taken(found, regions.index)
    found = regions.picked_host(found)
    if regions.is_one and index is None:
        return found
    sizes = regions.picked_host(regions.groups.size())
    if regions.is_one:
        return found if sizes else None
    result: Any = np.empty(sizes.shape, object)
    for at in np.ndindex(sizes.shape):
        result[at] = found[at] if sizes[at] else None
    return result


@dataclass(frozen=True)
class _Regions:
    """The regions of a call as groups of its values.

    Attributes
    ----------
    groups : GroupBy
        One group for each label.
    values : array
        Of the shape that `input` and `labels` have together.
    index : numpy.ndarray or None
        The group of each region asked for; one number, of shape (), if there is one region.
    shape : tuple of int
        Of `input`, as positions have it.
    """

    groups: GroupBy
    values: Array
    index: Any
    shape: tuple[int, ...]

    @property
    def is_one(self) -> bool:
        """Whether the caller gets scalars."""
        return np.ndim(self.index) == 0

    @property
    def on_device(self) -> bool:
        """Whether arrays are of PyOpenCL."""
        return is_device_array(self.values)

    @property
    def is_complex(self) -> bool:
        """Whether values are complex."""
        return self.values.dtype.kind == "c"

    @property
    def real(self) -> Any:
        """Dtype of sums: of several regions in double precision, of one as NumPy has it."""
        if self.is_one:
            return None
        return np.complex128 if self.is_complex else np.float64

    def of(self, *statistics: str, **options: Any) -> Any:
        """Return statistics of all groups, where a NaN counts; one array or several."""
        found = self.groups.agg(x=(self.values, *statistics), skipna=False, **options)["x"]
        return found[statistics[0]] if len(statistics) == 1 else [found[name] for name in statistics]

    def picked(self, result: Array) -> Any:
        """Return the results of the regions asked for."""
        if is_device_array(result) and not self.is_one:
            return _taken(result, self.index)
        return self.picked_host(result)

    def picked_host(self, result: Array) -> Any:
        """Return the same as NumPy's."""
        return (result.get() if is_device_array(result) else result)[self.index]


def _regions(input: Any, labels: Any, index: Any) -> _Regions | None:
    """Return the regions that SciPy's parameters mean, or None if SciPy has to see to it."""
    check_process()
    values: Any = as_array("input", input)
    try:
        supported_dtype(values.dtype, "input")
    except TypeError:
        if is_device_array(values):
            raise
        return None
    if values.dtype.kind not in "biufc" or not values.dtype.isnative:
        return None
    shape = values.shape
    if labels is None:
        if index is not None:
            raise ValueError("index: expected None, since there are no labels")
        zeros = cl_array.zeros(values.queue, shape, np.uint8) if is_device_array(values) else np.zeros(shape, np.uint8)
        return _Regions(group_by(zeros, 1), values, 0, shape)
    if is_device_array(values) != is_device_array(labels):
        wrong = "labels" if is_device_array(values) else "input"
        raise TypeError(f"{wrong}: expected a PyOpenCL array, since the other one of input and labels is")
    if is_device_array(values):
        return _device_regions(values, labels, index)
    labels = as_array("labels", labels)
    values, labels = np.broadcast_arrays(values, labels)
    if index is None:
        return _Regions(group_by(labels > 0, 2), values, 1, shape)
    asked = np.asarray(index)
    if labels.size and labels.dtype.kind in "iub" and asked.dtype.kind in "iub" and asked.size:
        largest = int(labels.max())
        if 0 <= largest < max(_UNASKED_LABELS, labels.size):
            # Negative labels are in no group; an absent region has the one after the last.
            found = np.where((asked >= 0) & (asked <= largest), asked, largest + 1).astype(np.intp)
            if asked.min() >= 0 or labels.min() >= 0:
                return _Regions(group_by(labels, largest + 2), values, found, shape)
    known, numbers = np.unique(labels, return_inverse=True)
    places = np.searchsorted(known, asked)
    missing = places == len(known)
    places = np.where(missing, 0, places)
    absent = missing | (known[places] != asked if len(known) else True)
    found = np.where(absent, len(known), places)
    return _Regions(group_by(numbers.reshape(labels.shape), len(known) + 1), values, found, shape)


def _device_regions(values: Array, labels: Array, index: Any) -> _Regions:
    if labels.shape != values.shape:
        raise ValueError(f"labels: expected shape {values.shape} as of input on a device, got {labels.shape}")
    if labels.dtype.kind == "b":  # of which PyOpenCL compares none
        labels = as_bytes(labels)
    if index is None:
        return _Regions(group_by((labels > 0).astype(np.int8), 2), values, 1, values.shape)
    asked = np.asarray(index.get() if is_device_array(index) else index)
    if asked.dtype.kind not in "iub" or (asked.size and asked.min() < 0):
        raise ValueError("index: expected non-negative integers on a device; number others by numpy.unique")
    largest = int(asked.max()) if asked.size else 0
    if largest >= max(_UNASKED_LABELS, 16 * labels.size):
        raise ValueError(f"index: expected numbers of regions on a device, got {largest}; use numpy.unique")
    return _Regions(group_by(labels, largest + 1), values, asked.astype(np.intp), values.shape)


def _extremes(function: str, input: Any, labels: Any, index: Any) -> Any:
    regions = _regions(input, labels, index)
    if regions is None or regions.is_complex or not prod(regions.values.shape):
        return _scipy(function, input, labels, index)
    lows, highs = _EXTREMES[function]
    # SciPy sorts: a NaN is above all numbers, unless there is only one region.
    skips = regions.values.dtype.kind == "f" and not regions.is_one
    found: dict[str, Any] = {}
    for names, skipna in ((lows, True), (highs, False)) if skips else ((lows + highs, False),):
        if names:
            found |= regions.groups.agg(x=(regions.values, *names), skipna=skipna)["x"]
    results = [_filled(found[name], regions, function) for name in ("min", "max") if name in found]
    results += [_positions(found[name], regions, function) for name in ("argmin", "argmax") if name in found]
    return results[0] if len(results) == 1 else tuple(results)


_EXTREMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "minimum": (("min",), ()),
    "maximum": ((), ("max",)),
    "minimum_position": (("argmin",), ()),
    "maximum_position": ((), ("argmax",)),
    "extrema": (("min", "argmin"), ("max", "argmax")),
}


def _filled(result: Array, regions: _Regions, function: str) -> Any:
    """Return extremes, 0 of empty groups; raise as NumPy does if the only one is empty."""
    if is_device_array(result) and not regions.is_one:
        zeros = cl_array.zeros(result.queue, result.shape, result.dtype)
        return regions.picked(cl_array.if_positive(regions.groups.size(), result, zeros))
    picked = regions.picked_host(result)
    if picked.dtype.kind == "f":
        suspects = np.isnan(picked)
    else:
        limits = (0, 1) if picked.dtype.kind == "b" else (np.iinfo(picked.dtype).min, np.iinfo(picked.dtype).max)
        suspects = (picked == limits[0]) | (picked == limits[1])  # what an empty group has
    if not np.any(suspects):
        return picked
    empty = regions.picked_host(regions.groups.size()) == 0
    if not regions.is_one:
        return np.where(empty, picked.dtype.type(0), picked)
    _check_values(bool(empty), function)
    return picked


def _check_values(is_empty: bool, function: str) -> None:
    if is_empty:
        name = "maximum" if function.startswith("maximum") else "minimum"
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")


def _positions(result: Array, regions: _Regions, function: str) -> Any:
    """Return positions as tuples of indices, those of empty groups as of element 0; raise if the only one is empty."""
    picked = regions.picked_host(result)
    if regions.is_one:
        _check_values(bool(picked < 0), function)
    picked = np.maximum(picked, 0)
    places = np.unravel_index(picked, regions.shape) if regions.shape else ()
    return tuple(places) if regions.is_one else list(zip(*map(np.ravel, places), strict=True)) or [()] * picked.size


def _taken(result: Array, index: np.ndarray) -> Array:
    """Return the elements, or rows, of a device array at `index`."""
    if result.ndim == 1:
        flat = cl_array.take(result, cl_array.to_device(result.queue, index.ravel().astype(np.int32)))
        return flat.reshape(index.shape)
    columns = np.arange(result.shape[1])
    flat = (index.ravel()[:, None] * result.shape[1] + columns).astype(np.int32)
    rows = cl_array.take(result.reshape(-1), cl_array.to_device(result.queue, flat.ravel()))
    return rows.reshape(*index.shape, result.shape[1])


def _scipy(function: str, *arguments: Any) -> Any:
    """Return what SciPy makes of NumPy arrays that no device takes."""
    if any(is_device_array(each) for each in arguments):
        raise TypeError(f"input: expected real numbers, and at least one, for {function} on a device")
    import scipy.ndimage  # only where it is needed

    return getattr(scipy.ndimage, function)(*arguments)
