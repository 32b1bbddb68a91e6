"""Decoding of instructions for C: memory, branches and barriers by fields, the rest by machine code of its own."""

from __future__ import annotations

import ctypes
import re

from emulated import alu
from emulated.alu import UnsupportedInstructionError
from emulated.objects import CodeObject
from emulated.operands import Fields, set_memory, set_scratch_buffer, width_of
from emulated.tables import (
    ALU,
    BARRIER,
    BRANCH,
    DRAIN,
    END,
    GETPC,
    INVALIDATE,
    MAD,
    NO_REGISTER,
    NOP,
    SETPC,
    SIGNAL,
    SMEM,
    SWAPPC,
    WAIT,
    Entry,
)
from emulated.targets import Target

# What takes time, waits for what is done here at once, or prefetches.
_NO_EFFECT = re.compile(
    r"S_(NOP|SLEEP|CLAUSE|DELAY_ALU|WAIT(?!_EVENT).*|SENDMSG|SETPRIO|ICACHE_INV|CODE_END|SET_INST_PREFETCH.*|WAKEUP|"
    r"INCPERF.*|DECPERF.*|SETHALT|TTRACE.*|DCACHE_.*|GL1_INV|PREFETCH.*)$"
)
_CONDITIONS = {
    "S_BRANCH": 0,
    **{"S_CBRANCH_SCC0": 1, "S_CBRANCH_SCC1": 2, "S_CBRANCH_VCCZ": 3, "S_CBRANCH_VCCNZ": 4},
    **{"S_CBRANCH_EXECZ": 5, "S_CBRANCH_EXECNZ": 6},
}
_SIMPLE = {
    **{"S_ENDPGM": END, "S_ENDPGM_SAVED": END},
    **{"S_BARRIER": BARRIER, "S_BARRIER_SIGNAL": SIGNAL, "S_BARRIER_WAIT": WAIT},
    **{"S_GETPC_B64": GETPC, "S_SETPC_B64": SETPC, "S_SWAPPC_B64": SWAPPC},
    **{"BUFFER_INV": INVALIDATE, "BUFFER_WBL2": NOP, "GLOBAL_WB": NOP},
}
_OF_VECTORS = ("DS", "GLOBAL", "FLAT", "SCRATCH", "VGLOBAL", "VFLAT", "VSCRATCH")
_BUFFER, _MAD = 0x38, 0xD1C1  # encodings


def decode(code: CodeObject, pc: int) -> None:
    """Fill the entry of the instruction at `pc`.

    Raises
    ------
    UnsupportedInstructionError
        If the emulator lacks it.
    """
    entry, target = code.table[(pc - code.text) // 4], code.target
    raw = ctypes.string_at(pc, 20)
    name = _set_old(entry, raw, target)
    if name is None:
        emu = alu.tinygrad()
        try:
            instruction = emu.decode_inst(raw[:16], target.isa)
        except Exception as error:  # whatever tinygrad raises
            raise UnsupportedInstructionError(f"{raw[:8].hex()} at {pc - code.base:#x}: {error}") from error
        name = emu._op_name(instruction)
        entry.size = instruction.size()
        fields = Fields(instruction, raw)
        if not _set_flow(entry, name, fields, target) and not _set_access(entry, name, fields, target):
            function, arguments = alu.machine_code(instruction, raw, target.isa, target.lanes)
            entry.kind, entry.function, entry.num_arguments = ALU, function, len(arguments)
            entry.arguments[: len(arguments)] = arguments
    code.names[pc] = name


def _set_old(entry: Entry, raw: bytes, target: Target) -> str | None:
    """Fill the entry of an instruction that tinygrad does not know; return its name, or None for all others."""
    low, high = int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:8], "little")
    if low >> 26 == _BUFFER:  # RDNA 3: buffer_gl0_inv, buffer_gl1_inv; GFX9: buffer_wbinvl1, buffer_wbinvl1_vol
        operation = low >> 18 & 0x7F
        known = {0x2B: INVALIDATE, 0x2C: NOP} if target.isa == "rdna3" else {}
        if target.precedes_gfx940:
            known = {0x3E: INVALIDATE, 0x3F: INVALIDATE, 0x28: NOP, 0x29: NOP}
        if operation in known:
            entry.kind, entry.size = known[operation], 8
            return f"CACHE_{operation:#x}"
        if target.isa == "rdna3":
            raise UnsupportedInstructionError(f"buffer instruction {operation:#x}")
    if target.precedes_gfx940 and low >> 16 == _MAD:
        if low >> 15 & 1 or high >> 27 & 3:
            raise UnsupportedInstructionError("v_mad_f32 with clamp or omod")
        entry.kind, entry.size, entry.result, entry.sign, entry.half = MAD, 8, low & 255, low >> 8 & 7, high >> 29
        entry.data, entry.data1, entry.offset_register = high & 511, high >> 9 & 511, high >> 18 & 511
        return "V_MAD_F32"
    return None


def _set_flow(entry: Entry, name: str, fields: Fields, target: Target) -> bool:
    """Fill the entry of a branch, a barrier, a wait, or what concerns caches; return whether it was one."""
    if name in _SIMPLE:
        entry.kind = _SIMPLE[name]
        entry.data, entry.result = fields.get("ssrc0"), fields.get("sdst")
    elif name in ("GLOBAL_INV", "GLOBAL_WBINV"):
        entry.kind = INVALIDATE if fields.get("scope") else NOP
    elif _waits_for_stores(name, fields, target):
        entry.kind = DRAIN
    elif _NO_EFFECT.match(name):
        entry.kind = NOP
    elif name in _CONDITIONS:
        entry.kind, entry.condition, entry.target = BRANCH, _CONDITIONS[name], fields.signed("simm16")
    else:
        return False
    return True


def _set_access(entry: Entry, name: str, fields: Fields, target: Target) -> bool:
    """Fill the entry of an instruction that accesses memory; return whether it was one."""
    kind = fields.kind.__name__
    if kind == "SMEM":
        _set_scalar(entry, name, fields, target)
    elif kind in _OF_VECTORS and not re.search("PERMUTE|SWIZZLE", name):
        set_memory(entry, name, fields, target)
    elif kind == "MUBUF":
        set_scratch_buffer(entry, name, fields)
    else:
        return False
    return True


def _set_scalar(entry: Entry, name: str, fields: Fields, target: Target) -> None:
    if not name.startswith("S_LOAD_"):
        raise UnsupportedInstructionError(name)
    entry.kind, entry.base, entry.result = SMEM, 2 * fields.get("sbase"), fields.get("sdata")
    entry.bytes, entry.sign, _ = width_of(name)
    entry.offset = fields.signed("ioffset" if target.isa == "rdna4" else "offset")
    entry.offset_register = NO_REGISTER
    if target.is_gfx9:
        if not fields.get("imm"):
            entry.offset_register, entry.offset = fields.get("offset") & 127, 0
        elif fields.get("soffset_en"):
            entry.offset_register = fields.get("soffset")
    elif fields.get("soffset") != 124:  # null
        entry.offset_register = fields.get("soffset")


def _waits_for_stores(name: str, fields: Fields, target: Target) -> bool:
    """Whether an instruction waits until all stores to global memory are done."""
    bits = fields.get("simm16")
    if target.isa == "rdna4":
        names = ("S_WAIT_STORECNT", "S_WAIT_STORECNT_DSCNT", "S_WAIT_IDLE")
        return name in names and not (bits >> (8 if "DSCNT" in name else 0)) & 63
    if target.isa == "rdna3":
        return name == "S_WAIT_IDLE" or (name == "S_WAITCNT_VSCNT" and not bits)
    return name == "S_WAITCNT" and (bits & 15 | bits >> 14 << 4) == 0  # vmcnt, which counts stores as well
