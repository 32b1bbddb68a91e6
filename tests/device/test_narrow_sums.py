"""Exact sums that are tried in few words: values that fit, values that do not, and those that nobody looked at."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from digests import by_bin, exact_sums, same_bits

from clhist import HistogramKernel, operators
from clhist.planning import choose, narrow

DTYPES = [np.float32, np.float64]
N, BINS = 40_000, 37
TILES = {"memory": "partitioned", "passes": 3}
OWN_WAYS = [{}, {"passes": 3}, TILES]
WAYS = [
    {"memory": "local"},
    {"memory": "local", "copies": 2, "passes": 3},
    {"memory": "local", "copies": 1, "passes": 2, "pass_order": "side by side"},
    {"memory": "partitioned", "passes": 3},
]


def normal(dtype, rng):
    return rng.normal(size=N)


def one_size(dtype, rng):
    # As large, all of one sign, and in the last bins alone: digits are filled to the brim.
    return np.full(N, 1 + np.finfo(dtype).eps)


def brim(dtype, rng):
    # Carries through all words of a bin, up and down.
    values = np.tile([np.finfo(dtype).eps, -np.finfo(dtype).eps, 1.0, -1.0, 2.0**20, -(2.0**20)], N // 6 + 1)[:N]
    values[:9] = 2.0 ** np.arange(9)
    return values


def all_sizes(dtype, rng):
    info = np.finfo(dtype)
    return np.ldexp(rng.normal(size=N), rng.integers(info.minexp - info.nmant, info.maxexp - 20, N))


def cancelling(dtype, rng):
    half = np.ldexp(rng.normal(size=N // 2), rng.integers(-9, 9, N // 2))
    return np.concatenate([half, -half[::-1]])


def unseen(value):
    def values(dtype, rng):
        found = rng.normal(size=N)
        found[N // 2 + 39] = value(np.finfo(dtype))  # between two runs of what is looked at
        return found

    return values


KINDS = {
    "normal": normal,
    "one size": one_size,
    "brim": brim,
    "all sizes": all_sizes,
    "cancelling": cancelling,
    "zeros": lambda dtype, rng: np.where(rng.random(N) < 0.5, 0.0, -0.0),
    "least": lambda dtype, rng: rng.integers(-9, 9, N) * float(np.finfo(dtype).smallest_subnormal),
    "largest": lambda dtype, rng: rng.normal(size=N) * float(np.finfo(dtype).max) / 2**22,
    "overflow": lambda dtype, rng: np.full(N, float(np.finfo(dtype).max)),
    "a large one": unseen(lambda info: float(info.max)),
    "a small one": unseen(lambda info: float(info.smallest_subnormal)),
    "infinity": unseen(lambda info: np.inf),
    "NaN": unseen(lambda info: np.nan),
    "many infinities": lambda dtype, rng: np.where(np.arange(N) % 5, rng.normal(size=N), np.inf),
}


def expected_sums(bins, values, dest=None):
    special = ~np.isfinite(values)
    found = exact_sums(bins[~special], values[~special], BINS, dest)
    for k in np.unique(bins[special]):
        if 0 <= k < BINS:
            found[k] = values[special & (bins == k)].sum()
    return found


@pytest.fixture
def tried(monkeypatch):
    """Let few elements be tried."""
    monkeypatch.setattr(narrow, "LEAST_ELEMENTS", 0)


def runs(rng):
    """Return bins of which up to eleven neighbours are the same: GPUs join the values of four."""
    return np.repeat(rng.integers(-2, BINS + 1, N), rng.integers(1, 12, N))[:N].astype(np.int32)


def check(kernel, dtype, rng, queue, dest=None, **way):
    plan = kernel.plan(N, BINS, queue=queue, **way)
    assert plan.again is not None
    assert "summed again" in dict(plan.words())["if values are of very different sizes"]
    bins = runs(rng)
    for name, make in KINDS.items():
        with np.errstate(all="ignore"):
            values = make(dtype, rng).astype(dtype)
            expected = expected_sums(bins, values, dest)
        result = kernel(bins, values, num_bins=BINS, dest=dest, queue=queue, **way)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected), err_msg=name)
        same_bits(result[~np.isnan(result)], expected[~np.isnan(expected)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS, ids=lambda each: " ".join(map(str, each.values())))
def test_narrow_sums(way, dtype, tried, gpu_like, rng, queue):
    kernel = by_bin(operators.reproducible_add(dtype), gpu_like)
    check(kernel, dtype, rng, queue, update="carry", **way)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", OWN_WAYS, ids=lambda each: " ".join(map(str, each.values())))
def test_narrow_sums_in_private_copies(way, dtype, tried, few_items, rng, queue):
    kernel = by_bin(operators.reproducible_add(dtype), few_items)
    for dest in (None, np.ldexp(rng.normal(size=BINS), rng.integers(-99, 99, BINS)).astype(dtype)):
        check(kernel, dtype, rng, queue, dest, **way)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("few_by_tiles", [True, False])
def test_both_plans_take_ways_of_their_own(few_by_tiles, dtype, tried, few_items, rng, queue, monkeypatch):
    monkeypatch.setattr(choose, "is_worth_tiles", lambda load, _: (load.bin_bytes[0] < 40) == few_by_tiles)
    kernel = by_bin(operators.reproducible_add(dtype), replace(few_items, name=f"{few_by_tiles}"))  # plans of its own
    plan = kernel.plan(N, BINS, queue=queue)
    assert (plan.memory, plan.again.memory) == (("local", "global") if few_by_tiles else ("global", "local"))
    check(kernel, dtype, rng, queue)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [{}, TILES], ids=["private", "tiles"])
def test_sums_between_two_numbers(way, dtype, tried, few_items, rng, queue):
    """Of few values each: just in the middle, and a little more or less, by what the words of a value can hold."""
    number, bits = 8_000, np.finfo(dtype).nmant + 1
    sizes = {24: [0, 1, -1, -24, -23, -25, -27], 53: [0, 1, -1, -29, -30]}[bits]
    few_bits = 1 + rng.integers(0, 8, number) * 2.0 ** (1 - bits) * rng.integers(0, 2, number)
    values = (np.ldexp(few_bits, rng.choice(sizes, number)) * rng.choice([-1, 1], number)).astype(dtype)
    bins = np.repeat(np.arange(number // 4, dtype=np.int32), 4)
    order = rng.permutation(number)
    kernel = by_bin(operators.reproducible_add(dtype), few_items)
    result = kernel(bins[order], values[order], num_bins=number // 4, queue=queue, **way)
    if dtype == np.float32:
        same_bits(result, exact_sums(bins, values, number // 4))
    else:
        same_bits(result, np.array([math.fsum(row) for row in values.reshape(-1, 4).tolist()]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dest_is_a_value_like_others(dtype, tried, profile, rng, queue):
    dest = np.ldexp(rng.normal(size=BINS), rng.integers(-99, 99, BINS)).astype(dtype)
    check(by_bin(operators.reproducible_add(dtype), profile), dtype, rng, queue, dest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_streams_and_merges_hold_accumulators_of_all_values(dtype, tried, profile, rng, queue):
    kernel = by_bin(operators.reproducible_add(dtype), profile)
    bins, values = rng.integers(0, BINS, N).astype(np.int32), normal(dtype, rng).astype(dtype)
    values[N // 3] = np.finfo(dtype).max / 4  # of one chunk alone
    first, second = (kernel.accumulator(BINS, queue=queue) for _ in range(2))
    for k, part in enumerate(np.array_split(np.arange(N), 5)):
        (second if k % 2 else first).add(bins[part], values[part])
    first.merge(second)
    same_bits(first.result(), exact_sums(bins, values, BINS))


def test_a_map_that_writes_is_called_once(tried, gpu_like, rng, queue):
    kernel = HistogramKernel(
        queue.context,
        operators.reproducible_add(np.float32),
        arguments="const int *bins, float *values",
        map="EMIT(bins[i], values[i]); values[i] = 0",
        profile=gpu_like,
    )
    assert kernel.plan(N, BINS, queue=queue, update="carry").again is None
    bins, values = rng.integers(0, BINS, N).astype(np.int32), normal(np.float32, rng).astype(np.float32)
    expected = exact_sums(bins, values, BINS)
    same_bits(kernel(bins, values, num_bins=BINS, update="carry"), expected)


@pytest.mark.parametrize("window", [{}, {"max_abs": 8.0, "bits": 64, "count": N + 1}])
def test_options_that_change_sums_of_floats(window, tried, cpu_like, rng, queue):
    # What rounds to the next part is no longer what it was: the kernel sees that, and all is summed again.
    kernel = HistogramKernel(
        queue.context,
        operators.reproducible_add(np.float64, **window),
        arguments="const int *bins, const double *values",
        map="EMIT(bins[i], values[i])",
        options=["-cl-fast-relaxed-math"],
        profile=cpu_like,
    )
    bins, values = rng.integers(0, BINS, N).astype(np.int32), (rng.normal(size=N) * 2**50).round() / 2**50
    same_bits(kernel(bins, values, num_bins=BINS), exact_sums(bins, values, BINS))


def test_private_copies_of_a_gpu_are_not_tried(tried, gpu_like, rng, queue):
    kernel = by_bin(operators.reproducible_add(np.float32), gpu_like)
    assert kernel.plan(N, BINS, queue=queue, update="private").again is None
    bins, values = rng.integers(0, BINS, N).astype(np.int32), normal(np.float32, rng).astype(np.float32)
    same_bits(kernel(bins, values, num_bins=BINS, update="private"), exact_sums(bins, values, BINS))


def test_few_elements_are_not_tried(gpu_like, queue):
    kernel = by_bin(operators.reproducible_add(np.float32), gpu_like)
    assert kernel.plan(N, BINS, queue=queue, update="carry").again is None
    assert kernel.plan(2**20, BINS, queue=queue, update="carry").again is not None


LIMIT = 2.0**20
WINDOWS = {
    "normal": lambda dtype, rng: rng.normal(size=N),
    "ties": lambda dtype, rng: (rng.integers(-(2**20), 2**20, N) + 0.5) * 2.0**-19,
    "brim": brim,
    "all sizes": lambda dtype, rng: np.ldexp(rng.normal(size=N), -rng.integers(0, np.finfo(dtype).nmant * 4, N)),
    "the largest": lambda dtype, rng: np.where(rng.random(N) < 0.9, 1.0, -1.0) * 2.0**20,
    "zeros": KINDS["zeros"],
    "least": KINDS["least"],
    "infinity": unseen(lambda info: np.inf),
    "NaN": unseen(lambda info: np.nan),
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [{}, TILES], ids=["private", "tiles"])
def test_windows_in_private_copies(way, dtype, bits, tried, few_items, rng, queue):
    kernel = by_bin(operators.reproducible_add(dtype, LIMIT, bits=bits, count=2**31), few_items)
    check_windows(kernel, dtype, bits, rng, queue, **way)


@pytest.mark.parametrize("way", [{}, {"pass_order": "in turn"}, {"pass_order": "side by side"}], ids=str)
def test_windows_without_flags_save_a_pass(way, tried, gpu_like, rng, queue):
    # Local memory for 40 or 20 bins of two words, but not for as many of three.
    small = replace(gpu_like, local_memory=8 * BINS // (2 if way else 1) + 20)
    kernel = by_bin(operators.reproducible_add(np.float32, LIMIT, count=2**30), small)
    plan = kernel.plan(N, BINS, queue=queue, update="carry", memory="local", **way)
    assert plan.passes < plan.again.passes
    check_windows(kernel, np.float32, 32, rng, queue, update="carry", memory="local", **way)


def test_windows_with_flags_where_these_cost_no_pass(tried, gpu_like, queue):
    kernel = by_bin(operators.reproducible_add(np.float32, LIMIT, count=2**30), gpu_like)
    assert kernel.plan(N, BINS, queue=queue, update="carry", memory="local").again is None


def check_windows(kernel, dtype, bits, rng, queue, **way):
    assert kernel.plan(N, BINS, queue=queue, **way).again is not None
    power = 2.0**24  # a window ends at a power of 16
    bins = runs(rng)
    start = rng.normal(size=BINS).astype(dtype)
    quantum = max(Fraction(power) / 2**bits, Fraction(float(np.finfo(dtype).smallest_subnormal)))

    def rounded(numbers):  # to multiples of the quantum, half to even
        return np.array([float(round(Fraction(each) / quantum) * quantum) for each in numbers.tolist()])

    for name, make in WINDOWS.items():
        values = make(dtype, rng).astype(dtype)
        special = ~np.isfinite(values)
        exact = np.where(special, values, rounded(np.where(special, 0, values)))
        for dest in (None, start) if name == "normal" else (None,):
            expected = expected_sums(bins, exact, None if dest is None else rounded(dest))
            result = kernel(bins, values, num_bins=BINS, dest=dest, queue=queue, **way)
            np.testing.assert_array_equal(np.isnan(result), np.isnan(expected), err_msg=name)
            wanted = ~np.isnan(expected)
            same_bits(result[wanted], expected[wanted].astype(dtype))
