"""Columns of pandas, polars and PyArrow, and masked arrays, as keys: their codes, and missing ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from clhist._core.opencl.arrays import Array, is_device_array, mask_of
from clhist._core.runtime.columns import present_and_missing, read_column
from clhist._core.runtime.reading import as_array
from clhist.grouped.keys import (
    encoded,
    in_first_order,
    library,
    numbered,
    order_of_texts,
    reads_whole_texts,
    renumbered,
)
from clhist.operators.c_types import native


def by_its_library(keys: Any, sort: bool) -> tuple[np.ndarray, Any] | None:
    """Return the codes and labels of a column that its library can encode; None for others.

    The labels of text are an array of PyArrow.
    """
    if hasattr(keys, "factorize") and not isinstance(keys.dtype, np.dtype):  # pandas
        # Nullable integers are numbered as plain integers are.
        if keys.dtype.kind in "iub":
            return None
        # PyArrow hashes its own strings without a Python object for each.
        if getattr(keys.dtype, "storage", "") == "pyarrow" or hasattr(keys.dtype, "pyarrow_dtype"):
            numbering = _of_arrow(import_module("pyarrow").array(getattr(keys, "array", keys)), sort)
            if numbering is not None:
                return numbering
        # Older pandas merges texts that differ behind a NUL; the caller then numbers the objects.
        if getattr(keys.dtype, "storage", "") == "python" and not reads_whole_texts(import_module("pandas")):
            return None
        try:
            codes, labels = keys.factorize()
        except NotImplementedError:  # by PyArrow
            raise _nested(keys) from None
        # Sort the distinct labels only; the codes of the elements are then replaced by ranks.
        labels, numbers = numbered(np.asarray(labels), sort)
        # Code -1, of a missing element, wraps around to the appended -1.
        codes = np.append(numbers, -1).take(codes, mode="wrap")
        return (codes, labels) if sort else in_first_order(codes, labels)[:2]
    if hasattr(keys, "to_arrow") and hasattr(keys, "drop_nulls"):  # polars
        # The name without parameters, which Enum(...) and Categorical(...) have.
        kind = str(keys.dtype).partition("(")[0]
        if kind == "Enum":
            return _of_enum(keys, sort)
        is_text = kind in ("String", "Categorical")
        if not is_text or library("pyarrow") is None:
            return None
        keys = keys.to_arrow()
    return _of_arrow(keys, sort) if hasattr(keys, "dictionary_encode") else None


def _of_enum(keys: Any, sort: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and labels of an Enum of polars; the labels are in the order of its categories."""
    categories = np.asarray(keys.dtype.categories.to_list(), object)
    # Physical codes are unsigned; only signed ones can represent -1, for nulls.
    codes = keys.to_physical().cast(type(keys)([0]).dtype).fill_null(-1).to_numpy()
    # Categories that do not occur have no group.
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(categories)))
    codes, labels = renumbered(used, codes, len(categories)), categories[used]
    return (codes, labels) if sort else in_first_order(codes, labels)[:2]


def _of_arrow(keys: Any, sort: bool) -> tuple[np.ndarray, Any] | None:
    """Return codes and labels of an array of text of PyArrow; None for other types."""
    arrow = import_module("pyarrow")
    types = arrow.types
    is_encoded = types.is_dictionary(keys.type)
    kind = keys.type.value_type if is_encoded else keys.type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        return None
    # PyArrow does not unify dictionaries that contain null.
    nulls = is_encoded and any(chunk.dictionary.null_count for chunk in getattr(keys, "chunks", ()))
    if nulls or types.is_string_view(kind):
        is_encoded, keys = False, keys.cast(arrow.large_string())
    if is_encoded:
        if hasattr(keys, "combine_chunks"):
            keys = keys.unify_dictionaries().combine_chunks()
        indices = keys.indices
        # Indices may be unsigned, which cannot represent -1.
        if indices.null_count:
            indices = indices.cast(arrow.int64()).fill_null(-1)
        codes, labels = _occurring(arrow, indices.to_numpy(), keys.dictionary)
    else:
        codes, labels = encoded(keys)
    if not sort:
        return in_first_order(codes, np.asarray(labels))[:2] if is_encoded else (codes, labels)
    # Ordered categories have the order of their dictionary, not that of their text.
    is_ordered = is_encoded and keys.type.ordered
    order = np.arange(len(labels)) if is_ordered else order_of_texts(labels)
    return renumbered(order, codes), labels.take(arrow.array(order))


def _occurring(arrow: Any, codes: np.ndarray, labels: Any) -> tuple[np.ndarray, Any]:
    """Return codes and a dictionary without nulls, unused texts and duplicates."""
    # Nulls get a code behind the last one, since numpy.bincount refuses negative numbers.
    codes = np.where(codes < 0, len(labels), codes).astype(np.intp, copy=False)
    counts = np.bincount(codes, minlength=len(labels) + 1)[:-1]
    used = arrow.array(np.flatnonzero(counts))
    # A dictionary may contain a text twice: encode it again, so that both codes become one group.
    texts = labels.take(used).dictionary_encode()
    places = np.full(len(labels) + 1, -1, np.int64)
    places[used.to_numpy()] = texts.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return places[codes], texts.dictionary


def without_missing(keys: Any) -> tuple[np.ndarray, np.ndarray | None, bool]:
    """Return the keys that are not missing, a mask of the missing ones or None, and whether NaN is a key."""
    # Fast path: a plain array has no mask; NaN and NaT are left out when keys are numbered.
    if type(keys) is np.ndarray:
        return keys, None, False
    if (column := read_column(keys)) is not None:
        return column.present, column.missing, column.nan_is_value
    if isinstance(getattr(keys, "dtype", None), np.dtype):  # of text that is masked
        missing, array = mask_of(keys), as_array("keys", keys)
        return (array if missing is None else np.asarray(array)[~missing]), missing, False
    parts = present_and_missing(keys)
    if parts is not None and parts[0].ndim > 1 and hasattr(keys, "to_physical"):  # Struct and Array of polars
        raise _nested(keys)
    return (as_array("keys", keys), None, False) if parts is None else (*parts, False)


def _nested(keys: Any) -> TypeError:
    expected = "expected a column of numbers, text, dates or categories"
    return TypeError(f"keys: {expected}, got {keys.dtype!s:.60}; pass its fields as columns")


def scattered(numbers: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return the numbers at the elements that are not missing, and a number outside of all groups at the others."""
    dtype = numbers.dtype.newbyteorder("=")
    # Prefer a signed type, in which missing elements are -1; the largest unsigned number serves if none is wide enough.
    if dtype.kind == "u":
        fits = dtype.itemsize < 8 or not numbers.size or numbers.max() <= np.iinfo(np.int64).max
        dtype = np.result_type(dtype, np.int8) if dtype.itemsize < 8 else np.dtype(np.int64 if fits else np.uint64)
    result = np.full(missing.shape, -1 if dtype.kind == "i" else np.iinfo(dtype).max, dtype)
    result[~missing] = numbers
    return result


def integers(keys: Any) -> np.ndarray:
    """Return an array of integers with -1 for masked elements; arrays of other dtypes unchanged."""
    present, missing, _ = without_missing(keys)
    if missing is None or present.dtype.kind not in "iub":
        return present
    # Booleans as bytes: a boolean array cannot hold -1.
    return scattered(present.view(np.uint8) if present.dtype.kind == "b" else present, missing)


def like_keys(keys: Any) -> Callable[[Any], Any] | None:
    """Return a function that makes keys a column of the library and type of `keys`; None for NumPy arrays."""
    dtype = getattr(keys, "dtype", None)
    # Libraries are recognised by their attributes, so that none is imported.
    if hasattr(keys, "dictionary_encode"):
        return partial(_as_arrow, kind=keys.type)
    if dtype is None or isinstance(dtype, np.dtype) or is_device_array(keys):
        return None
    if hasattr(keys, "to_physical"):
        return partial(_of_polars, series=type(keys), dtype=dtype)
    is_pandas = hasattr(keys, "isna") and hasattr(dtype, "construct_array_type")
    return partial(_of_pandas, dtype=dtype) if is_pandas else None


def _of_pandas(labels: np.ndarray, dtype: Any) -> Any:
    if isinstance(labels, np.ma.MaskedArray) and hasattr(dtype, "pyarrow_dtype"):
        labels = import_module("pyarrow").array(labels)  # pandas 2 passes a mask beside it, which PyArrow refuses
    return import_module("pandas").array(labels, dtype=dtype)


def _as_arrow(labels: np.ndarray, kind: Any) -> Any:
    pyarrow = import_module("pyarrow")
    if pyarrow.types.is_null(kind):  # to which no other type is cast
        return pyarrow.nulls(len(labels))
    return pyarrow.array(labels.tolist() if labels.dtype.kind in "OU" else labels).cast(kind)


def _of_polars(labels: np.ndarray, series: Any, dtype: Any) -> Any:
    # The labels of dates with a time zone are in UTC, see `ColumnData`.
    if zone := getattr(dtype, "time_zone", None):
        return series(labels).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return series(labels.tolist() if labels.dtype.kind in "OU" else labels, dtype=dtype)


def flattened(array: Array) -> Array:
    """Return an array in one dimension; one of NumPy as kernels take it."""
    if is_device_array(array):
        return array if array.ndim == 1 else array.reshape(-1)
    flat, dtype = array.reshape(-1), native(array.dtype)
    # `numpy.require` takes two microseconds.
    if flat.dtype == dtype and flat.flags.c_contiguous and flat.flags.aligned:
        return flat
    return np.require(flat, dtype, ["C_CONTIGUOUS", "ALIGNED"])
