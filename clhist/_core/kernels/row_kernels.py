"""Kernels that write one row per element from the row of its bin: their specification. Pure.

They compute means from sums, softmax and logsumexp from exponentials and sums, and gradients of reductions by index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist._core.kernel_code import with_arrays
from clhist.operators.c_types import c_name, element_name
from clhist.operators.halves import half_name, loaded, number_of, stored

VECTOR_BYTES = 16  # of one load; the widest that GPUs have

# The arrays of each kernel, in order, and what one vector of each belongs to: an element, or the bin of an element.
ARRAYS = {
    "gather": {"table": "bin", "indices": "bins"},
    "mean_gradient": {"table": "bin", "indices": "bins", "counts": "count"},
    "mean": {"table": "element", "counts": "count of element"},
    "filled": {"table": "element", "counts": "count of element"},
    "exponential": {"source": "element", "table": "bin", "indices": "bins"},
    "quotient": {"source": "element", "table": "bin", "indices": "bins"},
    "log_sum": {"table": "element", "maxima": "element"},
    "log_sum_gradient": {
        "source": "element", "maxima": "bin", "table": "bin", "indices": "bins", "gradient": "bin",
    },
    "softmax_gradient": {"source": "element", "table": "bin", "indices": "bins", "gradient": "element"},
    "moments_gradient": {
        "source": "element", "table": "bin", "indices": "bins", "slope": "bin", "gradient": "bin",
    },
    "spread": {"table": "element", "counts": "count of element"},
    "spread_gradient": {
        "source": "element", "means": "bin", "table": "bin", "indices": "bins", "gradient": "bin", "counts": "count",
    },
    "none": {"table": "element"},
    "ties": {"source": "element", "table": "bin", "indices": "bins"},
    "share": {"table": "element", "winners": "element"},
    "extreme_share": {"source": "element", "table": "bin", "indices": "bins", "gradient": "bin"},
}  # fmt: skip


@dataclass(frozen=True)
class RowKernelSpec:
    """The parameters of one of these kernels.

    Attributes
    ----------
    kind : str
        A key of `ARRAYS`.
    dtypes : tuple of numpy.dtype
        Of its arrays, in order, then of the result.
    row : int
        Vectors in a row.
    vector : int
        Components of a vector: 1, 2, 4 or 8.
    is_long : bool
        Whether there may be 2^31 vectors or more.
    blocked : bool
        Whether a work-item takes consecutive vectors, as on CPUs.
    """

    kind: str
    dtypes: tuple[np.dtype, ...]
    row: int
    vector: int
    is_long: bool
    blocked: bool

    @property
    def offset(self) -> str:
        """The C type of the number of a vector. Division of 64-bit numbers is slow on GPUs."""
        return "ulong" if self.is_long else "uint"

    @property
    def arrays(self) -> dict[str, tuple[np.dtype, str]]:
        """The dtype of each array and what holds one vector of it, by name."""
        typed_arrays = zip(self.dtypes, ARRAYS[self.kind].items(), strict=False)
        return {name: (dtype, where) for dtype, (name, where) in typed_arrays}

    @property
    def result(self) -> np.dtype:
        """The dtype of the result."""
        return self.dtypes[-1]

    @property
    def declarations(self) -> tuple[list[str], list[str]]:
        """The kernel's parameters, and the declarations of its arrays."""
        written = [f"const {self.type_of(name)} *{name}" for name in self.arrays]
        numbers = [f"const ulong {name}" for name in SIZES]
        number = element_name(number_of(self.result))
        numbers += [f"const {number} {name}" for name in NUMBERS.get(self.kind, ())]
        return with_arrays(", ".join([*written, f"{self._vector(self.result)} *out", *numbers]))

    def type_of(self, name: str) -> str:
        """Return the C type of what the array of this name is an array of."""
        dtype, where = self.arrays[name]
        return self._vector(dtype) if where in ("element", "bin") else element_name(dtype)

    def _vector(self, dtype: np.dtype) -> str:
        return element_name(dtype) + (str(self.vector) if self.vector > 1 else "")

    def component(self, name: str, number: int) -> str:
        """Return C of one component of the vector of this name, as a number."""
        dtype, _ = self.arrays[name]
        return loaded(self._component(name, number), dtype)

    def _component(self, name: str, number: int) -> str:
        return f"{name}_v.s{number}" if self.vector > 1 else f"{name}_v"

    @property
    def value(self) -> str:
        """C of the vector that is written."""
        # OpenCL C has no operators of vectors of different types.
        dtypes = {*self.dtypes} - {self.arrays["indices"][0]} if self.kind in _OF_COMPONENTS else set()
        if len(dtypes) == 1 and not half_name(self.result):  # exponentials of vectors take a third of the time on CPUs
            return _OF_COMPONENTS[self.kind].format(**{name: f"{name}_v" for name in self.arrays})
        if self.kind == "extreme_share" and self.vector > 1 and self.result.kind == "f" and not half_name(self.result):
            # Comparisons of vectors give masks, which need bitwise operators; `select` takes lanes whose mask is set.
            won = "source_v == table_v | isnan(source_v) & isnan(table_v)"
            return f"select(({self._vector(self.result)})(0), gradient_v, {won})"
        values = [self._value(number) for number in range(self.vector)]
        return f"({self._vector(self.result)})({', '.join(values)})"

    def is_extreme(self, number: int) -> str:
        """Return C of whether one component of a source is the minimum or maximum of its bin."""
        dtype = self.arrays["table"][0]
        source, best = self.component("source", number), self.component("table", number)
        won = f"{source} == {best}"
        if dtype.kind == "f" or half_name(dtype):
            won = f"{won} || (isnan({source}) && isnan({best}))"  # a NaN is the extreme of its bin
        return won

    def _value(self, number: int) -> str:
        if self.kind == "gather":
            return self._component("table", number)  # the bits, whatever they stand for
        if self.kind == "none":
            return "0"
        dtype = self.arrays["table"][0]
        wide = c_name(number_of(dtype))
        if self.kind == "filled":
            return f"count ? {self._component('table', number)} : {stored('empty', self.result)}"
        if self.kind in ("spread", "spread_gradient"):
            return self._spread(number, wide)
        if self.kind == "log_sum":
            best, total = self.component("maxima", number), self.component("table", number)
            # A sum with a value is at least 1, or NaN if the maximum is infinite.
            value = stored(f"(isinf({best}) ? {best} : log({total}) + {best})", self.result)
            return f"{total} == 0 ? {stored('empty', self.result)} : {value}"
        if self.kind == "mean":
            return stored(f"{self.component('table', number)} / ({wide})count", self.result)
        # A count of 0 must not divide.
        if self.kind == "mean_gradient":
            return stored(f"{self.component('table', number)} / ({wide})(count > 1 ? count : 1)", self.result)
        if self.kind == "share":
            winners = self._component("winners", number)
            return stored(f"{self.component('table', number)} / ({wide})({winners} > 1 ? {winners} : 1)", self.result)
        if self.kind in _OF_COMPONENTS:
            values = {name: self.component(name, number) for name in self.arrays if name != "indices"}
            return stored(_OF_COMPONENTS[self.kind].format(**values), self.result)
        return f"({self.is_extreme(number)}) ? {self._component('gradient', number)} : 0"

    def _spread(self, number: int, wide: str) -> str:
        """Return C of a variance or its root, or of the gradient of one."""
        # Signed: the correction may exceed the count, for which nothing is divided.
        table, rest = self.component("table", number), f"({wide})(count - (long)correction)"
        if self.kind == "spread":
            spread = f"(is_root != 0 ? sqrt({table} / {rest}) : {table} / {rest})"
            return f"count > (long)correction ? {stored(spread, self.result)} : {stored('empty', self.result)}"
        # The slope of a root at 0 is infinite, so its gradient is set to 0.
        slope = f"(is_root != 0 ? ({wide})1 / {table} : ({wide})2) / {rest} * {self.component('gradient', number)}"
        deviation = f"({self.component('source', number)} - {self.component('means', number)})"
        return f"count > (long)correction && !(is_root != 0 && {table} == 0) ? {deviation} * {slope} : 0"


_OF_COMPONENTS = {
    "exponential": "exp({source} - {table})",
    "quotient": "{source} / {table}",
    "log_sum_gradient": "exp({source} - {maxima}) / {table} * {gradient}",
    "softmax_gradient": "{source} * ({gradient} - {table})",
    "moments_gradient": "({source} - {table}) * {slope} + {gradient}",
}
"""C of the result from the components of the arrays."""

SIZES = ("size", "bins", "share")
"""Numbers that a kernel gets: vectors in all, bins, and, on a CPU, vectors for each work-item."""

NUMBERS = {
    "filled": ("empty",),
    "log_sum": ("empty",),
    "spread": ("correction", "is_root", "empty"),
    "spread_gradient": ("correction", "is_root"),
}
"""Further numbers, of the type of the result."""
