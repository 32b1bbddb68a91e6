"""Patterns of profiles: words of a device's name, in a row. Pure.

A word is letters and digits, in any case; signs between words do not matter. In a pattern ``#`` is a digit, ``*``
behind a word is any rest of it, and a ``*`` alone is any words. ``^`` and ``$`` are the ends of the name. The name
must not have the words behind ``!``: ``"A100 !MIG"``.
"""

from __future__ import annotations

import re
from functools import lru_cache

MOST_CHARACTERS = 500  # of a pattern, and of a name
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[\w#]+\*?|\*")
# Syntax of regular expressions: taken for words, such a pattern would match other names than it says.
_REGULAR_EXPRESSION = re.compile(r"\||\(\?|\.[*+]|\\[bBdDwWsS]|\[[^]]*\w-\w[^]]*\]|[])][*+?]")

Words = tuple[str, ...]


def occurs(pattern: str, name: str) -> bool:
    """Whether a pattern occurs in a name.

    Raises
    ------
    ValueError
        If it is not what `parsed` takes.
    """
    words = _words(name)
    wanted, unwanted = parsed(pattern)
    return _is_in(wanted, words) and not any(_is_in(parts, words) for parts in unwanted)


def exactly(name: str) -> str:
    """Return the pattern of all words of a name."""
    return f"^{' '.join(_WORD.findall(name[:MOST_CHARACTERS]))}$"


@lru_cache(maxsize=1024)
def parsed(pattern: str) -> tuple[Words, tuple[Words, ...]]:
    """Return the words of a pattern, and those that must be missing; raise ValueError if it has none."""
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"expected at most {MOST_CHARACTERS} characters, got {len(pattern)}")
    if _REGULAR_EXPRESSION.search(pattern):
        raise ValueError("expected words of a name, in which # is a digit and * any rest, not a regular expression")
    wanted, *unwanted = map(_parts, pattern.split("!"))
    if not _has_words(wanted) or not all(map(_has_words, unwanted)):
        raise ValueError("expected some words of a name, since others match every device")
    return wanted, tuple(unwanted)


def _parts(text: str) -> Words:
    """Return words, with ``*`` before the first and behind the last unless ``^`` and ``$`` are there."""
    text = text.strip()
    begin, end = ("" if text.startswith("^") else "*"), ("" if text.endswith("$") else "*")
    return tuple(_PART.findall(f"{begin} {text.lower()} {end}"))


def _has_words(parts: Words) -> bool:
    return any(part.strip("#*") for part in parts)


@lru_cache(maxsize=64)
def _words(name: str) -> Words:
    return tuple(_WORD.findall(name[:MOST_CHARACTERS].lower()))


def _is_in(parts: Words, words: Words) -> bool:
    """Whether the parts are these words, as in a shell's pattern; at a failure the last ``*`` takes one word more."""
    part = word = 0
    star, end = -1, 0
    while word < len(words):
        if part < len(parts) and parts[part] == "*":
            star, end, part = part, word, part + 1
        elif part < len(parts) and _fits(parts[part], words[word]):
            part, word = part + 1, word + 1
        elif star >= 0:
            # Only the last star is tried again: an earlier one with more words finds no match that this one misses.
            end += 1
            part, word = star + 1, end
        else:
            return False
    # Stars need no word.
    return all(rest == "*" for rest in parts[part:])


def _fits(part: str, word: str) -> bool:
    if part.endswith("*"):
        part, word = part[:-1], word[: len(part) - 1]
    return part == word or (
        "#" in part
        and len(part) == len(word)
        and all(c.isdecimal() if p == "#" else p == c for p, c in zip(part, word, strict=True))
    )
