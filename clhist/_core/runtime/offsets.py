"""Reads `num_histograms` and `offsets` of a call into a `Batch`; offsets on a device are copied to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from clhist._core.opencl.arrays import check_contiguous, is_device_array, on_host
from clhist._core.runtime.batch import Batch
from clhist.operators.c_types import integer


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
