"""Lock files of devices, in a folder that others can write to."""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace

import pyopencl as cl
import pytest

pytest.importorskip("dask", reason="Dask is not installed")

from clhist.dask import devices


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(devices, "_locks", locks := [])
    yield tmp_path
    for each in locks:
        os.close(each)


def lock_file(folder):
    return folder / f"clhist-{os.getuid()}-device-0.lock"


def test_one_process_takes_a_device_and_others_do_not(folder):
    assert devices._take(0)
    assert stat.S_IMODE(lock_file(folder).stat().st_mode) & 0o077 == 0
    assert not devices._take(0)
    os.close(devices._locks.pop())
    assert devices._take(0)  # the file is there still
    assert not os.get_inheritable(devices._locks[0])


@pytest.mark.parametrize("target", ["valuable", "nowhere"])
def test_links_are_not_followed(folder, target):
    (folder / "valuable").write_text("content")
    lock_file(folder).symlink_to(folder / target)
    assert not devices._take(0)
    assert (folder / "valuable").read_text() == "content"
    assert not (folder / "nowhere").exists()


def test_nothing_is_truncated(folder):
    lock_file(folder).write_text("content")
    assert devices._take(0)
    assert lock_file(folder).read_text() == "content"


def test_what_is_no_file_is_skipped(folder):
    lock_file(folder).mkdir()
    assert not devices._take(0)
    lock_file(folder).rmdir()
    os.mkfifo(lock_file(folder))
    assert not devices._take(0)


def test_another_user_s_file_is_skipped(folder, monkeypatch):
    lock_file(folder).touch()
    monkeypatch.setattr(devices.os, "getuid", lambda own=os.getuid(): own + 1)
    lock_file(folder).touch()  # of the name that the other user's would have, and owned by this one
    assert not devices._take(0)
    assert not devices._locks


def test_a_device_is_shared_where_no_lock_can_be_had(folder, monkeypatch):
    lock_file(folder).mkdir()
    taken = []
    monkeypatch.setattr(devices, "use_device", taken.append)
    devices.take_device(name="0")
    assert len(taken) == 1


def test_a_device_has_one_lock_whatever_the_filters(folder, monkeypatch):
    platform, taken = SimpleNamespace(name="CUDA"), []
    gpu = {"platform": platform, "type": cl.device_type.GPU}
    every = [SimpleNamespace(name=name, **gpu) for name in ("A100 0", "A100 1", "H100")]
    monkeypatch.setattr(
        devices, "devices", lambda platform=None, device=None: [each for each in every if (device or "") in each.name]
    )
    monkeypatch.setattr(devices, "use_device", taken.append)
    monkeypatch.setattr(devices, "_device", str)
    for name in ("H100", None, "A100", "H100"):
        devices.take_device(device=name, name="0")
    assert [each.name for each in taken] == ["H100", "A100 0", "A100 1", "H100"]
