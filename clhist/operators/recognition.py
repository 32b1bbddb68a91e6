"""Recognising, in a C expression, an operation that hardware may have (SC'20, section III-B: "pattern matching").

Only the text is looked at. An expression that is not recognised still works, by a compare-exchange loop or a lock.
"""

from __future__ import annotations

import re

import numpy as np

# Operators of two characters are one token, so that blanks in the user's text do not matter.
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[<>=!]=|&&|\|\||\S")

# A commutative expression stands once: the other order of a and b is derived.
_ANY_NUMBER = {"a + b": "add", "a * b": "multiply"}
_INTEGERS_ONLY = {
    "a & b": "bitwise_and",
    "a | b": "bitwise_or",
    "a ^ b": "bitwise_xor",
    "a && b": "logical_and",
    "a || b": "logical_or",
    "min ( a , b )": "minimum",
    "a < b ? a : b": "minimum",
    "a <= b ? a : b": "minimum",
    "a > b ? b : a": "minimum",
    "a >= b ? b : a": "minimum",
    "max ( a , b )": "maximum",
    "a > b ? a : b": "maximum",
    "a >= b ? a : b": "maximum",
    "a < b ? b : a": "maximum",
    "a <= b ? b : a": "maximum",
}
_FLOATS_ONLY = {"fmin ( a , b )": "fmin", "fmax ( a , b )": "fmax"}


def recognise(combine: str, dtype: np.dtype) -> str | None:
    """Return NumPy's name of the operation that `combine` is on `dtype`, or None.

    On floating-point numbers a comparison is not taken for a minimum or maximum, since it treats NaN in its own way,
    and multiplication of complex numbers is not ``a * b`` on OpenCL's two-vectors.

    Examples
    --------
    >>> recognise("(b + a)", np.dtype(np.int32))
    'add'
    >>> recognise("a < b ? b : a", np.dtype(np.uint8))
    'maximum'
    """
    if dtype.names is not None:
        return None
    tokens = _strip_parentheses(_TOKEN.findall(combine))
    operations = _ANY_NUMBER | (_INTEGERS_ONLY if dtype.kind in "iub" else _FLOATS_ONLY)
    if dtype.kind == "c":
        operations = {"a + b": "add"}
    swapped = [{"a": "b", "b": "a"}.get(token, token) for token in tokens]
    return operations.get(" ".join(tokens)) or operations.get(" ".join(swapped))


# Choices in place of calls: PoCL as PyPI has it inlines no function of OpenCL's, which doubled the time of a sweep.
_AS_CHOICES = {
    "minimum": "a < b ? a : b",
    "maximum": "a > b ? a : b",
    "fmin": "b < a || a != a ? b : a",
    "fmax": "b > a || a != a ? b : a",
}


def without_call(combine: str, dtype: np.dtype) -> str:
    """Return `combine`, as a choice if it calls one of C's functions for the smaller or larger one of numbers.

    Examples
    --------
    >>> without_call("max(a, b)", np.dtype(np.int32))
    'a > b ? a : b'
    """
    return _AS_CHOICES.get(recognise(combine, dtype) or "", combine) if "(" in combine else combine


def replaced_if(combine: str) -> str | None:
    """Return the condition on which `b` takes the place of `a`, if `combine` is that and nothing else.

    Examples
    --------
    >>> replaced_if("(b.time > a.time) ? b : a")
    '(b.time > a.time)'
    """
    # A condition has no assignment, inner choice or sequence: `=` may only be the end of a comparison.
    match = re.fullmatch(r"\s*([^?:,;=]*(?:[<>=!]=[^?:,;=]*)*)\?\s*b\s*:\s*a\s*", combine)
    return match[1].strip() if match and match[1].strip() else None


def _strip_parentheses(tokens: list[str]) -> list[str]:
    """Drop parentheses around the whole, around single names, and around the condition of a choice."""
    text = " ".join(tokens)
    while True:
        # The parentheses of a call stay; names of functions that end so are fmin and fmax as well.
        shorter = re.sub(r"(?<!min )(?<!max )\( (a|b) \)", r"\1", text)
        shorter = re.sub(r"^\( (a (?:[<>]=?) b|b (?:[<>]=?) a) \) \?", r"\1 ?", shorter)
        if shorter.startswith("( ") and _closes_at_end(shorter.split()):
            shorter = shorter[2:-2]
        if shorter == text:
            return text.split()
        text = shorter


def _closes_at_end(tokens: list[str]) -> bool:
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return position == len(tokens) - 1
    return False
