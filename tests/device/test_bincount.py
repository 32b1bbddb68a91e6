"""`bincount` against `numpy.bincount`: results, error types and error texts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick
from histograms import outcome
from thresholds import threshold

from clhist import bincount
from clhist._core.runtime import small
from clhist._core.runtime.launcher import OpenCLExecutable
from clhist.selftest.cases import random_values
from clhist.selftest.reference import assert_close, exact_sum, groups_of, sum_bound

pytestmark = pytest.mark.usefixtures("without_optimizer")

PROFILES = ["own profile", "as a GPU"]  # of `any_profile`
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8"]


def same(result, expected):
    np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.usefixtures("any_profile")
@pytest.mark.parametrize("dtype", [*DTYPES, ">i4", ">i8", ">u2", "u8"])
def test_entries_of_each_dtype(dtype, rng):
    x = rng.integers(0, 2 if dtype == "?" else 100, 3000)
    same(bincount(x.astype(dtype)), np.bincount(x))  # NumPy before 2.2.4 does not take uint64
    same(bincount(x.astype(dtype)[::3], minlength=200), np.bincount(x[::3], minlength=200))


@pytest.mark.parametrize(
    ("any_profile", "weights", "entries"),
    each_value_quick(covering(PROFILES, [False, True], [("u1", 4095), ("u1", 4096), ("u1", 9001), ("u2", 2**20)])),
    indirect=["any_profile"],
)
def test_entries_that_have_bins_for_all_of_their_type(any_profile, weights, entries, rng):
    dtype, size = entries
    most = np.iinfo(dtype).max
    w = rng.integers(-9, 9, size).astype(float) if weights else None
    for x in (np.zeros(size), np.full(size, most), np.arange(size) % (most + 1), rng.integers(0, 100, size)):
        x = x.astype(dtype)
        same(bincount(x, w), np.bincount(x, w))
        x[size // 3] = most  # which a sample does not see
        same(bincount(x, w, 300), np.bincount(x, w, 300))


def test_small_arrays_are_left_to_numpy(queue, monkeypatch, rng):
    """Unless there is a queue, or what NumPy does not take or compute."""
    counted, original = [], OpenCLExecutable.run
    monkeypatch.setattr(OpenCLExecutable, "run", lambda *args: counted.append(1) or original(*args))
    for call in ("bincount", "bincount, weights"):
        monkeypatch.setitem(small.COSTS, call, threshold(1000))
    x, weights = rng.integers(0, 9, 999), rng.standard_normal(999)
    out = np.empty(12, np.intp)
    same(bincount(x), np.bincount(x))
    same(bincount(x, weights, 12), np.bincount(x, weights, 12))
    assert bincount(x, minlength=12, out=out) is out
    same(out, np.bincount(x, minlength=12))
    assert not counted
    same(bincount(x, queue=queue), np.bincount(x))
    same(bincount(x.astype("u8")), np.bincount(x))
    same(bincount(np.append(x, 8)), np.bincount(np.append(x, 8)))
    bincount(x, weights, reproducible=True)
    assert len(counted) == 4
    with pytest.raises(ValueError, match="negative"):
        bincount(np.array([0, -1]))


@pytest.mark.parametrize("shape", [0, 5])
def test_nothing_counted_reproducibly(shape, queue):
    """Of device arrays as of NumPy's: there is no largest weight."""
    expected = np.bincount(np.zeros(0, int), np.zeros(0), 3)
    x = np.full(shape, -1, np.int32)[:0]
    for given in (x, cl_array.to_device(queue, x)):
        weights = given.astype(np.float32)
        for options in ({}, {"weights": weights}):
            found = bincount(given, minlength=3, reproducible=True, **options)
            same(found.get() if given is not x else found, expected)


def test_lists_of_floats_warn_of_the_caller():
    """Older NumPys count them; so sums are reproducible, too."""
    expected = outcome(np.bincount, [1.0])
    if isinstance(expected, tuple):  # newer ones do not
        assert outcome(bincount, [1.0], reproducible=True) == expected
        return
    with pytest.warns(DeprecationWarning, match="Non-integer input") as caught:
        found = bincount([1.0, 1.0, 1.0], [1e16, 1.0, -1e16], reproducible=True)
    same(found, bincount([1, 1, 1], [1.0, 1e16, -1e16], reproducible=True))
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize("weighted", [False, True])
def test_an_array_that_is_counted_again_with_other_content(weighted, queue, rng):
    """It is taken for what it was before, and found out if it is not."""
    x = cl_array.to_device(queue, np.zeros(5000, np.int32))
    weights = cl_array.to_device(queue, rng.integers(-9, 9, 5000).astype(np.float64)) if weighted else None
    host = None if weights is None else weights.get()
    for most in (50, 50, 5000, 3, 0, 0, 700, 701):
        content = rng.integers(0, most + 1, 5000).astype(np.int32)
        content[17] = most
        x.set(content)
        for _ in range(2):
            same(bincount(x, weights).get(), np.bincount(content, host))
            same(bincount(x, weights, 60).get(), np.bincount(content, host, 60))
    content[4000] = -1
    x.set(content)
    for _ in range(2):
        with pytest.raises(ValueError, match="no negative elements"):
            bincount(x, weights)
    x.set(np.abs(content))
    same(bincount(x, weights).get(), np.bincount(np.abs(content), host))


def test_threads_that_count_at_the_same_time(queue, rng):
    contents = [rng.integers(0, 10 * (k + 1), 3000).astype(np.int32) for k in range(6)]
    given = [cl_array.to_device(queue, content) for content in contents]
    with ThreadPoolExecutor(6) as executor:
        for _ in range(3):
            found = list(executor.map(bincount, given))
            for counts, content in zip(found, contents, strict=True):
                same(counts.get(), np.bincount(content))


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_device_arrays_of_narrow_types(dtype, queue, rng):
    x = rng.integers(0, 200, 2**20 + 5).astype(dtype)
    result = bincount(cl_array.to_device(queue, x))
    assert isinstance(result, cl_array.Array)
    same(result.get(), np.bincount(x))


WEIGHTS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">f8", ">i2"]


@pytest.mark.parametrize(
    ("dtype", "any_profile"),
    [*((dtype, "own profile") for dtype in WEIGHTS), *((dtype, "as a GPU") for dtype in ("?", "u2", "f4", "f8"))],
    indirect=["any_profile"],
)
def test_weights_of_each_dtype(dtype, any_profile, rng):
    x, weights = rng.integers(0, 50, 2000), rng.integers(0, 2 if dtype == "?" else 100, 2000).astype(dtype)
    same(bincount(x, weights), np.bincount(x, weights))


def test_sums_of_weights_round_no_more_than_they_must(rng):
    x, weights = rng.integers(0, 50, 2000), random_values(rng, 2000, "f8")
    groups = groups_of(x, weights, 50)
    bounds = [sum_bound(group, np.finfo("f8").eps) for group in groups]
    assert_close(bincount(x, weights), [exact_sum(group) for group in groups], bounds)


@pytest.mark.parametrize("weights", [None, np.ones(5)])
@pytest.mark.parametrize("minlength", [0, 1, 3, 4, 5, 100])
def test_least_number_of_bins(minlength, weights):
    x = np.array([0, 3, 3, 1, 0])
    same(bincount(x, weights, minlength), np.bincount(x, weights, minlength))


@pytest.mark.parametrize("x", [[], (), np.array([], np.int8), np.array([], np.bool_), range(0)], ids=repr)
@pytest.mark.parametrize("minlength", [0, 7])
def test_no_entries(x, minlength):
    same(bincount(x, minlength=minlength), np.bincount(x, minlength=minlength))
    same(bincount(x, [], minlength), np.bincount(x, [], minlength))


@pytest.mark.parametrize("minlength", [0, 7])
def test_no_entries_on_a_device(minlength, queue):
    x, weights = (cl_array.to_device(queue, np.zeros(0, dtype)) for dtype in (np.int32, np.float64))
    for given in (None, weights):
        found = bincount(x, given, minlength)
        expected = np.bincount(np.zeros(0, np.int32), None if given is None else np.zeros(0), minlength)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert not found.size or not found.get().any()


@pytest.mark.parametrize("x", [[0, 1, 1, 5], (2, 2), range(9), [True, False], [np.int8(3)]], ids=repr)
def test_other_sequences(x):
    same(bincount(x), np.bincount(x))
    same(bincount(x, list(range(len(x)))), np.bincount(x, list(range(len(x)))))


@pytest.mark.parametrize(
    ("any_profile", "weighted", "largest"),
    covering(PROFILES, [False, True], [0, 999, 1000, 1005, 1006, 1007, 1008, 1009, 1010, 5000, 100_000]),
    indirect=["any_profile"],
)
def test_a_largest_entry_that_no_sample_shows(any_profile, weighted, largest, rng, queue):
    # 0 to 1000 elsewhere; every element is at some place that a sample of a few thousand leaves out.
    x = rng.integers(0, 1001, 50_000).astype(np.int32)
    x[::7] = 1000
    bincount(np.arange(60_000, dtype=np.int32) % 3001, np.ones(60_000))  # with which others are planned
    for position in (0, 1, 12, 31_013, 49_999):
        hidden = x.copy()
        hidden[position] = largest
        weights = np.arange(50_000.0) if weighted else None
        same(bincount(hidden, weights), np.bincount(hidden, weights))
    on_device = bincount(
        cl_array.to_device(queue, hidden), None if weights is None else cl_array.to_device(queue, weights)
    )
    same(on_device.get(), np.bincount(hidden, weights))


@pytest.mark.parametrize("position", [0, 1, 12, 31_013, 49_999])
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8"])
def test_a_negative_entry_that_no_sample_shows(position, dtype, queue):
    x = np.ones(50_000, dtype)
    x[position] = np.iinfo(dtype).min
    for given in (x, cl_array.to_device(queue, x)):
        with pytest.raises(ValueError, match=r"^'list' argument must have no negative elements$"):
            bincount(given)


@pytest.mark.parametrize("position", [0, 1, 12, 31_013, 49_999])
@pytest.mark.parametrize("dtype", ["?", "i1", "u4", "i8"])
def test_a_single_one_on_the_device(dtype, position, queue):
    x = np.zeros(50_000, dtype)
    x[position] = 1
    same(bincount(cl_array.to_device(queue, x)).get(), np.bincount(x))


@pytest.mark.usefixtures("any_profile")
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("last", [[0.0], [-0.0], [-0.0, -0.0], [1.5, -1.5], [5e-324], [np.nan], [-np.inf]], ids=repr)
def test_weights_that_add_up_to_nothing_still_make_a_bin(last, reproducible, queue):
    x = np.append(np.zeros(30_000, np.int32), [7] * len(last)).astype(np.int32)
    weights = np.append(np.full(30_000, -0.0), last)
    expected = np.bincount(x, weights)
    found = bincount(x, weights, reproducible=reproducible)
    same(found, expected)
    same(np.signbit(found)[:7], np.signbit(expected)[:7])
    given = cl_array.to_device(queue, x), cl_array.to_device(queue, weights)
    same(bincount(*given, reproducible=reproducible).get(), expected)


@pytest.mark.usefixtures("any_profile")
def test_one_huge_bin(rng):
    x = np.where(rng.random(50_000) < 0.999, 12_345, rng.integers(0, 20_000, 50_000))
    same(bincount(x), np.bincount(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_device_arrays(dtype, queue, rng):
    x = rng.integers(0, 2 if dtype == "?" else 100, 3000).astype(dtype)
    weights = rng.integers(0, 9, 3000).astype("f4")
    given, given_weights = cl_array.to_device(queue, x), cl_array.to_device(queue, weights)
    found = bincount(given[3:])
    assert isinstance(found, cl_array.Array)
    same(found.get(), np.bincount(x[3:]))
    same(bincount(given[1:], given_weights[1:], 200).get(), np.bincount(x[1:], weights[1:], 200))
    same(bincount(given[:0], minlength=4).get(), np.zeros(4, np.intp))
    same(given.get(), x)


@pytest.mark.parametrize("weighted", [False, True])
def test_out(weighted, queue, rng):
    x, weights = rng.integers(0, 50, 2000), rng.integers(0, 9, 2000).astype("f8") if weighted else None
    expected = np.bincount(x, weights, 60)
    out = np.full_like(expected, -1)
    assert bincount(x, weights, 60, out=out) is out
    same(out, expected)
    out_on_device = cl_array.to_device(queue, np.full(62, -1, expected.dtype))
    on_device = [None if array is None else cl_array.to_device(queue, array) for array in (x, weights)]
    found = bincount(*on_device, 60, out=out_on_device[1:61])
    assert found.base_data == out_on_device.base_data
    same(out_on_device.get(), np.concatenate([[-1], expected, [-1]]).astype(expected.dtype))


def test_another_queue(out_of_order_queue, other_queue, rng):
    x = rng.integers(0, 50, 2000)
    for queue in (out_of_order_queue, other_queue):
        same(bincount(x, queue=queue), np.bincount(x))
        same(bincount(cl_array.to_device(queue, x)).get(), np.bincount(x))
        same(bincount(cl_array.to_device(queue, x), queue=queue).get(), np.bincount(x))


BAD_INPUT = [
    ([-1],),
    (np.array([0, -(2**63)]),),
    (np.array([-1, 2], np.int8),),
    (3,),
    (np.int64(3),),
    (np.array(3),),
    (None,),
    (np.zeros((2, 3), int),),
    ([[0, 1], [1, 0]],),
    (np.array([], np.float64),),
    (np.zeros(3),),
    (np.zeros(3, np.float32),),
    (np.zeros(3, complex),),
    (np.array(["a"]),),
    (np.array([1, 2], object),),
    (np.array([1], "M8[s]"),),
    ([0, 1], [1, 2, 3]),
    ([0, 1], []),
    ([0, 1], np.zeros((2, 1))),
    ([0, 1], np.float64(2.0)),
    ([0, 1], 2.0),
    ([0, 1], [[1.0, 2.0]]),
    ([0, 1], np.zeros(2, complex)),
    ([0, 1], np.zeros(2, np.longdouble)),
    ([0, 1], np.array(["a", "b"])),
    ([0, 1], np.array([1, 2], object)),
    ([0, 1], None, -1),
    ([0, 1], None, None),
    ([0, 1], None, 2.5),
    ([0, 1], None, "2"),
    ([], None, -1),
    ([0, 1], None, True),
    ([0, 1], None, np.False_),
    ([], None, False),
    ([0, 1], None, np.array([3])),
    ([0, 1], None, 2**60),
    ([0, 1], None, 2**62),
    ([], None, 2**62),
    ([0, 2**60 - 1],),
    ([0, 2**62],),
    ([0, 2**62], [1.0, 2.0]),
]


BAD_ON_DEVICE = [
    (np.zeros((2, 3), int),),
    (np.zeros(3),),
    (np.zeros(0),),
    (np.zeros(3, complex),),
    (np.arange(3), np.zeros(4)),
    (np.arange(3), np.zeros((3, 1))),
    (np.arange(3), np.zeros(3, complex)),
    (np.arange(3), None, -1),
    (np.arange(0), None, -1),
    (np.arange(3), None, None),
    (np.arange(3), None, 2.5),
    (np.arange(3), None, True),
    (np.arange(3), None, 2**62),
    (np.arange(0), None, 2**62),
    (np.array([0, 2**62]),),
]


@pytest.mark.parametrize(
    ("arguments", "where"), [*((each, "host") for each in BAD_INPUT), *((each, "device") for each in BAD_ON_DEVICE)],
    ids=repr,
)  # fmt: skip
def test_errors_are_those_of_numpy(arguments, where, queue):
    with pytest.raises((TypeError, ValueError, OverflowError)) as numpys:
        np.bincount(*arguments)
    if where == "device":
        arguments = [cl_array.to_device(queue, a) if isinstance(a, np.ndarray) else a for a in arguments]
    with pytest.raises(numpys.type) as ours:
        bincount(*arguments)
    assert str(ours.value) == str(numpys.value)


@pytest.mark.parametrize("largest", [2**63 - 1, 2**59])
def test_more_bins_than_there_is_room(largest):
    """NumPy's function writes beyond its result for 2^63 - 1; it is not asked."""
    with pytest.raises(ValueError if largest > 2**60 else MemoryError):
        bincount([0, largest])


def test_least_number_of_bins_as_an_array_without_dimensions(queue):
    for minlength in (np.array(5), np.int8(5), np.uint64(5)):
        same(bincount([0, 1, 1], minlength=minlength), np.bincount([0, 1, 1], minlength=5))
        same(bincount(cl_array.to_device(queue, np.array([0, 1, 1])), minlength=minlength).get(), [1, 2, 0, 0, 0])


@pytest.mark.parametrize("x", [None, 3, [[1], [2, 3]]], ids=repr)
def test_no_array_beside_weights_on_the_device(x, queue):
    with pytest.raises((TypeError, ValueError), match=r"^(x: |object of too small depth|setting an array element)"):
        bincount(x, cl_array.to_device(queue, np.ones(3)))
