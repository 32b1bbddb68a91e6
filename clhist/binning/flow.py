"""Axes whose bins count what lies outside as well: any piecewise constant function from numbers to bins.

An axis is given as `Pieces`: keys where the bin changes, and the bin of each piece, or -1 where an element is dropped.
Besides these there are integers from a start on, and axes that wrap around.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from clhist.binning.axis import EVEN, AxisKind, axis_of, bits_of, can_be_packed, has_no_type, key_of_bits, packed_table
from clhist.binning.keys import Array, bits_dtype, from_keys, key_dtype, key_range
from clhist.binning.lanes import ABSENT, LOOP, axis_functions, has_lanes, quick_block, table_block, with_absent
from clhist.binning.thresholds import Thresholds
from clhist.operators.c_types import c_name, literal

_NEAR = 64  # keys beside an edge among which a threshold mostly is


class Kind(Protocol):
    """What the C of an axis depends on, as `AxisKind`."""

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


class _OneByOne:
    """Kinds that find the bins of a block one after the other."""

    def block_functions(self) -> tuple[str, ...]:
        """Return C of the functions that `block` calls besides: none."""
        return ()

    def block(self: Any, array: str, n: int, target: str, absent: str = ABSENT) -> str:
        """Return C that makes ``target[e]`` the bin on axis `n` of element ``begin + e`` of `array`, or `absent`."""
        return f"{LOOP} {target}[e] = {self.call(f'{array}[begin + e]', n)};{with_absent(target, absent)}"


@dataclass(frozen=True)
class FlowKind:
    """Pieces between thresholds; what is below or above all, and NaN, have numbers of their own.

    Attributes
    ----------
    inner : AxisKind
        How a piece is found.
    listed : bool
        Whether the bins of pieces are listed, rather than counted from a first one.
    """

    inner: AxisKind
    listed: bool

    @property
    def data(self) -> np.dtype:
        """Dtype of the array that a kernel gets."""
        return self.inner.data

    def parameters(self, n: int) -> str:
        """Return the declarations of the arguments of axis `n`."""
        found = f"{self.inner.parameters(n)}, int below{n}, int above{n}, int none{n}"
        return f"const int *listed{n}, {found}" if self.listed else f"{found}, int first{n}"

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that find the bin of an element."""
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
        """Return C that finds the bin of `element` on axis `n`, or -1."""
        names = ", ".join(each.split()[-1].lstrip("*") for each in self.parameters(n).split(","))
        return f"{self._name}({bits_of(element, self.inner.data)}, {names})"

    def block_functions(self) -> tuple[str, ...]:
        """Return C of the functions that `block` calls besides."""
        return axis_functions(self.inner) if self._is_quick else ()

    def block(self, array: str, n: int, target: str, absent: str = ABSENT) -> str:
        """Return C that makes ``target[e]`` the bin on axis `n` of element ``begin + e`` of `array`, or `absent`."""
        if self.inner.kind != EVEN and has_lanes(self.inner):
            low, high = self._ends
            outside = f"((key < {low}) | (key > {high})) ? none{n} : (key < start ? below{n} : above{n})"
            then = f"""{LOOP} {{
        const {c_name(key_dtype(self.inner.dtype))} key = numbers[e];
        const int k = {target}[e];
        {target}[e] = k >= 0 ? {f"listed{n}[k]" if self.listed else f"k + first{n}"} : ({outside});
    }}"""
            return table_block(self.inner, array, n, target, then) + with_absent(target, absent)
        found = self.call(f"{array}[begin + e]", n)
        if self._is_quick:
            numbers = f"first{n}", f"below{n}", f"above{n}"
            return quick_block(self.inner, array, n, target, found, absent, numbers)
        return f"{LOOP} {target}[e] = {found};{with_absent(target, absent)}"

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
        """Return the declarations of the arguments of axis `n`."""
        return f"int start{n}, int bins{n}, int first{n}, int below{n}, int above{n}"

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that find the bin of an element."""
        if self.circular:
            found = "const int rest = z % bins;\n    return first + (rest < 0 ? rest + bins : rest);"
        else:
            found = "return z < 0 ? below : (z < bins ? z + first : above);"
        return (
            f"""
int {self._name}(const int x, const int start, const int bins, const int first, const int below, const int above)
{{
    const int z = (int)((uint)x - (uint)start);
    {found}
}}
""",
        )

    def call(self, element: str, n: int) -> str:
        """Return C that finds the bin of `element` on axis `n`, or -1."""
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
        """Return the declarations of the arguments of axis `n`."""
        return f"double low{n}, double width{n}, int bins{n}"

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that find the bin of an element."""
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
        """Return C that finds the bin of `element` on axis `n`."""
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
        """Return the declarations of the arguments of axis `n`."""
        return f"{self.inner.parameters(n)}, double origin{n}, double period{n}"

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that find the bin of an element."""
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
        """Return C that finds the bin of `element` on axis `n`, or -1."""
        return self.inner.call(f"wrapped((double)({element}), origin{n}, period{n})", n)


@dataclass(frozen=True)
class FixedKind(_OneByOne):
    """One bin for all elements."""

    data: None = None

    def parameters(self, n: int) -> str:
        """Return the declaration of the argument of axis `n`."""
        return f"int fixed{n}"

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that are needed: none."""
        return ()

    def call(self, element: str, n: int) -> str:
        """Return C of the bin on axis `n`."""
        return f"fixed{n}"


@dataclass(frozen=True, eq=False)
class FlowAxis:
    """One axis, ready for a kernel; as `clhist.binning.Axis`, but for any kind.

    Attributes
    ----------
    kind : Kind
        What its C depends on.
    arrays : tuple of array
        The first arguments of its parameters.
    scalars : tuple
        The other ones.
    extent : int
        Bins, those of what lies outside included.
    """

    kind: Kind
    arrays: tuple[Array, ...]
    scalars: tuple[Any, ...]
    extent: int

    @cached_property
    def packed(self) -> FlowAxis:
        """The axis with a packed table, if it can have one; see `Axis.packed`."""
        if not isinstance(self.kind, FlowKind) or not can_be_packed(self.kind.inner):
            return self
        *listed, keys, cells = self.arrays
        table = packed_table(keys, cells, int(self.scalars[0]))
        kind = replace(self.kind, inner=replace(self.kind.inner, packed=True))
        return replace(self, kind=kind, arrays=(*listed, keys, table))


@dataclass(frozen=True)
class Pieces:
    """Where the bin of a number changes.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the data.
    keys : array
        Least key of each piece, ascending; the first is that of the least number.
    bins : array of int
        Bin of each piece, or -1.
    none : int
        Bin of NaN, or -1.
    """

    dtype: np.dtype
    keys: Array
    bins: Array
    none: int


def joined(pieces: Pieces) -> Pieces:
    """Return `pieces` without empty ones, and neighbours of one bin as one."""
    keys, bins = pieces.keys, pieces.bins
    filled = np.append(keys[1:] != keys[:-1], True)
    keys, bins = keys[filled], bins[filled]
    changes = np.insert(bins[1:] != bins[:-1], 0, True)
    return Pieces(pieces.dtype, keys[changes], bins[changes], pieces.none)


def flow_axis(pieces: Pieces, extent: int, *, fp64: bool) -> FlowAxis:
    """Return the axis of these pieces, for a device that has double precision or has not (`fp64`)."""
    pieces = joined(pieces)
    keys, bins, last = pieces.keys, pieces.bins.astype(np.int32), key_range(pieces.dtype)[1]
    below, above = int(bins[0]), int(bins[-1])
    if len(keys) > 2:  # what is below and above all others is compared once, not searched for
        last = int(keys[-1]) - 1
        keys, bins = keys[1:-1], bins[1:-1]
    axis = axis_of(Thresholds(pieces.dtype, len(keys), keys, last), fp64=fp64)
    first = int(bins[0])
    listed = bool(first < 0 or (bins != np.arange(first, first + len(bins))).any())
    outside = (below, above, pieces.none)
    if listed:
        return FlowAxis(FlowKind(axis.kind, True), (bins, *axis.arrays), (*axis.scalars, *outside), extent)
    return FlowAxis(FlowKind(axis.kind, False), axis.arrays, (*axis.scalars, *outside, first), extent)


def wrapped_axis(pieces: Pieces, dtype: np.dtype, origin: float, period: float, extent: int) -> FlowAxis:
    """Return the axis of pieces of float64 that repeat, for data of `dtype`."""
    axis = flow_axis(pieces, extent, fp64=True)
    assert isinstance(axis.kind, FlowKind)
    kind = WrappedKind(kernel_dtype(dtype), axis.kind)
    return FlowAxis(kind, axis.arrays, (*axis.scalars, np.float64(origin), np.float64(period)), extent)


def kernel_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which a kernel gets data that it converts itself."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def are_converted(dtype: np.dtype, fp64: bool) -> bool:
    """Whether kernels convert data of `dtype` to double precision."""
    return fp64 and not has_no_type(dtype, fp64)


def pieces_by(index: Any, dtype: np.dtype, bounds: tuple[int, int], near: Array | None = None) -> tuple[Array, Array]:
    """Return keys and numbers of the pieces of a monotone function of numbers, between two keys (both included).

    Parameters
    ----------
    index : callable
        Gives an integer for each element of an array of `dtype`; ascends or descends.
    dtype : numpy.dtype
        Of the data.
    bounds : (int, int)
        Keys of the first and the last number.
    near : array of int64 or uint64, optional
        Keys near which changes are looked for first, one for each number from the least on.
    """
    key = key_dtype(dtype)

    def at(keys: Array) -> Array:
        return np.asarray(index(from_keys(keys, dtype)), np.int64)

    ends = np.array(bounds, key)
    begin, end = at(ends).tolist()
    step = 1 if end >= begin else -1
    numbers = np.arange(begin + step, end + step, step) if begin != end else np.zeros(0, np.int64)
    low, high = np.full(len(numbers), ends[0]), np.full(len(numbers), ends[1])

    def reached(keys: Array, these: Array) -> Array:
        return at(keys) * step >= these * step

    if near is not None and len(near) == len(numbers):
        floor = np.maximum(near, ends[0] + key.type(_NEAR)) - key.type(_NEAR)
        roof = np.minimum(near, ends[1] - key.type(_NEAR)) + key.type(_NEAR)
        fits = (floor <= roof) & ~reached(floor, numbers) & reached(roof, numbers)
        low, high = np.where(fits, floor, low), np.where(fits, roof, high)
    unsigned = np.dtype(f"u{key.itemsize}")
    while (low < high).any():
        # Differences as unsigned integers: those of signed ones overflow.
        half = ((high.astype(unsigned) - low.astype(unsigned)) >> unsigned.type(1)).astype(unsigned)
        middle = (low.astype(unsigned) + half).astype(key)
        found = reached(middle, numbers)
        high = np.where(found, middle, high)
        low = np.where(found | (low == high), low, (middle.astype(unsigned) + unsigned.type(1)).astype(key))
        low = np.minimum(low, high)
    return np.insert(low, 0, ends[0]), np.insert(numbers, 0, begin)
