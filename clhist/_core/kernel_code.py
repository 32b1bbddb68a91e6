"""A kernel before it is built: its source, and its parameters, which can be read from the source. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from clhist.operators.c_types import dtype_of

# Attribute of a kernel that runs in work-groups of one work-item: Intel's compiler then makes no vectors of work-items.
ALONE = "__attribute__((reqd_work_group_size(1, 1, 1))) "
_POINTER = re.compile(r"\s*(.*?)\s*\*\s*(\w+)\s*")
_KERNEL = re.compile(r"__kernel\b[^{;]*?\bvoid\s+clhist_(\w+)\s*\(([^)]*)\)")


class Parameter(NamedTuple):
    """One parameter of a kernel: its C type, its name, and its dtype, which is None for a buffer."""

    c_type: str
    name: str
    dtype: np.dtype | None

    @property
    def declaration(self) -> str:
        """Its declaration in C."""
        return f"{self.c_type} {self.name}"


class KernelCode(NamedTuple):
    """One kernel of a program.

    Attributes
    ----------
    source : str
        OpenCL C of the program.
    options : tuple of str
        For the compiler.
    name : str
        The kernel's.
    parameters : tuple of Parameter
        In order.
    """

    source: str
    options: tuple[str, ...]
    name: str
    parameters: tuple[Parameter, ...]


def signatures(source: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each kernel of a program, in order, by its name without ``clhist_``.

    Parameters
    ----------
    source : str
        OpenCL C, whose kernels take memory and numbers.

    Raises
    ------
    KeyError
        If a number is of another type than a dtype of NumPy's.
    """
    return {name: tuple(map(_parameter, declarations.split(","))) for name, declarations in _KERNEL.findall(source)}


def _parameter(declaration: str) -> Parameter:
    c_type, name = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", declaration, re.DOTALL).groups()  # type: ignore[union-attr]
    if "*" in c_type:
        return Parameter(c_type, name, None)
    dtype = dtype_of(c_type.removeprefix("const "))
    if dtype is None:
        raise KeyError(c_type)
    return Parameter(c_type, name, dtype)


def with_arrays(arguments: str) -> tuple[list[str], list[str]]:
    """Return the parameters of a kernel, an array as its memory and the bytes before it; and what declares arrays."""
    declared, arrays = [], []
    for declaration in arguments.split(","):
        match = _POINTER.fullmatch(declaration)
        if match is None:
            declared.append(declaration.strip())
        else:
            kind, name = match.groups()
            # An offset in bytes lets an array begin anywhere in its buffer.
            declared += [f"__global char *{name}_memory", f"const ulong {name}_offset"]
            arrays.append(f"__global {kind} *{name} = (__global {kind} *)({name}_memory + {name}_offset);")
    return declared, arrays
