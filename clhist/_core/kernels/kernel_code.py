"""A kernel before it is built: what any compiler of OpenCL C makes it of."""

from __future__ import annotations

from typing import NamedTuple

from clhist._core.kernels.maps import Parameter


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
