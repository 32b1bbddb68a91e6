"""Bins of one width between the least and the greatest element of a device array, made there by a kernel of their own.

The host enqueues the sweep before it knows the range. NumPy's edges, which it makes meanwhile, must be those of the
device to the bit; else, and where bins are searched for in another way, it computes the histogram anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.axes.axis import Axis, found_axis
from clhist.axes.edges import EdgesKind
from clhist.binning.extent import PARTS, ends_of, extent_in_parts, numbers_of
from clhist.binning.host import numpy_edges
from clhist.codegen.even_edges import EvenEdgesSpec
from clhist.codegen.kernel_code import KernelCode
from clhist.codegen.render import render_even_edges
from clhist.codegen.signatures import signatures
from clhist.engine.cuda_launcher import CudaLoaded
from clhist.engine.launcher import Loaded
from clhist.engine.prepared import MEMORY, OFFSET, ArraySlot, Launch, Part, Prepared, ResultSlots, Slot
from clhist.engine.ready import loaded_call
from clhist.opencl.arrays import Array, is_device_array
from clhist.opencl.program import kept_by_context

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
        ends = extent_in_parts(data, where, None, self.queue, fp64=True)
        return self.loaded.run(self.queue, [ends, None, None], (), True).results

    def edges(self, found: np.ndarray) -> np.ndarray | None:
        """Return NumPy's edges for what was `found`; None if the bins are others.

        Raises
        ------
        ValueError
            As NumPy does, if bins of no width would be needed.
        """
        if not found["are_even"][0]:
            return None
        edges = numpy_edges(np.array(self.extent(found), self.spec.dtype), self.axis.extent)
        same = edges.dtype == self.spec.edge and edges.tobytes() == self.spec.edges(found, self.axis.extent).tobytes()
        return edges if same else None

    def extent(self, found: np.ndarray) -> tuple[Any, Any] | None:
        """Return the least and the greatest element as `clhist.binning.extent.extent` does."""
        ends = found[0]
        return numbers_of(int(ends["least"]), int(ends["greatest"]), int(ends["count"]), self.spec.dtype)


def found_bins(data: Any, bins: Any, range: Any, queue: cl.CommandQueue, *, fp64: bool) -> FoundBins | None:
    """Return bins of flat data whose range is found on the device; None where it is given, or the host must know it."""
    can = data.dtype.kind in "iu" or (data.dtype.kind == "f" and data.dtype.itemsize >= 4)
    can = can and fp64 and range is None and is_device_array(data) and data.size > 0
    if not can or type(bins) is not int or not 0 < bins <= _MOST_BINS:
        return None
    return _found_bins(queue.context, queue, data.dtype, bins)


@lru_cache(maxsize=64)
def _code(spec: EvenEdgesSpec) -> KernelCode:
    source = render_even_edges(spec)
    return KernelCode(source, (), "clhist_even_edges", signatures(source)["even_edges"])


@kept_by_context
def _found_bins(context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype, bins: int) -> FoundBins:
    axis = found_axis(dtype, bins)
    assert isinstance(axis.kind, EdgesKind)
    lanes = min(_LANES, queue.device.max_work_group_size)
    spec = EvenEdgesSpec(axis.kind, ends_of(dtype).dtype, PARTS, lanes)
    slots = (
        ArraySlot("ends", True, False),
        ArraySlot("keys", False, True, ((bins,), spec.ends["low"])),
        ArraySlot("found", False, True, ((spec.found(bins),), axis.kind.found_dtype)),
    )
    given = [Slot(slot.name, what) for slot in slots for what in (MEMORY, OFFSET)]
    launch = Launch("combine", _code(spec), (lanes,), (lanes,), (*given, np.int32(bins)))
    none: Any = None  # for no operator makes them
    results = tuple(ResultSlots((n,), False, "", none) for n in (1, 2))
    call = ("bins between the least and the greatest element", ())
    prepared = Prepared(slots, (), (Part(None, (), (launch,)),), results, call=call)
    return FoundBins(queue, axis, spec, loaded_call(queue, prepared))
