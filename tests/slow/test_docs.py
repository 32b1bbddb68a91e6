"""The examples of the README and of the documentation run as they stand, page by page, and print what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "```python" in path.read_text(encoding="utf-8")
)
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Return the blocks of Python of a page, each with the output below it."""
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Blocks may write files."""
    monkeypatch.chdir(tmp_path)


def run_page(page: str) -> None:
    """Run all blocks of a page in one namespace, which begins empty, and compare what each prints."""
    names: dict = {}
    for code, expected in blocks_of(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page}: {code[:40]!r}", "exec"), names)
        if expected:
            assert printed.getvalue() == expected, code
    return names


def test_pages_have_blocks():
    assert len(blocks_of("README.md")) == 5
    assert all(output for _, output in blocks_of("README.md"))
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    assert len(PAGES) >= 12


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page):
    run_page(page)
