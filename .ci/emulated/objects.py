"""A code object in memory: its kernels, as their descriptors and notes say, ready to be executed where it lies."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from emulated.compiler import CompileError, compile_for, disassembly
from emulated.notes import unpacked
from emulated.tables import Entry
from emulated.targets import Target

_LOAD, _NOTE = 1, 4  # types of segments
_PROGRAM, _SYMBOLS, _RELOCATIONS = 1, (2, 11), 4  # types of sections
_RELATIVE = 13  # R_AMDGPU_RELATIVE64
_PAGE = 4096


@dataclass(frozen=True)
class Kernel:
    """A kernel, as its descriptor (64 bytes) and its notes say.

    Attributes
    ----------
    name : str
        As in the source.
    entry : int
        Address of its first instruction.
    local_bytes, scratch_bytes, argument_bytes : int
        Local memory, scratch memory of a work-item, and the segment of arguments.
    rsrc1, rsrc2, properties, preloaded : int
        Words of the descriptor that say which registers are set at its start.
    arguments : tuple of dict
        Offset, size and kind of each argument, hidden ones among them.
    required_group : tuple of int or None
        Of ``reqd_work_group_size``.
    largest_group : int
        Work-items that it was compiled for.
    """

    name: str
    entry: int
    local_bytes: int
    scratch_bytes: int
    argument_bytes: int
    rsrc1: int
    rsrc2: int
    properties: int
    preloaded: int
    arguments: tuple[dict[str, Any], ...]
    required_group: tuple[int, ...] | None
    largest_group: int

    @property
    def visible(self) -> list[dict[str, Any]]:
        """The arguments that a caller gives."""
        return [each for each in self.arguments if not each[".value_kind"].startswith("hidden_")]


class CodeObject:
    """A code object, loaded and relocated.

    Attributes
    ----------
    base, size : int
        Where it lies.
    text, text_size : int
        Its instructions.
    table : array of Entry
        What each instruction does: one for each 4 bytes, filled when it is first reached.
    names : dict of int to str
        Instructions that were reached, by their addresses.
    kernels : dict of str to Kernel
        By their names.
    """

    def __init__(self, file: Path, target: Target) -> None:
        self.file, self.target = file, target
        data = file.read_bytes()
        if data[:4] != b"\x7fELF":
            raise ValueError(f"{file}: expected a code object, got {data[:4]!r}")
        segments, sections = _headers(data)
        loaded = [each for each in segments if each[0] == _LOAD]
        self.size = max(each[3] + each[6] for each in loaded) + _PAGE
        self._image = np.zeros(self.size + _PAGE, np.uint8)
        self.base = -(-self._image.ctypes.data // _PAGE) * _PAGE
        for _, _, offset, address, _, size, *_ in loaded:
            ctypes.memmove(self.base + address, data[offset : offset + size], size)
        self._relocate(data, sections)
        self.kernels = self._kernels(data, segments, _symbols(data, sections))
        text = next(each for each in sections if each[1] == _PROGRAM and each[2] & 4)
        self.text, self.text_size = self.base + text[3], text[5]
        self.table = (Entry * (self.text_size // 4 + 4))()
        self.names: dict[int, str] = {}

    def _relocate(self, data: bytes, sections: Sequence[tuple[int, ...]]) -> None:
        for section in sections:
            if section[1] != _RELOCATIONS:
                continue
            for at in range(section[4], section[4] + section[5], 24):
                offset, kind, addend = struct.unpack_from("<QQq", data, at)
                if kind & 0xFFFFFFFF != _RELATIVE:
                    raise CompileError(f"relocation of kind {kind & 0xFFFFFFFF}")
                ctypes.c_uint64.from_address(self.base + offset).value = self.base + addend

    def _kernels(self, data: bytes, segments: Sequence[tuple[int, ...]], symbols: dict[str, int]) -> dict[str, Kernel]:
        note = next(each for each in segments if each[0] == _NOTE)[2]
        name_size, size, _ = struct.unpack_from("<III", data, note)
        start = note + 12 + -(-name_size // 4) * 4
        said, _ = unpacked(data[start : start + size])
        found = {}
        for each in said["amdhsa.kernels"]:
            address = self.base + symbols[each[".symbol"]]
            words = ctypes.string_at(address, 64)
            local_bytes, scratch_bytes, argument_bytes = struct.unpack_from("<III", words)
            (entry,) = struct.unpack_from("<q", words, 16)
            _, rsrc1, rsrc2, properties, preloaded = struct.unpack_from("<IIIHH", words, 44)
            required = each.get(".reqd_workgroup_size")
            found[each[".name"]] = Kernel(
                each[".name"],
                address + entry,
                local_bytes,
                scratch_bytes,
                each.get(".kernarg_segment_size", argument_bytes),
                rsrc1,
                rsrc2,
                properties,
                preloaded,
                tuple(each.get(".args", ())),
                tuple(required) if required else None,
                each.get(".max_flat_workgroup_size", 1024),
            )
        return found

    def around(self, pc: int) -> str:
        """Return the lines of the disassembly that lead to an address."""
        lines = disassembly(self.target, self.file).splitlines()
        found = [k for k, line in enumerate(lines) if f"// {pc - self.base:012X}:" in line]
        return "\n".join(line.strip() for k in found for line in lines[max(0, k - 8) : k + 3])


def _headers(data: bytes) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the program headers and the section headers of an ELF file of 64 bits."""
    first_segment, first_section = struct.unpack_from("<QQ", data, 32)
    segment_size, num_segments, section_size, num_sections = struct.unpack_from("<HHHH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, first_segment + k * segment_size) for k in range(num_segments)]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, first_section + k * section_size) for k in range(num_sections)]
    return segments, sections


def _symbols(data: bytes, sections: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Return the addresses of all symbols."""
    found = {}
    for section in sections:
        if section[1] not in _SYMBOLS:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            found[data[names + name : data.index(b"\0", names + name)].decode()] = value
    return found


@cache
def _loaded(target: Target, file: Path) -> CodeObject:
    return CodeObject(file, target)


def load(target: Target, source: str, options: Sequence[str] = ()) -> CodeObject:
    """Return a program compiled for a target, loaded once."""
    return _loaded(target, compile_for(target, source, options))
