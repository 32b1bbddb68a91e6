"""A home that cannot be written, or is full: clhist works without caches there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pyopencl as cl
import pytest
from covering import mostly_slow
from processes import run_python

from clhist import NoDeviceError
from clhist._core.opencl import caches, device

COUNTS = """
    import json, os, numpy as np
    x = np.array([3, 1, 3, 3, 0])
    variables = [os.environ.get(name) for name in ("PYOPENCL_NO_CACHE", "POCL_CACHE_DIR")]
    print(json.dumps([*variables, clhist.bincount(x, queue=clhist.default_queue()).tolist()]))
"""
SORTS = COUNTS.replace(
    "clhist.bincount(x, queue=clhist.default_queue())", 'clhist.reduce_by_index(4, "a + b", x, 1, update="sort")'
)

# In a name space of their own, where who is no superuser may mount, too.
MOUNTS = {
    "a read-only mount": 'mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME"',
    "a tiny file system": 'mount -t tmpfs -o size=16k tmpfs "$HOME"',
    "a full file system": 'mount -t tmpfs -o size=128m tmpfs "$HOME" && head -c 127m /dev/zero > "$HOME/data"',
}


@pytest.fixture
def no_variables(monkeypatch):
    for name in ("PYOPENCL_NO_CACHE", "POCL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def check_without_caches(found):
    no_cache, pocl, counts = json.loads(found)
    assert counts == [1, 1, 0, 3]
    assert no_cache == "1"
    assert pocl
    assert not Path(pocl).parent.exists()  # it was of that process


@pytest.mark.skipif(os.name != "posix", reason="caches are elsewhere")
@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("variable", "before", "code"),
    mostly_slow([("HOME", "", SORTS), ("XDG_CACHE_HOME", "import pyopencl.array", COUNTS)], 2),
)
def test_no_directory_can_be_made(variable, before, code, tmp_path):
    (tmp_path / "file").touch()
    check_without_caches(run_python(code, before=before, **{variable: str(tmp_path / "file" / "home")}))


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("mount", mostly_slow(list(MOUNTS)))
def test_a_home_on(mount, tmp_path):
    through = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTS[mount] + ' && exec "$@"', "sh"]
    home = {**os.environ, "HOME": str(tmp_path)}
    if not shutil.which("unshare") or subprocess.run([*through, "true"], env=home, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    check_without_caches(run_python(COUNTS, through=through, HOME=str(tmp_path)))


@pytest.mark.skipif(os.name != "posix", reason="caches are elsewhere")
def test_what_the_user_has_set_stays(monkeypatch, no_variables, tmp_path):
    for name in ("PYOPENCL_NO_CACHE", "POCL_CACHE_DIR"):
        monkeypatch.setenv("HOME", "/dev/null/home")
        assert name in caches.unwritable_caches()
        monkeypatch.setenv(name, str(tmp_path))
        assert name not in caches.unwritable_caches()


@pytest.mark.usefixtures("no_variables")
def test_caches_are_kept_where_they_can_be(monkeypatch, tmp_path):
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    assert caches.unwritable_caches() == []
    assert not list(tmp_path.iterdir())  # trying leaves nothing


def test_a_user_without_a_home():
    assert not caches.is_writable(Path("~/.cache"))


def test_no_device_because_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(cl, "get_platforms", lambda: [])
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    with pytest.raises(NoDeviceError, match=r"apt-get install pocl-opencl-icd\)$"):
        device.platforms()
    (tmp_path / "file").touch()
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(NoDeviceError, match=r"file.cache cannot be written: let POCL_CACHE_DIR name a directory"):
        device.platforms()


def test_sorting_is_imported_when_it_is_used():
    found = "[name for name in ('scan', 'algorithm') if 'pyopencl.' + name in sys.modules]"
    assert run_python(f"from clhist import *; print({found})") == "[]\n"
