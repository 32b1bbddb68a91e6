"""The arguments of a fill as a kernel takes them: a column of data and an axis for each dimension, weights and samples.

What is unusual, and what is wrong, is left to boost-histogram, whose own rules and errors then hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import boost_histogram as bh
import numpy as np
import pyopencl as cl

from clhist._core.spi import (
    Array,
    are_plain,
    check_contiguous,
    has_fp64,
    is_device_array,
    is_small,
    on_host,
    plain,
    rows_missing,
    split,
    to_device,
    zeros,
)
from clhist.axes.spi import Axis
from clhist.binned.spi import Binned, extent, queue_for
from clhist.hist.axes import codes_axis, device_axis, fixed_axis, flow_bins, grows_in_value, host_bins, number_kind
from clhist.hist.categories import category_bins, grown
from clhist.operators.halves import number_of

_INT32 = np.iinfo(np.int32)
MEANS = (bh.storage.Mean, bh.storage.WeightedMean)


@dataclass(frozen=True)
class Columns:
    """The arguments of a fill.

    Attributes
    ----------
    storage : type
        Of the histogram, which boost-histogram takes long to say.
    axes : tuple of Axis
        One for each dimension of the histogram.
    data : tuple of array or None
        What each axis bins; None of one that takes no data.
    size : int
        N.
    weight, sample : array, float or None
        One for each element, or one for all.
    queue : pyopencl.CommandQueue
        Where it runs.
    on_device : bool
        Whether the arrays are PyOpenCL's.
    """

    storage: type
    axes: tuple[Axis, ...]
    data: tuple[Any, ...]
    size: int
    weight: Any
    sample: Any
    queue: cl.CommandQueue
    on_device: bool

    @property
    def binned(self) -> Binned:
        """The data with its axes; the first axis of the histogram is the fastest one."""
        return Binned(self.axes[::-1], self.data[::-1], None, self.size)

    @property
    def arrays(self) -> list[Any]:
        """The arrays of a sweep: the data, the last axis first, then weights and samples."""
        return [*self.binned.arrays, *(column for column in (self.weight, self.sample) if is_column(column))]

    @property
    def shape(self) -> tuple[int, ...]:
        """Bins of each axis, the last one first."""
        return tuple(axis.extent for axis in self.axes[::-1])


def as_column(value: Any) -> Any:
    """Return an argument of a fill as an array of NumPy or PyOpenCL, or as a scalar."""
    if isinstance(value, np.ndarray):
        return value if value.ndim else value[()]
    if value is None or isinstance(value, str | bytes) or is_device_array(value):
        return value
    if hasattr(value, "__iter__") or hasattr(value, "__array__"):
        array = np.asarray(value)
        return array if array.ndim else array[()]
    return value


def _split_entries(name: str, value: Any) -> tuple[Any, np.ndarray | None]:
    """Return an argument of a fill, and which of its entries are missing; None where none is, or it is no array."""
    if value is None or isinstance(value, str | bytes) or is_device_array(value):
        return value, None
    if not (hasattr(value, "__iter__") or hasattr(value, "__array__")) and np.isscalar(value):
        return value, None
    value, missing = split(name, value)
    if missing is not None and not missing.ndim:
        raise ValueError(f"{name}: expected a number for all entries, got one that is masked, NA or null")
    return value, missing


def present_columns(args: Sequence[Any], weight: Any, sample: Any) -> tuple[list[Any], Any, Any, np.ndarray | None]:
    """Return the arguments of a fill without missing entries, as `as_column` does; and, if some miss, which do not.

    Raises
    ------
    ValueError
        If the only entry of an argument is missing, or a part of the cells of a weight.
    """
    values = (*args, weight, sample)
    # These types have no missing entries, so no masks are made.
    if are_plain(values):
        if weight is not None or sample is not None:
            weight, sample = as_column(weight), as_column(sample)
        return list(map(as_column, args)), weight, sample, None
    names = [*(f"args[{n}]" for n in range(len(args))), "weight", "sample"]
    columns, masks = [], []
    for name, value in zip(names, values, strict=True):
        value, missing = _split_entries(name, value)
        columns.append(as_column(value))
        masks.append(rows_missing(name, missing))
    some, lengths = (
        [mask for mask in masks if mask is not None],
        {len(column) for column in columns if is_column(column)},
    )
    if not some or len(lengths) > 1 or any(map(is_device_array, columns)):
        # Name the first column that does not fit, with or without missing elements.
        for name, mask in zip(names, masks, strict=True):
            if mask is not None and any(map(is_device_array, columns)):
                raise TypeError(f"{name}: expected a PyOpenCL array as the others are, got a NumPy array")
        *columns, weight, sample = columns
        return columns, weight, sample, None
    # An entry counts only if it is present in all arguments.
    present = ~np.logical_or.reduce(some)
    *columns, weight, sample = (column[present] if is_column(column) else column for column in columns)
    return columns, weight, sample, present


def is_column(value: Any) -> bool:
    """Whether `value` is an array rather than one value for all elements."""
    return is_device_array(value) or (isinstance(value, np.ndarray) and value.ndim > 0)


def adds_up(weight: Any, sample: Any) -> bool:
    """Whether a fill adds up numbers that may differ: only these sums depend on the order."""
    return is_column(weight) or is_column(sample)


def storage_of(h: Any) -> type:
    """Return the storage type of a histogram; boost-histogram takes 8 µs to name it, so each is kept."""
    kind = type(h._hist)
    storage = _storages.get(kind)
    if storage is None:
        storage = _storages[kind] = h.storage_type
    return storage


_storages: dict[type, type] = {}  # by the classes of boost-histogram in C++


def refuses_threads(h: Any, threads: int | None) -> bool:
    """Whether boost-histogram raises for this number of threads, as it does for means."""
    return threads not in (None, 1) and storage_of(h) in MEANS


def columns_of(
    h: Any,
    args: Sequence[Any],
    weight: Any,
    sample: Any,
    queue: cl.CommandQueue | None,
    *,
    reproducible: bool = False,
    threads: int | None = None,
) -> Columns | None:
    """Return the arguments of a fill, or None if boost-histogram must take them.

    Categories that are new to an axis which grows are appended to it.

    Parameters
    ----------
    h : boost_histogram.Histogram
        What is filled.
    args, weight, sample
        As of `clhist.hist.fill`, after `as_column`.
    queue : pyopencl.CommandQueue, optional
        Where it runs; small NumPy arrays as well then.
    reproducible : bool
        Whether sums are bitwise the same in any order; kernels sum small NumPy arrays as well then.
    threads : int, optional
        As of `clhist.hist.fill`.

    Raises
    ------
    TypeError, ValueError
        If some arrays are NumPy's and some PyOpenCL's, or one is of another context.
    """
    if refuses_threads(h, threads):
        return None
    named = [*((f"args[{n}]", value) for n, value in enumerate(args)), ("weight", weight), ("sample", sample)]
    arrays = [(name, value) for name, value in named if is_column(value)]
    _check_contiguous(arrays)
    storage = storage_of(h)
    size = common_length([array for _, array in arrays], storage)
    # Arrays of unequal length, and fills whose only array is the weight, are left to boost-histogram.
    if size is None or len(args) != len(h.axes) or not any(map(is_column, (*args, sample))):
        return None
    on_device = any(is_device_array(array) for _, array in arrays)
    sums = reproducible and adds_up(weight, sample)
    # NumPy computes means of small arrays on the host, so they have another threshold of size.
    call = "boost-histogram" if storage not in MEANS else "boost-histogram, means"
    if not on_device and is_small(call, size, queue, reproducible=sums):
        return None
    if not are_usual(h, args, weight, sample):
        return None
    # Strings are binned on the host, so a NumPy column of them may accompany device arrays.
    strings = {id(value) for ax, value in zip(h.axes, args, strict=True) if number_kind(ax) == "string"}
    queue = queue_for(queue, [(name, value) for name, value in arrays if not on_device or id(value) not in strings])
    if not all(fits(ax, value, queue) for ax, value in zip(h.axes, args, strict=True)):
        return None
    grown(h, args, queue)
    columns = [_column(ax, value, queue, on_device) for ax, value in zip(h.axes, args, strict=True)]
    axes, data = _with_data(columns, size, queue, on_device)
    return Columns(storage, axes, data, size, _numbers(weight), _numbers(sample), queue, on_device)


def _check_contiguous(named: Iterable[tuple[str, Any]]) -> None:
    """Raise ValueError if one of the device arrays has gaps."""
    for name, array in named:
        if is_device_array(array):
            check_contiguous(name, array)


def _with_data(
    columns: Sequence[tuple[Axis, Any]], size: int, queue: cl.CommandQueue, on_device: bool
) -> tuple[tuple[Axis, ...], tuple[Any, ...]]:
    """Return the axes and their data: of samples alone, which have none, the first one gets codes."""
    axes, data = tuple(axis for axis, _ in columns), tuple(array for _, array in columns)
    if any(array is not None for array in data):
        return axes, data
    # All elements have code 0, whose bin is the fixed one of the first axis.
    codes = zeros(queue, (size,), np.dtype(np.int32)) if on_device else np.zeros(size, np.int32)
    first = Axis(codes_axis(1).kind, (), (0, 1, axes[0].scalars[0], -1, -1), axes[0].extent)
    return (first, *axes[1:]), (codes, *data[1:])


def are_usual(h: Any, args: Sequence[Any], weight: Any, sample: Any) -> bool:
    """Whether the axes take arguments as a kernel does, and weights and samples are numbers."""
    return all(map(_is_usual, h.axes, args)) and _is_number(weight) and _is_number(sample)


def common_length(arrays: Iterable[Any], storage: type) -> int | None:
    """Return the length of all arrays, or None if they have not one."""
    cells = storage is bh.storage.MultiCell
    # A wrong number of dimensions counts as length 0, which is refused like an empty array.
    lengths = {array.shape[0] if array.ndim == 1 or (cells and array.ndim == 2) else 0 for array in arrays}
    return lengths.pop() or None if len(lengths) == 1 else None


def _is_usual(ax: Any, value: Any) -> bool:
    """Whether an axis takes `value` as a kernel does."""
    kind = number_kind(ax)
    if grows_in_value(ax):
        return False
    if not is_column(value):
        return isinstance(value, str) if kind == "string" else isinstance(value, int | float | np.number | np.bool_)
    if value.ndim != 1:
        return False
    if kind == "string":
        return not is_device_array(value) and value.dtype.kind in "UO"
    return value.dtype.kind in ("biuf" if kind == "real" else "biu") and _is_plain(value)


def _is_plain(array: Array) -> bool:
    """Whether kernels can be given an array, perhaps as another type."""
    return array.dtype.itemsize <= 8 and (array.dtype.isnative or not is_device_array(array))


def _is_number(value: Any) -> bool:
    """Whether weights or samples are of a type that converts to float64 in a kernel."""
    if not is_column(value):
        return value is None or isinstance(value, int | float | np.number | np.bool_)
    return number_of(value.dtype).kind in "biuf" and _is_plain(value)


def fits(ax: Any, value: Any, queue: cl.CommandQueue | None) -> bool:
    """Whether integers for an axis that counts them fit in 32 bits."""
    if number_kind(ax) != "integer":
        return True
    if not is_column(value):
        return isinstance(value, int | np.integer | np.bool_) and _INT32.min <= int(value) <= _INT32.max
    # Types whose values all fit need no reduction over the data.
    if not looks_at_content(ax, value):
        return True
    ends = extent(value, None, queue)
    return ends is None or bool(_INT32.min <= ends[0] and ends[1] <= _INT32.max)


def looks_at_content(ax: Any, value: Any) -> bool:
    """Whether it depends on the integers in an array if a kernel takes it."""
    if not is_column(value) or number_kind(ax) != "integer":
        return False
    return not (value.dtype.kind == "b" or value.dtype.itemsize < 4 or value.dtype == np.int32)


def _column(ax: Any, value: Any, queue: cl.CommandQueue, on_device: bool) -> tuple[Axis, Any]:
    """Return the axis for one column, and the array that it bins."""
    if not is_column(value):
        # One value for all elements: the host finds its bin once.
        return fixed_axis(bin_of(ax, value), ax.extent), None
    if number_kind(ax) == "string":
        return codes_axis(ax.extent), _placed(category_bins(ax, value), queue, on_device)
    value = _numbers(value)
    axis = device_axis(ax, value.dtype, fp64=has_fp64(queue.device))
    if axis is None:
        # No kernel finds these bins, such as those of a custom transform; boost-histogram finds them on the host.
        values = on_host(value, queue).astype(np.float64)
        return codes_axis(ax.extent), _placed(host_bins(ax, values), queue, on_device)
    return axis, value


def bin_of(ax: Any, value: Any) -> int:
    """Return the bin of one value, or -1."""
    if isinstance(ax, bh.axis.Boolean):
        value = bool(value)
    # `index` of categories raises KeyError for unknown values, so it is not called.
    if isinstance(ax, bh.axis.IntCategory | bh.axis.StrCategory):
        values = list(ax)
        index = values.index(value) if value in values else len(values)
    elif number_kind(ax) == "integer":
        index = ax.index(int(value))
    else:
        index = ax.index(float(value))
    return int(flow_bins(ax, np.array(index)))


def _numbers(value: Any) -> Any:
    """Return an array as kernels take it: contiguous, of native byte order, booleans as bytes."""
    if not is_column(value) or is_device_array(value):
        return value.view(np.uint8) if is_column(value) and value.dtype == np.bool_ else value
    return plain(value)


def _placed(array: Array, queue: cl.CommandQueue, on_device: bool) -> Any:
    return to_device(queue, array) if on_device else array
