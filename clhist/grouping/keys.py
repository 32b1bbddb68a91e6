"""Keys of groups as numbers: those of any sortable values, on the host, and how many groups integers make.

Values are hashed by what is installed: PyArrow, else pandas, else Python's dictionaries, or numbers sorted by NumPy.
The results are the same.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib import import_module
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.engine.extremes import extremes
from clhist.engine.scatter import as_array
from clhist.opencl.arrays import Array, as_bytes, is_device_array
from clhist.opencl.masks import mask_of

# Integer keys larger than this, and than so many times the number of elements, are taken for identifiers rather than
# the numbers of groups, each of which has a place in every result.
_MOST_UNASKED = 1 << 24
_SPARSE = 16
# A library that is not imported yet takes longer to import than fewer keys than this to number without it.
_WORTH_AN_IMPORT = 1 << 19
_CHUNK = 1 << 14

_SEVERAL = (
    "number the combinations: numpy.ravel_multi_index((a, b), (A, B)) of integers below A and B, or "
    "pandas.MultiIndex.from_arrays([a, b]) of any values"
)


def numbers_and_labels(keys: Any) -> tuple[Array, np.ndarray | None]:
    """Return the number of the group of each element, and the sorted keys of the groups; None if keys are numbers.

    Parameters
    ----------
    keys : array or column
        As `clhist.group_by` takes them.

    Returns
    -------
    array of integers, numpy.ndarray or None
        -1, or a number beyond the groups, where the key is missing or masked.

    Raises
    ------
    TypeError
        If there is more than one column, or keys cannot be hashed or sorted.
    """
    if keys is None:
        raise TypeError("keys: expected an array, got None; numpy.zeros(n, int) puts n elements into one group")
    _check_one_column(keys)
    if is_device_array(keys):
        if keys.dtype.kind not in "iub":
            raise TypeError(f"keys: expected integers on a device, got {keys.dtype}")
        return (as_bytes(keys) if keys.dtype.kind == "b" else keys), None
    if hasattr(getattr(keys, "cat", None), "codes"):  # a Series of categories
        keys = keys.array
    if hasattr(keys, "codes") and hasattr(keys, "categories"):
        return np.asarray(keys.codes), np.asarray(keys.categories)
    if (found := _by_its_library(keys)) is not None:
        return found
    present, missing = _without_missing(keys)
    labels = None
    if present.dtype.kind not in "iub":
        labels, present = numbered(present)
    elif present.dtype.kind == "b":
        present = as_bytes(present)
    return (present if missing is None else _scattered(present, missing)), labels


def numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, sorted, and the number of each key among them; -1 of None, NaN and NaT.

    Raises
    ------
    TypeError
        If they cannot be hashed or sorted.
    """
    flat = keys.reshape(-1)
    try:
        labels, codes = _factorized(flat)
        labels, codes = _sorted(labels, codes)
    except TypeError as error:
        raise TypeError(f"keys: expected values that can be hashed and sorted, got {keys.dtype}: {error}") from error
    return labels, codes.reshape(keys.shape)


def integers(keys: Any) -> np.ndarray:
    """Return an array of integers, -1 where it is masked; others are returned as they are."""
    present, missing = _without_missing(keys)
    if missing is None or present.dtype.kind not in "iub":
        return present
    return _scattered(present.view(np.uint8) if present.dtype.kind == "b" else present, missing)


def without_na(values: Any) -> Any:
    """Return nullable booleans of pandas as NumPy has them: with NaN if some are missing; all else as it is."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype | None) or getattr(dtype, "kind", "") != "b" or not hasattr(values, "to_numpy"):
        return values
    return values.to_numpy(np.float64, na_value=np.nan) if values.isna().any() else values.to_numpy(np.bool_)


def number_of_groups(keys: Array, queue: cl.CommandQueue) -> int:
    """Return one more than the largest key; raise ValueError if keys look like identifiers."""
    if not keys.size:
        return 0
    return number_up_to(extremes(keys, queue)[0] if is_device_array(keys) else int(keys.max()), keys.size)


def number_up_to(largest: int, size: int) -> int:
    """Return the same of `size` keys, the largest of which is known."""
    if largest >= max(_MOST_UNASKED, _SPARSE * size):
        raise ValueError(
            f"keys: expected numbers of groups, got {largest} among {size}; give num_groups= if that is one, or "
            "number the keys by numpy.unique(keys, return_inverse=True)"
        )
    return max(0, largest + 1)


def _check_one_column(keys: Any) -> None:
    if hasattr(keys, "columns") and hasattr(keys, "shape"):
        names = [str(name) for name in keys.columns]
        hint = f"pass it: group_by(df[{names[0]!r}])" if len(names) == 1 else f"pass one, or {_SEVERAL}"
        raise TypeError(f"keys: expected one column, got a dataframe of {', '.join(names)}; {hint}")
    if isinstance(keys, list | tuple) and any(getattr(each, "shape", ()) != () for each in keys):
        raise TypeError(
            f"keys: expected one array, got a {type(keys).__name__} of {len(keys)}; {_SEVERAL}; numpy.stack makes keys "
            "of several dimensions"
        )


def _by_its_library(keys: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the same of a column whose library numbers its values itself; None of what NumPy has in its own types."""
    if hasattr(keys, "factorize") and not isinstance(keys.dtype, np.dtype):  # pandas
        if keys.dtype.kind in "iub":
            return None
        if getattr(keys.dtype, "storage", "") == "pyarrow" or hasattr(keys.dtype, "pyarrow_dtype"):
            found = _of_arrow(import_module("pyarrow").array(getattr(keys, "array", keys)))
            if found is not None:
                return found
        codes, labels = keys.factorize()
        labels, codes = _sorted(np.asarray(labels), codes)
        return codes, labels
    if hasattr(keys, "to_arrow") and hasattr(keys, "drop_nulls"):  # polars
        is_text = str(keys.dtype).partition("(")[0] in ("String", "Categorical", "Enum")
        if not is_text or _library("pyarrow") is None:
            return None
        keys = keys.to_arrow()
    return _of_arrow(keys) if hasattr(keys, "dictionary_encode") else None


def _of_arrow(keys: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the same of an array of PyArrow's, if it is of text."""
    arrow = import_module("pyarrow")
    if arrow.types.is_dictionary(keys.type):
        keys = keys.cast(keys.type.value_type)
    if arrow.types.is_string_view(keys.type):
        keys = keys.cast(arrow.large_string())
    if not (arrow.types.is_string(keys.type) or arrow.types.is_large_string(keys.type)):
        return None
    found = keys.dictionary_encode()
    if hasattr(found, "combine_chunks"):
        found = found.combine_chunks()
    labels = found.dictionary
    order = _order_of_texts(labels)
    codes = _renumbered(order, found.indices.fill_null(-1).to_numpy(zero_copy_only=False))
    return codes, labels.take(arrow.array(order)).to_numpy(zero_copy_only=False)


def _order_of_texts(labels: Any) -> np.ndarray:
    """Return what sorts an array of different texts of PyArrow's: by 8 bytes if these differ, else by PyArrow.

    UTF-8 sorts as the characters do. Labels are often numbered, so the 8 bytes come after those that all share.
    """
    compute = import_module("pyarrow.compute")
    if not len(labels):
        return np.empty(0, np.intp)
    least, most = (each.as_py().encode() for each in compute.min_max(labels).values())
    shared = next((n for n, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))
    _, offsets, data = labels.buffers()
    places = np.frombuffer(offsets, np.int64 if str(labels.type).startswith("large") else np.int32)
    places = places[labels.offset : labels.offset + len(labels) + 1].astype(np.int64)
    begin: Any = places[:-1] + shared
    characters = np.zeros(places[-1] + 8, np.uint8)
    characters[:-8] = np.frombuffer(data or b"", np.uint8)[: places[-1]]
    words = np.ndarray(len(characters) - 7, ">u8", characters, strides=(1,))[begin].astype(np.uint64)
    # Bits beyond the end of a text are those of the next one.
    bits = 8 * np.clip(places[1:] - begin, 0, 8)
    words &= ~np.where(bits == 64, np.uint64(0), np.uint64(2**64 - 1) >> np.minimum(bits, 63).astype(np.uint64))
    order = np.argsort(words)
    if (np.diff(words[order]) == 0).any():
        return compute.sort_indices(labels).to_numpy()
    return order


def _without_missing(keys: Any) -> tuple[np.ndarray, np.ndarray | None]:
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


def _scattered(numbers: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return the numbers at the elements that are not missing, and what is no group's at the others."""
    dtype = numbers.dtype.newbyteorder("=")
    if dtype.kind == "u":
        fits = dtype.itemsize < 8 or not numbers.size or numbers.max() <= np.iinfo(np.int64).max
        dtype = np.result_type(dtype, np.int8) if dtype.itemsize < 8 else np.dtype(np.int64 if fits else np.uint64)
    found = np.full(missing.shape, -1 if dtype.kind == "i" else np.iinfo(dtype).max, dtype)
    found[~missing] = numbers
    return found


def _factorized(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys in any order, and the number of each key among them; some may be missing."""
    kind, width = keys.dtype.kind, keys.dtype.itemsize
    if kind == "O":
        pandas = _library("pandas", keys.size)
        if pandas is None:
            return _by_dictionary(keys)
        codes, labels = pandas.factorize(keys)
        return labels, codes
    if kind == "T":
        return _by_dictionary(keys)
    if kind not in "fcmMSU" or not width or keys.dtype.type is np.longdouble or keys.dtype.type is np.clongdouble:
        labels, codes = np.unique(keys, return_inverse=True)
        return labels, codes.reshape(-1)
    native = keys.dtype if kind in "SU" else keys.dtype.newbyteorder("=")
    # Bits are compared. There is one zero, and what is not equal to itself is left out later.
    flat = np.ascontiguousarray(keys + native.type(0) if kind in "fc" else keys, native)
    bits = flat.view(f"i{width}") if kind in "fmM" else flat
    labels, codes = _by_bits(bits)
    return labels.view(native).astype(keys.dtype, copy=False), codes


def _by_bits(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of keys that are equal if their bytes are."""
    if (arrow := _library("pyarrow", keys.size)) is not None:
        if keys.dtype.kind == "i":
            given = arrow.array(keys)
        else:
            memory = arrow.py_buffer(keys.view(np.uint8))
            parts = arrow.binary(keys.dtype.itemsize), keys.size, [None, memory]
            given = arrow.FixedSizeBinaryArray.from_buffers(*parts)
        found = given.dictionary_encode()
        size = len(found.dictionary)
        labels = np.frombuffer(found.dictionary.buffers()[1], keys.dtype, size) if size else keys[:0]
        return labels, found.indices.to_numpy()
    if (pandas := _library("pandas", keys.size)) is not None:
        codes, found = pandas.factorize(keys)
        return np.asarray(found, keys.dtype), codes
    if keys.dtype.kind in "SU":
        return _by_dictionary(keys)
    found, codes = np.unique(keys, return_inverse=True)
    return found, codes.reshape(-1)


def _by_dictionary(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by a dictionary of Python's, a chunk at a time."""
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    codes = np.empty(keys.size, np.int64)
    for begin in range(0, keys.size, _CHUNK):
        chunk = keys[begin : begin + _CHUNK].tolist()
        codes[begin : begin + _CHUNK] = np.fromiter(map(numbers.__getitem__, chunk), np.int64, len(chunk))
    labels = np.empty(len(numbers), keys.dtype)
    labels[:] = list(numbers)
    return labels, codes


def _sorted(labels: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels that are not missing, sorted, and the numbers in them; -1 stays, as of missing ones."""
    kept = np.flatnonzero(~_missing(labels))
    if labels.dtype.kind == "O":  # which NumPy sorts at a third of Python's speed
        order = np.array(sorted(kept.tolist(), key=labels.tolist().__getitem__), np.intp)
    else:
        order = kept[np.argsort(labels[kept], kind="stable")]
    codes = _renumbered(order, codes, len(labels))
    labels = labels[order]
    if labels.dtype.kind in "fc":
        labels = labels + labels.dtype.type(0)  # one zero, whichever came first
    return labels, codes


def _renumbered(order: np.ndarray, codes: np.ndarray, number: int | None = None) -> np.ndarray:
    """Return the numbers in sorted order of `number` labels, of which some may be missing; -1 stays."""
    number = len(order) if number is None else number
    dtype = np.int32 if number < np.iinfo(np.int32).max else np.int64
    places = np.full(number + 1, -1, dtype)  # the last is that of -1
    places[order] = np.arange(len(order), dtype=dtype)
    return places.take(codes, mode="wrap")  # which checks no bounds


def _missing(labels: np.ndarray) -> np.ndarray:
    if labels.dtype.kind in "OT":
        return np.fromiter(map(_is_missing, labels.tolist()), bool, len(labels))
    return labels != labels if labels.dtype.kind in "fcmM" else np.zeros(len(labels), bool)


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas.NA, which is neither
        return type(label).__name__ == "NAType"


def _library(name: str, size: int = _WORTH_AN_IMPORT) -> Any:
    """Return a library if it is installed, and imported already or worth it for so many keys."""
    if sys.modules.get(name) is None and size < _WORTH_AN_IMPORT:
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
