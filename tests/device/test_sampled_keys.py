"""Keys that GPUs number as a sample of them says, against NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick, mostly_slow

import clhist
from clhist._core.kernels.key_ranges import KNOWN
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.chain import Chain
from clhist.grouped import numbering, sampled_keys
from clhist.grouped.numbering import number_keys

# Without optimization, these kernels take longer than their builds save.
pytestmark = pytest.mark.usefixtures("with_optimizer")

DTYPES = ["i4", "u4", "f4", "i8", "u8", "f8", "M8[ns]"]
# A program of each type takes a second: of each kind and size one in every run.
MOST = [pytest.param(each, marks=[pytest.mark.slow] * (each in ("u4", "f4", "i8"))) for each in DTYPES]
RANGES = ["divide", "number_range", "begin_ranges"]


@pytest.fixture
def enqueued(monkeypatch):
    """The kernels that run, by name, as on a GPU."""
    monkeypatch.setattr(numbering, "device_kind", lambda device: "gpu")
    names, run = [], Chain.run

    def noted(self, kernel, *given):
        names.append(kernel.name.removeprefix("clhist_"))
        run(self, kernel, *given)

    monkeypatch.setattr(Chain, "run", noted)
    return names


def check(keys, queue, *, sort=True, first=False, missing=False):
    found = number_keys(keys, queue, sort=sort, first=first, missing=missing)
    there = (keys == keys) | missing
    labels, places, inverse = np.unique(keys[there], return_index=True, return_inverse=True)
    order = np.arange(len(labels)) if sort else np.argsort(places)
    expected = np.full(keys.size, -1)
    expected[there] = np.argsort(order)[inverse]
    np.testing.assert_array_equal(found.keys, labels[order])
    np.testing.assert_array_equal(found.numbers, expected)
    if first:
        np.testing.assert_array_equal(found.first, np.flatnonzero(there)[places][order])


def of_type(words, dtype):
    """Return keys of these words, without NaN and NaT."""
    keys = np.asarray(words).astype(f"u{dtype.itemsize}").view(dtype)
    return np.where(keys == keys, keys, np.array(7).astype(dtype))


def largest(dtype):
    """Return the key that is like an empty slot; floats have none, since NaN is beyond infinity."""
    if dtype.kind == "f":
        return np.array(np.inf, dtype)
    return np.array(np.iinfo(f"{'i' if dtype.kind == 'M' else dtype.kind}{dtype.itemsize}").max).astype(dtype)


def none(dtype):
    return np.array("NaT" if dtype.kind == "M" else np.nan, dtype)


KINDS = ["some very often", "all different", "in descending order", "clusters", "long tail", "with others"]


def many(kind, rng, size, dtype):
    """Return many keys of one of `KINDS`."""
    top = 2 ** (8 * dtype.itemsize) - 1
    if kind == "clusters":
        starts = rng.integers(0, top >> 8, size // 500 + 1, np.uint64)[:, None] * 200
        return of_type(rng.permutation(np.repeat((starts + np.arange(400, dtype=np.uint64)).ravel(), 2))[:size], dtype)
    if kind == "long tail":
        return of_type(np.minimum(1000 / (1 - rng.random(size)), 2.0**30).astype(np.uint64), dtype)
    keys = of_type(rng.integers(0, top, size, np.uint64), dtype)
    if kind == "some very often":
        often = keys[rng.integers(0, size // 3, size)]
        often[: size // 2], often[size // 2 : size * 2 // 3] = keys[0], keys[1]
        return rng.permutation(often)
    if kind == "in descending order":
        return np.sort(keys)[::-1].copy()
    if kind == "with others":
        keys[::3], keys[1::50] = largest(dtype), of_type([0], dtype)
        if dtype.kind in "fM":
            keys[2::7] = none(dtype)
    return keys


OPTIONS = [{}, {"first": True, "missing": True}, {"sort": False}, {"sort": False, "first": True}]
MANY = covering(DTYPES, range(len(OPTIONS)), (4096, 5001, 70_001), KINDS, strength=3)


@pytest.mark.parametrize("options", range(len(OPTIONS)))
@pytest.mark.parametrize("name", MOST)
def test_many_keys(name, options, queue, enqueued, monkeypatch):
    monkeypatch.setattr(sampled_keys, "_POSITION_BYTES", 1 << 40)
    for size, kind in [row[2:] for row in MANY if row[:2] == (name, options)]:
        enqueued.clear()
        check(many(kind, np.random.default_rng(size), size, np.dtype(name)), queue, **OPTIONS[options])
        if size > 70_000:  # fewer may be few enough to be looked up
            used = [name for name in enqueued if name in (*RANGES, "insert")]
            assert used == RANGES


@pytest.mark.parametrize(("dtype", "sort"), each_value_quick(covering(["i4", "f8"], [True, False])))
def test_keys_alone(dtype, sort, queue, enqueued, monkeypatch):
    """Without the numbers of elements, by each of the ways."""
    monkeypatch.setattr(sampled_keys, "_POSITION_BYTES", 1 << 40)
    rng, dtype = np.random.default_rng(7), np.dtype(dtype)
    every = many("with others", rng, 70_001, dtype), few(rng, 140_001, dtype), many("all different", rng, 300, dtype)
    for keys in every:
        labels, places = np.unique(keys[keys == keys], return_index=True)
        expected = labels if sort else keys[keys == keys][np.sort(places)]
        for array in (keys, cl_array.to_device(queue, keys)):
            found = number_keys(array, queue, sort=sort, only_keys=True).keys
            np.testing.assert_array_equal(found if array is keys else found.get(), expected)
    assert {"find", "divide", "insert"} <= {*enqueued}


def few(rng, size, dtype, number=900):
    return of_type(rng.integers(1, 2 ** (8 * dtype.itemsize) - 2, number, np.uint64), dtype)[
        rng.integers(0, number, size)
    ]


NO_YES = (False, True)
FEW = covering(DTYPES, (2, 900, KNOWN), NO_YES, NO_YES, NO_YES, NO_YES, strength=3)


@pytest.mark.parametrize("name", MOST)
def test_few_keys_are_looked_up(name, queue, enqueued):
    dtype = np.dtype(name)
    for number, others, sort, first, missing in [row[1:] for row in FEW if row[0] == name]:
        keys = few(np.random.default_rng(number), 140_001, dtype, number)
        if others:
            keys[::9] = keys[0] if dtype.kind == "f" else largest(dtype)
            keys[1::9] = none(dtype) if dtype.kind in "fM" else keys[1::9]
        enqueued.clear()
        check(keys, queue, sort=sort, first=first, missing=missing)
        assert "find" in enqueued
        assert "divide" not in enqueued


@pytest.mark.parametrize("first", [True, False])
def test_more_keys_are_looked_up_where_local_memory_is_large(first, queue, enqueued, monkeypatch):
    room = (
        1 << 18 if queue.device.local_mem_size >= 1 << 18 else sampled_keys.planning_profile(queue.device).local_memory
    )
    monkeypatch.setattr(sampled_keys, "planning_profile", lambda device: SimpleNamespace(local_memory=room, l2_cache=0))
    for number in (1025, 3000):
        for sort in (True, False):
            enqueued.clear()
            check(
                few(np.random.default_rng(number), 300_001, np.dtype(np.uint64), number), queue, sort=sort, first=first
            )
            assert ("find_more" in enqueued) == (room >= 1 << 17)


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("other", ["another", "largest", "missing"])
def test_a_key_that_no_sample_has(other, sort, queue, enqueued):
    """It is met while elements are looked up, which is given up."""
    keys, given_up = few(np.random.default_rng(1), 140_001, np.dtype(np.float64)), False
    for place in range(70_000, 70_006):  # some of which are not looked at
        changed = keys.copy()
        changed[place] = {"another": 12345.678, "largest": largest(keys.dtype), "missing": np.nan}[other]
        enqueued.clear()
        check(changed, queue, sort=sort, first=True, missing=True)
        assert "find" in enqueued
        given_up |= ("divide" if sort else "insert") in enqueued
    assert given_up


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("name", ["i4", "f8", "u8"])
def test_rare_keys_besides_few(name, sort, queue, enqueued):
    """As the sample has some of them, the others are added to the known ones, and all elements are looked up again."""
    rng, dtype = np.random.default_rng(2), np.dtype(name)
    for missing in (False, True):
        keys = few(rng, 140_001, dtype)
        keys[rng.permutation(keys.size)[:30]] = few(rng, 30, dtype, 30)
        keys[:9:4] = none(dtype) if dtype.kind == "f" else largest(dtype)
        keys[::77] = keys[0]
        enqueued.clear()
        check(keys, queue, sort=sort, first=True, missing=missing)
        assert enqueued.count("find") == 2
        assert not {"divide", "insert"} & {*enqueued}


@pytest.mark.parametrize(
    ("slots", "expected", "table"),
    mostly_slow([(512, 5, False), (2048, 1, False), (128, 1, True), (512, 10**9, True)], 2),
)
def test_ranges_with_more_keys_than_local_memory_has_room_for(slots, expected, table, queue, enqueued, monkeypatch):
    """They are numbered in pieces; if these are too many, all keys are put into the large table."""
    real = sampled_keys.key_sizes

    def small(*given, **more):
        return real(*given, **more)._replace(slots=slots, numbering_lanes=64, most_ranges=16)

    sampled_keys._sizes.cache_clear()
    monkeypatch.setattr(sampled_keys, "key_sizes", small)
    monkeypatch.setattr(sampled_keys, "_expected", lambda *given: expected * 384)
    monkeypatch.setattr(sampled_keys, "_ROOM", (2, 2))
    rng = np.random.default_rng(slots)
    try:
        for options in ({}, {"first": True}):
            enqueued.clear()
            check(rng.permutation(np.repeat(rng.integers(0, 2**63, 20_000), 4)), queue, **options)
            assert ("insert" in enqueued) == table
    finally:
        sampled_keys._sizes.cache_clear()


def test_no_room_for_so_many(queue, enqueued, monkeypatch):
    monkeypatch.setattr(sampled_keys, "_ROOM", (0, 8))
    check(np.random.default_rng(0).integers(0, 2**63, 30_000, np.uint64), queue)
    assert {"divide", "insert"} <= {*enqueued}


def test_no_memory_for_ranges(queue, enqueued, monkeypatch):
    new = Chain.new

    def refused(self, number, dtype):
        if np.dtype(dtype) == np.uint16:  # as pairs have
            raise MemoryError("no memory")
        return new(self, number, dtype)

    monkeypatch.setattr(Chain, "new", refused)
    check(np.random.default_rng(0).integers(0, 2**63, 30_000, np.uint64), queue)
    assert "insert" in enqueued


def test_keys_for_which_a_table_is_as_fast(queue, enqueued, monkeypatch):
    monkeypatch.setattr(sampled_keys, "_TABLE_ELEMENTS", 1000)
    monkeypatch.setattr(sampled_keys, "_CACHED_BYTES", 0)
    for first in (False, True):
        enqueued.clear()
        check(np.random.default_rng(0).integers(0, 2**63, 30_000, np.uint64), queue, first=first)
        assert enqueued.count("insert") == 1


def test_all_missing_or_alike(queue, enqueued):
    for keys in (np.full(9000, np.nan), np.full(9000, 3.5), np.full(9000, largest(np.dtype(float)))):
        for missing in (False, True):
            check(keys, queue, missing=missing, first=True)
            check(keys, queue, missing=missing, sort=False)


def zipf(rng, number, size):
    return np.minimum(np.exp(rng.random(size) * np.log(number)), number - 1).astype(np.int64)


def distinct(keys):
    """Return how many of some numbers from 0 differ, without sorting them."""
    occurs = np.zeros(keys.max() + 1, bool)
    occurs[keys] = True
    return np.count_nonzero(occurs)


@pytest.mark.parametrize("number", [100, 30_000, 10**6, 10**8])
@pytest.mark.parametrize("make", [lambda rng, *given: rng.integers(0, *given), zipf])
def test_how_many_keys_are_expected(make, number):
    keys = make(np.random.default_rng(number), number, 2 << 20)
    some, more = keys[:65_536], keys[: 1 << 19]
    found = sampled_keys._expected(distinct(some), some.size, distinct(more), more.size, keys.size)
    assert 0.85 < found / distinct(keys) < 1.6


def of_bits(rng, number, dtype):
    """Return NaN of many bit patterns and of both signs."""
    word = np.dtype(f"u{dtype.itemsize}")
    bits, signs = rng.integers(1, 2**20, number).astype(word), rng.integers(0, 2, number).astype(word)
    return (np.array(np.nan, dtype).view(word) | bits | signs << (8 * word.itemsize - 1)).view(dtype)


@pytest.mark.parametrize("number", [3, 900, 10**6])
@pytest.mark.parametrize("name", mostly_slow(["f8", "f4"], 2))
def test_threads_number_masked_keys_zeros_and_nan_as_pandas(name, number, queue, enqueued, monkeypatch):
    monkeypatch.setattr(sampled_keys, "_POSITION_BYTES", 1 << 40)
    dtype = np.dtype(name)

    def work(seed):
        rng = np.random.default_rng(seed)
        keys = rng.standard_normal(number).astype(dtype)[rng.integers(0, number, 20_000)]
        keys[::7], keys[1::7], keys[3::7] = 0.0, -0.0, of_bits(rng, keys[3::7].size, dtype)
        is_masked, sort = rng.random(keys.size) < 0.1, bool(seed % 2)
        numbers, labels = clhist.factorize(np.ma.array(keys, mask=is_masked), sort=sort, queue=queue)
        expected, expected_labels = pandas.factorize(np.where(is_masked, dtype.type(np.nan), keys), sort=sort)
        np.testing.assert_array_equal(numbers, expected)
        np.testing.assert_array_equal(labels, expected_labels)
        assert not np.signbit(labels[labels == 0]).any()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert "sample" in enqueued


def test_few_integers_of_a_device_need_no_sample(queue, enqueued, monkeypatch):
    """A pass over all keys shows that their range is short; once it was not, keys like them are sampled first."""
    rng, passes = np.random.default_rng(3), []
    extremes = numbering.extremes
    monkeypatch.setattr(numbering, "extremes", lambda *given: passes.append(0) or extremes(*given))
    for most, is_sampled, searches in ((9000, False, 1), (2**31, True, 1), (2**31, True, 0), (9000, True, 1)):
        keys = rng.integers(most - 9000 if most == 9000 else -(2**31), most, 30_011).astype(np.int32)
        for sort in (True, False):
            enqueued.clear()
            passes.clear()
            found = number_keys(to_device(queue, keys), queue, sort=sort)
            labels, places, inverse = np.unique(keys, return_index=True, return_inverse=True)
            order = np.arange(len(labels)) if sort else np.argsort(places)
            np.testing.assert_array_equal(found.keys.get(), labels[order])
            np.testing.assert_array_equal(found.numbers.get(), np.argsort(order)[inverse])
            assert ("sample" in enqueued) == is_sampled
            # The first array of a long range is the one that shows it.
            assert len(passes) == (searches if sort or most == 9000 else 0)
    assert "mark" in enqueued
