"""Type checkers on users' programs: right ones pass, and each planted mistake is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "typing"
MARKED = {
    n for n, line in enumerate((PROGRAMS / "mistakes.py").read_text().splitlines(), start=1) if "# error: " in line
}


def mypy(name: str, tmp_path: Path) -> set[int]:
    """Return the lines of which mypy complains."""
    pytest.importorskip("mypy", reason='mypy: pip install -e ".[lint]"')
    settings = tmp_path / "mypy.ini"
    # As of an installed package: only the program's own lines are reported.
    settings.write_text("[mypy]\nstrict = True\n[mypy-clhist.*]\nfollow_imports = silent\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(settings),
        "--cache-dir",
        str(tmp_path),
        "--no-pretty",
    ]
    done = subprocess.run([*command, str(PROGRAMS / name)], capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(rf"{name}:(\d+)(?::\d+)?: error", done.stdout)
    assert found or done.returncode == 0, done.stdout
    return set(map(int, found))


def pyright(name: str, tmp_path: Path) -> set[int]:
    """Return the lines of which pyright complains."""
    pytest.importorskip("pyright", reason='pyright: pip install -e ".[lint]"')
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(PROGRAMS / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return {each["range"]["start"]["line"] + 1 for each in report["generalDiagnostics"] if each["severity"] == "error"}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_right_program_passes(checker, tmp_path):
    assert checker("right.py", tmp_path) == set()


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_each_mistake_is_found(checker, tmp_path):
    assert checker("mistakes.py", tmp_path) == MARKED


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "clhist" / "py.typed").exists()
