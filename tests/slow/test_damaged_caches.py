"""Files that a first call makes, damaged: the next process makes them again, is right, and names each once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest
from processes import run_python

from clhist.files.sealed import write_sealed

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
POCL_RECORD = "clhist-kernels.sha256"
UNUSED = ("source.cl", "last_accessed", "tempfile")


def run(home: Path, before: str = "", through: tuple[str, ...] = (), **environment: str) -> list[str]:
    """Count in a process with this home, and return its warnings."""
    caches = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "POCL_CACHE_DIR": str(home / "pocl")}
    caches["PYTHONDONTWRITEBYTECODE"] = ""  # Python may store bytecode, as it does by default
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


def used_files(home: Path) -> list[Path]:
    files = [path for path in home.rglob("*") if path.is_file() and path.stat().st_size]
    return [path for path in files if not path.name.startswith(UNUSED) and path.name != POCL_RECORD]


@pytest.mark.parametrize("damage", [*DAMAGES, "a directory"])
def test_damaged_files_are_made_again(damage, home, tmp_path):
    shutil.copytree(home, tmp_path / "home")
    files = used_files(tmp_path / "home")
    assert len(files) >= 2
    check_damaged(files, damage, tmp_path / "home")


def check_damaged(files: list[Path], damage: str, home: Path, **environment: str) -> None:
    for path in files:
        content = path.read_bytes()
        if damage == "a directory":
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(DAMAGES[damage](content))
    warned = run(home, **environment)
    for path in files:
        named = [text for text in warned if text.startswith(f"{path}: ")]
        assert len(named) == 1 or (path.suffix == ".icd" and any(str(path.parent) in text for text in warned)), path
    assert run(home, **environment) == []


@pytest.mark.parametrize("damage", [*DAMAGES, "a directory"])
def test_a_damaged_record_of_pocl(damage, tmp_path, monkeypatch):
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    home, chosen = tmp_path / "home", {"PYOPENCL_CTX": "Portable"}
    for _ in range(2):
        assert run(home, **chosen) == []
    check_damaged([home / "pocl" / POCL_RECORD], damage, home, **chosen)


def test_a_program_that_the_driver_does_not_take_is_compiled_again(home, tmp_path):
    """As of a driver that changed, but not its version."""
    shutil.copytree(home, tmp_path / "home")
    for path in used_files(tmp_path / "home" / "cache" / "clhist" / "programs"):
        write_sealed(path, path.name, (4).to_bytes(8, "little") + b"junk")
    for _ in range(2):
        assert run(tmp_path / "home") == []


def test_a_lock_that_a_process_left_behind(tmp_path):
    """PyOpenCL would wait for it for a minute, and then fail."""
    folder = "pyopencl-compiler-cache-v2-py" + ".".join(str(each) for each in sys.version_info)
    (tmp_path / "cache" / "pyopencl" / folder).mkdir(parents=True)
    (tmp_path / "cache" / "pyopencl" / folder / "lock").touch()
    assert run(tmp_path) == []


def test_programs_of_the_caller_stay_where_pyopencl_stores_them(tmp_path):
    """PyOpenCL repeats what the compiler said of them, and looks at the headers that they include."""
    code = """
        import pyopencl as cl
        queue = clhist.default_queue()
        cl.Program(queue.context, "kernel void mine(global int *x) { x[0] = 1; }").build()
    """
    run(tmp_path)
    before = used_files(tmp_path / "cache" / "clhist" / "programs")
    run_python(code, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"), POCL_CACHE_DIR=str(tmp_path / "pocl"))
    assert used_files(tmp_path / "cache" / "clhist" / "programs") == before


def test_first_calls_of_processes_at_once(tmp_path):
    """What one process is about to write is no damage to another."""
    with ThreadPoolExecutor(4) as pool:
        for turn in range(3):
            runs = [pool.submit(run, tmp_path / str(turn), PYOPENCL_FAILURES_RAISE) for _ in range(4)]
            assert [each.result() for each in runs] == [[]] * 4
            assert run(tmp_path / str(turn)) == []


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
