"""CUDA without a GPU: a driver that records what it is asked for and launches kernels by OpenCL on a CPU, and a CuPy.

Device memory is the host's, as on a CPU with OpenCL, so that an address is one for both: a GPU would read what is not
there, and no later kernel of its process would run. On a machine with CUDA, `tests/device/cuda` is run instead.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pytest

from clhist._core.cuda import driver as driver_module
from clhist._core.cuda import libraries
from clhist._core.cuda.ptx import CudaProgram
from clhist._core.opencl import cuda_queues
from clhist._core.opencl.device import default_queue
from clhist._core.runtime import cuda_calls, cuda_launcher
from clhist._core.runtime.signature import call_templates

STREAM = 0x5EAD  # of the fake CuPy


class Launched(NamedTuple):
    """A launch: kernel, groups, work-items of a group, dynamic shared memory, stream, values by parameter."""

    name: str
    groups: tuple[int, ...]
    group: tuple[int, ...]
    dynamic: int
    stream: int
    values: dict[str, Any]


def _value(given: Any) -> Any:
    return getattr(given, "value", given) or 0


class FakeCuda:
    """What stands for CUDA's library; `calls` has the names of what was called, `launched` the launches.

    Attributes
    ----------
    programs : dict of str to pyopencl.Program
        By the text that "compiles" to them.
    parameters : dict of (program, name) to parameters
        Of kernels.
    dynamic : dict of str to int
        Bytes of dynamic shared memory that kernels of these names are said to need.
    is_captured, is_broken : bool
        Whether a graph is captured, and whether kernels do nothing.
    ordered : list of tuple of str and int
        What was done with events, and on which stream.
    fails : dict of str to int
        What a function of this name returns in the place of success.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.launched: list[Launched] = []
        self.programs: dict[str, cl.Program] = {}
        self.parameters: dict[tuple[int, str], Any] = {}
        self.dynamic: dict[str, int] = {}
        self.fails: dict[str, int] = {}
        self.is_captured = self.is_broken = False
        self.ordered: list[tuple[str, int]] = []
        self.memory: dict[int, np.ndarray] = {}
        self._modules: list[cl.Program] = []
        self._functions: list[tuple[cl.Program, str]] = []
        self.attributes: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        function = getattr(self, f"do_{name.removesuffix('_v2')}")

        def call(*args: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            return function(*args) or 0

        return call

    def do_cuInit(self, flags: int) -> None: ...

    def do_cuGetErrorName(self, code: int, text: Any) -> None:
        text._obj.value = b"FAKE_ERROR"

    def do_cuDriverGetVersion(self, found: Any) -> None:
        found._obj.value = 13000

    def do_cuDeviceGetCount(self, found: Any) -> None:
        found._obj.value = 1

    def do_cuDeviceGet(self, found: Any, number: int) -> int:
        found._obj.value = number
        return 101 if number else 0

    def do_cuDeviceGetName(self, text: Any, size: int, device: int) -> None:
        text.value = b"Fake GPU"

    def do_cuDeviceGetAttribute(self, found: Any, attribute: int, device: int) -> None:
        found._obj.value = 7

    def do_cuDevicePrimaryCtxRetain(self, found: Any, device: int) -> None:
        found._obj.value = 0xC0

    def do_cuCtxGetCurrent(self, found: Any) -> None:
        found._obj.value = 0xC0

    def do_cuModuleLoadDataEx(self, found: Any, text: bytes, number: int, options: Any, values: Any) -> None:
        self._modules.append(self.programs[text.rstrip(b"\0").decode()])
        found._obj.value = len(self._modules)

    def do_cuModuleGetFunction(self, found: Any, module: Any, name: bytes) -> None:
        self._functions.append((self._modules[module.value - 1], name.decode()))
        found._obj.value = len(self._functions)

    def do_cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> None:
        assert attribute == 8
        self.attributes[self._functions[function.value - 1][1]] = value

    def do_cuMemAlloc(self, found: Any, size: Any) -> None:
        found._obj.value = self.allocate(size.value)

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes, which hold anything."""
        room = np.full(size + 4096, 0xA5, np.uint8)
        address = -(-room.ctypes.data // 4096) * 4096
        self.memory[address] = room[address - room.ctypes.data :][:size]
        return address

    def do_cuCtxSynchronize(self) -> None:
        assert not self.is_captured

    def do_cuMemFree(self, address: Any) -> None:
        del self.memory[address.value]

    def do_cuMemcpyHtoDAsync(self, to: Any, source: Any, size: Any, stream: Any) -> None:
        ctypes.memmove(to.value, source.value, size.value)

    def do_cuMemcpyDtoHAsync(self, to: Any, source: Any, size: Any, stream: Any) -> None:
        assert not self.is_captured
        ctypes.memmove(to.value, source.value, size.value)

    def do_cuMemcpyDtoDAsync(self, to: Any, source: Any, size: Any, stream: Any) -> None:
        ctypes.memmove(to.value, source.value, size.value)

    def do_cuMemcpy2DAsync(self, asked: Any, stream: Any) -> None:
        asked = asked._obj
        for n in range(asked.Height):
            ctypes.memmove(asked.dstHost + n * asked.dstPitch, asked.srcDevice + n * asked.srcPitch, asked.WidthInBytes)

    def do_cuMemsetD8Async(self, to: Any, byte: Any, size: Any, stream: Any) -> None:
        ctypes.memset(to.value, byte.value, size.value)

    def do_cuStreamSynchronize(self, stream: Any) -> None:
        assert not self.is_captured

    def do_cuPointerGetAttribute(self, found: Any, attribute: int, address: Any) -> int:
        assert attribute == 9
        found._obj.value = 0
        return 0 if any(0 <= address.value - begin < memory.size for begin, memory in self.memory.items()) else 1

    def do_cuStreamCreate(self, found: Any, flags: int) -> None:
        assert flags == 1
        found._obj.value = 0x0511

    def do_cuEventCreate(self, found: Any, flags: int) -> None:
        found._obj.value = 0xE1

    def do_cuEventRecord(self, event: Any, stream: Any) -> None:
        self.ordered.append(("record", _value(stream)))

    def do_cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        self.ordered.append(("wait", _value(stream)))

    def do_cuEventDestroy(self, event: Any) -> None: ...

    def do_cuStreamIsCapturing(self, stream: Any, found: Any) -> None:
        found._obj.value = int(self.is_captured)

    def do_cuLaunchKernel(self, function: Any, *given: Any) -> None:
        program, name = self._functions[function.value - 1]
        *sizes, dynamic, stream, pointers, extra = given
        assert extra is None
        queue = default_queue()
        kernel = cl.Kernel(program, name)
        values, arguments = {}, []
        for parameter, pointer in zip(self.parameters[program.int_ptr, name], pointers, strict=True):
            dtype = np.dtype(np.uint64) if parameter.dtype is None else parameter.dtype
            value: Any = np.frombuffer(ctypes.string_at(pointer, dtype.itemsize), dtype)[0]
            values[parameter.name] = value
            arguments.append(self._buffer(queue, int(value)) if parameter.dtype is None else value)
        groups, group = tuple(sizes[:3]), tuple(sizes[3:6])
        self.launched.append(Launched(name, groups, group, dynamic, _value(stream), values))
        if not self.is_captured and not self.is_broken:
            dims = max((n for n in range(3) if groups[n] * group[n] > 1), default=0) + 1
            kernel.set_args(*arguments)
            total = tuple(n * m for n, m in zip(groups, group, strict=True))
            cl.enqueue_nd_range_kernel(queue, kernel, total[:dims], group[:dims])
            queue.finish()

    def _buffer(self, queue: cl.CommandQueue, address: int) -> Any:
        if not address:
            return None
        # Most addresses are those of allocations, of which there are thousands.
        begins = [address] if address in self.memory else [*self.memory]  # which other threads add to
        for begin in begins:
            memory = self.memory[begin]
            if begin <= address < begin + memory.size:
                flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
                return cl.Buffer(queue.context, flags, hostbuf=memory[address - begin :])
        raise AssertionError(f"no memory at {address:#x}")


class FakeDevice:
    """The only device."""

    id = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class FakeArray:
    """What stands for `cupy.ndarray`: memory of the fake driver."""

    def __init__(self, cuda: FakeCuda, array: np.ndarray, owner: Any = None) -> None:
        self.cuda, self.array, self.device = cuda, array, FakeDevice()
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=0)
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.flags, self.nbytes = SimpleNamespace(c_contiguous=array.flags.c_contiguous), array.nbytes

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return self.array.copy()
        out[...] = self.array
        return out

    def set(self, array: np.ndarray) -> None:
        self.array[...] = array

    def _like(self, array: np.ndarray) -> FakeArray:
        return FakeArray(self.cuda, array)

    def reshape(self, *shape: Any) -> FakeArray:
        return self._like(self.array.reshape(*shape))

    def astype(self, dtype: Any, order: str = "K") -> FakeArray:
        found = fake_cupy(self.cuda).empty(self.shape, np.dtype(dtype))
        found.array[...] = self.array
        return found

    def view(self, dtype: Any) -> FakeArray:
        return self._like(self.array.view(dtype))

    def __getitem__(self, key: Any) -> FakeArray:
        if not isinstance(key, FakeArray):
            return self._like(self.array[key])
        return fake_cupy(self.cuda).asarray(self.array[key.array])

    def __add__(self, other: FakeArray) -> FakeArray:
        return fake_cupy(self.cuda).asarray(self.array + other.array)

    def __truediv__(self, other: FakeArray) -> FakeArray:
        with np.errstate(all="ignore"):
            return fake_cupy(self.cuda).asarray(self.array / other.array)

    def __gt__(self, number: float) -> FakeArray:
        return fake_cupy(self.cuda).asarray(self.array > number)

    def __ne__(self, number: object) -> Any:
        return fake_cupy(self.cuda).asarray(self.array != number)

    __hash__ = object.__hash__


def fake_cupy(cuda: FakeCuda) -> ModuleType:
    """Return what stands for CuPy."""
    module = ModuleType("cupy")

    def empty(shape: tuple[int, ...], dtype: Any) -> FakeArray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        cuda.calls.append(f"empty {size}")
        if "empty" in cuda.fails and size >= cuda.fails["empty"]:
            raise type("OutOfMemoryError", (MemoryError,), {})("no memory")
        memory = cuda.memory[cuda.allocate(max(1, size))]
        return FakeArray(cuda, memory[:size].view(dtype).reshape(shape))

    def asarray(array: np.ndarray) -> FakeArray:
        found = empty(array.shape, array.dtype)
        found.array[...] = array
        return found

    def where(condition: FakeArray, array: FakeArray, number: float) -> FakeArray:
        return asarray(np.where(condition.array, array.array, number))

    module.where = where  # type: ignore[attr-defined]
    module.ndarray = FakeArray  # type: ignore[attr-defined]
    module.empty, module.asarray = empty, asarray  # type: ignore[attr-defined]
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        get_current_stream=lambda device: SimpleNamespace(ptr=STREAM),
        runtime=SimpleNamespace(getDevice=lambda: 0),
        Device=lambda number: FakeDevice(),
    )
    return module


_CUDA = FakeCuda()


def install(monkeypatch: Any) -> tuple[FakeCuda, ModuleType]:
    """Let clhist see the fake driver and a fake CuPy, whose device is the default one of OpenCL."""
    if not default_queue().device.type & cl.device_type.CPU:
        pytest.skip("the fake of CUDA has memory of the host, which a GPU cannot read")
    cuda = _CUDA  # the same for all tests, as that of a machine: calls that are kept hold its handles
    cuda.calls, cuda.launched, cuda.fails, cuda.dynamic, cuda.ordered = [], [], {}, {}, []
    cuda.is_captured = cuda.is_broken = False
    cupy = fake_cupy(cuda)
    cupyx = ModuleType("cupyx")
    cupyx.empty_pinned = np.empty  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    monkeypatch.setattr(libraries, "_loaded", {})
    monkeypatch.setattr(call_templates, "_kept", {})
    monkeypatch.setattr(driver_module, "_driver", driver_module.Driver(cuda))
    cuda.calls.clear()
    monkeypatch.setattr(cuda_queues, "_place", lambda device: (7, 7) if device == default_queue().device else None)
    monkeypatch.setitem(cuda_calls._reasons, 0, "")
    loaded_kernel = cuda_launcher.loaded_kernel

    def noted(kernel: Any, *where: int) -> Any:
        cuda.parameters[kernel.program.int_ptr, kernel.name] = kernel.parameters
        return loaded_kernel(kernel, *where)

    def program_of(program: cl.Program) -> CudaProgram:
        text = f"program {program.int_ptr}"
        cuda.programs[text] = program
        names = program.get_info(cl.program_info.KERNEL_NAMES).split(";")
        return CudaProgram(text, {name: cuda.dynamic.get(name, 0) for name in names})

    monkeypatch.setattr(cuda_launcher, "loaded_kernel", noted)
    monkeypatch.setattr(cuda_launcher, "cuda_program", program_of)
    return cuda, cupy
