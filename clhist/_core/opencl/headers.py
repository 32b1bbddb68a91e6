"""Programs without the header of built-in functions, which takes a CPU runtime longer to parse than a program.

Each runtime includes its header in every program, and leaves it out where the macro of its include guard is defined.
Program texts then declare the functions that they name, or need none. Where that does not compile, the header does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyopencl as cl

# Names of functions that only Intel's header declares, and of headers of the caller, which may use it.
_INTEL_NAMES = re.compile("sub_?group|float_atomics_enable|include")
# Texts that may name functions in files of the caller, or by parts of names, and other versions of OpenCL C.
_UNKNOWN_NAMES = re.compile(r"\binclude\b|##|-cl-std")
# The release in pip's pocl-binary-distribution, which PyOpenCL loads. IR of clhist's kernels was compared for it only.
_POCL_RELEASE = re.compile(r"PoCL 3\.0-rc2 .*LLVM 14\.0\.6\b")
_POCL_HEADER = Path(cl.__file__).parents[1] / "pocl_binary_distribution/.libs/share/pocl/include/opencl-c.h"
_COMMENT, _WORD = re.compile(r"/\*.*?\*/", re.S), re.compile(r"[A-Za-z_]\w*")


_Line = tuple[int, tuple[str, ...], str]  # its number, the #if directives around it, and its text


def without_header(platform: cl.Platform, source: str, options: Sequence[str]) -> tuple[str, list[str]]:
    """Return a program's text and options for a build without the runtime's header, or both unchanged.

    An empty kernel takes Intel's runtime 15 ms in place of 29, and PoCL 3.0 15 ms in place of 140 (EPYC), to the same
    code: Intel's header has only functions of sub-groups and extensions, and PoCL's declarations are copied.
    """
    name, text = platform.name.strip(), " ".join((*options, source))
    if name == "Intel(R) OpenCL" and not _INTEL_NAMES.search(text):
        return source, [*options, "-D_OPENCL_CTH_"]
    is_checked = name == "Portable Computing Language" and _POCL_RELEASE.search(platform.version)
    if is_checked and _POCL_HEADER.is_file() and not _UNKNOWN_NAMES.search(text):
        # The compiler counts lines from 1 again, for what reads its messages.
        return f"{_declarations({*_WORD.findall(text)})}#line 1\n{source}", [*options, "-D_OPENCL_H_"]
    return source, [*options]


def _declarations(names: set[str]) -> str:
    """Return the declarations of `names` in PoCL's header, all of each name, with the directives around them."""
    functions, directives = _pocl_header()
    lines = [*directives, *(line for name in names & functions.keys() for line in functions[name])]
    parts = []
    for conditions, group in groupby(sorted(lines), key=itemgetter(1)):
        parts += [*conditions, *(text for _, _, text in group), "#endif\n" * len(conditions)]
    return "".join(parts)


@lru_cache(maxsize=1)
def _pocl_header() -> tuple[dict[str, list[_Line]], list[_Line]]:
    """Return the lines of PoCL's header that declare functions, by their names, and macros and pragmas."""
    functions: dict[str, list[_Line]] = defaultdict(list)
    directives: list[_Line] = []
    conditions: tuple[str, ...] = ()
    lines = iter(_COMMENT.sub("", _POCL_HEADER.read_text(encoding="ascii")).splitlines(keepends=True))
    for number, text in enumerate(lines):
        if text[0] == "#":
            while text.endswith("\\\n"):
                text += next(lines)
            if text.startswith("#if"):
                conditions = (*conditions, text)
            elif text.startswith("#endif"):
                conditions = conditions[:-1]
            # The first condition is the include guard, which the option of the build closes.
            elif not text.startswith(("#include", "#define _OPENCL_H_")):
                directives.append((number, conditions[1:], text))
        elif text[0].isalpha():
            while ";" not in text:
                text += next(lines)
            functions[text[: text.index("(")].split()[-1]].append((number, conditions[1:], text))
    return functions, directives
