"""Check that links lead somewhere: between Markdown files of the checkout, and between pages of a built site.

    python .ci/links.py README.md docs _build/site

Links to other hosts are listed, not followed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

_MARKDOWN = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
_HREF = re.compile(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="([^"]*)"')
_ID = re.compile(r'\bid="([^"]*)"')


def pages(arguments: list[str]) -> Iterator[Path]:
    """Yield the files to check."""
    for argument in map(Path, arguments):
        if argument.is_dir():
            yield from (path for path in sorted(argument.rglob("*")) if path.suffix in (".md", ".html"))
        else:
            yield argument


def anchors(path: Path) -> set[str]:
    """Return the places in a page that a link can name."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        return {unquote(each) for each in _ID.findall(text)}
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken(path: Path, elsewhere: set[str]) -> Iterator[str]:
    """Yield what is wrong with the links of a page, and collect those to other hosts."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for link in (_MARKDOWN if path.suffix == ".md" else _HREF).findall(text):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            elsewhere.add(link)
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
        if not target.exists():
            yield f"{path}: {link}: no such file"
        elif parts.fragment and target.suffix in (".md", ".html") and unquote(parts.fragment) not in anchors(target):
            yield f"{path}: {link}: no such place"


def main() -> int:
    """Print what is broken; 1 if anything is."""
    elsewhere: set[str] = set()
    checked = list(pages(sys.argv[1:]))
    found = [problem for path in checked for problem in broken(path, elsewhere)]
    print("\n".join(found) or f"links of {len(checked)} pages hold; {len(elsewhere)} lead to other hosts")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
