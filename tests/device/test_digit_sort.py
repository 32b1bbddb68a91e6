"""Sorting by digits, against NumPy's stable sort."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist._core.runtime.digit_sort import sorted_by_digits
from clhist._core.runtime.launcher import chain_on
from clhist.grouped import numbering
from clhist.grouped.numbering import can_number, number_keys

# Without optimization, these kernels take longer than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

KINDS = {
    "any": lambda rng, top, size: rng.integers(0, top, size, np.uint64, endpoint=True),
    "few": lambda rng, top, size: rng.integers(0, 3, size).astype(np.uint64) * (top // 3),
    "alike": lambda rng, top, size: np.full(size, top, np.uint64),
    "falling": lambda rng, top, size: top - np.arange(size, dtype=np.uint64),
}


@lru_cache(maxsize=8)  # of one size and type, which several numbers of lanes sort
def problem(kind, word, size, bits):
    """Return keys and values, and both as NumPy sorts them."""
    rng = np.random.default_rng(size)
    keys = KINDS[kind](rng, np.uint64(2**bits - 1), size).astype(word)
    values = rng.integers(0, 2**32, size, np.uint32)
    order = np.argsort(keys, kind="stable")
    return keys, values, keys[order], values[order]


@pytest.mark.parametrize("lanes", [1, 2, 16, 64, 256])
@pytest.mark.parametrize("size", [1, 2, 255, 1000, 3000, 100_003])
@pytest.mark.parametrize("word", ["uint32", "uint64"])
def test_as_numpy_sorts(word, size, lanes, queue):
    dtype = np.dtype(word)
    for kind in KINDS:
        bits = 16 if kind == "any" and lanes == 64 else 8 * dtype.itemsize
        keys, values, *expected = problem(kind, word, size, bits)
        given = [cl_array.to_device(queue, each) for each in (keys, values)]
        chain = chain_on(queue, "")
        found = sorted_by_digits(chain, *(each.data for each in given), size, dtype, bits, lanes)
        ours = [chain.fetched(memory, size, each) for memory, each in zip(found, (dtype, np.uint32), strict=True)]
        np.testing.assert_array_equal(ours[0], expected[0])
        np.testing.assert_array_equal(ours[1], expected[1])


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize(
    "dtype", [*("u8", "i4", "f8"), *(pytest.param(each, marks=pytest.mark.slow) for each in ("i8", "f4"))]
)
def test_keys_are_sorted_on_the_device(dtype, sort, queue, monkeypatch):
    if not can_number(np.dtype(dtype), queue.device):
        pytest.skip("this device has no 64-bit atomics, which callers ask for first")
    monkeypatch.setattr(numbering, "device_kind", lambda device: "gpu")
    rng = np.random.default_rng(1)
    for number in (3, 40_000):
        keys = rng.integers(0, 2**63, number, np.uint64).astype(dtype)[rng.integers(0, number, 70_000)]
        keys[::5] = keys[1] if sort else np.array(2**64 - 1 if dtype == "u8" else -1).astype(dtype)
        missing = dtype.startswith("f")
        keys[3:10:3] = np.nan if missing else keys[3:10:3]
        found = number_keys(keys, queue, sort=sort, first=True, missing=True)
        labels, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        order = np.arange(len(labels)) if sort else np.argsort(first)
        ranks = np.empty(len(labels), np.int64)
        ranks[order] = np.arange(len(labels))
        np.testing.assert_array_equal(found.keys, labels[order])
        np.testing.assert_array_equal(found.first, first[order])
        np.testing.assert_array_equal(found.numbers, ranks[inverse])
