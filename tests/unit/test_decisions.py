"""Decision records: each has its sections and its row in the index, and the notes that code cites exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = {path.name[:4]: path for path in sorted(FOLDER.glob("0*.md"))}
SECTIONS = ["Context", "Options", "Decision", "Consequences", "Status"]
FOLDERS = "clhist", "kernels_cl", "cases", "strategies", "cli", "benchmarks", "soak", "tests", ".ci"
# "Note [A], docs/decisions/0001" or "Notes [A] and [B], docs/decisions/0001"
CITATION = re.compile(r"Notes? (\[[^\]]+\](?:(?:,| and) \[[^\]]+\])*), docs/decisions/(\d{4})")
COMMENT_BREAK = re.compile(r"\s*\n\s*(?:#+|//)?\s*")


def sources() -> list[Path]:
    """Return the files that may cite notes."""
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    return [path for path in files if path.suffix in (".py", ".mako") and path != Path(__file__)]


@pytest.mark.parametrize("number", RECORDS)
def test_records_have_all_sections(number):
    text = RECORDS[number].read_text(encoding="utf-8")
    assert text.startswith(f"# {number}. ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


def test_index_lists_all_records():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d{4}) \|", index, re.MULTILINE)
    assert rows == sorted(set(rows))
    assert RECORDS.keys() <= set(rows)


def test_cited_notes_exist():
    count = 0
    for path in sources():
        text = COMMENT_BREAK.sub(" ", path.read_text(encoding="utf-8"))
        citations = CITATION.findall(text)
        assert len(citations) == len(re.findall(r"docs/decisions/\d", text)), f"{path}: a citation of another form"
        for notes, number in citations:
            record = RECORDS[number].read_text(encoding="utf-8")
            for note in re.findall(r"\[([^\]]+)\]", notes):
                assert f"### Note [{note}]\n" in record, path
                count += 1
    assert count >= 15
