"""Batched histograms: many of the same number of bins, each of its own run of elements (SC'20, section IV-C)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clhist.codegen.arguments import integer
from clhist.opencl.arrays import is_device_array
from clhist.planning.batch import BatchedPlan


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

    def tasks(self, plan: BatchedPlan) -> tuple[np.ndarray, np.ndarray]:
        """Return the chunks that work-groups go through, about equally long.

        Returns
        -------
        table : int64 array of shape (tasks, 3)
            First element, end, and histogram of each; those of one histogram are neighbours.
        first : uint64 array of shape (num_histograms + 1,)
            The first task of each histogram.
        """
        assert self.begins is not None
        assert self.ends is not None
        lengths = self.ends - self.begins
        longest = max(1, -(-int(lengths.sum()) // plan.tasks))
        each = np.maximum(1, -(-lengths // longest))
        if plan.most_tasks is not None and each.sum() > plan.most_tasks:  # every one has a copy
            spare = max(0, plan.most_tasks - self.num_histograms)
            each = 1 + (lengths.astype(float) * spare / max(1, int(lengths.sum()))).astype(np.int64)
        first = np.concatenate([[0], np.cumsum(each)])
        histogram = np.repeat(np.arange(self.num_histograms), each)
        chunk = np.arange(first[-1]) - first[histogram]
        starts = self.begins[histogram] + lengths[histogram] * chunk // each[histogram]
        ends = self.begins[histogram] + lengths[histogram] * (chunk + 1) // each[histogram]
        return np.stack([starts, ends, histogram], axis=1), first.astype(np.uint64)


def batch_of(num_histograms: Any, offsets: Any) -> Batch | None:
    """Return the batch that a call asks for, None if it asks for a single histogram.

    Raises
    ------
    TypeError, ValueError
        If it asks for both kinds, or one of them is wrong; it is named.
    """
    if num_histograms is not None and offsets is not None:
        raise ValueError("offsets: expected either num_histograms or offsets, got both")
    if offsets is not None:
        return batch_of_offsets(offsets)
    return None if num_histograms is None else Batch(integer("num_histograms", num_histograms, 1))


def batch_of_offsets(offsets: Any) -> Batch:
    """Return the batch whose histogram k has the elements [offsets[k], offsets[k + 1]).

    Raises
    ------
    TypeError, ValueError
        If `offsets` are no integers, fewer than two, negative, or decrease.
    """
    try:
        given = offsets.get() if is_device_array(offsets) else np.asarray(offsets)
    except ValueError as error:
        raise ValueError(f"offsets: expected one dimension, got {offsets!r}") from error
    if given.ndim != 1 or given.size < 2:
        raise ValueError(f"offsets: expected one dimension and at least two entries, got shape {given.shape}")
    if given.dtype.kind not in "iu":
        raise TypeError(f"offsets: expected integers, got {given.dtype}")
    if given.max() > np.iinfo(np.int64).max:
        raise ValueError(f"offsets: expected numbers of elements, got {given.max()}")
    numbers = given.astype(np.int64)
    if numbers[0] < 0:
        raise ValueError(f"offsets: expected no negative entries, got {given[0]}")
    falls = np.flatnonzero(numbers[1:] < numbers[:-1])
    if falls.size:
        k = int(falls[0])
        raise ValueError(
            f"offsets: expected entries that do not decrease, got {given[k]} and then {given[k + 1]} at {k}"
        )
    return Batch(numbers.size - 1, numbers[:-1], numbers[1:])


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
