"""What docs/reliability.md says of numbers: large counts, narrow integers, and values that are no ordinary floats."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import Accumulator, HistogramKernel, Operator, bincount, operators, reduce_by_index

pytestmark = pytest.mark.usefixtures("with_optimizer")

BEYOND = 2**31 + 5


def counting(operator=None, code="EMIT(i & 3, 1)", **more):
    return HistogramKernel(None, operator or operators.add(np.int64), arguments="int unused", map=code, **more)


@pytest.mark.slow
def test_more_of_a_value_than_an_int_counts():
    x = np.zeros(BEYOND, np.uint8)  # no memory but a page of zeros
    x[[0, 7, -1]] = 3
    assert bincount(x).tolist() == [BEYOND - 3, 0, 0, 3]


@pytest.mark.slow
def test_more_elements_than_32_bits_count():
    size = 2**32 + 8
    assert counting()(1, num_bins=4, size=size).tolist() == [size // 4] * 4


@pytest.mark.parametrize("before", [2**31 - 2, 2**32 - 2, 2**53 - 1, 2**63 - 2])
def test_counts_go_on_where_dest_ends(before):
    with np.errstate(over="ignore"):
        expected = np.full(4, before) + np.full(4, 25)  # modulo 2^64 as NumPy
    dest = np.full(4, before)
    np.testing.assert_array_equal(counting()(1, num_bins=4, size=100, dest=dest), expected, strict=True)
    indices = np.arange(100) % 4
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, 1), expected, strict=True)
    stream = Accumulator(np.add, 4, dtype=np.int64)
    other = Accumulator(np.add, 4, dest=dest)
    other.add(indices, 1)
    stream.merge(other)
    np.testing.assert_array_equal(stream.result(), expected, strict=True)


def test_batches_and_means_of_large_counts():
    numbers = np.array([2**32 + 1, 2**33], np.int64)
    result = reduce_by_index(np.stack([numbers, numbers]), np.add, np.array([[0, 0], [1, 1]]), 2**32, batched=True)
    assert result.tolist() == [[3 * 2**32 + 1, 2**33], [2**32 + 1, 2**34]]
    assert operators.mean(np.float32).accumulator["number"] == np.uint64


def test_counters_of_32_bits_refuse_what_they_cannot_count():
    kernel = counting(operators.count())
    message = r"^size: expected at most 4294967295 values for count, got 4294967296; use clhist.operators.add$"
    with pytest.raises(OverflowError, match=message):
        kernel(1, num_bins=4, size=2**32)
    twice = counting(operators.count(), "EMIT(i & 3, 1); EMIT(i & 1, 1)")
    with pytest.raises(OverflowError, match=message):
        twice(1, num_bins=4, size=2**31)
    # The shares of a batch count, not all of them: this one is planned, and refused for its memory alone.
    with pytest.raises(MemoryError, match=r"^memory_budget: "):
        kernel(1, num_bins=4, size=2**33, num_histograms=4, memory_budget=1)
    with pytest.raises(OverflowError, match=message):
        Accumulator(kernel, 4).add(1, size=2**32)


def test_streams_go_on_counting_in_64_bits():
    kernel = counting(operators.count())
    stream = Accumulator(kernel, 4)
    for _ in range(3):
        stream.add(1, size=8)
        stream._count = 2**32 - 1  # as if so many had been counted
    stream.add(1, size=5)
    assert stream.result().tolist() == [8, 7, 7, 7]
    assert stream.size == 29
    many = Accumulator(kernel, 4)
    many.add(1, size=4)
    for _ in range(40):
        many.merge(many, allow_repeat=True)
    many.merge(stream)
    assert many.result().tolist() == [2**40 + 8, 2**40 + 7, 2**40 + 7, 2**40 + 7]
    assert many.partial().size == 2**42 + 3 * (2**32 - 1) + 5


def test_counters_of_32_bits_take_no_dest_that_they_cannot_hold():
    dest = np.array([2**32 + 5, -1])
    message = r"^dest: expected none for count, whose bins are uint32 until they are read and cannot hold int64;"
    with pytest.raises(ValueError, match=message):
        reduce_by_index(dest, operators.count(), np.array([0]), 1)
    with pytest.raises(ValueError, match=message):
        Accumulator(operators.count(), 2, dest=dest)
    narrow = reduce_by_index(np.array([7, -1], np.int32), operators.count(np.int32), np.array([0, 1, 1]), 1)
    assert narrow.tolist() == [8, 1]


def test_limits_of_ones_own():
    few = Operator(np.int8, "a + b", 0, "few", most_values=3)
    assert counting(few)(1, num_bins=4, size=3).tolist() == [1, 1, 1, 0]
    with pytest.raises(OverflowError, match=r"^size: expected at most 3 values for few, got 4; use an operator with a"):
        counting(few)(1, num_bins=4, size=4)
    both = operators.product({"few": few, "count": operators.count(), "sum": operators.add(np.float32)})
    assert both.most_values == 3


@pytest.mark.parametrize(
    ("code", "preamble"),
    [
        ("for (int k = 0; k < 3; ++k) EMIT(k, 1)", ""),
        ("THRICE(EMIT(k++, 1))", "#define THRICE(call) int k = 0; call; call; call"),
    ],
)
@pytest.mark.parametrize("name", ["few", "count", "reproducible_add"])
def test_limits_of_maps_that_repeat_emits(name, code, preamble):
    made = {"count": operators.count(), "reproducible_add": operators.reproducible_add(np.float32, 1, count=2**20)}
    operator = made.get(name) or Operator(np.int8, "a + b", 0, "few", most_values=3)
    with pytest.raises(ValueError, match=rf"^emits: expected a bound .* since {name} takes at most \d+ values .*pass "):
        counting(operator, code, preamble=preamble)
    stated = counting(operator, code, preamble=preamble, emits=3)
    assert stated(1, num_bins=4, size=1).tolist() == [1, 1, 1, 0]
    with pytest.raises(OverflowError, match=r"^size: expected at most "):
        stated(1, num_bins=4, size=operator.most_values // 3 + 1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply], ids=lambda ufunc: ufunc.__name__)
def test_narrow_integers_wrap_as_in_numpy(ufunc, dtype, rng):
    info = np.iinfo(dtype)
    bins, values = rng.integers(0, 5, 300), rng.integers(info.min, info.max, 300, dtype, endpoint=True)
    expected = np.array([info.max, info.min, info.max, 0, 1], dtype)
    result = reduce_by_index(expected, ufunc, bins, values)
    ufunc.at(expected, bins, values)
    np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("values", [np.array([1000, 10, -1], np.int64), np.array([200, 10, 1], np.uint8)])
def test_wider_values_of_sums_are_taken_modulo(values):
    dest, indices = np.array([120, 3], np.int8), np.array([0, 0, 1])
    expected = dest.copy()
    np.add.at(expected, indices, values)
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, indices, values), expected, strict=True)


@pytest.mark.parametrize(("dtype", "value"), [(np.int8, 300), (np.uint8, -1), (np.int32, 1.5), (np.int64, 2**63)])
def test_a_value_for_all_that_does_not_fit_is_refused(dtype, value):
    with pytest.raises(ValueError, match=r"^values: .* does not fit "):
        reduce_by_index(np.zeros(2, dtype), np.add, np.array([0]), value)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2"])
def test_counts_of_narrow_entries_are_wide(dtype, rng):
    x = rng.integers(0, 2, 70_000).astype(dtype)
    result = bincount(x, minlength=3)
    assert result.dtype == np.intp
    np.testing.assert_array_equal(result, np.bincount(x, minlength=3), strict=True)
    weighted = bincount(x, x)
    np.testing.assert_array_equal(weighted, np.bincount(x, x), strict=True)


def test_entries_beyond_numbers_of_bins():
    for x in (np.array([2**63], np.uint64), np.array([3, 2**64 - 1], np.uint64), np.array([3, -1], np.int8)):
        with pytest.raises(ValueError, match=r"^'list' argument must have no negative elements$"):
            bincount(x)


FLOATS = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.logical_or], ids=lambda ufunc: ufunc.__name__)
def test_special_floats_as_in_numpy(ufunc, dtype, rng):
    info = np.finfo(dtype)
    special = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1, -1, info.max, info.tiny], dtype)
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)  # each with each
    bins = np.tile(np.arange(pairs.shape[1]), 2)
    dest = np.full(pairs.shape[1], 1 if ufunc is np.multiply else 0, dtype)
    with np.errstate(all="ignore"):
        expected = dest.copy()
        ufunc.at(expected, bins, pairs.ravel())
    result = reduce_by_index(dest, ufunc, bins, pairs.ravel())
    np.testing.assert_array_equal(result, expected, strict=True)
    np.testing.assert_array_equal(np.signbit(result)[result == 0], np.signbit(expected)[result == 0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_negative_zeros_are_positive(dtype):
    bins = np.array([0, 0, 1])
    result = reduce_by_index(np.full(3, -0.0, dtype), np.add, bins, np.full(3, -0.0, dtype))
    assert result.tolist() == [0, 0, 0]
    assert not np.signbit(result).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormal_minima(dtype):
    least = float(np.finfo(dtype).smallest_subnormal)
    bins, values = np.array([0, 0, 1, 1], np.int32), np.array([least, 2 * least, -least, -2 * least], dtype)
    kernel = HistogramKernel(
        None,
        {name: getattr(operators, name)(dtype) for name in ("minimum", "maximum", "fmin", "fmax")},
        arguments="const int *bins, const value_fmin_t *x",
        map="; ".join(f"EMIT_{name}(bins[i], x[i])" for name in ("minimum", "maximum", "fmin", "fmax")),
    )
    results = kernel(bins, values, num_bins=2, reproducible=True)  # by bits, on any device
    for name, expected in (("min", [least, -2 * least]), ("max", [2 * least, -least])):
        assert results[f"{name}imum"].tolist() == expected
        assert results[f"f{name}"].tolist() == expected


def test_floats_stop_counting_where_their_digits_end():
    # As in NumPy: 2^24 + 1 is no float32. Nothing in clhist counts in float32 unless it is asked to.
    start = np.full(1, 2**24, np.float32)
    assert reduce_by_index(start, np.add, np.zeros(1, np.int8), 1).tolist() == [2**24]
    assert reduce_by_index(start, np.add, np.zeros(2, np.int8), 1, reproducible=True).tolist() == [2**24 + 2]
    assert bincount(np.zeros(3, np.int8)).dtype == np.intp
