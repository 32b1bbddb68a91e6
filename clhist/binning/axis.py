"""One axis of bins as a kernel finds them: a guess from a few operations, corrected by the thresholds.

Three kinds of guess, each a C function that returns the bin of an element's bits, or -1:

even
    One multiplication for bins of one width. It is checked on the host how far it is off at each threshold, so that an
    element well within its guessed bin is not compared with anything.
linear, keyed
    A table of cells for other bins: cells even in value, or in key, which is nearly the logarithm of a float. The entry
    of a cell is the first bin that reaches into it; a short binary search, unrolled, finds the one among these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from clhist.binning.keys import Array, bits_dtype, from_keys, key_dtype
from clhist.binning.thresholds import Thresholds
from clhist.operators.c_types import c_name

EVEN, LINEAR, KEYED = "even", "linear", "keyed"

_FARTHEST = 0.25  # of a bin that the guess of even ones may be off; else a table is better
_LEAST_CELLS, _MOST_CELLS = 256, 2**16
_ROUNDS = "12582912.0f"
_SMALLEST = 2.0**-100  # an extent whose parts may be subnormal, which a device may take for 0

_FIND = {
    EVEN: """
int {name}(const {bits} bits, {declared})
{{
    // Added to 1.5 * 2^23 a number is rounded to an integer, which are its last bits: GPUs convert a quarter as fast.
    const float middle = {guess} - 0.5f, shifted = middle + {rounds}, off = middle - (shifted - {rounds});
    const int near = as_int(shifted) - as_int({rounds});
    if (fabs(off) < 0.5f - margin && (uint)near < (uint)num_bins) return near;  // false for NaN
    const {key} key = {key_of};
    if (key < start || key > last) return -1;
    const float guess = {guess};
    int k = guess > 0 ? (guess < num_bins ? (int)guess : num_bins - 1) : 0;
    while (k < num_bins - 1 && key >= keys[k + 1]) ++k;
    while (k > 0 && key < keys[k]) --k;
    return k;
}}
""",
    LINEAR: """
int {name}(const {bits} bits, {declared})
{{
    const {key} key = {key_of};
    if (key < start || key > last) return -1;
    const float guess = {guess}, top = num_cells - 1, positive = guess > 0 ? guess : 0;
    int k = cells[(int)(positive < top ? positive : top)];
    {search}
    return k < num_bins ? k : num_bins - 1;
}}
""",
    KEYED: """
int {name}(const {bits} bits, {declared})
{{
    const {key} key = {key_of};
    if (key < start || key > last) return -1;
    int k = cells[(({unsigned})key - ({unsigned})start) >> shift];
    {search}
    return k < num_bins ? k : num_bins - 1;
}}
""",
}

_PARAMETERS = {
    EVEN: "const {key} *keys, int num_bins, {key} start, {key} last, {value} low, {scale} scale, float margin",
    LINEAR: "const {key} *keys, const int *cells, int num_bins, int num_cells, {key} start, {key} last, {value} low, "
    "{scale} scale",
    KEYED: "const {key} *keys, const int *cells, int num_bins, int shift, {key} start, {key} last",
}


@dataclass(frozen=True)
class AxisKind:
    """What the C of an axis depends on.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the data.
    kind : str
        Of the guess.
    as_bits : bool
        Whether kernels get floats as integers, since the device has no such type.
    steps : int
        Of the binary search that follows a table.
    packed : bool
        Whether an entry of a table says all of its cell, the first one of what lies outside: of tables with one step,
        for blocks of elements (`clhist.binning.lanes`). See `Axis.packed`.
    """

    dtype: np.dtype
    kind: str
    as_bits: bool
    steps: int = 0
    packed: bool = False

    @property
    def data(self) -> np.dtype:
        """Dtype of the array that a kernel gets."""
        return bits_dtype(self.dtype) if self.as_bits or self.dtype.kind not in "iuf" else self.dtype

    def parameters(self, n: int) -> str:
        """Return the declarations of the arguments of axis `n`."""
        return re.sub(r"(\w+)(,|$)", rf"\g<1>{n}\2", self._parameters())

    def given(self, n: int | str) -> str:
        """Return the arguments of axis `n` as its functions get them."""
        return ", ".join(f"{name}{n}" for name in self.parameter_names)

    def declared_parameters(self) -> str:
        """Return the declarations of the parameters of its functions, after that of the bits."""
        return re.sub(r"const (\w+) \*", r"__global const \1 *", self._parameters())

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names in these."""
        return tuple(re.findall(r"(\w+)(?:,|$)", self._parameters()))

    def functions(self) -> tuple[str, ...]:
        """Return C of the functions that find the bin of an element: none of packed tables."""
        if self.packed:
            return ()
        search = "\n    ".join(self.search())
        declared = self.declared_parameters()
        return (_FIND[self.kind].format(name=self.name, declared=declared, search=search, **self._types()),)

    def search(self) -> list[str]:
        """Return steps in C that make `k` the bin of `key`, from the first bin of its cell."""
        return [f"k += {2**s} & -(key >= keys[k + {2**s}]);" for s in reversed(range(self.steps))]

    def call(self, element: str, n: int) -> str:
        """Return C that finds the bin of `element`, of the array that a kernel gets, on axis `n`."""
        return self.call_of_bits(bits_of(element, self.data), n)

    def call_of_bits(self, bits: str, n: int | str) -> str:
        """Return C that finds the bin of an element with these bits on axis `n`."""
        return f"{self.name}({bits}, {self.given(n)})"

    @property
    def name(self) -> str:
        """Name of its function."""
        return f"find_{'packed_' if self.packed else ''}{self.kind}{self.steps or ''}_{self.dtype.name}"

    def _parameters(self) -> str:
        found = _PARAMETERS[self.kind].format(**self._types())
        return found.replace("const int *cells", "const long *cells") if self.packed else found

    def _types(self) -> dict[str, str]:
        key = key_dtype(self.dtype)
        unsigned = c_name(np.dtype(f"u{key.itemsize}"))
        types = {
            "bits": c_name(bits_dtype(self.dtype)),
            "key": c_name(key),
            "unsigned": unsigned,
            "key_of": key_of_bits(self.dtype),
            "rounds": _ROUNDS,
        }
        if self.dtype.kind == "f":
            value = "double" if self.dtype.itemsize == 8 else "float"
            scaled = f"(as_{value}(bits) - low) * scale"
            return types | {"value": value, "scale": value, "guess": f"(float)({scaled})"}
        steps = f"(({unsigned})bits - ({unsigned})low)"
        return types | {"value": types["key"], "scale": "float", "guess": f"((float){steps} + 0.5f) * scale"}


def bits_of(element: str, dtype: np.dtype, lanes: int | str = "") -> str:
    """Return C of the bits of an element of an array of `dtype`, or of a vector of so many."""
    return f"as_{c_name(bits_dtype(dtype))}{lanes}({element})" if dtype.kind == "f" else element


def key_of_bits(dtype: np.dtype, bits: str = "bits") -> str:
    """Return C of the key of an element whose bits are `bits`."""
    if dtype.kind != "f":
        return bits
    width = 8 * dtype.itemsize
    suffix = "L" if width == 64 else ""
    return f"({bits} ^ (({bits} >> {width - 1}) & {hex(2 ** (width - 1) - 1)}{suffix}))"


def has_no_type(dtype: np.dtype, fp64: bool) -> bool:
    """Whether kernels get arrays of `dtype` as integers: float16, and float64 without double precision."""
    return dtype.kind == "f" and dtype.itemsize != 4 and not (fp64 and dtype.itemsize == 8)


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of bins for data of one dtype, ready for a kernel.

    Attributes
    ----------
    kind : AxisKind
        What its C depends on.
    bins : Thresholds
        Where its bins begin.
    arrays : tuple of array
        The first arguments of its parameters: keys, and cells where there are.
    scalars : tuple
        The other ones.
    """

    kind: AxisKind
    bins: Thresholds
    arrays: tuple[Array, ...]
    scalars: tuple[Any, ...]

    @property
    def extent(self) -> int:
        """Bins of it."""
        return self.bins.num_bins

    @cached_property
    def packed(self) -> Axis:
        """The axis with a packed table, if it can have one: a CPU then loads once for each element, not three times."""
        if not can_be_packed(self.kind):
            return self
        keys, cells = self.arrays
        table = packed_table(keys, cells, len(self.bins.keys))
        return replace(self, kind=replace(self.kind, packed=True), arrays=(keys, table))


def can_be_packed(kind: AxisKind) -> bool:
    """Whether a table may be packed: of those that are read by blocks, the ones with one step."""
    return kind.steps == 1 and kind.data.itemsize >= 4


def packed_table(keys: Array, cells: Array, num_bins: int) -> Array:
    """Return the packed table of int64 for a table of cells.

    An entry is a bin `k` and a key `limit`: keys above that are in bin ``k + 1``. Of 32 bits each they are one number,
    else two. The first entry is for what lies outside.
    """
    bounds, k = np.iinfo(keys.dtype), cells[:-1].astype(np.int64)
    starts = keys[k + 1]
    all_above = starts == bounds.min  # no key is in bin `k`
    k = k + all_above
    all_below = all_above | (k == num_bins - 1)
    limit = np.where(all_below, bounds.max, starts - keys.dtype.type(1))
    k, limit = np.append(-1, k), np.append(keys.dtype.type(bounds.max), limit).astype(np.uint64).view(np.int64)
    return (limit << 32) | (k & 0xFFFFFFFF) if keys.dtype.itemsize == 4 else np.stack([k, limit], 1).ravel()


def axis_of(bins: Thresholds, *, fp64: bool) -> Axis:
    """Return the axis of these bins, of which there is at least one; `fp64`: the device has double precision."""
    ends = bins.keys.dtype.type(bins.keys[0]), bins.keys.dtype.type(bins.last)
    as_bits = has_no_type(bins.dtype, fp64)
    guessed = bins.dtype.kind in "iuf" and not as_bits
    with np.errstate(all="ignore"):
        guess = _even_guess(bins) if guessed else None
        margin = None if guess is None else guess.margin(bins)
        if guess is not None and margin is not None:
            scalars = (len(bins.keys), *ends, guess.low, guess.scale, np.float32(margin))
            return Axis(AxisKind(bins.dtype, EVEN, as_bits), bins, (bins.keys,), scalars)
        tables = (_table_of(bins, kind) for kind in ([LINEAR, KEYED] if guessed else [KEYED]))
        kind, cells, scalars = min((table for table in tables if table), key=lambda table: _steps(table[1]))
        steps = _steps(cells)
        # The search may look so far behind the last key.
        behind = np.full(2**steps, np.iinfo(bins.keys.dtype).max, bins.keys.dtype)
        arrays = np.append(bins.keys, behind), cells
        numbers = (len(bins.keys), scalars[0], *ends, *scalars[1:])
        return Axis(AxisKind(bins.dtype, kind, as_bits, steps), bins, arrays, numbers)


def _table_of(bins: Thresholds, kind: str) -> tuple[str, Array, tuple[Any, ...]] | None:
    """Return a table of cells with the arguments that say where these are, or None of linear ones if they cannot be.

    It is as large as makes the search short: a step less is worth twice the cells.
    """
    found: tuple[str, Array, tuple[Any, ...]] | None = None
    num_cells = max(_LEAST_CELLS, 1 << len(bins.keys).bit_length())
    while found is None or (_steps(found[1]) > 1 and num_cells <= _MOST_CELLS):
        if kind == LINEAR:
            guess = _Guess.of(bins, num_cells / _extent(bins))
            cells = None if guess is None else guess.cells(bins, num_cells)
            if guess is None or cells is None:
                return None
            table: tuple[str, Array, tuple[Any, ...]] = (kind, cells, (num_cells, guess.low, guess.scale))
        else:
            cells, shift = _keyed_cells(bins, num_cells)
            table = (kind, cells, (shift,))
        if found is None or _steps(table[1]) < _steps(found[1]):
            found = table
        num_cells *= 2
    return found


def _steps(cells: Array) -> int:
    """Return the steps of a binary search in the fullest cell."""
    return int(np.diff(cells).max()).bit_length()


@dataclass(frozen=True)
class _Guess:
    """The multiplication that guesses a bin or a cell, as the device does it."""

    low: Any
    scale: Any

    @classmethod
    def of(cls, bins: Thresholds, scale: float) -> _Guess | None:
        """Return the guess of so many parts for each 1 of the data, or None if the device cannot compute it."""
        real = bins.dtype.type if bins.dtype.kind == "f" else np.float32
        safe = _SMALLEST < _extent(bins) < np.inf and 0 < real(scale) < np.inf
        return cls(from_keys(bins.keys[:1], bins.dtype)[0], real(scale)) if safe else None

    def at(self, keys: Array, dtype: np.dtype) -> Array:
        """Return the guesses for these keys, as float32."""
        if dtype.kind == "f":
            return ((from_keys(keys, dtype) - self.low) * self.scale).astype(np.float32)
        unsigned = np.dtype(f"u{keys.dtype.itemsize}")
        steps = keys.astype(unsigned) - self.low.astype(keys.dtype).astype(unsigned)
        return (steps.astype(np.float32) + np.float32(0.5)) * self.scale

    def margin(self, bins: Thresholds) -> float | None:
        """Return how near to a whole number a guess may be wrong, or None if it may be far off.

        Guesses grow with the number, those of integers also where a step from the greatest leads to the least. So the
        first and the last number of each bin, and the first one behind all, tell of all numbers.
        """
        count = np.arange(1, len(bins.keys) + 1)
        last = np.append(bins.keys[1:] - 1, bins.keys.dtype.type(bins.last))
        off = [count - 1 - self.at(bins.keys, bins.dtype), self.at(last, bins.dtype) - count]
        behind = np.array([bins.last], bins.keys.dtype) + bins.keys.dtype.type(1)
        if behind[0] != bins.keys[0]:  # else there is none
            off.append(count[-1:] - self.at(behind, bins.dtype))
        farthest = max(float(np.nanmax(each)) for each in off)
        if not farthest < _FARTHEST:
            return None
        return max(0.0, farthest) + len(bins.keys) * 2.0**-22

    def cells(self, bins: Thresholds, num_cells: int) -> Array | None:
        """Return the table of linear cells, or None if there are guesses that are not finite."""
        guesses = self.at(bins.keys, bins.dtype)
        if not np.isfinite(guesses).all():
            return None
        return _table(np.clip(guesses, 0, num_cells - 1).astype(np.int64), num_cells)


def _extent(bins: Thresholds) -> np.float64:
    """Return the difference of the greatest and the least number in bins; of integers one more."""
    ends = from_keys(np.array([bins.keys[0], bins.last], bins.keys.dtype), bins.dtype)
    if bins.dtype.kind == "f":
        return np.float64(ends[1]) - np.float64(ends[0])
    return np.float64(int(ends[1]) - int(ends[0]) + 1)


def _even_guess(bins: Thresholds) -> _Guess | None:
    """Return the guess for bins of one width."""
    many = len(bins.keys) - 1
    if bins.dtype.kind == "f" or many == 0:
        return _Guess.of(bins, (many + 1) / _extent(bins))
    spread = int(bins.keys[-1]) - int(bins.keys[0])  # between whole bins: the last one may be cut
    return _Guess.of(bins, many / spread) if spread else None


def _keyed_cells(bins: Thresholds, most: int) -> tuple[Array, int]:
    """Return a table of at most so many cells that are even in key, and the power of two of keys that each has."""
    start, span = int(bins.keys[0]), bins.last - int(bins.keys[0])
    shift = max(0, span.bit_length() - most.bit_length() + 1)
    unsigned = np.dtype(f"u{bins.keys.dtype.itemsize}")
    steps = bins.keys.astype(unsigned) - np.array(start % 2 ** (8 * unsigned.itemsize), unsigned)
    return _table((steps >> unsigned.type(shift)).astype(np.int64), (span >> shift) + 1), shift


def _table(cell_of_bin: Array, num_cells: int) -> Array:
    """Return the first bin of each cell, and of one more behind."""
    begun = np.bincount(cell_of_bin[1:], minlength=num_cells)
    return np.concatenate([[0], np.cumsum(begun)]).astype(np.int32)
