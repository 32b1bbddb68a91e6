"""The bin of an element between edges, in C: a guess from a few operations, corrected by the thresholds.

Three kinds of guess, each a C function that returns the bin of an element's bits, or -1:

even
    One multiplication for bins of one width. The host checks how far it is off at each threshold, so that an element
    well within its guessed bin is not compared with anything.
linear, keyed
    A table of cells for other bins: cells even in value, or in key, which is nearly the logarithm of a float. The entry
    of a cell is the first bin that reaches into it; a short binary search, unrolled, finds the one among these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clhist._core.elements import bits_of, key_of_bits
from clhist._core.keys import bits_dtype, key_dtype
from clhist.axes import block_search
from clhist.axes.block_search import ABSENT, EVEN, KEYED, LINEAR
from clhist.operators.c_types import c_name

# 1.5 * 2^23: float32 numbers of this size are integers, so adding it rounds.
_ROUNDS = "12582912.0f"

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


_FOUND = "start", "last", "low", "scale", "margin"  # of these parameters, what depends on the range


@dataclass(frozen=True)
class EdgesKind:
    """Bins between edges: what the C that finds the bin of an element depends on.

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
        for blocks of elements (`clhist.axes.block_search`). See `Axis.packed`.
    from_data : bool
        Whether the range of even bins is found on the device, where all numbers that depend on it are in one struct.
    """

    dtype: np.dtype
    kind: str
    as_bits: bool
    steps: int = 0
    packed: bool = False
    from_data: bool = False

    @property
    def data(self) -> np.dtype:
        """Dtype of the array that a kernel gets."""
        return bits_dtype(self.dtype) if self.as_bits or self.dtype.kind not in "iuf" else self.dtype

    def parameters(self, n: int) -> str:
        """Return the declarations of the arguments of axis `n`."""
        declared = self._parameters()
        # The host does not know the range, so what depends on it comes in one struct of the device.
        if self.from_data:
            (struct,) = self.structs
            declared = f"const {self.types()['key']} *keys, const {struct} &found, int num_bins"
        return re.sub(r"(\w+)(,|$)", rf"\g<1>{n}\2", declared)

    def call_arguments(self, n: int | str) -> str:
        """Return the arguments of axis `n` as its functions get them."""
        names = [
            f"found{n}.{name}" if self.from_data and name in _FOUND else f"{name}{n}" for name in self.parameter_names
        ]
        return ", ".join(names)

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
        return (_FIND[self.kind].format(name=self.name, declared=declared, search=search, **self.types()),)

    def search(self) -> list[str]:
        """Return steps in C that make `k` the bin of `key`, from the first bin of its cell."""
        # A binary search without branches: minus a comparison is a mask of all bits or of none.
        return [f"k += {2**s} & -(key >= keys[k + {2**s}]);" for s in reversed(range(self.steps))]

    def call(self, element: str, n: int) -> str:
        """Return C that finds the bin of `element`, of the array that a kernel gets, on axis `n`."""
        return self.call_of_bits(bits_of(element, self.data), n)

    def call_of_bits(self, bits: str, n: int | str) -> str:
        """Return C that finds the bin of an element with these bits on axis `n`."""
        return f"{self.name}({bits}, {self.call_arguments(n)})"

    @property
    def has_block(self) -> bool:
        """Whether `block` supports these elements."""
        return block_search.supports(self)

    def block_functions(self) -> tuple[str, ...]:
        """Return C of the functions that `block` calls besides those of `functions`."""
        return block_search.functions(self)

    def block(self, array: str, n: int, target: str, absent: str = ABSENT) -> str:
        """Return C that makes ``target[e]`` the bin on axis `n` of element ``begin + e`` of `array`, or `absent`."""
        return block_search.edges_block(self, array, n, target, absent)

    @property
    def joint(self) -> EdgesKind | None:
        """None: `joint_block` needs bins for what lies outside."""
        return None

    @cached_property
    def with_packed_table(self) -> EdgesKind | None:
        """The kind with a packed table: of those that are searched by blocks, the ones with one step."""
        can = not self.packed and self.steps == 1 and self.data.itemsize >= 4
        return replace(self, packed=True) if can else None

    @property
    def name(self) -> str:
        """Name of its function."""
        return f"find_{'packed_' if self.packed else ''}{self.kind}{self.steps or ''}_{self.dtype.name}"

    @property
    def structs(self) -> dict[str, np.dtype]:
        """The structs that its arguments are of, by name."""
        return {f"found_{self.dtype.name}_t": self.found_dtype} if self.from_data else {}

    @property
    def found_dtype(self) -> np.dtype:
        """Return the dtype of a range found on the device: the keys of its ends, the count of elements, and its edges.

        Nothing lies in the bins unless they `are_even`.
        """
        key, value = key_dtype(self.dtype), self.dtype if self.dtype.kind == "f" else key_dtype(self.dtype)
        scale = value if value.kind == "f" else np.float32
        ends = [("start", key), ("last", key), ("low", value), ("scale", scale), ("margin", np.float32)]
        data = [("are_even", np.int32), ("least", key), ("greatest", key), ("count", np.int64)]
        return np.dtype([*ends, *data], align=True)

    def _parameters(self) -> str:
        declared = _PARAMETERS[self.kind].format(**self.types())
        return declared.replace("const int *cells", "const long *cells") if self.packed else declared

    def types(self) -> dict[str, str]:
        """Return C of types, of the key of bits and of the guess, by the names that texts have for them."""
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
        # Differences of integers are unsigned, as signed ones may overflow; a half more is the middle of an integer.
        steps = f"(({unsigned})bits - ({unsigned})low)"
        return types | {"value": types["key"], "scale": "float", "guess": f"((float){steps} + 0.5f) * scale"}
