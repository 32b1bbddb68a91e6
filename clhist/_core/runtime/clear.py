"""Release of the memory and programs that the package keeps between calls."""

from __future__ import annotations

from clhist._core.cuda.memory import free_unused
from clhist._core.opencl.lost import check_process
from clhist._core.opencl.memory import free_scratch
from clhist._core.opencl.program import forget_contexts
from clhist._core.runtime.signature import forget_calls


def clear_caches() -> None:
    """Let go of all that is kept for later calls: memory of devices, prepared calls and programs.

    That is what `free_scratch` gives back, all memory of copies, pairs and results that no array holds; tables of edges
    and offsets on devices; page-locked memory; what calls were prepared for those that repeat them; and programs.
    Results that you hold, streams, bound calls and kernels stay as they are, and calls are as right afterwards: the
    first of each kind takes as long as in a new process. Any thread may call it at any time; what other threads compute
    meanwhile may keep its memory. Calls that were captured into graphs of CUDA have to be captured again.

    Compiled kernels on disk are PyOpenCL's and the driver's, and stay.

    Examples
    --------
    >>> import numpy as np, clhist
    >>> x = np.arange(100_000) % 3
    >>> clhist.bincount(x)
    array([33334, 33333, 33333])
    >>> clhist.clear_caches()
    >>> clhist.bincount(x)
    array([33334, 33333, 33333])
    """
    check_process()
    # Calls first: they hold kernels and memory of the contexts that are forgotten next.
    forget_calls()
    forget_contexts()
    free_unused()
    free_scratch()
