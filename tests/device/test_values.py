"""Values: NaN, infinities, zeros of both signs, sums that would overflow, one value that all pairs share."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from covering import covering, each_value_quick, mostly_slow

import clhist
from clhist import HistogramKernel, Operator, operators
from clhist._core.devices.vendors import MEMORIES
from clhist._core.opencl.device import device_features
from clhist.selftest.cases import neutral_of, pair_kernel, random_values
from clhist.selftest.reference import groups_of

FLOATS = [np.float32, np.float64]


def specials(rng: np.random.Generator, dtype: type, n: int, *, finite: float) -> np.ndarray:
    """Draw small whole numbers, whose sums are exact, and `1 - finite` of other values."""
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)
    return np.where(rng.random(n) < finite, rng.integers(-9, 9, n), rng.choice(special, n)).astype(dtype)


UFUNCS = np.add, np.minimum, np.maximum, np.fmin, np.fmax


@pytest.mark.parametrize(
    ("ufunc", "dtype", "memory", "finite"),
    mostly_slow(list(product(UFUNCS, FLOATS, MEMORIES, (0.0, 0.9)))),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_nan_and_infinities(ufunc, dtype, memory, finite, gpu_like, rng, queue):
    operator = operators.as_operator(ufunc, dtype)
    bins, values = rng.integers(0, 400, 2000, np.int32), specials(rng, dtype, 2000, finite=finite)
    kernel, forced = pair_kernel(operator, gpu_like), {"memory": memory, "update": "cas", "copies": 1}
    if np.dtype(dtype).itemsize == 8 and "int64_base_atomics" not in device_features(queue.device):
        with pytest.raises(ValueError, match=r"^update: 'cas' is not available .*cl_khr_int64_base_atomics"):
            kernel(bins, values, num_bins=400, **forced)
        return
    result = kernel(bins, values, num_bins=400, **forced)
    neutral = neutral_of(ufunc, np.dtype(dtype))
    with np.errstate(invalid="ignore"):
        expected = [ufunc.reduce(np.array(group, dtype), initial=neutral) for group in groups_of(bins, values, 400)]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("memory", MEMORIES)
def test_one_bin_full_of_nan(memory, gpu_like):
    # Compared as numbers, a NaN that was found would never be the NaN that was expected: an endless loop.
    bins, values = np.zeros(5000, np.int32), np.full(5000, np.nan, np.float32)
    for ufunc in (np.add, np.maximum, np.fmax):
        kernel = pair_kernel(operators.as_operator(ufunc, np.float32), gpu_like)
        assert np.isnan(kernel(bins, values, num_bins=1, memory=memory, update="cas", copies=1)).all()


@pytest.mark.parametrize("update", ["cas", "lock"])
@pytest.mark.parametrize(("name", "first"), [("argmax", np.argmax), ("argmin", np.argmin)])
def test_index_of_an_extreme_among_nan(name, first, update, gpu_like, rng, queue):
    operator = getattr(operators, name)(np.float32)
    bins = rng.integers(0, 400, 2000, np.int32)
    pairs = np.zeros(2000, operator.dtype)
    pairs["value"], pairs["index"] = specials(rng, np.float32, 2000, finite=0.5), np.arange(2000)
    call = partial(pair_kernel(operator, gpu_like), bins, pairs, num_bins=400, update=update, copies=1)
    if update == "cas" and "int64_base_atomics" not in device_features(queue.device):
        with pytest.raises(ValueError, match=r"^update: 'cas' is not available .*cl_khr_int64_base_atomics"):
            call()
        return
    result = call()
    for k in range(400):
        inside = np.flatnonzero(bins == k)
        best = inside[first(pairs["value"][inside])] if len(inside) else None
        neutral = (-np.inf if name == "argmax" else np.inf, 2**31 - 1)
        value, index = neutral if best is None else pairs[best].tolist()
        assert result[k]["index"] == index
        np.testing.assert_equal(result[k]["value"], value)


@pytest.mark.parametrize(
    ("dtype", "maximum", "most"),
    [
        (np.uint8, 255, 40),
        (np.int8, 127, 127),
        (np.uint16, 1000, 1500),
        (np.int32, 2**24 - 1, 2**22),
        (np.uint32, 2**32 - 1, 2**31),
        (np.int64, 2**63 - 1, 2**62),
        (np.uint64, 2**64 - 1, 2**63),
        (np.float32, 1000.0, 300),
    ],
)
def test_saturating_sums(dtype, maximum, most, gpu_like, rng):
    bins = np.minimum(rng.geometric(0.1, 2000), 60).astype(np.int32)
    values = rng.integers(0, most, 2000, endpoint=True, dtype=np.uint64).astype(dtype)
    kernel = pair_kernel(operators.saturating_add(dtype, maximum), gpu_like)
    expected = [min(maximum, sum(group)) for group in groups_of(bins, values, 64)]
    assert maximum in expected
    assert 0 in expected
    np.testing.assert_array_equal(kernel(bins, values, num_bins=64), np.array(expected, dtype))


@pytest.mark.parametrize(
    ("ufunc", "dtype"),
    [
        *((ufunc, np.float32) for ufunc in (np.logical_and, np.logical_or, np.logical_xor)),
        (np.logical_and, np.int8),
        (np.logical_or, np.uint64),
    ],
    ids=lambda value: value.__name__,
)
def test_truth_of_numbers(ufunc, dtype, gpu_like, rng):
    bins, values = rng.integers(0, 900, 2000, np.int32), random_values(rng, 2000, dtype)
    values[rng.random(2000) < 0.5] = 0
    if dtype is np.float32:
        values[::7] = np.nan
    kernel = pair_kernel(operators.as_operator(ufunc, dtype), gpu_like)
    expected = [ufunc.reduce(np.array(group, dtype)) for group in groups_of(bins, values, 900)]
    np.testing.assert_array_equal(kernel(bins, values, num_bins=900), np.array(expected, dtype), strict=True)


@pytest.mark.parametrize("values", [[1, 2, 3, np.inf], [-np.inf, 1, 2, 3], [1, np.inf, np.inf], [np.inf, -np.inf]])
def test_variances_of_infinities_are_nan(values):
    given = np.array(values)
    for op in ("var", "std"):
        assert np.isnan(clhist.reduce_by_index(1, op, np.zeros(len(given), int), given)).all()


SHARED = [
    *({"memory": "local", "copies": copies, "passes": passes} for copies, passes in ((1, 1), (3, 1), (1, 3))),
    *({"memory": "partitioned", "passes": passes} for passes in (1, 5)),
    {"memory": "global"},
    {},
]


@pytest.mark.parametrize("value", [0, 1, -7, 2**31 - 1])
@pytest.mark.parametrize(("dtype", "choices"), each_value_quick(covering([np.int32, np.int64], SHARED)), ids=str)
def test_a_value_that_all_pairs_share(dtype, choices, value, gpu_like, rng, queue):
    """Bins in local memory count them, and are multiplied at the end, modulo the same power of 2."""
    bins = np.where(rng.random(20_003) < 0.5, 17, rng.integers(-3, 303, 20_003)).astype(np.int32)
    kernel = HistogramKernel(
        None, operators.add(dtype), arguments="const int *x, int k", map="EMIT(x[i], k)", profile=gpu_like
    )  # and a name that our own loops have
    before = rng.integers(-99, 99, 300).astype(dtype)
    want = np.bincount(bins[(bins >= 0) & (bins < 300)], minlength=300) * value
    got = kernel(bins, value, num_bins=300, **choices), kernel(bins, value, num_bins=300, dest=before, **choices)
    for found, expected in zip(got, (want, want + before), strict=True):
        np.testing.assert_array_equal(found, expected.astype(dtype))
    has_atomics = dtype == np.int32 or "int64_base_atomics" in device_features(queue.device)
    if choices.get("memory") == "local" and has_atomics:
        assert "clhist_emit(CLHIST_BIN(bin), 1, " in kernel.source(kernel.plan(20_003, 300, **choices))


CONVERTED = [("w", -2.5, 2), ("-w", 2.5, 2), ("w * 2 - 7.5", 1.0, 5), ("-1.5f", 0.0, 1)]


@pytest.mark.parametrize(
    ("converted", "choices"),
    each_value_quick(covering(CONVERTED, [{"memory": "local"}, {"memory": "partitioned", "passes": 3}])),
    ids=str,
)
def test_the_value_is_converted_first(choices, converted, gpu_like, rng, queue):
    """As that of each pair is: to the type of values, then to that of accumulators."""
    value, given, number = converted
    bins = rng.integers(0, 50, 5000, np.int32)
    operator = Operator(np.int32, "a + b", 0, accumulator=np.int64, lift="v", finish="a < 0 ? -a : a")
    kernel = HistogramKernel(
        None, operator, arguments="const int *x, float w", map=f"EMIT(x[i], {value})", profile=gpu_like
    )
    has_atomics = "int64_base_atomics" in device_features(queue.device)
    assert ("clhist_factor" in kernel.source(kernel.plan(5000, 50, **choices))) == has_atomics
    np.testing.assert_array_equal(kernel(bins, given, num_bins=50, **choices), np.bincount(bins) * number)
