"""CUDA's driver, by ctypes: the few calls that are needed, with errors.

Its interface in C is stable across versions, and it is there wherever a library of CUDA works. Memory is a number of
bytes at an address, a stream a handle.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

import numpy as np

from clhist._core.recording import heard, listeners

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_NO_MEMORY = 2
_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PCI = (33, 34)  # CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, _DEVICE_ID
_LOG, _LOG_SIZE, _LOG_BYTES = 5, 6, 8192  # CU_JIT_ERROR_LOG_BUFFER, its size in bytes
_HOST, _DEVICE = 1, 2  # CUmemorytype
_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_UNTIMED = 2  # CU_EVENT_DISABLE_TIMING

_number, _size, _handle = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


class CudaError(RuntimeError):
    """Raised where CUDA's driver refuses."""


class CudaMemoryError(CudaError, MemoryError):
    """Raised where it has no memory."""


class CaptureError(RuntimeError):
    """Raised before something is done that would break a capture of the caller's stream into a graph."""


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        field
        for side in ("src", "dst")
        for field in (
            (f"{side}XInBytes", _size),
            (f"{side}Y", _size),
            (f"{side}MemoryType", ctypes.c_int),
            (f"{side}Host", _handle),
            (f"{side}Device", _number),
            (f"{side}Array", _handle),
            (f"{side}Pitch", _size),
        )
    ] + [("WidthInBytes", _size), ("Height", _size)]


class _Events(threading.local):
    """The events of a thread, by device: an event may be recorded again as soon as a stream waits for it."""

    def __init__(self) -> None:
        self.of_devices: dict[int, Event] = {}


# Calls on the thread's current context, which are no work of the device and are not recorded.
_OF_CONTEXTS = {"cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}


class _On:
    """Lets calls go to a context; a generator would take four times as long."""

    __slots__ = ("_context", "_driver", "_pushed")

    def __init__(self, driver: Driver, context: int) -> None:
        self._driver, self._context = driver, context

    def is_current(self) -> bool:
        """Whether calls of this thread go there anyway."""
        current = _handle()  # not a threading.local: PyTorch's threads have a new Python state at every call
        return self._driver.get_current(ctypes.byref(current)) == 0 and current.value == self._context

    def __enter__(self) -> None:
        # Most calls find the context current, and then neither push nor pop.
        self._pushed = not self.is_current() and self._driver.push(self._context)

    def __exit__(self, *error: object) -> None:
        if self._pushed:
            self._driver.pop()


class Driver:
    """The driver's calls.

    Parameters
    ----------
    library : object
        What has CUDA's functions as attributes: the library, or what stands for it in tests.
    """

    def __init__(self, library: Any) -> None:
        self._library, self._contexts, self._lock = library, dict[int, int](), threading.Lock()
        self._streams, self._events = dict[int, int](), _Events()
        self._call("cuInit", 0)
        # Each launch needs these two: looked up once.
        self._launch, self.get_current = library.cuLaunchKernel, library.cuCtxGetCurrent

    def _call(self, name: str, *arguments: Any) -> None:
        if heard.calls is not None and name not in _OF_CONTEXTS:
            heard.calls.append(name)
        result = getattr(self._library, name)(*arguments)
        if result:
            self._raise(result, name)

    def _raise(self, result: int, name: str) -> None:
        text = ctypes.c_char_p()
        # Not by `_call`, which would call this again for an error of its own.
        self._library.cuGetErrorName(result, ctypes.byref(text))
        shown = (text.value or b"an unknown error").decode()
        raise (CudaMemoryError if result == _NO_MEMORY else CudaError)(f"{name} of CUDA's driver: {shown} ({result})")

    @property
    def version(self) -> int:
        """The version of CUDA, 13000 for 13.0."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return number.value

    def count(self) -> int:
        """Return how many devices there are."""
        number = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def name(self, device: int) -> str:
        """Return what a device is called."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, 256, self._device(device))
        return text.value.decode()

    def place(self, device: int) -> tuple[int, int]:
        """Return the PCI bus and slot of a device."""
        numbers = []
        for attribute in _PCI:
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device(device))
            numbers.append(value.value)
        return numbers[0], numbers[1]

    def _device(self, number: int) -> int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        return device.value

    def _primary(self, device: int) -> int:
        """Return the primary context of a device, which all libraries share; it is never released."""
        # Two threads must not retain a context twice: each retention is counted.
        with self._lock:
            if device not in self._contexts:
                context = _handle()
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(device))
                self._contexts[device] = context.value or 0
            return self._contexts[device]

    def on(self, device: int) -> _On:
        """Let calls in a ``with`` block go to a device."""
        return _On(self, self._contexts.get(device) or self._primary(device))

    def push(self, context: int) -> bool:
        """Let calls of this thread go to a context; return whether they went elsewhere."""
        current = _handle()
        self._call("cuCtxGetCurrent", ctypes.byref(current))
        if current.value == context:
            return False
        if not current.value:  # as CUDA's runtime does: a thread that has none stays with the first
            self._call("cuCtxSetCurrent", _handle(context))
            return False
        try:
            self._call("cuCtxPushCurrent_v2", _handle(context))
            return True
        except BaseException:  # Ctrl-C may arrive as the call returns
            self._call("cuCtxGetCurrent", ctypes.byref(current))
            if current.value == context:
                self.pop()
            raise

    def pop(self) -> None:
        """Undo the last `push`."""
        self._call("cuCtxPopCurrent_v2", ctypes.byref(_handle()))

    def load_module(self, text: str) -> int:
        """Return a module of PTX, for the device that calls go to."""
        # The log of CUDA's compiler says what is wrong with the PTX; the error alone has no line.
        log, module = ctypes.create_string_buffer(_LOG_BYTES), _handle()
        options = (ctypes.c_int * 2)(_LOG, _LOG_SIZE)
        # Options are an array of pointers, in which a number stands in the place of an address.
        values = (_handle * 2)(ctypes.addressof(log), _LOG_BYTES)
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), text.encode() + b"\0", 2, options, values)
        except CudaError as error:
            said = log.value.decode(errors="replace").strip()
            raise CudaError(f"{error}{': ' if said else ''}{said}") from error
        return module.value or 0

    def function(self, module: int, name: str, dynamic: int) -> int:
        """Return a kernel of a module, which may have so many bytes of dynamic shared memory."""
        kernel = _handle()
        self._call("cuModuleGetFunction", ctypes.byref(kernel), _handle(module), name.encode())
        if dynamic:
            self._call("cuFuncSetAttribute", kernel, _DYNAMIC_SHARED_BYTES, dynamic)
        return kernel.value or 0

    def launch(self, prepared: tuple[Any, ...], stream: Any, parameters: Any) -> None:
        """Enqueue a kernel.

        Parameters
        ----------
        prepared : tuple
            The function, three numbers of groups, three sizes of a group, bytes of dynamic shared memory.
        stream : ctypes.c_void_p
            Where.
        parameters : ctypes array of pointers
            To the value of each parameter, which are copied.
        """
        if listeners and heard.calls is not None:
            heard.calls.append("cuLaunchKernel")
        result = self._launch(*prepared, stream, parameters, None)
        if result:
            self._raise(result, "cuLaunchKernel")

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes on the device that calls go to."""
        address = _number()
        self._call("cuMemAlloc_v2", ctypes.byref(address), _size(size))
        return address.value

    def free(self, address: int) -> None:
        """Free what was allocated, after all that the device has to do."""
        self._call("cuMemFree_v2", _number(address))

    def upload(self, address: int, array: np.ndarray, stream: int) -> None:
        """Copy a contiguous array of the host, which is waited for: memory that is pinned is read later on."""
        self.check_not_captured(stream)
        self._call(
            "cuMemcpyHtoDAsync_v2", _number(address), _handle(array.ctypes.data), _size(array.nbytes), stream_of(stream)
        )
        self.wait(stream)

    def download(self, array: np.ndarray, address: int, stream: int) -> None:
        """Copy to a contiguous array of the host, which is waited for."""
        self.check_not_captured(stream)
        self._download(array, address, stream)

    def _download(self, array: np.ndarray, address: int, stream: int) -> None:
        # A synchronous copy would be on the default stream, whatever stream the array is of.
        self._call(
            "cuMemcpyDtoHAsync_v2", _handle(array.ctypes.data), _number(address), _size(array.nbytes), stream_of(stream)
        )
        self.wait(stream)

    def download_every(self, array: np.ndarray, address: int, step: int, stream: int) -> None:
        """Copy rows, `step` bytes from each other, to a contiguous array of the host; wait for it."""
        self.check_not_captured(stream)
        # Rows with a pitch are a region of two dimensions, which one call copies.
        row = array[0].nbytes
        region = _Copy2D(
            srcMemoryType=_DEVICE, srcDevice=address, srcPitch=step,
            dstMemoryType=_HOST, dstHost=array.ctypes.data, dstPitch=row,
            WidthInBytes=row, Height=len(array),
        )  # fmt: skip
        self._call("cuMemcpy2DAsync_v2", ctypes.byref(region), stream_of(stream))
        self.wait(stream)

    def copy(self, to: int, address: int, size: int, stream: int) -> None:
        """Copy on the device."""
        self._call("cuMemcpyDtoDAsync_v2", _number(to), _number(address), _size(size), stream_of(stream))

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        """Set all bytes to one."""
        self._call("cuMemsetD8Async", _number(address), ctypes.c_ubyte(byte), _size(size), stream_of(stream))

    def own_stream(self, device: int) -> int:
        """Return a private stream of the current device: to wait for it waits for no work of the caller's."""
        # Only the first use creates a stream; later ones need no lock.
        existing = self._streams.get(device)
        if existing is not None:
            return existing
        with self._lock:
            if device not in self._streams:
                stream = _handle()
                # A blocking stream would wait for the caller's work on the legacy default stream.
                self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
                self._streams[device] = stream.value or 0
            return self._streams[device]

    def begin_reading(self, device: int, stream: int) -> None:
        """Let the private stream of the current device wait for all work on `stream`, which must not be captured."""
        event = self._events.of_devices.get(device)
        if event is None:
            event = self._events.of_devices[device] = Event(self)
        event.record(stream).let_wait(self.own_stream(device))

    def end_reading(self, array: np.ndarray, address: int, device: int) -> None:
        """Copy device memory, as of `begin_reading`, to a contiguous host array; wait for no work enqueued later."""
        self._download(array, address, self.own_stream(device))

    def wait(self, stream: int) -> None:
        """Wait for all that was enqueued on a stream."""
        self._call("cuStreamSynchronize", stream_of(stream))

    def wait_for_all(self) -> None:
        """Wait for all that was enqueued on the device that calls go to."""
        self._call("cuCtxSynchronize")

    def device_of(self, address: int) -> int:
        """Return the number of the device whose memory is at an address."""
        ordinal = ctypes.c_int()
        self._call("cuPointerGetAttribute", ctypes.byref(ordinal), _ORDINAL, _number(address))
        return ordinal.value

    def let_wait(self, stream: int, other: int) -> None:
        """Let what is enqueued on a stream from now on wait for all that was enqueued on another; the host does not."""
        self.check_not_captured(stream)
        # An event between a captured stream and another would draw both into one graph, or fail.
        self.check_not_captured(other)
        Event(self).record(other).let_wait(stream)

    def event(self, call: str, *arguments: Any) -> None:
        """Make a call that concerns an event."""
        self._call(call, *arguments)

    def is_captured(self, stream: int) -> bool:
        """Whether what is enqueued on a stream goes into a graph."""
        status = ctypes.c_int()
        self._call("cuStreamIsCapturing", stream_of(stream), ctypes.byref(status))
        return status.value != 0

    def check_not_captured(self, stream: int) -> None:
        """Raise CaptureError if what is enqueued on a stream goes into a graph."""
        if self.is_captured(stream):
            raise CaptureError(
                "this call reads from the device or compiles, which cannot be captured into a graph: make the same "
                "call once before the capture, and capture only functions that read nothing on the host"
            )


class Event:
    """A point of what is enqueued on a stream, which may be gone by the time that another waits for it."""

    def __init__(self, own: Driver) -> None:
        self._driver, self._handle = own, _handle()
        own.event("cuEventCreate", ctypes.byref(self._handle), _UNTIMED)
        # The finalizer has the handle: a reference to the event would keep it alive.
        weakref.finalize(self, _destroyed, own, self._handle)

    def record(self, stream: int) -> Event:
        """Be behind all that was enqueued on a stream until now, and return this."""
        self._driver.event("cuEventRecord", self._handle, stream_of(stream))
        return self

    def let_wait(self, stream: int) -> None:
        """Let what is enqueued on a stream from now on wait for it; the host does not."""
        self._driver.event("cuStreamWaitEvent", stream_of(stream), self._handle, 0)


def _destroyed(own: Driver, event: Any) -> None:
    # At the end of the process the driver may be gone.
    with suppress(CudaError):
        own.event("cuEventDestroy_v2", event)


stream_of = _handle
"""A stream as the driver takes it."""


_driver: Driver | None = None


def driver() -> Driver:
    """Return the driver of this machine.

    Raises
    ------
    CudaError
        If there is none, or it does not start.
    """
    global _driver
    if _driver is None:
        try:
            # An error is not stored, so that a later call tries again.
            library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise CudaError(f"CUDA's driver {_LIBRARY} was not found") from error
        _driver = Driver(library)
    return _driver
