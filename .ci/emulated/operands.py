"""Operands of vector instructions that access memory: space, width, address, data, and the atomic operation."""

from __future__ import annotations

import re
from typing import Any

from emulated.alu import UnsupportedInstructionError
from emulated.tables import (
    ATOMIC,
    ATOMICS,
    GLOBAL,
    LDS,
    LOAD,
    LOAD2,
    MEM,
    NO_REGISTER,
    SCRATCH,
    STORE,
    STORE2,
    Entry,
)
from emulated.targets import Target

_BYTES = {
    **{"UBYTE": 1, "SBYTE": 1, "BYTE": 1, "U8": 1, "I8": 1, "B8": 1},
    **{"USHORT": 2, "SSHORT": 2, "SHORT": 2, "U16": 2, "I16": 2, "B16": 2},
    **{"DWORD": 4, "DWORDX2": 8, "DWORDX3": 12, "DWORDX4": 16, "DWORDX8": 32, "DWORDX16": 64},
    **{"B32": 4, "B64": 8, "B96": 12, "B128": 16, "B256": 32, "B512": 64},
}
_OPERATIONS = {
    **{"WRXCHG": "SWAP", "STOREXCHG": "SWAP", "SWAP": "SWAP"},
    **{"CMPST": "CMPSWAP", "CMPSTORE": "CMPSWAP", "CMPSWAP": "CMPSWAP"},
    **{name: name for name in ("SMIN", "SMAX", "UMIN", "UMAX", "SUB", "RSUB", "AND", "OR", "XOR", "INC", "DEC")},
    **{"MIN_NUM": "FMINNUM", "MAX_NUM": "FMAXNUM"},
}


_LAST_SGPR = 101


class Fields:
    """The fields of an encoded instruction, as numbers.

    Parameters
    ----------
    instruction
        As tinygrad decodes it.
    raw : bytes
        Its encoding.
    """

    def __init__(self, instruction: Any, raw: bytes) -> None:
        self.kind = type(instruction)
        self.number = int.from_bytes(raw[: instruction.size()], "little")

    def get(self, name: str) -> int:
        """Return a field without a sign; 0 if there is none of this name."""
        field = getattr(self.kind, name, None)
        return 0 if field is None else (self.number >> field.lo) & ((1 << (field.hi - field.lo + 1)) - 1)

    def signed(self, name: str) -> int:
        """Return a field with a sign."""
        field, value = getattr(self.kind, name), self.get(name)
        width = field.hi - field.lo + 1
        return value - (1 << width) if value >> (width - 1) else value


def width_of(name: str) -> tuple[int, bool, int]:
    """Return bytes, whether they are signed, and the half of a register, of a load's or a store's name.

    The half is 0 for a whole register, 1 for its lower and 2 for its upper one.
    """
    half = 2 if "D16_HI" in name else 1 if "D16" in name else 0
    word = name.replace("_D16_HI", "").replace("_D16", "").split("_")[-1]
    if word not in _BYTES:
        raise UnsupportedInstructionError(name)
    return _BYTES[word], word in ("SBYTE", "SSHORT", "I8", "I16"), half


def atomic_of(name: str) -> tuple[int, int, bool]:
    """Return operation, bytes, and whether the comparison comes first, of what follows ``ATOMIC_`` or ``DS_``."""
    name = name.replace("_RTN", "")
    stem = re.sub(r"_(X2|[UIBF]?(32|64))$", "", name)
    is_float, is_signed = bool(re.search(r"_F(32|64)$", name)), bool(re.search(r"_I(32|64)$", name))
    operation = _OPERATIONS.get(stem)
    if stem == "ADD":
        operation = "FADD" if is_float else "ADD"
    elif stem in ("MIN", "MAX"):
        operation = f"{'F' if is_float else 'S' if is_signed else 'U'}{stem}"
    if operation is None or (is_float and stem.startswith("CMP")):
        raise UnsupportedInstructionError(f"atomic {name}")
    return ATOMICS.index(operation), 8 if name.endswith(("_X2", "64")) else 4, stem == "CMPST"


def set_memory(entry: Entry, name: str, fields: Fields, target: Target) -> None:
    """Fill the entry of an instruction on local, global or scratch memory."""
    entry.kind, entry.base, entry.accumulators = MEM, NO_REGISTER, fields.get("acc")
    entry.result = fields.get("vdst")
    if fields.kind.__name__ == "DS":
        _set_local(entry, name, fields)
    elif fields.kind.__name__ == "FLAT":
        raise UnsupportedInstructionError(f"{name}: generic addresses")
    else:
        _set_addressed(entry, name, fields, target)


def _set_local(entry: Entry, name: str, fields: Fields) -> None:
    if fields.get("gds"):
        raise UnsupportedInstructionError(f"{name} of all groups")
    entry.space, entry.address = LDS, fields.get("addr")
    entry.data, entry.data1 = fields.get("data0"), fields.get("data1")
    first, second = fields.get("offset0"), fields.get("offset1")
    entry.offset, stem = first | second << 8, name.removeprefix("DS_")
    if two := re.match(r"(READ|WRITE|LOAD|STORE)(2|_2ADDR)(ST64|_STRIDE64)?_B(32|64)$", stem):
        entry.access = LOAD2 if two[1] in ("READ", "LOAD") else STORE2
        entry.bytes = int(two[4]) // 8
        scale = entry.bytes * (64 if two[3] else 1)
        entry.offset, entry.offset1 = first * scale, second * scale
    elif re.match(r"(READ|LOAD|WRITE|STORE)_", stem):
        if "ADDTID" in stem or "_TR_" in stem:
            raise UnsupportedInstructionError(name)
        entry.access = LOAD if stem.startswith(("READ", "LOAD")) else STORE
        entry.bytes, entry.sign, entry.half = width_of(stem)
    else:
        entry.access, entry.returns = ATOMIC, "_RTN" in stem
        entry.atomic, entry.bytes, entry.swapped = atomic_of(stem)


def _set_addressed(entry: Entry, name: str, fields: Fields, target: Target) -> None:
    rdna4 = target.isa == "rdna4"
    entry.data = fields.get("vsrc" if rdna4 else "data")
    address, base = fields.get("vaddr" if rdna4 else "addr"), fields.get("saddr")
    has_base = base != 127 if target.is_gfx9 else base < 124
    entry.offset, entry.base = fields.signed("ioffset" if rdna4 else "offset"), base if has_base else NO_REGISTER
    if "SCRATCH" in fields.kind.__name__:
        uses = fields.number >> 13 & 1 if target.is_gfx9 else fields.get("sve")
        entry.space, entry.address = SCRATCH, address if uses else NO_REGISTER
        stem = name.removeprefix("SCRATCH_")
    else:
        entry.space, entry.address, entry.wide = GLOBAL, address, not has_base
        stem = name.removeprefix("GLOBAL_")
    bits = {"rdna4": "scope", "rdna3": "glc"}
    around = fields.get(bits[target.isa]) if target.isa in bits else fields.number >> 16 & 1 or fields.number >> 25 & 1
    entry.bypass = bool(around)
    if stem.startswith("ATOMIC_"):
        entry.access = ATOMIC
        entry.returns = fields.get("th") & 1 if rdna4 else fields.get("glc" if target.isa == "rdna3" else "sc0")
        entry.atomic, entry.bytes, _ = atomic_of(stem.removeprefix("ATOMIC_"))
    elif re.search("LDS|ADDTID|_TR_|BLOCK", stem):
        raise UnsupportedInstructionError(name)
    else:
        entry.access = LOAD if stem.startswith("LOAD") else STORE
        entry.bytes, entry.sign, entry.half = width_of(stem)


def set_scratch_buffer(entry: Entry, name: str, fields: Fields) -> None:
    """Fill the entry of an access to scratch memory by a buffer descriptor in the first four SGPRs (before gfx940)."""
    stem = name.removeprefix("BUFFER_")
    is_plain = stem.startswith(("LOAD", "STORE")) and "FORMAT" not in stem
    stack = fields.get("soffset")  # a register of functions that are called, in bytes of all lanes; 128 is none
    if not is_plain or fields.get("srsrc") or fields.get("idxen") or _LAST_SGPR < stack != 128:
        raise UnsupportedInstructionError(name)
    entry.kind, entry.space = MEM, SCRATCH
    entry.base, entry.of_all_lanes = (NO_REGISTER, 0) if stack == 128 else (stack, 1)
    entry.access = LOAD if stem.startswith("LOAD") else STORE
    entry.bytes, entry.sign, entry.half = width_of(stem)
    entry.result = entry.data = fields.get("vdata")
    entry.accumulators = fields.get("acc")
    entry.offset = fields.get("offset")
    entry.address = fields.get("vaddr") if fields.get("offen") else NO_REGISTER
