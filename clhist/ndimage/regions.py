"""Regions of a labelled image as groups of its values, from the labels and the index of SciPy's functions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.host_spi import (
    Array,
    any_missing,
    are_plain,
    are_plain_numbers,
    as_array,
    as_bytes,
    as_numbers,
    check_native,
    check_process,
    check_width,
    is_complete,
    is_device_array,
    on_host,
    refuse_missing,
    small,
    split,
)
from clhist.operators.c_types import supported_dtype

if TYPE_CHECKING:
    from clhist.groupby import GroupBy

_UNASKED_LABELS = 1 << 20  # labels below this are group numbers, even if few of them occur


@dataclass(frozen=True)
class Regions:
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
        """Return statistics of all groups as one array or a list of arrays; NaN propagates."""
        results = self.groups.agg(x=(self.values, statistics), skipna=False, **options)["x"]
        return results[statistics[0]] if len(statistics) == 1 else [results[name] for name in statistics]

    def picked(self, result: Array) -> Any:
        """Return the results of the regions asked for."""
        if is_device_array(result) and not self.is_one:
            from clhist._core.spi import row_kernels

            return row_kernels.picked(result, self.index)
        return self.picked_host(result)

    def picked_host(self, result: Array) -> Any:
        """Return the same as NumPy's."""
        return on_host(result)[self.index]


def _taken_values(input: Any) -> Any:
    """Return the values as an array that kernels accept, or None for a NumPy array of another dtype."""
    values = as_array("input", input)
    on_device = is_device_array(values)
    if on_device:
        check_native("input", values)
    try:
        supported_dtype(values.dtype, "input")
    except TypeError:
        if on_device:
            raise
        check_width("input", values, values)
        return None
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return as_numbers(values)


def without_missing(input: Any, labels: Any, index: Any) -> tuple[Any, Any, Any]:
    """Return the arguments as arrays in which elements whose value or label is missing are in no region."""
    if index is not None and type(index) is not int and np.ndim(index):
        index = refuse_missing("index", index)
    if are_plain((input, labels)):
        return input, labels, index
    input, missing = split("input", input)
    if labels is not None:
        labels, of_labels = split("labels", labels)
        if of_labels is not None and missing is not None:
            missing, of_labels = np.broadcast_arrays(missing, of_labels)
        missing = any_missing(missing, of_labels)
    if missing is None:
        return input, labels, index
    if labels is None:
        if index is not None:
            raise ValueError("index: expected None, since there are no labels")
        return input, (~missing).astype(np.uint8), 1
    labels, missing = np.broadcast_arrays(labels, missing)
    if index is None:
        return input, np.where(missing, labels.dtype.type(0), labels), None
    # Number the regions asked for from 1, so that 0 is free for elements in none of them.
    chosen, numbers = np.unique(np.asarray(index), return_inverse=True)
    if not chosen.size:
        return input, labels, index
    places = np.minimum(np.searchsorted(chosen, labels), len(chosen) - 1)
    is_chosen = (chosen[places] == labels) & ~missing
    return input, np.where(is_chosen, places + 1, 0), numbers.reshape(np.shape(index)) + 1


def group_by(labels: Array, number: int) -> GroupBy:
    """Return the groups of `clhist.group_by`, whose modules sums of few elements do without."""
    from clhist.groupby import group_by

    return group_by(labels, number)


def regions_of(input: Any, labels: Any, index: Any) -> Regions | None:
    """Return the regions that SciPy's parameters select, or None if SciPy has to compute the result."""
    check_process()
    values = _taken_values(input)
    if values is None or values.dtype.kind not in "biufc" or not values.dtype.isnative:
        return None
    shape = values.shape
    if labels is None:
        if index is not None:
            raise ValueError("index: expected None, since there are no labels")
        one = np.dtype(np.uint8)
        if is_device_array(values):
            from clhist._core.spi import zeros

            return Regions(group_by(zeros(values.queue, shape, one), 1), values, 0, shape)
        return Regions(group_by(np.zeros(shape, one), 1), values, 0, shape)
    if is_device_array(values) != is_device_array(labels):
        wrong = "labels" if is_device_array(values) else "input"
        raise TypeError(f"{wrong}: expected a PyOpenCL array, since the other one of input and labels is")
    if is_device_array(values):
        return _device_regions(values, labels, index)
    labels = as_array("labels", labels)
    labels = labels if labels.dtype.isnative else labels.astype(labels.dtype.newbyteorder("="))
    values, labels = np.broadcast_arrays(values, labels)
    if index is None:
        # Without an index, all positive labels together are one region: group 1.
        return Regions(group_by(labels > 0, 2), values, 1, shape)
    index_array = np.asarray(index)
    # Small integer labels are group numbers already.
    if labels.size and labels.dtype.kind in "iub" and index_array.dtype.kind in "iub" and index_array.size:
        largest = int(labels.max())
        if 0 <= largest < max(_UNASKED_LABELS, labels.size):
            # Negative labels are in no group; an absent region has the one after the last.
            groups = np.where((index_array >= 0) & (index_array <= largest), index_array, largest + 1).astype(np.intp)
            # A negative region that is asked for and occurs needs a number of its own, below.
            if index_array.min() >= 0 or labels.min() >= 0:
                return Regions(group_by(labels, largest + 2), values, groups, shape)
    # Other labels are numbered; regions that do not occur share the empty last group.
    distinct_labels, numbers = np.unique(labels, return_inverse=True)
    places = np.searchsorted(distinct_labels, index_array)
    missing = places == len(distinct_labels)
    places = np.where(missing, 0, places)
    absent = missing | (distinct_labels[places] != index_array if len(distinct_labels) else True)
    groups = np.where(absent, len(distinct_labels), places)
    return Regions(group_by(numbers.reshape(labels.shape), len(distinct_labels) + 1), values, groups, shape)


def _device_regions(values: Array, labels: Array, index: Any) -> Regions:
    check_native("labels", labels)
    if labels.shape != values.shape:
        raise ValueError(f"labels: expected shape {values.shape} as of input on a device, got {labels.shape}")
    if labels.dtype.kind == "b":
        labels = as_bytes(labels)  # PyOpenCL has no comparisons of booleans
    if index is None:
        from clhist._core.spi import are_positive

        return Regions(group_by(are_positive(labels), 2), values, 1, values.shape)
    index_array = np.asarray(on_host(index))
    if index_array.dtype.kind not in "iub" or (index_array.size and index_array.min() < 0):
        raise ValueError("index: expected non-negative integers on a device; number others by numpy.unique")
    largest = int(index_array.max()) if index_array.size else 0
    # There is a bin for each number up to the largest: refuse numbers far beyond the count of elements.
    if largest >= max(_UNASKED_LABELS, 16 * labels.size):
        raise ValueError(f"index: expected numbers of regions on a device, got {largest}; use numpy.unique")
    return Regions(group_by(labels, largest + 1), values, index_array.astype(np.intp), values.shape)


_SUMS = frozenset({"sum_labels", "mean", "variance", "standard_deviation"})
_OF_A_MEAN = {"sum_labels": 0.4, "variance": 2.0, "standard_deviation": 2.0}  # an element's time, of that of a mean
_SORTED = frozenset({"minimum", "maximum"})
_FEW_LABELS = 2**12  # which numpy.bincount counts in a few microseconds, however few elements have them
_FEW_FOR_A_SORT = 2**12  # up to so many elements, SciPy's sort is faster than groups; on an EPYC of Zen 2


def few_on_host(function: str, input: Any, labels: Any, index: Any) -> Any:
    """Return a statistic of few plain numbers in several regions, extremes if SciPy is imported; else None."""
    if not type(input) is type(labels) is type(index) is np.ndarray or labels.shape != input.shape or not index.size:
        return None
    if not are_plain_numbers(input) or not labels.dtype.isnative or labels.dtype.kind not in "iu" or not input.size:
        return None
    if index.dtype.kind not in "iu" or not index.ndim:
        return None
    if function in _SORTED:
        if input.size > _FEW_FOR_A_SORT or not is_complete("scipy.ndimage"):
            return None
    elif function not in _SUMS:
        return None
    if small.pays_off("ndimage", int(input.size * _OF_A_MEAN.get(function, 1)), index.size):
        return None
    with np.errstate(all="ignore"):
        if function in _SORTED:
            return getattr(sys.modules["scipy.ndimage"], function)(input, labels, index)
        return _sums(function, input.reshape(-1), labels.reshape(-1), index)


def _sums(function: str, values: np.ndarray, labels: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    """Return a statistic by sums in float64, as SciPy's; None if labels are no numbers of bins."""
    if not np.can_cast(labels.dtype, np.intp) or not 0 <= labels.min() <= labels.max() < max(_FEW_LABELS, labels.size):
        return None
    sums = np.bincount(labels, values)
    places = index.astype(np.intp, copy=False)
    # Viewed as unsigned, negative labels are out of range as well: one comparison instead of two.
    is_there = places.view(np.uintp) < sums.size
    all_there = bool(is_there.all())
    places = places if all_there else np.where(is_there, places, 0)

    def picked(of_labels: np.ndarray) -> np.ndarray:
        """Return the entry of each region of `index`, 0 of one without elements."""
        entries = of_labels[places]
        return entries if all_there else np.where(is_there, entries, 0)

    if function == "sum_labels":
        return picked(sums)
    counts = np.bincount(labels)
    numbers = picked(counts)
    if function in ("variance", "standard_deviation"):
        # Deviations from the mean, in a second pass as in SciPy, avoid the cancellation of sums of squares.
        differences = values - (sums / counts)[labels]
        sums = np.bincount(labels, differences * differences)
    means = picked(sums) / numbers
    return np.sqrt(means) if function == "standard_deviation" else means


def by_scipy(function: str, *arguments: Any) -> Any:
    """Return SciPy's result for NumPy arrays that kernels do not support."""
    if any(is_device_array(argument) for argument in arguments):
        raise TypeError(f"input: expected real numbers for {function} on a device")
    import scipy.ndimage  # only where it is needed

    return getattr(scipy.ndimage, function)(*arguments)
