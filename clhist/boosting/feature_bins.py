"""Features of floats as bins of 8 bits, by the thresholds that scikit-learn chose for each feature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.spi import Chain, Kernel, kept_by_context, kernels_of, planning_profile
from clhist.boosting.kernels import FEATURES_AT_ONCE, TABLE, render_feature_bins
from clhist.operators.c_types import c_name

_PART_BYTES = 256 << 20  # the memory of a GPU need not hold all values at once
_GROUPS = {"cpu": 8, "gpu": 32}  # work-groups for each compute unit


def bin_features(
    queue: cl.CommandQueue,
    x: np.ndarray,
    thresholds: Sequence[np.ndarray],
    is_categorical: np.ndarray,
    missing: int,
    part_bytes: int = _PART_BYTES,
) -> np.ndarray:
    """Return the bin of each value: the number of its feature's thresholds that are less than it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        In order, of a device with float64.
    x : array of shape (rows, features), float64 or float32
        In C or Fortran order, or any other.
    thresholds : sequence of float64 arrays
        Of each feature, increasing and finite, at most 255.
    is_categorical : array of shape (features,), bool
        Features whose negative values are missing.
    missing : int
        The bin of NaN.
    part_bytes : int
        Bytes of values that a device with memory of its own has at once.

    Returns
    -------
    array of shape (rows, features), uint8
        In Fortran order.

    Raises
    ------
    MemoryError
        If the device has no room.
    """
    rows, features = x.shape
    # Infinite padding is never less than a value, so it adds nothing to a bin.
    table = np.full((features, TABLE), np.inf)
    for row, values in zip(table, thresholds, strict=True):
        row[: len(values)] = values
    table[:, -1] = np.where(is_categorical, 0.0, -np.inf)  # the least value that is not missing
    profile = planning_profile(queue.device)
    lanes = 1 if profile.kind == "cpu" else min(profile.work_group_size, queue.device.max_work_group_size)
    groups = queue.device.max_compute_units * _GROUPS[profile.kind]
    kernel = _kernel(queue.context, lanes, c_name(x.dtype))
    chain = Chain(queue, "to bin features")
    binned, memory = chain.result(x.size, np.uint8, on_device=False)
    tables = chain.place(table)
    for part in _parts(x, x.nbytes if profile.kind == "cpu" else part_bytes):
        # A chain of its own lets go of the part's memory when its kernel has ended.
        reading = Chain(queue, "to bin features", chain.events)
        values, offset = reading.place(part.values)
        row_step, feature_step = part.values.strides if part.by_row else part.values.strides[::-1]
        arguments = [values, offset, row_step, feature_step, part.rows, part.features, part.first_feature]
        arguments += [*tables, missing, memory, part.first_feature * rows + part.first_row, rows]
        reading.run(kernel, groups, lanes, arguments, ceil(part.features / FEATURES_AT_ONCE))
        # The kernel of the next part waits for this one, as does the copy to the host.
        chain.events = reading.events
    chain.finish()
    return binned.reshape(features, rows).T


class _Part(NamedTuple):
    """Some rows of all features, or all rows of some features.

    Attributes
    ----------
    values : array of shape (rows, features) or (features, rows)
        In C order.
    by_row : bool
        Whether it is the former.
    first_row, first_feature : int
        Where it begins.
    """

    values: np.ndarray
    by_row: bool
    first_row: int
    first_feature: int

    @property
    def rows(self) -> int:
        return self.values.shape[not self.by_row]

    @property
    def features(self) -> int:
        return self.values.shape[self.by_row]


def _parts(x: np.ndarray, most_bytes: int) -> Iterator[_Part]:
    """Yield parts of at most so many bytes, or one row or a few features; none is copied but for an unusual order."""
    rows, features = x.shape
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        # Whole groups of features, which a work-item searches at once.
        step = max(1, most_bytes // (rows * x.itemsize * FEATURES_AT_ONCE)) * FEATURES_AT_ONCE
        for first in range(0, features, step):
            yield _Part(x.T[first : first + step], False, 0, first)
        return
    step = max(1, most_bytes // (features * x.itemsize))
    for first in range(0, rows, step):
        yield _Part(np.ascontiguousarray(x[first : first + step]), True, first, 0)


@kept_by_context
def _kernel(context: cl.Context, lanes: int, value: str) -> Kernel:
    return kernels_of(context, render_feature_bins(lanes, value))["bin_features"]
