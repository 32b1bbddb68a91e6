"""The tests that packages ship, run with ours in the place of theirs."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def run_tests(plugin: str, *arguments: str, different: Sequence[str] = ()) -> dict[str, int]:
    """Run pytest with a plugin; raise AssertionError if a test fails that is none of `different`.

    Parameters
    ----------
    plugin : str
        Python that puts ours in the place of theirs.
    *arguments : str
        Which tests, as pytest has them.
    different : sequence of str
        Parts of the names of those that must fail.

    Returns
    -------
    dict of str to int
        How many tests passed, failed and so on.
    """
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "clhist_in_its_place.py").write_text(plugin, encoding="utf-8")
        code = f"import sys; sys.path.insert(0, {directory!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
        options = ["-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "clhist_in_its_place"]
        run = subprocess.run(
            [sys.executable, "-c", code, *options, *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    wrong = [name for name in failed if not any(each in name for each in different)]
    missing = [each for each in different if not any(each in name for name in failed)]
    assert not wrong, run.stdout[-10_000:]
    assert not missing, f"expected to fail: {missing}"
    last = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
