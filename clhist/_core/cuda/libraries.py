"""Libraries whose arrays lie in CUDA's memory: what an array is, new ones by their own allocator, the current stream.

PyTorch's and CuPy's are known. Arrays of others (JAX, Numba, RMM, cuDF), which have `__cuda_array_interface__` or
`__dlpack__`, are seen by one of these two, without a copy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.driver import CudaMemoryError, driver
from clhist.operators.halves import bfloat16, half_name

_LOAD_BYTES = 16  # what kernels load at once, where an address is a multiple of it
_LEGACY_STREAMS = (0, 1)  # names of the default stream that all threads share


class Described(NamedTuple):
    """An array of CUDA's memory: its first address, type and shape, strides in bytes, and the number of its device."""

    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int


class Library:
    """The interface of a library of CUDA arrays; `name` is that of its module."""

    name = ""

    def __init__(self) -> None:
        self.module: Any = importlib.import_module(self.name)

    def described(self, name: str, array: Any) -> Described:
        """Return what an array is; raises TypeError, with the `name` of the argument, if no kernel can take it."""
        raise NotImplementedError

    def alike(self, array: Any) -> tuple[tuple[Any, ...], int, int] | None:
        """Return what decides on how kernels take an array but for its content, its address, and its size in bytes.

        None of one that they may not take, or that has no elements.
        """
        raise NotImplementedError

    def stream(self, device: int) -> int:
        """Return the current stream of a device."""
        raise NotImplementedError

    def seen(self, value: Any, device: int) -> Any:
        """Return an array of another library, which has `__cuda_array_interface__`, as one of this."""
        raise NotImplementedError

    def is_used(self, array: Any, device: int) -> None:
        """Keep the memory of an array, once it is dropped, until the current stream is done with it."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Any:
        """Return a new array, of bytes for a dtype that the library lacks."""
        raise NotImplementedError

    def address(self, array: Any) -> int:
        """Return where an array begins."""
        raise NotImplementedError

    def device(self, array: Any) -> int:
        """Return the number of the device that an array is on."""
        raise NotImplementedError

    def has(self, dtype: np.dtype) -> bool:
        """Whether the library has a dtype."""
        raise NotImplementedError

    def viewed(self, array: Any, dtype: np.dtype) -> Any:
        """Return a contiguous array of one dimension as one of another dtype."""
        raise NotImplementedError

    def converted(self, array: Any, dtype: np.dtype) -> Any:
        """Return a contiguous copy of another dtype."""
        raise NotImplementedError

    def to_host(self, array: Any) -> np.ndarray:
        """Return a copy in pinned memory of the host, once all is done that the stream has to do."""
        raise NotImplementedError

    def from_host(self, array: np.ndarray, into: Any, like: Any = None) -> Any:
        """Copy an array of the host `into` one, or into a new one on the device of `like`, which is returned."""
        raise NotImplementedError

    def maker(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Callable[[], Any]:
        """Return what returns `empty` of these arguments again and again."""
        return partial(self.empty, shape, dtype, device)

    def lets_keep(self, device: int, stream: int) -> bool:
        """Whether to keep memory for later work on the current stream: allocating takes long, and no graph has it."""
        return False

    def new(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Any:
        """Return `empty`; raises CudaMemoryError if there is no memory."""
        try:
            return self.empty(shape, dtype, device)
        except (RuntimeError, MemoryError) as error:
            # PyTorch and CuPy each have a class of this name.
            if type(error).__name__ != "OutOfMemoryError":
                raise
            raise CudaMemoryError(f"{self.name} has no {prod(shape) * dtype.itemsize} bytes") from error


_TORCH_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)


class _Torch(Library):
    name = "torch"

    def __init__(self) -> None:
        super().__init__()
        torch = self.module
        # Those that NumPy has as well; older versions lack some.
        self._dtypes = {np.dtype(name): getattr(torch, name) for name in _TORCH_DTYPES if hasattr(torch, name)}
        self._bfloat16 = getattr(torch, "bfloat16", None)
        with suppress(TypeError):  # ml_dtypes is not installed
            self._dtypes |= {bfloat16(): self._bfloat16} if self._bfloat16 is not None else {}
        self._numpy = {of_torch: dtype for dtype, of_torch in self._dtypes.items()}
        private = getattr(torch, "_C", None)  # where what takes a tenth of the time of the public function is
        self._raw_stream: Callable[[int], int] | None = getattr(private, "_cuda_getCurrentRawStream", None)
        self._current_device: Callable[[], int] | None = getattr(private, "_cuda_getDevice", None)
        self._is_captured: Callable[[], bool] | None = getattr(private, "_cuda_isCurrentStreamCapturing", None)

    def described(self, name: str, array: Any) -> Described:
        if array.requires_grad and self.module.is_grad_enabled():
            raise TypeError(f"{name}: expected a tensor without a gradient, got one that requires it; pass .detach()")
        dtype = self._numpy.get(array.dtype)
        if dtype is None:
            hint = "; pip install ml_dtypes, or pass .float()" if "bfloat16" in str(array.dtype) else ""
            raise TypeError(f"{name}: expected a tensor of a dtype that NumPy has, got {array.dtype}{hint}")
        # Conjugation and negation are bits of a tensor: its memory holds the numbers without them.
        if (dtype.kind in "cf" and (array.is_conj() or array.is_neg())) or array.layout is not self.module.strided:
            raise TypeError(f"{name}: expected a tensor with its values in memory; pass .resolve_conj() or .to_dense()")
        item = dtype.itemsize
        strides = tuple([item * step for step in array.stride()])
        return Described(array.data_ptr(), dtype, tuple(array.shape), strides, array.device.index)

    def alike(self, array: Any) -> tuple[tuple[Any, ...], int, int] | None:
        torch = self.module
        # A subclass of a tensor may override any of these methods.
        if type(array) is not torch.Tensor or array.requires_grad or array.layout is not torch.strided:
            return None
        device = array.get_device()
        # A tensor of the host has the device -1.
        if device < 0 or not array.is_contiguous() or array.is_conj() or array.is_neg():
            return None
        address = array.data_ptr()
        # The alignment decides how wide the loads of a kernel are.
        return (array.dtype, array.shape, device, address % _LOAD_BYTES), address, array.nbytes

    def stream(self, device: int) -> int:
        if self._raw_stream is not None:
            return self._raw_stream(device)
        return int(self.module.cuda.current_stream(device).cuda_stream)

    def is_used(self, array: Any, device: int) -> None:
        array.record_stream(self.module.cuda.current_stream(device))

    def seen(self, value: Any, device: int) -> Any:
        other, own = value.__cuda_array_interface__.get("stream"), self.stream(device)
        if other is not None and other != (own or 1):  # 1 is the default stream
            # The owner's stream may still write the array.
            with driver().on(device):
                driver().let_wait(own, other)
        return self.module.as_tensor(value, device=self._device(device))

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Any:
        torch_dtype = self._dtypes.get(dtype)
        if torch_dtype is None:
            shape, torch_dtype = (prod(shape) * dtype.itemsize,), self.module.uint8
        return self.module.empty(shape, dtype=torch_dtype, device=self._device(device))

    def maker(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Callable[[], Any]:
        torch_dtype = self._dtypes.get(dtype)
        if torch_dtype is None:
            return super().maker(shape, dtype, device)
        # A tensor's method takes less time than the function with a dtype and a device.
        return partial(self.module.empty(0, dtype=torch_dtype, device=self._device(device)).new_empty, shape)

    def lets_keep(self, device: int, stream: int) -> bool:
        of_current, is_captured = self._current_device, self._is_captured
        return of_current is not None and is_captured is not None and of_current() == device and not is_captured()

    @cache  # noqa: B019 - there is one of this class
    def _device(self, device: int) -> Any:
        return self.module.device("cuda", device)

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def device(self, array: Any) -> int:
        return int(array.device.index)

    def has(self, dtype: np.dtype) -> bool:
        return dtype in self._dtypes

    def numpy_dtype(self, tensor: Any) -> np.dtype:
        """Return NumPy's dtype for that of a tensor."""
        return self._numpy[tensor.dtype]

    def viewed(self, array: Any, dtype: np.dtype) -> Any:
        return array.view(self._dtypes[dtype])

    def converted(self, array: Any, dtype: np.dtype) -> Any:
        return array.to(self._dtypes[dtype], copy=True).contiguous()

    def to_host(self, array: Any) -> np.ndarray:
        pinned = self.module.empty(array.shape, dtype=array.dtype, pin_memory=True)
        pinned.copy_(array)
        return self.as_numpy(pinned)

    def from_host(self, array: np.ndarray, into: Any, like: Any = None) -> Any:
        tensor = self.from_numpy(np.ascontiguousarray(array))
        return tensor.to(like.device) if into is None else into.copy_(tensor)

    def as_numpy(self, tensor: Any) -> np.ndarray:
        """Return a tensor of the CPU as NumPy's array of the same memory."""
        host: np.ndarray
        if tensor.dtype is self._bfloat16:  # which NumPy does not have itself
            host = tensor.view(self.module.int16).numpy().view(bfloat16())
        else:
            host = tensor.numpy()
        return host

    def from_numpy(self, array: np.ndarray) -> Any:
        """Return an array as a tensor of the CPU, of the same memory."""
        if half_name(array.dtype) == "bfloat16":
            # PyTorch does not take the dtype of ml_dtypes, so that the bits pass as integers.
            return self.module.from_numpy(array.view(np.int16)).view(self._bfloat16)
        return self.module.from_numpy(array)


class _CuPy(Library):
    name = "cupy"

    def described(self, name: str, array: Any) -> Described:
        return Described(array.data.ptr, array.dtype, array.shape, array.strides, array.device.id)

    def alike(self, array: Any) -> tuple[tuple[Any, ...], int, int] | None:
        if type(array) is not self.module.ndarray or not array.flags.c_contiguous:
            return None
        # `array.device` makes an object, which takes as long as the rest.
        data = array.data
        address = data.ptr
        return (array.dtype, array.shape, data.device_id, address % _LOAD_BYTES), address, array.nbytes

    def stream(self, device: int) -> int:
        return int(self.module.cuda.get_current_stream(device).ptr)

    def seen(self, value: Any, device: int) -> Any:
        with self.module.cuda.Device(device):
            return self.module.asarray(value)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Any:
        if not self.has(dtype):
            shape, dtype = (prod(shape) * dtype.itemsize,), np.dtype(np.uint8)
        # Most arrays are on the current device, for which nothing has to be switched.
        cuda = self.module.cuda
        if cuda.runtime.getDevice() == device:
            return self.module.empty(shape, dtype)
        with cuda.Device(device):
            return self.module.empty(shape, dtype)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Callable[[], Any]:
        # These are made where the device of the call is the current one.
        return partial(self.module.empty, shape, dtype) if self.has(dtype) else super().maker(shape, dtype, device)

    def lets_keep(self, device: int, stream: int) -> bool:
        # The legacy default stream cannot be captured. Others may be destroyed while they have work to do, and then
        # another stream gets the address.
        return stream in _LEGACY_STREAMS

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def device(self, array: Any) -> int:
        return int(array.device.id)

    def has(self, dtype: np.dtype) -> bool:
        # Neither long doubles nor complex numbers of them.
        return dtype.kind in "biufc" and dtype.itemsize <= (16 if dtype.kind == "c" else 8)

    def viewed(self, array: Any, dtype: np.dtype) -> Any:
        return array.view(dtype)

    def converted(self, array: Any, dtype: np.dtype) -> Any:
        return array.astype(dtype, order="C")

    def to_host(self, array: Any) -> np.ndarray:
        pinned = importlib.import_module("cupyx").empty_pinned(array.shape, array.dtype)
        array.get(out=pinned)
        host: np.ndarray = pinned
        return host

    def from_host(self, array: np.ndarray, into: Any, like: Any = None) -> Any:
        if into is None:
            with like.device:
                return self.module.asarray(array)
        into.set(np.ascontiguousarray(array))
        return into


_LIBRARIES: dict[str, type[Library]] = {"cupy": _CuPy, "torch": _Torch}
_loaded: dict[str, Library] = {}


def library(name: str) -> Library:
    """Return the library of this name; raises ImportError if it is not installed."""
    if name not in _loaded:
        _loaded[name] = _LIBRARIES[name]()
    return _loaded[name]
