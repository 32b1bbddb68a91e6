"""The pages that users read, and the commands that they may paste from them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(clhist [^`]+)`")


def pages() -> list[Path]:
    """Return the pages."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return found + sorted((ROOT / "docs").rglob("*.md"))


def pasted(page: Path) -> list[list[str]]:
    """Return the arguments of each command in the page's blocks of shell: what stands behind `clhist`."""
    text = page.read_text(encoding="utf-8")
    blocks = [block for language, block in _FENCED.findall(text) if language in ("", "sh", "bash", "console")]
    blocks += re.findall(r"^ {4,}clhist .*$", _FENCED.sub("", text), re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in map(str.strip, lines) if line.startswith("clhist ")]


def mentioned(page: Path) -> list[list[str]]:
    """Return the same of the commands that the page's sentences and tables name."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [shlex.split(command)[1:] for command in _INLINE.findall(text)]


_MARKERS = ("|", "#", ":::", "<", "![", "(", "$$")
_BULLET = re.compile(r"^([-*+]|\d+\.) ")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page, without code, tables, headings and addresses; a colon or semicolon ends one."""
    text = re.sub(r"^ {4}.*$", "", _FENCED.sub("", text), flags=re.MULTILINE)
    paragraphs: list[list[str]] = [[]]
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith(_MARKERS):
            paragraphs.append([])
            continue
        if _BULLET.match(line):
            paragraphs.append([])
        paragraphs[-1].append(_BULLET.sub("", line, count=1))
    found = []
    for paragraph in map(" ".join, paragraphs):
        plain = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", paragraph))
        found += re.split(r"(?<=[.!?:;])\s+(?=[\w\"'(\[*])", plain)
    return [sentence for sentence in found if sentence.strip()]
