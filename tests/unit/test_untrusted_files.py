"""Files that anyone may have written: refused with their name, before memory is taken or anything is waited for."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from clhist import Partial, Spec, operators
from clhist._core.devices.profile_files import load_profiles
from clhist.cases.atom_types import read_atom_types
from clhist.cases.files import read_image, read_table
from clhist.cases.gro_file import read_gro
from clhist.cli.hist.tables import open_table
from clhist.errors import ProfileError
from clhist.files.arrays import only_key, read_npz
from clhist.files.regular import read_text
from clhist.files.table import TableError

PAIR = operators.mean(np.float32)
SPEC = Spec(PAIR, 7)


def npy(array=None, *, shape=None, dtype="<f8"):
    file = io.BytesIO()
    if array is not None:
        np.lib.format.write_array(file, array, allow_pickle=False)
    else:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.fixture
def members(tmp_path):
    """Return the members of a partial result's file, and a function that writes them, changed, to another."""
    SPEC.empty().save(tmp_path / "good.npz")
    with zipfile.ZipFile(tmp_path / "good.npz") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}

    def write(compression=zipfile.ZIP_STORED, **changed):
        path = tmp_path / "bad.npz"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, data in (content | {f"{key}.npy": value for key, value in changed.items()}).items():
                archive.writestr(name, data)
        return path

    return content, write


def test_what_was_saved_is_read(members, tmp_path):
    for found in (SPEC.load(tmp_path / "good.npz"), Partial.load(tmp_path / "good.npz", PAIR)):
        assert found.arrays[0].dtype == SPEC.empty().arrays[0].dtype
        assert found.arrays[0].flags.writeable
        assert (found.size, found.values, found.positions) == (0, 0, ())


def check_refused(path, says):
    """Check that a file is refused before much memory is taken."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=says):
            SPEC.load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2**40,), (2**31,), (2**62, 2**62), (-1,), (3,), (7, 1)])
def test_no_memory_is_taken_for_what_a_header_claims(members, shape):
    _, write = members
    dtype = np.lib.format.dtype_to_descr(SPEC.empty().arrays[0].dtype)
    path = write(accumulators0=npy(shape=shape, dtype=dtype) + bytes(56))
    check_refused(path, r"bad\.npz: expected ")


def test_a_bomb_of_deflated_zeros(members):
    _, write = members
    count = 2**24
    bomb = npy(np.zeros(count, SPEC.empty().arrays[0].dtype))
    path = write(zipfile.ZIP_DEFLATED, accumulators0=bomb)
    assert path.stat().st_size < len(bomb) // 500
    del bomb
    check_refused(path, r"bad\.npz: .*uncompressed")


def described(content, **changed):
    text = json.loads(str(np.load(io.BytesIO(content["description.npy"]))))
    return npy(np.array(json.dumps(text | changed)))


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 3},
        {"format": "\x1b]0;title\x07" * 1000},
        {"size": -1},
        {"size": True},
        {"size": 1e300},
        {"values": "many"},
        {"positions": 7},
        {"positions": [[0, 5]]},
        {"positions": [[0]]},
        {"positions": "ab"},
        {"outputs": []},
        {"outputs": 5},
        {"outputs": [5]},
        {"outputs": [["name", "operator", "fingerprint", "num_bins"]]},
        {"outputs": [{"name": "", "operator": "\x1b[2J" * 99, "fingerprint": "0", "num_bins": [7]}]},
    ],
    ids=lambda changed: repr(changed)[:40],
)
def test_descriptions_that_contradict(members, changed):
    content, write = members
    with pytest.raises(ValueError, match=r"bad\.npz: expected ") as caught:
        SPEC.load(write(description=described(content, **changed)))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "nothing", "[]", "\ud800", "NaN"])
def test_descriptions_that_are_none(members, text):
    _, write = members
    with pytest.raises(ValueError, match=r"bad\.npz: expected "):
        SPEC.load(write(description=npy(np.array(text))))


@pytest.mark.parametrize("array", [np.array([1.0]), np.zeros(7, bool), np.array(["x"] * 7), np.zeros((7, 2), "M8[s]")])
def test_accumulators_of_other_types(members, array):
    _, write = members
    with pytest.raises(ValueError, match=r"bad\.npz: expected "):
        SPEC.load(write(accumulators0=npy(array)))


def test_pickles_are_refused(members):
    _, write = members
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([{}] * 7, object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"bad\.npz: expected "):
        SPEC.load(write(accumulators0=file.getvalue()))
    with pytest.raises(ValueError, match=r"bad\.npz: expected "):
        SPEC.load(write(description=file.getvalue()))


def test_any_damage_is_a_value_error(members, tmp_path):
    good = (tmp_path / "good.npz").read_bytes()
    rng, path, refused = random.Random(1), tmp_path / "bad.npz", []
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            if rng.random() < 0.1:
                del data[at : at + rng.randrange(1, 200)]
            elif rng.random() < 0.5:
                data[at] = rng.randrange(256)
            else:
                data[at : at + 4] = struct.pack("<I", rng.choice([0, 1, 2**16, 2**31, 2**32 - 1]))
        path.write_bytes(data)
        try:
            SPEC.load(path)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 500
    assert all(text.startswith(f"{path}: expected ") for text in refused)


def test_an_encrypted_member(members):
    _, write = members
    path = write()
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(mark, at + 1)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"bad\.npz: expected what clhist\.Partial\.save wrote"):
        SPEC.load(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + bytes(18), bytes(1000)])
def test_what_is_no_archive(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.npz: expected what clhist\.Partial\.save wrote"):
        SPEC.load(tmp_path / "bad.npz")
    with pytest.raises(FileNotFoundError):
        SPEC.load(tmp_path / "none.npz")


def test_arrays_of_compressed_files_are_read_where_that_is_usual(tmp_path):
    x = np.arange(1000.0)
    np.savez_compressed(tmp_path / "x.npz", x=x)
    assert (read_npz(tmp_path / "x.npz", ["x"])["x"] == x).all()
    with pytest.raises(ValueError, match="x: expected uncompressed bytes"):
        read_npz(tmp_path / "x.npz", ["x"], compressed=False)


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/", "pipe"])
def test_only_regular_files_are_opened(tmp_path, target):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x.npz").symlink_to(tmp_path / target)
    for read in (Partial.load, SPEC.load, lambda path: read_npz(path, ["x"]), only_key):
        with pytest.raises(ValueError, match=r"expected a regular file"):
            read(tmp_path / "x.npz")
    if target == "/":
        return
    with pytest.raises(ValueError, match=r"x\.npz: expected a regular file"):
        SPEC.empty().save(tmp_path / "x.npz")


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/", "pipe"])
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "x.png", "x.gro", "x.parquet"])
def test_tables_images_and_structures_are_regular_files(tmp_path, name, target):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to(tmp_path / target)
    readers = [open_table] if name not in ("x.png", "x.gro") else []
    readers += {"x.png": [read_image], "x.npy": [read_image, read_table], "x.gro": [read_gro, read_atom_types]}.get(
        name, [] if name == "x.parquet" else [read_table]
    )
    for read in readers:
        with pytest.raises((ValueError, TableError), match=rf"{name}: expected a regular file"):
            read(tmp_path / name)


@pytest.mark.parametrize("number", [0, 3, True, b"x.npz", None])
def test_numbers_of_open_files_are_no_paths(tmp_path, number):
    with open(tmp_path / "other", "w") as other:
        for read in (Partial.load, SPEC.load, SPEC.empty().save, lambda path: read_npz(path, ["x"])):
            with pytest.raises(TypeError, match=r"^file: expected a path, got "):
                read(other.fileno() if number == 3 else number)
        os.fstat(other.fileno())  # still open


@pytest.mark.parametrize("order", "<>")
def test_text_that_is_none(members, tmp_path, order):
    _, write = members
    text = np.array(["a", "bc"], f"{order}U2")
    np.savez(tmp_path / "x.npz", x=text)
    assert read_npz(tmp_path / "x.npz", ["x"], kinds="U")["x"].tolist() == ["a", "bc"]
    bad = np.array([0x110000], f"{order}u4").view(f"{order}U1")
    path = write(description=npy(bad.reshape(())))
    with pytest.raises(ValueError, match=r"bad\.npz: expected .*text of Unicode"):
        SPEC.load(path)


def test_a_saved_file_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    SPEC.empty().save(path)
    path.chmod(0o640)
    (tmp_path / "link.npz").symlink_to("a.npz")
    SPEC.empty().save(tmp_path / "link.npz")
    assert path.stat().st_mode & 0o777 == 0o640
    before = path.read_bytes()

    def crash(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.savez", crash)
    with pytest.raises(KeyboardInterrupt):
        SPEC.empty().save(path)
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.npz", "link.npz"]


# Texts.


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    return tmp_path


def test_a_pipe_is_not_waited_for(profiles):
    os.mkfifo(profiles / "x.toml")
    with pytest.raises(ProfileError, match=r"x\.toml: expected a regular file$"):
        load_profiles()


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/"])
def test_a_link_to_what_is_no_file(profiles, target):
    (profiles / "x.toml").symlink_to(target)
    with pytest.raises(ProfileError, match=r"x\.toml: expected a regular file$"):
        load_profiles()


def test_a_link_to_nothing_and_text_that_is_none(profiles):
    (profiles / "x.toml").symlink_to("nowhere")
    with pytest.raises(ProfileError, match=r"x\.toml: cannot be read"):
        load_profiles()
    (profiles / "x.toml").unlink()
    (profiles / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match=r"x\.toml: cannot be read"):
        load_profiles()


def test_a_text_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "a").write_text("äb")
    assert read_text(tmp_path / "a", 3) == "äb"
    with pytest.raises(ValueError, match=r"^expected at most 2 bytes, got 3$"):
        read_text(tmp_path / "a", 2)
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "b", 3) == "äb"
