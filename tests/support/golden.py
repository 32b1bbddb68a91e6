"""Texts that are stored and compared, in full or by their digests."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "unit" / "golden"


def digests(texts: Mapping[str, str]) -> str:
    """Return a line for each text: a digest of it, the number of its lines, and its name."""
    return "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {text.count(chr(10)):4} {name}\n"
        for name, text in texts.items()
    )


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
            f"{path.name} has changed; if meant: pytest tests/unit --update-golden, and read git diff. For sources "
            "that are stored as digests: python tests/support/golden_sources.py --into DIRECTORY, here and before\n"
            + "\n".join(shown[:80]) + more
        )  # fmt: skip
