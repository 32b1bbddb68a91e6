"""Building OpenCL programs: each once for a context, with errors that show the source."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, partial, update_wrapper
from itertools import count
from time import perf_counter
from typing import Any, Generic, TypeVar

import pyopencl as cl

from clhist._core.devices import vendors
from clhist._core.kernel_code import KernelCode, Parameter, signatures
from clhist._core.opencl import intel
from clhist._core.opencl.build_options import check_environment, silence_own_builds, silent
from clhist._core.opencl.foreign_caches import seal_programs_of_pyopencl
from clhist.errors import BuildError

silence_own_builds()  # here, where everything that builds comes by
seal_programs_of_pyopencl()

T = TypeVar("T")

_MOST_CONTEXTS = 16  # whose programs and kernels are kept; programs that call for more contexts rarely go back to one
_MOST_VALUES = 1024  # of one function and one context

_caches: OrderedDict[cl.Context, dict[Callable[..., Any], Callable[..., Any]]] = OrderedDict()
_caches_lock = threading.Lock()
_builds, _compiler = 0, ""
_SHORT = {"Portable Computing Language": "PoCL", "Intel(R) OpenCL": "Intel's OpenCL", "NVIDIA CUDA": "NVIDIA"}
_log = logging.getLogger("clhist")  # a library prints nothing of its own accord
_lock = threading.Lock()


class kept_by_context(Generic[T]):
    """Keep what a function returns, as `functools.lru_cache` does, for the contexts that were used last.

    What is made for a context keeps it alive, so the caches of all functions for one go together. The context is the
    first argument, and is kept with them: its pointer is not used for another meanwhile.
    """

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, context: cl.Context, *key: Any) -> T:
        """Return what the function does for these arguments."""
        with _caches_lock:
            caches = _caches.setdefault(context, {})
            _caches.move_to_end(context)
            # The contexts that were used longest ago go, with all that is kept for them.
            gone = [_caches.popitem(last=False) for _ in range(len(_caches) - _MOST_CONTEXTS)]
            if self._function not in caches:
                caches[self._function] = lru_cache(maxsize=_MOST_VALUES)(partial(self._function, context))
            # The value is made without the lock, by `lru_cache`: functions that are kept call one another.
            cached = caches[self._function]
        del gone  # outside of the lock: what is let go of may end in code that calls for it
        return cached(*key)

    def cache_clear(self) -> None:
        """Forget what it returned."""
        with _caches_lock:
            gone = [caches.pop(self._function, None) for caches in _caches.values()]
        del gone


def forget_contexts() -> None:
    """Forget what all functions that are `kept_by_context` returned."""
    with _caches_lock:
        gone = [*_caches.values()]
        _caches.clear()
    del gone


class Kernel:
    """One kernel of a built program, safe to enqueue from several threads.

    Parameters
    ----------
    program : pyopencl.Program
        Built.
    name : str
        The kernel's.
    parameters : sequence of Parameter
        In order. PyOpenCL sets arguments five times faster when it knows their types.
    """

    def __init__(self, program: cl.Program, name: str, parameters: Sequence[Parameter]) -> None:
        self._lock, self._token = threading.Lock(), 0
        self.context, self.program = program.context, program
        self.loaded: dict[int, Any] = {}  # by CUDA, by device
        self.name, self.parameters = name, tuple(parameters)
        self.names = tuple([parameter.name for parameter in parameters])
        dtypes = [parameter.dtype for parameter in parameters]
        self._convert = any(dtype is not None and dtype.names for dtype in dtypes)
        with _lock:  # PyOpenCL writes code for each kernel, and cannot for two at once
            self._kernel = cl.Kernel(program, name)
            if not self._convert:  # PyOpenCL cannot convert structs
                self._kernel.set_scalar_arg_dtypes(dtypes)

    def ordered(self, arguments: Mapping[str, object]) -> list[object]:
        """Return arguments that are given by name in the order of the parameters, scalars of the types of theirs."""
        return self.typed([arguments[name] for name in self.names])

    def typed(self, arguments: list[Any]) -> list[Any]:
        """Return arguments that are in order with scalars of the types of the parameters; None stays None."""
        if self._convert:
            return [
                value if value is None or p.dtype is None or p.dtype.names else p.dtype.type(value)
                for value, p in zip(arguments, self.parameters, strict=True)
            ]
        return arguments

    def enqueue(
        self,
        queue: cl.CommandQueue,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        arguments: Sequence[object],
        wait_for: Sequence[cl.Event] | None,
        token: int = 0,
        buffers: Sequence[tuple[int, int]] = (),
        memory: Sequence[Any] = (),
    ) -> cl.Event:
        """Set the `ordered` arguments and enqueue; the kernel keeps them, so only one thread may be between the two.

        `buffers` are (index of an argument, index of its buffer in `memory`). If the call before had the same `token`,
        a number of `new_token`, only these arguments are set.
        """
        kernel = self._kernel
        # Arguments belong to the kernel object: another thread must not set its own between these and the launch.
        with self._lock:
            # The kernel still has the arguments of a call before: few of them change, and setting one takes time.
            if token and token == self._token:
                for n, k in buffers:
                    kernel.set_arg(n, memory[k])
            else:
                self._token = 0  # until all are set
                values = [*arguments]
                for n, k in buffers:
                    values[n] = memory[k]
                kernel.set_args(*values)  # type: ignore[arg-type]
                self._token = token
            return cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size, None, wait_for or None)


@kept_by_context
def kernel_of(context: cl.Context, code: KernelCode) -> Kernel:
    """Return the kernel of `code`, built; raises BuildError if the compiler refuses it."""
    return Kernel(build(context, code.source, code.options), code.name, code.parameters)


def kernels_of(context: cl.Context, source: str) -> dict[str, Kernel]:
    """Return all kernels of a program, built, by their names without ``clhist_``; raises BuildError."""
    program = build(context, source)
    return {name: Kernel(program, f"clhist_{name}", parameters) for name, parameters in signatures(source).items()}


new_token = count(1).__next__


def compile_program(context: cl.Context, source: str, options: Sequence[str]) -> cl.Program:
    """Return the built program of `source`, with what its platform's compiler needs; raises `pyopencl.Error`."""
    platform = context.devices[0].platform
    text = vendors.program_text(platform.name, source)
    options = [*options, *vendors.compiler_options(platform.name), *silent(context)]
    short, short_options = text, options
    if platform.name.strip() == "Intel(R) OpenCL":
        text = short = intel.program_text(text)
        short_options = intel.without_header(text, options)
    elif platform.name.strip() == "Portable Computing Language":
        from clhist._core.opencl.pocl_header import without_header  # which other platforms do without

        short, short_options = without_header(platform, text, options)
    if short_options != options:
        # A text that forms names of functions by macros fails, and errors are those of the text itself.
        with suppress(cl.Error):
            return cl.Program(context, short).build(options=short_options)
    return cl.Program(context, text).build(options=options)


def build(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Return the program of `source` for `context`, built at the first call, and again only after many others.

    Raises
    ------
    BuildError
        If the compiler refuses it; with the line that is wrong.
    """
    with building(context):
        return _built(context, source, tuple(options))


def programs_built() -> int:
    """Return how many programs this process has built."""
    return _builds


def compiler() -> str:
    """Return whose compiler was called last, in one or two words; nothing if none was."""
    return _compiler


def building(context: cl.Context) -> AbstractContextManager[bool]:
    """Return the lock with which one thread at a time builds; raise RuntimeError as `check_environment`.

    A generator would hold it as long as the traceback of an exception that interrupts its beginning.
    """
    check_environment(context)
    return _lock


@kept_by_context
def _built(context: cl.Context, source: str, options: tuple[str, ...]) -> cl.Program:
    global _builds, _compiler
    # `building` is held here, so that the counter and the compiler's name need no lock of their own.
    platform, start = context.devices[0].platform.name.strip(), perf_counter()
    _compiler = _SHORT.get(platform, platform)
    program = _build(context, source, options)
    _builds += 1
    _log.info("program %d for %s: %.2f s", _builds, _compiler, perf_counter() - start)
    return program


def _build(context: cl.Context, source: str, options: Sequence[str]) -> cl.Program:
    try:
        return compile_program(context, source, options)
    except cl.Error as error:
        log = str(error)
    from clhist._core.opencl.compiler_log import explain  # imported here, since most programs compile

    raise BuildError(explain(log, source), source, log)  # outside: PyOpenCL's error says the same at length
