"""Arrays of CUDA's memory as arrays of PyOpenCL are described: what checks, plans and recognises calls takes both.

All memory of a device is one buffer that begins at address 0, so the offset of an array is its address. Its queue runs
nothing: it stands for the CUDA device, as a queue of the same device by OpenCL, for which programs are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.cuda.driver import Event, driver
from clhist._core.cuda.libraries import Described, Library
from clhist._core.cuda.memory import Allocation
from clhist._core.opencl.arrays import strides_of
from clhist._core.opencl.bare_arrays import array_in
from clhist._core.opencl.cuda_kinds import NotDirectError, memory_of_call, register
from clhist._core.recording import note, note_last, unheard


class CudaMemory:
    """Memory of a CUDA device that belongs to an array of a library, which is kept.

    Attributes
    ----------
    library : Library
        Whose.
    device : int
        The number of the CUDA device.
    owner : object
        The library's array.
    original : object
        What the caller gave, if `owner` was made of it.
    back : callable or None
        What makes of the library's arrays those of the caller's, where that is another.
    is_read_only : bool
        Whether it must not be written.
    whole : tuple of address, shape and dtype, or None
        Of `owner`, where that is known.
    """

    __slots__ = ("back", "device", "is_read_only", "library", "original", "owner", "whole")

    def __init__(
        self,
        library: Library,
        device: int,
        owner: Any,
        original: Any = None,
        back: Any = None,
        is_read_only: bool = False,
    ) -> None:
        self.library, self.device, self.owner, self.original, self.back = library, device, owner, original, back
        self.is_read_only = is_read_only
        self.whole: tuple[int, tuple[int, ...], np.dtype] | None = None

    def __eq__(self, other: object) -> bool:
        # All memory of a device compares equal, as one buffer would: arrays differ by their offsets.
        return isinstance(other, CudaMemory) and other.device == self.device

    def __hash__(self) -> int:
        return hash((CudaMemory, self.device))

    def is_like(self, other: CudaMemory) -> bool:
        """Whether it is of the same device and library, for the same caller's."""
        return (self.device, self.library, self.back) == (other.device, other.library, other.back)

    @property
    def stream(self) -> int:
        """The library's current stream; of what no caller has, that of the call that goes on."""
        return (self.library or memory_of_call().library).stream(self.device)


class CudaArray(cl_array.Array):
    """An array of CUDA's memory; `made` makes it. What PyOpenCL would do by kernels of its own is refused."""

    @property
    def memory(self) -> CudaMemory:
        """The memory of the array."""
        memory: Any = self.base_data
        return memory

    @property
    def stands_for(self) -> cl.CommandQueue:
        """Its queue."""
        assert self.queue is not None
        return self.queue

    @classmethod
    def made(cls, memory: CudaMemory, described: Described, queue: cl.CommandQueue) -> CudaArray:
        """Return the array of this description."""
        # The constructor of PyOpenCL's arrays allocates a buffer, or wants one of OpenCL's.
        address, strides = described.address, described.strides
        array: CudaArray = array_in(queue, described.shape, described.dtype, memory, None, address, cls)
        array.strides = strides
        return array

    def now(self, name: str) -> CudaArray:
        """Return the library's array as it is now; raises TypeError, with the `name`, if no kernel can take it."""
        memory = self.memory
        return CudaArray.made(memory, memory.library.described(name, memory.owner), self.stands_for)

    def check_not_captured(self) -> None:
        """Raise CaptureError if what is enqueued on the stream goes into a graph."""
        memory = self.memory
        with driver().on(memory.device):  # a thread may have no context yet
            driver().check_not_captured(memory.stream)

    def get(self, queue: Any = None, ary: Any = None, async_: bool = False, **options: Any) -> np.ndarray:
        """Return a copy on the host, once all is done that the stream has to do."""
        copy = np.empty(self.shape, self.dtype)
        if self.size:
            if not self.flags.c_contiguous:
                raise NotDirectError("to read an array with gaps")
            memory = self.memory
            with driver().on(memory.device):
                driver().download(copy, self.offset, memory.stream)
        return copy

    def every(self, step: int) -> np.ndarray:
        """Return one of each `step` elements of one dimension, copied to the host."""
        elements = np.empty(self.size // step, self.dtype)
        memory = self.memory
        with driver().on(memory.device):
            driver().download_every(elements[:, None], self.offset, step * self.dtype.itemsize, memory.stream)
        return elements

    def copy(self, queue: Any = None) -> CudaArray:
        """Return a copy on the device."""
        copy = new_array(self.memory, self.shape, self.dtype, self.stands_for)
        copy[...] = self
        return copy

    def __setitem__(self, key: Any, value: Any, **_: Any) -> None:
        if (
            key is not Ellipsis
            or not isinstance(value, CudaArray)
            or (value.shape, value.dtype) != (self.shape, self.dtype)
        ):
            raise NotDirectError("to change a part of an array")
        if not (value.flags.c_contiguous and self.flags.c_contiguous):
            raise NotDirectError("to copy an array with gaps")
        if self.nbytes:
            memory = self.memory
            with driver().on(memory.device):
                driver().copy(self.offset, value.offset, self.nbytes, memory.stream)
            note_last(lambda: CudaCopied(self.offset, value.offset, self.nbytes))

    def filled(self, array: np.ndarray) -> CudaArray:
        """Copy an array of the host of the same type and shape, and return this one."""
        if self.nbytes:
            memory = self.memory
            with driver().on(memory.device):
                driver().upload(self.offset, np.ascontiguousarray(array), memory.stream)
        return self

    def astype(self, dtype: Any, queue: Any = None) -> CudaArray:
        """Return a copy of another dtype, converted by the library."""
        memory, dtype = self.memory, np.dtype(dtype)
        if not memory.library.has(dtype) or self.dtype.names is not None:
            raise NotDirectError(f"to convert to {dtype}")
        # A recording holds the conversion as one step, not the calls that the library makes for it.
        with unheard():
            converted = self.computed(lambda own, _: memory.library.converted(own, dtype))
        note(CudaConverted(self, converted))
        return converted

    def of_library(self) -> Any:
        """Return the contiguous array as one of its library, of the same memory."""
        return _part(self)

    def computed(self, function: Callable[[Any, Any], Any]) -> CudaArray:
        """Return the new array that a function makes of the library's array and of the library's module."""
        memory = self.memory
        note(memory.library.name)
        owner = function(_part(self), memory.library.module)
        described = memory.library.described("result", owner)
        return CudaArray.made(
            CudaMemory(memory.library, memory.device, owner, None, memory.back), described, self.stands_for
        )

    def clear(self) -> CudaArray:
        """Set all bytes to 0, and return it."""
        if self.nbytes:
            memory = self.memory
            with driver().on(memory.device):
                driver().fill(self.offset, 0, self.nbytes, memory.stream)
            note_last(lambda: CudaFilled(self.offset, 0, self.nbytes))
        return self

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise NotDirectError("arithmetic on whole arrays")

    fill = set = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refused
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __neg__ = __abs__ = any = all = map_to_host = _refused
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __hash__ = cl_array.Array.__hash__


register(CudaArray)


class CudaConverted(NamedTuple):
    """The outcome of `CudaArray.astype`."""

    array: CudaArray
    result: CudaArray


class CudaMade(NamedTuple):
    """An array that a library has allocated, which `memory` keeps, for a recording of the call."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    memory: CudaMemory


class CudaFilled(NamedTuple):
    """Memory whose bytes were all set to one, for a recording of the call."""

    address: int
    byte: int
    size: int


class CudaCopied(NamedTuple):
    """Bytes that were copied to an address from another, for a recording of the call."""

    to: int
    address: int
    size: int


class StreamOrder:
    """Orders what streams do with arrays that are kept from call to call: each waits for what those before it did."""

    def __init__(self) -> None:
        self._event: Event | None = None
        self._stream = 0

    def begin(self, arrays: Sequence[object]) -> None:
        """Let the library's current stream wait for the one that used the arrays last, where that is another.

        Raises
        ------
        CaptureError
            If what is enqueued goes into a graph, whose launches would not take turns with the arrays' other uses.
        """
        cuda_arrays = [array for array in arrays if isinstance(array, CudaArray)]
        # Arrays of OpenCL are ordered by their own events.
        if not cuda_arrays:
            self._event = None
            return
        cuda_arrays[0].check_not_captured()
        memory = cuda_arrays[0].memory
        # Work on one stream runs in order anyway.
        if self._event is not None and memory.stream != self._stream:
            with driver().on(memory.device):
                self._event.let_wait(memory.stream)
            for array in cuda_arrays:
                memory.library.is_used(array.memory.owner, memory.device)
            self.end(cuda_arrays)

    def end(self, arrays: Sequence[object]) -> None:
        """Note that the library's current stream has used the arrays."""
        if arrays and isinstance(arrays[0], CudaArray):
            memory = arrays[0].memory
            self._stream = memory.stream
            with driver().on(memory.device):
                # One event for all uses: each record replaces the point of the one before.
                self._event = (self._event or Event(driver())).record(self._stream)


def new_array(like: CudaMemory, shape: tuple[int, ...], dtype: np.dtype, queue: cl.CommandQueue) -> CudaArray:
    """Return a new array by the allocator of a library."""
    library = like.library
    owner = library.new(shape, dtype, like.device)
    strides = strides_of(shape, dtype.itemsize)
    memory = CudaMemory(library, like.device, owner, None, like.back)
    address = library.address(owner)
    # For a dtype that the library lacks, its array has bytes instead, and another shape.
    if library.has(dtype):
        memory.whole = address, shape, dtype
    note(CudaMade(address, shape, dtype, memory))
    return CudaArray.made(memory, Described(address, dtype, shape, strides, like.device), queue)


def of_caller(array: CudaArray) -> Any:
    """Return an array of the caller's library: what was given, or a result; a dict of fields for a structured dtype."""
    memory = array.memory
    if memory.original is not None:
        return memory.original
    back = memory.back or (lambda result: result)
    if array.dtype.names is None:
        return back(_part(array))
    library, flat = memory.library, _flat(array)
    fields = {}
    for field, (dtype, place, *_) in (array.dtype.fields or {}).items():
        step, rest = divmod(array.dtype.itemsize, dtype.itemsize)
        first, gap = divmod(place, dtype.itemsize)
        # A field is a strided view of the whole, which exists if its place and the record are multiples of its size.
        if rest or gap or not library.has(dtype):
            raise TypeError(f"{memory.library.name} has no array of the field {field!r} of {array.dtype}")
        fields[field] = back(library.viewed(flat, dtype)[first::step].reshape(array.shape))
    return fields


def _part(array: CudaArray) -> Any:
    """Return a contiguous array as one of its library, of the same memory."""
    # Most arrays are whole ones of the library, which need no view.
    if array.memory.whole == (array.offset, array.shape, array.dtype):
        return array.memory.owner
    library, owner = array.memory.library, array.memory.owner
    described = library.described("result", owner)
    if (described.address, described.dtype, described.shape) == (array.offset, array.dtype, array.shape):
        return owner
    flat = _flat(array)
    return (flat if described.dtype == array.dtype else library.viewed(flat, array.dtype)).reshape(array.shape)


def _flat(array: CudaArray) -> Any:
    """Return the memory of an array, in one dimension, as one of the dtype of what it is a part of."""
    library, owner = array.memory.library, array.memory.owner
    described, flat = library.described("result", owner), owner.reshape(-1)
    item = described.dtype.itemsize
    # Offsets are addresses, so that a difference of two is a position in the owner's memory.
    begin = (array.offset - described.address) // item
    return flat[begin : begin + array.nbytes // item]


def empty_cuda(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: np.dtype) -> CudaArray:
    """Return a new array for a call in `results_like`."""
    return new_array(memory_of_call(), shape, np.dtype(dtype), queue)


def kept_on_cuda(queue: cl.CommandQueue, array: np.ndarray) -> CudaArray:
    """Return a copy of an array of the host that later calls use as well, whatever library they are of."""
    memory_like = memory_of_call()
    device, array = memory_like.device, np.ascontiguousarray(array)
    with driver().on(device):
        driver().check_not_captured(memory_like.stream)
        block = Allocation(device, array.nbytes)
        # On a private stream: this memory is new, and no work of the caller's has to end before.
        driver().upload(block.address, array, driver().own_stream(device))
    memory = CudaMemory(None, device, block)  # type: ignore[arg-type]
    return CudaArray.made(memory, Described(block.address, array.dtype, array.shape, array.strides, device), queue)
