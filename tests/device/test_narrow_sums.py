"""Exact sums that are tried in few words: values that fit, values that do not, and those that nobody looked at."""

from __future__ import annotations

import numpy as np
import pytest
from digests import by_bin, exact_sums, same_bits

from clhist import operators
from clhist.planning import narrow

DTYPES = [np.float32, np.float64]
N, BINS = 40_000, 37
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
    """Let few elements be tried, and count the programs that are."""
    monkeypatch.setattr(narrow, "LEAST_ELEMENTS", 0)


def is_tried(kernel, queue, **choices):
    (plan,) = kernel._engine.plan(queue.device, N, ((BINS,),), **choices)
    return plan.again is not None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS, ids=lambda each: " ".join(map(str, each.values())))
def test_narrow_sums(way, dtype, tried, gpu_like, rng, queue):
    kernel = by_bin(operators.reproducible_add(dtype), gpu_like)
    bins = rng.integers(-2, BINS + 1, N).astype(np.int32)
    for name, make in KINDS.items():
        with np.errstate(all="ignore"):
            values = make(dtype, rng).astype(dtype)
            expected = expected_sums(bins, values)
        result = kernel(bins, values, num_bins=BINS, update="carry", **way)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected), err_msg=name)
        same_bits(result[~np.isnan(result)], expected[~np.isnan(expected)])
