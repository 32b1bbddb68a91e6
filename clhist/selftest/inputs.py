"""Bins to count, shapes of batches, and profiles that let any device run what others do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from clhist._core.devices.profile import Profile

Draw = Callable[[np.random.Generator, int, int], np.ndarray]  # of n elements in H bins

# Bytes of local memory, so few that moderate numbers of bins need several passes.
_LOCAL_MEMORY = 32768


def as_gpu(profile: Profile) -> Profile:
    """Return `profile` as if it were of a small GPU: elements interleaved, wide loads, shared copies."""
    room = min(_LOCAL_MEMORY, profile.local_memory)
    # Its rates are scaled for two compute units, so that a large GPU gets the plans of a small one, too.
    sheet = {"compute_units": 2}
    small = replace(profile, kind="gpu", hardware_threads=512, work_group_size=64, local_memory=room)
    return replace(small, rates={}, data_sheet=sheet)


def as_cpu(profile: Profile) -> Profile:
    """Return `profile` as if it were of a CPU with work-groups: a block of neighbouring elements for each work-item."""
    return replace(as_gpu(profile), kind="cpu", hardware_threads=64, work_group_size=16)


DISTRIBUTIONS: dict[str, Draw] = {
    "uniform, some outside": lambda rng, n, h: rng.integers(-2, h + 2, n),
    "all in the first bin": lambda rng, n, h: np.zeros(n),
    "all in one": lambda rng, n, h: np.full(n, h // 2),
    "all in the last bin": lambda rng, n, h: np.full(n, h - 1),
    "half in one": lambda rng, n, h: np.where(rng.random(n) < 0.5, h // 2, rng.integers(0, h, n)),
    "one of two": lambda rng, n, h: np.arange(n) % 2 * (h - 1),
    "neighbours in a word": lambda rng, n, h: np.minimum(h // 4 * 2 + np.arange(n) % 2, h - 1),
    "one of a word": lambda rng, n, h: np.minimum(h // 4 * 2 + (np.arange(n) % 3 > 0), h - 1),
    "sorted": lambda rng, n, h: np.sort(rng.integers(0, h, n)),
    "reversed": lambda rng, n, h: np.sort(rng.integers(0, h, n))[::-1],
    "one for each work-item": lambda rng, n, h: np.arange(n) % min(64, h),
    "zipf": lambda rng, n, h: np.minimum(rng.zipf(1.3, n) - 1, 10**6),
    "all before the first": lambda rng, n, h: np.full(n, -1),
    "all behind the last": lambda rng, n, h: np.full(n, h),
    "few inside": lambda rng, n, h: rng.integers(-(2**31), 2**31, n),
}


def drawn(name: str, rng: np.random.Generator, n: int, num_bins: int) -> np.ndarray:
    """Return `n` bins as int32, distributed over [0, num_bins) as `name` of `DISTRIBUTIONS` says."""
    return DISTRIBUTIONS[name](rng, n, num_bins).astype(np.int32)


# What runs of 1000 elements may look like: empty ones at each end and between, one alone, all empty, very different
# lengths.
OFFSETS = {
    "empty ends": [0, 0, 10, 10, 11, 300, 1000, 1000],
    "not all elements": [7, 100, 101, 900],
    "one of all": [0, 1000],
    "one of none": [500, 500],
    "all empty": [0, 0, 0, 0],
    "empty at the end": [1000, 1000, 1000],
    "one long, many short": [0, *range(1, 60), 990, *range(991, 1001)],
}

# Histograms, elements of each, bins: one, none, few large, many small, more than elements, more bins than local memory.
BATCHES = [
    (1, 1000, 7),
    (5, 0, 7),
    (1, 0, 1),
    (3, 3001, 31),
    (700, 13, 5),
    (5000, 1, 3),
    (33, 100, 9001),
    (2, 9, 100_000),
]
TINY_BATCHES = [(15, 100, 20), (1, 0, 1), (40, 13, 5), (3, 9, 9001)]
