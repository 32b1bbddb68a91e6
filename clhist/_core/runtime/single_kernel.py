"""A call of one kernel, on arrays of NumPy, PyOpenCL or CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyopencl as cl

from clhist._core.kernels.kernel_code import KernelCode
from clhist._core.kernels.signatures import signatures
from clhist._core.runtime.launcher import Loaded
from clhist._core.runtime.prepared import MEMORY, OFFSET, VALUE, ArraySlot, Launch, Part, Prepared, ResultSlots, Slot
from clhist._core.runtime.ready import loaded_call

if TYPE_CHECKING:
    from clhist._core.runtime.cuda_launcher import CudaLoaded


def single_kernel(
    queue: cl.CommandQueue,
    name: str,
    source: str,
    slots: tuple[ArraySlot, ...],
    scalars: tuple[str, ...],
    sizes: tuple[int, int],
    what: str,
    options: tuple[str, ...] = (),
) -> Loaded | CudaLoaded:
    """Return what runs the kernel of this name with these arrays and scalars; its results are the arrays that it makes.

    There are `sizes` work-items in all and in a work-group; `what` is for errors, `options` for the compiler.
    """
    code = KernelCode(source, options, f"clhist_{name}", signatures(source)[name])
    given = [Slot(slot.name, kind) for slot in slots for kind in (MEMORY, OFFSET)]
    launch = Launch("combine", code, sizes[:1], sizes[1:], (*given, *(Slot(name, VALUE) for name in scalars)))
    none: Any = None  # for no operator makes them
    results = tuple(ResultSlots((n,), False, "", none) for n, slot in enumerate(slots) if slot.new is not None)
    return loaded_call(queue, Prepared(slots, scalars, (Part(None, (), (launch,)),), results, call=(what, ())))
