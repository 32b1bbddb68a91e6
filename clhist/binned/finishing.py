"""Statistics of bins from their parts, by one launch on the device: nothing is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np
import pyopencl as cl

from clhist._core.kernel_code import with_arrays
from clhist._core.kernels.stored_source import stored_source
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.prepared import ArraySlot, New
from clhist._core.runtime.single_kernel import single_kernel, sizes
from clhist._core.templates import render
from clhist.binned.densities import GROUPS, lanes_of
from clhist.operators.c_types import literal
from clhist.statistics.table import TABLE
from clhist.statistics.variance import variance_text

_F8 = np.dtype(np.float64)


def finished(
    queue: cl.CommandQueue, names: tuple[str, ...], parts: Mapping[str, Array], shape: tuple[int, ...], spare: int = 0
) -> dict[str, Array]:
    """Return statistics that have a `text`, as float64 on the device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    names : tuple of str
        The statistics.
    parts : mapping of str to array
        What they are made of, on the device.
    shape : tuple of int
        Bins of each axis.
    spare : int
        The number of zeros behind the bins; the results then have one dimension.
    """
    if not names:
        return {}
    kernel, needed = _kernel(queue.context, queue, names)
    cells = prod(shape)
    new = New((cells + spare,) if spare else shape)
    arrays = [*(parts[part] for part in needed), *(new for _ in names)]
    return dict(zip(names, kernel.run(queue, arrays, sizes(cells, spare), True).results, strict=True))


@kept_by_context
def _kernel(context: cl.Context, queue: cl.CommandQueue, names: tuple[str, ...]) -> tuple[Executable, Sequence[str]]:
    """Return the kernel of some statistics, and the parts that it reads."""
    lanes, needed = lanes_of(queue), _parts(names)
    slots = [ArraySlot(part, True, False) for part in needed]
    slots += [ArraySlot(name, False, True, ((1,), _F8)) for name in map(_result, names)]
    work_items, source = (GROUPS * lanes, lanes), render_statistics(names, lanes)
    return single_kernel(
        queue, "statistics", source, tuple(slots), ("cells", "spare"), work_items, "statistics of bins"
    ), needed


def _parts(names: Sequence[str]) -> list[str]:
    return sorted({part for name in names for part in re.findall(r"(\w+)\[i\]", TABLE[name].text)})


def _result(name: str) -> str:
    return f"result_{name}"


@lru_cache(maxsize=64)
@stored_source
def render_statistics(names: tuple[str, ...], lanes: int) -> str:
    """Return the OpenCL C program that makes some statistics of their parts."""
    parts = ", ".join(f"const {'long' if part == 'count' else 'double'} *{part}" for part in _parts(names))
    results = ", ".join(f"double *{_result(name)}" for name in names)
    declared, pointers = with_arrays(f"{parts}, {results}, const long cells, const long spare")
    return render(
        "binned/statistics.mako",
        lanes=lanes,
        declared=declared,
        pointers=pointers,
        variance=variance_text("double", 0, literal(np.nan, _F8)),
        results={_result(name): TABLE[name].text for name in names},
    )
