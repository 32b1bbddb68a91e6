"""Files that a first call makes, damaged: the next process makes them again, is right, and names each once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest
from processes import run_python

# Before clhist is imported, which looks at some of these files.
RECORD = """
    import warnings
    recorder = warnings.catch_warnings(record=True)
    seen = recorder.__enter__()
    warnings.simplefilter("always")
"""
CODE = """
    import json
    import numpy as np
    x = np.arange(100_000) % 7
    counts = clhist.bincount(x, queue=clhist.default_queue()).tolist()
    print(json.dumps([counts, [str(each.message) for each in seen if each.category is RuntimeWarning]]))
"""
PYOPENCL_FAILURES_RAISE = "warnings.filterwarnings('error', message='PyOpenCL compiler caching')"
# Read by nobody again: the source beside a binary, when a program was used last, and PoCL's spare files.
UNUSED = ("source.cl", "last_accessed", "tempfile")


def run(home: Path, before: str = "", through: tuple[str, ...] = (), **environment: str) -> list[str]:
    """Count in a process with this home, and return its warnings."""
    caches = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "POCL_CACHE_DIR": str(home / "pocl")}
    found, warned = json.loads(
        run_python(CODE, before=dedent(RECORD) + dedent(before), through=through, **caches | environment)
    )
    assert found == [14286] * 5 + [14285] * 2
    return warned


@pytest.fixture(scope="module", params=["of the tests", "that clhist finds"])
def home(request, tmp_path_factory):
    """The home of a process that found no caches, and of one that found these; on a runtime."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param != "of the tests":
            patched.delenv("OCL_ICD_VENDORS", raising=False)
        yield _filled(tmp_path_factory.mktemp("home"))


def _filled(found):
    for _ in range(2):
        assert run(found) == []
    return found


def flip(content: bytes) -> bytes:
    at = len(content) // 3
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a bit flipped": flip,
}


@pytest.mark.parametrize("damage", [*DAMAGES, "a directory"])
@pytest.mark.parametrize("seals", [False, True], ids=["files", "checksums"])
def test_damaged_files_are_made_again(damage, seals, home, tmp_path):
    shutil.copytree(home, tmp_path / "home")
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.stat().st_size]
    files = [path for path in files if not path.name.startswith(UNUSED) and (path.suffix == ".sha256") == seals]
    assert len(files) >= (2 if seals else 3)
    for path in files:
        content = path.read_bytes()
        if damage == "a directory":
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(DAMAGES[damage](content))
    warned = run(tmp_path / "home")
    for path in files:
        named = [text for text in warned if text.startswith((f"{path}: ", f"{path.with_suffix('')}: "))]
        assert len(named) == 1 or (path.suffix == ".icd" and any(str(path.parent) in text for text in warned)), path
    assert run(tmp_path / "home") == []


def test_first_calls_of_processes_at_once(tmp_path):
    """What one process is about to write is no damage to another."""
    with ThreadPoolExecutor(4) as pool:
        for turn in range(3):
            runs = [pool.submit(run, tmp_path / str(turn), PYOPENCL_FAILURES_RAISE) for _ in range(4)]
            assert [each.result() for each in runs] == [[]] * 4
            assert run(tmp_path / str(turn)) == []


def test_templates_that_are_newer_than_their_code(home, tmp_path):
    """A version that is installed again, or twice, shares the directory of its compiled templates."""
    shutil.copytree(home, tmp_path / "home")
    compiled = list((tmp_path / "home").rglob("*.mako.py"))
    assert compiled
    for path in compiled:
        os.utime(path, (0, 0))
    for _ in range(2):
        assert run(tmp_path / "home") == []
    assert all(path.stat().st_mtime for path in compiled)


def test_a_damaged_profile_of_ones_own(home):
    folder = home / "profiles"
    folder.mkdir(exist_ok=True)
    (folder / "mine.toml").write_text("name = ")
    (warned,) = run(home, CLHIST_PROFILES=str(folder))
    assert warned.startswith(f"{folder}/mine.toml: not valid TOML: ")


# Without the right of a superuser to go everywhere.
AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


@pytest.fixture
def closed(tmp_path):
    """Return a directory that may not be searched, and the command through which that holds."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    through = AS_A_USER if os.geteuid() == 0 else ()
    tried = subprocess.run([*through, "ls", str(folder)], capture_output=True, text=True, check=False)
    if "denied" not in tried.stderr:
        pytest.skip("this process cannot give up its rights")
    yield folder, through
    folder.chmod(0o700)


@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"])
def test_a_directory_that_may_not_be_searched(variable, closed):
    folder, through = closed
    unset = "".join(f"os.environ.pop({n!r}, None); " for n in ("POCL_CACHE_DIR", "XDG_CACHE_HOME", "CLHIST_PROFILES"))
    before = f"import os; {unset}os.environ[{variable!r}] = {str(folder)!r}"
    assert run(folder, before, through) == []


def test_a_cache_of_pocl_that_cannot_be_written(closed):
    folder, through = closed
    code = "import os; print(os.environ['POCL_CACHE_DIR'])" + CODE.replace("\n    ", "\n")
    place, printed = run_python(code, before=dedent(RECORD), through=through, POCL_CACHE_DIR=str(folder)).splitlines()
    assert place != str(folder)
    counts, warned = json.loads(printed)
    assert counts == [14286] * 5 + [14285] * 2
    assert [message.startswith(f"POCL_CACHE_DIR: '{folder}' cannot be written") for message in warned] == [True]
    strict = "import warnings; warnings.simplefilter('error')"
    with pytest.raises(AssertionError, match=rf"POCL_CACHE_DIR: '{folder}' cannot be written; PoCL compiles into"):
        run_python("", before=strict, through=through, POCL_CACHE_DIR=str(folder))
