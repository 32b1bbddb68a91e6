"""Cache files with checksums: whole, damaged, and missing."""

from __future__ import annotations

import pytest

from clhist.files import sealed
from clhist.files.sealed import is_sealed_python, make_older, read_sealed, sealed_python, write_sealed

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


@pytest.mark.parametrize("source", [b"", b"x = 1", b"x = 1\n", "x = 'é'\n\n".encode()])
def test_python_is_its_own_seal(source, tmp_path):
    file = tmp_path / "code.py"
    file.write_bytes(sealed_python(source, "key"))
    compile(file.read_bytes(), "code.py", "exec")
    assert is_sealed_python(file, "key")
    assert not is_sealed_python(tmp_path / "missing.py", "key")
    with pytest.warns(RuntimeWarning, match="its checksum is wrong"):
        assert not is_sealed_python(file, "another key")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_python_is_named_and_older_than_its_source(damage, tmp_path):
    file = tmp_path / "code.py"
    file.write_bytes(DAMAGES[damage](sealed_python(b"x = 1\n" * 99, "key")))
    with pytest.warns(RuntimeWarning, match="its checksum is wrong"):
        assert not is_sealed_python(file, "key")
    make_older(file)
    assert file.stat().st_mtime == 0
    file.unlink()
    make_older(file)  # another process has removed it
    file.mkdir()
    sealed._named.clear()
    with pytest.warns(RuntimeWarning):
        assert not is_sealed_python(file, "key")
    make_older(file)
    assert not file.exists()
