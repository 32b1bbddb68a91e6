"""Keys of any sortable values as numbers, on the host.

Values are hashed by what is installed: PyArrow, else pandas, else Python's dictionaries, or numbers sorted by NumPy.
The results are the same.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.imported import is_complete
from clhist._core.opencl.arrays import Array

# A library that is not imported yet takes longer to import than fewer keys than this to number without it.
_WORTH_AN_IMPORT = 1 << 19
_CHUNK = 1 << 14
_CLOSE = 1 << 14  # range of integers that are marked in a table rather than sorted
_FEW = 1 << 11  # which NumPy sorts before pandas has hashed them
# Objects are distinguished by their addresses where no more than this part of some elements are different ones.
_SOME, _DIFFERENT = 1 << 16, 0.98


class Numbering(NamedTuple):
    """Keys as numbers.

    Attributes
    ----------
    numbers : array of int32
        Of each element; -1 where it has no key.
    keys : array
        The different keys, as many as there are groups.
    first : array of int64, optional
        The first position of each of them.
    """

    numbers: Array
    keys: Array
    first: Array | None


def numbered(keys: np.ndarray, sort: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, sorted or in any order, and the number of each key among them; -1 of None, NaN and NaT.

    Raises
    ------
    TypeError
        If they cannot be hashed or sorted.
    """
    flat = np.ascontiguousarray(keys).reshape(-1)
    try:
        if flat.dtype.kind in "biu":  # never missing
            labels, codes = _of_integers(flat)
        else:
            labels, codes = _of_objects(flat, sort) if flat.dtype.kind == "O" else _sorted(*_factorized(flat))
    except TypeError as error:
        can = "hashed" + " and sorted" * sort
        raise TypeError(f"keys: expected values that can be {can}, got {keys.dtype}: {error}") from error
    return labels, codes.reshape(keys.shape)


def distinct(keys: np.ndarray) -> np.ndarray:
    """Return the distinct numbers of a native array of 32 or 64 bits, sorted; NaN is one number, the last."""
    if keys.dtype.kind == "f":
        found: np.ndarray = np.unique(keys)
        return found + found.dtype.type(0)  # one zero, whichever came first
    if keys.size >= _FEW and int(most := keys.max()) - int(least := keys.min()) < keys.size:
        is_there = np.zeros(int(most) - int(least) + 1, bool)
        is_there[keys - least] = True
        return np.flatnonzero(is_there).astype(keys.dtype) + least
    return sorted_distinct(keys)


def sorted_distinct(integers: np.ndarray) -> np.ndarray:
    """Return the distinct integers of an array, sorted.

    `numpy.unique` has hashed them since NumPy 2.3: 60,000 different ones take 40 ms, and 1 ms sorted, on an EPYC core.
    """
    ordered = np.sort(integers, axis=None)
    is_first = np.ones(ordered.shape, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def hashed(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return distinct integers in the order they occur, and the number of each key; None where pandas is not in use."""
    if not are_hashed(keys):
        return None
    codes, labels = library("pandas", keys.size).factorize(keys)
    return np.asarray(labels, keys.dtype), codes


def are_hashed(keys: np.ndarray) -> bool:
    """Whether keys are native integers and pandas is in use, which hashes them faster than NumPy sorts."""
    dtype = keys.dtype
    return dtype.kind in "iu" and dtype.isnative and library("pandas", keys.size) is not None


def _of_integers(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct integers or booleans, sorted, and the number of each key."""
    found = _by_marks(keys)
    if found is None and keys.size >= _FEW and (found := hashed(keys)) is not None:
        return _sorted(*found)
    return _factorized(keys) if found is None else found


def _of_objects(keys: np.ndarray, sort: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of objects; where many elements are one object, of the different objects."""
    libraries = library("pyarrow", keys.size), library("pandas", keys.size)
    addresses = np.frombuffer(memoryview((ctypes.c_char * keys.nbytes).from_address(keys.ctypes.data)), np.intp)
    some = addresses[:: max(1, keys.size // _SOME)]
    if libraries != (None, None) and len(sorted_distinct(some)) < _DIFFERENT * len(some):
        different, codes = _by_bits(addresses)
        labels, numbers = _of_objects(keys[_firsts(codes, len(different))], sort)
        return labels, numbers.take(codes, mode="wrap")
    return (libraries[0] and _of_texts(keys, sort, libraries[0])) or _sorted(*_factorized(keys), sort)


def _firsts(codes: np.ndarray, number: int) -> np.ndarray:
    """Return the first position of each of so many numbers, which have the order of these; there may be -1."""
    size = _SOME
    while size < codes.size and codes[:size].max() + 1 < number:
        size *= 4
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes[:size]), prepend=-1))


def _of_texts(keys: np.ndarray, sort: bool, arrow: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the same of objects, by PyArrow, if those that are not missing are texts."""
    try:
        texts = arrow.array(keys, from_pandas=True)
        if not arrow.types.is_string(texts.type):
            return None
        codes, texts = encoded(texts)
    except (arrow.ArrowException, ValueError, TypeError, OverflowError):  # of several types, or no text of UTF-8
        return None
    labels = keys[_firsts(codes, len(texts))]
    if not {str, np.str_}.issuperset(map(type, labels)):  # others may compare in their own way
        return None
    order = order_of_texts(texts) if sort else np.arange(len(texts))
    return labels[order], renumbered(order, codes)


def encoded(texts: Any) -> tuple[np.ndarray, Any]:
    """Return the number of each text of an array of PyArrow's, -1 of null, and these texts, in the order they occur."""
    found = texts.dictionary_encode()
    chunks = getattr(found, "chunks", [found])  # with one dictionary, which comparing takes long to find out
    indices = import_module("pyarrow").chunked_array([each.indices for each in chunks], "int32")
    return indices.fill_null(-1).to_numpy(), chunks[-1].dictionary if chunks else texts.combine_chunks()


def _factorized(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys in any order, and the number of each key among them; some may be missing."""
    kind, width = keys.dtype.kind, keys.dtype.itemsize
    if kind == "O":
        pandas = library("pandas", keys.size)
        if pandas is None or not reads_whole_texts(pandas):
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
    with np.errstate(invalid="ignore"):  # signaling NaN
        flat = np.ascontiguousarray(keys + native.type(0) if kind in "fc" else keys, native)
    bits = flat.view(f"i{width}") if kind in "fmM" else flat
    labels, codes = _by_bits(bits)
    return labels.view(native).astype(keys.dtype, copy=False), codes


def _by_marks(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the same of integers close to each other, which are sorted then; None of others."""
    if not keys.size:
        return None
    dtype = keys.dtype
    keys = keys.view(np.uint8) if dtype.kind == "b" else keys.astype(dtype.newbyteorder("="), copy=False)
    least, most = keys.min(), keys.max()
    if int(most) - int(least) >= max(_CLOSE, keys.size):
        return None
    places = (keys - least if keys.itemsize == 8 else keys.astype(np.intp) - least).astype(np.intp, copy=False)
    marks = np.zeros(int(most) - int(least) + 1, bool)
    marks[places] = True
    found = np.flatnonzero(marks)
    ranks = np.zeros(marks.size, np.int32)
    ranks[found] = np.arange(found.size)
    return (found.astype(keys.dtype) + least).astype(dtype, copy=False), ranks[places]


def _by_bits(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of keys that are equal if their bytes are."""
    if (arrow := library("pyarrow", keys.size)) is not None:
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
    pandas = library("pandas", keys.size)
    if pandas is not None and (keys.dtype.kind != "U" or reads_whole_texts(pandas)):
        codes, found = pandas.factorize(keys)
        return np.asarray(found, keys.dtype), codes
    if keys.dtype.kind in "SU":
        return _by_dictionary(keys)
    found, codes = np.unique(keys, return_inverse=True)
    return found, codes.reshape(-1)


@lru_cache(maxsize=1)
def reads_whole_texts(pandas: Any) -> bool:
    """Whether `pandas.factorize` tells texts apart that differ behind a NUL, as it does since pandas 3.1."""
    return len(pandas.factorize(np.array(["a", "a\0b"], object))[1]) == 2


def _by_dictionary(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by a dictionary of Python's, a chunk at a time."""
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    listed = chain.from_iterable(keys[begin : begin + _CHUNK].tolist() for begin in range(0, keys.size, _CHUNK))
    codes = np.fromiter(map(numbers.__getitem__, listed), np.int64, keys.size)
    labels = np.empty(len(numbers), keys.dtype)
    labels[:] = list(numbers)
    return labels, codes


def _sorted(labels: np.ndarray, codes: np.ndarray, sort: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels that are not missing, sorted, and the numbers in them; -1 stays, as of missing ones."""
    kept = np.flatnonzero(~_missing(labels))
    if not sort:
        order = kept
    elif labels.dtype.kind == "O":  # which NumPy sorts at a third of Python's speed
        order = np.array(sorted(kept.tolist(), key=labels.tolist().__getitem__), np.intp)
    else:
        order = kept[np.argsort(labels[kept], kind="stable")]
    codes = renumbered(order, codes, len(labels))
    labels = labels[order]
    if labels.dtype.kind in "fc":
        labels = (labels + labels.dtype.type(0)).astype(labels.dtype, copy=False)  # one zero, whichever came first
    return labels, codes


def order_of_texts(labels: Any) -> np.ndarray:
    """Return what sorts an array of different texts of PyArrow's: by 8 bytes at a time, or if 64 agree by PyArrow.

    UTF-8 sorts as the characters do. Labels are often numbered, so the first 8 bytes come after those that all share.
    """
    compute = import_module("pyarrow.compute")
    if not len(labels):
        return np.empty(0, np.intp)
    least, most = (each.as_py().encode() for each in compute.min_max(labels).values())
    shared = next((n for n, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))
    _, offsets, data = labels.buffers()
    places = np.frombuffer(offsets, np.int64 if str(labels.type).startswith("large") else np.int32)
    places = places[labels.offset : labels.offset + len(labels) + 1].astype(np.int64)
    characters = np.zeros(places[-1] + 8, np.uint8)
    characters[:-8] = np.frombuffer(data or b"", np.uint8)[: places[-1]]
    words = np.ndarray(len(characters) - 7, ">u8", characters, strides=(1,))
    order, tied, runs = (np.arange(len(labels)) for _ in range(3))  # tied: positions of texts that agree so far
    for begin in range(shared, shared + 64, 8):
        rows = order[tied]
        ends = places[1:][rows]
        begins = np.minimum(places[rows] + begin, ends)
        beyond = (64 - 8 * np.minimum(ends - begins, 8)).astype(np.uint64)  # bits of the next text
        found = words[begins].astype(np.uint64) >> beyond << beyond
        if begin > shared:
            found = runs * len(rows) + np.unique(found, return_inverse=True)[1]
        by = np.argsort(found)
        order[tied], found = rows[by], found[by]
        same = np.r_[False, found[1:] == found[:-1], False]
        if not same.any():
            return order
        tied, runs = (each[same[1:] | same[:-1]] for each in (tied, np.cumsum(~same[:-1])))
    rows = order[tied]
    order[tied] = rows[compute.sort_indices(labels.take(import_module("pyarrow").array(rows))).to_numpy()]
    return order


def renumbered(order: np.ndarray, codes: np.ndarray, number: int | None = None) -> np.ndarray:
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


def library(name: str, size: int = _WORTH_AN_IMPORT) -> Any:
    """Return a library if it is installed, and imported already or worth it for so many keys."""
    if is_complete(name):
        return sys.modules[name]
    if size < _WORTH_AN_IMPORT:
        return None
    try:
        found = import_module(name)
    except ImportError:
        return None
    return found if is_complete(name) else None


def numbered_by_host(keys: np.ndarray, sort: bool, first: bool, missing: bool) -> Numbering:
    """Return keys as numbers, as `clhist.grouped.factorized.factorized`, by the host."""
    in_order = None if sort or first else hashed(keys)
    if in_order is not None:
        return Numbering(in_order[1].astype(np.int32 if keys.size < 2**31 else np.int64), in_order[0], None)
    labels, numbers = numbered(keys, sort)
    numbers = numbers.astype(np.int32 if keys.size < 2**31 else np.int64, copy=False)
    has_none = numbers < 0
    if missing and has_none.any():
        numbers = np.where(has_none, numbers.dtype.type(len(labels)), numbers)
        one = keys[has_none][:1].astype(labels.dtype, copy=False)
        labels = np.concatenate([labels, one], dtype=labels.dtype)  # whose byte order is not NumPy's choice
    if sort and not first:
        return Numbering(numbers, labels, None)
    ordered, others, positions = in_first_order(numbers, labels)
    if not sort:
        return Numbering(ordered, others, np.sort(positions) if first else None)
    return Numbering(numbers, labels, positions if first else None)


def in_first_order(numbers: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers and labels in the order of the labels' first positions, and these, in the order of before.

    A number of -1 stays.
    """
    positions = np.zeros(len(labels) + 1, np.int64)
    flat = numbers.reshape(-1)
    positions[flat[::-1]] = np.arange(flat.size - 1, -1, -1)  # the last that is written is the first one
    positions = positions[: len(labels)]
    order = np.argsort(positions)
    ranks = np.full(len(labels) + 1, -1, numbers.dtype)
    ranks[order] = np.arange(len(labels), dtype=numbers.dtype)
    return ranks.take(numbers, mode="wrap"), labels[order], positions  # which checks no bounds
