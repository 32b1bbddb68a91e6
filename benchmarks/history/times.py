"""Times of the public functions for asv, which keeps their history (docs/bench.md).

Whole calls as users make them, on NumPy arrays larger than a processor's cache; nothing is compared with peers here,
which `clhist bench` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import clhist

N = 20_000_000
_RNG = np.random.default_rng(0)


class Pairs:
    """Calls that take a bin, and a value, of each element."""

    params = ([64, 2041, 150_000, 1_400_000],)
    param_names = ("bins",)

    def setup(self, bins: int) -> None:
        """Make the input, and compile what the calls need."""
        self.indices = _RNG.integers(0, bins, N, dtype=np.int32)
        self.values = _RNG.random(N, dtype=np.float32)
        self.time_count(bins)
        self.time_sum(bins)
        self.time_argmax(bins)

    def time_count(self, bins: int) -> None:
        clhist.bincount(self.indices, minlength=bins)

    def time_sum(self, bins: int) -> None:
        clhist.reduce_by_index(bins, "sum", self.indices, self.values)

    def time_argmax(self, bins: int) -> None:
        clhist.reduce_by_index(bins, "argmax", self.indices, self.values)


class ExactSums:
    """Sums that are the same on every device."""

    params = ([2041, 150_000],)
    param_names = ("bins",)

    def setup(self, bins: int) -> None:
        """Make the input, and compile what the call needs."""
        self.indices = _RNG.integers(0, bins, N // 4, dtype=np.int32)
        self.values = _RNG.standard_normal(N // 4, dtype=np.float32)
        self.time_sum(bins)

    def time_sum(self, bins: int) -> None:
        clhist.reduce_by_index(bins, "sum", self.indices, self.values, reproducible=True)


class Histograms:
    """`histogram` and `histogram2d` by kind of bins."""

    def setup(self) -> None:
        """Make the input, and compile what the calls need."""
        self.x, self.y = _RNG.standard_normal((2, N), dtype=np.float32)
        self.edges = np.sort(_RNG.uniform(-3, 3, 101)).astype(np.float32)
        self.time_even_bins()
        self.time_given_edges()
        self.time_two_dimensions()

    def time_even_bins(self) -> None:
        clhist.histogram(self.x, 100, range=(-3, 3))

    def time_given_edges(self) -> None:
        clhist.histogram(self.x, self.edges)

    def time_two_dimensions(self) -> None:
        clhist.histogram2d(self.x, self.y, 50, range=((-3, 3), (-3, 3)))


class Groups:
    """Statistics of groups."""

    params = (["mean", "std", "max", "median"],)
    param_names = ("statistic",)

    def setup(self, statistic: str) -> None:
        """Make the input, and compile what the call needs."""
        self.keys = _RNG.integers(0, 1000, N // 4, dtype=np.int32)
        self.values = _RNG.standard_normal(N // 4)
        self.time_statistic(statistic)

    def time_statistic(self, statistic: str) -> Any:
        return clhist.group_by(self.keys, num_groups=1000).agg(x=(self.values, [statistic]))


class SmallCalls:
    """The cost of a call where the data costs nothing."""

    params = ([1000, 50_000],)
    param_names = ("elements",)

    def setup(self, elements: int) -> None:
        """Make the input, and compile what the calls need."""
        self.indices = _RNG.integers(0, 100, elements, dtype=np.int32)
        self.x = _RNG.random(elements)
        self.time_bincount(elements)
        self.time_histogram(elements)

    def time_bincount(self, elements: int) -> None:
        clhist.bincount(self.indices)

    def time_histogram(self, elements: int) -> None:
        clhist.histogram(self.x, 50)
