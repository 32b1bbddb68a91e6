"""Sorting by digits, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist.codegen.key_table import MOST_ALIKE
from clhist.engine.chain import Chain, chain_on
from clhist.engine.digit_sort import sorted_by_digits
from clhist.grouping import numbering
from clhist.grouping.numbering import number_keys

KINDS = {
    "any": lambda rng, top, size: rng.integers(0, top, size, np.uint64, endpoint=True),
    "few": lambda rng, top, size: rng.integers(0, 3, size).astype(np.uint64) * (top // 3),
    "alike": lambda rng, top, size: np.full(size, top, np.uint64),
    "falling": lambda rng, top, size: top - np.arange(size, dtype=np.uint64),
}


@pytest.mark.parametrize("lanes", [1, 2, 16, 64, 256])
@pytest.mark.parametrize("size", [1, 2, 255, 1000, 3000, 100_003])
@pytest.mark.parametrize("word", ["uint32", "uint64"])
def test_as_numpy_sorts(word, size, lanes, queue):
    dtype, rng = np.dtype(word), np.random.default_rng(size)
    for kind, make in KINDS.items():
        bits = 16 if kind == "any" and lanes == 64 else 8 * dtype.itemsize
        keys = make(rng, np.uint64(2**bits - 1), size).astype(dtype)
        values = rng.integers(0, 2**32, size, np.uint32)
        given = [cl_array.to_device(queue, each) for each in (keys, values)]
        chain = chain_on(queue, "")
        found = sorted_by_digits(chain, *(each.data for each in given), size, dtype, bits, lanes)
        ours = [chain.fetched(memory, size, each) for memory, each in zip(found, (dtype, np.uint32), strict=True)]
        order = np.argsort(keys, kind="stable")
        np.testing.assert_array_equal(ours[0], keys[order])
        np.testing.assert_array_equal(ours[1], values[order])


def known(rng, size, dtype):
    """Yield keys of which some elements have few different ones: all, but for a few others, and for many."""
    few = rng.integers(1, 2**31 - 2, 900).astype(dtype) * dtype.type(3 if dtype.itemsize == 4 else 2**30 + 1)
    keys = few[rng.integers(0, few.size, size)]
    yield keys
    for others in (5, 300):
        keys = keys.copy()
        keys[2 : 2 + others] = np.arange(others).astype(dtype)
        keys[1:2] = keys[-1:] = np.array(2**64 - 1 if dtype.kind == "u" else -1).astype(dtype)
        if dtype.kind == "f":
            keys[5:9] = np.nan
        yield keys
    # More than the table has room for, in blocks between the elements that are looked at first.
    keys = keys.copy()
    keys[np.arange(size) % 4 != 0] = np.arange(size - -(-size // 4)).astype(dtype) * dtype.type(7)
    yield keys


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("dtype", ["i4", "u4", "f4", "i8", "u8", "f8"])
def test_keys_are_looked_up_among_known_ones(dtype, first, sort, queue, monkeypatch):
    monkeypatch.setattr(numbering, "device_kind", lambda device: "gpu")
    enqueued, run = [], Chain.run

    def noted(self, kernel, *given):
        enqueued.append(kernel.name)
        run(self, kernel, *given)

    monkeypatch.setattr(Chain, "run", noted)
    for size in (40_000, 300_001):
        for n, keys in enumerate(known(np.random.default_rng(size), size, np.dtype(dtype))):
            for missing in (False, True) if dtype[0] == "f" else (False,):
                enqueued.clear()
                found = number_keys(keys, queue, sort=sort, first=first, missing=missing)
                there = (keys == keys) | missing
                labels, places, inverse = np.unique(keys[there], return_index=True, return_inverse=True)
                order = np.arange(len(labels)) if sort else np.argsort(places)
                ranks = np.argsort(order)
                expected = np.full(size, -1)
                expected[there] = ranks[inverse]
                np.testing.assert_array_equal(found.keys, labels[order])
                np.testing.assert_array_equal(found.numbers, expected)
                if first:
                    np.testing.assert_array_equal(found.first, np.flatnonzero(there)[places][order])
                assert "clhist_find" in enqueued
                assert ("clhist_number" in enqueued) == (n == 3)
                assert "clhist_renumber" in enqueued or n in (0, 3)


@pytest.mark.parametrize("number", [2000, 50_000])
def test_words_alike_in_what_is_sorted_first(number, queue, monkeypatch):
    """Clusters of keys, far from each other: few that 32 bits do not tell apart, as many as are settled, and more."""
    monkeypatch.setattr(numbering, "device_kind", lambda device: "gpu")
    rng = np.random.default_rng(number)
    for alike in (1, 2, MOST_ALIKE, MOST_ALIKE + 1, number):
        keys = rng.integers(0, 2**63, -(-number // alike), np.uint64)[:, None] + np.arange(alike, dtype=np.uint64)
        keys = np.append(keys, np.array([0, 2**64 - 1], np.uint64))
        elements = rng.permutation(np.repeat(keys, 2))
        labels, inverse = np.unique(elements, return_inverse=True)
        found = number_keys(elements, queue)
        np.testing.assert_array_equal(found.keys, labels)
        np.testing.assert_array_equal(found.numbers, inverse)


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "f4", "f8"])
def test_keys_are_sorted_on_the_device(dtype, sort, queue, monkeypatch):
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
