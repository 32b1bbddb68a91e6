"""Building OpenCL programs: each once for a context, with errors that show the source."""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyopencl as cl

from clhist.errors import BuildError
from clhist.render import Parameter

# The last ones used, in this order: a program that makes kernels for ever must not grow for ever.
_programs: OrderedDict[tuple[int, str, tuple[str, ...]], tuple[cl.Context, cl.Program]] = OrderedDict()
_MOST_PROGRAMS = 1024
_built = 0
_lock = threading.Lock()


class Kernel:
    """One kernel of a built program, safe to enqueue from several threads.

    Parameters
    ----------
    program : pyopencl.Program
        Built.
    name : str
        The kernel's.
    parameters : sequence of Parameter
        Its parameters, in order. PyOpenCL sets arguments five times faster when it knows their types.
    """

    def __init__(self, program: cl.Program, name: str, parameters: Sequence[Parameter]) -> None:
        self._lock = threading.Lock()
        self.context = program.context
        self._parameters = tuple(parameters)
        self._names = tuple(parameter.name for parameter in parameters)
        dtypes = [parameter.dtype for parameter in parameters]
        self._convert = any(dtype is not None and dtype.names for dtype in dtypes)
        with _lock:  # PyOpenCL writes code for each kernel, and cannot for two at once
            self._kernel = cl.Kernel(program, name)
            if not self._convert:  # of structs PyOpenCL cannot be told
                self._kernel.set_scalar_arg_dtypes(dtypes)

    def enqueue(
        self,
        queue: cl.CommandQueue,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        arguments: Mapping[str, object],
        wait_for: Sequence[cl.Event],
    ) -> cl.Event:
        """Set the arguments, by name, and enqueue; the kernel keeps them, so only one thread may be between the two."""
        given = [arguments[name] for name in self._names]
        if self._convert:
            given = [
                value if p.dtype is None or p.dtype.names else p.dtype.type(value)
                for value, p in zip(given, self._parameters, strict=True)
            ]
        with self._lock:
            self._kernel.set_args(*given)  # type: ignore[arg-type]
            return cl.enqueue_nd_range_kernel(queue, self._kernel, global_size, local_size, wait_for=wait_for or None)


def build(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Return the program of `source` for `context`, built at the first call, and again only after many others.

    Raises
    ------
    BuildError
        If the compiler refuses it; with the numbered source and the compiler's words.
    """
    global _built
    key = (context.int_ptr, source, tuple(options))
    with building():
        if key not in _programs:
            # The context is kept, so that its pointer is not used for another.
            _programs[key] = context, _build(context, source, options)
            _built += 1
            while len(_programs) > _MOST_PROGRAMS:
                _programs.popitem(last=False)
        _programs.move_to_end(key)
        return _programs[key][1]


def programs_built() -> int:
    """Return how many programs this process has built."""
    return _built


@contextmanager
def building() -> Iterator[None]:
    """Let one thread at a time build, without what some compilers always say.

    PyOpenCL warns of that unless it is asked to show it.
    """
    with _lock, warnings.catch_warnings():
        if not os.environ.get("PYOPENCL_COMPILER_OUTPUT"):
            warnings.simplefilter("ignore", cl.CompilerWarning)
        yield


def _build(context: cl.Context, source: str, options: Sequence[str]) -> cl.Program:
    try:
        return cl.Program(context, source).build(options=list(options))
    except cl.Error as error:
        numbered = "\n".join(f"{number:4d}  {line}" for number, line in enumerate(source.splitlines(), start=1))
        words = _compiler_words(error)
        raise BuildError(f"{words}\n\nin this OpenCL C:\n{numbered}\n\n{words}") from error


def _compiler_words(error: cl.Error) -> str:
    noise = ("(options:", "Build on ", "clBuildProgram failed")
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(noise)]
    return "\n".join(["the OpenCL compiler refused the kernel:", *lines])
