"""The parameters of kernels, read from their source: what a template declares is written once. Pure."""

from __future__ import annotations

import re

import numpy as np

from clhist.planning.feature import Parameter

_KERNEL = re.compile(r"__kernel\b[^{;]*?\bvoid\s+clhist_(\w+)\s*\(([^)]*)\)")
_SCALARS = {"int": np.int32, "uint": np.uint32, "long": np.int64, "ulong": np.uint64, "double": np.float64}


def signatures(source: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of each kernel of a program, in order, by its name without ``clhist_``.

    Parameters
    ----------
    source : str
        OpenCL C, whose kernels take memory and numbers of the types above.

    Raises
    ------
    KeyError
        If a number is of another type.
    """
    return {name: tuple(map(_parameter, given.split(","))) for name, given in _KERNEL.findall(source)}


def _parameter(declaration: str) -> Parameter:
    c_type, name = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", declaration, re.DOTALL).groups()  # type: ignore[union-attr]
    if "*" in c_type:
        return Parameter(c_type, name, None)
    return Parameter(c_type, name, np.dtype(_SCALARS[c_type.removeprefix("const ")]))
