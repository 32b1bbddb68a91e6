"""Check paper/paper.md as the Journal of Open Source Software asks for it: its sections, its length and its citations.

    .ci/paper.py

pandoc builds it, and fails on a citation that the bibliography lacks.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pypandoc

PAPER = Path(__file__).parents[1] / "paper" / "paper.md"
SECTIONS = (
    "Summary", "Statement of need", "State of the field", "Software design", "Research impact statement",
    "AI usage disclosure", "Acknowledgements", "References",
)  # fmt: skip
FIELDS = ("title", "tags", "authors", "affiliations", "date", "bibliography")
WORDS = range(750, 1751)


def problems(text: str, references: str) -> list[str]:
    """Return what is missing or too much."""
    _, front, body = text.split("---\n", 2)
    found = [f"front matter: no {name}" for name in FIELDS if not re.search(rf"^{name}:", front, re.MULTILINE)]
    sections = tuple(re.findall(r"^# (.+)$", body, re.MULTILINE))
    if sections != SECTIONS:
        found.append(f"sections: expected {', '.join(SECTIONS)}, got {', '.join(sections)}")
    words = len(body.split())
    if words not in WORDS:
        found.append(f"length: expected {WORDS.start} to {WORDS.stop - 1} words, got {words}")
    entries = set(re.findall(r"^@\w+\{(\w+),", references, re.MULTILINE))
    unused = entries - set(re.findall(r"@(\w+)", body))
    return found + [f"bibliography: nobody cites {name}" for name in sorted(unused)]


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = problems(PAPER.read_text(encoding="utf-8"), PAPER.with_suffix(".bib").read_text(encoding="utf-8"))
    options = ["--citeproc", "--fail-if-warnings", "--standalone", f"--resource-path={PAPER.parent}"]
    try:
        pypandoc.convert_file(PAPER, "html", extra_args=[*options, f"--bibliography={PAPER.with_suffix('.bib')}"])
    except RuntimeError as error:
        found.append(str(error))
    print("\n".join(found) or f"{PAPER.name} is as the journal asks")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
