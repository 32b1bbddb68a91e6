"""Cache files with checksums: whole, damaged, missing, and in the hands of another process."""

from __future__ import annotations

import os
import warnings

import pytest
from processes import run_python

from clhist.files import sealed
from clhist.files.sealed import (
    digest_of,
    drop_damaged,
    is_sealed_python,
    make_older,
    read_sealed,
    sealed_python,
    write_sealed,
)

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
def test_damaged_files_are_dropped_and_named(damage, tmp_path):
    file, seal = tmp_path / "file", tmp_path / "seal"
    file.write_bytes(b"some content of a program")
    write_sealed(seal, "key", digest_of(file))
    assert drop_damaged(file, seal, "key")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.warns(RuntimeWarning, match="its checksum is wrong"):
        assert not drop_damaged(file, seal, "key")
    assert not file.exists()


def test_files_that_another_process_has_not_sealed_yet_stay(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"half of a pro")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not drop_damaged(file, tmp_path / "seal", "key")
    assert file.exists()


def test_files_that_another_process_drops_too(tmp_path, monkeypatch):
    file, seal = tmp_path / "file", tmp_path / "seal"
    file.write_bytes(b"a program")
    write_sealed(seal, "key", b"the checksum of another")
    monkeypatch.setattr(sealed, "warn_of_damage", lambda path, reason: os.unlink(path))
    assert not drop_damaged(file, seal, "key")


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


WRITTEN_BY_ANOTHER = """
    import pyopencl.cache as cache
    from pathlib import Path
    from clhist._core.opencl.foreign_caches import check_pyopencl_caches

    check_pyopencl_caches()
    entry = Path(r"{}") / "entry"
    entry.mkdir()
    for name in ("source.cl", "binary"):
        (entry / name).write_bytes(b"half")
    print(cache.retrieve_from_cache(str(entry.parent), "entry"), sorted(path.name for path in entry.iterdir()))
"""


def test_programs_that_another_process_is_writing_stay(tmp_path):
    printed = run_python(WRITTEN_BY_ANOTHER.format(tmp_path), before="import warnings; warnings.simplefilter('error')")
    assert printed == "None ['binary', 'source.cl']\n"
