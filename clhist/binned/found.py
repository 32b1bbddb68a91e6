"""Bins of one width between the least and the greatest element of a device array, made there by a kernel of their own.

The host enqueues the sweep before it knows the range. NumPy's edges, which it makes meanwhile, must be those of the
device to the bit; else, and where bins are searched for in another way, it computes the histogram anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from clhist._core.keys import from_key, key_dtype
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import has_fp64
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.launcher import Loaded
from clhist._core.runtime.prepared import ArraySlot
from clhist._core.runtime.single_kernel import single_kernel
from clhist.axes.axis import Axis, found_axis
from clhist.axes.edges import EdgesKind
from clhist.binned.even_edges import EvenEdgesSpec, render_even_edges
from clhist.binned.extent import extent_in_parts, lanes_and_parts
from clhist.binned.host import numpy_edges

if TYPE_CHECKING:
    from clhist._core.runtime.cuda_launcher import CudaLoaded

_MOST_BINS = 2**15  # of one work-group
_LANES = 256


@dataclass(frozen=True, eq=False)
class FoundBins:
    """So many bins of one width for data of one dtype, whatever its range.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        Where they are made.
    axis : Axis
        For sweeps that have the results of `enqueue` behind the data.
    spec : EvenEdgesSpec
        Of the kernel.
    loaded : Loaded or CudaLoaded
        It.
    """

    queue: cl.CommandQueue
    axis: Axis
    spec: EvenEdgesSpec
    loaded: Loaded | CudaLoaded

    def enqueue(self, data: Array, where: Array | None) -> list[Array]:
        """Have the keys of the bins of flat data made, and the struct with all else, which the edges follow."""
        ends = extent_in_parts(data, where, None, self.queue)
        return self.loaded.run(self.queue, [ends, None, None], [np.int32(self.axis.extent)], True).results

    def edges(self, found: np.ndarray) -> np.ndarray | None:
        """Return NumPy's edges for what was `found`; None if the bins are others.

        Raises
        ------
        ValueError
            As NumPy does, if bins of no width would be needed.
        """
        one, bins = found[0], self.axis.extent
        if not one["are_even"]:
            return None
        ends = from_key(int(one["least"]), self.spec.dtype), from_key(int(one["greatest"]), self.spec.dtype)
        edges = self.spec.linspace(*ends, bins)
        if not (edges[1:] > edges[:-1]).all():  # NumPy takes other ends, or none
            edges = numpy_edges(np.array(ends, self.spec.dtype), bins)
        return edges if edges.tobytes() == self.spec.edges(found, bins).tobytes() else None


def found_bins(data: Any, bins: Any, range: Any, queue: cl.CommandQueue) -> FoundBins | None:
    """Return bins of flat data whose range is found on the device; None where it is given, or the host must know it."""
    can = data.dtype.kind in "iu" or (data.dtype.kind == "f" and data.dtype.itemsize >= 4)
    can = can and has_fp64(queue.device) and range is None and is_device_array(data) and data.size > 0
    can = can and type(bins) is int and 0 < bins <= _MOST_BINS
    return _found_bins(queue.context, queue, data.dtype, bins) if can else None


_rendered = lru_cache(maxsize=64)(render_even_edges)


@kept_by_context
def _found_bins(context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype, bins: int) -> FoundBins | None:
    axis = found_axis(dtype, bins)
    assert isinstance(axis.kind, EdgesKind)
    lanes = min(_LANES, queue.device.max_work_group_size)
    spec = EvenEdgesSpec(axis.kind, lanes_and_parts(queue)[1], lanes)
    some = (np.array([3, 97]) / 7).astype(dtype)
    if spec.linspace(some[0], some[1], bins).tobytes() != numpy_edges(some, bins).tobytes():
        return None  # a NumPy that makes edges in another way
    slots = (
        ArraySlot("ends", True, False),
        ArraySlot("keys", False, True, ((bins,), key_dtype(dtype))),
        ArraySlot("found", False, True, ((spec.found(bins),), axis.kind.found_dtype)),
    )
    what = "bins between the least and the greatest element"
    kernel = single_kernel(queue, "even_edges", _rendered(spec), slots, ("num_bins",), (lanes, lanes), what)
    return FoundBins(queue, axis, spec, kernel)
