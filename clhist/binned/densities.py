"""Counts of a device as float64, and as densities, by one launch: nothing is read, so a call on CUDA is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
import pyopencl as cl

from clhist._core.kernel_code import with_arrays
from clhist._core.kernels.stored_source import stored_source
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import has_fp64
from clhist._core.opencl.new_arrays import kept_on_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.recording import unheard
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot, New
from clhist._core.runtime.single_kernel import single_kernel, sizes
from clhist._core.templates import render
from clhist.operators.c_types import c_name

_LANES, GROUPS = 256, 32  # work-items of a work-group, at most, and work-groups
RESULT = ArraySlot("result", False, True, ((1,), np.dtype(np.float64)))


def can_convert(counts: Array) -> bool:
    """Return whether a kernel makes float64 of counts: integers of a device with float64."""
    return is_device_array(counts) and counts.dtype.kind in "iu" and counts.size > 0 and has_fp64(counts.queue.device)


class Densities:
    """Divides counts by the widths of their bins, which are uploaded once.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it divides.
    edges : sequence of array
        Edges by axis; no caller has these arrays.
    """

    def __init__(self, queue: cl.CommandQueue, edges: Sequence[np.ndarray]) -> None:
        self._queue, self._shape = queue, tuple(len(one) - 1 for one in edges)
        self._edges = edges
        self._widths: Array | None = None

    def __call__(self, counts: Array) -> Array:
        """Return the densities of counts, whose last dimensions are the axes."""
        queue, shape = self._queue, self._shape
        if self._widths is None:
            # As NumPy: the difference in the dtype of the edges.
            widths = np.concatenate([np.array(np.diff(one), np.float64) for one in self._edges])
            with unheard():
                self._widths = kept_on_device(queue, widths)
        kernel = _kernel_of_widths(queue.context, queue, counts.dtype, len(shape))
        return _divided(queue, kernel, [self._widths, counts], counts, shape)


@kept_by_context
def _kernel_of_widths(context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype, dims: int) -> Executable:
    return _kernel(queue, render_densities(dtype, lanes_of(queue), dims=dims), dims)


def densities_by_records(queue: cl.CommandQueue, counts: Array, records: Array, edge: np.dtype) -> Array:
    """Return the densities of counts in bins whose edges lie behind the struct of `clhist.binned.even_edges`."""
    kernel = _kernel_of_records(queue.context, queue, counts.dtype, edge, records.dtype.itemsize)
    return _divided(queue, kernel, [records, counts], counts, counts.shape[-1:])


def as_float64(queue: cl.CommandQueue, counts: Array) -> Array:
    """Return counts as float64; PyOpenCL's conversion takes four times as long."""
    kernel = _conversion(queue.context, queue, counts.dtype)
    result: Array = kernel.run(queue, [counts, New(counts.shape)], sizes(counts.size), True).results[0]
    return result


def _divided(
    queue: cl.CommandQueue, kernel: Executable, arrays: list[Array], counts: Array, shape: tuple[int, ...]
) -> Array:
    """Run a kernel of densities."""
    cells = prod(shape)
    scalars = sizes(counts.size // cells, cells, *shape)
    result: Array = kernel.run(queue, [*arrays, New(counts.shape)], scalars, True).results[0]
    return result


def lanes_of(queue: cl.CommandQueue) -> int:
    return min(_LANES, queue.device.max_work_group_size)


def _kernel(queue: cl.CommandQueue, source: str, dims: int) -> Executable:
    """Return the kernel of densities."""
    slots = (ArraySlot("edges", True, False), ArraySlot("counts", True, False), RESULT)
    scalars = ("rows", "cells", *(f"bins{n}" for n in range(dims)))
    lanes = lanes_of(queue)
    return single_kernel(queue, "densities", source, slots, scalars, (GROUPS * lanes, lanes), "densities")


@kept_by_context
def _kernel_of_records(
    context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype, edge: np.dtype, begin: int
) -> Executable:
    return _kernel(queue, render_densities(dtype, lanes_of(queue), edge=edge, begin=begin), 1)


@kept_by_context
def _conversion(context: cl.Context, queue: cl.CommandQueue, dtype: np.dtype) -> Executable:
    slots, lanes = (ArraySlot("counts", True, False), RESULT), lanes_of(queue)
    source = render_densities(dtype, lanes)
    return single_kernel(queue, "float64", source, slots, ("cells",), (GROUPS * lanes, lanes), "counts as float64")


@lru_cache(maxsize=64)
@stored_source
def render_densities(
    dtype: np.dtype, lanes: int, *, dims: int = 1, edge: np.dtype | None = None, begin: int = 0
) -> str:
    """Return the OpenCL C program that makes float64 of counts of a type, in so many axes.

    `edge` is the type of edges that lie behind so many bytes of a struct; None for widths.
    """
    counts = f"const {c_name(dtype)} *counts, double *result, "
    widths = "const double *edges" if edge is None else "const char *edges"
    bins = "".join(f", const long bins{n}" for n in range(dims))
    every = {
        "float64": with_arrays(f"{counts}const long cells"),
        "densities": with_arrays(f"{widths}, {counts}const long rows, const long cells{bins}"),
    }
    return render(
        "binned/densities.mako",
        lanes=lanes,
        dims=dims,
        total="long" if dtype.kind == "i" else "ulong",
        edge=None if edge is None else c_name(edge),
        begin=begin,
        declared={name: declared for name, (declared, _) in every.items()},
        pointers={name: arrays for name, (_, arrays) in every.items()},
    )
