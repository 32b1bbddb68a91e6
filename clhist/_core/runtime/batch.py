"""Batched histograms: many with the same number of bins, each over consecutive elements (SC'20, section IV-C)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clhist._core.model.plan import Plan
from clhist._core.opencl.arrays import check_contiguous, is_device_array, on_host
from clhist.operators.c_types import integer


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


def batch_of(num_histograms: Any, offsets: Any) -> Batch | None:
    """Return the batch of `num_histograms` or `offsets`; None if both are None, for a single histogram.

    Raises
    ------
    TypeError, ValueError
        If both are passed, or one of them is wrong.
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
        If `offsets` are not integers, fewer than two, negative, or decreasing.
    """
    if is_device_array(offsets):
        check_contiguous("offsets", offsets)
    try:
        array = np.asarray(on_host(offsets))
    except ValueError as error:
        raise ValueError(f"offsets: expected one dimension, got {offsets!r}") from error
    if array.ndim != 1 or array.size < 2:
        raise ValueError(f"offsets: expected one dimension and at least two entries, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"offsets: expected integers, got {array.dtype}")
    # Checked before the conversion, in which large unsigned integers would wrap to negative ones.
    if array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"offsets: expected numbers of elements, got {array.max()}")
    numbers = array.astype(np.int64)
    if numbers[0] < 0:
        raise ValueError(f"offsets: expected no negative entries, got {array[0]}")
    # Compared rather than subtracted: no difference can overflow.
    falls = np.flatnonzero(numbers[1:] < numbers[:-1])
    if falls.size:
        k = int(falls[0])
        raise ValueError(
            f"offsets: expected entries that do not decrease, got {array[k]} and then {array[k + 1]} at {k}"
        )
    return Batch(numbers.size - 1, numbers[:-1], numbers[1:])
