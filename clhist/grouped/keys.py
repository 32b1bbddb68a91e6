"""Number keys of any sortable values on the host.

PyArrow hashes the values if it is installed, else pandas, else Python's dictionaries; NumPy sorts numbers. The result
does not depend on the library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import defaultdict
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from clhist._core.kinds import is_complete
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.host_memory import converted

# Below so many keys, importing a library takes longer than numbering them without it.
_WORTH_AN_IMPORT = 1 << 19
_CHUNK = 1 << 14  # keys converted to Python objects at a time, which bounds the memory of these
_CLOSE = 1 << 14  # range of integers that are marked in a table rather than sorted
_FEW = 1 << 11  # below so many keys, NumPy's sort is faster than pandas' hash table
_FEW_SAMPLE = 1 << 9  # keys of which three quarters are different if a thousand are
_PIECE, _SAMPLE = 1 << 18, 1 << 14  # least texts for a thread; texts that show whether few are distinct
# Objects are compared by address first if less than this share of a sample of the elements are distinct objects.
_SOME, _DIFFERENT = 1 << 16, 0.98


class Numbering(NamedTuple):
    """Keys as numbers.

    Attributes
    ----------
    numbers : array of int32
        Of each element; -1 where it has no key. Undefined if only the keys were needed.
    keys : array
        The different keys, as many as there are groups.
    first : array of int64, optional
        The first position of each of them.
    counts: array of int64, optional
        How many elements have each of them, where they were counted.
    """

    numbers: Array
    keys: Array
    first: Array | None
    counts: Array | None = None


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
            labels, codes = _of_objects(flat, sort) if flat.dtype.kind == "O" else _sorted(*_factorized(flat), sort)
    except TypeError as error:
        can = "hashed" + " and sorted" * sort
        raise TypeError(f"keys: expected values that can be {can}, got {keys.dtype}: {error}") from error
    return labels, codes.reshape(keys.shape)


def distinct(keys: np.ndarray) -> np.ndarray:
    """Return the distinct numbers of a native array of 32 or 64 bits, sorted; NaN is one number, the last."""
    if keys.dtype.kind == "f":
        unique_keys: np.ndarray = np.unique(keys)
        return unique_keys + unique_keys.dtype.type(0)  # -0.0 becomes 0.0, whichever came first
    # Keys of a small range: marks take one pass, and no sort.
    if keys.size >= _FEW and int(most := keys.max()) - int(least := keys.min()) < keys.size:
        # Python integers: a difference of two int64 may wrap.
        is_there = np.zeros(int(most) - int(least) + 1, bool)
        is_there[keys - least] = True
        return np.flatnonzero(is_there).astype(keys.dtype) + least
    return sorted_distinct(keys)


def sorted_distinct(integers: np.ndarray) -> np.ndarray:
    """Return the distinct integers of an array, sorted.

    If few of a sample are different, pandas hashes them where it is in use. `numpy.unique`, which has hashed them since
    NumPy 2.3, takes 3 to 17 times as long as sorting 32 and 64 bits, on an EPYC core with AVX2.
    """
    if integers.size >= _FEW and are_hashed(integers):
        some = _sorted_distinct(integers.reshape(-1)[:: integers.size // _FEW_SAMPLE])
        if len(some) < _FEW_SAMPLE * 3 // 4:
            integers = library("pandas", integers.size).unique(integers.reshape(-1))
    return _sorted_distinct(integers)


def _sorted_distinct(integers: np.ndarray) -> np.ndarray:
    dtype = integers.dtype
    # Without AVX-512 NumPy sorts 16 bits a tenth as fast as 32.
    ordered = np.sort(integers.astype(np.int32) if dtype.itemsize == 2 else integers, axis=None)
    is_first = np.ones(ordered.shape, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first].astype(dtype, copy=False)


def hashed(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return distinct numbers in the order they occur, and the number of each key; None where pandas is not in use.

    NaN has number -1.
    """
    if not are_hashed(keys):
        return None
    codes, labels = library("pandas", keys.size).factorize(keys)
    distinct_keys = np.asarray(labels, keys.dtype)
    return (distinct_keys + keys.dtype.type(0) if keys.dtype.kind == "f" else distinct_keys), codes  # -0.0 becomes 0.0


def are_hashed(keys: np.ndarray) -> bool:
    """Whether keys are native numbers and pandas is in use, which hashes them faster than NumPy sorts."""
    dtype = keys.dtype
    is_hashable = dtype.kind in "iu" or dtype in (np.float32, np.float64)
    return is_hashable and dtype.isnative and library("pandas", keys.size) is not None


def _of_integers(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct integers or booleans, sorted, and the number of each key."""
    numbering = _by_marks(keys)
    # Without a small range: pandas hashes many keys, NumPy sorts few.
    if numbering is None and keys.size >= _FEW and (numbering := hashed(keys)) is not None:
        return _sorted(*numbering)
    return _factorized(keys) if numbering is None else numbering


def _of_objects(keys: np.ndarray, sort: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct objects and the number of each key; hash repeated objects once, by their address."""
    libraries = library("pyarrow", keys.size), library("pandas", keys.size)
    # An array of objects consists of their addresses, but NumPy refuses to view it as integers.
    addresses = np.frombuffer(memoryview((ctypes.c_char * keys.nbytes).from_address(keys.ctypes.data)), np.intp)
    some = addresses[:: max(1, keys.size // _SOME)]
    # Many elements are the same object: number the addresses, then only the distinct objects.
    if libraries != (None, None) and len(sorted_distinct(some)) < _DIFFERENT * len(some):
        different, codes = _by_bits(addresses)
        labels, numbers = _of_objects(keys[_firsts(codes, len(different))], sort)
        return labels, numbers.take(codes, mode="wrap")
    return (libraries[0] and _of_texts(keys, sort, libraries[0])) or _sorted(*_factorized(keys), sort)


def _firsts(codes: np.ndarray, number: int) -> np.ndarray:
    """Return the first position of each of `number` codes that are in the order of first occurrence; -1 is no code."""
    size = _SOME
    # All codes mostly occur within the first elements.
    while size < codes.size and codes[:size].max() + 1 < number:
        size *= 4
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes[:size]), prepend=-1))


def _of_texts(keys: np.ndarray, sort: bool, arrow: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return distinct texts and the number of each, by PyArrow; None if some objects are neither text nor missing."""
    try:
        texts = arrow.array(keys, from_pandas=True)
        if not arrow.types.is_string(texts.type):
            return None
        codes, texts = encoded(texts)
    except (arrow.ArrowException, ValueError, TypeError, OverflowError):
        return None  # mixed types, or text that is not valid UTF-8
    labels = keys[_firsts(codes, len(texts))]
    # Subclasses of str may define their own equality.
    if not {str, np.str_}.issuperset(map(type, labels)):
        return None
    order = order_of_texts(texts) if sort else np.arange(len(texts))
    return labels[order], renumbered(order, codes)


def encoded(texts: Any) -> tuple[np.ndarray, Any]:
    """Return the number of each text of an array of PyArrow's, -1 of null, and these texts, in the order they occur."""
    encoding = _encoded_by_threads(texts)
    # All chunks share one dictionary: join the indices alone, since PyArrow would compare the dictionaries.
    chunks = getattr(encoding, "chunks", [encoding])
    indices = import_module("pyarrow").chunked_array([chunk.indices for chunk in chunks], "int32")
    return (indices.fill_null(-1) if indices.null_count else indices).to_numpy(), chunks[
        -1
    ].dictionary if chunks else texts.combine_chunks()


def _encoded_by_threads(texts: Any) -> Any:
    """Return texts with one dictionary in the order they occur; if few are different, by a thread for each core."""
    threads = min(os.cpu_count() or 1, len(texts) // _PIECE)
    first = texts[:_SAMPLE].dictionary_encode() if threads > 1 else texts
    chunks = getattr(first, "chunks", [first])
    # Unifying the large dictionaries of many distinct texts costs what the threads save.
    if threads < 2 or len(chunks[-1].dictionary) > _SAMPLE // 8:
        return texts.dictionary_encode()
    from concurrent.futures import ThreadPoolExecutor  # 5 ms, for texts alone

    arrow, share = import_module("pyarrow"), -(-len(texts) // threads)
    with ThreadPoolExecutor(threads) as pool:
        pieces = [*pool.map(lambda n: texts[n * share : (n + 1) * share].dictionary_encode(), range(threads))]
    chunks = [chunk for piece in pieces for chunk in getattr(piece, "chunks", [piece])]
    return arrow.chunked_array(chunks).unify_dictionaries()


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
    if kind in "biu":
        return _by_sort(keys)
    if kind == "f" and (numbering := hashed(keys)) is not None:
        return numbering
    # NumPy sorts records, empty strings, and long doubles, whose padding may differ.
    if kind not in "fcmMSU" or not width or keys.dtype.type is np.longdouble or keys.dtype.type is np.clongdouble:
        labels, codes = np.unique(keys, return_inverse=True)
        return labels, codes.reshape(-1)
    native = keys.dtype if kind in "SU" else keys.dtype.newbyteorder("=")
    # Compare bits: adding 0 turns -0.0 into 0.0. NaN and NaT, of several bit patterns, are left out later.
    with np.errstate(invalid="ignore"):  # signaling NaN
        flat = np.ascontiguousarray(keys + native.type(0) if kind in "fc" else keys, native)
    bits = flat.view(f"i{width}") if kind in "fmM" else flat
    labels, codes = _by_bits(bits)
    return labels.view(native).astype(keys.dtype, copy=False), codes


def _by_marks(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return distinct integers, sorted, and the number of each key, by marks; None if their range is large."""
    if not keys.size:
        return None
    dtype = keys.dtype
    keys = keys.view(np.uint8) if dtype.kind == "b" else keys.astype(dtype.newbyteorder("="), copy=False)
    least, most = keys.min(), keys.max()
    if int(most) - int(least) >= max(_CLOSE, keys.size):
        return None
    # Differences of narrow integers may wrap in their dtype; those of 64 bits fit, as the range is small.
    places = (keys - least if keys.itemsize == 8 else keys.astype(np.intp) - least).astype(np.intp, copy=False)
    marks = np.zeros(int(most) - int(least) + 1, bool)
    marks[places] = True
    present = np.flatnonzero(marks)
    ranks = np.zeros(marks.size, np.int32)
    ranks[present] = np.arange(present.size)
    return (present.astype(keys.dtype) + least).astype(dtype, copy=False), ranks[places]


def _by_bits(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct keys and the number of each, for keys that are equal if their bytes are."""
    if (arrow := library("pyarrow", keys.size)) is not None:
        if keys.dtype.kind == "i":
            array = arrow.array(keys)
        else:
            # Compare bytes of a fixed width, in place.
            memory = arrow.py_buffer(keys.view(np.uint8))
            parts = arrow.binary(keys.dtype.itemsize), keys.size, [None, memory]
            array = arrow.FixedSizeBinaryArray.from_buffers(*parts)
        encoding = array.dictionary_encode()
        size = len(encoding.dictionary)
        labels = np.frombuffer(encoding.dictionary.buffers()[1], keys.dtype, size) if size else keys[:0]
        return labels, encoding.indices.to_numpy()
    pandas = library("pandas", keys.size)
    if pandas is not None and (keys.dtype.kind != "U" or reads_whole_texts(pandas)):
        codes, labels = pandas.factorize(keys)
        return np.asarray(labels, keys.dtype), codes
    return _by_dictionary(keys) if keys.dtype.kind in "SU" else _by_sort(keys)


def _by_sort(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, sorted, and the number of each key: `numpy.unique`, in two thirds of its time."""
    order = keys.argsort()
    ordered = keys[order]
    is_first = np.ones(ordered.shape, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    codes = np.empty(keys.size, np.intp)
    codes[order] = np.cumsum(is_first) - 1
    return ordered[is_first], codes


@lru_cache(maxsize=1)
def reads_whole_texts(pandas: Any) -> bool:
    """Whether `pandas.factorize` tells texts apart that differ behind a NUL, as it does since pandas 3.1."""
    return len(pandas.factorize(np.array(["a", "a\0b"], object))[1]) == 2


def _by_dictionary(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct keys and the number of each by a Python dictionary, a chunk at a time."""
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    listed = chain.from_iterable(keys[begin : begin + _CHUNK].tolist() for begin in range(0, keys.size, _CHUNK))
    codes = np.fromiter(map(numbers.__getitem__, listed), np.int64, keys.size)
    labels = np.empty(len(numbers), keys.dtype)
    labels[:] = list(numbers)
    return labels, codes


def _sorted(labels: np.ndarray, codes: np.ndarray, sort: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels that are not missing, sorted, and the codes of these; missing keys have code -1."""
    present = np.flatnonzero(~_missing(labels))
    if not sort:
        order = present
    elif labels.dtype.kind == "O":
        # NumPy sorts objects at a third of the speed of Python's sorted().
        order = np.array(sorted(present.tolist(), key=labels.tolist().__getitem__), np.intp)
    else:
        order = present[np.argsort(labels[present])]
    codes = renumbered(order, codes, len(labels))
    labels = labels[order]
    if labels.dtype.kind in "fc":
        labels = (labels + labels.dtype.type(0)).astype(labels.dtype, copy=False)  # -0.0 becomes 0.0
    return labels, codes


def order_of_texts(labels: Any) -> np.ndarray:
    """Return the permutation that sorts an array of distinct texts of PyArrow.

    Texts are compared by 8 bytes at a time after their common prefix, since labels are often numbered. PyArrow sorts
    those that agree in 64 bytes. The order of UTF-8 bytes is that of the code points.
    """
    compute = import_module("pyarrow.compute")
    if not len(labels):
        return np.empty(0, np.intp)
    least, most = (bound.as_py().encode() for bound in compute.min_max(labels).values())
    shared = next((n for n, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))
    _, offsets, data = labels.buffers()
    places = np.frombuffer(offsets, np.int64 if str(labels.type).startswith("large") else np.int32)
    places = places[labels.offset : labels.offset + len(labels) + 1].astype(np.int64)
    # Padding: the word that begins at the last byte ends behind the data.
    characters = np.zeros(places[-1] + 8, np.uint8)
    characters[:-8] = np.frombuffer(data or b"", np.uint8)[: places[-1]]
    # A word begins at each byte, without a copy; big-endian words have the order of their bytes.
    words = np.ndarray(len(characters) - 7, ">u8", characters, strides=(1,))
    # tied: positions in `order` whose texts agree with a neighbour so far; runs: which of them agree.
    order, tied, runs = (np.arange(len(labels)) for _ in range(3))
    for begin in range(shared, shared + 64, 8):
        rows = order[tied]
        ends = places[1:][rows]
        begins = np.minimum(places[rows] + begin, ends)
        # Clear the bits that belong to the next text.
        beyond = (64 - 8 * np.minimum(ends - begins, 8)).astype(np.uint64)
        prefixes = words[begins].astype(np.uint64) >> beyond << beyond
        if begin > shared:
            # Sort within each run of texts that agree so far.
            prefixes = runs * len(rows) + np.unique(prefixes, return_inverse=True)[1]
        by = np.argsort(prefixes)
        order[tied], prefixes = rows[by], prefixes[by]
        same = np.r_[False, prefixes[1:] == prefixes[:-1], False]
        if not same.any():
            return order
        tied, runs = (array[same[1:] | same[:-1]] for array in (tied, np.cumsum(~same[:-1])))
    rows = order[tied]
    order[tied] = rows[compute.sort_indices(labels.take(import_module("pyarrow").array(rows))).to_numpy()]
    return order


def renumbered(order: np.ndarray, codes: np.ndarray, number: int | None = None) -> np.ndarray:
    """Return codes that refer to the labels in `order`; labels that `order` lacks, and code -1, become -1."""
    number = len(order) if number is None else number
    dtype = np.int32 if number < np.iinfo(np.int32).max else np.int64
    places = np.full(number + 1, -1, dtype)  # the last is that of -1
    places[order] = np.arange(len(order), dtype=dtype)
    return places.take(codes, mode="wrap")  # mode="wrap" maps -1 to the last entry, and skips the check of bounds


def _missing(labels: np.ndarray) -> np.ndarray:
    if labels.dtype.kind in "OT":
        return np.fromiter(map(_is_missing, labels.tolist()), bool, len(labels))
    return labels != labels if labels.dtype.kind in "fcmM" else np.zeros(len(labels), bool)


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):
        return type(label).__name__ == "NAType"  # pandas.NA has no truth value


def library(name: str, size: int = _WORTH_AN_IMPORT) -> Any:
    """Return a module if it is imported, or if it is installed and `size` keys justify the import; else None."""
    # A library that another thread is importing lacks names, so it does not count.
    if is_complete(name):
        return sys.modules[name]
    if size < _WORTH_AN_IMPORT:
        return None
    try:
        module = import_module(name)
    except ImportError:
        return None
    return module if is_complete(name) else None


def numbered_by_host(keys: np.ndarray, sort: bool, first: bool, missing: bool) -> Numbering:
    """Return the numbering of keys by the host; see `clhist.grouped.factorized.factorized`."""
    # Pandas numbers keys in the order they occur: no sort is needed. Missing ones have no place in that order.
    in_order = None if sort or first else hashed(keys)
    dtype = np.dtype(np.int32 if keys.size < 2**31 else np.int64)
    if in_order is not None and not (missing and keys.dtype.kind == "f" and (in_order[1] < 0).any()):
        return Numbering(converted(in_order[1], dtype), in_order[0], None)
    labels, numbers = numbered(keys, sort)
    numbers = numbers.astype(dtype, copy=False)
    has_none = numbers < 0
    if missing and has_none.any():
        # All missing keys are one key, the last one; the first of them is its label.
        numbers = np.where(has_none, numbers.dtype.type(len(labels)), numbers)
        one = keys[has_none][:1].astype(labels.dtype, copy=False)
        labels = np.concatenate([labels, one], dtype=labels.dtype)  # dtype= keeps the byte order
    if sort and not first:
        return Numbering(numbers, labels, None)
    ordered, others, positions = in_first_order(numbers, labels)
    if not sort:
        return Numbering(ordered, others, np.sort(positions) if first else None)
    return Numbering(numbers, labels, positions if first else None)


def in_first_order(numbers: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers and labels in the order of first occurrence, and the first position of each original label.

    Numbers of -1 stay.
    """
    positions = np.zeros(len(labels) + 1, np.int64)
    flat = numbers.reshape(-1)
    # Written from the last element to the first: the first position of each label overwrites later ones.
    positions[flat[::-1]] = np.arange(flat.size - 1, -1, -1)
    positions = positions[: len(labels)]
    order = np.argsort(positions)
    ranks = np.full(len(labels) + 1, -1, numbers.dtype)
    ranks[order] = np.arange(len(labels), dtype=numbers.dtype)
    return ranks.take(numbers, mode="wrap"), labels[order], positions  # "wrap" maps -1 to the last rank, -1
