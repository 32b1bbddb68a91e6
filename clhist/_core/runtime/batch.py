"""Batched histograms: many with the same number of bins, each over consecutive elements (SC'20, section IV-C)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clhist._core.model.plan import Plan


class Batch(NamedTuple):
    """Assigns consecutive elements to histograms.

    Attributes
    ----------
    num_histograms : int
        The number of histograms, N_out in SC'20.
    begins, ends : int64 arrays of shape (num_histograms,), or None
        Elements [begin, end) of each histogram; None for equal shares in order.
    """

    num_histograms: int
    begins: np.ndarray | None = None
    ends: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """How a kernel finds its elements: computed from equal shares ("equal") or read from a table ("ragged")."""
        return "equal" if self.begins is None else "ragged"

    def longest(self, size: int) -> int:
        """Return the largest number of elements of one histogram, out of `size` in all."""
        if self.begins is None or self.ends is None:
            return -(-size // self.num_histograms)
        return int((self.ends - self.begins).max(initial=0))

    def tasks(self, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
        """Split a ragged batch into tasks of about equal length, one for a work-group at a time.

        Returns
        -------
        table : int64 array of shape (tasks, 3)
            First element, end, and histogram of each task. Tasks of one histogram follow each other.
        first : uint64 array of shape (num_histograms, 2)
            The first task of each histogram, and the end of its tasks.
        """
        assert self.begins is not None
        assert self.ends is not None
        lengths = self.ends - self.begins
        # A histogram without elements still has one task, and so a copy of its bins.
        longest = max(1, -(-int(lengths.sum()) // plan.tasks))
        chunk_counts = np.maximum(1, -(-lengths // longest))
        if plan.task_limit is not None and chunk_counts.sum() > plan.task_limit:
            # Each task has a copy of the bins: one for each histogram, and the rest in proportion to the elements.
            spare = max(0, plan.task_limit - self.num_histograms)
            chunk_counts = 1 + (lengths.astype(float) * spare / max(1, int(lengths.sum()))).astype(np.int64)
        # Chunks of one histogram differ by one element at most; the products need 64 bits.
        first = np.concatenate([[0], np.cumsum(chunk_counts)])
        histogram = np.repeat(np.arange(self.num_histograms), chunk_counts)
        chunk = np.arange(first[-1]) - first[histogram]
        starts = self.begins[histogram] + lengths[histogram] * chunk // chunk_counts[histogram]
        ends = self.begins[histogram] + lengths[histogram] * (chunk + 1) // chunk_counts[histogram]
        return np.stack([starts, ends, histogram], axis=1), np.stack([first[:-1], first[1:]], axis=1).astype(np.uint64)


def check_batch(batch: Batch, size: int) -> None:
    """Raise ValueError if `batch` exceeds the `size` elements, or does not divide them into equal shares."""
    if batch.ends is not None:
        last = int(batch.ends.max(initial=0))
        if last > size:
            raise ValueError(f"offsets: expected at most the {size} elements that there are, got {last}")
    elif size % batch.num_histograms:
        raise ValueError(
            f"num_histograms: expected a divisor of the {size} elements, got {batch.num_histograms}; "
            "histograms of different numbers of elements are told apart by offsets="
        )
