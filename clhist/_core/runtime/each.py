"""Kernels that run a piece of C for each element.

On CPUs each work-item takes elements that follow each other: PyOpenCL's own, whose work-items take every n-th element,
took ten times as long on two EPYC cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from clhist._core.kernels.signatures import with_arrays
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.program import kernels_of
from clhist._core.runtime.chain import Chain

_LANES, _GROUPS, _SHARES = 256, 16, 8  # work-items of a work-group; work-groups, and shares, for each compute unit


class Elementwise:
    """A kernel that runs `code` for each `i`.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    arguments : str
        Its parameters in C, pointers to arrays and numbers. There is also ``size``, the number of elements.
    code : str
        C, in which `i`, a long, is the element.
    name : str
        The kernel's, which begins with ``clhist_``.
    preamble : str
        C in front of the kernel.
    """

    def __init__(self, context: cl.Context, arguments: str, code: str, name: str, preamble: str = "") -> None:
        declared, pointers = with_arrays(arguments)
        declared += [f"const ulong {each}" for each in ("size", "share", "step")]
        source = f"""{preamble}
__kernel void {name}({", ".join(declared)})
{{
    {" ".join(pointers)}
    const ulong begin = get_global_id(0) * (step == 1 ? share : 1);
    const ulong end = step == 1 ? min((ulong)size, begin + share) : size;
    for (long i = begin; i < (long)end; i += step) {{ {code}; }}
}}
"""
        self._kernel = kernels_of(context, source)[name.removeprefix("clhist_")]

    def __call__(self, chain: Chain, size: int, arguments: Sequence[Any]) -> None:
        """Enqueue it for so many elements; arguments are arrays, memory and numbers."""
        if not size:
            return
        given = chain.placed(arguments)
        device = chain.queue.device
        units = device.max_compute_units
        if device_kind(device) == "cpu":
            share = -(-size // (units * _SHARES))
            groups, lanes, step = -(-size // share), 1, 1
        else:
            lanes = min(_LANES, device.max_work_group_size)
            groups = min(-(-size // lanes), units * _GROUPS)
            share, step = size, groups * lanes
        chain.run(self._kernel, groups, lanes, [*given, size, share, step])
