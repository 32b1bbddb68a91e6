"""Histograms that were computed before, but for the arrays: so calls on arrays alike skip all checks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.runtime.peek import Reading
from clhist._core.runtime.reading import into
from clhist._core.runtime.signature import Remembered, shape_of, without_size
from clhist.binned.counting import as_dtype
from clhist.binned.counts import densities, flat
from clhist.binned.extent import extent
from clhist.binned.found import FoundBins
from clhist.binned.sweep import Sweep


class Prepared(NamedTuple):
    """A histogram but for its arrays.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        Where it is computed.
    sweep : Sweep or None
        What computes it; None of data that lies in no bin.
    dtype : numpy.dtype
        Of counts or sums.
    edges : tuple of array
        Of each dimension.
    rest : tuple of int, optional
        The shape of the dimensions that are not counted over.
    found : FoundBins, optional
        What makes the bins of data whose range it finds; there are no `edges` then.
    """

    queue: cl.CommandQueue
    sweep: Sweep | None
    dtype: np.dtype
    edges: tuple[np.ndarray, ...] = ()
    rest: tuple[int, ...] | None = None
    found: FoundBins | None = None

    def __call__(self, arrays: Sequence[Array | None], density: bool | None, out: Array | None) -> Array:
        """Return the histogram of other data, `where` and weights, alike."""
        assert self.sweep is not None
        (hist,) = self.sweep(arrays).values()
        if hist.dtype != self.dtype:
            hist = as_dtype(hist, self.dtype, self.queue)
        if self.rest is None and not density and out is None:
            return hist
        return self.finished(hist, density, out)

    def again(
        self, arrays: Sequence[Array | None], density: bool | None, out: Array | None
    ) -> tuple[Array, np.ndarray] | None:
        """Return the histogram and the edges of other data alike; None if its range makes bins of another kind."""
        if self.found is None:
            return self(arrays, density, out), self.edges[0].copy()
        data, *others = arrays
        keys, found = self.found.enqueue(data, others[0])
        reading = Reading(found, self.queue)
        hist, edges_of = self([data, keys, found, *others], None, None), self.found.edges

        def with_edges(hist: Any, found: np.ndarray) -> tuple[Any, bool]:
            edges = edges_of(found)
            return None if edges is None else (hist, edges), edges is not None

        if is_cuda(hist):
            from clhist._core.runtime.cuda_repeats import ends_with

            ends_with(None, hist, with_edges)
        made, _ = with_edges(hist, reading.get())
        return made and (self._replace(edges=made[1:]).finished(hist, density, out), made[1])

    def finished(self, hist: Array, density: bool | None, out: Array | None) -> Array:
        """Return the result that counts or sums make."""
        if self.rest is not None:
            hist = hist.reshape(*self.rest, hist.shape[-1])
        if density:
            hist = densities(hist, self.edges, self.queue, over=None if self.rest is None else 1)
        return into(out, hist)


# What repeats calls, by their signatures; a queue where edges depend on the extent, which the host finds there first.
kept: Remembered[Prepared | cl.CommandQueue] = Remembered(128)


def repeated(
    key: Hashable, arrays: Sequence[Any], density: bool | None, out: Array | None
) -> tuple[tuple[Array, np.ndarray] | None, tuple[Any, Any] | None, bool]:
    """Return the result of a call that repeats an earlier one, the extent of its data if the host found that, or None.

    The last is whether nothing was kept that is for such data.
    """
    a, where, weights = arrays
    known, found = None if key is None else prepared_for(key, a.size), None
    if known is None:
        return None, None, True
    arrays = [x if x is None or (x.ndim == 1 and x.flags.c_contiguous) else flat(x) for x in (a, where, weights)]
    if isinstance(known, cl.CommandQueue):
        found = extent(arrays[0], arrays[1], known)
        known = kept.get(_by_extent(key, found))
    result = known.again(arrays, density, out) if isinstance(known, Prepared) else None
    return result, found, known is None


def prepared_for(key: Hashable, size: int) -> Prepared | cl.CommandQueue | None:
    """Return the prepared histogram for a signature of `signature_of_data`, or None.

    If there is none for `size` elements, that of an earlier call with fewer elements is adapted and stored.
    """
    stored = kept.get(key)
    if stored is not None:
        return stored
    size_free_key = _without_sizes(key)
    earlier = kept.get(size_free_key)
    if not isinstance(earlier, Prepared) or earlier.sweep is None or (sweep := earlier.sweep.of_size(size)) is None:
        return None
    kept.put(size_free_key, earlier)  # as the newest entry, so that calls of many sizes do not displace it
    prepared = earlier._replace(sweep=sweep)
    kept.put(key, prepared)
    return prepared


def _without_sizes(key: Any) -> Hashable:
    """Return a signature without the size of the data; None unless all arrays are contiguous and one-dimensional."""
    if not isinstance(key, tuple):
        return None
    (*data, out), *rest = key
    shape, *others = (shape_of(part) for part in data if part is not None)
    if shape is None or len(shape) != 1 or any(other != shape for other in others):
        return None
    return "any size", *(part and without_size(part) for part in data), out, *rest


def _by_extent(key: Hashable, found: tuple[Any, Any] | None) -> Hashable:
    return key, found and (found[0].tobytes(), found[1].tobytes())


def keep(key: Hashable, prepared: Prepared, looked_at: tuple[Any] | None = None, *, any_size: bool = False) -> None:
    """Store a prepared histogram for calls with the same signature.

    Parameters
    ----------
    key : hashable
        The signature; None is not stored.
    prepared : Prepared
        The histogram.
    looked_at : tuple, optional
        The extent of the data, if the edges depend on it.
    any_size : bool
        Whether to store it for data of other sizes too. `key` must be one of `signature_of_data`.
    """
    if key is None or prepared.sweep is None:
        return
    if looked_at is not None:
        kept.put(key, prepared.queue)
        key = _by_extent(key, *looked_at)
    prepared = prepared._replace(edges=tuple(each.copy() for each in prepared.edges))  # which no caller changes
    kept.put(key, prepared)
    if any_size and looked_at is None and prepared.rest is None:
        kept.put(_without_sizes(key), prepared)


def are_repeated(key: Hashable, given: Sequence[Any], arrays: Sequence[Any], axis: Any) -> bool:
    """Whether calls of a signature repeat one with these flat `arrays`: the device's, or the first ones `given`."""
    if key is None or is_device_array(arrays[0]):
        return key is not None
    pairs = zip(given, arrays, strict=False)
    return axis is None and all(
        one is None or (one.dtype == other.dtype and other.dtype != np.float16) for one, other in pairs
    )


def are_fixed(bins: Any, range: Any) -> bool:
    """Whether the edges of several dimensions do not depend on the data."""
    if range is not None and np.iterable(range) and all(ends is not None for ends in range):
        return True
    return isinstance(bins, tuple | list) and all(np.ndim(each) > 0 for each in bins)
