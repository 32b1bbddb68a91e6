"""Compiler messages on generated code, in terms of the C that the user wrote. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

# Lines that PyOpenCL and runtimes write around the compiler's messages.
_NOISE = ("(options:", "Build on ", "clBuildProgram failed", "Compilation started", "Compilation failed")
# clang names the source as the runtime likes: "3:52:20: error:", "<kernel>:52:20: error:", "error: /tmp/x:52:20:".
_CLANG = re.compile(r"(?:^|[\s:>])(?P<line>\d+):(?P<column>\d+):\s*(?:(?:fatal )?error:\s*)(?P<says>.+)$")
_POCL = re.compile(r"error:\s*\S*?:(?P<line>\d+):(?P<column>\d+)(?: <Spelling=[^>]*>)?:\s*(?P<says>.+)$")
_FUNCTION = re.compile(r"[A-Za-z_][^;={}]*?\b(?P<name>[A-Za-z_]\w*)\s*\([^;]*$")
_PARTS = {"map": "map", "lift": "lift", "combine": "combine", "finish": "finish"}


class Complaint(NamedTuple):
    """One error: where it is in the generated source, and what the compiler says."""

    line: int
    column: int
    says: str


def complaints(log: str) -> list[Complaint]:
    """Return the errors of a compiler's log, in its order; none if it has another format."""
    errors = []
    for line in log.splitlines():
        match = _CLANG.search(line) or _POCL.search(line)
        if match:
            errors.append(Complaint(int(match["line"]), int(match["column"]), match["says"].strip()))
    # Equal errors count once, in the order of the log.
    return list(dict.fromkeys(errors))


def explain(log: str, source: str) -> str:
    """Return the first error with the user's own line, a caret below it, and the part it is in; or the log itself.

    Parameters
    ----------
    log : str
        What the compiler said.
    source : str
        The generated OpenCL C.
    """
    errors = complaints(log)
    lines = source.splitlines()
    if not errors or not 0 < errors[0].line <= len(lines):
        return "\n".join(["the OpenCL compiler refused the kernel:", *_words(log)])
    first = errors[0]
    where, line, column = _user_line(lines, first.line - 1, first.column - 1)
    more = f"\n({len(errors) - 1} more in error.log)" if len(errors) > 1 else ""
    return (
        f"{where}: {first.says}\n    {line}\n    {' ' * column}^{more}\n"
        "error.log has the compiler's full output, error.source the generated OpenCL C"
    )


def _user_line(lines: list[str], number: int, column: int) -> tuple[str, str, int]:
    """Return the part that a line of the source is in, the line as the user wrote it, and the column in that."""
    text = lines[number]
    function, header = _function(lines, number)
    part = next((part for name, part in _PARTS.items() if re.fullmatch(rf"clhist_{name}\w*", function)), None)
    # Which part of the user's C a line is of follows from the name of the function that it is in.
    if part is None and (function or text).lstrip().startswith("clhist_"):
        return "generated code", *_stripped(text, column)
    if part is None and text.startswith("__kernel"):
        return "before the kernel (is a brace or a semicolon missing in your C?)", *_stripped(text, column)
    if part is None:
        return "preamble", *_stripped(text, column)
    if part == "map":  # x[i] is rendered as clhist_element_x
        before, after = (re.sub(r"\bclhist_element_(\w+)\b", r"\1[i]", side) for side in (text[:column], text[column:]))
        line, place = _stripped(before + after, len(before))
        # Lines of the map count from the brace that opens its function.
        begin = next((k for k in range(header, number + 1) if lines[k].startswith("{")), number)
        where = f"map, line {number - begin}" if begin < number else "arguments of the map"  # which may take lines
        return where, line.removesuffix(";"), place
    # Blanks take the place of `return` and the semicolon, so that the column stays right.
    inner = re.sub(r"^\s*return |;\s*$", lambda match: " " * len(match[0]), text)
    return part, *_stripped(inner, column)


def _function(lines: list[str], number: int) -> tuple[str, int]:
    """Return the name of the function that a line is in, and the line of its header."""
    for k in range(number, -1, -1):
        if k < number and lines[k].startswith("}"):
            break  # the end of the one before
        match = _FUNCTION.match(lines[k])
        if match:
            return match["name"], k
    return "", 0


def _stripped(text: str, column: int) -> tuple[str, int]:
    start = len(text) - len(text.lstrip())
    # A tab becomes one blank, since it is one column in the compiler's message.
    line = text.strip().expandtabs(1)
    return line, min(max(0, column - start), len(line))


def _words(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.strip() and not line.startswith(_NOISE)]
