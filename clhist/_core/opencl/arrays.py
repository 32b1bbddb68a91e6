"""Arrays of NumPy and of PyOpenCL: what a kernel can take of them, and new ones for its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from ctypes import addressof, c_char
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.opencl.cuda_arrays import cuda_device_of, empty_cuda, is_cuda, kept_on_cuda, may_be_written
from clhist._core.opencl.host_memory import LEAST_KEPT, host_memory
from clhist._core.opencl.masks import check_unmasked
from clhist._core.opencl.memory import PATIENCE, free_idle, in_order, scratch_allocator
from clhist.operators.c_types import shown_dtype

HOST_ALIGNMENT = 128  # bytes: what Intel's CPU runtime uses without a copy
_MOST_BYTES = 2**63 - 1

_READ_WRITE = cl.mem_flags.READ_WRITE

Array = Any  # numpy.ndarray or pyopencl.array.Array: neither knows of the other


def is_device_array(value: object) -> bool:
    """Whether `value` is an array of PyOpenCL."""
    return isinstance(value, cl_array.Array)


def on_host(value: Any, queue: cl.CommandQueue | None = None) -> Any:
    """Return a device array as one of NumPy, and all else as it is."""
    return value.get(queue) if is_device_array(value) else value


def is_array(value: object) -> bool:
    """Whether `value` is an array of NumPy or PyOpenCL; NumPy's scalars are none."""
    return isinstance(value, np.ndarray | cl_array.Array)


def check_array(
    name: str, value: object, dtype: np.dtype, *, written: bool, shape: tuple[int, ...] | None = None
) -> Array:
    """Return `value` as an array that a kernel can take, or raise what is wrong with it.

    Parameters
    ----------
    name : str
        The argument, for errors.
    value : array
        Of NumPy or PyOpenCL. A NumPy array that is only read is copied if it is not contiguous or byte-swapped.
    dtype : numpy.dtype
        What its elements must be.
    written : bool
        Whether the kernel writes it.
    shape : tuple of int, optional
        What its shape must be.

    Raises
    ------
    TypeError
        If it is no array, or of another dtype.
    ValueError
        If its shape is another, or it is not contiguous, or it is written and read-only, or some of it is masked.
    """
    if not is_array(value):
        raise TypeError(
            f"{name}: expected a NumPy or PyOpenCL array of {shown_dtype(dtype)}, got {type(value).__name__}"
        )
    array: Array = value
    host = isinstance(value, np.ndarray)
    check_unmasked(name, value)
    given = array.dtype.newbyteorder("=") if host and not written and array.dtype.names is None else array.dtype
    if given == np.bool_ and dtype == np.uint8 and not written:
        array, given = as_bytes(array), dtype  # what C has for it
    if given != dtype:
        raise TypeError(f"{name}: expected an array of {shown_dtype(dtype)}, got one of {shown_dtype(array.dtype)}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if host and not written:
        return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])
    check_contiguous(name, array)
    if host and not array.flags.aligned:
        raise ValueError(
            f"{name}: expected an array at an address that suits {shown_dtype(dtype)}, got one at {array.ctypes.data}"
        )
    if written and not (array.flags.writeable if host else may_be_written(array)):
        raise ValueError(f"{name}: expected an array that can be written, got a read-only one")
    return array


def are_plain_numbers(a: np.ndarray) -> bool:
    """Whether these are integers or floats of 32 or 64 bits in native byte order."""
    dtype = a.dtype
    return dtype.kind in "iuf" and 4 <= dtype.itemsize <= 8 and dtype.isnative


def is_plain_array(value: Any, dtype: np.dtype) -> bool:
    """Whether `value` is an array of NumPy that `check_array` returns as it is, if kernels only read it.

    Most arrays are; this takes a fifth of its time.
    """
    return type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous and value.flags.aligned


def check_contiguous(name: str, array: Array) -> None:
    """Raise ValueError if an array has gaps or another order than C's."""
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: expected a contiguous array, got one with strides {array.strides} of shape {array.shape}"
        )


def check_native(name: str, array: Array) -> None:
    """Raise TypeError if a device array is not in the byte order of the host, which devices have."""
    if not array.dtype.isnative:
        raise TypeError(
            f"{name}: expected native byte order of a device array, got {array.dtype.str}; swap it on the host"
        )


def check_layout(name: str, array: Array) -> None:
    """Raise TypeError or ValueError unless a device array is contiguous, in the byte order of the host."""
    check_native(name, array)
    check_contiguous(name, array)


def is_taken(value: object, taken: object) -> bool:
    """Whether a kernel takes an argument in place; `taken` is what `check_array` made of it, or a scalar."""
    if not isinstance(value, np.ndarray) or not isinstance(taken, np.ndarray):
        return True
    return taken is value or np.may_share_memory(taken, value)


def plain(array: np.ndarray) -> np.ndarray:
    """Return numbers of NumPy as kernels take them: contiguous, of native byte order, booleans as bytes, no halves."""
    dtype = np.dtype(np.float32) if array.dtype == np.float16 else array.dtype.newbyteorder("=")
    array = np.ascontiguousarray(array, dtype)
    return array.view(np.uint8) if dtype.kind == "b" else array


def as_bytes(array: Array) -> Array:
    """Return an array of booleans as one of bytes in the same memory; PyOpenCL has no views without dimensions."""
    return array.view(np.uint8) if array.ndim else array.reshape(1).view(np.uint8).reshape(())


def address_of(array: np.ndarray) -> int:
    """Return where the first element is, in a fourth of the time of `ctypes.data` where that can be."""
    try:
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]  # of NumPy's stubs
    except (TypeError, ValueError, BufferError):  # read-only, not contiguous, empty, or of dates
        return array.ctypes.data


def is_aligned(array: Array, size: int) -> bool:
    """Whether the first element lies at a multiple of `size` bytes; OpenCL's buffers begin at one."""
    return (array.offset if is_device_array(array) else address_of(array)) % size == 0


def common_kind(named: Iterable[tuple[str, Array]]) -> bool:
    """Return whether the arrays are PyOpenCL's; all must be of one kind.

    Raises
    ------
    TypeError
        If some are NumPy's and some PyOpenCL's; both are named.
    """
    kinds: dict[str, str] = {}
    for name, array in named:
        kinds.setdefault(_kind(array), name)
    if len(kinds) > 1:
        (expected, like), (got, name) = sorted(kinds.items(), key=lambda kind: _KINDS.index(kind[0]))[:2]
        raise TypeError(
            f"{name}: expected a {expected} array as {like} is, got a {got} array; "
            "clhist copies nothing between host and device unasked"
        )
    return bool(kinds) and "NumPy" not in kinds


_KINDS = ("CUDA", "PyOpenCL", "NumPy")


def _kind(array: Array) -> str:
    return "CUDA" if is_cuda(array) else "PyOpenCL" if is_device_array(array) else "NumPy"


def check_context(named: Iterable[tuple[str, Array]], context: cl.Context) -> None:
    """Raise ValueError if one of the device arrays is of another context."""
    for name, array in named:
        if is_device_array(array) and array.context != context:
            raise ValueError(
                f"{name}: expected an array of the context {shown_context(context)}, got one of "
                f"{shown_context(array.context)}; pass {name}.context to HistogramKernel, or its queue as queue="
            )


def shown_context(context: cl.Context) -> str:
    """Return a context for people: its devices, and a number, since several may have the same ones."""
    devices = ", ".join(device.name.strip() for device in context.devices)
    return f"{context.int_ptr:#x} on {devices}"


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
    kinds = {type(array) for _, array in named}
    if len(kinds) > 1:
        common_kind(named)
    if not any(issubclass(kind, cl_array.Array) for kind in kinds):
        return Survey(False, all(is_aligned(array, alignment) for _, array in named), [], None)
    aligned, events, queue = True, [], None
    for _, array in named:
        if array.context is not context and array.context != context:
            check_context(named, context)
        aligned = aligned and array.offset % alignment == 0
        events += array.events
        queue = queue or array.queue
    return Survey(True, aligned, events, queue)


def note_event(array: Array, event: cl.Event, waited: Collection[cl.Event]) -> None:
    """Add to a written array the `event` after which it is complete, in the place of those that were waited for.

    Otherwise an array that is written again and again has a dozen events, for each of which every call waits.
    """
    done = {id(each) for each in waited}
    array.events[:] = [each for each in array.events if id(each) not in done]
    array.add_event(event)


@lru_cache(maxsize=64)
def shares_memory(device: cl.Device) -> bool:
    """Whether kernels on `device` use NumPy arrays in place."""
    return bool(device.host_unified_memory and device.type & cl.device_type.CPU)


def overlap(first: Array, second: Array) -> bool:
    """Whether two arrays share memory."""
    if not is_device_array(first) and not is_device_array(second):
        return bool(np.may_share_memory(first, second))
    if (
        not (is_device_array(first) and is_device_array(second))
        or first.base_data is None
        or first.base_data != second.base_data
    ):
        return False
    return first.offset < second.offset + second.nbytes and second.offset < first.offset + first.nbytes


def without_memory(array: Array) -> Array:
    """Return what tells a device array's type and shape, for `empty` to make others like it sooner."""
    return _twin(array, base_data=None, events=[])


def beginning(array: Array, size: int) -> Array:
    """Return the first `size` elements of a contiguous array of one dimension, which share its memory.

    Of PyOpenCL's arrays slices are the same, and take the host ten times as long.
    """
    if size == array.size:
        return array
    if isinstance(array, np.ndarray):
        return array[:size]
    return _twin(array, shape=(size,), size=size, nbytes=size * array.dtype.itemsize)


def _twin(array: Array, **changed: Any) -> Array:
    """Return a copy of a device array's description with some of it changed; `copy.copy` takes ten times as long."""
    found = object.__new__(type(array))
    found.__dict__.update(array.__dict__, **changed)
    return found


def empty(
    queue: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    on_device: bool,
    allocator: Any = None,
    like: Array | None = None,
) -> Array:
    """Return a new array of PyOpenCL, or else of NumPy, which needs no queue; raise MemoryError if there is no room.
    `like` is one of this queue and type `without_memory`.
    """
    if not on_device:
        # Where every runtime takes it as it is.
        size = prod(shape) * dtype.itemsize
        try:
            taken = size + HOST_ALIGNMENT
            room = host_memory.new(taken) if size >= LEAST_KEPT else np.empty(taken, np.uint8)
        except (MemoryError, ValueError, OverflowError) as error:  # a ValueError, where the size is no number of bytes
            raise _no_room("host", shape, dtype, error) from error
        start = -address_of(room) % HOST_ALIGNMENT
        return room[start : start + size].view(dtype).reshape(shape)

    if cuda_device_of(queue) is not None:
        return empty_cuda(queue, shape, dtype)

    # Kept as scratch memory is: what a GPU has let go of takes 0.2 to 0.5 ms to have again where it is large.
    is_pooled = allocator is None and not shares_memory(queue.device) and in_order(queue)
    source = scratch_allocator(queue) if is_pooled else allocator

    def make() -> Array:
        if like is not None:
            size = like.nbytes
            memory = cl.Buffer(like.context, _READ_WRITE, size) if source is None else source(size)
            return _twin(like, base_data=memory, events=[], allocator=allocator)
        new = cl_array.empty(queue, shape, dtype, allocator=source)
        new.allocator = allocator  # what is computed of it may be for another queue
        return new

    return _with_room(queue.device, make, shape, dtype)


def to_device(queue: cl.CommandQueue, array: np.ndarray) -> Array:
    """Return a copy of an array on the device."""
    if cuda_device_of(queue) is not None:
        return empty_cuda(queue, array.shape, array.dtype).filled(array)
    return cl_array.to_device(queue, array)


def kept_on_device(queue: cl.CommandQueue, array: np.ndarray) -> Array:
    """Return a copy of an array on the device that later calls use as well."""
    return cl_array.to_device(queue, array) if cuda_device_of(queue) is None else kept_on_cuda(queue, array)


def zeros(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return a new array of the device, of zeros; raise MemoryError if it has no room for it."""
    if cuda_device_of(queue) is not None:
        return empty_cuda(queue, shape, dtype).clear()
    return _with_room(queue.device, lambda: cl_array.zeros(queue, shape, dtype), shape, dtype)


def _with_room(device: cl.Device, make: Callable[[], Array], shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return a new array on a device, if need be in the place of results that are gone; raise MemoryError."""
    size = prod(shape) * dtype.itemsize
    if size > _MOST_BYTES:  # which PyOpenCL has other errors for
        raise _no_room("device", shape, dtype, "more bytes than there are addresses")
    if size > device.global_mem_size:  # NVIDIA's fails when a kernel gets it
        raise _no_room("device", shape, dtype, f"{device.name.strip()} has {device.global_mem_size} bytes")
    try:
        try:
            return make()
        except cl.MemoryError:
            free_idle(PATIENCE)
            return make()
    except (cl.MemoryError, cl.LogicError) as error:
        raise _no_room("device", shape, dtype, error) from error
    except cl.RuntimeError as error:
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
