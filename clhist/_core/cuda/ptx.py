"""From the PTX that NVIDIA's OpenCL compiles a program to, to the PTX that CUDA loads: the text alone.

Two things differ. OpenCL's driver sets registers of its own: `%envreg0` to `2` are the first group and `%envreg3` to
`5` the first work-item of a launch, always 0 here, and `%envreg6` to `8` the numbers of groups. And local memory of
more than 48 KB must be dynamic: its size is an argument of the launch. What is not known here is refused.
Note [PTX of OpenCL for CUDA], docs/decisions/0014.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

STATIC_BYTES = 48 * 1024  # of shared memory whose size a program may declare

_ALL, _ALIGN = "clhist_dynamic", 16  # the name of dynamic memory, where it has several arrays, and what they begin at
_NEWEST = 9  # major version of PTX
_REGISTERS = dict.fromkeys(range(6), "0") | {6: "%nctaid.x", 7: "%nctaid.y", 8: "%nctaid.z"}
# Directives that mean the same to CUDA. Others may be bound by OpenCL's driver: textures, samplers, functions.
_KNOWN = {
    *("version", "target", "address_size", "entry", "func", "visible", "weak", "param", "reg", "local", "shared"),
    *("global", "const", "maxntid", "reqntid", "minnctapersm", "maxnreg", "noreturn", "pragma", "branchtargets"),
    *("callprototype", "file", "loc", "section", "b8", "b16", "b32", "b64", "align"),
    *("metadata_section", "metadata"),  # what OpenCL's driver tells of arguments, which CUDA's passes over
}
_DIRECTIVE = re.compile(r"^[ \t]*\.(\w+)", re.MULTILINE)
_BODY = re.compile(r"^(?:\.(?:visible|weak)[ \t]+)?\.(entry|func)\b(.*?)^\}", re.MULTILINE | re.DOTALL)
_DECLARED = re.compile(r"^(?:\.(?:visible|weak)[ \t]+)?\.func\b[^{};]*;", re.MULTILINE)  # before its body
_NAME = re.compile(r"([\w$]+)\s*\(")
_SHARED = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak)[ \t]+)?\.shared[ \t]+(?:\.align[ \t]+(\d+)[ \t]+)?\.[a-z](\d+)[ \t]+([\w$]+)"
    r"(?:\[(\d+)\])?;[^\n]*\n",
    re.MULTILINE,
)


class UnknownPtxError(Exception):
    """Raised for PTX that has what is not known here."""


class CudaProgram(NamedTuple):
    """PTX that CUDA loads.

    Attributes
    ----------
    text : str
        The PTX.
    dynamic : dict of str to int
        The kernels, and the bytes of dynamic shared memory that a launch of each needs.
    """

    text: str
    dynamic: dict[str, int]


class _Array(NamedTuple):
    name: str
    align: int
    size: int
    line: str


def for_cuda(binary: bytes) -> CudaProgram:
    """Return what CUDA loads in the place of an OpenCL program.

    Parameters
    ----------
    binary : bytes
        As NVIDIA's OpenCL returns it: PTX, ended by zeros.

    Raises
    ------
    UnknownPtxError
        If it is no PTX of a known version, or has what is not known to mean the same to CUDA.
    """
    # The registers of OpenCL's driver become constants, or CUDA's own.
    text = re.sub(r"%envreg(\d+)\b", _register, _checked(binary))
    # A declaration has no body: it would be read as one up to the next closing brace.
    program = _DECLARED.sub("", text)
    outside = _BODY.sub("", program)
    # Arrays outside of all bodies belong to the module, and to each kernel that uses them.
    of_module = _arrays(outside)
    bodies: dict[str, dict[str, str]] = {"entry": {}, "func": {}}
    for match in _BODY.finditer(program):
        named = _NAME.search(match[2])
        if named is None:
            raise UnknownPtxError(f"{match[1]} without a name")
        bodies[match[1]][named[1]] = match[2]
    # For each kernel: the shared arrays that it or its functions use, and those that must become dynamic.
    reached: dict[str, list[_Array]] = {}  # by the entry
    chosen: dict[str, dict[_Array, int]] = {}  # those of them which must be dynamic, each with where it begins
    for name, body in bodies["entry"].items():
        within = _with_functions(body, outside, bodies["func"])
        reached[name] = [*_arrays(within), *(array for array in of_module if _uses(within, array.name))]
        chosen[name] = _largest(reached[name])
    dynamic = {
        name: max((at + array.size for array, at in offsets.items()), default=0) for name, offsets in chosen.items()
    }
    # All moved arrays leave the text: each becomes the dynamic memory itself, or an offset in it.
    moved = {array: at for offsets in chosen.values() for array, at in offsets.items()}
    for array, at in moved.items():
        if _uses(_SHARED.sub("", outside), array.name) or [one.name for one in _arrays(text)].count(array.name) > 1:
            raise UnknownPtxError(f"{array.name}, which must be dynamic, in an initializer or declared twice")
        # The text has one address for an array, so all entries that use it must agree on its offset.
        for name, arrays in reached.items():
            if array in arrays and chosen[name].get(array) != at:
                raise UnknownPtxError(f"{name}: {array.name} and another array in dynamic shared memory")
        text = text.replace(array.line, "", 1)
        if at:
            text = re.sub(rf"{_word(array.name)}(?:[ \t]*\+[ \t]*(\d+))?", partial(_behind, at), text)
    names = [(array.align, array.name) for array, at in moved.items() if not at]
    if any(moved.values()):  # behind the first ones; all of these names have one address
        names.append((_ALIGN, _ALL))
    declared = "".join(f".extern .shared .align {align} .b8 {name}[];\n" for align, name in names)
    head = re.compile(r"^[ \t]*\.address_size[ \t]+64[^\n]*\n", re.MULTILINE)
    return CudaProgram(head.sub(lambda line: line[0] + declared, text, count=1), dynamic)


def _checked(binary: bytes) -> str:
    try:
        text = binary.rstrip(b"\0").decode("ascii") + "\n"
    except UnicodeDecodeError:
        raise UnknownPtxError("a binary that is no text") from None
    text = re.sub(r"//[^\n]*", "", text)  # words in comments mean nothing
    version = re.search(r"^[ \t]*\.version[ \t]+(\d+)\.(\d+)", text, re.MULTILINE)
    if version is None or int(version[1]) > _NEWEST:
        raise UnknownPtxError(f"version {version[1] if version else 'unknown'} of PTX")
    if not re.search(r"^[ \t]*\.address_size[ \t]+64\b", text, re.MULTILINE):
        raise UnknownPtxError("addresses of other than 64 bits")
    unknown = sorted(set(_DIRECTIVE.findall(text)) - _KNOWN)
    if unknown:
        raise UnknownPtxError(f"the directives {', '.join(f'.{name}' for name in unknown)}")
    space = re.search(r"\.ptr[ \t]+\.(?!global\b)(\w+)", text)
    if space:
        raise UnknownPtxError(f"an argument in {space[1]} memory")
    if "%envreg" in re.sub(r"%envreg[0-8]\b", "", text):
        raise UnknownPtxError("a register that OpenCL's driver sets")
    return text


def _register(match: re.Match[str]) -> str:
    return _REGISTERS[int(match[1])]


def _arrays(text: str) -> list[_Array]:
    arrays = []
    for match in _SHARED.finditer(text):
        item = int(match[2]) // 8
        arrays.append(_Array(match[3], int(match[1] or item), item * int(match[4] or 1), match[0]))
    return arrays


def _word(name: str) -> str:
    return rf"(?<![\w$]){re.escape(name)}(?![\w$])"


def _uses(body: str, name: str) -> bool:
    return re.search(_word(name), body) is not None


def _with_functions(body: str, outside: str, functions: dict[str, str]) -> str:
    """Return the body of an entry with those of all functions that it may call: their addresses may be in tables."""
    # Functions may call further ones, so the search ends when no new one is reached.
    left, text = dict(functions), body
    while called := [name for name in left if _uses(text, name) or _uses(outside, name)]:
        text += "".join(left.pop(name) for name in called)
    return text


def _behind(begin: int, match: re.Match[str]) -> str:
    return f"{_ALL}+{begin + int(match[1] or 0)}"


def _largest(arrays: list[_Array]) -> dict[_Array, int]:
    """Return the arrays of an entry that must be dynamic, its largest, if there is too much for static ones.

    Each has where it begins in dynamic memory, which is after all static arrays of an entry, for its functions as well.
    """
    total, offsets, begin = sum(array.size for array in arrays), {}, 0
    # The largest first, so that as few arrays as possible move.
    for array in sorted(arrays, key=lambda array: -array.size):
        if total <= STATIC_BYTES:
            break
        offsets[array] = begin
        begin += -(-array.size // _ALIGN) * _ALIGN
        total -= array.size
    return offsets
