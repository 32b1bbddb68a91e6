"""Columns of pandas, polars and PyArrow, and masked arrays, as keys: their numbers, and those that are missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from clhist._core.opencl.arrays import is_device_array
from clhist._core.opencl.masks import mask_of
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


def by_its_library(keys: Any, sort: bool) -> tuple[np.ndarray, Any] | None:
    """Return the numbers and labels, of text PyArrow's, of a column whose library numbers its values; else None."""
    if hasattr(keys, "factorize") and not isinstance(keys.dtype, np.dtype):  # pandas
        if keys.dtype.kind in "iub":
            return None
        if getattr(keys.dtype, "storage", "") == "pyarrow" or hasattr(keys.dtype, "pyarrow_dtype"):
            found = _of_arrow(import_module("pyarrow").array(getattr(keys, "array", keys)), sort)
            if found is not None:
                return found
        if getattr(keys.dtype, "storage", "") == "python" and not reads_whole_texts(import_module("pandas")):
            return None
        codes, labels = keys.factorize()
        labels, numbers = numbered(np.asarray(labels), sort)
        codes = np.append(numbers, -1).take(codes, mode="wrap")
        return (codes, labels) if sort else in_first_order(codes, labels)[:2]
    if hasattr(keys, "to_arrow") and hasattr(keys, "drop_nulls"):  # polars
        kind = str(keys.dtype).partition("(")[0]
        if kind == "Enum":
            return _of_enum(keys, sort)
        is_text = kind in ("String", "Categorical")
        if not is_text or library("pyarrow") is None:
            return None
        keys = keys.to_arrow()
    return _of_arrow(keys, sort) if hasattr(keys, "dictionary_encode") else None


def _of_enum(keys: Any, sort: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of an Enum of polars, whose order is that of its categories."""
    categories = np.asarray(keys.dtype.categories.to_list(), object)
    codes = keys.to_physical().cast(type(keys)([0]).dtype).fill_null(-1).to_numpy()
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(categories)))
    codes, labels = renumbered(used, codes, len(categories)), categories[used]
    return (codes, labels) if sort else in_first_order(codes, labels)[:2]


def _of_arrow(keys: Any, sort: bool) -> tuple[np.ndarray, Any] | None:
    """Return the same of an array of PyArrow's, if it is of text."""
    arrow = import_module("pyarrow")
    types = arrow.types
    is_encoded = types.is_dictionary(keys.type)
    kind = keys.type.value_type if is_encoded else keys.type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        return None
    nulls = is_encoded and any(each.dictionary.null_count for each in getattr(keys, "chunks", ()))  # not to be unified
    if nulls or types.is_string_view(kind):
        is_encoded, keys = False, keys.cast(arrow.large_string())
    if is_encoded:
        if hasattr(keys, "combine_chunks"):
            keys = keys.unify_dictionaries().combine_chunks()
        indices = keys.indices
        if indices.null_count:  # and they may be unsigned
            indices = indices.cast(arrow.int64()).fill_null(-1)
        codes, labels = _occurring(arrow, indices.to_numpy(), keys.dictionary)
    else:
        codes, labels = encoded(keys)
    if not sort:
        return in_first_order(codes, np.asarray(labels))[:2] if is_encoded else (codes, labels)
    is_ordered = is_encoded and keys.type.ordered  # by its dictionary, not as text
    order = np.arange(len(labels)) if is_ordered else order_of_texts(labels)
    return renumbered(order, codes), labels.take(arrow.array(order))


def _occurring(arrow: Any, codes: np.ndarray, labels: Any) -> tuple[np.ndarray, Any]:
    """Return codes and a dictionary without texts that are null, that no element has, or that occur twice."""
    codes = np.where(codes < 0, len(labels), codes).astype(np.intp, copy=False)
    counts = np.bincount(codes, minlength=len(labels) + 1)[:-1]
    used = arrow.array(np.flatnonzero(counts))
    texts = labels.take(used).dictionary_encode()
    places = np.full(len(labels) + 1, -1, np.int64)
    places[used.to_numpy()] = texts.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return places[codes], texts.dictionary


def without_missing(keys: Any) -> tuple[np.ndarray, np.ndarray | None, bool]:
    """Return the keys that are not missing, the mask of those that are, or None, and whether NaN is a key."""
    if type(keys) is np.ndarray:
        return keys, None, False
    if (column := read_column(keys)) is not None:
        return column.present, column.missing, column.nan_is_value
    if isinstance(getattr(keys, "dtype", None), np.dtype):  # of text that is masked
        missing, array = mask_of(keys), as_array("keys", keys)
        return (array if missing is None else np.asarray(array)[~missing]), missing, False
    parts = present_and_missing(keys)
    return (as_array("keys", keys), None, False) if parts is None else (*parts, False)


def scattered(numbers: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return the numbers at the elements that are not missing, and what is no group's at the others."""
    dtype = numbers.dtype.newbyteorder("=")
    if dtype.kind == "u":
        fits = dtype.itemsize < 8 or not numbers.size or numbers.max() <= np.iinfo(np.int64).max
        dtype = np.result_type(dtype, np.int8) if dtype.itemsize < 8 else np.dtype(np.int64 if fits else np.uint64)
    found = np.full(missing.shape, -1 if dtype.kind == "i" else np.iinfo(dtype).max, dtype)
    found[~missing] = numbers
    return found


def integers(keys: Any) -> np.ndarray:
    """Return an array of integers, -1 where it is masked; others are returned as they are."""
    present, missing, _ = without_missing(keys)
    if missing is None or present.dtype.kind not in "iub":
        return present
    return scattered(present.view(np.uint8) if present.dtype.kind == "b" else present, missing)


def like_keys(keys: Any) -> Callable[[Any], Any] | None:
    """Return what makes an array of keys a column of the library of `keys`, of its type; None of arrays of NumPy."""
    dtype = getattr(keys, "dtype", None)
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
    if zone := getattr(dtype, "time_zone", None):
        return series(labels).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return series(labels.tolist() if labels.dtype.kind in "OU" else labels, dtype=dtype)
