"""The examples of the README and of the documentation run as they stand, page by page, and print what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
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


def run_page(page: str) -> dict:
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


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/guide.md"])
def test_examples_run(page):
    run_page(page)


def test_what_the_guide_computes():
    given = run_page("docs/guide.md")
    group, x, points = given["group"], given["x"], given["points"]
    np.testing.assert_allclose(given["mean"], [x[group == k].mean() for k in range(50)], atol=1e-4)
    np.testing.assert_allclose(given["average"], given["mean"], atol=1e-5)
    np.testing.assert_allclose(given["sums"], [points[group == k].sum(0, np.float64) for k in range(50)], atol=1e-2)
    assert given["density"].sum() == (abs(4 * points[:, :2] + 0.0) < 16).all(1).sum()
    assert given["result"]["low"].tolist() == [x[group == k].min() for k in range(50)]
    assert x[given["best"]["index"]].tolist() == [x[group == k].max() for k in range(50)]
    assert given["structs"]["weight"].tolist() == given["arrays"][0].tolist()
    assert given["structs"]["length"].tolist() == given["arrays"][1].tolist()
    assert given["same"].tolist() == np.bincount(group).tolist()
    assert 1.3 < given["measured"].value < 2
    assert (given["received"] == np.full((50, 64), 20)).all()
    rows, centers = given["rows"], given["centers"]
    np.testing.assert_allclose(centers, [rows[group == k].mean(0, np.float64) for k in range(50)], atol=1e-3)
