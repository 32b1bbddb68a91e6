"""The arguments of a map: parsed from C declarations, and checked against the values of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from clhist._core.kernels.maps import Argument
from clhist.operators.c_types import IDENTIFIER, c_name, dtype_of, supported_dtype, without_comments
from clhist.operators.halves import number_of

_QUALIFIERS = ("__global", "global", "__restrict__", "__restrict", "restrict", "volatile")
_FORBIDDEN_SPACES = ("__local", "local", "__constant", "constant", "__private", "private")
_RESERVED = ("i", "EMIT", "min", "max", "barrier", "value_t", "accumulator_t", "cell_t", "word_t")  # the kernel's own
_DECLARATION = re.compile(r"(?P<type>.*?)(?P<mark>[*&]?)\s*(?P<name>[A-Za-z_]\w*)\s*\Z", re.DOTALL)

_INTEGERS = int, np.integer


def parse_arguments(declarations: str, structs: Mapping[str, np.dtype]) -> tuple[Argument, ...]:
    """Return the arguments that a C parameter list declares, such as ``"__global const int *x, float scale"``.

    Parameters
    ----------
    declarations : str
        Pointers are arrays in global memory, the rest scalars. A pointer to ``const`` is only read. What is a reference
        to ``const``, such as ``const float &scale``, is a scalar that is the first element of an array.
    structs : mapping of str to numpy.dtype
        Structured types by the names that the declarations use.

    Raises
    ------
    ValueError
        If a declaration cannot be parsed, a name is taken or reserved, or a type is unknown; it is named.
    """
    arguments: list[Argument] = []
    declarations = without_comments(declarations)
    for text in declarations.split(",") if declarations.strip() else ():
        words = re.sub(r"([*&])", r" \1 ", text).split()
        forbidden = [word for word in words if word in _FORBIDDEN_SPACES]
        if forbidden:
            raise ValueError(
                f"arguments: {text.strip()!r} is in {forbidden[0]} memory; expected global arrays and scalars"
            )
        is_const = "const" in words
        plain = " ".join(word for word in words if word != "const" and word not in _QUALIFIERS)
        match = _DECLARATION.match(plain)
        if not match or not match["type"].strip() or re.search("[*&]", match["type"]):
            raise ValueError(
                f"arguments: expected C declarations such as 'const float *x' or 'int n', got {text.strip()!r}"
            )
        mark, name = match["mark"], match["name"]
        # A reference that could be written keeps its mark, and is refused as an unknown type.
        c_type = match["type"].strip() + " &" * (mark == "&" and not is_const)
        dtype = structs.get(c_type, dtype_of(c_type))
        if dtype is None:
            raise ValueError(
                f"arguments: the type {c_type!r} of {name!r} is unknown; expected one of OpenCL C or <stdint.h>, such "
                "as int, ulong, float or int32_t, or a struct given by structs={name: dtype}"
            )
        # A kernel gets an array as `name__base` and `name__offset`.
        reserved = name in _RESERVED or name.startswith("clhist_") or name.endswith(("__base", "__offset"))
        if reserved or name in (argument.name for argument in arguments):
            raise ValueError(f"arguments: the name {name!r} is taken")
        dtype = dtype if mark else number_of(dtype)  # a scalar is a number
        c_type = c_type if c_type in structs else c_name(dtype)
        arguments.append(Argument(name, c_type, dtype, bool(mark), is_const or mark != "*", mark == "&"))
    return tuple(arguments)


def check_structs(structs: Mapping[str, object] | None) -> dict[str, np.dtype]:
    """Return the structured types that a map may name, checked."""
    checked = {}
    for name, dtype in (structs or {}).items():
        if not IDENTIFIER.match(name):
            raise ValueError(f"structs: expected C identifiers as names, got {name!r}")
        if name in ("value_t", "accumulator_t") or name.startswith("clhist_"):
            raise ValueError(f"structs: the name {name!r} is taken")
        checked[name] = supported_dtype(dtype, f"structs[{name!r}]")  # type: ignore[arg-type]
    return checked


def same_scalar(one: object, other: object) -> bool:
    """Whether two values of one argument are the same to the bit: 0.0 and -0.0 are not."""
    if type(one) is not type(other):
        return False
    # Equal integers are the same; bytes take four times as long.
    if isinstance(one, _INTEGERS):
        return bool(one == other)
    if isinstance(one, np.generic) and isinstance(other, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    # `repr` tells 0.0 from -0.0, and NaN equals itself.
    if isinstance(one, float | complex):
        return repr(one) == repr(other)
    return one == other
