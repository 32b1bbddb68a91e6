"""Text for a terminal: tables that fold where it is narrow, and numbers with their units."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Sequence

WIDEST = 100  # of running text
_NARROWEST = 20  # of a wrapped last column


def text_width() -> int:
    """Return the columns that text may have: the terminal's, at most 100; of a pipe 100, unless COLUMNS says else."""
    return min(WIDEST, _columns(WIDEST))


def table(rows: Sequence[Sequence[str]], *, indent: int = 2, right: Collection[int] = ()) -> str:
    """Return `rows` as aligned text, with the last column wrapped.

    Where the terminal is so narrow that the last column has no room it goes below the others.

    Parameters
    ----------
    rows : sequence of rows of str
        All of one length.
    indent : int
        Spaces before each line.
    right : collection of int
        Columns that are aligned to the right; not the last.
    """
    if not rows:
        return ""
    width = text_width()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    before = indent + sum(n + 2 for n in widths[:-1])
    longest = max((len(word) for *_, last in rows for word in last.split()), default=0)
    # The last column must have room for its longest word, as far as the text has.
    needed = max(_NARROWEST, min(longest, width - indent - 4))
    below = widths[-1] > 0 and width - before < min(widths[-1], needed)
    lines = []
    for *cells, last in rows:
        aligned = [
            c.rjust(w) if n in right else c.ljust(w) for n, (c, w) in enumerate(zip(cells, widths, strict=False))
        ]
        start = " " * indent + "".join(f"{cell}  " for cell in aligned)
        margin = " " * (indent + 4 if below else len(start))
        text = textwrap.wrap(last, max(width - len(margin), _NARROWEST), break_long_words=False, break_on_hyphens=False)
        if below:
            lines += [start, *(margin + more for more in text)]
        else:
            lines += [start + (text[0] if text else ""), *(margin + more for more in text[1:])]
    return "\n".join(line.rstrip() for line in lines)


def grid(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), indent: int = 0, keys: int = 1) -> str:
    """Return rows of short cells as aligned columns; what does not fit the terminal goes into further tables below.

    Parameters
    ----------
    rows : sequence of rows of str
        All of one length; the first is the head.
    left : collection of int
        Columns that are aligned to the left.
    indent : int
        Spaces before each line.
    keys : int
        Leading columns that each of the tables repeats.
    """
    # A pipe has no width: columns stay together there.
    width = _columns(10**6)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    key = list(range(keys))
    parts: list[list[int]] = [list(key)]
    for column in range(keys, len(widths)):
        needed = indent + sum(widths[n] + 2 for n in parts[-1]) + widths[column]
        # Each part has a column beside the keys, even if that is too wide.
        if needed > width and len(parts[-1]) > keys:
            parts.append(list(key))
        parts[-1].append(column)
    texts = []
    for part in parts:
        lines = (
            "  ".join(row[n].ljust(widths[n]) if n in left else row[n].rjust(widths[n]) for n in part) for row in rows
        )
        texts.append("\n".join((" " * indent + line).rstrip() for line in lines))
    return "\n\n".join(texts)


def escaped(text: str, *, keep: str = "") -> str:
    """Return text of a file, such as its name or that of a column, as a terminal may show it.

    Control characters, which begin a terminal's commands, those that change the direction of text or are not seen, and
    bytes that are no text become escapes such as ``\\x1b``; those in `keep` stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in keep and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else character
        for character in text
    )


def wrapped(text: str, indent: int = 0) -> str:
    """Return a paragraph, folded."""
    space = " " * indent
    return textwrap.fill(text, text_width(), initial_indent=space, subsequent_indent=space, break_on_hyphens=False)


def folded(line: str, indent: int = 8) -> str:
    """Return a line, folded if the terminal is narrower; what is below begins after `indent` spaces."""
    return textwrap.fill(
        line, _columns(10**6), subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )


def bytes_text(number: int) -> str:
    """Return a number of bytes for people, and exactly: ``48 KiB (49,152 B)``."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.4g} {unit} ({number:,} B)"
    return f"{number:,} B"


def _columns(piped: int) -> int:
    """Return the terminal's columns, or as many as there may be if stdout is none and COLUMNS is not set."""
    fallback = 80 if sys.stdout.isatty() else piped
    return max(40, shutil.get_terminal_size((fallback, 24)).columns)
