"""Bins of one width of a range that is found: from what the kernel that makes them is rendered. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from clhist._core.elements import key_of_bits
from clhist._core.kernels.render import render
from clhist._core.kernels.signatures import with_arrays
from clhist._core.keys import key_dtype, key_range
from clhist.axes.edges import EdgesKind
from clhist.axes.guess import FARTHEST, ROUNDED, SMALLEST
from clhist.axes.thresholds import EXACT
from clhist.binned.extent_kernel import ends_dtype
from clhist.operators.c_types import literal


@dataclass(frozen=True)
class EvenEdgesSpec:
    """The parameters of the kernel.

    Attributes
    ----------
    kind : EdgesKind
        Of the bins.
    parts : int
        In so many parts of the data the least and the greatest key are found.
    lanes : int
        Work-items of the only work-group.
    """

    kind: EdgesKind
    parts: int
    lanes: int

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the data."""
        return self.kind.dtype

    @property
    def ends(self) -> np.dtype:
        """The dtype of the ends of a range."""
        return ends_dtype(self.dtype)

    @property
    def edge(self) -> np.dtype:
        """The dtype of NumPy's edges."""
        return self.dtype if self.dtype.kind == "f" else np.dtype(np.float64)

    @property
    def finite(self) -> tuple[int, int]:
        """Keys of the least and the greatest number that is finite and, of integers, exact in float64."""
        low, high = key_range(self.dtype)
        if self.dtype.kind == "f":
            return low + 1, high - 1
        return max(low, 1 - int(EXACT)), min(high, int(EXACT) - 1)

    def found(self, num_bins: int) -> int:
        """Return how many structs of `kind` there is room for where one is followed by the edges."""
        return 1 - -(num_bins + 1) * self.edge.itemsize // self.kind.found_dtype.itemsize

    def edges(self, found: np.ndarray, num_bins: int) -> np.ndarray:
        """Return the edges that follow the first struct in that room."""
        return found[1:].view(self.edge)[: num_bins + 1]

    def linspace(self, first: Any, last: Any, num_bins: int) -> np.ndarray:
        """Return edges from one number to another by the operations of `numpy.linspace`, in a quarter of its time."""
        first, last = self.edge.type(first), self.edge.type(last)
        edges = _numbers(num_bins + 1, self.edge) * ((last - first) / self.edge.type(num_bins))
        edges += first
        edges[-1] = last
        return edges


@lru_cache(maxsize=64)
def _numbers(number: int, dtype: np.dtype) -> np.ndarray:
    return np.arange(number, dtype=dtype)


def render_even_edges(spec: EvenEdgesSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_even_edges``, which makes bins of a range that is found."""
    types = spec.kind.types()
    declared, arrays = with_arrays(f"const ends_t *ends, {types['key']} *keys, found_t *found, const int num_bins")
    numbers = {"most_off": FARTHEST, "smallest": SMALLEST, "slack": ROUNDED}
    return render(
        "binned/even_edges.mako",
        spec=spec,
        info=np.iinfo(key_dtype(spec.dtype)),
        literal=literal,
        key_of_bits=key_of_bits,
        declared=declared,
        pointers=arrays,
        **types,
        **{name: literal(value, np.dtype(np.float32)) for name, value in numbers.items()},
    )
