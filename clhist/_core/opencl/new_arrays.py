"""New arrays for the results of kernels, and facts about the arrays of a call on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.opencl.arrays import Array, address_of, check_context, common_kind, is_aligned
from clhist._core.opencl.bare_arrays import array_in
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.host_memory import LEAST_KEPT, host_memory
from clhist._core.opencl.memory import PATIENCE, free_idle, pool_of

HOST_ALIGNMENT = 128  # bytes: what Intel's CPU runtime uses without a copy
_MOST_BYTES = 2**63 - 1

_READ_WRITE = cl.mem_flags.READ_WRITE


@cache
def _cuda_arrays() -> Any:
    """Return the module of CUDA arrays, which most programs do without."""
    from clhist._core.opencl import cuda_arrays

    return cuda_arrays


class Survey(NamedTuple):
    """Facts about a call's arrays as a group: whether they are PyOpenCL's, whether all are aligned, the events to wait
    for before they are read, and the queue of the first that has one."""

    on_device: bool
    is_aligned: bool
    events: list[cl.Event]
    queue: cl.CommandQueue | None


def survey(named: Iterable[tuple[str, Array]], context: cl.Context, alignment: int) -> Survey:
    """Return the survey of the arrays of a call.

    Raises
    ------
    TypeError, ValueError
        As `common_kind` and `check_context`.
    """
    named = list(named)
    # Arrays of one type are of one kind.
    kinds = {type(array) for _, array in named}
    if len(kinds) > 1:
        common_kind(named)
    if not any(issubclass(kind, cl_array.Array) for kind in kinds):
        return Survey(False, all(is_aligned(array, alignment) for _, array in named), [], None)
    aligned, events, queue = True, [], None
    for _, array in named:
        # Identity first: a comparison of contexts calls PyOpenCL.
        if array.context is not context and array.context != context:
            check_context(named, context)
        aligned = aligned and array.offset % alignment == 0
        events += array.events
        queue = queue or array.queue
    return Survey(True, aligned, events, queue)


@lru_cache(maxsize=64)
def shares_memory(device: cl.Device) -> bool:
    """Whether kernels on `device` use NumPy arrays in place."""
    return bool(device.host_unified_memory and device.type & cl.device_type.CPU)


def beginning(array: Array, *shape: int) -> Array:
    """Return the first elements of a contiguous array of one dimension and any library, which share its memory.

    Slices of PyOpenCL's arrays, and arrays of another shape, are the same and take the host ten times as long.
    """
    if not isinstance(array, cl_array.Array):
        first = array[: prod(shape)]
        return first if len(shape) == 1 else first.reshape(shape)
    if shape == array.shape:
        return array
    first = array_in(array.queue, shape, array.dtype, array.base_data, array.allocator, array.offset, type(array))
    first.context, first.events = array.context, array.events
    return first


def empty(
    queue: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    on_device: bool,
    allocator: Any = None,
) -> Array:
    """Return a new array of PyOpenCL, or else of NumPy, which needs no queue; raise MemoryError if there is no room."""
    if not on_device:
        # Where every runtime takes it as it is.
        size = prod(shape) * dtype.itemsize
        try:
            needed = size + HOST_ALIGNMENT
            room = host_memory.new(needed) if size >= LEAST_KEPT else np.empty(needed, np.uint8)
        except (MemoryError, ValueError, OverflowError) as error:  # a ValueError, where the size is no number of bytes
            raise _no_room("host", shape, dtype, error) from error
        # The bytes up to the first aligned address; `room` has as many to spare.
        start = -address_of(room) % HOST_ALIGNMENT
        return room[start : start + size].view(dtype).reshape(shape)

    if cuda_device_of(queue) is not None:
        return _cuda_arrays().empty_cuda(queue, shape, dtype)
    return empty_opencl(queue, shape, dtype, allocator)


def empty_opencl(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: np.dtype, allocator: Any = None) -> Array:
    """Return a new array of PyOpenCL on a queue that stands for no CUDA device; raise MemoryError as `empty`."""
    device = queue.device
    nbytes, memory = prod(shape) * dtype.itemsize, None
    # Kept as scratch memory is: what a GPU has let go of takes 0.2 to 0.5 ms to have again where it is large, and the
    # system clears new pages of a CPU's large arrays one by one.
    is_kept = allocator is None and (nbytes >= LEAST_KEPT or not shares_memory(device))
    source = pool_of(queue) if is_kept else allocator
    if nbytes:
        make = (cl.Buffer, queue.context, _READ_WRITE) if source is None else (source,)
        memory = _with_room(device, nbytes, shape, dtype, *make, nbytes)
    # The allocator is the caller's: what is computed of the array may be for another queue.
    return array_in(queue, shape, dtype, memory, allocator)


def to_device(queue: cl.CommandQueue, array: np.ndarray) -> Array:
    """Return a copy of an array on the device."""
    if cuda_device_of(queue) is not None:
        return _cuda_arrays().empty_cuda(queue, array.shape, array.dtype).filled(array)
    if not array.nbytes or not (array.nbytes <= _MOST_WITH_BUFFER or shares_memory(queue.device)):
        return cl_array.to_device(queue, array)
    # A copy by the queue takes 50 to 200 µs on CPUs and 40 to 110 on an H200; 100,000 numbers with the buffer take 30.
    content, flags = np.ascontiguousarray(array), cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    make = cl.Buffer, queue.context, flags, 0, content
    memory = _with_room(queue.device, array.nbytes, array.shape, array.dtype, *make)
    return array_in(queue, array.shape, array.dtype, memory)


def kept_on_device(queue: cl.CommandQueue, array: np.ndarray) -> Array:
    """Return a copy of an array on the device that later calls use as well."""
    if cuda_device_of(queue) is not None:
        return _cuda_arrays().kept_on_cuda(queue, array)
    # A copy by the queue takes the host 100 µs.
    memory = read_only_buffer(queue.context, np.ascontiguousarray(array)) if array.nbytes else None
    return array_in(queue, array.shape, array.dtype, memory)


def zeros(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return a new array of the device, of zeros; raise MemoryError if it has no room for it."""
    if cuda_device_of(queue) is not None:
        return _cuda_arrays().empty_cuda(queue, shape, dtype).clear()
    nbytes = prod(shape) * dtype.itemsize
    return _with_room(queue.device, nbytes, shape, dtype, cl_array.zeros, queue, shape, dtype)


_MOST_WITH_BUFFER = 2**20  # bytes: what drivers of GPUs do with more was not measured


@lru_cache(maxsize=64)
def _memory_of(device: cl.Device) -> int:
    """Return the bytes of a device's memory."""
    return device.global_mem_size


def _with_room(
    device: cl.Device, size: int, shape: tuple[int, ...], dtype: np.dtype, make: Callable[..., Any], *args: Any
) -> Any:
    """Return `make(*args)`, which allocates `size` bytes, if need be after idle memory is freed; raise MemoryError."""
    if size > _memory_of(device):
        if size > _MOST_BYTES:  # which PyOpenCL has other errors for
            raise _no_room("device", shape, dtype, "more bytes than there are addresses")
        # NVIDIA's driver fails only when a kernel gets the memory.
        raise _no_room("device", shape, dtype, f"{device.name.strip()} has {device.global_mem_size} bytes")
    try:
        try:
            return make(*args)
        except cl.MemoryError:
            free_idle(PATIENCE)
            return make(*args)
    except (cl.MemoryError, cl.LogicError) as error:
        raise _no_room("device", shape, dtype, error) from error
    except cl.RuntimeError as error:
        # PyOpenCL raises this code as a RuntimeError, as it does others.
        if error.code != cl.status_code.OUT_OF_HOST_MEMORY:
            raise
        raise _no_room("device", shape, dtype, error) from error


def _no_room(where: str, shape: tuple[int, ...], dtype: np.dtype, error: object) -> MemoryError:
    kind = f"elements of {dtype.itemsize} bytes" if dtype.names else dtype
    return MemoryError(f"the {where} has no room for a result of shape {shape} and {kind}: {error}")


def read_only_buffer(context: cl.Context, array: np.ndarray) -> cl.Buffer:
    """Return a copy of `array` on the device, for kernels to read."""
    try:
        return cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, 0, array)
    except (cl.MemoryError, cl.LogicError) as error:
        raise MemoryError(f"the device cannot hold an array of {array.nbytes} bytes: {error}") from error
