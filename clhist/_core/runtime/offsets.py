"""The batch that a call asks for, by a number of histograms or by offsets, which are read on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from clhist._core.opencl.arrays import check_contiguous, is_device_array, on_host
from clhist._core.runtime.batch import Batch
from clhist.operators.c_types import integer


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
    if is_device_array(offsets):
        check_contiguous("offsets", offsets)
    try:
        given = np.asarray(on_host(offsets))
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
