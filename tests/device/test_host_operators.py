"""Operators on the host and on the device: the same results, for every named operator, ufunc, form and option."""

# ruff: noqa: B023  # calls are made before a loop goes on
from __future__ import annotations

import numpy as np
import pytest
from both_ways import assert_same, plain, ways
from covering import mostly_slow
from histograms import outcome

import clhist
from clhist._core.opencl.device import device_kind

pytestmark = pytest.mark.usefixtures("without_optimizer")

FLOATS = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -2.25, 1e-3])
BINS = 6


def values_of(dtype, size):
    """Return values with extremes of the dtype among them, and NaN, infinities and zeros in the first bins."""
    rng = np.random.default_rng(size)
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        x = rng.normal(size=size).astype(dtype)
        return x + (1j * rng.normal(size=size)).astype(dtype) if dtype.kind == "c" else x
    if dtype.kind == "b":
        return rng.random(size) < 0.5
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
    x[:2] = [limits.min, limits.max][: x[:2].size]
    return x


def bins_of(size):
    """Return bins of which some do not exist; the last one has no value."""
    return np.random.default_rng(size + 1).choice([*range(-3, BINS - 1), BINS, -(2**62), 2**40], size)


def compare(monkeypatch, arguments, **more):
    """Check that both ways give the same."""
    on_host, on_device = (plain(outcome(clhist.reduce_by_index, *arguments(), **more)) for _ in ways(monkeypatch))
    assert_same(on_host, on_device, exact=False)
    return on_host


NAMED = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "first", "last", "count")
UFUNCS = (np.fmin, np.fmax, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_xor)
CASES = [
    *((op, "f4") for op in (*NAMED, "mean", "var", "std", np.fmin, np.fmax, np.logical_xor)),
    *((op, "f8") for op in ("sum", "mean", "min", "argmax", "std")),
    *((op, "i1") for op in (*NAMED, *UFUNCS)),
    *((op, "u8") for op in (*NAMED, *UFUNCS)),
    *((op, "i8") for op in ("sum", "max", "argmin", "mean", "var", "last")),
    *((op, "?") for op in ("sum", "prod", "min", "any", np.logical_xor, np.bitwise_and, "mean")),
    *((op, "f2") for op in ("sum", "max", "argmax")),
    *((op, "c8") for op in ("sum", "prod", "mean")),
]


@pytest.mark.parametrize(("op", "dtype"), mostly_slow(CASES), ids=lambda each: getattr(each, "__name__", each))
def test_both_ways(op, dtype, monkeypatch):
    for size in (0, 1, 200):
        values, bins = values_of(dtype, size), bins_of(size)
        compare(monkeypatch, lambda: (BINS, op, bins, values))
    if np.dtype(dtype).kind == "f":
        special = np.concatenate([values, FLOATS, FLOATS[2:], np.zeros(2)]).astype(dtype)
        for moved in range(3):
            places = np.concatenate([bins, np.arange(moved, moved + 8) % 4, [4] * 6, [0, 1]])
            compare(monkeypatch, lambda: (BINS, op, places, special))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_the_value_of_an_extreme_is_that_of_its_index(op, dtype, monkeypatch):
    """Zeros of both signs are equal: the value has the sign of the element at the index.

    GPUs update a value of 32 bits and its index as one integer, in which both zeros are 0.0.
    """
    values = np.array([-0.0, 0.0, 0.0, -0.0, 0.0], dtype)
    is_one_integer = device_kind(clhist.default_queue().device) == "gpu" and dtype != "f8"
    for _ in ways(monkeypatch):
        extremes = clhist.reduce_by_index(2, op, [0, 0, 1, 1, 1], values)
        assert extremes["index"].tolist() == [0, 2]
        np.testing.assert_array_equal(extremes["value"], [0, 0])
        if not is_one_integer:
            assert np.signbit(extremes["value"]).tolist() == [True, False]


@pytest.mark.parametrize("op", ["sum", "mean", "var", "min", "any", "count", "argmax", "first"])
def test_initial_contents_and_results(op, monkeypatch):
    """Which are one more value of each bin; an `out` may share their memory."""
    values, bins = values_of("f4", 200), bins_of(200)
    start = np.arange(BINS, dtype=np.float32) - 2
    if op in ("argmax", "first"):
        pairs = clhist.operators.argmax(np.float32).dtype
        start = np.array(
            [(x, 5 * k if op == "argmax" else 200 + k if k % 2 else -1 - k) for k, x in enumerate(start)], pairs
        )
    compare(monkeypatch, lambda: (start, op, bins, values))
    on_host = compare(monkeypatch, lambda: (start, op, bins, values), out=np.zeros_like(start))
    for _ in ways(monkeypatch):
        dest = start.copy()
        assert clhist.reduce_by_index(dest, op, bins, values, out=dest) is dest
        assert_same(dest, on_host, exact=False)
    for wrong in (
        np.zeros(BINS, "i2"),
        np.zeros(BINS + 1, start.dtype),
        [0] * BINS,
        np.zeros((BINS, 2), start.dtype)[:, 0],
    ):
        assert issubclass(compare(monkeypatch, lambda: (start, op, bins, values), out=wrong)[0], Exception)


@pytest.mark.parametrize("dtype", ["f2", "bfloat16"])
@pytest.mark.parametrize("op", ["prod", np.multiply, "sum", "max"])
def test_half_precision_overflows_in_bins_alone(op, dtype, monkeypatch):
    """Partial results beyond half precision are float32: a product of many values and a zero is zero, not NaN."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    bins, values = np.repeat(np.arange(BINS), 20), np.tile([9.0] * 9 + [0.0] + [-3.0] * 10, BINS).astype(dtype)
    for start in (BINS, np.full(BINS, 2, dtype)):
        for out in (None, np.zeros(BINS, dtype)):
            result = compare(monkeypatch, lambda start=start: (start, op, bins, values), out=out)
            assert np.isfinite(np.asarray(result, np.float32)).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_sums_are_zeros_without_a_sign(dtype, monkeypatch):
    dest = np.full(3, -0.0, dtype)
    for _ in ways(monkeypatch):
        result = clhist.reduce_by_index(dest.copy(), "sum", [0, 1, 1], np.array([-0.0, -0.0, 0.0], dtype))
        assert not np.signbit(result.real).any()
        np.testing.assert_array_equal(result, np.zeros(3))


def test_forms(monkeypatch):
    """Scalars, vectors, batches, structs, masks, other byte orders, strides, lists and narrower values."""
    bins, x = bins_of(300), values_of("f4", 300)
    rows = values_of("f4", 900).reshape(300, 3)
    for op in ("sum", "max", "mean", "argmax"):
        compare(monkeypatch, lambda: ((BINS, 3), op, bins, rows))
        compare(monkeypatch, lambda: ((4, BINS), op, bins.reshape(4, 75), x.reshape(4, 75)), batched=True)
        compare(monkeypatch, lambda: ((4, BINS, 3), op, bins.reshape(4, 75), rows.reshape(4, 75, 3)), batched=True)
    for scalar in (2, 2.5, np.inf, np.float32(0.1), "x", None, 1 + 1j):
        compare(monkeypatch, lambda: (np.ones(BINS, "f4"), "sum", bins, scalar))
    for scalar in (2, 300, 1.5):
        compare(monkeypatch, lambda: (np.ones(BINS, "i1"), "sum", bins, scalar))
    compare(monkeypatch, lambda: (BINS, "argmin", bins, (x, np.arange(300)[::-1])))
    compare(monkeypatch, lambda: (BINS, "first", bins, (x, np.arange(300) * 7 % 300)))
    dtype = np.dtype([("a", np.float32), ("b", np.int32)])
    structs = np.zeros(300, dtype)
    structs["a"], structs["b"] = x, values_of("i4", 300)
    compare(monkeypatch, lambda: (np.zeros(BINS, dtype), np.maximum, bins, structs))
    compare(monkeypatch, lambda: (np.zeros(BINS, dtype), np.add, bins, (structs["a"], structs["b"])))
    masked = np.ma.array(x, mask=np.arange(300) % 3 == 0)
    for op in ("sum", "last", "mean"):
        compare(monkeypatch, lambda: (BINS, op, np.ma.array(bins, mask=np.arange(300) % 5 == 0), masked))
    for given in (
        bins.astype("i1"),
        (bins % 5).astype("u8"),
        bins.astype(">i4"),
        np.repeat(bins, 2)[::2],
        bins.tolist(),
    ):
        compare(monkeypatch, lambda: (BINS, "sum", given, x))
    for given in (x.astype(">f4"), np.repeat(x, 2)[::2], x.tolist(), x.astype("f2"), x.astype("i2"), x.astype("?")):
        compare(monkeypatch, lambda: (np.zeros(BINS, "f4"), "sum", bins, given))
        compare(monkeypatch, lambda: (np.zeros(BINS, ">f4"), "mean", bins, given))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i8"])
def test_bins_beyond_the_integers_of_their_type(dtype, monkeypatch, rng):
    """Narrow bins are compared as they are: -1 is in no bin, however many bins there are, and all of uint8 may be."""
    least = 0 if dtype.startswith("u") else -3
    for number in (100, 127, 128, 129, 255, 256, 300):
        bins = rng.integers(least, min(np.iinfo(dtype).max, 310) + 1, 400).astype(dtype)
        bins[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = rng.normal(size=400)
        result = compare(monkeypatch, lambda: (number, "sum", bins, values))
        expected = np.zeros(number)
        inside = (bins >= 0) & (bins.astype("f8") < number)
        np.add.at(expected, bins[inside].astype("i8"), values[inside])
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def test_options_keep_a_call_on_the_device(monkeypatch):
    """Where a host implementation lacks them; operators in C have none."""
    bins, x = bins_of(200), values_of("f4", 200)
    square = clhist.Operator(np.float32, "a + b", 0, "squares", lift="v * v", finish="a")
    assert square.host is None
    assert clhist.operators.product({"a": square}).host is None
    compare(monkeypatch, lambda: (BINS, square, bins, x))
    for options in ({"reproducible": True}, {"memory": "global"}, {"dtype": "f8"}):
        compare(monkeypatch, lambda: (BINS, "sum", bins, x), **options)
    exact = compare(monkeypatch, lambda: (BINS, "sum", bins, x), reproducible=True)
    summed = [x[bins == k].astype("f8").sum() for k in range(BINS)]
    np.testing.assert_array_equal(exact, np.array(summed, "f4"))
    count = clhist.operators.count(np.int64)
    assert "expected none for count" in str(compare(monkeypatch, lambda: (np.zeros(BINS, int), count, bins, 1)))


def test_sums_of_a_large_bin_are_accurate(monkeypatch):
    x = np.full(3000, 0.1, np.float32)
    for _ in ways(monkeypatch):
        found = clhist.reduce_by_index(1, "sum", np.zeros(3000, int), x)
        np.testing.assert_allclose(found, 3000 * np.float64(np.float32(0.1)), rtol=2e-6)


@pytest.mark.parametrize("dest", [5, np.arange(5.0)], ids=["number", "array"])
def test_an_event_is_returned(dest):
    """The host has none: a call that wants one runs on the device, also after others of its kind."""
    indices, values = np.array([0, 4, 4, -1, 7]), np.arange(5.0)
    for _ in range(2):
        expected = clhist.reduce_by_index(dest, np.add, indices, values)
        result, event = clhist.reduce_by_index(dest, np.add, indices, values, return_event=True)
        event.wait()
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("operator", ["sum", "prod", "min", "max", "mean", "var", "argmin", "argmax", "first"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_and_infinities_cause_no_warnings(operator, dtype, monkeypatch):
    bits = {np.float16: 0x7C01, np.float32: 0x7F800001, np.float64: 0x7FF0000000000001}
    signaling = np.array([bits[dtype]], f"u{dtype().itemsize}").view(dtype)
    values = np.tile(np.concatenate([np.array([np.inf, -np.inf, np.nan, np.finfo(dtype).max], dtype), signaling]), 9)
    for _ in ways(monkeypatch):
        assert len(clhist.reduce_by_index(7, operator, np.arange(45) % 7, values)) == 7
