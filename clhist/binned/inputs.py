"""Reads and validates arguments; shared by all functions on bins."""

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

_MOST_PLAIN = 2**10  # bins of each dimension that need no check


def as_array(name: str, value: Any) -> Array:
    """Return a PyOpenCL array unchanged, and any other value as a NumPy array of native byte order.

    Raises
    ------
    ValueError
        If elements are missing.
    """
    if type(value) is np.ndarray and (dtype := value.dtype).kind in NUMBERS and dtype.isnative:
        return value
    return value if is_device_array(value) else _native(refuse_missing(name, value))


def split_array(name: str, value: Any) -> tuple[Array, np.ndarray | None]:
    """Return the array of `as_array`, and the mask of missing elements, None if none is."""
    if type(value) is np.ndarray and (dtype := value.dtype).kind in NUMBERS and dtype.isnative:
        return value, None  # the most frequent case
    if is_device_array(value):
        return value, None
    array, missing = split(name, value)
    return _native(array), missing


def _native(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_edges(name: str, value: Any) -> Any:
    """Return `bins` with edges as arrays; a number of bins or a rule stays as it is.

    Raises
    ------
    TypeError, ValueError
        If they are in device memory, or an edge is missing.
    """
    if type(value) in (int, str, np.ndarray):
        return value
    # NumPy would copy a device array one element after the other, and make edges of objects.
    if is_device_array(value):
        raise TypeError(f"{name}: expected edges on the host, got a device array; pass {name}.get()")
    # Bins of several dimensions: check the edges of each.
    if isinstance(value, list | tuple):
        are_right = have_none_missing(value) and not any(map(is_device_array, value))
        return value if are_right else type(value)(as_edges(name, part) for part in value)
    return value if np.ndim(value) == 0 else refuse_missing(name, value, "edges")


def without(missing: np.ndarray, *arrays: Any) -> tuple[Any, ...]:
    """Remove missing elements from NumPy arrays, which leaves one dimension; None and device arrays stay."""
    present = ~missing
    return tuple(array[present] if isinstance(array, np.ndarray) else array for array in arrays)


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
    # A missing condition counts as False.
    if missing is not None and where.dtype == np.bool_:
        where = where & ~missing
    if where.dtype != np.bool_ and not (is_device_array(where) and where.dtype == np.uint8):
        raise TypeError(f"where: expected an array of bool, got one of {where.dtype}")
    if where.shape != shape:
        raise ValueError(f"where: expected shape {shape} as of the data, got {where.shape}")
    if is_device_array(where):
        check_contiguous("where", where)
    return where


def is_binnable(dtype: np.dtype) -> bool:
    """Return whether kernels can bin data of `dtype` by numeric edges."""
    return dtype.kind in "biuf" and has_keys(dtype)


def are_plain(columns: Sequence[Any], bins: Any) -> bool:
    """Return whether no check is needed: NumPy arrays of one shape and plain dtype, and a small number of bins."""
    if type(bins) is not int or not 0 < bins <= _MOST_PLAIN or not columns or type(columns[0]) is not np.ndarray:
        return False
    first = columns[0]
    for column in columns[1:]:
        if type(column) is not np.ndarray or column.shape != first.shape or column.dtype != first.dtype:
            return False
    return are_plain_numbers(first)


def are_numbers(bins: Any) -> bool:
    """Return whether `bins` is a number, a rule, or real edges."""
    return type(bins) in (int, str) or np.ndim(bins) == 0 or np.asarray(bins).dtype.kind in "biuf"


def check_number(bins: Any, dims: int | None = None) -> None:
    """Raise ValueError for 2^31 bins or more, before edges are made of them.

    `bins` belong to one dimension or, with `dims`, to so many. All other errors are left to NumPy.
    """
    # A zero-dimensional array has `__len__`, but calling it raises.
    several = dims is not None and hasattr(bins, "__len__") and getattr(bins, "shape", None) != ()
    counts = bins if several else [bins] * (dims or 1)
    # The product of Python integers does not wrap.
    number = prod(int(n) for n in counts if isinstance(n, int | np.integer))
    if number >= 2**31:
        if dims is None or dims == 1:
            raise ValueError(f"bins: expected fewer than 2**31, got {bins!r:.60}")
        raise ValueError(
            f"bins: expected fewer than 2**31 in all {dims} dimensions together, got {bins!r:.60}, "
            f"which are {min(number, 10**300):.3g}{' or more' * (number > 10**300)}"
        )


def are_usable(edges: Array, *, fewest: int = 2) -> bool:
    """Return whether kernels can search NumPy's edges: `fewest` or more, none of them NaN."""
    if len(edges) < fewest or edges.dtype.kind not in "biuf":
        return False
    # The index of the greatest number is that of the first NaN.
    return not len(edges) or not bool(np.isnan(edges[edges.argmax()]))


def are_ascending(edges: Any) -> bool:
    """Return whether edges are a plain array of two numbers or more that do not descend, none of them NaN."""
    if type(edges) is not np.ndarray or edges.ndim != 1 or len(edges) < 2:
        return False
    if edges.dtype.kind not in "iu" and edges.dtype.char not in "fd":
        return False
    ascend: np.ndarray = edges[1:] >= edges[:-1]
    return bool(ascend[ascend.argmin()])  # in a third of the time of `all`


def check_ends(name: str, ends: Any) -> None:
    """Raise an error that names the argument unless `ends` are two numbers; NumPy's do not."""
    try:
        low, high = ends
        # Raises TypeError unless both are numbers.
        np.isfinite(low), np.isfinite(high)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: expected two numbers, the ends of the bins, got {ends!r:.60}") from error


def check_kinds(bins: Sequence[Any], ranges: Any) -> None:
    """Raise TypeError or ValueError unless bins and ranges of each dimension are numeric; see `check_ends`."""
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


def elements_where(array: Any, where: Any) -> Any:
    """Return ``array[where]``; the array itself, or None, if either is None."""
    return array if array is None or where is None else np.asarray(array)[where]


def last_axes(axis: Any, arrays: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of the dimensions besides `axis`, and the arrays with the dimensions of `axis` moved to the end.

    Raises
    ------
    numpy.exceptions.AxisError, TypeError, ValueError
        If there are no such dimensions, or if they are not the last ones of a device array.
    """
    first = arrays[0]
    try:
        chosen = np.lib.array_utils.normalize_axis_tuple(axis, first.ndim, "axis")
    except TypeError:
        raise TypeError(f"axis: expected the number of a dimension, or several, got {axis!r:.60}") from None
    others = tuple(n for n in range(first.ndim) if n not in chosen)
    order = (*others, *sorted(chosen))
    # Kernels read device arrays in order of memory; to transpose them would need a copy.
    if is_device_array(first) and order != tuple(range(first.ndim)):
        raise ValueError(f"axis: expected the last dimensions of a device array, got {axis} of {first.ndim}")
    moved = [a if a is None or is_device_array(a) else np.transpose(a, order) for a in arrays]
    return tuple(first.shape[n] for n in others), moved


def range_ends(extent: tuple[Any, Any] | None, requested: Any) -> tuple[Any, Any]:
    """Return NumPy's ends of equal-width bins: the `requested` range, or the `extent` of the data, or (0, 1)."""
    low, high = requested if requested is not None else extent if extent is not None else (0, 1)
    # Arrays without dimensions are their number, which caches of bins can hash.
    low = low[()] if type(low) is np.ndarray else low
    high = high[()] if type(high) is np.ndarray else high
    # NumPy subtracts no booleans of its own, which the extent of a device array may be.
    low, high = (int(end) if isinstance(end, np.bool_) else end for end in (low, high))
    return (low - 0.5, high + 0.5) if low == high else (low, high)
