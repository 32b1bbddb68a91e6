"""Batched histograms: many of the same number of bins, each of its own run of elements (SC'20, section IV-C)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clhist._core.model.plan import Plan


class Batch(NamedTuple):
    """Which elements belong to which histogram.

    Attributes
    ----------
    num_histograms : int
        N_out.
    begins, ends : int64 arrays of shape (num_histograms,), or None
        The elements [begin, end) of each; None if all have as many, one after the other.
    """

    num_histograms: int
    begins: np.ndarray | None = None
    ends: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """How a kernel learns its elements: "equal" or "ragged"."""
        return "equal" if self.begins is None else "ragged"

    def longest(self, size: int) -> int:
        """Return how many of `size` elements the histogram with the most of them has."""
        if self.begins is None or self.ends is None:
            return -(-size // self.num_histograms)
        return int((self.ends - self.begins).max(initial=0))

    def tasks(self, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
        """Return the chunks that work-groups go through, about equally long.

        Returns
        -------
        table : int64 array of shape (tasks, 3)
            First element, end, and histogram of each; those of one histogram are neighbours.
        first : uint64 array of shape (num_histograms, 2)
            The first task of each histogram, and the one behind its last.
        """
        assert self.begins is not None
        assert self.ends is not None
        lengths = self.ends - self.begins
        longest = max(1, -(-int(lengths.sum()) // plan.tasks))
        each = np.maximum(1, -(-lengths // longest))
        if plan.task_limit is not None and each.sum() > plan.task_limit:  # every one has a copy
            spare = max(0, plan.task_limit - self.num_histograms)
            each = 1 + (lengths.astype(float) * spare / max(1, int(lengths.sum()))).astype(np.int64)
        first = np.concatenate([[0], np.cumsum(each)])
        histogram = np.repeat(np.arange(self.num_histograms), each)
        chunk = np.arange(first[-1]) - first[histogram]
        starts = self.begins[histogram] + lengths[histogram] * chunk // each[histogram]
        ends = self.begins[histogram] + lengths[histogram] * (chunk + 1) // each[histogram]
        return np.stack([starts, ends, histogram], axis=1), np.stack([first[:-1], first[1:]], axis=1).astype(np.uint64)


def check_batch(batch: Batch, size: int) -> None:
    """Raise ValueError if the elements of `batch` are not among the `size` there are, or no equal shares of them."""
    if batch.ends is not None:
        last = int(batch.ends.max(initial=0))
        if last > size:
            raise ValueError(f"offsets: expected at most the {size} elements that there are, got {last}")
    elif size % batch.num_histograms:
        raise ValueError(
            f"num_histograms: expected a divisor of the {size} elements, got {batch.num_histograms}; "
            "histograms of different numbers of elements are told apart by offsets="
        )
