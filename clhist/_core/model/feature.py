"""A feature: what one idea adds to the kernel of a sweep, and what the kernel is then given. Pure.

A strategy has its features in its own module, each with a template of kernels_cl. So what a plan knows and a kernel
needs is written once: as a parameter, as the plan's number for it, and as C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from clhist._core.model.plan import Output

INT, UINT, LONG, ULONG = (np.dtype(kind) for kind in (np.int32, np.uint32, np.int64, np.uint64))


class Parameter(NamedTuple):
    """One parameter of a kernel: its C type, its name, and its dtype, which is None for a buffer."""

    c_type: str
    name: str
    dtype: np.dtype | None

    @property
    def declaration(self) -> str:
        """Its declaration in C."""
        return f"{self.c_type} {self.name}"


class Variable(NamedTuple):
    """One variable of a kernel that its functions pass on: its C type and its name."""

    c_type: str
    name: str


class SweepView(Protocol):
    """The attributes of a sweep that a feature may read: those of `clhist._core.kernels.specs.SweepSpec`."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The histograms that it fills."""

    @property
    def wide(self) -> bool:
        """Whether elements and bins are counted in 64 bits."""

    @property
    def memory(self) -> str:
        """The memory that has the copies."""


@dataclass(frozen=True)
class Feature:
    """An addition to a sweep. A value: equal features make equal source.

    Attributes
    ----------
    template : str
        Of kernels_cl: it has a def for each of the sections.
    sections : tuple of str
        Which sections of ``sweep.mako`` and its parts it fills, or takes over.
    scratch : str
        Parameter for memory of its own, of `scratch_bytes`; nothing if it has none.
    replaces_cells : bool
        Whether its state takes the place of cells and locks.
    combine_rows : int
        Rows of a work-group of the second stage, if it has a layout of copies of its own; 0 if not.
    """

    template: ClassVar[str] = ""
    sections: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[str] = ""
    replaces_cells: ClassVar[bool] = False
    combine_rows: ClassVar[int] = 0

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        """Return the parameters that it adds to the kernel."""
        return ()

    def arguments(self, plan: Any, sweep: SweepView) -> Mapping[str, object]:
        """Return the arguments for these that follow from the plan, by name."""
        return {}

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        """Return the variables that an update needs besides those of the copies."""
        return ()

    @property
    def element_state(self) -> tuple[Variable, ...]:
        """Variables that only the map of an element passes to its ``EMIT``."""
        return ()

    def scratch_bytes(self, plan: Any, sweep: SweepView) -> int:
        """Return the bytes of the memory for `scratch`."""
        return 0

    def comment(self) -> str:
        """Return what it is, in a few words, for the head of the source."""
        return ""

    def combine_parameters(self) -> tuple[Parameter, ...] | None:
        """Return the parameters that it adds to the second stage; None if that does not depend on it."""
        return None

    @property
    def bins_per_word(self) -> int:
        """Bins of a copy that share a word."""
        return 1


def buffers(c_type: str, *names: str) -> tuple[Parameter, ...]:
    """Return parameters that are buffers, such as of the type ``__global uint *``."""
    return tuple(Parameter(c_type, f"clhist_{name}", None) for name in names)


def uints(*names: str) -> tuple[Parameter, ...]:
    """Return parameters of 32 bits."""
    return tuple(Parameter("const uint", f"clhist_{name}", UINT) for name in names)


def ulongs(*names: str) -> tuple[Parameter, ...]:
    """Return parameters of 64 bits."""
    return tuple(Parameter("const ulong", f"clhist_{name}", ULONG) for name in names)


def division(width: int) -> tuple[int, int]:
    """Return m and s with ``n // width == (n * m >> 32) >> s`` for all n below 2^31; `width` is at least 2.

    m is the smallest number of at most 32 bits that makes n * m / 2^(32 + s) exceed n / width by less than 1 / width.
    """
    # A power of two: the product with 2^31 is a shift by one to the right, and `s` has the others.
    if width & (width - 1) == 0:
        return 2**31, width.bit_length() - 2
    shift = width.bit_length() - 1
    # Rounded up in exact integers. Since width exceeds 2^s, m fits 32 bits.
    return -(-(2 ** (32 + shift)) // width), shift
