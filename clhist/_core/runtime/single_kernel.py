"""Prepares a call of a single kernel, on arrays of NumPy, PyOpenCL or CUDA."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernel_code import KernelCode, signatures
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.launcher import executable_of
from clhist._core.runtime.prepared import MEMORY, OFFSET, VALUE, ArraySlot, Launch, Part, Prepared, ResultSlots, Slot


@lru_cache(maxsize=256)
def sizes(*numbers: int) -> tuple[np.int64, ...]:
    """Return scalars of kernels; those of a repeated call are the same object, which spares their comparison."""
    return tuple(map(np.int64, numbers))


def single_kernel(
    queue: cl.CommandQueue,
    name: str,
    source: str,
    slots: tuple[ArraySlot, ...],
    scalars: tuple[str, ...],
    work_items: tuple[int, int],
    what: str,
    options: tuple[str, ...] = (),
) -> Executable:
    """Return the executable of the kernel ``clhist_NAME``, whose results are the slots that have a new array.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Any queue of the context.
    name, source : str
        The kernel's name without prefix, and the program.
    slots : tuple of ArraySlot
        Its arrays, in the order of the parameters.
    scalars : tuple of str
        The parameters behind them.
    work_items : (int, int)
        All of them, and those of a work-group.
    what : str
        What it computes, in the words of an error.
    options : tuple of str
        For the compiler.
    """
    return executable_of(queue, _prepared(name, source, slots, scalars, work_items, what, options))


@lru_cache(maxsize=64)
def _prepared(
    name: str,
    source: str,
    slots: tuple[ArraySlot, ...],
    scalars: tuple[str, ...],
    work_items: tuple[int, int],
    what: str,
    options: tuple[str, ...],
) -> Prepared:
    """Return the call of a kernel; the parameters are those of `single_kernel`."""
    code = KernelCode(source, options, f"clhist_{name}", signatures(source)[name])
    # An array takes two parameters. The stage is "combine", after which results are complete.
    arguments = [Slot(slot.name, kind) for slot in slots for kind in (MEMORY, OFFSET)]
    launch = Launch(
        "combine", code, work_items[:1], work_items[1:], (*arguments, *(Slot(name, VALUE) for name in scalars))
    )
    none: Any = None  # these results have no operator
    results = tuple(ResultSlots((n,), False, "", none) for n, slot in enumerate(slots) if slot.new is not None)
    return Prepared(slots, scalars, (Part(None, (), (launch,)),), results, call=(what, ()))
