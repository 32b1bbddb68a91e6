"""Exact sums of floats where it is hard: carries through all words, numbers of all sizes, values that cancel."""

from __future__ import annotations

import numpy as np
import pytest
from digests import BINS, drawn, exact_sums, same_bits

from clhist import HistogramKernel, operators, reduce_by_index

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
    kernel = HistogramKernel(
        None,
        operators.add(dtype),
        arguments="const int *bins, const value_t *values",
        map="EMIT(bins[i], values[i])",
        profile=gpu_like,
    )
    if choices["update"] == "sort" and dtype is np.float64:
        with pytest.raises(
            ValueError, match=r"^update: 'sort' is not available on a GPU for accumulators of more than"
        ):
            kernel(bins, values, num_bins=5, reproducible=True, **choices)
        return
    result = kernel(bins, values, num_bins=5, reproducible=True, **choices)
    same_bits(result, exact_sums(bins, values, 5))


@pytest.mark.parametrize("memory", ["local", "global"])
def test_two_values_of_an_element(memory, gpu_like):
    # No bin is held in registers then: each update adds a term.
    bins, values = one_in_all_words(np.float32, 5, 1000)
    kernel = HistogramKernel(
        None,
        operators.add(np.float32),
        arguments="const int *bins, const float *values",
        map="EMIT(bins[i], values[i]); EMIT(bins[i] + 1, -values[i])",
        profile=gpu_like,
    )
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
