"""Columns of pandas, polars and PyArrow, and masked arrays: their values, and those that are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from clhist.engine.scatter import as_array
from clhist.grouping.factorized import in_first_order
from clhist.grouping.keys import encoded, library, numbered, order_of_texts, renumbered
from clhist.opencl.masks import mask_of


def by_its_library(keys: Any, sort: bool) -> tuple[np.ndarray, Any] | None:
    """Return the numbers and labels, of text PyArrow's, of a column whose library numbers its values; else None."""
    if hasattr(keys, "factorize") and not isinstance(keys.dtype, np.dtype):  # pandas
        if keys.dtype.kind in "iub":
            return None
        if getattr(keys.dtype, "storage", "") == "pyarrow" or hasattr(keys.dtype, "pyarrow_dtype"):
            found = _of_arrow(import_module("pyarrow").array(getattr(keys, "array", keys)), sort)
            if found is not None:
                return found
        codes, labels = keys.factorize()
        labels, numbers = numbered(np.asarray(labels), sort)
        codes = np.append(numbers, -1).take(codes, mode="wrap")
        return (codes, labels) if sort else in_first_order(codes, labels)[:2]
    if hasattr(keys, "to_arrow") and hasattr(keys, "drop_nulls"):  # polars
        is_text = str(keys.dtype).partition("(")[0] in ("String", "Categorical", "Enum")
        if not is_text or library("pyarrow") is None:
            return None
        keys = keys.to_arrow()
    return _of_arrow(keys, sort) if hasattr(keys, "dictionary_encode") else None


def from_arrow(keys: Any) -> Any:
    """Return a column that has Arrow's C data interface alone as PyArrow's, without a copy; any other as it is."""
    if hasattr(keys, "dtype") or hasattr(keys, "dictionary_encode"):
        return keys
    if hasattr(keys, "__arrow_c_stream__") and not hasattr(keys, "columns"):
        return import_module("pyarrow").chunked_array(keys)
    return import_module("pyarrow").array(keys) if hasattr(keys, "__arrow_c_array__") else keys


def _of_arrow(keys: Any, sort: bool) -> tuple[np.ndarray, Any] | None:
    """Return the same of an array of PyArrow's, if it is of text."""
    arrow = import_module("pyarrow")
    is_encoded = arrow.types.is_dictionary(keys.type)
    kind = keys.type.value_type if is_encoded else keys.type
    nulls = is_encoded and any(each.dictionary.null_count for each in getattr(keys, "chunks", ()))  # not to be unified
    if nulls or arrow.types.is_string_view(kind):
        kind, is_encoded = arrow.large_string(), False
        keys = keys.cast(kind)
    if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind)):
        return None
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
    order = order_of_texts(labels)
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


def without_missing(keys: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the keys that are there, and which elements lack one; all keys and None where all are there."""
    dtype = getattr(keys, "dtype", None)
    if isinstance(dtype, np.dtype):  # in which NumPy has its own missing values
        missing, array = mask_of(keys), as_array("keys", keys)
        return (array if missing is None else np.asarray(array)[~missing]), missing
    for missing_of, present_of in (("isna", "dropna"), ("is_null", "drop_nulls"), ("is_null", "drop_null")):
        if hasattr(keys, missing_of) and hasattr(keys, present_of):  # of pandas, polars and PyArrow
            missing = np.asarray(getattr(keys, missing_of)(), bool)
            present = np.asarray(getattr(keys, present_of)(), getattr(dtype, "numpy_dtype", None))
            return present, missing if missing.any() else None
    return as_array("keys", keys), None


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
    present, missing = without_missing(keys)
    if missing is None or present.dtype.kind not in "iub":
        return present
    return scattered(present.view(np.uint8) if present.dtype.kind == "b" else present, missing)


def nullable(values: Any) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return numbers or booleans of a nullable column, any where they are missing, and where; None of all else."""
    values = from_arrow(values)
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) or not (hasattr(dtype, "numpy_dtype") or hasattr(values, "is_null")):
        return None
    present, missing = without_missing(values)
    if missing is None or present.dtype.kind not in "iufb":
        return (present, None) if present.dtype.kind in "iufb" else None
    found = np.zeros(missing.shape, present.dtype)
    found[~missing] = present
    return found, missing
