"""Edges of equal-width bins over the range of a device array, made on the device.

The host enqueues the sweep before it knows the range. Meanwhile it makes NumPy's edges, which must equal the device's
to the bit. If they differ, or if the range needs another kind of bins, the histogram is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.keys import from_key, key_dtype
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import has_fp64
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot, New
from clhist._core.runtime.single_kernel import single_kernel
from clhist.axes.axis import Axis, found_axis
from clhist.axes.edges import EdgesKind
from clhist.binned.even_edges import EvenEdgesSpec, render_even_edges
from clhist.binned.extent import extent_in_parts, lanes_and_parts
from clhist.binned.host import numpy_edges

_MOST_BINS = 2**15  # one work-group makes them all
_LANES = 256  # work-items of the only work-group, at most


@dataclass(frozen=True, eq=False)
class DeviceEdges:
    """A kernel that makes equal-width bins for data of one dtype and any range.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        The queue that makes them.
    axis : Axis
        The axis of a sweep, whose arguments are the data and then the results of `enqueue`.
    spec : EvenEdgesSpec
        The parameters of the kernel.
    executable : Executable
        The kernel.
    new : tuple of New
        The shapes of its results.
    scalars : tuple of NumPy scalar
        Those of the kernel.
    """

    queue: cl.CommandQueue
    axis: Axis
    spec: EvenEdgesSpec
    executable: Executable
    new: tuple[New, New]
    scalars: tuple[np.int32]

    def enqueue(self, data: Array, where: Array | None) -> list[Array]:
        """Enqueue the kernel for flat data; return the keys of the bins, and the struct that the edges follow."""
        ends = extent_in_parts(data, where, None, self.queue)
        return self.executable.run(self.queue, [ends, *self.new], self.scalars, True).results

    def edges(self, records: np.ndarray) -> np.ndarray | None:
        """Return NumPy's edges for the `records` that the kernel wrote; None if the device's edges are not the same.

        Raises
        ------
        ValueError
            NumPy's error, if the bins would have no width.
        """
        one, bins = records[0], self.axis.extent
        # The kernel has no guess for this range, and has counted nothing.
        if not one["are_even"]:
            return None
        # The edges of NumPy, made while the device counts by its own.
        ends = from_key(int(one["least"]), self.spec.dtype), from_key(int(one["greatest"]), self.spec.dtype)
        edges = self.spec.linspace(*ends, bins)
        # Equal ends, or a range that is too narrow: NumPy widens it, or raises.
        if not (edges[1:] > edges[:-1]).all():
            edges = numpy_edges(np.array(ends, self.spec.dtype), bins)
        return edges if edges.tobytes() == self.spec.edges(records, bins).tobytes() else None


def device_edges(data: Any, bins: Any, range: Any, queue: cl.CommandQueue) -> DeviceEdges | None:
    """Return the edge kernel for flat data; None if the caller passed a range, or if the host must know the range."""
    # The kernel repeats NumPy's float64 operations, and one work-group makes all bins.
    can = data.dtype.kind in "iu" or (data.dtype.kind == "f" and data.dtype.itemsize >= 4)
    can = can and has_fp64(queue.device) and range is None and is_device_array(data) and data.size > 0
    can = can and type(bins) is int and 0 < bins <= _MOST_BINS
    return _device_edges(queue.context, queue, data.dtype, bins) if can else None


@kept_by_context
def _device_edges(context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype, bins: int) -> DeviceEdges | None:
    spec, kernel = _kernel(context, queue, dtype)
    # Edges must equal NumPy's to the bit, so its operations are tried once by example.
    some = (np.array([3, 97]) / 7).astype(dtype)
    if spec.linspace(some[0], some[1], bins).tobytes() != numpy_edges(some, bins).tobytes():
        # This version of NumPy computes edges by other operations.
        return None
    new = New((bins,)), New((spec.record_count(bins),))
    return DeviceEdges(queue, found_axis(dtype, bins), spec, kernel, new, (np.int32(bins),))


@kept_by_context
def _kernel(context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype) -> tuple[EvenEdgesSpec, Executable]:
    """Return the kernel that makes bins for data of a dtype, whatever their number, and its parameters."""
    lanes = min(_LANES, queue.device.max_work_group_size)
    kind = found_axis(dtype, 1).kind
    assert isinstance(kind, EdgesKind)
    spec = EvenEdgesSpec(kind, lanes_and_parts(queue)[1], lanes)
    slots = (
        ArraySlot("ends", True, False),
        ArraySlot("keys", False, True, ((1,), key_dtype(dtype))),
        ArraySlot("found", False, True, ((1,), kind.found_dtype)),
    )
    what = "bins between the least and the greatest element"
    return spec, single_kernel(queue, "even_edges", render_even_edges(spec), slots, ("num_bins",), (lanes, lanes), what)
