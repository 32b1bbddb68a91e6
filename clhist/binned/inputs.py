"""Reading of arguments, shared by the functions on bins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np

from clhist._core.keys import has_keys
from clhist._core.opencl.arrays import Array, are_plain_numbers, check_contiguous, is_device_array
from clhist._core.runtime.missing import NUMBERS, refuse_missing, split
from clhist._core.runtime.missing import are_plain as have_none_missing

_MOST_PLAIN = 2**10  # bins of each dimension


def as_array(name: str, value: Any) -> Array:
    """Return `value` as an array: PyOpenCL's as it is, all others NumPy's, of native byte order.

    Raises
    ------
    ValueError
        If elements are missing.
    """
    if type(value) is np.ndarray and (dtype := value.dtype).kind in NUMBERS and dtype.isnative:
        return value
    return value if is_device_array(value) else _native(refuse_missing(name, value))


def split_array(name: str, value: Any) -> tuple[Array, np.ndarray | None]:
    """Return what `as_array` does, and which elements are missing; None where none is."""
    if type(value) is np.ndarray and (dtype := value.dtype).kind in NUMBERS and dtype.isnative:
        return value, None  # the most frequent
    if is_device_array(value):
        return value, None
    array, missing = split(name, value)
    return _native(array), missing


def _native(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_edges(name: str, value: Any) -> Any:
    """Return a number of bins or a rule as it is, and edges, or several of these, without missing ones.

    Raises
    ------
    ValueError
        If edges are missing.
    """
    if type(value) in (int, str, np.ndarray) or is_device_array(value):
        return value
    if isinstance(value, list | tuple):
        return value if have_none_missing(value) else type(value)(as_edges(name, each) for each in value)
    return value if np.ndim(value) == 0 else refuse_missing(name, value, "edges")


def without(missing: np.ndarray, *arrays: Any) -> tuple[Any, ...]:
    """Return the elements of NumPy arrays that are present, in one dimension; None and device arrays as they are."""
    present = ~missing
    return tuple(each[present] if isinstance(each, np.ndarray) else each for each in arrays)


def mask_array(where: Any, shape: tuple[int, ...]) -> Array | None:
    """Return `where` as a contiguous array of booleans of this shape, or None.

    Raises
    ------
    TypeError, ValueError
        If it is of another dtype or shape.
    """
    if where is None:
        return None
    where, missing = split_array("where", where)
    if missing is not None and where.dtype == np.bool_:  # an unknown condition is not fulfilled
        where = where & ~missing
    if where.dtype != np.bool_ and not (is_device_array(where) and where.dtype == np.uint8):
        raise TypeError(f"where: expected an array of bool, got one of {where.dtype}")
    if where.shape != shape:
        raise ValueError(f"where: expected shape {shape} as of the data, got {where.shape}")
    if is_device_array(where):
        check_contiguous("where", where)
    return where


def is_binnable(dtype: np.dtype) -> bool:
    """Whether kernels can bin data of `dtype`, by edges that are numbers."""
    return dtype.kind in "biuf" and has_keys(dtype)


def are_plain(columns: Sequence[Any], bins: Any) -> bool:
    """Whether columns are NumPy arrays of plain numbers alike, and `bins` a number, which need no checks."""
    if type(bins) is not int or not 0 < bins <= _MOST_PLAIN or not columns or type(columns[0]) is not np.ndarray:
        return False
    first = columns[0]
    for column in columns[1:]:
        if type(column) is not np.ndarray or column.shape != first.shape or column.dtype != first.dtype:
            return False
    return are_plain_numbers(first)


def are_numbers(bins: Any) -> bool:
    """Whether `bins` are a number, a rule, or edges that compare as real numbers do."""
    return type(bins) in (int, str) or np.ndim(bins) == 0 or np.asarray(bins).dtype.kind in "biuf"


def check_number(bins: Any, dims: int | None = None) -> None:
    """Raise ValueError for more bins than kernels have numbers for, before edges are made of them.

    `bins` are those of one dimension or, with `dims`, of so many; what else is wrong with them NumPy says.
    """
    # Arrays of no dimension have a length that nobody may ask for.
    several = dims is not None and hasattr(bins, "__len__") and getattr(bins, "shape", None) != ()
    each = bins if several else [bins] * (dims or 1)
    number = prod(int(n) for n in each if isinstance(n, int | np.integer))
    if number >= 2**31:
        if dims is None or dims == 1:
            raise ValueError(f"bins: expected fewer than 2**31, got {bins!r:.60}")
        raise ValueError(
            f"bins: expected fewer than 2**31 in all {dims} dimensions together, got {bins!r:.60}, "
            f"which are {min(number, 10**300):.3g}{' or more' * (number > 10**300)}"
        )


def are_usable(edges: Array, *, fewest: int = 2) -> bool:
    """Whether edges of NumPy's have thresholds: `fewest` or more, none of them NaN."""
    return len(edges) >= fewest and edges.dtype.kind in "biuf" and not bool(np.isnan(edges).any())


def check_ends(name: str, ends: Any) -> None:
    """Raise TypeError or ValueError unless `ends` are two numbers; NumPy's errors do not name the argument."""
    try:
        low, high = ends
        np.isfinite(low), np.isfinite(high)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: expected two numbers, the ends of the bins, got {ends!r:.60}") from error


def check_kinds(bins: Sequence[Any], ranges: Any) -> None:
    """Raise TypeError or ValueError unless bins and ranges of each dimension are numbers; see `check_ends`."""
    for n, one in enumerate(bins):
        kind, is_number = np.asarray(one).dtype.kind, np.ndim(one) == 0
        if kind in "OUS" and (is_number or kind != "O"):
            raise TypeError(f"bins[{n}]: expected a number of bins or edges, got {one!r:.60}")
    if ranges is None:
        return
    if not isinstance(ranges, Iterable):
        raise TypeError(f"range: expected two numbers or None for each dimension, got {ranges!r:.60}")
    for n, ends in enumerate(ranges):
        if ends is not None:
            check_ends(f"range[{n}]", ends)


def shape_of_bins(bins: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the number of bins of each dimension; None if a rule makes them or the bins are wrong."""
    try:
        shape = tuple(index(one) if np.ndim(one) == 0 else len(one) - 1 for one in bins)
    except (TypeError, ValueError):
        return None
    return shape if all(number > 0 for number in shape) else None


def taken(array: Any, where: Any) -> Any:
    """Return the elements of a NumPy array that count."""
    return array if array is None or where is None else np.asarray(array)[where]


def last_axes(axis: Any, arrays: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of the other dimensions than `axis`, and arrays of the same shape with those of `axis` last.

    Raises
    ------
    numpy.exceptions.AxisError, ValueError
        If there are no such dimensions, or they are not the last ones of device arrays.
    """
    first = arrays[0]
    chosen = np.lib.array_utils.normalize_axis_tuple(axis, first.ndim, "axis")
    others = tuple(n for n in range(first.ndim) if n not in chosen)
    order = (*others, *sorted(chosen))
    if is_device_array(first) and order != tuple(range(first.ndim)):
        raise ValueError(f"axis: expected the last dimensions of a device array, got {axis} of {first.ndim}")
    moved = [a if a is None or is_device_array(a) else np.transpose(a, order) for a in arrays]
    return tuple(first.shape[n] for n in others), moved


def range_ends(found: tuple[Any, Any] | None, given: Any) -> tuple[Any, Any]:
    """Return the ends of uniform bins as NumPy has them, of a `given` range or of data with the extent `found`."""
    low, high = given if given is not None else found if found is not None else (0, 1)
    return (low - 0.5, high + 0.5) if low == high else (low, high)
