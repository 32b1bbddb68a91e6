"""MessagePack, as far as the notes of AMD's code objects use it."""

from __future__ import annotations

import struct
from typing import Any

_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_WORDS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def unpacked(data: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value at a position, and the position behind it.

    Raises
    ------
    ValueError
        For a type that AMD's notes do not have.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    if byte < 0x90:
        return _table(data, at + 1, byte & 15)
    if byte < 0xA0:
        return _array(data, at + 1, byte & 15)
    if byte < 0xC0:
        return _text(data, at + 1, byte & 31)
    if byte >= 0xE0:
        return byte - 256, at + 1
    if byte in _WORDS:
        return _WORDS[byte], at + 1
    form = _NUMBERS.get(byte) or _LENGTHS.get(byte)
    if form is None:
        raise ValueError(f"MessagePack: unexpected byte {byte:#x} at {at}")
    (number,), behind = struct.unpack_from(form, data, at + 1), at + 1 + struct.calcsize(form)
    if byte in _NUMBERS:
        return number, behind
    return (_text if byte < 0xDC else _array if byte < 0xDE else _table)(data, behind, number)


def _text(data: bytes, at: int, n: int) -> tuple[str, int]:
    return data[at : at + n].decode(), at + n


def _array(data: bytes, at: int, n: int) -> tuple[list[Any], int]:
    found = []
    for _ in range(n):
        value, at = unpacked(data, at)
        found.append(value)
    return found, at


def _table(data: bytes, at: int, n: int) -> tuple[dict[Any, Any], int]:
    found = {}
    for _ in range(n):
        key, at = unpacked(data, at)
        found[key], at = unpacked(data, at)
    return found, at
