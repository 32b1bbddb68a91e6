"""Building OpenCL programs: each once for a context, with errors that show the source."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence

import numpy as np
import pyopencl as cl

from clhist.errors import BuildError

_programs: dict[tuple[int, str, tuple[str, ...]], tuple[cl.Context, cl.Program]] = {}
_lock = threading.Lock()


class Kernel:
    """One kernel of a built program, safe to enqueue from several threads.

    Parameters
    ----------
    program : pyopencl.Program
        Built.
    name : str
        The kernel's.
    dtypes : sequence of numpy.dtype or None
        Type of each argument, None for a buffer. PyOpenCL sets arguments five times faster when it knows them.
    """

    def __init__(self, program: cl.Program, name: str, dtypes: Sequence[np.dtype | None]) -> None:
        self._lock = threading.Lock()
        self._convert: Sequence[np.dtype | None] = ()
        with _lock:  # PyOpenCL writes code for each kernel, and cannot for two at once
            self._kernel = cl.Kernel(program, name)
            if any(dtype is not None and dtype.names for dtype in dtypes):
                self._convert = dtypes  # of structs PyOpenCL cannot be told
            else:
                self._kernel.set_scalar_arg_dtypes(dtypes)

    def enqueue(
        self,
        queue: cl.CommandQueue,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        arguments: Sequence[object],
        wait_for: Sequence[cl.Event],
    ) -> cl.Event:
        """Set the arguments and enqueue; the kernel keeps its arguments, so only one thread may be between the two."""
        if self._convert:
            pairs = zip(arguments, self._convert, strict=True)
            arguments = [value if dtype is None or dtype.names else dtype.type(value) for value, dtype in pairs]
        with self._lock:
            self._kernel.set_args(*arguments)  # type: ignore[arg-type]
            return cl.enqueue_nd_range_kernel(queue, self._kernel, global_size, local_size, wait_for=wait_for or None)


def build(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Return the program of `source` for `context`, built at the first call.

    Raises
    ------
    BuildError
        If the compiler refuses it; with the numbered source and the compiler's words.
    """
    key = (context.int_ptr, source, tuple(options))
    with _lock:
        if key not in _programs:
            # The context is kept, so that its pointer is not used for another.
            _programs[key] = context, _build(context, source, options)
        return _programs[key][1]


def _build(context: cl.Context, source: str, options: Sequence[str]) -> cl.Program:
    try:
        with warnings.catch_warnings():
            # Some compilers always say something; PyOpenCL warns of that unless it is asked to show it.
            if not os.environ.get("PYOPENCL_COMPILER_OUTPUT"):
                warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(context, source).build(options=list(options))
    except cl.Error as error:
        numbered = "\n".join(f"{number:4d}  {line}" for number, line in enumerate(source.splitlines(), start=1))
        words = _compiler_words(error)
        raise BuildError(f"{words}\n\nin this OpenCL C:\n{numbered}\n\n{words}") from error


def _compiler_words(error: cl.Error) -> str:
    noise = ("(options:", "Build on ", "clBuildProgram failed")
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(noise)]
    return "\n".join(["the OpenCL compiler refused the kernel:", *lines])
