"""The least and the greatest element: from what the kernel that finds them is rendered. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist.axes.keys import key_dtype


@dataclass(frozen=True)
class ExtentSpec:
    """The parameters of the kernel.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the data.
    data : numpy.dtype
        As which the kernel reads it.
    masked : bool
        Whether an array says which elements count.
    pitch, column : int
        How many elements a point has, and which of them is meant.
    lanes : int
        Work-items of a work-group.
    """

    dtype: np.dtype
    data: np.dtype
    masked: bool
    pitch: int
    column: int
    lanes: int

    @property
    def ends(self) -> np.dtype:
        """The dtype of the ends that a work-group finds."""
        return ends_dtype(self.dtype)


def ends_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the least and the greatest key of data, and of how many elements count."""
    key = key_dtype(dtype)
    return np.dtype([("low", key), ("high", key), ("count", np.int64)], align=True)
