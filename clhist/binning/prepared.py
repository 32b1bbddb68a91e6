"""Histograms that were computed before, but for the arrays: so calls on device arrays alike skip all checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.binning.counts import Counting, densities, into
from clhist.opencl.arrays import Array


@dataclass(frozen=True)
class Prepared:
    """A histogram but for its arrays.

    Attributes
    ----------
    counting : Counting or None
        What computes it; None of data that lies in no bin.
    edges : tuple of array
        Of each dimension.
    rest : tuple of int, optional
        The shape of the dimensions that are not counted over.
    """

    counting: Counting | None
    edges: tuple[np.ndarray, ...]
    rest: tuple[int, ...] | None = None

    def copy(self) -> Prepared | None:
        """Return what can be kept, with edges that no caller changes; None if there is nothing to compute."""
        return None if self.counting is None else replace(self, edges=tuple(each.copy() for each in self.edges))

    def __call__(self, arrays: Iterable[Array | None], density: bool | None, out: Array | None) -> Array:
        """Return the histogram of other data, `where` and weights, alike."""
        assert self.counting is not None
        return self.finished(self.counting(arrays, is_known=True), density, self.counting.sweep.queue, out)

    def finished(self, hist: Array, density: bool | None, queue: cl.CommandQueue, out: Array | None) -> Array:
        """Return the result that counts or sums make."""
        if self.rest is not None:
            hist = hist.reshape(*self.rest, len(self.edges[0]) - 1)
        if density:
            hist = densities(hist, self.edges, queue, over=None if self.rest is None else 1)
        return into(out, hist)


def is_fixed(bins: Any, range: Any) -> bool:
    """Whether the edges of one dimension do not depend on the data."""
    return not isinstance(bins, str) and (range is not None or np.ndim(bins) > 0)


def are_fixed(bins: Any, range: Any) -> bool:
    """Whether the edges of several dimensions do not depend on the data."""
    if range is not None and all(each is not None for each in range):
        return True
    return isinstance(bins, tuple | list) and all(np.ndim(each) > 0 for each in bins)
