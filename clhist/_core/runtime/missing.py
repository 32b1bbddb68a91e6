"""Missing elements of arguments: one rule for all functions.

Missing are masked elements of NumPy's masked arrays, NA of pandas, null of polars and PyArrow, and NaT. Functions skip
these elements, or refuse them by `refuse_missing`. NaN is a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.masks import mask_of, missing_error
from clhist._core.runtime.columns import from_arrow, present_and_missing, read_column
from clhist._core.runtime.labelled import unlabelled
from clhist._core.runtime.reading import as_array

_SCALARS = {int, float, bool, str, np.float64, np.float32, np.int64, np.int32}
NUMBERS = "biufc"
"""Kinds of dtypes of which NumPy's arrays have no missing elements."""

_PLAIN = {np.ndarray, type(None), *_SCALARS}


def are_plain(values: Collection[Any]) -> bool:
    """Return whether none of the arguments can have missing elements, but for NaT."""
    return _PLAIN.issuperset(map(type, values)) or all(type(each) in _PLAIN or is_device_array(each) for each in values)


def split(name: str, value: Any) -> tuple[Array, np.ndarray | None]:
    """Return an argument as an array, and which elements are missing; None where none is.

    Parameters
    ----------
    name : str
        The argument, for errors.
    value : array_like or column
        Of NumPy, PyOpenCL, pandas, polars or PyArrow. Nullable integers stay integers.

    Returns
    -------
    array : array
        Of NumPy or PyOpenCL. Missing elements have any value.
    missing : numpy.ndarray of bool, or None
        Of the shape of the array.
    """
    kind = type(value)
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
        if (found := _of_texts(value)) is not None:
            return found
    array = as_array(name, value)
    if array.dtype.kind in "mM" and (missing := np.isnat(array)).any():
        return array, missing
    return array, None


def any_missing(*masks: np.ndarray | None) -> np.ndarray | None:
    """Return which elements are missing in one of several arguments of one shape; None where none is."""
    for mask in masks:
        if mask is not None:
            return np.logical_or.reduce([mask for mask in masks if mask is not None])
    return None


def rows_missing(name: str, missing: np.ndarray | None) -> np.ndarray | None:
    """Return which rows of an argument of shape (N, ...) are missing.

    Raises
    ------
    ValueError
        If a part of a row is missing.
    """
    if missing is None or missing.ndim < 2:
        return missing
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
    """Return an argument on the host as an array, a masked one where elements are missing."""
    array, missing = split(name, value)
    return array if missing is None else np.ma.array(array, mask=missing)


def _columns(value: Any) -> Sequence[Any] | None:
    """Return the columns of a dataframe or table; None of all else."""
    if not (hasattr(value, "columns") and len(getattr(value, "shape", ())) == 2):
        return None
    names = getattr(value, "column_names", None)  # PyArrow's `columns` are the columns
    if names is not None:
        return list(value.columns)
    if hasattr(value, "iloc"):  # two columns may have one name
        return [value.iloc[:, n] for n in range(value.shape[1])]
    return [value[name] for name in value.columns]


def _of_rows(name: str, values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return arrays of one shape as one array, and which elements are missing; None if none is."""
    if any(isinstance(each, list | tuple) for each in values):
        return None
    pairs = [split(name, each) for each in values]
    if all(missing is None for _, missing in pairs) or len({array.shape for array, _ in pairs}) > 1:
        return None
    masks = [np.zeros(array.shape, np.bool_) if missing is None else missing for array, missing in pairs]
    return np.stack([array for array, _ in pairs]), np.stack(masks)


def _of_columns(name: str, columns: Sequence[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the columns as one array (N, D), and which elements are missing."""
    pairs = [split(name, column) for column in columns]
    array = np.stack([each for each, _ in pairs], 1) if pairs else np.empty((0, 0))
    if all(missing is None for _, missing in pairs):
        return array, None
    nothing = np.zeros(len(array), np.bool_)
    return array, np.stack([nothing if missing is None else missing for _, missing in pairs], 1)


def _of_texts(value: Any) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return the elements of a column of texts, categories or objects that may be missing; None of all else."""
    if isinstance(getattr(value, "dtype", None), np.dtype) or (parts := present_and_missing(value)) is None:
        return None
    present, missing = parts
    if missing is None:
        return present, None
    array = np.zeros(missing.shape, present.dtype)
    array[~missing] = present
    return array, missing
