"""The arguments of a map, and what the text of the map tells about their use. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from clhist._core.kernel_code import Parameter
from clhist._core.model.feature import ULONG
from clhist._core.model.problem import Rows
from clhist.operators.c_types import without_comments
from clhist.operators.halves import ELEMENT, half_name

# A declaration of another i, or an assignment to one: the map's own is const.
_HIDDEN_INDEX = re.compile(r"[\w*]\s+\**i\s*[=;,:)]|\bi\s*(=[^=]|\+\+|--|[-+*/%&|^]=)|(\+\+|--)\s*i\b")


class Argument(NamedTuple):
    """One argument of a map, as declared in C.

    Attributes
    ----------
    name, c_type : str
        Identifier, and C type of the scalar or of an element.
    dtype : numpy.dtype
        The same type in NumPy.
    is_array, is_const : bool
        Whether it is a pointer to global memory, and whether the map may only read it.
    is_first : bool
        Whether the map gets the first element of the array alone, as a scalar, which a work-item reads once.
    """

    name: str
    c_type: str
    dtype: np.dtype
    is_array: bool
    is_const: bool
    is_first: bool = False

    @property
    def element(self) -> str:
        """C type of an element in memory."""
        return ELEMENT if half_name(self.dtype) else self.c_type

    @property
    def pointer(self) -> str:
        """C type of a pointer to the elements."""
        return f"__global {'const ' if self.is_const else ''}{self.element} *"

    @property
    def mark(self) -> str:
        """The mark before the name in its declaration."""
        return "&" if self.is_first else "*" if self.is_array else ""

    @property
    def parameter(self) -> str:
        """Its declaration as a parameter of the map."""
        if self.is_array and not self.is_first:
            return f"{self.pointer}{'restrict ' if self.is_const else ''}{self.name}"
        return f"const {self.c_type} {self.name}"

    @property
    def kernel_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the kernel for it: an array is a buffer and an offset in bytes."""
        if self.is_array:
            base, offset = Parameter("__global char *", f"{self.name}__base", None), f"{self.name}__offset"
            return base, Parameter("const ulong", offset, ULONG)
        return (Parameter(f"const {self.c_type}", self.name, self.dtype),)


class RowText(NamedTuple):
    """The C of a call whose values are rows.

    Attributes
    ----------
    rows : Rows
        What they are.
    bin : str
        Of the bin of row `i`.
    value : str
        Of the value of component `element` of all rows.
    loads : str
        The array that this is an element of, if it is one of plain numbers.
    of_row : str
        Of the value of the component `component` of row `row`, if that is simpler.
    """

    rows: Rows
    bin: str
    value: str
    loads: str = ""
    of_row: str = ""


def is_elementwise(argument: Argument, code: str, preamble: str = "") -> bool:
    """Return whether the map `code` uses an array only as ``name[i]``, with its own `i` and without its address.

    A preamble that contains the name counts as another use: it may be in a macro that the map calls.
    """
    name = rf"(?<!\.)(?<!->)\b{argument.name}\b"  # not a member of that name
    uses = re.findall(name, code)
    if not argument.is_array or not uses or re.search(name, preamble) or _HIDDEN_INDEX.search(code):
        return False
    return len(uses) == len(re.findall(_element(argument), code)) and not re.search(rf"&\s*\(*\s*{name}", code)


def is_streamed(argument: Argument, code: str, preamble: str = "") -> bool:
    """Return whether an array's elements can be loaded ahead: scalars that the map only reads, one for each `i`."""
    scalars = argument.dtype.names is None and argument.dtype.kind != "c"
    return argument.is_const and scalars and is_elementwise(argument, code, preamble)


def uses_position(elementwise: Collection[Argument], code: str, preamble: str = "") -> bool:
    """Return whether the map `code`, or a macro, uses `i` other than for elements of the `elementwise` arrays."""
    code = without_comments(code)
    for argument in elementwise:
        code = re.sub(_element(argument), " ", code)
    macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
    # Elements at [i] are gone from the text, so any `i` that is left is another use.
    return any(re.search(r"(?<!\.)(?<!->)\bi\b", text) for text in (code, *macros))


def read_ahead(code: str, streamed: Collection[Argument]) -> str:
    """Return the map `code` with the elements of `streamed` arrays as variables, loaded before.

    A newline ends a comment or a directive of its last line, before the semicolon that templates append.
    """
    for argument in streamed:
        code = re.sub(_element(argument), f"clhist_element_{argument.name}", code)
    last = code[code.rfind("\n") + 1 :]
    return f"{code}\n" if "//" in last or last.lstrip().startswith("#") else code


def max_pairs_of(name: str, code: str, preamble: str = "") -> int | None:
    """Return how often the map `code` calls the macro `name` for one element at most.

    None if a loop, or a macro or function of the preamble, may repeat it.
    """
    code = without_comments(code)
    # A call that a loop repeats, or that a function or macro makes, is not counted by the text.
    loop, used = r"\b(for|while|do|goto)\b", rf"\b{name}\b"
    macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
    if re.search(loop, code) or re.search(r"#\s*define\b", code) or re.search(used, without_comments(preamble)):
        return None
    # A macro that pastes tokens may form the name of the call.
    if any(re.search(rf"{loop}|##", macro) for macro in macros):
        return None
    # A macro that gets the call as an argument may expand it more than once.
    wrappers = [wrapper for macro in macros for wrapper in re.findall(r"#\s*define\s+(\w+)\(", macro)]
    if any(re.search(rf"\b{wrapper}\s*\([^;]*{used}", code) for wrapper in wrappers):
        return None
    return len(re.findall(rf"\b{name}\b", code))


def uniform_value(suffix: str, code: str, arguments: Iterable[Argument], preamble: str = "") -> str | None:
    """Return the C of the value that the map `code` gives to every pair of an output; None if values may differ.

    Such a value consists of literals, and of scalar arguments that the map uses for nothing else. Maps that name their
    ``EMIT`` more than once, or have directives of the preprocessor, count as ones whose values differ.
    """
    name = rf"\bEMIT{suffix}\b"
    code = without_comments(code)
    calls = list(re.finditer(rf"{name}\s*\(", code))
    if len(re.findall(name, code)) != 1 or len(calls) != 1 or "#" in code or re.search(name, preamble):
        return None
    begin, end = _last_argument(code, calls[0].end())
    value = code[begin:end].strip()
    # Assignments, subscripts, comparisons and nested lists may give each pair another value.
    if not re.fullmatch(r"[\w\s.+*/()-]+", value):
        return None
    scalars = {argument.name for argument in arguments if not argument.is_array}
    names = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", value))
    rest = set(re.findall(r"[A-Za-z_]\w*", f"{code[:begin]} {code[end:]}"))  # where a variable may hide a scalar
    return value if names <= scalars - rest else None


def _last_argument(code: str, start: int) -> tuple[int, int]:
    """Return begin and end of the last argument of the call whose list begins at `start`; empty if it never ends."""
    depth, begin = 0, start
    for position in range(start, len(code)):
        character = code[position]
        if depth == 0 and character == ")":
            return begin, position
        if depth == 0 and character == ",":
            begin = position + 1
        # Commas and brackets inside of others belong to an argument.
        depth += (character in "([{") - (character in ")]}")
    return start, start


def unbalanced(code: str, preamble: str = "") -> str | None:
    """Return the first fault of the brackets and quotes of the map `code`; None if they match, or may do so by macros.

    Directives, comments, strings and characters have no brackets. Of branches of the preprocessor each may have its
    own, and so may macros: those of a map with ``#if``, or with a macro whose brackets do not match, are not looked at.
    """
    directives = re.compile(r"^[ \t]*#(?:.*\\\n)*.*", re.MULTILINE)
    if re.search(r"^[ \t]*#[ \t]*(if|el|include)", code, re.MULTILINE):
        return None
    macros = directives.findall(preamble) + directives.findall(code)
    if any(_mismatch(re.sub(r"^[ \t]*#[ \t]*define[ \t]+\w+", "", macro)) for macro in macros):
        return None
    # Line breaks stay, so that a fault names the caller's line.
    return _mismatch(directives.sub(lambda match: "\n" * match[0].count("\n"), code))


_TOKENS = re.compile(
    r"""//[^\n]* | /\*.*?(?:\*/|\Z) | (?P<text>(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\\n])*(?P<end>["'])?)
    | (?P<bracket>[][(){}])""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def _mismatch(code: str) -> str | None:
    """Return which bracket or quote of C code lacks its other one, and where; None if none does."""
    opened: list[tuple[str, int]] = []
    for token in _TOKENS.finditer(code):
        line = code.count("\n", 0, token.start()) + 1
        if token["text"] and token["end"] != token["quote"]:
            return f"line {line} has a {token['quote']} without an end"
        # "/*/" opens a comment, but does not close it.
        if token[0].startswith("/*") and (len(token[0]) < 4 or not token[0].endswith("*/")):
            return f"line {line} has a /* without */"
        if not (bracket := token["bracket"]):
            continue
        if bracket in _CLOSING:
            opened.append((bracket, line))
        elif not opened:
            return f"line {line} has a {bracket} too many"
        else:
            other, begin = opened.pop()
            if _CLOSING[other] != bracket:
                return f"line {line} has {bracket} where line {begin} has {other}"
    if opened:
        other, begin = opened[-1]
        return f"line {begin} has {other} without {_CLOSING[other]}"
    return None


def _element(argument: Argument) -> str:
    return rf"(?<!\.)(?<!->)\b{argument.name}\s*\[\s*i\s*\]"
