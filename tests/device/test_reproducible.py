"""Sums of floats as long integers: bitwise the same in any order, by any plan and on any device, and exact.

What a sum must be is computed here from the definition, with Python's integers.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, inf, nan

import numpy as np
import pyopencl.array as cl_array
import pytest
from digests import BINS, by_bin, drawn, exact_sums, same_bits

from clhist import Accumulator, HistogramKernel, Operator, bincount, operators, reduce_by_index
from clhist.selftest.reference import nearest

pytestmark = pytest.mark.usefixtures("with_optimizer")

DTYPES = [np.float32, np.float64]


def quantum_of(max_abs, dtype, bits):
    """Return 2^-bits times the least power of 16 above `max_abs`, but not less than the least float."""
    power = Fraction(16) ** -300
    while power <= Fraction(max_abs):
        power *= 16
    return max(power / 2**bits, Fraction(float(np.finfo(dtype).smallest_subnormal)))


def defined_sum(values, quantum, dtype):
    """Return what the bin of finite `values` must be."""
    return nearest(sum((round(Fraction(v) / quantum) for v in values), 0) * quantum, dtype)


def defined_sums(bins, values, num_bins, max_abs, bits, dest=None):
    dtype = values.dtype.type
    quantum = quantum_of(max_abs, dtype, bits)
    listed = [[] if dest is None else [float(dest[k])] for k in range(num_bins)]
    for k, value in zip(bins.tolist(), values.tolist(), strict=True):
        if 0 <= k < num_bins:
            listed[k].append(value)
    return np.array([defined_sum(group, quantum, dtype) for group in listed])


# Windows of two words to four.
SHAPES = [(np.float32, 32, 1), (np.float32, 64, 2**31), (np.float64, 32, 2**40), (np.float64, 64, 2**47 - 1)]


@pytest.mark.parametrize("memory", ["", "local", "global"])
@pytest.mark.parametrize(("dtype", "bits", "count"), SHAPES)
def test_sums_are_as_defined(dtype, bits, count, memory):
    bins, values = drawn(dtype)
    most = float(np.abs(values).max())
    # Halves of quanta, which are rounded to even, and the largest that is taken.
    more = np.arange(-64, 64) * float(quantum_of(most, dtype, bits) / 2), [np.finfo(dtype).tiny, most, -most, -most]
    values, bins = np.append(values, np.concatenate(more)).astype(dtype), np.append(bins, np.arange(132) % BINS)
    operator = operators.reproducible_add(dtype, most, bits=bits, count=count)
    choices = {"update": "carry", "memory": memory} if memory else {}
    same_bits(reduce_by_index(BINS, operator, bins, values, **choices), defined_sums(bins, values, BINS, most, bits))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dest_is_a_value_like_others(dtype):
    bins, values = drawn(dtype)
    result = reduce_by_index(np.ones(BINS, dtype), np.add, bins, values, reproducible=True)
    same_bits(result, exact_sums(bins, values, BINS, np.ones(BINS)))


PLANS = [
    {"update": "private"},
    {"update": "carry", "memory": "local", "copies": 3, "passes": 2},
    {"update": "carry", "memory": "global", "passes": 3},
    {"update": "lock", "memory": "local", "locks": 16},
    {"memory": "partitioned", "passes": 3},
    {"update": "sort"},
]


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_any_order_and_any_plan(dtype, gpu_like, rng):
    bins, values = drawn(dtype)
    kernel = by_bin(operators.add(dtype), gpu_like)
    expected = reduce_by_index(BINS, np.add, bins, values, reproducible=True)
    for choices in PLANS[:-1] if dtype is np.float64 else PLANS:  # whose accumulators no GPU's scan takes
        order = rng.permutation(len(bins))
        result = kernel(bins[order], values[order], num_bins=BINS, reproducible=True, **choices)
        same_bits(result, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_error_bound(dtype):
    bins, values = drawn(dtype, spread=20)
    most = float(np.abs(values).max())
    result = reduce_by_index(BINS, np.add, bins, values, reproducible=True, max_abs=most)
    bits, most = 8 * result.itemsize, Fraction(most)
    for k, got in enumerate(result.tolist()):
        group = [Fraction(v) for v in values[bins == k].tolist()]
        exact = sum(group, Fraction(0))
        # As operators.reproducible_add says: rounding of the values, and half a unit in the last place of the sum.
        last = Fraction(float(np.spacing(dtype(abs(got))))) / 2
        assert abs(Fraction(got) - exact) <= len(group) * most * Fraction(2) ** (3 - bits) + last


def test_sums_of_one_size_are_better_than_plain_ones(rng):
    # 2^16 values in [1, 2): plain summation may be off by n u sum|v| (Higham 2002, 4.2), this by less than one unit.
    values = rng.uniform(1, 2, 2**16).astype(np.float32)
    got = reduce_by_index(1, np.add, np.zeros(2**16, np.int8), values, reproducible=True, max_abs=2)
    exact = sum(map(Fraction, values.tolist()), Fraction(0))
    assert abs(Fraction(float(got[0])) - exact) <= Fraction(float(np.spacing(got[0]))) / 2 + 2**16 * Fraction(2) ** -29


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype):
    groups = {
        (): 0.0,
        (-0.0,): 0.0,
        (-0.0, -0.0): 0.0,
        (1.5, -1.5): 0.0,
        (nan,): nan,
        (inf, 1): inf,
        (-inf, 1): -inf,
        (inf, inf): inf,
        (inf, -inf): nan,
        (-inf, nan): nan,
        (3.0, -1.0): 2.0,
    }
    bins = np.array([k for k, group in enumerate(groups) for _ in group], np.int32)
    values = np.array([v for group in groups for v in group], dtype)
    expected = np.array(list(groups.values()), dtype)
    for order in (slice(None), slice(None, None, -1)):
        result = reduce_by_index(len(groups), np.add, bins[order], values[order], reproducible=True)
        same_bits(result, expected)  # one NaN, and no -0
        with np.errstate(invalid="ignore"):
            plain = np.zeros(len(groups), dtype)
            np.add.at(plain, bins[order], values[order])
        np.testing.assert_array_equal(result, plain)


@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_numbers_and_the_largest(dtype):
    info = np.finfo(dtype)
    least, most = float(info.smallest_subnormal), float(info.max)
    bins = np.array([0, 0, 1, 2, 2, 3], np.int32)
    small = np.array([least, 2 * least, -least, float(info.tiny), -least, 5 * least], dtype)
    result = reduce_by_index(5, np.add, bins, small, reproducible=True)
    same_bits(result, np.array([3 * least, -least, float(info.tiny) - least, 5 * least, 0], dtype))
    # Sums that overflow, and sums of which only a part would.
    bins = np.array([0, 0, 1, 1, 1, 2, 2, 3])
    large = np.array([most, most, most, most, -most, -most, -most, most], dtype)
    result = reduce_by_index(4, np.add, bins, large, reproducible=True)
    same_bits(result, np.array([inf, most, -inf, most], dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_roundings_to_even(dtype):
    one, digits = dtype(1), np.finfo(dtype).nmant + 1
    # 2^digits + 1 is between two floats, as is 2^digits + 3; one more decides.
    whole = float(2**digits)
    groups = [
        [whole, one],
        [whole, one, one, one],
        [whole, one, one, one, one],
        [-whole, -one],
        [whole, -one, one, one],
    ]
    bins = np.array([k for k, group in enumerate(groups) for _ in group], np.int16)
    values = np.array([v for group in groups for v in group], dtype)
    result = reduce_by_index(len(groups), operators.reproducible_add(dtype, whole, bits=64), bins, values)
    assert result.tolist() == [whole, whole + 4, whole + 4, -whole, whole]


@pytest.mark.parametrize("values", [[], [0.0, -0.0], [nan, inf]])
def test_no_finite_values(values):
    bins = np.arange(len(values)) + 1
    result = reduce_by_index(np.zeros(4), np.add, bins, np.array(values), reproducible=True)
    same_bits(result, np.array([0, *(values or []), 0, 0, 0][:4]) + 0.0)


@pytest.mark.parametrize("most", [0, 2.0**-149, 2.0**-140])
def test_the_least_window_is_exact(most):
    # It has values of less than 2^(32 - 149); the sums of all of these are exact.
    least = np.finfo(np.float32).smallest_subnormal
    values, bins = np.array([3, -1, 2, 2.0**31], np.float32) * least, np.array([0, 0, 2, 3])
    result = reduce_by_index(4, np.add, bins, values, reproducible=True, max_abs=most)
    same_bits(result, np.array([2, 0, 2, 2.0**31], np.float32) * least)
    with pytest.raises(OverflowError, match=r"^max_abs: expected no less than the largest .* first at \(1,\)$"):
        reduce_by_index(4, np.add, bins + 1, values[::-1] * np.float32(2), reproducible=True, max_abs=most)


def test_too_large_values_are_reported():
    bins, values = np.array([0, 1, 2, 2]), np.array([1.0, 300, inf, 300])
    with pytest.raises(
        OverflowError, match=r"^max_abs: expected .* up to 256; 1 bins of the result .* first at \(1,\)$"
    ):
        reduce_by_index(3, np.add, bins, values, reproducible=True, max_abs=200)
    out = np.zeros(3)
    with pytest.raises(OverflowError, match=r"^max_abs: "):
        reduce_by_index(np.array([1e9, 0, 0]), np.add, bins, values / 300, reproducible=True, max_abs=1, out=out)
    stream = Accumulator(operators.reproducible_add(np.float64, 1), 3)
    stream.add(bins, values)
    with pytest.raises(OverflowError, match=r"^max_abs: "):
        stream.result()


def test_too_large_values_are_nan_on_the_device(queue):
    bins, values = np.array([0, 1, 2]), np.array([1, 300, inf], np.float32)
    given = [cl_array.to_device(queue, array) for array in (bins, values)]
    result = reduce_by_index(3, np.add, *given, reproducible=True, max_abs=1).get()
    np.testing.assert_array_equal(result, [1, nan, inf])
    again = reduce_by_index(3, np.add, *given, reproducible=True).get()
    np.testing.assert_array_equal(again, values)


def test_kernels_with_several_outputs_and_dest(rng):
    bins, values = drawn(np.float32)
    kernel = HistogramKernel(
        None,
        {"sum": operators.add(np.float32), "least": operators.minimum(np.float32), "number": operators.add(np.int64)},
        arguments="const int *bins, const float *x",
        map="EMIT_sum(bins[i], x[i]); EMIT_sum(bins[i] + 1, -x[i]); EMIT_least(bins[i], x[i]); EMIT_number(bins[i], 1)",
    )
    dest = {"sum": np.full(BINS, 1e6, np.float32), "number": np.ones(BINS, np.int64)}
    order = rng.permutation(len(bins))
    first = kernel(bins, values, num_bins=BINS, dest=dest, reproducible=True)
    second = kernel(bins[order], values[order], num_bins=BINS, dest=dest, reproducible=True)
    both = np.concatenate([bins, bins + 1])
    expected = exact_sums(both, np.concatenate([values, -values]), BINS, dest["sum"])
    same_bits(first["sum"], expected)
    assert first["number"].tolist() == [1 + np.count_nonzero(bins == k) for k in range(BINS)]
    for name, result in first.items():
        np.testing.assert_array_equal(result.view(np.uint8), second[name].view(np.uint8), err_msg=name)


@pytest.mark.parametrize("on_device", [False, True], ids=["numpy", "device"])
def test_sums_beside_structs(on_device, queue, rng):
    bins, values = drawn(np.float64)
    pair = np.dtype([("low", np.int32), ("high", np.int64)], align=True)
    least = Operator(pair, "b.low < a.low || (b.low == a.low && b.high < a.high) ? b : a", (2**31 - 1, 2**63 - 1))
    pairs = np.zeros(len(bins), pair)
    pairs["low"], pairs["high"] = rng.integers(-9, 9, (2, len(bins)))
    kernel = HistogramKernel(
        None,
        {"sum": operators.add(np.float64), "least": least},
        arguments="const int *bins, const double *x, const value_least_t *pairs",
        map="EMIT_sum(bins[i], x[i]); EMIT_least(bins[i], pairs[i])",
    )
    given = [cl_array.to_device(queue, each) if on_device else each for each in (bins, values, pairs)]
    result = kernel(*given, num_bins=BINS, queue=queue, reproducible=True)
    found = {name: each.get() if on_device else each for name, each in result.items()}
    same_bits(found["sum"], exact_sums(bins, values, BINS))
    rows = list(zip(bins.tolist(), pairs.tolist(), strict=True))
    assert found["least"].tolist() == [
        min([p for k, p in rows if k == b], default=(2**31 - 1, 2**63 - 1)) for b in range(BINS)
    ]


def test_vectors_batches_scalars_and_other_dtypes(rng):
    bins, values = rng.integers(0, 9, (4, 300)), rng.normal(size=(4, 300, 2))
    dest = np.zeros((4, 9, 2), np.float32)
    result = reduce_by_index(dest, np.add, bins, values, batched=True, reproducible=True)
    order = rng.permutation(300)
    same_bits(reduce_by_index(dest, np.add, bins[:, order], values[:, order], batched=True, reproducible=True), result)
    one = reduce_by_index(np.zeros(9, np.float32), np.add, bins[1], values[1, :, 1].copy(), reproducible=True)
    same_bits(result[1, :, 1].copy(), one)
    same_bits(one, exact_sums(bins[1], values[1, :, 1].astype(np.float32), 9))
    tenths = reduce_by_index(np.zeros(9, np.float32), np.add, bins[0], 0.1, reproducible=True)
    assert tenths.tolist() == [
        float(nearest(np.count_nonzero(bins[0] == k) * Fraction(float(np.float32(0.1))), np.float32)) for k in range(9)
    ]


@pytest.mark.usefixtures("any_profile")
def test_bincount(rng):
    x, weights = rng.integers(0, 50, 3000), rng.normal(size=3000)
    order = rng.permutation(3000)
    result = bincount(x, weights, reproducible=True)
    same_bits(bincount(x[order], weights[order], reproducible=True), result)
    same_bits(result, np.array([fsum(weights[x == k].tolist()) for k in range(50)]))
    np.testing.assert_array_equal(bincount(x, reproducible=True), np.bincount(x))


@pytest.mark.parametrize("max_abs", [None, 1e5])
def test_streams_and_partial_results(max_abs, rng):
    bins, values = drawn(np.float32)
    operator = operators.reproducible_add(np.float32, max_abs)
    expected = reduce_by_index(BINS, operator, bins, values)
    streams = [Accumulator(operator, BINS) for _ in range(2)]
    for k, part in enumerate(np.array_split(rng.permutation(len(bins)), 7)):
        streams[k % 2].add(bins[part], values[part])
    streams[0].merge(streams[1])
    same_bits(streams[0].result(), expected)


def test_minima_have_one_zero_and_one_nan(profile):
    values = np.array([0.0, -0.0, 1, nan, -nan], np.float32)
    bins = np.array([0, 0, 0, 1, 1], np.int32)
    kernel = by_bin(operators.minimum(np.float32), profile)
    for order in (slice(None), slice(None, None, -1)):
        result = kernel(bins[order].copy(), values[order].copy(), num_bins=2, reproducible=True)
        assert np.signbit(result[0])
        assert result[0] == 0
        assert np.isnan(result[1])


def test_integers_of_structs_need_nothing():
    pair = np.dtype([("low", np.int32), ("high", np.int32)], align=True)
    operator = Operator(pair, "(value_t){min(a.low, b.low), max(a.high, b.high)}", (2**31 - 1, -(2**31)))
    values = np.array([(3, 3), (-1, -1), (5, 5)], pair)
    result = reduce_by_index(1, operator, np.zeros(3, np.int8), values, reproducible=True)
    assert result.tolist() == [(-1, 5)]


def test_maps_without_contraction(rng):
    # A product is rounded before it is added. Note [Contraction], docs/decisions/0013.
    a, b, c = rng.normal(size=(3, 1000)).astype(np.float32)
    kernel = HistogramKernel(
        None,
        operators.add(np.float32),
        arguments="const float *a, const float *b, const float *c",
        map="EMIT(i, a[i] * b[i] + c[i])",
        preamble="#pragma OPENCL FP_CONTRACT OFF",
    )
    same_bits(kernel(a, b, c, num_bins=1000), a * b + c)


REFUSED = {
    "mean": operators.mean(np.float32),
    "product": operators.multiply(np.float64),
    "complex": operators.multiply(np.complex64),
    "own": Operator(np.float32, "hypot(a, b)", 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_that_depend_on_the_order(name):
    with pytest.raises(TypeError, match=r"^reproducible: expected sums of float32 or float64, or an operator whose"):
        reduce_by_index(3, REFUSED[name], np.arange(3), 1.0, reproducible=True)


def test_wrong_arguments():
    bins = np.arange(3)
    for given in (-1, inf, nan):
        with pytest.raises(ValueError, match=r"^max_abs: expected a finite number that is not negative, got"):
            reduce_by_index(3, np.add, bins, 1.0, reproducible=True, max_abs=given)
    for given, dtype, least in ((1e-46, np.float32, r"1\.4013e-45"), (np.float64(7e-46), np.float32, r"1\.4013e-45")):
        with pytest.raises(
            ValueError, match=rf"^max_abs: expected 0, or {least} or more, the least .* of float32; got"
        ):
            reduce_by_index(3, np.add, bins, dtype(1), reproducible=True, max_abs=given)
    for given in (True, np.False_):
        with pytest.raises(TypeError, match=r"^max_abs: expected a finite number that is not negative, got"):
            reduce_by_index(3, np.add, bins, 1.0, reproducible=True, max_abs=given)
    for given in ([1], 1j, "a"):
        with pytest.raises(ValueError, match=r"^max_abs: .* does not fit float64"):
            reduce_by_index(3, np.add, bins, 1.0, reproducible=True, max_abs=given)
    with pytest.raises(ValueError, match=r"^max_abs: '1' does not fit float64"):
        operators.reproducible_add(np.float32, "1")
    with pytest.raises(ValueError, match=r"^bits: expected 32 or 64, got 53$"):
        operators.reproducible_add(np.float32, 1, bits=53)
    with pytest.raises(ValueError, match=r"^count: expected an integer in \[1, 140737488355327\], got 0$"):
        operators.reproducible_add(np.float32, 1, count=0)
    for option in ("bits", "count"):
        with pytest.raises(
            TypeError, match=rf"^{option}: expected none without max_abs, since the sums are exact; got 32"
        ):
            operators.reproducible_add(np.float32, **{option: 32})
    with pytest.raises(TypeError, match=r"^dtype: expected a float, got int32$"):
        operators.reproducible_add(np.int32, 1)
    with pytest.raises(TypeError, match=r"^max_abs: expected none, since the sums are not reproducible; got 1$"):
        reduce_by_index(3, np.add, bins, 1.0, max_abs=1)
    kernel = HistogramKernel(None, operators.add(np.float32), arguments="int n", map="for (; n; --n) EMIT(n, 1)")
    with pytest.raises(TypeError, match=r"^max_abs: expected none"):
        kernel(3, num_bins=3, size=1, max_abs=1)
    with pytest.raises(ValueError, match=r"^reproducible: expected a kernel that says by emits="):
        kernel(3, num_bins=3, size=1, reproducible=True)
