"""Kernels that run a piece of C for each element.

On CPUs each work-item takes elements that follow each other: PyOpenCL's own, whose work-items take every n-th element,
took ten times as long on two EPYC cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pyopencl as cl

from clhist._core.kernel_code import ALONE, with_arrays
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.program import Kernel, kernels_of
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
        (self._kernel,) = _kernels(context, [(arguments, code, name)], preamble)

    @classmethod
    def together(cls, context: cl.Context, parts: Sequence[tuple[str, str, str]], preamble: str = "") -> list[Self]:
        """Return kernels of `arguments`, `code` and `name` that calls need together, as one program.

        A program of its own for each takes Intel's compiler 60 ms more, however short it is.
        """
        return [cls._of(kernel) for kernel in _kernels(context, parts, preamble)]

    @classmethod
    def _of(cls, kernel: Kernel) -> Self:
        new = cls.__new__(cls)
        new._kernel = kernel  # noqa: SLF001  # of its own class
        return new

    def __call__(self, chain: Chain, size: int, arguments: Sequence[Any]) -> None:
        """Enqueue it for so many elements; arguments are arrays, memory and numbers."""
        if not size:
            return
        placed = chain.placed(arguments)
        device = chain.queue.device
        units = device.max_compute_units
        # A step of 1 selects shares in the kernel: consecutive elements for CPUs, strided ones for coalesced loads
        # elsewhere.
        if device_kind(device) == "cpu":
            share = -(-size // (units * _SHARES))
            groups, lanes, step = -(-size // share), 1, 1
        else:
            lanes = min(_LANES, device.max_work_group_size)
            groups = min(-(-size // lanes), units * _GROUPS)
            share, step = size, groups * lanes
        chain.run(self._kernel, groups, lanes, [*placed, size, share, step])


def _kernels(context: cl.Context, parts: Sequence[tuple[str, str, str]], preamble: str) -> list[Kernel]:
    """Return the kernels of one program, in order."""
    alone = ALONE if device_kind(context.devices[0]) == "cpu" else ""
    texts = [preamble]
    for arguments, code, name in parts:
        declared, pointers = with_arrays(arguments)
        declared += [f"const ulong {parameter}" for parameter in ("size", "share", "step")]
        texts.append(f"""__kernel {alone}void {name}({", ".join(declared)})
{{
    {" ".join(pointers)}
    const ulong begin = get_global_id(0) * (step == 1 ? share : 1);
    const ulong end = step == 1 ? min((ulong)size, begin + share) : size;
    for (long i = begin; i < (long)end; i += step) {{ {code}; }}
}}
""")
    kernels = kernels_of(context, "\n".join(texts))
    return [kernels[name.removeprefix("clhist_")] for *_, name in parts]
