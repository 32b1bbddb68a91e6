"""Tensors of the CPU that pass for tensors of CUDA: PyTorch beside the fake driver of `cuda_fake`."""

from __future__ import annotations

import ctypes
from typing import Any

import cuda_fake
import numpy as np
import torch

from clhist._core.cuda import libraries
from clhist._core.runtime.cuda_repeats import Repeat


class _Torch(libraries._Torch):
    """PyTorch, whose tensors of the CPU are those of the first CUDA device."""

    cuda: cuda_fake.FakeCuda

    def described(self, name: str, array: Any) -> libraries.Described:
        self._note(array)
        return super().described(name, array)._replace(device=0)

    def alike(self, array: Any) -> Any:
        self._note(array)
        return super().alike(array)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: int) -> Any:
        found = super().empty(shape, dtype, device)
        self._note(found)
        return found

    def address(self, array: Any) -> int:
        self._note(array)
        return super().address(array)

    def stream(self, device: int) -> int:
        return cuda_fake.STREAM

    def lets_keep(self, device: int, stream: int) -> bool:
        return not self.cuda.is_captured

    def _device(self, device: int) -> Any:
        return torch.device("cpu")

    def device(self, array: Any) -> int:
        return 0

    def _note(self, tensor: Any) -> None:
        """Let the fake driver find the memory of a tensor."""
        storage = tensor.untyped_storage()
        size, begin = storage.nbytes(), storage.data_ptr()
        if size:
            self.cuda.memory[begin] = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(begin))


def install(monkeypatch: Any) -> cuda_fake.FakeCuda:
    """Let all tensors be those of CUDA, whose launches OpenCL computes, and return the fake driver."""
    cuda, _ = cuda_fake.install(monkeypatch)
    _Torch.cuda = cuda
    monkeypatch.setitem(libraries._LIBRARIES, "torch", _Torch)
    run = Repeat.run

    def noted(repeat: Repeat, arrays: list[Any], addresses: list[int]) -> tuple[Any, bool]:
        for array in arrays:
            if isinstance(array, torch.Tensor):
                libraries.library("torch")._note(array)
        return run(repeat, arrays, addresses)

    monkeypatch.setattr(Repeat, "run", noted)
    for name, value in (("is_cuda", True), ("is_cpu", False)):
        monkeypatch.setattr(torch.Tensor, name, property(lambda tensor, value=value: value), raising=False)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    return cuda
