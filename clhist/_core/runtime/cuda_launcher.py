"""The back end of CUDA: runs a `Prepared` or a chain of kernels on arrays of its libraries, in the caller's stream.

OpenCL compiles the programs; CUDA loads their PTX.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist._core.cuda.driver import CudaError, CudaMemoryError, driver, stream_of
from clhist._core.cuda.libraries import Described, Library
from clhist._core.cuda.memory import Allocation
from clhist._core.cuda.ptx import CudaProgram, UnknownPtxError, for_cuda
from clhist._core.kernel_code import Parameter
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_arrays import CudaArray, CudaFilled, CudaMade, CudaMemory, new_array
from clhist._core.opencl.cuda_kinds import NotDirectError, cuda_device_of, memory_of_call, results_like
from clhist._core.opencl.memory import Allocator, OutOfMemoryError
from clhist._core.opencl.new_arrays import empty, to_device
from clhist._core.opencl.program import Kernel, kept_by_context, kernel_of
from clhist._core.recording import note, note_last, unheard
from clhist._core.runtime.call import Outcome
from clhist._core.runtime.chain import Chain
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import (
    MEMORY,
    OFFSET,
    Argument,
    Launch,
    New,
    Part,
    Prepared,
    Scratch,
    Slot,
    SortPairs,
    Table,
)
from clhist._core.runtime.signature import Remembered
from clhist._core.runtime.sort import enqueue_sort

_BYTE = np.dtype(np.uint8)
_MOST_MODULES = 1024
_ALIGNMENT = 256  # of blocks of scratch memory
# Bytes of memory of a chain that requests share, at least; how many requests like the first one it is for; and the most
# that a request shares. `unique` of 10^5 float64 makes two allocations of 5 µs (CuPy, H200), which were nine for 10^6.
_BLOCK, _SHARES, _MOST_SHARED = 1 << 20, 8, 1 << 24
_REUSED_BYTES, _REUSED_STREAMS = 2**20, 2  # an allocation of PyTorch takes 5 us of the host, as long as a launch


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
        dtypes = [parameter.dtype for parameter in parameters]
        self.rooms: list[Any] = [_room(dtype) for dtype in dtypes]
        self.pointers = (ctypes.c_void_p * len(self.rooms))(*map(ctypes.addressof, self.rooms))
        # ctypes stores addresses and integers; floats and structs are stored as their bytes.
        self._as_bytes = [None if dtype is None or dtype.kind in "iu" else dtype for dtype in dtypes]

    def set(self, n: int, value: Any) -> None:
        """Let a parameter have this value: an address, or a number as its type takes it."""
        dtype, room = self._as_bytes[n], self.rooms[n]
        if dtype is None:
            room.value = int(value)
        else:
            content = np.asarray(value, dtype).tobytes()
            room[: len(content)] = content

    def set_all(self, values: Sequence[Any]) -> None:
        """Set all parameters: numbers as they are, None as 0, memory by its address."""
        # Most values are memory or plain integers, which need no call of `set`.
        for n, value in enumerate(values):
            kind = type(value)
            if kind is _Room or kind is CudaArray:
                self.rooms[n].value = value.offset
            elif kind is int and self._as_bytes[n] is None:
                self.rooms[n].value = value
            else:
                self.set(n, 0 if value is None else value)


class Loaded(NamedTuple):
    """A kernel that CUDA has loaded, its arguments, and the lock that guards these."""

    function: Any
    dynamic: int
    parameters: Sequence[Parameter]
    arguments: Arguments
    lock: threading.Lock


def loaded_kernel(kernel: Kernel, device: int, stream: int) -> Loaded:
    """Return a kernel, loaded by CUDA on the device that calls go to; raises as `module_of`."""
    loaded = kernel.loaded.get(device)
    if loaded is None:
        module, name = module_of(kernel.program, device, stream), kernel.name
        function, parameters = ctypes.c_void_p(module.functions[name]), kernel.parameters
        loaded = Loaded(function, module.dynamic[name], parameters, Arguments(parameters), threading.Lock())
        kernel.loaded[device] = loaded
    return loaded


def _room(dtype: np.dtype | None) -> Any:
    if dtype is None:
        return ctypes.c_uint64()
    if dtype.kind in "iu":
        return np.ctypeslib.as_ctypes_type(dtype)()
    return (ctypes.c_ubyte * max(8, dtype.itemsize))()


class _Room:
    """An address in the memory of CUDA, and the array that it is of, or of a part of."""

    __slots__ = ("offset", "owner")

    def __init__(self, offset: int, owner: Any) -> None:
        self.offset, self.owner = offset, owner

    def __int__(self) -> int:
        return self.offset


class CudaLaunched(NamedTuple):
    """A launch by a `CudaChain`, for a recording of the call; addresses among the arguments are no numbers."""

    loaded: Loaded
    global_size: tuple[int, int]
    local_size: tuple[int, int]
    arguments: Sequence[CudaArray | _Room | np.generic | float | None]
    memory: CudaMemory

    def command(self, places: Callable[[int], tuple[int, int]]) -> tuple[CudaCommand, list[tuple[int, int]]]:
        """Return the launch, and what `places` returns for each address of its arguments."""
        of_addresses = list[tuple[int, int]]()
        arguments = list[Argument]()
        for value in self.arguments:
            if isinstance(value, CudaArray | _Room):
                arguments.append(Scratch(len(of_addresses)))
                of_addresses.append(places(value.offset))
            else:
                arguments.append(value)
        order = {Scratch(n): n for n in range(len(of_addresses))}
        return CudaCommand(self.loaded, self.global_size, self.local_size, arguments, order, {}), of_addresses


class CudaChain(Chain):
    """Commands on the current CUDA stream of the library of the call's arrays, whose allocator gives memory."""

    def __init__(self, queue: cl.CommandQueue, purpose: str) -> None:
        super().__init__(queue, purpose)
        self._memory = memory = memory_of_call()
        self._device, self._stream = memory.device, memory.stream
        self._block, self._size, self._used = _Room(0, None), 0, 0  # freed with the last memory that is a part of it

    def new(self, number: int, dtype: Any) -> _Room:
        # Multiples of the alignment, so that each memory of a block begins at an aligned address.
        size = -(-max(1, number) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        # Allocations take as long as launches, so memory shares blocks; the rest of a block of more would be a waste.
        if size > _MOST_SHARED:
            return self._allocated(size)
        if size > self._size - self._used:
            more = max(_BLOCK, _SHARES * size)
            try:
                self._block, self._size, self._used = self._allocated(more), more, 0
            except OutOfMemoryError:  # what is requested may still fit
                return self._allocated(size)
        self._used += size
        return _Room(self._block.offset + self._used - size, self._block.owner)

    def _allocated(self, size: int) -> _Room:
        library = self._memory.library
        owner = library.new((size,), _BYTE, self._device)
        room = _Room(library.address(owner), owner)
        note(CudaMade(room.offset, (size,), _BYTE, CudaMemory(library, self._device, owner)))
        return room

    def fill(self, memory: CudaArray | _Room, dtype: Any, value: int, number: int, first: int = 0) -> None:
        item = np.dtype(dtype).itemsize
        # CUDA fills with one byte, which suffices since all bytes of the value are equal.
        begin, byte, size = memory.offset + first * item, value % 256, number * item
        with driver().on(self._device):
            driver().fill(begin, byte, size, self._stream)
        note_last(lambda: CudaFilled(begin, byte, size))

    def copied(self, array: np.ndarray) -> Array:
        return to_device(self.queue, array)

    def run(self, kernel: Kernel, groups: int, lanes: int, arguments: Sequence[Any], beside: int = 1) -> None:
        with driver().on(self._device):
            loaded = loaded_kernel(kernel, self._device, self._stream)
            # All threads share the memory of a kernel's arguments, which CUDA reads at the launch.
            with loaded.lock:
                loaded.arguments.set_all(arguments)
                sizes = (groups, beside, 1, lanes, 1, 1)
                launched = (loaded.function, *sizes, loaded.dynamic)
                driver().launch(launched, stream_of(self._stream), loaded.arguments.pointers)
        note_last(lambda: CudaLaunched(loaded, (groups * lanes, beside), (lanes, 1), arguments, self._memory))

    def fetched(self, memory: CudaArray | _Room | None, number: int, dtype: Any, offset: int = 0) -> np.ndarray:
        array = np.empty(number, dtype)
        with driver().on(self._device):
            driver().download(array, int(offset) + (0 if memory is None else memory.offset), self._stream)
        return array

    def fetched_rows(
        self, memory: CudaArray | _Room | None, shape: tuple[int, int], dtype: Any, offset: int, step: int
    ) -> np.ndarray:
        rows = np.empty(shape, dtype)
        with driver().on(self._device):
            driver().download_every(rows, int(offset) + (0 if memory is None else memory.offset), step, self._stream)
        return rows

    def place(self, array: Any) -> tuple[Any, Any]:
        # All memory is one buffer at address 0, so a kernel adds the offset to a null pointer. Unlike a number, a room
        # is recorded as an address.
        return (None, _Room(array.offset, array)) if isinstance(array, CudaArray) else (array, 0)

    def result(self, size: int, dtype: Any, on_device: bool = True) -> tuple[Array, Any]:
        array = empty(self.queue, (size,), np.dtype(dtype), True)
        return array, array

    def finish(self, *written: Array) -> None:
        """Do nothing: the stream orders what is done."""


class CudaCommand:
    """A launch of a kernel, as of `Launch`; `places` are those of a call's numbers, `tables` addresses."""

    def __init__(
        self,
        loaded: Loaded,
        global_size: Sequence[int],
        local_size: Sequence[int],
        arguments: Sequence[Argument],
        places: dict[Any, int],
        tables: dict[Any, int],
    ) -> None:
        groups = [n // m for n, m in zip(global_size, local_size, strict=True)]
        # CUDA takes three dimensions of groups and of their sizes.
        ones = [1] * (3 - len(groups))
        self._prepared = (loaded.function, *groups, *ones, *local_size, *ones, loaded.dynamic)
        # Parameters that change, each with its place in a call: addresses, and the numbers of others.
        self._words: list[tuple[Any, int]] = []
        self._others: list[tuple[int, int]] = []
        self._arguments = Arguments(loaded.parameters)
        rooms = self._arguments.rooms
        for n, value in enumerate(arguments):
            if isinstance(value, Table):
                self._arguments.set(n, tables[value])
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
                self._arguments.set(n, value)
        self._known: list[Any] = [None] * len(rooms)
        self._launch, self._pointers = driver().launch, self._arguments.pointers

    def run(self, stream: Any, call: Sequence[Any]) -> None:
        for word, k in self._words:
            word.value = call[k]
        for n, k in self._others:
            value = call[k]
            if value is not self._known[n]:
                self._known[n] = None  # unknown until it is set, should an exception arrive in between
                self._arguments.set(n, value)
                self._known[n] = value
        self._launch(self._prepared, stream, self._pointers)


class _Part(NamedTuple):
    """A part with its commands, the offsets of its blocks in one block of scratch memory, and such memory by stream."""

    part: Part
    commands: list[CudaCommand | SortPairs]
    begins: tuple[int, ...]
    size: int
    by_stream: dict[tuple[str, int], Any]


class CudaRun(NamedTuple):
    """A run of `CudaExecutable`, for a recording of the call: its arrays, their memory, and its scalars."""

    executable: CudaExecutable
    memory: CudaMemory
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
    ) -> None:
        super().__init__(queue, prepared, smaller)
        device = cuda_device_of(queue)
        assert device is not None
        self._queue, self._device = queue, device
        # Addresses of arrays and scalars of a call, before those of scratch blocks.
        self._numbers = 1 + max(self._places.values(), default=-1)
        for command in prepared.commands:
            if isinstance(command, Launch):
                kernel_of(queue.context, command.kernel)  # what the compiler refuses is said now
            elif command.checked_pairs is not None:
                raise NotDirectError("to wait for the pairs of a sort")  # a captured stream cannot
        self._blocks: list[Allocation] = []  # of tables
        self._parts: list[_Part] | None = None

    def load_all(self, arrays: Sequence[Any]) -> None:
        """Load the programs, for a call on these arrays; raises as `run`."""
        with driver().on(self._device), self._lock:
            self._load(self._memory(arrays).stream)

    def _load(self, stream: int) -> list[_Part]:
        # Programs are loaded at the first call, whose stream shows whether a capture forbids that.
        if self._parts is None:
            self._parts = [self._loaded(part, stream) for part in self.prepared.parts]
        return self._parts

    def _built(self, part: Part, run: Any = None) -> _Part:
        return self._loaded(part, run[2])

    def _loaded(self, part: Part, stream: int) -> _Part:
        # All scratch memory of a part is one allocation, since each takes as long as a launch.
        begins, size = [], 0
        for room in part.scratch:
            begins.append(size)
            size += -(-room.size // _ALIGNMENT) * _ALIGNMENT
        places = {Scratch(n): self._numbers + n for n in range(len(part.scratch))} | self._places
        commands: list[CudaCommand | SortPairs] = []
        for command in part.commands:
            if isinstance(command, SortPairs):
                commands.append(command)
                continue
            for value in command.arguments:
                if isinstance(value, Table) and value not in self._tables:
                    driver().check_not_captured(stream)  # which need not be the one that copies
                    block = Allocation(self._device, value.array.nbytes)
                    self._blocks.append(block)
                    driver().upload(block.address, np.ascontiguousarray(value.array), driver().own_stream(self._device))
                    self._tables[value] = block.address
            loaded = loaded_kernel(kernel_of(self._queue.context, command.kernel), self._device, stream)
            sizes = command.global_size, command.local_size
            commands.append(CudaCommand(loaded, *sizes, command.arguments, places, self._tables))
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
            operands = [
                self._new(n, memory, array) if array is None or type(array) is New else array
                for n, array in enumerate(arrays)
            ]
            # A recording notes the run, by the `CudaRun` below, and not its launches.
            with unheard():
                self.launch([*(array.offset for array in operands), *scalars], memory.library, memory.stream, begun)
        note(CudaRun(self, memory, operands, list(scalars)))
        none: Any = None  # of OpenCL's events
        return Outcome(self._collected(operands), {"combine": [none]}, {})

    def launch(
        self, numbers: list[Any], library: Library, stream: int, begun: Callable[[], None] | None = None
    ) -> None:
        """Enqueue all on a stream of the device that calls go to: `numbers` are the arrays' addresses, and scalars."""
        with self._lock:
            parts, run = self._parts, (numbers, library, stream, begun)
            if parts is None:
                parts = self._load(stream)
            for part in parts:
                try:
                    self._run_part(part, run)
                except OutOfMemoryError as error:
                    self._run_smaller(part, run, None, error, part is not parts[0])

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

    def _run_part(self, part: _Part, run: tuple[Any, ...], wait_for: None = None) -> None:
        numbers, library, stream, begun = run
        try:
            # Scratch blocks follow the addresses and scalars, as in the places of a command.
            call, where = numbers, stream_of(stream)
            if part.size:
                scratch = self._scratch(part, library, stream)  # has a reference until all is enqueued
                begin = library.address(scratch)
                call = [*numbers, *[begin + n for n in part.begins]]
            if begun is not None:
                begun()
            for command in part.commands:
                if isinstance(command, SortPairs):
                    self._sort(command, library, call[len(numbers) :])
                else:
                    command.run(where, call)
        except CudaMemoryError as error:
            raise OutOfMemoryError(str(error), sum(block.size for block in part.part.scratch)) from error

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
