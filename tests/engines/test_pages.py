"""The examples of the pages on other packages run as they stand, and draw their pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "howto"
PAGES = ("gradient-boosting", "zones", "radial-distribution", "azimuthal-integration")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PAGES)
def test_page(name, tmp_path, monkeypatch):
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert f"({name}.webp)" in text
