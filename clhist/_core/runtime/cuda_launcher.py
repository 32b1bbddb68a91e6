"""Runs a `Prepared` by CUDA, on arrays of its libraries: programs that OpenCL compiled, on the caller's stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.cuda.driver import CudaMemoryError, driver, stream_of
from clhist._core.cuda.libraries import Described, Library
from clhist._core.cuda.memory import Allocation
from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.opencl.cuda_arrays import CudaArray, CudaMemory, new_array
from clhist._core.opencl.cuda_kinds import NotDirectError, cuda_device_of, results_like
from clhist._core.opencl.memory import Allocator, OutOfMemoryError
from clhist._core.opencl.program import Kernel, kernel_of
from clhist._core.recording import heard, unheard
from clhist._core.runtime.call import Outcome
from clhist._core.runtime.cuda_chain import CudaChain
from clhist._core.runtime.cuda_modules import Arguments, Module, module_of
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import (
    MEMORY,
    OFFSET,
    VALUE,
    Launch,
    New,
    Part,
    Prepared,
    Scratch,
    Slot,
    SortPairs,
    Table,
)
from clhist._core.runtime.sort_pairs import enqueue_sort

_ALIGNMENT = 256  # of blocks of scratch memory
_REUSED_BYTES, _REUSED_STREAMS = 2**20, 2  # an allocation of PyTorch takes 5 us of the host, as long as a launch


class _Command:
    """A launch with its kernel."""

    def __init__(self, launch: Launch, module: Module, places: dict[Any, int], same: dict[Any, Any]) -> None:
        name, dynamic = launch.kernel.name, module.dynamic[launch.kernel.name]
        groups = [n // m for n, m in zip(launch.global_size, launch.local_size, strict=True)]
        # CUDA takes three dimensions of groups and of their sizes.
        ones = [1] * (3 - len(groups))
        self._prepared = (ctypes.c_void_p(module.functions[name]), *groups, *ones, *launch.local_size, *ones, dynamic)
        # Parameters that change, each with its place in a call: addresses, and the numbers of others.
        self._words: list[tuple[Any, int]] = []
        self._others: list[tuple[int, int]] = []
        self._arguments = Arguments(launch.kernel.parameters)
        rooms = self._arguments.rooms
        for n, value in enumerate(launch.arguments):
            if isinstance(value, Table | Slot) and value in same:
                self.set(n, same[value])
            elif isinstance(value, Slot) and value.what == MEMORY:
                pass  # address 0: the offset is the address
            elif isinstance(value, Slot | Scratch):
                # Addresses, the usual case, are stored without a call; other numbers are converted to the parameter's
                # type.
                is_address = isinstance(value, Scratch) or value.what == OFFSET
                if is_address and isinstance(rooms[n], ctypes.c_uint64):
                    self._words.append((rooms[n], places[value]))
                else:
                    self._others.append((n, places[value]))
            elif value is not None:
                self.set(n, value)
        self._known: list[Any] = [None] * len(rooms)
        self._launch, self._pointers = driver().launch, self._arguments.pointers

    def set(self, n: int, value: Any) -> None:
        """Let a parameter have this value: an address, or a number as its type takes it."""
        self._arguments.set(n, value)

    def run(self, stream: Any, call: Sequence[Any]) -> None:
        for word, k in self._words:
            word.value = call[k]
        for n, k in self._others:
            value = call[k]
            if value is not self._known[n]:
                self._known[n] = None  # unknown until it is set, should an exception arrive in between
                self.set(n, value)
                self._known[n] = value
        self._launch(self._prepared, stream, self._pointers)


class _Part(NamedTuple):
    """A part with its commands, the offsets of its blocks in one block of scratch memory, and such memory by stream."""

    part: Part
    commands: list[_Command | SortPairs]
    begins: tuple[int, ...]
    size: int
    by_stream: dict[tuple[str, int], Any]


class CudaRun(NamedTuple):
    """A run of `CudaExecutable`: its arrays, those among them that it allocated, with their memory, and its scalars."""

    executable: CudaExecutable
    memory: CudaMemory
    made: list[bool]
    arrays: list[CudaArray]
    scalars: list[Any]


class CudaExecutable(Executable):
    """A prepared call with its kernels, loaded by CUDA on the device that `queue` stands for; see `Executable`.

    Raises
    ------
    NotDirectError
        If it has what only OpenCL can do.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        prepared: Prepared,
        smaller: Callable[[Part, int], Sequence[Part]] | None = None,
        same: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(prepared, smaller, same)
        device = cuda_device_of(queue)
        assert device is not None
        self._queue, self._device, self._given = queue, device, dict(same)
        # Addresses of arrays and scalars of a call, before those of scratch blocks.
        self._numbers = 1 + max(self._places.values(), default=-1)
        for command in prepared.commands:
            if isinstance(command, Launch):
                self._kernel(command.kernel)  # what the compiler refuses is said now
            elif command.checked_pairs is not None:
                raise NotDirectError("to wait for the pairs of a sort")  # a captured stream cannot
        self._same: dict[Any, int] = {}
        self._blocks: list[Allocation] = []  # of tables
        self._parts: list[_Part] | None = None

    def _kernel(self, code: KernelCode) -> Kernel:
        return kernel_of(self._queue.context, code)

    def load_all(self, arrays: Sequence[Any]) -> None:
        """Load the programs, for a call on these arrays; raises as `run`."""
        with driver().on(self._device), self._lock:
            if self._parts is None:
                self._parts = self._load(self._memory(arrays).stream)

    def _load(self, stream: int) -> list[_Part]:
        for name, value in self._given.items():
            if isinstance(value, CudaArray):
                self._same[Slot(name, OFFSET)] = value.offset
            else:
                self._same[Slot(name, VALUE)] = value
        return [self._loaded(part, stream) for part in self.prepared.parts]

    def _loaded(self, part: Part, stream: int) -> _Part:
        # All scratch memory of a part is one allocation, since each takes as long as a launch.
        begins, size = [], 0
        for room in part.scratch:
            begins.append(size)
            size += -(-room.size // _ALIGNMENT) * _ALIGNMENT
        places = {Scratch(n): self._numbers + n for n in range(len(part.scratch))} | self._places
        commands: list[_Command | SortPairs] = []
        for command in part.commands:
            if isinstance(command, SortPairs):
                commands.append(command)
                continue
            for value in command.arguments:
                if isinstance(value, Table) and value not in self._same:
                    driver().check_not_captured(stream)  # which need not be the one that copies
                    block = Allocation(self._device, value.array.nbytes)
                    self._blocks.append(block)
                    driver().upload(block.address, np.ascontiguousarray(value.array), driver().own_stream(self._device))
                    self._same[value] = block.address
            module = module_of(self._kernel(command.kernel).program, self._device, stream)
            commands.append(_Command(command, module, places, self._same))
        return _Part(part, commands, tuple(begins), size, {})

    def run(
        self,
        queue: cl.CommandQueue,
        arrays: Sequence[Any],
        scalars: Sequence[Any],
        on_device: bool,
        wait_for: Sequence[cl.Event] = (),
        allocator: Allocator | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Outcome:
        """Enqueue all on the current stream of the library whose the first array is; see `Executable.run`.

        Raises
        ------
        TypeError
            If there are events to wait for, or an allocator, which are OpenCL's.
        CaptureError
            If that stream is being captured, and the programs are not loaded yet.
        """
        if wait_for or allocator is not None:
            raise TypeError("wait_for, allocator: expected none with arrays of CUDA, whose stream orders what is done")
        memory = self._memory(arrays)
        with driver().on(self._device):
            made = [array is None or type(array) is New for array in arrays]
            operands = [self._new(n, memory, arrays[n]) if made[n] else arrays[n] for n in range(len(arrays))]
            # A recording notes the run, by the `CudaRun` below, and not its launches.
            with unheard():
                self.launch([*(array.offset for array in operands), *scalars], memory.library, memory.stream, begun)
        if heard.calls is not None:
            heard.calls.append(CudaRun(self, memory, made, operands, list(scalars)))
        none: Any = None  # of OpenCL's events
        return Outcome(self._collected(operands), {"combine": [none]}, {})

    def launch(
        self, numbers: list[Any], library: Library, stream: int, begun: Callable[[], None] | None = None
    ) -> None:
        """Enqueue all on a stream of the device that calls go to: `numbers` are the arrays' addresses, and scalars."""
        with self._lock:
            # Programs are loaded at the first call, whose stream shows whether a capture forbids that.
            if self._parts is None:
                self._parts = self._load(stream)
            if len(self._parts) == 1 and not self._parts[0].size:  # which memory cannot be refused
                self._run_part(self._parts[0], library, stream, numbers, begun)
                return
            # A part that is refused memory is replaced at the front, so that the order of the parts stays.
            waiting: list[tuple[_Part, int | None]] = [(part, None) for part in self._parts]
            has_begun = False
            while waiting:
                part, budget = waiting.pop(0)
                try:
                    self._run_part(part, library, stream, numbers, begun)
                    has_begun = True
                except CudaMemoryError as error:
                    try:
                        waiting[:0] = self._with_less(part, budget, stream, error)
                    except NotDirectError as refused:
                        if not has_begun:
                            raise
                        # Another way would do again what is enqueued.
                        raise _out_of_memory(part.part, f"{error}; with less, {refused}") from error

    def _new(self, n: int, memory: CudaMemory, request: New | None) -> CudaArray:
        """Return a new array for the slot of this number."""
        new = self._slots[n].new
        assert new is not None
        return new_array(memory, new[0] if request is None else request.shape, new[1], self._queue)

    def _memory(self, arrays: Sequence[Any]) -> CudaMemory:
        """Return the memory of the first array; all are of one library."""
        every = [array.memory for array in arrays if isinstance(array, CudaArray)]
        every = [memory for memory in every if memory.library is not None]  # or it belongs to no caller
        first = every[0]
        # One stream orders the call, and arrays of two libraries may belong to different streams.
        for memory in every[1:]:
            if memory.library is not first.library:
                raise TypeError(
                    f"expected arrays of one library, got one of {memory.library.name} and one of {first.library.name}"
                )
        return first

    def _run_part(
        self, part: _Part, library: Library, stream: int, numbers: list[Any], begun: Callable[[], None] | None
    ) -> None:
        # Scratch blocks follow the addresses and scalars, as in the places of a command.
        begin, call, where = 0, numbers, stream_of(stream)
        if part.size:
            scratch = self._scratch(part, library, stream)
            begin = library.address(scratch)
            call = [*numbers, *[begin + n for n in part.begins]]
        if begun is not None:
            begun()
        for command in part.commands:
            if isinstance(command, SortPairs):
                self._sort(command, library, call[len(numbers) :])
            else:
                command.run(where, call)

    def _scratch(self, part: _Part, library: Library, stream: int) -> Any:
        """Return scratch memory of a part; later runs on the same stream, which orders them, reuse a small one.

        A captured graph gets separate memory: it may be launched on any stream.
        """
        if part.size > _REUSED_BYTES or not library.lets_keep(self._device, stream):
            return library.new((part.size,), _BYTE, self._device)
        key = library.name, stream
        if (memory := part.by_stream.get(key)) is None:
            while len(part.by_stream) >= _REUSED_STREAMS:
                del part.by_stream[next(iter(part.by_stream))]
            memory = part.by_stream[key] = library.new((part.size,), _BYTE, self._device)
        return memory

    def _sort(self, command: SortPairs, library: Library, blocks: Sequence[int]) -> None:
        memory = CudaMemory(library, self._device, None)
        with results_like(memory):
            # The sort takes arrays; these stand for the blocks by their addresses, and own no memory.
            described = (Described(begin, _BYTE, (1,), (1,), self._device) for begin in blocks)
            arrays = [CudaArray.made(memory, layout, self._queue) for layout in described]
            for _ in enqueue_sort(command, CudaChain(self._queue, "to sort pairs"), arrays):
                pass

    def _with_less(
        self, part: _Part, budget: int | None, stream: int, failed: CudaMemoryError
    ) -> list[tuple[_Part, int]]:
        """Return parts with the same results as one that ran out of memory, each with its budget."""
        error = _out_of_memory(part.part, str(failed))
        try:
            return self._less(part.part, budget, error, lambda smaller: self._loaded(smaller, stream))
        except OutOfMemoryError:
            raise error from failed


def _out_of_memory(part: Part, reason: str) -> OutOfMemoryError:
    return OutOfMemoryError(reason, sum(block.size for block in part.scratch))


_BYTE = np.dtype(np.uint8)
