"""Histograms that were computed before, but for the arrays: so calls on arrays alike skip all checks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist.binning.counts import Counting, densities
from clhist.binning.extent import extent
from clhist.binning.inputs import has_fp64
from clhist.engine.plain import into
from clhist.engine.signature import Remembered, signature_of
from clhist.opencl.arrays import Array

_MOST_KNOWN = 16


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

    def __call__(self, arrays: Sequence[Array | None], density: bool | None, out: Array | None) -> Array:
        """Return the histogram of other data, `where` and weights, alike."""
        counting = self.counting
        assert counting is not None
        hist = counting(arrays, is_known=True)
        if self.rest is None and not density and out is None:
            return hist
        return self.finished(hist, density, counting.sweep.queue, out)

    def finished(self, hist: Array, density: bool | None, queue: cl.CommandQueue, out: Array | None) -> Array:
        """Return the result that counts or sums make."""
        if self.rest is not None:
            hist = hist.reshape(*self.rest, len(self.edges[0]) - 1)
        if density:
            hist = densities(hist, self.edges, queue, over=None if self.rest is None else 1)
        return into(out, hist)


class Known(NamedTuple):
    """What is kept of calls of `clhist.histogram` with the same signature.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        Where they run.
    has_extent : bool
        Whether the edges depend on the extent of the data.
    by_extent : Remembered
        The histograms by the signature of that.
    """

    queue: cl.CommandQueue
    has_extent: bool
    by_extent: Remembered[Prepared]

    def prepared(self, a: Array, where: Array | None) -> tuple[Prepared | None, tuple[Any, Any] | None]:
        """Return what computes the histogram of flat data, if it is known, and the extent, if that is looked for."""
        found = None
        if self.has_extent:
            found = extent(a, where, self.queue, fp64=has_fp64(self.queue.device))
        return self.by_extent.get(signature_of(found)), found


class KnownHistograms(Remembered[Known]):
    """What is kept of the latest calls of `clhist.histogram`, by signature."""

    def __init__(self) -> None:
        super().__init__(_MOST_KNOWN)

    def keep(self, key: Hashable, looked_at: tuple[Any] | None, prepared: Prepared, queue: cl.CommandQueue) -> None:
        """Keep what computed a call; `looked_at` holds the extent of its data if the edges depend on that."""
        known = self.get(key) or Known(queue, looked_at is not None, Remembered(_MOST_KNOWN))
        known.by_extent.put(signature_of(*(looked_at or (None,))), prepared.copy())
        self.put(key, known)


def is_as_given(given: Sequence[Any], arrays: Sequence[Any]) -> bool:
    """Whether these flat `arrays` are the first ones `given`, of the same dtypes."""
    return all(
        one is None or (one.dtype == other.dtype and other.dtype != np.float16)
        for one, other in zip(given, arrays, strict=False)
    )


def is_fixed(bins: Any, range: Any) -> bool:
    """Whether the edges of one dimension do not depend on the data."""
    return not isinstance(bins, str) and (range is not None or np.ndim(bins) > 0)


def are_fixed(bins: Any, range: Any) -> bool:
    """Whether the edges of several dimensions do not depend on the data."""
    if range is not None and all(each is not None for each in range):
        return True
    return isinstance(bins, tuple | list) and all(np.ndim(each) > 0 for each in bins)
