"""Kinds of axes, which their C depends on: edges, with or without outer bins, integers, and axes that wrap around."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from clhist._core.elements import bits_of, key_of_bits
from clhist._core.keys import bits_dtype, key_dtype, key_range
from clhist.axes import block_search
from clhist.axes.block_search import ABSENT, EVEN, LOOP, with_absent
from clhist.axes.edges import EdgesKind
from clhist.operators.c_types import c_name, literal


class Kind(Protocol):
    """The interface of all kinds of axes."""

    @property
    def data(self) -> np.dtype | None:
        """Dtype of the array that a kernel gets; None if it gets none."""

    def parameters(self, n: int) -> str:
        """Return the declarations of the arguments of axis `n`."""

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that find the bin of an element."""

    def call(self, element: str, n: int) -> str:
        """Return C that finds the bin of `element` on axis `n`, or -1."""

    def block_functions(self) -> tuple[str, ...]:
        """Return C of the functions that `block` calls besides."""

    def block(self, array: str, n: int, target: str, absent: str = ABSENT) -> str:
        """Return C that makes ``target[e]`` the bin on axis `n` of element ``begin + e`` of `array`, or `absent`."""

    @property
    def has_block(self) -> bool:
        """Whether `block` supports these elements."""

    @property
    def joint(self) -> EdgesKind | None:
        """The edges, if the axis can be one of `joint_block`."""

    @property
    def with_packed_table(self) -> Kind | None:
        """The kind with a packed table, if it can have one; see `Axis.packed`."""


class _OneByOne:
    """Kinds that find the bins of a block one after the other."""

    has_block = True
    joint = None
    with_packed_table = None

    def block_functions(self) -> tuple[str, ...]:
        return ()

    def block(self: Any, array: str, n: int, target: str, absent: str = ABSENT) -> str:
        return f"{LOOP} {target}[e] = {self.call(f'{array}[begin + e]', n)};{with_absent(target, absent)}"


@dataclass(frozen=True)
class FlowKind:
    """Pieces between thresholds; what is below or above all, and NaN, have numbers of their own.

    Attributes
    ----------
    inner : EdgesKind
        How a piece is found.
    listed : bool
        Whether the bins of pieces are listed, rather than counted from a first one.
    """

    inner: EdgesKind
    listed: bool

    @property
    def data(self) -> np.dtype:
        return self.inner.data

    def parameters(self, n: int) -> str:
        declared = f"{self.inner.parameters(n)}, int below{n}, int above{n}, int none{n}"
        return f"const int *listed{n}, {declared}" if self.listed else f"{declared}, int first{n}"

    def functions(self) -> tuple[str, ...]:
        # Packed tables are searched by blocks only.
        if self.inner.packed:
            return ()
        dtype = self.inner.dtype
        key, bits = key_dtype(dtype), c_name(bits_dtype(dtype))
        low, high = self._ends
        declared = f"{self.inner.declared_parameters()}, int below, int above, int none"
        declared = f"__global const int *listed, {declared}" if self.listed else f"{declared}, int first"
        return *self.inner.functions(), (
            f"""
int {self._name}(const {bits} bits, {declared})
{{
    const int k = {self.inner.call_of_bits("bits", "")};
    if (k >= 0) return {"listed[k]" if self.listed else "k + first"};
    const {c_name(key)} key = {key_of_bits(dtype)};
    return key < {low} || key > {high} ? none : (key < start ? below : above);
}}
"""
        )

    def call(self, element: str, n: int) -> str:
        names = ", ".join(declaration.split()[-1].lstrip("*") for declaration in self.parameters(n).split(","))
        return f"{self._name}({bits_of(element, self.inner.data)}, {names})"

    def block_functions(self) -> tuple[str, ...]:
        return block_search.functions(self.inner) if self._is_quick else ()

    def block(self, array: str, n: int, target: str, absent: str = ABSENT) -> str:
        # A table: one loop finds pieces, a second one replaces them by bins, or by the bins of what lies outside.
        if self.inner.kind != EVEN and self.inner.has_block:
            low, high = self._ends
            outside = f"((key < {low}) | (key > {high})) ? none{n} : (key < start ? below{n} : above{n})"
            then = f"""{LOOP} {{
        const {c_name(key_dtype(self.inner.dtype))} key = numbers[e];
        const int k = {target}[e];
        {target}[e] = k >= 0 ? {f"listed{n}[k]" if self.listed else f"k + first{n}"} : ({outside});
    }}"""
            return block_search.table_block(self.inner, array, n, target, then) + with_absent(target, absent)
        call = self.call(f"{array}[begin + e]", n)
        # Most elements have a sure guess; the search of one element is called for the others.
        if self._is_quick:
            numbers = f"first{n}", f"below{n}", f"above{n}"
            return block_search.quick_block(self.inner, array, n, target, call, absent, numbers)
        return f"{LOOP} {target}[e] = {call};{with_absent(target, absent)}"

    has_block = True

    @property
    def joint(self) -> EdgesKind | None:
        return self.inner if self._is_quick and self.inner.data.kind == "f" else None

    @cached_property
    def with_packed_table(self) -> FlowKind | None:
        inner = self.inner.with_packed_table
        return None if inner is None else replace(self, inner=inner)

    @property
    def _ends(self) -> tuple[str, str]:
        dtype = self.inner.dtype
        low, high = (literal(end, key_dtype(dtype)) for end in key_range(dtype))
        return low, high

    @property
    def _is_quick(self) -> bool:
        return self.inner.kind == EVEN and not self.listed

    @property
    def _name(self) -> str:
        return f"flow_{'listed_' if self.listed else ''}{self.inner.name}"


@dataclass(frozen=True)
class IntegerKind(_OneByOne):
    """Integers from a start on, one in each bin, in the 32 bits that boost-histogram computes in.

    Attributes
    ----------
    data : numpy.dtype
        Of the array that a kernel gets.
    circular : bool
        Whether bins repeat.
    as_bool : bool
        Whether it is counted whether a number is not 0.
    """

    data: np.dtype
    circular: bool = False
    as_bool: bool = False

    def parameters(self, n: int) -> str:
        return f"int start{n}, int bins{n}, int first{n}, int below{n}, int above{n}"

    def functions(self) -> tuple[str, ...]:
        # C's remainder has the sign of the dividend, so a negative one moves up by a period.
        if self.circular:
            body = "const int rest = z % bins;\n    return first + (rest < 0 ? rest + bins : rest);"
        else:
            body = "return z < 0 ? below : (z < bins ? z + first : above);"
        # The difference is unsigned in C: overflow of signed integers is undefined.
        return (
            f"""
int {self._name}(const int x, const int start, const int bins, const int first, const int below, const int above)
{{
    const int z = (int)((uint)x - (uint)start);
    {body}
}}
""",
        )

    def call(self, element: str, n: int) -> str:
        value = f"({element}) != 0" if self.as_bool else f"(int)({element})"
        return f"{self._name}({value}, start{n}, bins{n}, first{n}, below{n}, above{n})"

    @property
    def _name(self) -> str:
        return "circular_integer" if self.circular else "integer_bin"


@dataclass(frozen=True)
class TurnKind(_OneByOne):
    """Bins of one width that repeat, computed in double precision in the order that boost-histogram has.

    Attributes
    ----------
    data : numpy.dtype
        Of the array that a kernel gets.
    """

    data: np.dtype

    def parameters(self, n: int) -> str:
        return f"double low{n}, double width{n}, int bins{n}"

    def functions(self) -> tuple[str, ...]:
        # An FMA would round once where the host rounds twice, so contraction is off.
        return (
            """
int turn_bin(const double x, const double low, const double width, const int bins)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double turns = (x - low) / width;
    const double part = turns - floor(turns);
    return isfinite(turns) ? (int)(part * bins) : bins;  // `part` may round to 1
}
""",
        )

    def call(self, element: str, n: int) -> str:
        return f"turn_bin((double)({element}), low{n}, width{n}, bins{n})"


@dataclass(frozen=True)
class WrappedKind(_OneByOne):
    """Pieces of float64 that repeat: a number is brought into the first period in double precision.

    Attributes
    ----------
    data : numpy.dtype
        Of the array that a kernel gets.
    inner : FlowKind
        Of the pieces.
    """

    data: np.dtype
    inner: FlowKind

    def parameters(self, n: int) -> str:
        return f"{self.inner.parameters(n)}, double origin{n}, double period{n}"

    def functions(self) -> tuple[str, ...]:
        # Without contraction, so that the product is rounded as on the host.
        return *self.inner.functions(), (
            """
double wrapped(const double x, const double origin, const double period)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double shift = floor((x - origin) / period) * period;
    return x - shift;
}
"""
        )

    def call(self, element: str, n: int) -> str:
        return self.inner.call(f"wrapped((double)({element}), origin{n}, period{n})", n)


@dataclass(frozen=True)
class FixedKind(_OneByOne):
    """One bin for all elements."""

    data: None = None

    def parameters(self, n: int) -> str:
        return f"int fixed{n}"

    def functions(self) -> tuple[str, ...]:
        return ()

    def call(self, element: str, n: int) -> str:
        return f"fixed{n}"
