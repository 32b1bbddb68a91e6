"""A cache of prepared histograms by signature: calls with similar arrays skip all checks.

Note [Signature of a call], docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.elements import kernel_dtype
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.runtime.peek import Reading
from clhist._core.runtime.reading import into
from clhist._core.runtime.signature import call_templates
from clhist.axes.axis import Axis
from clhist.axes.kinds import Kind
from clhist.binned.counting import as_dtype
from clhist.binned.counts import densities, flat
from clhist.binned.densities import Densities, can_convert, densities_by_records
from clhist.binned.device_edges import DeviceEdges
from clhist.binned.device_inputs import are_few_to_search, most_cells, numpy_axis
from clhist.binned.extent import extent
from clhist.binned.host import edges_of_extent
from clhist.binned.inputs import are_usable
from clhist.binned.sweep import Sweep

_MOST_KINDS = 4  # of axes, for histograms that other bins may use


class PreparedHistogram(NamedTuple):
    """A histogram that is ready for arrays with the same signature.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        The queue that computes it.
    sweep : Sweep or None
        The sweep over the data; None if no element lies in a bin.
    dtype : numpy.dtype
        Of the counts or sums.
    edges : tuple of array
        Edges by dimension, copies that no caller has; empty if the device makes them.
    rest : tuple of int, optional
        The shape of the dimensions that are not counted over.
    device_edges : DeviceEdges, optional
        Makes the bins on the device, from the range of the data.
    kind : Kind, optional
        The kind of the axis of a histogram of one dimension.
    divide : Densities, optional
        Divides counts on the device by the widths of bins; None if the device makes these.
    searches : bool
        Whether an axis has a small table, see `most_cells`.
    """

    queue: cl.CommandQueue
    sweep: Sweep | None
    dtype: np.dtype
    edges: tuple[np.ndarray, ...] = ()
    rest: tuple[int, ...] | None = None
    device_edges: DeviceEdges | None = None
    kind: Kind | None = None
    divide: Densities | None = None
    searches: bool = False

    def __call__(self, arrays: Sequence[Array | None], size: int, density: bool | None, out: Array | None) -> Array:
        """Return the histogram of `size` elements of other arrays (data, `where`, weights) with the same signature."""
        assert self.sweep is not None
        (hist,) = self.sweep.results(arrays, size)
        # Densities of counts are float64 anyway.
        if hist.dtype != self.dtype and not (density and can_convert(hist) and arrays[-1] is None):
            hist = as_dtype(hist, self.dtype, self.queue)
        if self.rest is None and not density and out is None:
            return hist
        return self.finished(hist, density, out)

    def again(self, arrays: Sequence[Any], density: bool | None, out: Array | None) -> tuple[Array, np.ndarray] | None:
        """Return histogram and edges of other arrays; None if the device's edges turn out not to be NumPy's."""
        if self.device_edges is None:
            return self(arrays, arrays[0].size, density, out), self.edges[0].copy()
        data, *others = arrays
        # Enqueue everything, then make NumPy's edges while the device counts, and compare.
        keys, records = self.device_edges.enqueue(data, others[0])
        reading = Reading(records, self.queue)
        hist, edges_of = self([data, keys, records, *others], data.size, None, None), self.device_edges.edges
        is_divided = bool(density) and can_convert(hist)
        if is_divided:
            # By the device's edges; if they turn out not to be NumPy's, nothing of it is used.
            hist = densities_by_records(self.queue, hist, records, self.device_edges.spec.edge)

        def with_edges(hist: Any, records: np.ndarray) -> tuple[Any, bool]:
            edges = edges_of(records)
            return None if edges is None else (hist, edges), edges is not None

        # A recorded CUDA call ends with the same check.
        if is_cuda(hist):
            from clhist._core.runtime.cuda_repeats import ends_with

            ends_with(None, hist, with_edges)
        made, _ = with_edges(hist, reading.get())
        return made and (self._replace(edges=made[1:]).finished(hist, density and not is_divided, out), made[1])

    def is_provisional(self, size: int) -> bool:
        """Whether its table is small, and a large one pays off: for so many elements, or since it had many calls."""
        if not self.searches or self.sweep is None:
            return False
        return self.sweep.template.has_many_calls or not are_few_to_search(size, self.queue)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of its axes, on the device and on the host."""
        return 0 if self.sweep is None else 2 * self.sweep.template.nbytes

    def finished(self, hist: Array, density: bool | None, out: Array | None) -> Array:
        """Return counts or sums in the shape of the result, as densities if requested, in `out` if there is one."""
        if self.rest is not None:
            hist = hist.reshape(*self.rest, hist.shape[-1])
        if density:
            if self.divide is not None and can_convert(hist):
                hist = self.divide(hist)
            else:
                hist = densities(hist, self.edges, self.queue, over=None if self.rest is None else 1)
        return into(out, hist)


class OfKinds(NamedTuple):
    """Histograms by the kinds of their axes, one for each: whatever bins a call has, one of them may serve it."""

    of_kinds: tuple[PreparedHistogram, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of all axes."""
        return sum(one.nbytes for one in self.of_kinds)

    def of_edges(self, edges: np.ndarray, ends: Any, dtype: np.dtype, size: int) -> PreparedHistogram | None:
        """Return the histogram of `size` elements of a dtype by other edges, as of `numpy_axis`, or None."""
        queue = self.of_kinds[0].queue
        is_usable = ends is not None or are_usable(edges)  # even edges always are
        most = most_cells(size, queue, self)
        axis = numpy_axis(edges, kernel_dtype(dtype), queue, ends=ends, most=most) if is_usable else None
        if axis is None or (sweep := self.sweep_of(axis)) is None:
            return None
        own, dtype = (edges.copy(),), self.of_kinds[0].dtype
        of_axis = axis.kind, Densities(queue, own), axis.is_searched
        return PreparedHistogram(queue, sweep, dtype, own, None, None, *of_axis)

    def sweep_of(self, axis: Axis) -> Sweep | None:
        """Return the sweep over one other axis, or None if none of the histograms has that kind."""
        for one in self.of_kinds:
            if one.sweep is not None and one.kind == axis.kind:
                return one.sweep.of_axis(axis)
        return None

    def of_extent(self, data_extent: tuple[Any, Any] | None, dtype: np.dtype) -> PreparedHistogram | None:
        """Return the histogram of data of another extent, by as many bins as the first has; None as of `of_edges`."""
        if data_extent is None:
            return None
        return self.of_edges(*edges_of_extent(len(self.of_kinds[0].edges[0]) - 1, data_extent, dtype), dtype, 0)

    def with_other(self, other: PreparedHistogram) -> OfKinds:
        """Return these with `other` in the place of one of its kind of axis."""
        others = [one for one in self.of_kinds if one.kind is not None and one.kind != other.kind]
        return OfKinds((other, *others)[:_MOST_KINDS])


def repeated(
    key: Hashable, arrays: Sequence[Any], density: bool | None, out: Array | None
) -> tuple[tuple[Array, np.ndarray] | None, tuple[Any, Any] | None, bool]:
    """Repeat an earlier call with the same signature.

    Returns
    -------
    result : (array, array) or None
        Histogram and edges; None if the call is new.
    data_extent : pair or None
        Least and greatest element, if the host computed them.
    is_new : bool
        Whether no earlier call had this signature and extent.
    """
    a, where, weights = arrays
    cached: PreparedHistogram | OfKinds | None = call_templates.get(key)
    data_extent = None
    if cached is None:
        return None, None, True
    if isinstance(cached, PreparedHistogram) and cached.is_provisional(a.size):
        return None, None, False
    # Most arrays are flat already; the test spares them the calls of `flat`.
    arrays = [
        x if x is None or (len(x.shape) == 1 and x.strides[0] == x.dtype.itemsize) else flat(x)
        for x in (a, where, weights)
    ]
    # Edges depend on the extent of the data: find it, and look for an earlier call with the same one.
    if isinstance(cached, OfKinds):
        data_extent = extent(arrays[0], arrays[1], cached.of_kinds[0].queue)
        by_extent = _by_extent(key, data_extent)
        if (prepared := call_templates.get(by_extent)) is None:
            prepared = cached.of_extent(data_extent, a.dtype)
            call_templates.put(by_extent, prepared)
        cached = prepared
    result = None if cached is None else cached.again(arrays, density, out)
    return result, data_extent, cached is None


def store_for_any_bins(key: Hashable, prepared: PreparedHistogram) -> None:
    """Store a prepared histogram for calls of other bins, as `for_any_bins` looks for it."""
    if key is None or prepared.kind is None or prepared.sweep is None or prepared.rest is not None:
        return
    earlier = for_any_bins(key) or OfKinds(())
    call_templates.put(_any_bins(key), earlier.with_other(prepared))


def for_any_bins(key: Hashable) -> OfKinds | None:
    """Return the histograms of one dimension and any bins for a signature of `signature_of_data`, or None."""
    stored: OfKinds | None = call_templates.get(_any_bins(key))
    return stored


def _any_bins(key: Any) -> Hashable:
    """Return a signature of `signature_of_data` without bins and range, the first of its further values."""
    arrays, (_, _, *rest), queue = key
    return arrays, ("any bins", *rest), queue


def _by_extent(key: Hashable, data_extent: tuple[Any, Any] | None) -> Hashable:
    """Return the key of a signature with the extent of the data, on which the edges depend."""
    return key, data_extent and (data_extent[0].tobytes(), data_extent[1].tobytes())


def store(key: Hashable, prepared: PreparedHistogram, looked_at: tuple[Any] | None = None) -> None:
    """Store a prepared histogram for calls with the same signature.

    Parameters
    ----------
    key : hashable
        The signature; None is not stored.
    prepared : Prepared
        The histogram.
    looked_at : tuple, optional
        The extent of the data, if the edges depend on it.
    """
    if key is None or prepared.sweep is None:
        return
    stored: PreparedHistogram | OfKinds = prepared
    if looked_at is not None:
        earlier = call_templates.get(key)
        stored = (earlier if isinstance(earlier, OfKinds) else OfKinds(())).with_other(prepared)
    call_templates.put(key, stored)
    if looked_at is not None:
        call_templates.put(_by_extent(key, *looked_at), prepared)


def are_repeated(key: Hashable, arguments: Sequence[Any], arrays: Sequence[Any], axis: Any) -> bool:
    """Return whether later calls with this signature may take the same sweep.

    Device arrays may. NumPy arrays may if the checks left their dtypes as the caller passed them in `arguments`.
    """
    if key is None or is_device_array(arrays[0]):
        return key is not None
    pairs = zip(arguments, arrays, strict=False)
    return axis is None and all(
        one is None or (one.dtype == other.dtype and other.dtype != np.float16) for one, other in pairs
    )


def are_fixed(bins: Any, range: Any) -> bool:
    """Return whether the edges of all dimensions are independent of the data."""
    if range is not None and np.iterable(range) and all(ends is not None for ends in range):
        return True
    return isinstance(bins, tuple | list) and all(np.ndim(axis_bins) > 0 for axis_bins in bins)
