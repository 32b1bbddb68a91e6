"""A kernel from its start to its end: arguments, registers, waves of a few work-groups at a time, and what they did."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from emulated.alu import UnsupportedInstructionError
from emulated.decode import decode
from emulated.objects import CodeObject, Kernel
from emulated.start import GARBAGE, first_registers, set_ids, thread_ids
from emulated.tables import (
    CACHE_BYTES,
    COUNTED,
    DONE,
    FAULT,
    LIMIT,
    NEED,
    OUTSIDE_CODE,
    PENDING_BYTES,
    SCALAR_LOAD,
    Group,
    Region,
    Report,
    Wave,
    core,
)

_SPACES, _ACCESSES = ("global", "local", "scratch"), ("load", "store", "atomic", "load", "store")
_LARGEST_GROUP, _WAVES_AT_ONCE = 1024, 64


class KernelFaultError(Exception):
    """A kernel did what it must not: an access out of bounds, or arguments that do not fit."""


class KernelHangsError(Exception):
    """A kernel does not end."""


@dataclass
class Settings:
    """How kernels are run.

    Attributes
    ----------
    seed : int
        Of all that is random.
    resident : int
        Work-groups at a time.
    quantum : int
        Most instructions of a wave before another one has its turn.
    budget : int
        Most wave instructions of a launch.
    weak : bool
        Whether caches are incoherent and stores wait.
    counts : bool
        Whether transactions and conflicts are counted: it takes time.
    """

    seed: int = 1
    resident: int = 6
    quantum: int = 60
    budget: int = 2_000_000_000
    weak: bool = True
    counts: bool = False

    def __post_init__(self) -> None:
        self.state = ctypes.c_uint64()
        self.restart(self.seed)

    def restart(self, seed: int) -> None:
        """Begin again with what is random."""
        self.seed = seed
        self.state.value = 88172645463325252 ^ seed * 0x9E3779B97F4A7C15 % 2**64


settings = Settings(
    resident=int(os.environ.get("CLHIST_EMULATED_RESIDENT", "6")),
    quantum=int(os.environ.get("CLHIST_EMULATED_QUANTUM", "60")),
    weak=os.environ.get("CLHIST_EMULATED_WEAK", "1") != "0",
)
totals: dict[str, int] = {"launches": 0, "groups": 0, **dict.fromkeys(COUNTED, 0)}
_one = threading.RLock()  # launch at a time


@dataclass(frozen=True)
class Local:
    """An argument in local memory, of so many bytes."""

    bytes: int


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an empty array at a multiple of 4096 bytes: machine code for instructions uses aligned vectors."""
    size = prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + 8192, np.uint8)
    start = -raw.ctypes.data % 4096
    return raw[start : start + size].view(dtype).reshape(shape)


class _Registers:
    """Registers of some waves, kept between launches."""

    def __init__(self) -> None:
        self.waves = self.lanes = 0

    def fit(self, waves: int, lanes: int) -> None:
        if waves > self.waves or lanes != self.lanes:
            self.sgpr = aligned((waves, 320), np.uint32)
            self.vgpr = aligned((waves, 256 * lanes), np.uint32)
            self.agpr = aligned((waves, 256 * lanes), np.uint32)
            self.waves, self.lanes = waves, lanes


_registers = _Registers()


def launch(
    code: CodeObject,
    name: str,
    arguments: Sequence[bytes | int | Local],
    global_size: Sequence[int],
    local_size: Sequence[int],
    memory: Sequence[tuple[int, int]],
    offset: Sequence[int] = (0, 0, 0),
) -> None:
    """Run a kernel.

    Parameters
    ----------
    code : CodeObject
        With the kernel.
    name : str
        The kernel's.
    arguments : sequence
        Bytes of values, addresses, and local memory.
    global_size, local_size, offset : sequence of int
        Of one to three dimensions.
    memory : sequence of (int, int)
        Addresses and sizes of the buffers.

    Raises
    ------
    KernelFaultError, KernelHangsError
        With the instruction, and the lines that lead to it.
    UnsupportedInstructionError
        If the emulator lacks an instruction.
    """
    with _one:
        _Launch(code, code.kernels[name], arguments, global_size, local_size, offset).run(memory)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    return x, y, z


class _Launch:
    def __init__(
        self,
        code: CodeObject,
        kernel: Kernel,
        arguments: Sequence[bytes | int | Local],
        global_size: Sequence[int],
        local_size: Sequence[int],
        offset: Sequence[int],
    ) -> None:
        self.code, self.kernel, self.target = code, kernel, code.target
        self.dimensions, self.global_size, self.group = len(global_size), _three(global_size), _three(local_size)
        self.offset, self.items = _three((*offset, 0, 0, 0)), prod(self.group)
        self._check_sizes()
        self.groups = tuple(g // n for g, n in zip(self.global_size, self.group, strict=True))
        self.local_bytes = kernel.local_bytes
        self._segment = aligned((max(kernel.argument_bytes, 8) + 256,), np.uint8)
        self._segment[:] = 0
        self._fill_arguments(arguments)
        if self.local_bytes > self.target.local_bytes:
            raise KernelFaultError(
                f"{kernel.name}: {self.local_bytes} bytes of local memory where {self.target.board} has "
                f"{self.target.local_bytes}"
            )
        sizes = (0, self.dimensions, *self.group, 0, *self.global_size, kernel.scratch_bytes, self.local_bytes, 0)
        packet = struct.pack("<HHHHHHIIIIIQQQQ", *sizes, self._segment.ctypes.data, 0, 0)
        self._packet = np.frombuffer(packet, np.uint8).copy()

    def _check_sizes(self) -> None:
        kernel, where = self.kernel, f"{self.kernel.name}: work-groups of {self.group}"
        if any(g % n for g, n in zip(self.global_size, self.group, strict=True)) or self.items > _LARGEST_GROUP:
            raise KernelFaultError(f"{where} of a launch of {self.global_size}")
        if kernel.required_group is not None and kernel.required_group != self.group:
            raise KernelFaultError(f"{where}, which requires {kernel.required_group}")
        if self.items > kernel.largest_group:
            raise KernelFaultError(f"{where}, compiled for {kernel.largest_group} work-items")

    def _fill_arguments(self, arguments: Sequence[bytes | int | Local]) -> None:
        """Write the segment of arguments, the hidden ones among them."""
        visible = self.kernel.visible
        if len(arguments) != len(visible):
            raise KernelFaultError(f"{self.kernel.name}: {len(arguments)} arguments where it has {len(visible)}")
        hidden = {"hidden_grid_dims": struct.pack("<H", self.dimensions)}
        for k, axis in enumerate("xyz"):
            hidden[f"hidden_block_count_{axis}"] = struct.pack("<I", self.groups[k])
            hidden[f"hidden_group_size_{axis}"] = struct.pack("<H", self.group[k])
            hidden[f"hidden_remainder_{axis}"] = struct.pack("<H", 0)
            hidden[f"hidden_global_offset_{axis}"] = struct.pack("<Q", self.offset[k])
        given = enumerate(arguments)
        for argument in self.kernel.arguments:
            kind = argument[".value_kind"]
            value = hidden.get(kind, b"") if kind.startswith("hidden_") else self._encoded(argument, *next(given))
            at = argument[".offset"]
            self._segment[at : at + len(value)] = np.frombuffer(value, np.uint8)

    def _encoded(self, argument: dict[str, Any], k: int, value: bytes | int | Local) -> bytes:
        kind = argument[".value_kind"]
        if kind == "dynamic_shared_pointer" and isinstance(value, Local):
            start = -(-self.local_bytes // 16) * 16
            self.local_bytes = start + value.bytes
            return struct.pack("<I", start)
        if kind == "global_buffer" and isinstance(value, int):
            return struct.pack("<Q", value)
        if kind == "by_value" and isinstance(value, bytes) and len(value) == argument[".size"]:
            return value
        raise KernelFaultError(
            f"{self.kernel.name}: argument {k} is {kind} of {argument['.size']} bytes, got {value!r}"
        )

    def run(self, memory: Sequence[tuple[int, int]]) -> None:
        """Run all work-groups, a few at a time."""
        kernel, target, lanes, weak = self.kernel, self.target, self.target.lanes, settings.weak
        segment = self._segment.ctypes.data
        template, num_user = first_registers(kernel, target, segment, self._packet.ctypes.data)
        waves_of_group = -(-self.items // lanes)
        resident = max(1, min(settings.resident, _WAVES_AT_ONCE // waves_of_group or 1))
        most = resident * waves_of_group
        _registers.fit(most, lanes)
        ids = thread_ids(self.group, waves_of_group * lanes)
        self._locals = aligned((resident, -(-max(self.local_bytes, 16) // 128) * 128), np.uint8)
        self._scratch = aligned((most, max(kernel.scratch_bytes, 4) * lanes), np.uint8)
        self._caches = aligned((resident * 2, CACHE_BYTES), np.uint8) if weak else None
        self._pending = np.zeros((most, PENDING_BYTES), np.uint8) if weak else None
        waves, states = (Wave * most)(), (Group * resident)()
        places = [
            (segment, -(-kernel.argument_bytes // 64) * 64, 0),
            (self._packet.ctypes.data, 64, 0),
            (self.code.base, self.code.size, 0),
            *((address, size, 1) for address, size in memory),
        ]
        regions = (Region * len(places))(*((*place, 0) for place in places))
        report = Report(line_bytes=target.line_bytes, counts=settings.counts, shares_units=target.is_gfx9)
        budget = ctypes.c_int64(settings.budget)
        total = prod(self.groups)
        try:
            for first in range(0, total, resident):
                batch = range(first, min(total, first + resident))
                if self._caches is not None:
                    self._caches[:, :1024] = 0
                for slot, group in enumerate(batch):
                    self._locals[slot] = 0xA5
                    states[slot] = Group(waves_of_group, 0, 0, 0)
                    for w in range(waves_of_group):
                        n = slot * waves_of_group + w
                        self._start(waves[n], n, slot, w, group, ids[w * lanes : (w + 1) * lanes], template, num_user)
                self._go(waves, len(batch) * waves_of_group, states, regions, budget, report)
        finally:
            for counted in COUNTED:
                totals[counted] += getattr(report, counted)
        totals["launches"] += 1
        totals["groups"] += total

    def _start(
        self, wave: Wave, n: int, slot: int, w: int, group: int, ids: np.ndarray, template: np.ndarray, num_user: int
    ) -> None:
        """Set the registers and the memory of a wave as hardware does; all else is garbage."""
        target, lanes = self.target, self.target.lanes
        sgpr, vgpr, agpr = _registers.sgpr[n], _registers.vgpr[n], _registers.agpr[n]
        x, y, _ = self.groups
        set_ids(sgpr, self.kernel, target, template, num_user, (group % x, group // x % y, group // (x * y)))
        active = (1 << min(lanes, self.items - w * lanes)) - 1
        sgpr[126], sgpr[127] = active & 0xFFFFFFFF, active >> 32 if lanes == 64 else GARBAGE
        vgpr.fill(GARBAGE)
        if target.is_gfx9:
            agpr.fill(GARBAGE)
        else:
            agpr = vgpr
        if target.splits_thread_ids:
            vgpr[: 3 * lanes] = np.concatenate([ids & 1023, ids >> 10 & 1023, ids >> 20])
        else:
            vgpr[:lanes] = ids
        self._scratch[n].fill(0xA5)
        wave.sgpr, wave.vgpr, wave.agpr = (each.ctypes.data for each in (sgpr, vgpr, agpr))
        wave.local, wave.scratch = self._locals[slot].ctypes.data, self._scratch[n].ctypes.data
        wave.local_size, wave.scratch_size = self.local_bytes, self.kernel.scratch_bytes
        wave.group, wave.state, wave.barrier, wave.steps = slot, 0, 0, 0
        if self._caches is not None and self._pending is not None:
            # On RDNA the two compute units of a work-group have a cache each.
            wave.cache = self._caches[2 * slot + (0 if target.is_gfx9 else w % 2)].ctypes.data
            wave.pending = self._pending[n].ctypes.data
            ctypes.c_uint32.from_address(wave.pending).value = 0

    def _go(self, waves: Any, n: int, states: Any, regions: Any, budget: ctypes.c_int64, report: Report) -> None:
        code, where = self.code, ctypes.addressof
        while True:
            state = core()(
                *(where(code.table), code.text, code.text_size // 4),
                *(where(waves), n, where(states), self.target.lanes),
                *(where(regions), len(regions), 0),
                *(where(settings.state), settings.quantum, where(budget), where(report)),
            )
            if state != NEED:
                break
            try:
                decode(code, report.pc)
            except UnsupportedInstructionError as error:
                raise UnsupportedInstructionError(f"{error}\n{self._place(report)}") from None
        if state == FAULT:
            raise KernelFaultError(self._fault(report, regions))
        if state != DONE:
            steps = sorted((waves[k].steps for k in range(n)), reverse=True)[:4]
            why = f"no end after {settings.budget} instructions" if state == LIMIT else "no wave is ready"
            raise KernelHangsError(f"{why}, most of a wave {steps}: {self._place(report)}")

    def _place(self, report: Report) -> str:
        at = f"wave {report.wave} at {report.pc - self.code.base:#x} of {self.code.file}"
        return f"{self.kernel.name}, {at}\n{self.code.around(report.pc)}"

    def _fault(self, report: Report, regions: Any) -> str:
        if report.kind == OUTSIDE_CODE:
            return f"no code there: {self._place(report)}"
        if report.kind == SCALAR_LOAD:
            what = "global scalar load"
        else:
            what = f"{_SPACES[report.kind >> 3]} {_ACCESSES[report.kind & 7]}"
        near = "".join(
            f"; it is {report.address - region.base:+d} bytes from the start of {region.size}"
            for region in regions
            if -4096 <= report.address - region.base < region.size + 4096
        )
        return (
            f"{what} of {report.bytes} bytes at {report.address:#x}, lane {report.lane}, out of bounds or "
            f"not aligned{near}; {self.local_bytes} bytes of local memory: {self._place(report)}"
        )
