"""The arguments of a map, and what its C does with them: pure text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

# A declaration of another i, or what only another i can have done to it: the map's own is const.
_HIDDEN_INDEX = re.compile(r"[\w*]\s+\**i\s*[=;,:)]|\bi\s*(=[^=]|\+\+|--|[-+*/%&|^]=)|(\+\+|--)\s*i\b")

_ULONG = np.dtype(np.uint64)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its C type, its name, and its dtype, which is None for a buffer."""

    c_type: str
    name: str
    dtype: np.dtype | None

    @property
    def declaration(self) -> str:
        """What stands in the kernel's list."""
        return f"{self.c_type} {self.name}"


@dataclass(frozen=True)
class Argument:
    """One argument of a map, as its C declaration says it.

    Attributes
    ----------
    name, c_type : str
        The identifier, and the C type of the scalar or of an element.
    dtype : numpy.dtype
        The same type for NumPy.
    is_array, is_const : bool
        Whether it is a pointer to global memory, and whether the map may only read it.
    """

    name: str
    c_type: str
    dtype: np.dtype
    is_array: bool
    is_const: bool

    @property
    def pointer(self) -> str:
        """C type of a pointer to the elements."""
        return f"__global {'const ' if self.is_const else ''}{self.c_type} *"

    @property
    def parameter(self) -> str:
        """Declaration of it as the map sees it."""
        if self.is_array:
            return f"{self.pointer}{'restrict ' if self.is_const else ''}{self.name}"
        return f"const {self.c_type} {self.name}"

    @property
    def kernel_parameters(self) -> tuple[Parameter, ...]:
        """What the kernel gets for it: of an array its buffer and an offset in bytes."""
        if self.is_array:
            base, offset = Parameter("__global char *", f"{self.name}__base", None), f"{self.name}__offset"
            return base, Parameter("const ulong", offset, _ULONG)
        return (Parameter(f"const {self.c_type}", self.name, self.dtype),)


def is_elementwise(argument: Argument, code: str, preamble: str = "") -> bool:
    """Return whether the map `code` uses an array only as ``name[i]``, with its own `i` and without its address.

    A preamble that has the name may hold a macro which the map uses.
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
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)
    for argument in elementwise:
        code = re.sub(_element(argument), " ", code)
    macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
    return any(re.search(r"(?<!\.)(?<!->)\bi\b", text) for text in (code, *macros))


def read_ahead(code: str, streamed: Collection[Argument]) -> str:
    """Return the map `code` with the elements of `streamed` arrays as variables, loaded before."""
    for argument in streamed:
        code = re.sub(_element(argument), f"clhist_{argument.name}", code)
    return code


def max_pairs_of(name: str, code: str, preamble: str = "") -> int | None:
    """Return how often the map `code` calls the macro `name` for one element at most.

    None if a loop, or a macro or function of the preamble, may repeat it.
    """
    loop, used = r"\b(for|while|do|goto)\b", rf"\b{name}\b"
    macros = re.findall(r"^\s*#\s*define\b(?:.*\\\n)*.*", preamble, re.MULTILINE)
    if re.search(loop, code) or re.search(r"#\s*define\b", code) or re.search(used, preamble):
        return None
    if any(re.search(rf"{loop}|##", macro) for macro in macros):
        return None
    wrappers = [found for macro in macros for found in re.findall(r"#\s*define\s+(\w+)\(", macro)]
    if any(re.search(rf"\b{wrapper}\s*\([^;]*{used}", code) for wrapper in wrappers):
        return None
    return len(re.findall(rf"\b{name}\b", code))


def uniform_value(suffix: str, code: str, arguments: Iterable[Argument], preamble: str = "") -> str | None:
    """Return the value that the map `code` gives to every pair, if it is of scalar arguments and literals alone.

    That is only said of maps that name their ``EMIT`` once, and themselves.
    """
    name = rf"\bEMIT{suffix}\b"
    if len(re.findall(name, code)) != 1 or "#" in code or re.search(name, preamble):
        return None
    found = re.search(rf"\bEMIT{suffix}\s*\((.*)\)\s*;?\s*$", code, re.DOTALL)
    if found is None or not re.fullmatch(r"[\w\s.+*/()-]*", last := _last_argument(found[1])):
        return None
    scalars = {argument.name for argument in arguments if not argument.is_array}
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", last)
    return last.strip() if last.strip() and all(name in scalars for name in names) else None


def _last_argument(text: str) -> str:
    """Return what stands after the last comma outside parentheses; all if there is none."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += (text[position] in ")]}") - (text[position] in "([{")
        if text[position] == "," and depth == 0:
            return text[position + 1 :]
    return text


def _element(argument: Argument) -> str:
    return rf"(?<!\.)(?<!->)\b{argument.name}\s*\[\s*i\s*\]"
