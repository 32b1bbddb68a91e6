"""Statistics of bins from their parts, by one launch on the device: nothing is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from clhist.binned.densities import GROUPS, RESULT, lanes_of
from clhist.operators.c_types import literal
from clhist.statistics.table import TABLE
from clhist.statistics.variance import variance_text


def finished(
    queue: cl.CommandQueue, name: str, parts: Mapping[str, Array], shape: tuple[int, ...], spare: int = 0
) -> Array:
    """Return a statistic that has a `text`, as float64 on the device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    name : str
        The statistic.
    parts : mapping of str to array
        What it is made of, on the device.
    shape : tuple of int
        Bins of each axis.
    spare : int
        The number of zeros behind the bins; the result then has one dimension.
    """
    kernel, cells = _kernel(queue.context, queue, name), prod(shape)
    arrays = [*(parts[part] for part in _parts(name)), New((cells + spare,) if spare else shape)]
    result: Array = kernel.run(queue, arrays, sizes(cells, spare), True).results[0]
    return result


@kept_by_context
def _kernel(context: cl.Context, queue: cl.CommandQueue, name: str) -> Executable:
    lanes = lanes_of(queue)
    slots = *(ArraySlot(part, True, False) for part in _parts(name)), RESULT
    work_items, source = (GROUPS * lanes, lanes), render_statistics(lanes)
    return single_kernel(queue, name, source, slots, ("cells", "spare"), work_items, f"the {name} of bins")


@lru_cache(maxsize=16)
def _parts(name: str) -> tuple[str, ...]:
    """Return the arrays that the text of a statistic reads."""
    return tuple(sorted({*re.findall(r"(\w+)\[i\]", TABLE[name].text)}))


@lru_cache(maxsize=8)
@stored_source
def render_statistics(lanes: int) -> str:
    """Return the OpenCL C program with a kernel for each statistic that has a `text`."""
    texts = {name: entry.text for name, entry in TABLE.items() if entry.text}
    kernels = {}
    for name in texts:
        parts = [f"const {'long' if part == 'count' else 'double'} *{part}" for part in _parts(name)]
        kernels[name] = with_arrays(", ".join([*parts, "double *result", "const long cells", "const long spare"]))
    return render(
        "binned/statistics.mako",
        lanes=lanes,
        texts=texts,
        declared={name: declared for name, (declared, _) in kernels.items()},
        pointers={name: pointers for name, (_, pointers) in kernels.items()},
        variance=variance_text("double", 0, literal(np.nan, np.dtype(np.float64))),
    )
