"""MessagePack, by its specification."""

import struct

import pytest
from emulated.notes import unpacked


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\xff", -1),
        (b"\xe0", -32),
        (b"\xc0", None),
        (b"\xc2", False),
        (b"\xc3", True),
        (b"\xcc\xff", 255),
        (b"\xcd\x01\x00", 256),
        (b"\xce\x00\x01\x00\x00", 65536),
        (b"\xcf" + struct.pack(">Q", 2**40), 2**40),
        (b"\xd0\x80", -128),
        (b"\xd3" + struct.pack(">q", -(2**40)), -(2**40)),
        (b"\xa3abc", "abc"),
        (b"\xd9\x03abc", "abc"),
        (b"\xda\x00\x03abc", "abc"),
        (b"\x92\x01\xa1x", [1, "x"]),
        (b"\xdc\x00\x02\x01\x02", [1, 2]),
        (b"\x81\xa1k\x92\x01\x02", {"k": [1, 2]}),
        (b"\xde\x00\x01\xa1k\x81\x01\x02", {"k": {1: 2}}),
    ],
)
def test_each_type_of_the_specification(data, value):
    assert unpacked(b"?" + data + b"?", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("byte", [0xC1, 0xC4, 0xCA, 0xD4])
def test_what_notes_do_not_have_is_an_error(byte):
    with pytest.raises(ValueError, match=f"unexpected byte {byte:#x} at 0"):
        unpacked(bytes([byte, 0, 0, 0, 0]))
