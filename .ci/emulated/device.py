"""The host's OpenCL device, presented to clhist as an AMD GPU; launches of its programs go to the emulator."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl

from emulated import alu
from emulated.compiler import CompileError
from emulated.launch import Local, launch
from emulated.objects import CodeObject, load
from emulated.places import NotPreparedError
from emulated.targets import EXTENSIONS, TARGETS, Target

_DRIVER = "3635.0"
# What needs more packages, or no device.
_LEFT_ALONE = re.compile(r"__main__|\.dask|\.hist\b|flox|zonal|pyfai|trajectories|\.torch\b|\.jax\b|\.cli")


class Program:
    """The part of `pyopencl.Program` that clhist uses."""

    target: ClassVar[Target]
    planted: ClassVar[tuple[str, str] | None] = None  # a regular expression, and what replaces it in all sources
    replaced: ClassVar[int] = 0  # how often it did

    def __init__(self, context: cl.Context, source: str) -> None:
        self.context, self._source = context, source

    def build(self, options: Sequence[str] | str = (), **_: object) -> Program:
        words = options.split() if isinstance(options, str) else list(options)
        source = self._source
        if Program.planted is not None:
            source, count = re.subn(*Program.planted, source, flags=re.S)
            Program.replaced += count
        try:
            self.code = load(Program.target, source, words)
        except CompileError as error:
            raise cl.RuntimeError(f"clBuildProgram failed: BUILD_PROGRAM_FAILURE\n{error}") from None
        launched.programs.add(self.code.file.name)
        return self

    @property
    def kernel_names(self) -> str:
        return ";".join(self.code.kernels)

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_") or name == "code":
            raise AttributeError(name)
        return Kernel(self, name)


class Kernel:
    """The part of `pyopencl.Kernel` that clhist uses."""

    def __init__(self, program: Program, name: str) -> None:
        self.program, self.name, self.function_name = program, name, name
        self.visible = program.code.kernels[name].visible
        self.given: list[Any] = [None] * len(self.visible)
        self.dtypes: list[np.dtype | None] = [None] * len(self.visible)

    def set_scalar_arg_dtypes(self, dtypes: Sequence[Any]) -> None:
        self.dtypes = [None if dtype is None else np.dtype(dtype) for dtype in dtypes]

    def set_arg(self, n: int, value: Any) -> None:
        self.given[n] = value

    def set_args(self, *values: Any) -> None:
        if len(values) != len(self.given):
            raise ValueError(f"{self.name}: {len(values)} arguments where it has {len(self.given)}")
        self.given = list(values)

    def __call__(
        self,
        queue: cl.CommandQueue,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *values: Any,
        global_offset: Sequence[int] | None = None,
        wait_for: Sequence[cl.Event] | None = None,
        **_: object,
    ) -> cl.Event:
        self.set_args(*values)
        return enqueue(queue, self, global_size, local_size, global_offset, wait_for)


class Launched:
    """The programs built and launched since `clear`.

    Attributes
    ----------
    programs : set of str
        Code objects that were asked for.
    kernels : list of (CodeObject, str)
        Code object and kernel of each launch.
    strategies, updates : set of str
        Of the plans that calls were given.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.programs: set[str] = set()
        self.kernels: list[tuple[CodeObject, str]] = []
        self.strategies: set[str] = set()
        self.updates: set[str] = set()


launched = Launched()


def enqueue(
    queue: cl.CommandQueue,
    kernel: Kernel,
    global_size: Sequence[int],
    local_size: Sequence[int] | None,
    global_offset: Sequence[int] | None = None,
    wait_for: Sequence[cl.Event] | None = None,
    *_: object,
    **__: object,
) -> cl.Event:
    """Run a kernel now, as `pyopencl.enqueue_nd_range_kernel` would later; its buffers are the host's memory."""
    for event in wait_for or ():
        event.wait()
    queue.finish()
    mapped: dict[int, np.ndarray] = {}
    try:
        given = zip(kernel.given, kernel.visible, kernel.dtypes, strict=True)
        arguments = [_argument(queue, kernel, each, mapped) for each in given]
        if local_size is None:
            required = kernel.program.code.kernels[kernel.name].required_group
            local_size = (required or _largest(global_size))[: len(global_size)]
        launched.kernels.append((kernel.program.code, kernel.name))
        memory = [(array.ctypes.data, array.nbytes) for array in mapped.values()]
        launch(kernel.program.code, kernel.name, arguments, global_size, local_size, memory, global_offset or (0, 0, 0))
    finally:
        for array in mapped.values():
            array.base.release(queue)
        queue.finish()
    return cl.enqueue_marker(queue)


def _argument(
    queue: cl.CommandQueue, kernel: Kernel, given: tuple[Any, dict[str, Any], Any], mapped: dict[int, np.ndarray]
) -> bytes | int | Local:
    value, said, dtype = given
    if said[".value_kind"] == "global_buffer":
        if value is None:
            return 0
        value = getattr(value, "data", value)
        if value.int_ptr not in mapped:
            flags = cl.map_flags.READ | cl.map_flags.WRITE
            mapped[value.int_ptr], _ = cl.enqueue_map_buffer(queue, value, flags, 0, (value.size,), np.uint8)
        return mapped[value.int_ptr].ctypes.data
    if isinstance(value, cl.LocalMemory):
        return Local(value.size)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if dtype is None and not isinstance(value, np.generic | np.ndarray):
        raise TypeError(f"{kernel.name}: the value {value!r} has no type")
    return np.asarray(value, dtype).tobytes()


def _largest(global_size: Sequence[int]) -> tuple[int, ...]:
    n = int(global_size[0])
    return (next(d for d in range(min(256, n), 0, -1) if n % d == 0), *([1] * (len(global_size) - 1)))


class _Module:
    """PyOpenCL, with a few names replaced."""

    def __init__(self, module: ModuleType, **instead: Any) -> None:
        self.__dict__["_module"] = module
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def present(name: str, compute_units: int | None = None) -> None:
    """Make the host's device look like a GPU, and clhist use the emulator, for the rest of the process.

    Parameters
    ----------
    name : str
        Of `TARGETS`.
    compute_units : int, optional
        That it claims to have; all of the GPU's by default. Work-groups follow from them.
    """
    target = Program.target = TARGETS[name]
    alu.tinygrad()  # sets the environment of its own compiler
    hosts = _hosts()
    said = {
        "name": target.device,
        "vendor": "Advanced Micro Devices, Inc.",
        "type": cl.device_type.GPU,
        "extensions": EXTENSIONS,
        "opencl_c_version": "OpenCL C 2.0 ",
        "version": "OpenCL 2.0 ",
        "driver_version": f"{_DRIVER} (HSA1.1,LC)",
        "max_compute_units": compute_units or target.compute_units,
        "max_work_group_size": target.group,
        "max_work_item_sizes": [1024, 1024, 1024],
        "local_mem_size": target.local_bytes,
        "global_mem_cache_size": target.cache_bytes,
        "global_mem_cacheline_size": target.line_bytes,
        "board_name_amd": target.board,
    }
    for key, value in said.items():
        setattr(cl.Device, key, property(lambda self, value=value: value))
    platform = ("name", "AMD Accelerated Parallel Processing"), ("version", f"OpenCL 2.1 AMD-APP ({_DRIVER})")
    for key, text in (*platform, ("vendor", "Advanced Micro Devices, Inc.")):
        setattr(cl.Platform, key, property(lambda self, text=text: text))
    _replace_in_clhist(hosts)
    _record_plans()


def _hosts() -> list[cl.Platform]:
    """Return the platforms of the host's processor; Intel's first, where all of PyOpenCL's kernels work."""
    named = os.environ.get("CLHIST_EMULATED_HOST", "")
    found = [each for each in cl.get_platforms() if each.get_devices(cl.device_type.CPU)]
    if not found:
        raise NotPreparedError(
            "no OpenCL runtime of the host's processor, whose memory an emulated GPU has: pip install '.[cpu]'"
        )
    chosen = [each for each in found if named in each.name + each.version]
    return sorted(chosen or found, key=lambda platform: "Intel" not in platform.name)


def _replace_in_clhist(hosts: list[cl.Platform]) -> None:
    import clhist

    root = Path(clhist.__file__).parents[1]
    folders = (root / name for name in ("clhist", "cases", "strategies"))
    for file in (file for folder in folders for file in sorted(folder.rglob("*.py"))):
        parts = file.relative_to(root).with_suffix("").parts
        name = ".".join(parts if parts[0] == "clhist" else ("clhist", *parts)).removesuffix(".__init__")
        if not _LEFT_ALONE.search(name):
            importlib.import_module(name)
    real_kernel, real_enqueue = cl.Kernel, cl.enqueue_nd_range_kernel

    def kernel(program: Any, name: str) -> Any:
        return Kernel(program, name) if isinstance(program, Program) else real_kernel(program, name)

    def enqueue_any(queue: cl.CommandQueue, kernel: Any, *args: Any, **named: Any) -> cl.Event:
        run = enqueue if isinstance(kernel, Kernel) else real_enqueue
        return run(queue, kernel, *args, **named)

    proxy = _Module(
        cl, get_platforms=lambda: hosts, Program=Program, Kernel=kernel, enqueue_nd_range_kernel=enqueue_any
    )
    for name, loaded in list(sys.modules.items()):
        if name.startswith("clhist") and getattr(loaded, "cl", None) is cl:
            loaded.cl = proxy  # type: ignore[attr-defined]


def _record_plans() -> None:
    """Note the strategy and the updates of each call's plan in `launched`."""
    from clhist._core.runtime.launcher import OpenCLExecutable

    run = OpenCLExecutable.run

    def recorded(self: OpenCLExecutable, *args: Any, **named: Any) -> Any:
        for plan in self.prepared.call[1]:
            launched.strategies.add(plan.strategy)
            launched.updates.add(plan.update)
        return run(self, *args, **named)

    OpenCLExecutable.run = recorded  # type: ignore[method-assign]
