"""Cache files with checksums: whole, damaged, and missing."""

from __future__ import annotations

import pytest

from clhist.files import sealed
from clhist.files.sealed import read_sealed, write_sealed

DAMAGES = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a bit flipped": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch):
    monkeypatch.setattr(sealed, "_named", set())


def test_files_are_read_as_they_were_written(tmp_path):
    write_sealed(tmp_path / "file", "key", b"content")
    assert read_sealed(tmp_path / "file", "key") == b"content"
    assert read_sealed(tmp_path / "no file", "key") is None
    with pytest.warns(RuntimeWarning, match="file: a damaged file of a cache"):
        assert read_sealed(tmp_path / "file", "another key") is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_not_read_and_named(damage, tmp_path):
    write_sealed(tmp_path / "file", "key", b"some content of a program")
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(DAMAGES[damage](content))
    with pytest.warns(RuntimeWarning, match="its checksum is wrong"):
        assert read_sealed(tmp_path / "file", "key") is None
    write_sealed(tmp_path / "file", "key", b"some content of a program")
    assert (tmp_path / "file").read_bytes() == content
