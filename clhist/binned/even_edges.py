"""Parameters and source of the kernel that makes bins of equal width for a data range known on the device only.

Imports no PyOpenCL; `clhist.binned.device_edges` launches the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from clhist._core.elements import key_of_bits
from clhist._core.kernel_code import with_arrays
from clhist._core.kernels.stored_source import stored_source
from clhist._core.keys import key_dtype, key_range
from clhist._core.templates import render
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
        The bins.
    parts : int
        Parts of the data; each has a least and a greatest key, which the kernel reduces.
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
        """The dtype of the extent of a part: least key, greatest key, count."""
        return ends_dtype(self.dtype)

    @property
    def edge(self) -> np.dtype:
        """The dtype of NumPy's edges."""
        return self.dtype if self.dtype.kind == "f" else np.dtype(np.float64)

    @property
    def finite(self) -> tuple[int, int]:
        """Keys of the least and the greatest usable number: finite, and exact in float64 if it is an integer."""
        low, high = key_range(self.dtype)
        if self.dtype.kind == "f":
            return low + 1, high - 1
        return max(low, 1 - int(EXACT)), min(high, int(EXACT) - 1)

    def record_count(self, num_bins: int) -> int:
        """Return the length of the result array in structs of `kind`: one struct, then room for the edges."""
        # Ceiling division: -(-a // b) structs hold the bytes of the edges.
        return 1 - -(num_bins + 1) * self.edge.itemsize // self.kind.found_dtype.itemsize

    def edges(self, records: np.ndarray, num_bins: int) -> np.ndarray:
        """Return the edges that the kernel wrote behind the first struct."""
        return records[1:].view(self.edge)[: num_bins + 1]

    def linspace(self, first: Any, last: Any, num_bins: int) -> np.ndarray:
        """Return edges by the operations of `numpy.linspace`, in a quarter of its time."""
        first, last = self.edge.type(first), self.edge.type(last)
        edges = _numbers(num_bins + 1, self.edge) * ((last - first) / self.edge.type(num_bins))
        edges += first
        # Rounding may miss the last edge, which NumPy sets as well.
        edges[-1] = last
        return edges


@lru_cache(maxsize=64)
def _numbers(number: int, dtype: np.dtype) -> np.ndarray:
    """Return 0, 1, ..., number - 1; cached."""
    return np.arange(number, dtype=dtype)


@stored_source
def render_even_edges(spec: EvenEdgesSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_even_edges``."""
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
