"""Kernels that follow each other on a CUDA stream, with the memory that they need; see `clhist._core.runtime.chain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.cuda.driver import driver, stream_of
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_arrays import CudaArray
from clhist._core.opencl.cuda_kinds import memory_of_call
from clhist._core.opencl.new_arrays import empty, to_device
from clhist._core.opencl.program import Kernel
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.cuda_modules import loaded_kernel


class _Room(NamedTuple):
    """Memory of CUDA: its address, and the library's array that it is, or is a part of."""

    offset: int
    owner: Any


class CudaChain(Chain):
    """Commands on the current CUDA stream of the library of the call's arrays, whose allocator gives memory."""

    def __init__(self, queue: cl.CommandQueue, purpose: str) -> None:
        super().__init__(queue, purpose)
        memory = memory_of_call()
        self._library, self._device, self._stream = memory.library, memory.device, memory.stream
        self._block, self._used = _Room(0, None), _BLOCK  # small memory is a part of it; freed with its last part

    def new(self, number: int, dtype: Any) -> _Room:
        # Multiples of the alignment, so that each memory of a block begins at an aligned address.
        size = -(-max(1, number) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        # Allocations take as long as launches, so small memory shares blocks; larger memory would waste their rest.
        if size > _BLOCK // 4:
            return self._allocated(size)
        if size > _BLOCK - self._used:
            self._block, self._used = self._allocated(_BLOCK), 0
        self._used += size
        return _Room(self._block.offset + self._used - size, self._block.owner)

    def _allocated(self, size: int) -> _Room:
        owner = self._library.new((size,), _BYTE, self._device)
        return _Room(self._library.address(owner), owner)

    def fill(self, memory: CudaArray | _Room, dtype: Any, value: int, number: int, first: int = 0) -> None:
        item = np.dtype(dtype).itemsize
        with driver().on(self._device):
            # CUDA fills with one byte, which suffices since all bytes of the value are equal.
            driver().fill(memory.offset + first * item, value % 256, number * item, self._stream)

    def copied(self, array: np.ndarray) -> Array:
        return to_device(self.queue, array)

    def run(self, kernel: Kernel, groups: int, lanes: int, arguments: Sequence[Any], beside: int = 1) -> None:
        with driver().on(self._device):
            loaded = loaded_kernel(kernel, self._device, self._stream)
            # All threads share the memory of a kernel's arguments, which CUDA reads at the launch.
            with loaded.lock:
                for n, value in enumerate(arguments):
                    loaded.arguments.set(n, value.offset if isinstance(value, CudaArray | _Room) else value or 0)
                sizes = (groups, beside, 1, lanes, 1, 1)
                launched = (loaded.function, *sizes, loaded.dynamic)
                driver().launch(launched, stream_of(self._stream), loaded.arguments.pointers)

    def fetched(self, memory: CudaArray | _Room | None, number: int, dtype: Any, offset: int = 0) -> np.ndarray:
        array = np.empty(number, dtype)
        with driver().on(self._device):
            driver().download(array, offset + (0 if memory is None else memory.offset), self._stream)
        return array

    def fetched_rows(
        self, memory: CudaArray | _Room | None, shape: tuple[int, int], dtype: Any, offset: int, step: int
    ) -> np.ndarray:
        rows = np.empty(shape, dtype)
        with driver().on(self._device):
            driver().download_every(rows, offset + (0 if memory is None else memory.offset), step, self._stream)
        return rows

    def place(self, array: Any) -> tuple[Any, int]:
        # All memory is one buffer at address 0, so a kernel adds the offset to a null pointer.
        return (None, array.offset) if isinstance(array, CudaArray) else (array, 0)

    def result(self, size: int, dtype: Any, on_device: bool = True) -> tuple[Array, Any]:
        array = empty(self.queue, (size,), np.dtype(dtype), True)
        return array, array

    def finish(self, *written: Array) -> None:
        """Do nothing: the stream orders what is done."""


_BYTE = np.dtype(np.uint8)
_ALIGNMENT, _BLOCK = 256, 1 << 20  # bytes
