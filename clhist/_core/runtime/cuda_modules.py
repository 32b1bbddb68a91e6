"""Programs that OpenCL compiled, loaded by CUDA, and arguments of their kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.cuda.driver import CudaError, driver
from clhist._core.cuda.ptx import CudaProgram, UnknownPtxError, for_cuda
from clhist._core.model.feature import Parameter
from clhist._core.opencl.cuda_kinds import NotDirectError
from clhist._core.opencl.program import Kernel, kept_by_context
from clhist._core.runtime.signature import Remembered

_MOST_MODULES = 1024


class Module(NamedTuple):
    """A program that CUDA has loaded on a device: its kernels, and the dynamic shared memory that each needs."""

    functions: dict[str, int]
    dynamic: dict[str, int]


# By device, text and sizes. A graph of CUDA may have their kernels, so none is unloaded, nor loaded again if forgotten.
_loaded: dict[tuple[int, bytes], Module] = {}


@kept_by_context
def _modules(context: cl.Context, device: int) -> Remembered[Module]:
    return Remembered(_MOST_MODULES)


def module_of(program: cl.Program, device: int, stream: int) -> Module:
    """Return a program, loaded by CUDA on the device that calls go to.

    Raises
    ------
    NotDirectError
        If `for_cuda` cannot convert its PTX, or CUDA refuses it.
    CaptureError
        If it is not loaded yet and the stream is being captured.
    """
    modules = _modules(program.context, device)
    loaded = modules.get(program)
    if loaded is None:
        try:
            # The text is the key, since programs of several contexts may have the same PTX.
            changed = cuda_program(program)
            sizes = sorted(changed.dynamic.items())  # of arrays that the text only names
            text = device, sha256(f"{changed.text}{sizes}".encode()).digest()
            loaded = _loaded.get(text)
            if loaded is None:
                # A module cannot be loaded while the stream is captured.
                driver().check_not_captured(stream)
                module = driver().load_module(changed.text)
                functions = {name: driver().function(module, name, size) for name, size in changed.dynamic.items()}
                loaded = _loaded[text] = Module(functions, changed.dynamic)
        except (UnknownPtxError, CudaError) as error:
            raise NotDirectError(f"a program of this driver: {error}") from error
        modules.put(program, loaded)
    return loaded


def cuda_program(program: cl.Program) -> CudaProgram:
    """Return what CUDA loads in the place of a program of one device."""
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return for_cuda(binaries[0])


class Arguments:
    """Memory of a kernel's arguments, which CUDA reads at a launch; one thread at a time may set them and launch.

    Parameters
    ----------
    parameters : sequence of Parameter
        The kernel's; those without a dtype take addresses.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._dtypes = [parameter.dtype for parameter in parameters]
        self.rooms: list[Any] = [_room(dtype) for dtype in self._dtypes]
        self.pointers = (ctypes.c_void_p * len(self.rooms))(*map(ctypes.addressof, self.rooms))

    def set(self, n: int, value: Any) -> None:
        """Let a parameter have this value: an address, or a number as its type takes it."""
        dtype, room = self._dtypes[n], self.rooms[n]
        # Addresses and integers are stored by ctypes; floats and structs as their bytes.
        if dtype is None or dtype.kind in "iu":
            room.value = int(value)
        else:
            content = np.asarray(value, dtype).tobytes()
            room[: len(content)] = content


class Loaded(NamedTuple):
    """A kernel that CUDA has loaded, its arguments, and the lock that guards these."""

    function: Any
    dynamic: int
    arguments: Arguments
    lock: threading.Lock


def loaded_kernel(kernel: Kernel, device: int, stream: int) -> Loaded:
    """Return a kernel, loaded by CUDA on the device that calls go to; raises as `module_of`."""
    loaded = kernel.loaded.get(device)
    if loaded is None:
        module, name = module_of(kernel.program, device, stream), kernel.name
        function, arguments = ctypes.c_void_p(module.functions[name]), Arguments(kernel.parameters)
        loaded = kernel.loaded[device] = Loaded(function, module.dynamic[name], arguments, threading.Lock())
    return loaded


def _room(dtype: np.dtype | None) -> Any:
    if dtype is None:
        return ctypes.c_uint64()
    if dtype.kind in "iu":
        return np.ctypeslib.as_ctypes_type(dtype)()
    return (ctypes.c_ubyte * max(8, dtype.itemsize))()
