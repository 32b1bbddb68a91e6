"""Least and greatest element of an array: NumPy's on the host, PyOpenCL's on the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.elements import has_no_type
from clhist._core.keys import bits_dtype, from_key, key_dtype, key_range
from clhist._core.opencl.arrays import is_device_array, on_host
from clhist._core.opencl.device import device_kind, has_fp64
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot
from clhist._core.runtime.single_kernel import single_kernel
from clhist.binned.extent_kernel import ExtentSpec, render_extent

_STRIPS, _LANES = 2**18, 256  # work-items of a GPU, and of a work-group
_CPU_STRIPS = 256  # work-items of a CPU
# Elements that stay in a cache between the passes for minimum and maximum.
_CHUNK = 2**16


def extent(array: Any, where: Any, queue: cl.CommandQueue | None, column: int | None = None) -> tuple[Any, Any] | None:
    """Return the least and the greatest element as NumPy scalars; None if no element counts.

    Both are NaN if an element is, as in `numpy.min`. The array is flat, or of shape (N, D) with the `column` to read.
    """
    if isinstance(array, np.ndarray):
        chosen = array if column is None else array[:, column]
        return _host_extent(chosen if where is None else chosen[where])
    low, high, count = key_extent(array, where, None, queue, column=column)
    if not count:
        return None
    dtype, (least, greatest) = array.dtype, key_range(array.dtype)
    # The keys of NaN lie outside the keys of the infinities.
    if dtype.kind == "f" and not least <= low <= high <= greatest:
        return dtype.type(np.nan), dtype.type(np.nan)
    return from_key(low, dtype), from_key(high, dtype)


def key_extent(array: Any, *arguments: Any, **options: Any) -> tuple[int, int, int]:
    """Return (least key, greatest key, elements that count) by the device; arguments of `extent_in_parts`."""
    if not array.size:
        return 0, 0, 0
    parts = on_host(extent_in_parts(array, *arguments, **options), arguments[-1])
    return int(parts["low"].min()), int(parts["high"].max()), int(parts["count"].sum())


def extent_in_parts(
    array: Any,
    where: Any,
    bounds: tuple[int, int] | None,
    queue: cl.CommandQueue,
    column: int | None = None,
) -> Any:
    """Reduce each of several parts of the data to least key, greatest key and count.

    Parameters
    ----------
    array : array of NumPy or PyOpenCL
        Flat, or of shape (N, D); not empty.
    where : array of bool, or None
        True for elements that count.
    bounds : (int, int) or None
        Only elements with keys in this closed interval count.
    queue : pyopencl.CommandQueue
        The queue that computes.
    column : int, optional
        The column to read of an array (N, D).

    Returns
    -------
    array of `ends_dtype`
        One entry for each part; where `array` is.
    """
    dtype, key = array.dtype, key_dtype(array.dtype)
    # A type that the device lacks is read as integers, whose bits the keys are made of.
    as_bits = has_no_type(dtype, has_fp64(queue.device))
    size, pitch = array.shape[0] if column is not None else array.size, array.shape[-1] if column is not None else 1
    data = bits_dtype(dtype) if as_bits else dtype
    lanes, parts = lanes_and_parts(queue)
    spec = ExtentSpec(dtype, data, where is not None, pitch, column or 0, lanes)
    # Each work-item reduces one block, or one strip of a stride of all work-items.
    block, strips = -(-size // (lanes * parts)), lanes * parts
    # A CPU's work-item reads a block; a GPU's reads every n-th element, so that loads coalesce.
    steps = (block, block, 1) if device_kind(queue.device) == "cpu" else (1, size, strips)
    arrays = (array.view(bits_dtype(dtype)) if as_bits else array, *([] if where is None else [where]))
    scalars = _scalars(key, bounds, size, steps)
    kernel = _extent_kernel(queue.context, queue, spec, parts)
    return kernel.run(queue, [*arrays, None], scalars, is_device_array(array)).results[0]


@lru_cache(maxsize=256)
def _scalars(
    key: np.dtype, bounds: tuple[int, int] | None, size: int, steps: tuple[int, int, int]
) -> tuple[np.generic, ...]:
    """Return scalars of the kernel; those of a repeated call are the same object, which spares their comparison."""
    # Without bounds all keys count, those of NaN as well, by which the caller recognises NaN.
    least, greatest = bounds or (np.iinfo(key).min, np.iinfo(key).max)
    return key.type(least), key.type(greatest), *map(np.int64, (size, *steps))


def lanes_and_parts(queue: cl.CommandQueue) -> tuple[int, int]:
    """Return the work-group size of the extent kernel, and the number of its work-groups."""
    if device_kind(queue.device) == "cpu":
        return 1, _CPU_STRIPS
    lanes = min(_LANES, queue.device.max_work_group_size)
    return lanes, _STRIPS // lanes


@kept_by_context
def _extent_kernel(context: cl.Context, queue: cl.CommandQueue, spec: ExtentSpec, parts: int) -> Executable:
    read = [ArraySlot(name, True, False) for name in ("x", "where")[: 1 + spec.masked]]
    slots = (*read, ArraySlot("ends", False, True, ((parts,), spec.ends)))
    scalars = ("least", "greatest", "count", "block", "span", "step")
    sizes, what = (parts * spec.lanes, spec.lanes), "the least and the greatest element"
    return single_kernel(queue, "extent", render_extent(spec), slots, scalars, sizes, what)


def _host_extent(array: Any) -> tuple[Any, Any] | None:
    if not array.size:
        return None
    flat = array.reshape(-1)
    # By chunks: the maximum then reads from the cache.
    lows, highs = [], []
    for k in range(0, flat.size, _CHUNK):
        chunk = flat[k : k + _CHUNK]
        lows.append(chunk.min())
        highs.append(chunk.max())
    return np.min(lows), np.max(highs)
