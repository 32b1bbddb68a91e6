"""Options of the environment for compilers, and their output.

Options that would change what programs compute are refused. Compilers say nothing through clhist, unless
``PYOPENCL_COMPILER_OUTPUT=1`` asks for it: NVIDIA's and Intel's always say something, of which PyOpenCL warns whoever
builds. clhist builds its own programs, and those that PyOpenCL makes for the arrays inside a call.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from types import FrameType
from typing import Any

import numpy as np
import pyopencl as cl
from pytools import strtobool

from clhist._core.opencl import intel

# Infinities, NaN, signed zeros, denormals and the order of sums are part of what results mean; macros and headers
# change the text itself.
_REFUSED = re.compile(
    r"-D|-U|-include|-imacros|-Xclang|-mllvm|-Ofast"
    r"|-cl-(fast-relaxed-math|finite-math-only|unsafe-math-optimizations|no-signed-zeros|mad-enable"
    r"|denorms-are-zero|single-precision-constant)$"
    r"|-f(fast-math|finite-math-only|unsafe-math-optimizations|associative-math|reciprocal-math|approx-func"
    r"|no-(signed-zeros|honor-nans|honor-infinities)|fp-|denormal-fp-math)"
)
_ON = re.compile(r"\s*(1|t|true|y|yes|on)\s*", re.IGNORECASE)


def check_environment(context: cl.Context) -> None:
    """Raise RuntimeError if the environment has options for all programs that change what they compute.

    PyOpenCL has a variable of its own, and so have PoCL and Intel's CPU runtime.
    """
    platform = context.devices[0].platform.name
    # PyOpenCL appends the first to the options of each program; PoCL reads its own.
    names = ["PYOPENCL_BUILD_OPTIONS"]
    if platform.startswith("Portable Computing Language"):
        names.append("POCL_EXTRA_BUILD_FLAGS")
    for name in names:
        wrong = [option for option in os.environ.get(name, "").split() if _REFUSED.match(option)]
        if wrong:
            raise RuntimeError(
                f"{name}: expected options that leave results as they are documented, such as -I or -cl-std=, got "
                f"{' '.join(wrong)}; unset it, or give such options to a HistogramKernel of your own by options="
            )
    name = "CL_CONFIG_USE_FAST_RELAXED_MATH"
    if platform.startswith("Intel") and _ON.fullmatch(os.environ.get(name, "")):
        raise RuntimeError(
            f"{name}: expected it to be off, since results are documented for exact arithmetic, got "
            f"{os.environ[name]}; unset it"
        )
    if platform.startswith("Intel") and intel.may_use_avx512():
        _try_extremes(context.devices[0])


@lru_cache(maxsize=8)
def _try_extremes(device: cl.Device) -> None:
    """Warn once if Intel's compiler is wrong for the instructions that it compiles for."""
    if device.type & cl.device_type.CPU and not _are_right(device):
        warnings.warn(
            f"{intel.VARIABLE}: Intel's CPU runtime compiles for AVX-512, and its compiler is wrong where a minimum or "
            "a maximum of integers meets the constant -1, as of ~x. Import clhist before OpenCL is used, or set "
            f"{intel.VARIABLE}={intel.AVX2}",
            RuntimeWarning,
            stacklevel=3,
        )


def _are_right(device: cl.Device) -> bool:
    """Whether the kernel of `intel.PROOF` finds the greatest of some numbers and of their complements."""
    context = cl.Context([device])  # kept: Intel's runtime does not keep the context of a queue
    queue = cl.CommandQueue(context)
    x, extremes = np.arange(3, 50), np.empty(2, np.int64)
    flags = cl.mem_flags
    arguments = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x), np.int32(x.size)
    results = cl.Buffer(context, flags.WRITE_ONLY, extremes.nbytes)
    program = cl.Program(context, intel.PROOF).build()
    program.clhist_extremes(queue, (1,), (1,), *arguments, results)
    cl.enqueue_copy(queue, extremes, results)
    return extremes.tolist() == [x.max(), ~x.min()]


def silence_own_builds() -> None:
    """Let PyOpenCL warn of what a compiler said about programs of others only.

    All its builds report by this one function, which it looks up when it needs it. Who asked for a kernel is known by
    the stack alone: `warnings.catch_warnings` changes the filters of all threads, and would have to be around every
    operation on a device array.
    """
    shown: Callable[[str], Any] | None = getattr(cl, "compiler_output", None)
    # A second import must not wrap the function twice.
    if shown is None or hasattr(shown, "__wrapped__"):
        return

    @wraps(shown)
    def compiler_output(text: str) -> None:
        if is_output_shown() or not is_own_build():
            shown(text)

    cl.compiler_output = compiler_output


def silent(context: cl.Context) -> Sequence[str]:
    """Return options that keep the compiler of `context` from writing to the process's standard error.

    clang writes "3 errors generated." there, besides the log, unless carets are off. PoCL refuses the option for that.
    But it splits options at blanks, looks at how they begin, and hands all to clang as one text that is split at tabs,
    too: behind a tab, the option arrives. The other way, a standard error that is another file meanwhile, takes the
    output of all threads and of new processes with it. Later PoCLs than those tried are left alone, and so is
    NVIDIA's driver (580), which counts errors there and knows none of clang's options.
    """
    if is_output_shown():
        return ()
    # The way through a tab depends on how PoCL splits options, and is known of these versions alone.
    tried = all(re.search(r"\bPoCL 3\.[01]\b", device.platform.version) for device in context.devices)
    return ("-DCLHIST_SILENT\t-fno-caret-diagnostics",) if tried else ()


def is_output_shown() -> bool:
    """Whether ``PYOPENCL_COMPILER_OUTPUT`` asks for what compilers say."""
    try:
        return bool(strtobool(os.environ.get("PYOPENCL_COMPILER_OUTPUT", "False")))
    except ValueError:
        return True


def is_own_build() -> bool:
    """Whether this happens inside a call of clhist, whoever has a part in the build: others may wrap PyOpenCL's."""
    frame: FrameType | None = sys._getframe(2)  # of whoever calls PyOpenCL's function in whose place this is asked
    while frame is not None:
        # PyOpenCL's own frames are between the build and the caller, so that the whole stack is searched.
        if frame.f_globals.get("__name__", "").partition(".")[0] == "clhist":
            return True
        frame = frame.f_back
    return False
