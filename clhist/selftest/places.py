"""Places of the arrays of checks: on the host, or in CUDA's memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.cuda.driver import CudaError
from clhist._core.cuda.libraries import Library, library
from clhist._core.cuda.recognised import recognised
from clhist._core.opencl.cuda_kinds import NotDirectError, direct_only
from clhist._core.opencl.cuda_queues import number_of
from clhist.errors import NoDeviceError
from clhist.selftest.checks import NotAvailableError


class Host:
    """NumPy's arrays, for a queue."""

    is_cuda = False

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what a public function or a kernel makes of NumPy's arrays."""
        return function(*args, **options)

    def on_device(self, queue: cl.CommandQueue, array: np.ndarray) -> Any:
        """Return a copy of an array on the device."""
        return cl_array.to_device(queue, array)


class Cuda(Host):
    """Arrays of CUDA's memory, by CuPy or PyTorch; what cannot go directly is not available."""

    is_cuda = True

    def __init__(self, of: Library, device: int) -> None:
        self._library = of
        self._like = of.empty((1,), np.dtype(np.uint8), device)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return the same by CUDA's launches; what `out` has is copied back into it."""
        options.pop("queue", None)  # the stream has that part
        copies: dict[int, Any] = {}

        def put(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            # An array that occurs twice, such as `dest` and `out`, is one array there, too.
            if id(value) not in copies:
                copies[id(value)] = self.on_device(None, value)
            return copies[id(value)]

        # Only these options are arrays.
        arrays = {name: put(value) for name, value in options.items() if name in ("dest", "out")}
        with direct_only():
            result = function(*map(put, args), **options | arrays)
        # The caller reads its own array, so copy the result back into it.
        if isinstance(out := options.get("out"), np.ndarray):
            out[...] = self._back(arrays["out"])
        return self._back(result)

    def on_device(self, queue: cl.CommandQueue | None, array: np.ndarray) -> Any:
        """Return a copy of an array in CUDA's memory."""
        if not self._library.has(array.dtype):
            raise NotAvailableError(f"{self._library.name} has no arrays of {array.dtype}")
        return self._library.from_host(array, None, self._like)

    def _back(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._back(field) for name, field in value.items()}
        if isinstance(value, tuple):
            return tuple(map(self._back, value))
        return value if recognised("result", value) is None else self._library.to_host(value)


class PlacedKernel:
    """A kernel whose calls take NumPy's arrays to where a place has them."""

    def __init__(self, place: Host, kernel: Any) -> None:
        self._kernel = kernel
        self._call = partial(place.call, kernel)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call it."""
        return self._call(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


HOST = Host()


def cuda_of(device: cl.Device) -> tuple[int, Library]:
    """Return the number of an OpenCL device among those of CUDA, and a library that makes arrays there.

    Raises
    ------
    NoDeviceError
        If there is no CUDA, not that device in it, or no such library; the message says which.
    """
    try:
        number = number_of(device)
    except (CudaError, NotDirectError) as error:
        raise NoDeviceError(
            f"--cuda: expected a device of CUDA and of NVIDIA's OpenCL, perhaps by --device: {error}"
        ) from error
    for name in ("cupy", "torch"):
        try:
            return number, library(name)
        except ImportError:
            continue
    raise NoDeviceError("--cuda: expected CuPy or PyTorch, whose arrays are in CUDA's memory; neither is installed")
