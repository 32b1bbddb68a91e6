"""The least and the greatest element of an array, of NumPy on the host, of PyOpenCL on the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.axes.elements import bits_of, has_no_type, key_of_bits
from clhist.axes.keys import bits_dtype, from_key, key_dtype, key_range
from clhist.engine.engine import Engine
from clhist.opencl.arrays import is_device_array
from clhist.opencl.device import device_kind
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name, literal
from clhist.operators.operator import Operator

PARTS = 64  # so many results, so that work-items do not all update one
_STRIPS = {"cpu": 256, "gpu": 2**18}
_LOADS = 8  # of a work-item under way: to read for nothing what does not count costs less than to wait
_CHUNK = 2**16  # elements that stay in a cache between the two passes over them

_MAP = """
    {key} low = {highest}, high = {lowest};
    long number = 0;
    const long begin = (long)i * block, end = min(count, begin + span);
    #pragma unroll {loads}
    for (long j = begin; j < end; j += step) {{
        const {bits} bits = {element};
        const {key} key = {key_of};
        const bool counts = {condition}(key >= least) & (key <= greatest);
        low = (counts & (key < low)) ? key : low;
        high = (counts & (key > high)) ? key : high;
        number += counts;
    }}
    EMIT((int)(i % {parts}), ((value_t){{low, high, number}}));
"""


def extent(
    array: Any, where: Any, queue: cl.CommandQueue, *, fp64: bool, column: int | None = None
) -> tuple[Any, Any] | None:
    """Return the least and the greatest element as NumPy scalars, or None of no elements.

    Both are NaN if one is, as `numpy.min` has it. The array is flat, or of shape (N, D) if `column` says which.
    """
    if not is_device_array(array):
        chosen = array if column is None else array[:, column]
        return _host_extent(chosen if where is None else chosen[where])
    return numbers_of(*key_extent(array, where, None, queue, fp64=fp64, column=column), array.dtype)


def numbers_of(low: int, high: int, count: int, dtype: np.dtype) -> tuple[Any, Any] | None:
    """Return the numbers of the least and the greatest key of so many elements as `extent` does."""
    if not count:
        return None
    least, greatest = key_range(dtype)
    if dtype.kind == "f" and not least <= low <= high <= greatest:
        return dtype.type(np.nan), dtype.type(np.nan)
    return from_key(low, dtype), from_key(high, dtype)


def key_extent(array: Any, *asked: Any, **options: Any) -> tuple[int, int, int]:
    """Return the least and the greatest key of a device array, and how many elements count; see `extent_in_parts`."""
    if not array.size:
        return 0, 0, 0
    parts = extent_in_parts(array, *asked, **options).get(asked[-1])
    return int(parts["low"].min()), int(parts["high"].max()), int(parts["count"].sum())


def extent_in_parts(
    array: Any,
    where: Any,
    bounds: tuple[int, int] | None,
    queue: cl.CommandQueue,
    *,
    fp64: bool,
    column: int | None = None,
) -> Any:
    """Return, on the device, the least and the greatest key of each of several parts of data, and how many count.

    Parameters
    ----------
    array : pyopencl.array.Array
        Flat, or of shape (N, D); not empty.
    where : array of bool, or None
        Which elements count.
    bounds : (int, int) or None
        Keys within which elements count.
    queue : pyopencl.CommandQueue
        Where it runs.
    fp64 : bool
        Whether the device has double precision.
    column : int, optional
        Of an array (N, D).
    """
    dtype, key = array.dtype, key_dtype(array.dtype)
    as_bits = has_no_type(dtype, fp64)
    size, pitch = array.shape[0] if column is not None else array.size, array.shape[-1] if column is not None else 1
    kernel = _extent_kernel(queue.context, dtype, as_bits, where is not None, pitch, column or 0)
    is_cpu = device_kind(queue.device) == "cpu"
    strips = min(size, _STRIPS["cpu" if is_cpu else "gpu"])
    block = -(-size // strips)
    steps = (block, block, 1) if is_cpu else (1, size, strips)
    given = (array.view(bits_dtype(dtype)) if as_bits else array, *([] if where is None else [where]))
    ends = (key.type(end) for end in bounds or (np.iinfo(key).min, np.iinfo(key).max))
    return kernel(*given, *ends, size, *steps, size=strips, num_bins=PARTS, queue=queue)


def _host_extent(array: Any) -> tuple[Any, Any] | None:
    if not array.size:
        return None
    flat = array.reshape(-1)
    lows, highs = [], []
    for k in range(0, flat.size, _CHUNK):
        chunk = flat[k : k + _CHUNK]
        lows.append(chunk.min())
        highs.append(chunk.max())
    return np.min(lows), np.max(highs)


@kept_by_context
def _extent_kernel(
    context: cl.Context, dtype: np.dtype, as_bits: bool, masked: bool, pitch: int, column: int
) -> Engine:
    key = key_dtype(dtype)
    data = bits_dtype(dtype) if as_bits else dtype
    info = np.iinfo(key)
    code = _MAP.format(
        key=c_name(key),
        bits=c_name(bits_dtype(dtype)),
        lowest=literal(info.min, key),
        highest=literal(info.max, key),
        condition="(where[j] != 0) & " if masked else "",
        loads=_LOADS,
        element=bits_of("x[j]" if pitch == 1 else f"x[j * {pitch} + {column}]", data),
        key_of=key_of_bits(dtype),
        parts=PARTS,
    )
    mask = "const uchar *where, " if masked else ""
    ends = f"{c_name(key)} least, {c_name(key)} greatest"
    arguments = f"const {c_name(data)} *x, {mask}{ends}, long count, long block, long span, long step"
    return Engine.of(context, ends_of(dtype), arguments=arguments, map=code, emits=1)


@lru_cache(maxsize=16)
def ends_of(dtype: np.dtype) -> Operator:
    """Return the operator on the least and the greatest key, and how many elements count."""
    key = key_dtype(dtype)
    parts = {"low": operators.minimum(key), "high": operators.maximum(key), "count": operators.add(np.int64)}
    return operators.product(parts)
