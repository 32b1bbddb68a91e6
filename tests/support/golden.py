"""Texts that are stored and compared: a base in full, its variants by their differences from it."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "unit" / "golden"


def stored_form(texts: Mapping[str, str]) -> str:
    """Return `texts` as one readable file: the first in full, each other by what differs from the nearest before it.

    Differences are without line numbers, which change with whatever stands before; a digest of the whole makes up for
    what these leave open.
    """
    found: list[str] = []
    before: dict[str, list[str]] = {}
    for name, text in texts.items():
        lines, digest = text.splitlines(), hashlib.sha256(text.encode()).hexdigest()[:12]
        if not before:
            found += [f"=== {name} [{digest}]", *lines]
        else:
            nearest = min(before, key=lambda other: _distance(before[other], lines))
            difference = list(difflib.unified_diff(before[nearest], lines, lineterm="", n=1))[2:]
            found.append(f"=== {name} [{digest}] as {nearest}" + ", but" * bool(difference))
            found += ["@@" if line.startswith("@@") else line for line in difference]
        before[name] = lines
    return "\n".join(found) + "\n"


def _distance(first: list[str], second: list[str]) -> int:
    a, b = Counter(first), Counter(second)
    return (a - b).total() + (b - a).total()


def compare(file: str, text: str, *, update: bool) -> None:
    """Check that `text` is what the file of this name holds; write it there instead if `update`."""
    path = DIRECTORY / file
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    if stored != text:
        shown = list(difflib.unified_diff(stored.splitlines(), text.splitlines(), "stored", "now", lineterm="", n=2))
        more = f"\n... {len(shown) - 80} more lines" if len(shown) > 80 else ""
        raise AssertionError(
            f"{path.name} has changed; if that is meant: pytest tests/unit --update-golden, and read git diff\n"
            + "\n".join(shown[:80]) + more
        )  # fmt: skip
