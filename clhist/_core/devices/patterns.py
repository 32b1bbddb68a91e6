"""Regular expressions of profiles, looked for in time that grows with the text and no faster. Pure.

Profiles are sent around, and `re` may take for ever: it tries one way through a pattern after the other. Here all
positions that a part of the pattern may end at are held at once, so none is visited twice, and the work is counted.
The syntax is that of `re`, without case, and without back-references, flags and repeats inside of repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

MOST_CHARACTERS = 500  # of a pattern
_MOST_LOOKED_AT = 500  # characters of a name
_MOST_REPEATED = 100  # times, by {m,n}
_MOST_STEPS = 200_000  # of positions times parts of a pattern: a tenth of a second

Ends = frozenset[int]
_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "s": str.isspace,
    "w": lambda c: c.isalnum() or c == "_",
}


class _Text:
    """A text, and how much of the work that may be done on it is left."""

    def __init__(self, text: str) -> None:
        self.text, self.left = text[:_MOST_LOOKED_AT].lower(), _MOST_STEPS

    def spend(self, steps: int) -> None:
        self.left -= steps + 1
        if self.left < 0:
            raise ValueError("expected a simpler regular expression, got one that takes too long")


# Where a part may end, of where it may begin.
Node = Callable[[_Text, Ends], Ends]


def occurs(expression: str, text: str) -> bool:
    """Whether `expression` matches somewhere in `text`, in any case.

    Raises
    ------
    ValueError
        If it is not what `pattern` takes, or takes too long.
    """
    looked = _Text(text)
    return bool(pattern(expression)(looked, frozenset(range(len(looked.text) + 1))))


@lru_cache(maxsize=1024)
def pattern(expression: str) -> Node:
    """Return a pattern, parsed; raise ValueError if it is none, or none that is allowed here."""
    if len(expression) > MOST_CHARACTERS:
        raise ValueError(f"expected at most {MOST_CHARACTERS} characters, got {len(expression)}")
    parser = _Parser(expression)
    found = parser.alternatives(0)
    if parser.at < len(expression):
        raise ValueError(f"unbalanced parenthesis at {parser.at}")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.repeats, self.looks = text, 0, 0, 0

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, *wanted: str) -> str:
        """Return the first of `wanted` that is next, and go past it."""
        found = next((each for each in wanted if self.text.startswith(each, self.at)), "")
        self.at += len(found)
        return found

    def character(self) -> str:
        if not self.next():
            raise ValueError("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self, depth: int) -> Node:
        if depth > 20:
            raise ValueError("expected at most 20 parentheses inside of each other")
        found = [self.sequence(depth)]
        while self.take("|"):
            found.append(self.sequence(depth))
        return found[0] if len(found) == 1 else lambda text, at: frozenset().union(*(each(text, at) for each in found))

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.next() and self.next() not in "|)":
            before = self.repeats
            parts.append(self.repeated(self.atom(depth), before))

        def ends(text: _Text, at: Ends) -> Ends:
            for part in parts:
                at = part(text, at) if at else at
            return at

        return ends

    def repeated(self, part: Node, before: int) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return part
        least, most = bounds
        self.take("?")  # which of several matches is taken does not matter
        if (self.next() and self.next() in "*+?") or self.is_counted():
            raise ValueError(f"multiple repeat at {self.at}")
        if most == 1:
            return lambda text, at: at | part(text, at) if least == 0 else part(text, at)
        if self.repeats != before:
            raise ValueError("expected no repeats inside of repeats")
        self.repeats += 1

        def ends(text: _Text, at: Ends) -> Ends:
            for _ in range(least):
                at = part(text, at)
            found, new, rounds = at, at, least
            while new and (most is None or rounds < most):
                new, rounds = part(text, new) - found, rounds + 1
                found |= new
            return found

        return ends

    def is_counted(self) -> bool:
        rest, _, _ = self.text[self.at + 1 :].partition("}")
        return self.next() == "{" and "}" in self.text[self.at :] and rest.replace(",", "", 1).isdecimal()

    def bounds(self) -> tuple[int, int | None] | None:
        sign = self.take("*", "+", "?")
        if sign:
            return int(sign == "+"), 1 if sign == "?" else None
        if not self.is_counted():
            return None
        inner = self.text[self.at + 1 : self.text.index("}", self.at)]
        self.at += len(inner) + 2
        low, comma, high = inner.partition(",")
        least, most = int(low or 0), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > _MOST_REPEATED or (most is not None and most < least):
            raise ValueError(f"expected at most {_MOST_REPEATED} repeats, and no fewer than at least, got {{{inner}}}")
        return least, most

    def atom(self, depth: int) -> Node:
        sign = self.character()
        if sign == "(":
            return self.group(depth)
        if sign == "[":
            return _one(self.members())
        if sign == ".":
            return _one(lambda c: c != "\n")
        if sign == "^":
            return _where(lambda text, p: p == 0)
        if sign == "$":
            return _where(lambda text, p: text[p:] in ("", "\n"))
        if sign == "\\":
            if edge := self.take("b", "B"):
                return _where(lambda text, p: _is_edge(text, p) == (edge == "b"))
            return _one(self.escape())
        if sign in "*+?":
            raise ValueError(f"nothing to repeat at {self.at - 1}")
        return _one(_literal(sign))

    def group(self, depth: int) -> Node:
        look = self.take("?=", "?!", "?<=", "?<!")
        if not look and not self.take("?:") and self.next() == "?":
            raise ValueError(f"unknown extension at {self.at}")
        if look and self.looks:
            raise ValueError("expected no lookaround inside of another")
        self.looks += bool(look)
        start = self.at
        found = self.alternatives(depth + 1)
        self.looks -= bool(look)
        if not self.take(")"):
            raise ValueError(f"missing ), unterminated subpattern at {start}")
        if not look:
            return found
        width = self.width(start) if "<" in look else 0

        def ends(text: _Text, at: Ends) -> Ends:
            def is_there(p: int) -> bool:
                if "<" in look:
                    return p >= width and p in found(text, frozenset([p - width]))
                return bool(found(text, frozenset([p])))

            return frozenset(p for p in at if is_there(p) == look.endswith("="))

        return ends

    def width(self, start: int) -> int:
        """Return the length of what is looked for behind: plain characters."""
        inner = self.text[start : self.at - 1]
        if any(sign in "()[]{}*+?|^$\\." for sign in inner):
            raise ValueError("expected plain characters to be looked for behind")
        return len(inner)

    def escape(self) -> Callable[[str], bool]:
        sign = self.character()
        if sign.lower() in _CLASSES:
            known = _CLASSES[sign.lower()]
            return known if sign.islower() else lambda c: not known(c)
        if sign.isalnum():
            raise ValueError(f"bad escape \\{sign} at {self.at - 2}")
        return _literal(sign)

    def members(self) -> Callable[[str], bool]:
        negated = bool(self.take("^"))
        found: list[Callable[[str], bool]] = []
        while self.next() != "]" or not found:
            sign = self.character()
            if sign == "\\" and self.next().lower() in _CLASSES:
                found.append(self.escape())
                continue
            low = self.plain(sign)
            if self.next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.plain(self.character())
                if high < low:
                    raise ValueError(f"bad character range {low}-{high}")
                found.append(_between(low, high))
            else:
                found.append(_literal(low))
        self.take("]")
        return lambda c: any(each(c) for each in found) != negated

    def plain(self, sign: str) -> str:
        if sign != "\\":
            return sign
        sign = self.character()
        if sign.isalnum():
            raise ValueError(f"bad escape \\{sign} at {self.at - 2}")
        return sign


def _literal(sign: str) -> Callable[[str], bool]:
    return sign.lower().__eq__


def _between(low: str, high: str) -> Callable[[str], bool]:
    return lambda c: low <= c <= high or low <= c.upper() <= high


def _one(fits: Callable[[str], bool]) -> Node:
    def ends(text: _Text, at: Ends) -> Ends:
        text.spend(len(at))
        line = text.text
        return frozenset(p + 1 for p in at if p < len(line) and fits(line[p]))

    return ends


def _where(holds: Callable[[str, int], bool]) -> Node:
    def ends(text: _Text, at: Ends) -> Ends:
        text.spend(len(at))
        return frozenset(p for p in at if holds(text.text, p))

    return ends


def _is_edge(text: str, p: int) -> bool:
    is_word = _CLASSES["w"]
    return (p > 0 and is_word(text[p - 1])) != (p < len(text) and is_word(text[p]))
