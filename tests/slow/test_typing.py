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
LINES = list(enumerate((PROGRAMS / "mistakes.py").read_text().splitlines(), start=1))
MARKED = {n for n, line in LINES if "# error: " in line}
OF_MYPY = {n for n, line in LINES if "# error of mypy: " in line}  # pyright makes a union of both kinds of arrays
MOST = 1024  # characters about one mistake


def messages(name: str, tmp_path: Path) -> dict[int, str]:
    """Return what mypy says of each line that it complains of."""
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
    found: dict[int, str] = {}
    for line in done.stdout.splitlines(keepends=True):
        if match := re.match(rf".*{name}:(\d+)(?::\d+)?: (.*)", line, re.DOTALL):
            found[int(match[1])] = found.get(int(match[1]), "") + match[2]
    assert found or done.returncode == 0, done.stdout
    return {number: text for number, text in found.items() if "error: " in text}


def mypy(name: str, tmp_path: Path) -> set[int]:
    """Return the lines of which mypy complains."""
    return set(messages(name, tmp_path))


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
    assert checker("mistakes.py", tmp_path) == (MARKED | OF_MYPY if checker is mypy else MARKED)


def test_what_mypy_says_of_a_mistake_can_be_read(tmp_path):
    """Without the names of files, which each line of a message begins with."""
    long = {number: len(text) for number, text in messages("mistakes.py", tmp_path).items() if len(text) > MOST}
    assert not long


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "clhist" / "py.typed").exists()
