"""Programs without PoCL's header of built-in functions, which takes longer to parse than a program takes to compile.

PoCL includes the header in every program, and leaves it out where the macro of its include guard is defined. Program
texts then have the header's declarations of the functions that they name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyopencl as cl

# Texts that may name functions in files of the caller, or by parts of names, and other versions of OpenCL C.
_UNKNOWN_NAMES = re.compile(r"\binclude\b|##|-cl-std")
# The release in pip's pocl-binary-distribution, which PyOpenCL loads. IR of clhist's kernels was compared for it only.
_RELEASE = re.compile(r"PoCL 3\.0-rc2 .*LLVM 14\.0\.6\b")
_HEADER = Path(cl.__file__).parents[1] / "pocl_binary_distribution/.libs/share/pocl/include/opencl-c.h"
_DIRECTIVE = re.compile(r"\n(#(?:.*\\\n)*.*)")
_COMMENT, _WORD = re.compile(r"/\*(?s:.*?)\*/|//.*"), re.compile(r"[A-Za-z_]\w*")
_EACH = "#"  # the name of directives that every program gets


class _Block(NamedTuple):
    conditions: tuple[str, ...]  # the #if directives around it
    names: list[str]
    declarations: list[str]


def without_header(platform: cl.Platform, source: str, options: Sequence[str]) -> tuple[str, list[str]]:
    """Return a program's text and options for a build without the header, or both unchanged.

    An empty kernel takes PoCL 3.0 15 ms in place of 140 (EPYC), to the same code: declarations are the header's.
    """
    is_checked = _RELEASE.search(platform.version) and _HEADER.is_file()
    if not is_checked or _UNKNOWN_NAMES.search(" ".join((*options, source))):
        return source, [*options]
    # The compiler counts lines from 1 again, for what reads its messages.
    names = {_EACH, *_WORD.findall(" ".join((*options, source)))}
    return f"{_declarations(names)}\n#line 1\n{source}", [*options, "-D_OPENCL_H_"]


def _declarations(names: set[str]) -> str:
    """Return the declarations of `names` in PoCL's header, all overloads, with the directives around them."""
    parts = []
    for block in _header():
        declared = [text for name, text in zip(block.names, block.declarations, strict=True) if name in names]
        if declared:
            parts += [*block.conditions, *declared, *["#endif"] * len(block.conditions)]
    return "\n".join(parts)


@lru_cache(maxsize=1)
def _header() -> list[_Block]:
    """Return the parts of PoCL's header between its directives."""
    blocks = []
    conditions: tuple[str, ...] = ()
    _, *parts = _DIRECTIVE.split(_COMMENT.sub("", _HEADER.read_text(encoding="ascii")))
    for directive, text in zip(parts[::2], parts[1::2], strict=True):
        if directive.startswith("#if"):
            conditions = (*conditions, directive)
        elif directive.startswith("#endif"):
            conditions = conditions[:-1]
        elif not directive.startswith(("#include", "#define _OPENCL_H_")):
            blocks.append(_Block(conditions[1:], [_EACH], [directive]))
        # The first condition is the include guard, which the option of the build closes.
        declarations = [f"{part};" for part in text.split(";")[:-1]]
        names = [part.partition("(")[0].rstrip().rpartition(" ")[2] for part in declarations]
        blocks.append(_Block(conditions[1:], names, declarations))
    return blocks
