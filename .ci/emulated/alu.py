"""Machine code for instructions of the ALUs, made by tinygrad's emulator of the pseudocode in AMD's documents.

It takes 30 ms an instruction, so what was made is kept. tinygrad's memory instructions, branches and barriers are not
used: see `emulated.decode`.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from emulated.places import NEWEST, places, replace


class UnsupportedInstructionError(Exception):
    """An instruction that the emulator lacks: nothing is known of the result."""


# Keyed by document, lanes, class and size: (bits that are the same, which bits they are, address, arguments).
_made: dict[tuple[str, int, str, int], list[tuple[int, int, int, tuple[int, ...]]]] = {}
_kept: dict[tuple[str, int], list[tuple[Any, ...]]] = {}  # by document and lanes: what is stored
_runtimes: list[Any] = []  # hold the machine code
made_now = 0


@cache
def tinygrad() -> ModuleType:
    """Return tinygrad's emulator, with what it lacks and concerns us."""
    clang = places().cache / "clang"
    libraries, program = places().environment["LD_LIBRARY_PATH"], places().program("clang")
    script = f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} "$@"\n'
    if not clang.exists() or clang.read_text() != script:  # tinygrad calls it at its start
        replace(clang, script.encode(), mode=0o755)
    os.environ |= {
        "DEV": "CPU:LLVM",
        "LLVM_PATH": str(places().libraries / f"libLLVM-{NEWEST}.so"),
        "CC": str(clang),
        "CACHELEVEL": "0",  # its database is one for all processes, and `save` keeps what it would
    }
    sys.path.insert(0, str(places().tinygrad))
    from test.mockgpu.amd import emu
    from tinygrad.dtype import dtypes, truncate
    from tinygrad.renderer import llvmir

    decimal, pseudocode = llvmir.lconst, emu.get_pcode

    def constant(x: Any, dtype: Any) -> str:  # it writes "5e-324", which LLVM does not read
        if dtype not in (dtypes.float32, dtypes.float64):
            return decimal(x, dtype)
        return f"0x{struct.unpack('<Q', struct.pack('<d', truncate[dtype](x)))[0]:016X}"

    def corrected(op: Any) -> str:  # it does not extend the sign of 24 bits to 64
        text = pseudocode(op)
        if "RNDNE_F32" in op.name:  # and rounds the sum of a whole number and a half
            text += "\nif ((S0.u32 & 0x7fffffffU) >= 0x4b000000U) then\nD0.f32 = S0.f32\nendif"
        if "I24" not in op.name:
            return text
        return re.sub(r"(32|64)'I\(S([01])\.i24\)", r"\1'I(32'I(S\2.u32 << 8U) >> 8U)", text)

    controlled = emu._dpp16_ctrl

    def control(lane: Any, dpp: int, *others: Any) -> tuple[Any, Any, Any]:  # row_share and row_xmask of RDNA
        if dpp >> 4 not in (0x15, 0x16):
            return controlled(lane, dpp, *others)
        at, number = lane.cast(dtypes.int), emu._c(dpp & 15, dtypes.int)
        source = (at & emu._c(~15, dtypes.int)) + number if dpp >> 4 == 0x15 else at ^ number
        return source, *controlled(lane, 0x140, *others)[1:]

    llvmir.lconst, emu.get_pcode, emu._dpp16_ctrl = constant, corrected, control
    emu._FUNCS |= {"f16_to_f32": _of_half, "f32_to_f16": _as_half}
    return emu


# tinygrad takes numbers of half precision that are not normal for 0, and large ones for NaN; AMD's GPUs keep them.
def _of_half(half: Any) -> Any:
    from tinygrad.dtype import dtypes

    bits = (half if half.dtype == dtypes.uint32 else half.bitcast(dtypes.uint16).cast(dtypes.uint32)) & 0xFFFF
    sign, shifted = (bits & 0x8000) << 16, (bits & 0x7FFF) << 13
    small = ((bits & 0x3FF).cast(dtypes.float32) * 2.0**-24).bitcast(dtypes.uint32)
    special = (shifted < 0x1F << 23).where(shifted + (112 << 23), shifted | 0xFF << 23)
    return ((shifted < 1 << 23).where(small, special) | sign).bitcast(dtypes.float32)


def _as_half(number: Any) -> Any:
    from tinygrad.dtype import dtypes

    bits = number.bitcast(dtypes.uint32)
    sign, size = bits >> 16 & 0x8000, bits & 0x7FFFFFFF
    normal = (size + 0xFFF + (size >> 13 & 1) - (112 << 23)) >> 13
    # 2^23 more in units of the least number: the sum is rounded to one.
    small = (size.bitcast(dtypes.float32) * 2.0**24 + 2.0**23).bitcast(dtypes.uint32) & 0x7FFF
    large = (size < (0xFF << 23) + 1).where(size.const_like(0x7C00), 0x7E00 | size >> 13 & 0x3FF)
    found = (size < 113 << 23).where(small, (size < 0x477FF000).where(normal, large))
    return (found | sign).cast(dtypes.uint16).bitcast(dtypes.half)


def machine_code(instruction: Any, raw: bytes, isa: str, lanes: int) -> tuple[int, tuple[int, ...]]:
    """Return the address of the host's code for an instruction, and which places it is given.

    Parameters
    ----------
    instruction
        As tinygrad decodes it.
    raw : bytes
        Its encoding.
    isa : str
        As in `emulated.targets`.
    lanes : int
        Work-items of a wave.

    Raises
    ------
    UnsupportedInstructionError
        If tinygrad lacks it.
    """
    global made_now
    emu, size = tinygrad(), instruction.size()
    _load(isa, lanes)
    number, key = int.from_bytes(raw[:size], "little"), (isa, lanes, type(instruction).__name__, size)
    for base, mask, address, arguments in _made.get(key, ()):
        if number & mask == base:
            return address, arguments
    handlers = emu._INST_HANDLERS
    handler = next((handlers[kind] for kind in type(instruction).__mro__ if kind in handlers), None)
    if handler is None:
        raise UnsupportedInstructionError(repr(instruction))
    try:
        base, mask, runtime, code, arguments = _compiled(handler, instruction, raw, lanes)
    except Exception as error:  # whatever tinygrad raises
        raise UnsupportedInstructionError(f"{instruction!r}: {type(error).__name__}: {error}") from error
    _runtimes.append(runtime)
    _made.setdefault(key, []).append((base, mask, runtime.addr, arguments))
    _kept[isa, lanes].append((type(instruction).__name__, size, base, mask, code, arguments))
    made_now += 1
    return runtime.addr, arguments


@cache
def _masked() -> type:
    """Return the context in which the third source is a mask of 64 lanes; tinygrad reads 32 bits of it on RDNA."""

    class Masked(tinygrad()._Ctx):
        reads = 0

        def rsrc_dyn(self, register: Any, *others: Any) -> Any:
            self.reads += 1
            return self.rmask(register) if self.reads == 3 else super().rsrc_dyn(register, *others)

    return Masked


def _compiled(handler: Any, instruction: Any, raw: bytes, lanes: int) -> tuple[int, int, Any, bytes, tuple[int, ...]]:
    from tinygrad.codegen import to_program
    from tinygrad.device import Device
    from tinygrad.helpers import Context
    from tinygrad.uop.ops import KernelInfo

    emu = tinygrad()
    is_masked = lanes == 64 and "CNDMASK" in emu._op_name(instruction)
    context = (_masked() if is_masked else emu._Ctx)(instruction.size(), lanes)
    sink = handler(instruction, context)
    base, mask, _ = context.canonical_mask(raw)
    sink = sink.replace(arg=KernelInfo(name=f"i{base:x}")).rtag(1)
    with Context(NOOPT=1, CHECK_OOB=0, TUPLE_ORDER=0, EMULATED_DTYPES="", CAPTURE_PROCESS_REPLAY=0, PROFILE=0):
        program = to_program(sink, Device["CPU"].renderer)
        code = program.to_elf()
        return base, mask, Device["CPU"].runtime(code), code, tuple(program.arg.globals)


def _load(isa: str, lanes: int) -> None:
    """Take what earlier runs made."""
    if (isa, lanes) in _kept:
        return
    from tinygrad.device import Device

    file = _file(isa, lanes)
    _kept[isa, lanes] = pickle.loads(file.read_bytes()) if file.exists() else []  # written by `save` alone
    for name, size, base, mask, code, arguments in _kept[isa, lanes]:
        runtime = Device["CPU"].runtime(code)
        _runtimes.append(runtime)
        _made.setdefault((isa, lanes, name, size), []).append((base, mask, runtime.addr, arguments))


def _file(isa: str, lanes: int) -> Path:
    return places().cache / f"instructions-{isa}-{lanes}.pickle"


def save() -> None:
    """Keep what was made for later runs."""
    global made_now
    if made_now:
        for key, rows in _kept.items():
            replace(_file(*key), pickle.dumps(rows))
    made_now = 0
