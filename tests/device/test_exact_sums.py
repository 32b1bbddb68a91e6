"""Exact sums of floats where it is hard: carries through all words, numbers of all sizes, values that cancel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest
from digests import BINS, by_bin, drawn, exact_sums, same_bits

from clhist import Accumulator, HistogramKernel, histogram, operators, reduce_by_index
from clhist._core.model import narrow, sweeps

pytestmark = pytest.mark.usefixtures("with_optimizer")

DTYPES = [np.float32, np.float64]


def one_in_all_words(dtype, bins, rounds):
    """Return bins and values that fill all digits of neighbouring bins to the brim, then carry both ways many times."""
    info = np.finfo(dtype)
    least, words = info.minexp - info.nmant, (info.maxexp - info.minexp + info.nmant) // 32
    filling = [s * 2.0 ** (least + 32 * k + e) for k in range(words) for e, s in ((31, 1), (0, -1))]
    steps = [2.0**least, -(2.0**least)] * rounds
    values = np.array(filling + steps[: 2 * rounds - 1], dtype)
    return np.tile(np.arange(bins, dtype=np.int32), len(values)), np.repeat(values, bins)


CARRYING = [
    {"update": "private"},
    {"update": "private", "memory": "local"},
    {"update": "carry", "memory": "local", "copies": 1},
    {"update": "carry", "memory": "local", "copies": 4, "passes": 2},
    {"update": "carry", "memory": "global", "copies": 1},
    {"update": "carry", "memory": "partitioned", "passes": 2},
    {"update": "lock", "memory": "local"},
    {"update": "sort"},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("choices", CARRYING, ids=lambda each: " ".join(map(str, each.values())))
def test_carries_through_all_words(choices, dtype, gpu_like):
    bins, values = one_in_all_words(dtype, 5, 1000)
    # One bin carries up first and down then, the next the other way round.
    values = np.where(bins % 2, -values, values)
    kernel = by_bin(operators.add(dtype), gpu_like)
    result = kernel(bins, values, num_bins=5, reproducible=True, **choices)
    same_bits(result, exact_sums(bins, values, 5))


@pytest.mark.parametrize("memory", ["local", "global"])
def test_two_values_of_an_element(memory, gpu_like):
    # No bin is held in registers then: each update adds a term.
    bins, values = one_in_all_words(np.float32, 5, 1000)
    kernel = by_bin(operators.add(np.float32), gpu_like, "EMIT(bins[i], values[i]); EMIT(bins[i] + 1, -values[i])")
    result = kernel(bins, values, num_bins=6, reproducible=True, update="carry", memory=memory, copies=1)
    both = np.concatenate([bins, bins + 1])
    same_bits(result, exact_sums(both, np.concatenate([values, -values]), 6))


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_sizes_of_numbers(dtype, rng):
    # Each bin has numbers of the whole range, and what is left when the large ones cancel.
    info = np.finfo(dtype)
    values = np.ldexp(rng.normal(size=4000), rng.integers(info.minexp - info.nmant, info.maxexp - 20, 4000))
    values = np.concatenate([values, -values[:3900]]).astype(dtype)
    bins = np.tile(rng.integers(0, BINS, 4000), 2)[:7900].astype(np.int32)
    same_bits(reduce_by_index(BINS, np.add, bins, values, reproducible=True), exact_sums(bins, values, BINS))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_value_leaves_other_bins_alone(dtype):
    bins, values = drawn(dtype)
    large = np.append(values, dtype(np.finfo(dtype).max / 2))
    result = reduce_by_index(BINS + 1, np.add, np.append(bins, BINS), large, reproducible=True)
    inside = bins < BINS
    same_bits(result[:-1], exact_sums(bins[inside], values[inside], BINS))


def exact_parts(bins, values, num_bins, dest=None):
    """Return the exact sums of complex numbers."""
    starts = np.zeros(num_bins, values.dtype) if dest is None else dest
    result = np.empty(num_bins, values.dtype)
    result.real = exact_sums(bins, values.real, num_bins, starts.real)
    result.imag = exact_sums(bins, values.imag, num_bins, starts.imag)
    return result


def complex_values(dtype):
    bins, real = drawn(dtype(0).real.dtype)
    return bins, (real + 1j * real[::-1]).astype(dtype)


@pytest.mark.parametrize("on_device", [False, True], ids=["numpy", "device"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_sums(dtype, on_device, queue):
    bins, values = complex_values(dtype)
    dest = np.full(BINS, 1e5 - 1j, dtype)
    expected = exact_parts(bins, values, BINS, dest)
    dest, bins, values = (cl_array.to_device(queue, each) if on_device else each for each in (dest, bins, values))
    out = dest.copy()
    result = reduce_by_index(out, np.add, bins, values, out=out, reproducible=True)
    assert result is out
    fresh, event = reduce_by_index(dest, np.add, bins, values, reproducible=True, return_event=True)
    event.wait()
    for each in (out, fresh):
        found = each.get() if on_device else each
        assert found.dtype == dtype
        same_bits(found.view(expected.real.dtype), expected.view(expected.real.dtype))


def test_complex_sums_of_vectors_batches_and_scalars():
    bins, values = complex_values(np.complex64)
    expected = exact_parts(bins, values, BINS)
    rows, pairs = np.stack([bins, bins]), np.stack([values, values])[..., None] * np.ones(3, np.complex64)
    result = reduce_by_index(np.zeros((2, BINS, 3), np.complex64), np.add, rows, pairs, batched=True, reproducible=True)
    np.testing.assert_array_equal(result, np.broadcast_to(expected[:, None], (2, BINS, 3)))
    ones = reduce_by_index(np.zeros(BINS, np.complex64), np.add, bins, 1 + 2j, reproducible=True)
    np.testing.assert_array_equal(ones, [(1 + 2j) * np.count_nonzero(bins == k) for k in range(BINS)])
    windowed = reduce_by_index(BINS, np.add, bins, values, reproducible=True, max_abs=2.0**14)
    np.testing.assert_allclose(windowed, expected, rtol=0, atol=5000 * 2.0**-15)
    with pytest.raises(OverflowError, match=r"^max_abs: "):
        reduce_by_index(BINS, np.add, bins, values, reproducible=True, max_abs=1)


@pytest.mark.parametrize("on_device", [False, True], ids=["numpy", "device"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("n", [0, 1, 999, 50_000])  # in blocks, too
def test_histograms_with_complex_weights(n, dtype, on_device, queue, rng):
    x = rng.random(n) * 1.2
    real, imag = np.ldexp(rng.normal(size=(2, n)), rng.integers(-40, 40, (2, n)))
    weights = (real + 1j * imag).astype(dtype)
    edges = np.linspace(0, 1, 8)
    bins = np.where(x <= 1, np.searchsorted(edges, x, "right") - 1, -1)
    bins[x == 1] = 6
    wide = weights.astype(np.complex128)
    expected = exact_parts(bins, wide, 7).astype(dtype)
    given = [cl_array.to_device(queue, each) if on_device else each for each in (x, weights)]
    for _ in range(2):  # the second call is recognised
        found, _ = histogram(given[0], edges, weights=given[1], reproducible=True, queue=queue)
        found = found.get() if on_device else found
        assert found.dtype == dtype
        same_bits(found.view(found.real.dtype), expected.view(expected.real.dtype))


def test_wrong_arrays_of_complex_sums(queue):
    bins, values = complex_values(np.complex64)
    for out in (np.zeros(BINS), [0] * BINS, cl_array.zeros(queue, BINS, np.complex64)):
        with pytest.raises(TypeError, match=r"^out: expected an array of NumPy of complex64, got"):
            reduce_by_index(BINS, np.add, bins, values, out=out, reproducible=True)
    for out in (np.zeros(BINS + 1, np.complex64), np.zeros(2 * BINS, np.complex64)[::2]):
        with pytest.raises(ValueError, match=rf"^out: expected a contiguous array of shape \({BINS},\), got"):
            reduce_by_index(BINS, np.add, bins, values, out=out, reproducible=True)
    real = [cl_array.to_device(queue, each) for each in (np.zeros(BINS, np.complex64), bins, values.real.copy())]
    with pytest.raises(TypeError, match=r"^values: expected complex64 of reproducible sums on a device, got float32$"):
        reduce_by_index(real[0], np.add, *real[1:], reproducible=True)


def test_plain_sums_by_carries_where_additions_of_floats_are_loops(gpu_like, rng, queue, monkeypatch):
    """Large ones are exact then, as they are on no other device."""
    monkeypatch.setattr(narrow, "LEAST_ELEMENTS", 0)
    monkeypatch.setattr(sweeps, "_MANY_ELEMENTS", 30_000)
    loops = replace(gpu_like, features=frozenset(f for f in gpu_like.features if "float" not in f))
    kernel = by_bin(operators.add(np.float32), loops)
    bins, values = drawn(np.float32, 40_001)
    many = 2000  # bins, of which private copies do not fit
    dest = rng.normal(size=many).astype(np.float32)
    assert kernel.plan(len(bins), many, queue=queue).update == "carry"
    assert kernel.plan(20_000, many, queue=queue).update == kernel.plan(len(bins), many, update="cas").update == "cas"
    for start in (None, dest):
        result = kernel(bins, values, num_bins=many, dest=start, queue=queue)
        same_bits(result, exact_sums(bins, values, many, start))
    stream = Accumulator(kernel, many, queue=queue)  # of floats
    stream.add(bins, values)
    stream.add(bins[:9], values[:9])
    want = exact_sums(np.append(bins, bins[:9]), np.append(values, values[:9]), many)
    np.testing.assert_allclose(stream.result(), want, rtol=1e-3, atol=1e-3 * np.abs(values).max())
    two = HistogramKernel(
        None,
        {"sum": operators.add(np.float32), "largest": operators.maximum(np.float32)},
        arguments="const int *x, const float *w",
        map="EMIT_sum(x[i], w[i]); EMIT_largest(x[i], w[i])",
        profile=loops,
    )
    assert "carry" not in {plan.update for plan in two.plan(len(bins), many, queue=queue)}
