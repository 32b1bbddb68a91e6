"""Sweeps over data that find the bin of each element: compiled once for the kinds of axes, whatever the edges are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist.binning.axis import UNSURE, Axis
from clhist.binning.flow import FlowAxis, Kind
from clhist.kernel import HistogramKernel
from clhist.opencl.arrays import is_device_array
from clhist.opencl.device import device_kind
from clhist.opencl.program import kept_by_context
from clhist.operators.c_types import c_name
from clhist.operators.operator import Operator

BLOCK = 512  # elements whose bins are found together: loops over fewer took longer on two CPU cores
_LEAST_IN_BLOCKS = 2**14
_MOST_HELD = 2**20  # bytes of bins; more are better updated in parts
_IN_BLOCKS = """
const long begin = (long)i * {block};
const int length = (int)min((long){block}, count - begin);
{bins}
#pragma unroll 8
for (int e = 0; e < length; ++e) {{
    const long i = begin + e;
    const int bin = block[e];
    {emits}
}}
"""


@dataclass(frozen=True)
class BinnedKind:
    """What the C that finds bins depends on.

    Attributes
    ----------
    axes : tuple of Kind
        One for each dimension.
    in_rows : bool
        Whether the data is one array (N, D) rather than an array for each axis.
    masked : bool
        Whether an array says which elements count.
    """

    axes: tuple[Kind, ...]
    in_rows: bool = False
    masked: bool = False

    def arguments(self) -> list[str]:
        """Return the declarations of the arguments."""
        found = []
        for n, axis in enumerate(self.axes):
            if axis.data is not None and (n == 0 or not self.in_rows):
                found.append(f"const {c_name(axis.data)} *x{n}")
            found += [axis.parameters(n), f"int size{n}"]
        return [*found, "const uchar *where"] if self.masked else found

    def element(self, n: int, index: str = "i") -> str:
        """Return C of the element number `index` on axis `n`."""
        return f"x0[({index}) * {len(self.axes)} + {n}]" if self.in_rows else f"x{n}[{index}]"

    def code(self) -> str:
        """Return C that makes `bin` the bin of element `i`, or -1."""
        steps = ["int bin = where[i] ? 0 : -1;" if self.masked else "int bin = 0;"]
        for n, axis in enumerate(self.axes):
            found = axis.call(self.element(n), n)
            if n == 0 and not self.masked:
                steps = [f"int bin = {found};"]
            else:
                steps.append(f"if (bin >= 0) {{ const int k = {found}; bin = k < 0 ? -1 : bin * size{n} + k; }}")
        return "\n".join(steps)

    def functions(self) -> str:
        """Return the C functions of the axes."""
        return "\n".join(dict.fromkeys(function for axis in self.axes for function in axis.functions()))

    def block_functions(self) -> str:
        """Return the C functions that `block_code` calls."""
        quick = dict.fromkeys(axis.quick_function() for axis in self.axes if axis.is_quick)
        return "\n".join([self.functions(), *quick])

    def block_code(self) -> str:
        """Return C that makes ``block[e]`` the bin of element ``begin + e``, or -1, for `length` elements.

        Loops without branches, which compilers make vectors of, find most bins; elements near an edge come after.
        """
        steps, loop = [f"int block[{BLOCK}], part[{BLOCK}];"], "for (int e = 0; e < length; ++e)"
        if self.masked:
            steps.append(f"{loop} block[e] = where[begin + e] ? 0 : -1;")
        for n, axis in enumerate(self.axes):
            target = "block" if n == 0 and not self.masked else "part"
            element = self.element(n, "begin + e")
            if axis.is_quick:
                steps.append(
                    f"""{{
    int unsure = 0;
    {loop} {{
        {target}[e] = {axis.quick_call(element, n)};
        unsure |= {target}[e] == {UNSURE};
    }}
    if (unsure) {loop}
        if ({target}[e] == {UNSURE}) {target}[e] = {axis.call(element, n)};
}}"""
                )
            else:
                steps.append(f"{loop} {target}[e] = {axis.call(element, n)};")
            if target == "part":
                steps.append(f"{loop} block[e] = (block[e] | part[e]) < 0 ? -1 : block[e] * size{n} + part[e];")
        return "\n".join(steps)


@dataclass(frozen=True)
class Binned:
    """Data with the axes that bin it.

    Attributes
    ----------
    axes : tuple of Axis or FlowAxis
        One for each dimension.
    data : tuple of array
        Contiguous, of the dtypes of the axes: one for each (None of one that takes no data), or a single one (N, D)
        for several.
    where : array of bool or None
        Which elements count.
    size : int
        N.
    """

    axes: tuple[Axis | FlowAxis, ...]
    data: tuple[Any, ...]
    where: Any
    size: int

    @property
    def kind(self) -> BinnedKind:
        """What its C depends on."""
        in_rows = len(self.axes) > len(self.data)
        return BinnedKind(tuple(axis.kind for axis in self.axes), in_rows, self.where is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Bins of each axis."""
        return tuple(axis.extent for axis in self.axes)

    def arguments(self, queue: cl.CommandQueue) -> list[Any]:
        """Return the arguments that `BinnedKind` declares."""
        on_device = any(is_device_array(each) for each in self.data)
        in_rows = len(self.axes) > len(self.data)
        found = [_as(self.data[0], self.axes[0].kind.data)] if in_rows else []
        for n, axis in enumerate(self.axes):
            found += [] if in_rows or self.data[n] is None else [_as(self.data[n], axis.kind.data)]
            found += [*(uploaded(queue, axis) if on_device else axis.arrays), *axis.scalars, axis.extent]
        return found if self.where is None else [*found, self.where]


def _as(array: Any, dtype: np.dtype | None) -> Any:
    """Return `array`, as integers if it is of another dtype."""
    return array if dtype is None or array.dtype == dtype or array.dtype.kind == "b" else array.view(dtype)


@lru_cache(maxsize=64)
def uploaded(queue: cl.CommandQueue, axis: Axis | FlowAxis) -> tuple[Any, ...]:
    return tuple(cl_array.to_device(queue, array) for array in axis.arrays)


@kept_by_context
def sweep_kernel(
    context: cl.Context,
    kind: BinnedKind,
    outputs: tuple[tuple[str, Operator, str], ...],
    values: tuple[np.dtype, ...] = (),
    in_blocks: bool = False,
) -> HistogramKernel:
    """Return the kernel that combines values by bins.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    kind : BinnedKind
        How bins are found.
    outputs : tuple of (str, Operator, str)
        Name, operator and C of the value of element `i`; the only output has no name.
    values : tuple of numpy.dtype
        Of the arrays `v0`, `v1`, ... that the values are computed from.
    in_blocks : bool
        Whether the map runs for blocks of `BLOCK` elements, which have their number as one more argument.
    """
    arguments = kind.arguments() + [f"const {c_name(dtype)} *v{n}" for n, dtype in enumerate(values)]
    emits = [f"EMIT{'_' if name else ''}{name}(bin, {value});" for name, _, value in outputs]
    operators = {name: operator for name, operator, _ in outputs}
    if in_blocks:
        code = _IN_BLOCKS.format(block=BLOCK, bins=kind.block_code(), emits=" ".join(emits))
    else:
        code = "\n".join([kind.code(), *emits])
    return HistogramKernel(
        context,
        operators.get("", operators),
        arguments=", ".join([*arguments, "long count"] if in_blocks else arguments),
        map=code,
        preamble=kind.block_functions() if in_blocks else kind.functions(),
        emits=BLOCK if in_blocks else 1,
    )


def sweep(
    binned: Binned,
    outputs: tuple[tuple[str, Operator, str], ...],
    values: Sequence[Any] = (),
    *,
    queue: cl.CommandQueue,
    **options: Any,
) -> Any:
    """Combine values by bins; see `sweep_kernel`, and `clhist.HistogramKernel.__call__` of the options."""
    in_blocks = "num_histograms" not in options and are_blocks(binned, outputs, queue)
    kernel = sweep_kernel(queue.context, binned.kind, outputs, tuple(array.dtype for array in values), in_blocks)
    given = (*binned.arguments(queue), *values, *([binned.size] if in_blocks else []))
    size = -(-binned.size // BLOCK) if in_blocks else binned.size
    shape: Any = binned.shape
    if outputs[0][0]:
        shape = {name: shape for name, _, _ in outputs}
    return kernel(*given, num_bins=shape, size=size, queue=queue, **options)


def are_blocks(binned: Binned, outputs: tuple[tuple[str, Operator, str], ...], queue: cl.CommandQueue) -> bool:
    """Whether a sweep is one over blocks: on CPUs, while the bins stay in a core's cache."""
    held = prod(binned.shape) * sum(operator.bin_bytes for _, operator, _ in outputs)
    return _LEAST_IN_BLOCKS <= binned.size < 2**31 and held <= _MOST_HELD and device_kind(queue.device) == "cpu"
