"""Keys of any range as numbers: `unique`, `factorize` and groups, against NumPy and pandas."""

from __future__ import annotations

import warnings
from functools import lru_cache, partial

import cuda_fake
import numpy as np
import pandas
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.runtime.counting import extremes
from clhist.grouped import numbering, running_kernels
from clhist.grouped.numbering import number_keys

DTYPES = ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "M8[ns]", "m8[s]"]
SIZES = [0, 1, 2, 1023, 1025, 70_000]


def arrays(dtype, size, rng):
    """Yield keys of a type: all kinds of them, few, multiples of a power of two, and all alike."""
    if dtype.kind == "b":
        yield rng.integers(0, 2, size).astype(bool)
        yield np.ones(size, bool)
    elif dtype.kind == "f":
        special = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal, 1, 2, 3.5]
        yield rng.choice(np.array(special, dtype), size)
        yield rng.normal(size=size).astype(dtype)
        yield np.full(size, np.nan, dtype)
    else:
        bits = np.dtype(np.int64) if dtype.kind in "mM" else dtype
        info = np.iinfo(bits)
        found = rng.integers(info.min, info.max, size, bits, endpoint=True)
        found[: min(2, size)] = [info.max, info.min][:size]
        yield found.view(dtype)
        yield rng.integers(0, 5, size).astype(bits).view(dtype)
        yield (rng.integers(0, 1000, size).astype(bits) * bits.type(16)).view(dtype)
        yield np.full(size, info.max, bits).view(dtype)


def skip_if_refused(dtype, queue):
    if not numbering.can_number(dtype, queue.device):
        pytest.skip("keys of 64 bits need 64-bit atomics")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DTYPES)
def test_numbers_of_keys(name, size, queue):
    dtype, rng = np.dtype(name), np.random.default_rng(size)
    skip_if_refused(dtype, queue)
    for keys in arrays(dtype, size, rng):
        there = keys == keys
        labels, first, inverse = np.unique(keys[there], return_index=True, return_inverse=True)
        numbers = np.full(size, -1)
        numbers[there] = inverse
        given = [keys] if dtype.kind in "mMb" else [keys, cl_array.to_device(queue, keys)]
        for each in given:
            found = number_keys(each, queue, first=True)
            on_host = [part.get() if each is not keys else part for part in found[:3]]
            np.testing.assert_array_equal(on_host[0], numbers)
            np.testing.assert_array_equal(on_host[1], labels)
            np.testing.assert_array_equal(on_host[2], np.flatnonzero(there)[first])
            assert on_host[1].dtype == dtype
            keys_alone = number_keys(each, queue, only_keys=True).keys
            np.testing.assert_array_equal(keys_alone if each is keys else keys_alone.get(), labels)
        codes, uniques = pandas.factorize(keys)
        found = number_keys(keys, queue, sort=False)
        np.testing.assert_array_equal(found.numbers, codes)
        np.testing.assert_array_equal(found.keys, uniques)


@lru_cache(maxsize=1)
def keys_that_the_first_elements_lack(name, late, missing):
    """Return keys, their distinct values, where each is first, and the number of each element's or -1."""
    dtype, rng, size = np.dtype(name), np.random.default_rng(late), 150_000
    keys = rng.integers(-90, 90, size) * 2**23
    # The last third has further keys, that like an empty slot, and missing ones.
    keys[100_000:] = np.where(rng.random(50_000) < 0.1, keys[100_000:], rng.integers(-late, late + 1, 50_000) * 977 + 7)
    keys = keys.astype(np.int64 if dtype.kind == "M" else dtype).view(dtype)
    if late:
        last = {"f": np.nan, "M": np.datetime64("NaT", "ns"), "i": np.iinfo(np.int32 if name == "i4" else np.int64).max}
        keys[[120_000, 140_000]] = last[dtype.kind]
    is_key = np.full(size, True) if missing else keys == keys
    labels, first, inverse = np.unique(keys[is_key], return_index=True, return_inverse=True)
    numbers = np.full(size, -1)
    numbers[is_key] = inverse
    return keys, labels, np.flatnonzero(is_key)[first], numbers


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("late", [0, 9, 300, 3_000, 40_000])
@pytest.mark.parametrize("name", ["i8", "i4", "f8", "M8[ns]"])
def test_keys_that_the_first_elements_lack(name, late, missing, sort, queue):
    skip_if_refused(np.dtype(name), queue)
    keys, labels, positions, numbers = keys_that_the_first_elements_lack(name, late, missing)
    order = np.arange(len(labels)) if sort else positions.argsort()
    numbers = np.append(order.argsort(), -1)[numbers]
    result = number_keys(keys, queue, sort=sort, first=True, missing=missing)
    np.testing.assert_array_equal(result.numbers, numbers)
    np.testing.assert_array_equal(result.keys, labels[order])
    np.testing.assert_array_equal(result.first, positions[order])
    if sort:
        np.testing.assert_array_equal(number_keys(keys, queue, missing=missing, only_keys=True).keys, labels)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name[0] in "biu"])
def test_extremes(dtype, queue):
    dtype = np.dtype(dtype)
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for numbers in ([least], [most], [1, 1], [0, 1, 0], [most, 1, least], [1] * 5001 + [0]):
        x = np.array(numbers, dtype)
        for array in (x, cl_array.to_device(queue, x), cl_array.to_device(queue, np.asfortranarray(x.reshape(-1, 1)))):
            assert extremes(array, queue) == (max(numbers), min(numbers))


def test_integers_that_are_none(queue):
    skip_if_refused(np.dtype(np.int64), queue)
    keys = np.array([3, -1, 7, -1, 3], np.int64)
    for many in (1, 10**15):
        found = number_keys(np.where(keys < 0, -1, keys * many), queue, none=-1)
        assert found.numbers.tolist() == [0, -1, 1, -1, 0]
        assert found.keys.tolist() == [3 * many, 7 * many]


def test_numbers_as_they_are(queue):
    keys = np.array([2, 0, 1, 2], np.int16)
    assert number_keys(keys, queue, as_is=True).numbers is keys
    assert number_keys(keys, queue).numbers is not keys
    assert number_keys(keys[1:3] + 1, queue, as_is=True).numbers.tolist() == [0, 1]


ALL = {"return_index": True, "return_inverse": True, "return_counts": True}


@pytest.mark.parametrize("size", [0, 1, 5, 1000, 70_000])
@pytest.mark.parametrize("kind", ["wide", "near", "floats", "dates", "texts", "swapped", "complex", "booleans"])
def test_as_numpy_and_pandas(kind, size, queue):
    rng = np.random.default_rng(size)
    keys = {
        "wide": lambda: rng.integers(0, 2**60, size),
        "near": lambda: rng.integers(-5, 5, size),
        "floats": lambda: rng.choice([0.0, np.nan, -0.0, 3, np.inf], size),
        "dates": lambda: rng.choice(np.array(["NaT", "2020-01-02", "1969-12-31"], "M8[ns]"), size),
        "texts": lambda: rng.choice(["a", "bc", ""], size),
        "swapped": lambda: rng.integers(0, 9, size).astype(">i4"),
        "complex": lambda: rng.integers(0, 3, size) + 1j,
        "booleans": lambda: rng.integers(0, 2, size).astype(bool),
    }[kind]()
    for options in ({}, ALL):
        for x in (keys, keys.reshape(1, -1), keys[::2]):
            for given in (None, queue):
                ours, theirs = clhist.unique(x, queue=given, **options), np.unique(x, **options)
                ours, theirs = (each if options else (each,) for each in (ours, theirs))
                assert ours[0].dtype == keys.dtype
                for one, other in zip(ours, theirs, strict=True):
                    np.testing.assert_array_equal(one, other)
    native = keys.astype(keys.dtype.newbyteorder("="))
    for options in ({}, {"sort": True}, {"use_na_sentinel": False}):
        for given in (None, queue):
            codes, uniques = clhist.factorize(keys, queue=given, **options)
            expected, values = pandas.factorize(native, **options)
            np.testing.assert_array_equal(codes, expected)
            np.testing.assert_array_equal(uniques, values)


def test_device_arrays(queue):
    keys = np.random.default_rng(0).normal(size=70_000).round(1)
    keys[::7] = np.nan
    found, expected = clhist.unique(cl_array.to_device(queue, keys), **ALL), np.unique(keys, **ALL)
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, cl_array.Array)
        np.testing.assert_array_equal(one.get(), other)
    values = clhist.unique(cl_array.to_device(queue, keys), sorted=False, return_index=True)
    assert (np.diff(values[1].get()) > 0).all()
    with pytest.raises(ValueError, match="values: expected one dimension, got 2"):
        clhist.factorize(cl_array.to_device(queue, keys.reshape(2, -1)))
    assert [each.tolist() for each in clhist.factorize(np.ma.array([1, 2], mask=[0, 1]))] == [[0, -1], [1]]
    with pytest.raises(ValueError, match=r"^values: expected an array without missing elements"):
        clhist.factorize(np.ma.array(["a", "b"], mask=[0, 1]))
    with pytest.raises(ValueError, match="x: expected a contiguous array"):
        clhist.unique(cl_array.to_device(queue, keys)[::2])


def columns(size, rng):
    some = max(1, size // 10)
    return {
        "wide": rng.integers(0, 2**60, some)[rng.integers(0, some, size)],
        "near": rng.integers(-5, 6, size),
        "even": rng.integers(3, 9, size) * 2,
        "floats": rng.choice([0.0, 1.5, np.inf, np.nan, -0.0], size),
        "texts": rng.choice(["a", "b", "zz"], size),
        "dates": rng.integers(0, 5, size).astype("M8[D]"),
        "booleans": rng.integers(0, 2, size).astype(bool),
        "bytes": rng.integers(0, 255, size).astype(np.uint8),
    }


@lru_cache(maxsize=1)
def frame_of(size):
    """Return a data frame of keys of all kinds and of values."""
    rng = np.random.default_rng(size)
    return pandas.DataFrame({**columns(size, rng), "x": rng.normal(size=size)})


BY = [
    *(["wide"], ["near"], ["even"], ["floats"], ["texts"], ["dates"], ["booleans"], ["bytes"]),
    *(["wide", "near"], ["near", "texts"], ["texts", "floats"], ["dates", "booleans"], ["bytes", "wide"]),
    ["near", "even", "floats"],
]


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("by", BY, ids="+".join)
@pytest.mark.parametrize("size", [0, 1, 7, 70_000])
def test_groups_as_pandas_has_them(size, by, sort):
    frame = frame_of(size)
    expected = frame.groupby(by, sort=sort)["x"].agg(["sum", "count", "min"])
    several = len(by) > 1
    for keys in ([frame[name].to_numpy() for name in by], frame[by]):
        groups = clhist.group_by(keys, sort=sort)
        found = groups.agg(x=(frame["x"], "sum", "count", "min"))
        ours = found.to_pandas()["x"] if size else pandas.DataFrame(found["x"])
        assert len(groups) == len(expected)
        np.testing.assert_allclose(ours[["sum", "count", "min"]], expected, rtol=1e-9, atol=1e-12)
        held = groups.keys if several else (groups.keys,)
        for n, labels in enumerate(held):
            assert list(labels) == list(expected.index.get_level_values(n))


def test_masked_and_nullable_keys():
    keys = np.array([5, 10**15, 5, -3])
    for given in (np.ma.array(keys, mask=[0, 0, 1, 0]), pandas.Series([5, 10**15, None, -3], dtype="Int64")):
        groups = clhist.group_by(given)
        assert groups.keys.tolist() == [-3, 5, 10**15]
        assert groups.sum(np.arange(4.0)).tolist() == [3, 0, 1]


def test_too_many(queue, monkeypatch):
    skip_if_refused(np.dtype(np.int64), queue)
    monkeypatch.setattr(numbering, "FEWEST", 1 << 20)
    monkeypatch.setattr(numbering, "_MOST_BITS", 12)
    keys = np.arange(5000, dtype=np.int64) << 40
    assert number_keys(keys[:2000], queue).numbers.tolist() == list(range(2000))
    with pytest.raises(MemoryError, match="keys: expected at most 2048 different ones, got more"):
        number_keys(keys, queue)
    monkeypatch.setattr(numbering, "MOST_ELEMENTS", 4)
    with pytest.raises(ValueError, match="keys: expected less than 4 elements, got 4"):
        number_keys(np.arange(4), queue)


@pytest.mark.parametrize("on", ["device", "cuda"])
def test_groups_of_arrays_elsewhere(on, queue, monkeypatch):
    _, cupy = cuda_fake.install(monkeypatch)
    make = cupy.asarray if on == "cuda" else partial(cl_array.to_device, queue)
    rng = np.random.default_rng(0)
    keys, x = columns(70_000, rng), rng.normal(size=70_000)
    for by in (["wide"], ["near"], ["even"], ["bytes"], ["wide", "near"], ["floats"], ["floats", "wide", "bytes"]):
        given = [make(keys[name]) for name in by]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of data that goes through the host
            groups = clhist.group_by(given if len(by) > 1 else given[0])
        expected = pandas.Series(x).groupby([keys[name] for name in by]).sum()
        np.testing.assert_allclose(groups.sum(make(x)).get(), expected, rtol=1e-9, atol=1e-12)
        held = groups.keys if len(by) > 1 else (groups.keys,)
        held = [each if isinstance(each, np.ndarray) else each.get() for each in held]
        assert all(np.array_equal(each, expected.index.get_level_values(n)) for n, each in enumerate(held))


@pytest.mark.parametrize("dtype", ["i8", "f4", "f8", "i1"])
def test_what_groups_of_cuda_have_for_each_element(dtype, queue, monkeypatch):
    _, cupy = cuda_fake.install(monkeypatch)
    rng = np.random.default_rng(3)
    keys = rng.integers(-50, 50, 5000).astype(dtype)
    x = rng.integers(0, 9, 5000).astype(np.float32)
    x[::7] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of data that goes through the host
        ours = clhist.group_by(cupy.asarray(keys), sort=False)
        codes, labels = clhist.factorize(cupy.asarray(keys))
        given = cupy.asarray(x)
        found = {
            "cumcount": ours.cumcount(),
            "nth": ours.nth(given, -2),
            "nunique": ours.nunique(given),
            "mode": ours.agg(x=(given, "mode"))["x"]["mode"],
            "transform": ours.transform(given, "mean"),
            "rank": ours.rank(given, "min"),
            "cumsum": ours.cumsum(given),
        }
        monkeypatch.setattr(running_kernels, "device_kind", lambda device: "gpu")
        found["cummax"] = ours.cummax(given)
    theirs = pandas.DataFrame({"k": keys, "x": x}).groupby("k", sort=False)
    expected = {
        "cumcount": theirs.cumcount(),
        "nth": theirs.x.agg(lambda each: each.iloc[-2]),
        "nunique": theirs.x.nunique(),
        "mode": theirs.x.agg(lambda each: each.mode().iloc[0]),
        "transform": theirs.x.transform("mean"),
        "rank": theirs.x.rank("min"),
        "cumsum": theirs.x.cumsum(),
        "cummax": theirs.x.cummax(),
    }
    for one, other in zip((codes, labels), pandas.factorize(keys), strict=True):
        np.testing.assert_array_equal(one.get(), other)
    for name, each in expected.items():
        assert isinstance(found[name], cupy.ndarray), name
        np.testing.assert_allclose(found[name].get(), each, rtol=1e-6, err_msg=name)


def colliding(number, seed, rng):
    """Return keys whose search begins at one slot with this seed: the hash of 64 bits, backwards."""
    bits = 2**64 - 1
    first, second = pow(0x9E3779B97F4A7C15, -1, 2**64), pow(0xBF58476D1CE4E5B9, -1, 2**64)
    found = set()
    while len(found) < number:
        w = (0x12345678 << 32 | int(rng.integers(2**32))) * second & bits
        w ^= w >> 29 ^ w >> 58
        w = w * first & bits
        found.add((w ^ w >> 32) ^ seed)
    return np.array(sorted(found), np.uint64)


def test_keys_that_collide_with_a_seed(queue, monkeypatch, rng):
    """As many as a search looks at slots, and more: the table is given up for a larger one with another seed."""
    skip_if_refused(np.dtype(np.int64), queue)
    real, seed, given = numbering.secrets.randbits, 0x0123456789ABCDEF, []

    def randbits(number):
        given.append(seed if not given else real(number))
        return given[-1]

    monkeypatch.setattr(numbering.secrets, "randbits", randbits)
    monkeypatch.setattr(numbering, "FEWEST", 1 << 20)
    keys = colliding(5000, seed, rng)
    elements = rng.permutation(np.repeat(keys, 3))
    found = number_keys(elements, queue, sort=True)
    np.testing.assert_array_equal(found.keys, keys)
    np.testing.assert_array_equal(found.keys[found.numbers], elements)
    assert len(given) == 2
    given.clear()
    assert number_keys(keys[:9], queue, sort=True).numbers.tolist() == list(range(9))  # so few are found one by one
    assert len(given) == 1


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("bound", [0, 1, 700, 70_000, 10**8])
def test_keys_below_a_known_bound(bound, kind, queue, monkeypatch):
    """Only a bound beyond the number of marks lets kernels search for the range of the keys."""
    monkeypatch.setattr(numbering, "device_kind", lambda device: kind)
    searches = []
    monkeypatch.setattr(numbering._Work, "_extent", lambda self, sample: searches.append(sample))
    for sort in (True, False):
        for low in (-1, bound // 2):
            keys = np.random.default_rng(bound).integers(min(low, bound - 1), bound, 80_000, np.int32)
            labels, places, inverse = np.unique(keys[keys >= 0], return_index=True, return_inverse=True)
            order = np.arange(len(labels)) if sort else np.argsort(places)
            expected = np.full(keys.size, -1)
            expected[keys >= 0] = np.argsort(order)[inverse]
            found = number_keys(keys, queue, none=-1, bound=bound, sort=sort)
            np.testing.assert_array_equal(found.numbers, expected)
            np.testing.assert_array_equal(found.keys, labels[order])
    assert bool(searches) == (bound > 80_000)
