"""Missing elements of arguments: one rule for all functions.

Missing elements are masked ones of masked arrays, NA of pandas, null of polars and PyArrow, and NaT. Functions skip
them (`split`) or reject them (`refuse_missing`). NaN is a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from clhist._core.opencl.arrays import Array, is_device_array, mask_of, missing_error
from clhist._core.runtime.columns import from_arrow, present_and_missing, read_column
from clhist._core.runtime.labelled import unlabelled
from clhist._core.runtime.reading import as_array

_SCALARS = {int, float, bool, str, np.float64, np.float32, np.int64, np.int32}
NUMBERS = "biufc"
"""Kinds of dtype that have no missing elements in a plain NumPy array."""

_PLAIN = {np.ndarray, type(None), *_SCALARS}


def are_plain(values: Collection[Any]) -> bool:
    """Return whether the types of all arguments exclude missing elements other than NaT."""
    return _PLAIN.issuperset(map(type, values)) or all(
        type(value) in _PLAIN or is_device_array(value) for value in values
    )


def split(name: str, value: Any) -> tuple[Array, np.ndarray | None]:
    """Split an argument into an array and a mask of its missing elements.

    Parameters
    ----------
    name : str
        The name of the argument in errors.
    value : array_like or column
        Of NumPy, PyOpenCL, pandas, polars or PyArrow. Nullable integers stay integers.

    Returns
    -------
    array : array
        NumPy's or PyOpenCL's. The value of a missing element is unspecified.
    missing : numpy.ndarray of bool, or None
        True where an element is missing, in the shape of the array; None if none is.
    """
    kind = type(value)
    # From the cheapest test to the most expensive one.
    if kind is np.ndarray:
        if value.dtype.kind in NUMBERS:
            return value, None
    else:
        value = unlabelled(value)
        kind = type(value)
    if is_device_array(value):
        return value, None
    if kind is list or kind is tuple:
        if not are_plain(value) and (rows := _of_rows(name, value)) is not None:
            return rows
    elif kind is not np.ndarray:
        missing = mask_of(value)
        if missing is not None:
            return np.asarray(value), missing
        value = from_arrow(value)
        if (columns := _columns(value)) is not None:
            return _of_columns(name, columns)
        if (data := read_column(value)) is not None:
            return data.values, data.missing
        if (texts := _of_texts(value)) is not None:
            return texts
    array = as_array(name, value)
    if array.dtype.kind in "mM" and (missing := np.isnat(array)).any():
        return array, missing
    return array, None


def any_missing(*masks: np.ndarray | None) -> np.ndarray | None:
    """Return the union of masks of missing elements; None if all are None."""
    # Most calls have no mask at all, for which no array is made.
    for mask in masks:
        if mask is not None:
            return np.logical_or.reduce([mask for mask in masks if mask is not None])
    return None


def rows_missing(name: str, missing: np.ndarray | None) -> np.ndarray | None:
    """Return the mask of missing rows, from that of an argument of shape (N, ...).

    Raises
    ------
    ValueError
        If only part of a row is missing.
    """
    if missing is None or missing.ndim < 2:
        return missing
    # A row is skipped as a whole, so a row with some elements missing has no right result.
    rows = missing.reshape(len(missing), -1)
    if (rows.any(1) != rows.all(1)).any():
        raise ValueError(
            f"{name}: expected rows that are missing (masked, NA or null) as a whole or not at all, got some with a "
            f"part of their {rows.shape[1]} elements missing; fill these"
        )
    return np.asarray(rows.any(1))


def refuse_missing(name: str, value: Any, what: str = "an array") -> Array:
    """Return an argument as an array; raise ValueError if an element is missing."""
    array, missing = split(name, value)
    if missing is not None:
        raise missing_error(name, missing, what)
    return array


def masked(name: str, value: Any) -> np.ndarray:
    """Return an argument on the host as an array, which is a masked array if elements are missing."""
    array, missing = split(name, value)
    return array if missing is None else np.ma.array(array, mask=missing)


def _columns(value: Any) -> Sequence[Any] | None:
    """Return the columns of a dataframe or table; None for any other value."""
    if not (hasattr(value, "columns") and len(getattr(value, "shape", ())) == 2):
        return None
    names = getattr(value, "column_names", None)
    if names is not None:  # PyArrow, whose `columns` are the columns, not their names
        return list(value.columns)
    if hasattr(value, "iloc"):  # pandas, by position: two columns may have the same name
        return [value.iloc[:, n] for n in range(value.shape[1])]
    return [value[name] for name in value.columns]


def _of_rows(name: str, values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Stack arrays of one shape and their masks; return None if no element is missing or shapes differ."""
    if any(isinstance(row, list | tuple) for row in values):
        return None
    pairs = [split(name, row) for row in values]
    if all(missing is None for _, missing in pairs) or len({array.shape for array, _ in pairs}) > 1:
        return None
    masks = [np.zeros(array.shape, np.bool_) if missing is None else missing for array, missing in pairs]
    return np.stack([array for array, _ in pairs]), np.stack(masks)


def _of_columns(name: str, columns: Sequence[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the columns as one array (N, D), and the mask of missing elements, None if none is."""
    pairs = [split(name, column) for column in columns]
    array = np.stack([values for values, _ in pairs], 1) if pairs else np.empty((0, 0))
    if all(missing is None for _, missing in pairs):
        return array, None
    nothing = np.zeros(len(array), np.bool_)
    return array, np.stack([nothing if missing is None else missing for _, missing in pairs], 1)


def _of_texts(value: Any) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Split a nullable column of text, categories or objects as `split` does; return None for any other value."""
    if isinstance(getattr(value, "dtype", None), np.dtype) or (parts := present_and_missing(value)) is None:
        return None
    present, missing = parts
    if missing is None:
        return present, None
    # The present elements have their dtype without the missing ones, which would make objects of them.
    array = np.zeros(missing.shape, present.dtype)
    array[~missing] = present
    return array, missing
