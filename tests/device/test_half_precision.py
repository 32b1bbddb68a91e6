"""Half precision: values are read as they are, added up as floats and rounded once, wherever values are taken."""

import math
from fractions import Fraction

import numpy as np
import pytest
from covering import covering, each_value_quick
from halves import BINS, DTYPES, EPS, N, assert_rounded, both, drawn, every, finite, places

import clhist

pytestmark = pytest.mark.usefixtures("with_optimizer")


@pytest.mark.parametrize(("dtype", "op", "reproducible"), covering(DTYPES, ["sum", "min", "max"], [False, True]))
def test_every_number_comes_back(dtype, op, reproducible):
    values = every(dtype)
    found = clhist.reduce_by_index(
        values.size, op, np.arange(values.size), values, dtype=dtype, reproducible=reproducible
    )
    assert found.dtype == dtype
    number = ~np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(found.astype(np.float32)[number], values.astype(np.float32)[number])
    assert np.isnan(found.astype(np.float32)[~number]).all()
    if op != "sum":  # of which +0 is the identity
        np.testing.assert_array_equal(found.view(np.uint16)[number], values.view(np.uint16)[number])


@both
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_are_exact(dtype, op, queue):
    values = finite(dtype)
    bins = np.random.default_rng(3).integers(0, BINS, values.size)
    expected = np.full(BINS, np.inf if op == "min" else -np.inf)
    (np.minimum if op == "min" else np.maximum).at(expected, bins, values.astype(np.float64))
    found = clhist.reduce_by_index(BINS, op, bins, values)
    np.testing.assert_array_equal(found.astype(np.float64), expected)


@both
@places
@pytest.mark.parametrize("of_dest", ["none", "half", "float32", "float64"])
def test_sums_with_dest_and_out(dtype, put, of_dest):
    to, read = put
    bins, values = drawn(dtype)
    exact = np.bincount(bins, values.astype(np.float64), BINS)
    if of_dest == "none":
        assert_rounded(read(clhist.reduce_by_index(BINS, "sum", to(bins), to(values), dtype=dtype)), exact, dtype)
        return
    result = {"half": dtype, "float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}[of_dest]
    before = np.linspace(-3, 5, BINS).astype(result)
    dest = to(before.copy())
    assert clhist.reduce_by_index(dest, "sum", to(bins), to(values), out=dest) is dest
    assert_rounded(read(dest), exact + before.astype(np.float64), result)


@both
def test_wider_values_for_a_narrow_dest(dtype):
    bins, values = drawn(np.float32)
    found = clhist.reduce_by_index(np.zeros(BINS, dtype), "sum", bins, values)
    assert_rounded(found, np.bincount(bins, values.astype(np.float64), BINS), dtype)


@pytest.mark.parametrize(
    ("dtype", "place", "width", "op"),
    each_value_quick(covering(DTYPES, ["host", "device"], [1, 3, 8, 33], ["sum", "mean", "max"])),
)
def test_rows(dtype, put, width, op):
    to, read = put
    bins, values = drawn(dtype, (N // 8, width))
    whole = values.astype(np.float64)
    expected = np.full((BINS, width), -np.inf if op == "max" else 0.0)
    (np.maximum if op == "max" else np.add).at(expected, bins, whole)
    if op == "mean":
        expected /= np.bincount(bins, minlength=BINS)[:, None]
    given = (BINS, width), op, to(bins), to(values)
    assert_rounded(read(clhist.reduce_by_index(*given, dtype=dtype)), expected, dtype)
    out = to(np.zeros((BINS, width), dtype))
    clhist.reduce_by_index(*given, out=out)
    assert_rounded(read(out), expected, dtype)


WAYS = [
    {"update": "private"}, {"update": "cas"}, {"update": "lock"}, {"update": "sort"}, {"memory": "global"},
    {"memory": "local"}, {"memory": "partitioned"}, {"memory": "local", "passes": 3}, {"work_group_size": 1},
    {"work_group_size": 48}, {"copies": 2},
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "options", "op"), each_value_quick(covering(DTYPES, WAYS, ["sum", "max"])), ids=str)
def test_every_way(dtype, options, op):
    bins, values = drawn(dtype)
    exact = np.full(BINS, 0.0 if op == "sum" else -np.inf)
    (np.add if op == "sum" else np.maximum).at(exact, bins, values.astype(np.float64))
    assert_rounded(clhist.reduce_by_index(BINS, op, bins, values, dtype=dtype, **options), exact, dtype)


@both
@pytest.mark.parametrize("size", [0, 1, 2, 63])
@pytest.mark.parametrize("bins", [1, 1000])
def test_few_elements(dtype, size, bins):
    values = np.arange(size).astype(dtype)
    for order in (np.zeros(size, np.int32), np.arange(size), np.arange(size) - 5, np.full(size, bins)):
        exact, inside = np.zeros(bins), (order >= 0) & (order < bins)
        np.add.at(exact, order[inside], values.astype(np.float64)[inside])
        found = clhist.reduce_by_index(bins, "sum", order, values, dtype=dtype)
        np.testing.assert_array_equal(found, exact.astype(dtype))


def nearest_of(exact, numbers):
    """Return the numbers that are nearest to an exact one, of a sorted list of all finite ones."""
    at = np.searchsorted(numbers, float(exact))
    near = numbers[max(at - 2, 0) : at + 2]
    distances = [abs(Fraction(float(each)) - exact) for each in near]
    return [float(each) for each, distance in zip(near, distances, strict=True) if distance == min(distances)]


@both
def test_exact_sums_are_rounded_once(dtype):
    rng, numbers = np.random.default_rng(5), np.unique(finite(dtype).astype(np.float64))
    least = float(numbers[numbers > 0][0])
    step = numbers[rng.integers(1000, numbers.size - 1000, 2000)]
    between = np.stack([step, np.spacing(step.astype(np.float32)), rng.choice([-1.0, 0.0, 1.0], 2000) * least / 4], 1)
    ties = np.stack([step, (np.nextafter(step, np.inf) - step), np.zeros(2000)], 1)
    small = np.array([[k * least / 4, 0, 0] for k in range(-12, 13)])
    values = np.concatenate([between, ties, small]).astype(np.float32)
    bins = np.repeat(np.arange(len(values)), 3)
    found = clhist.reduce_by_index(np.zeros(len(values), dtype), "sum", bins, values.ravel(), reproducible=True)
    for k, each in enumerate(values):
        exact = sum(map(Fraction, map(float, each)), Fraction(0))
        near = nearest_of(exact, numbers)
        assert float(found[k]) in near
        assert len(near) == 1 or found[k : k + 1].view(np.uint16)[0] % 2 == 0  # of two the even one


@both
@pytest.mark.parametrize("max_abs", [None, 8.0])
def test_sums_that_no_order_changes(dtype, max_abs):
    bins, values = drawn(dtype)
    order = np.random.default_rng(9).permutation(N)
    options = {"reproducible": True, "max_abs": max_abs}
    one = clhist.reduce_by_index(BINS, "sum", bins, values, **options)
    assert one.tobytes() == clhist.reduce_by_index(BINS, "sum", bins[order], values[order], **options).tobytes()
    exact = [math.fsum(values[bins == k].astype(np.float64).tolist()) for k in range(BINS)]
    np.testing.assert_allclose(one.astype(np.float64), exact, rtol=EPS[dtype])


@both
def test_sums_beyond_what_there_is(dtype):
    values = np.array([np.inf, np.inf, -np.inf, np.nan, 1], dtype)
    for options in ({}, {"reproducible": True}):
        found = clhist.reduce_by_index(4, "sum", np.array([0, 1, 1, 2, 3]), values, **options).astype(np.float64)
        np.testing.assert_array_equal(found, [np.inf, np.nan, np.nan, 1])
    largest = finite(dtype).astype(np.float64).max()
    largest, options = np.array([largest, largest], dtype), {"reproducible": True, "dtype": dtype}
    found = clhist.reduce_by_index(1, "sum", np.zeros(2, int), largest, **options)
    assert np.isposinf(found.astype(np.float64)).all()
    with pytest.raises(OverflowError, match=r"^max_abs: expected no less than the largest"):
        clhist.reduce_by_index(1, "sum", np.zeros(2, int), np.array([3, 3], dtype), reproducible=True, max_abs=0.5)
