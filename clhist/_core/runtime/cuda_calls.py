"""Public functions on arrays of CUDA's memory: taken as they are, and results given back in the caller's library.

What CUDA cannot do goes through the host, with one warning.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from sys import maxsize
from typing import Any, NamedTuple

import numpy as np

from clhist import operators
from clhist._core.cuda.driver import driver
from clhist._core.cuda.recognised import Recognised, recognised
from clhist._core.kinds import PLAIN, may_be_cuda
from clhist._core.model.problem import Choices
from clhist._core.opencl.cuda_arrays import CudaArray, of_caller
from clhist._core.opencl.cuda_kinds import NotDirectError, is_direct_only, is_inside, results_like
from clhist._core.opencl.cuda_queues import cuda_array
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.call import Call
from clhist._core.runtime.caller import warn_caller
from clhist._core.runtime.cuda_repeats import ANEW, RecognisedCall, noted, recognised_call, repeated
from clhist._core.runtime.engine import Engine
from clhist.errors import UnsupportedError

_OF_OPENCL = ("queue", "wait_for", "allocator", "return_event", "devices")
_NUMBERS = ("bins", "range", "minlength", "max_abs", "index", "min", "max", "q")  # the host needs them: they are read
_warned: set[str] = set()
_N, _BINS = 5000, 20_000  # more bins than fit shared memory that a program declares
_reasons: dict[int, str] = {}  # by the number of the device: what is wrong, if anything


def call_on_cuda(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], only: bool) -> Any:
    """Return the result of a call some of whose arguments are arrays of CUDA's memory.

    With `only`, what CUDA cannot do raises UnsupportedError; otherwise it runs on copies on the host.
    """
    args, options = _numbers_read(function, args, options)
    seen = recognised_call(function, args, options)
    result = ANEW if seen is None else repeated(seen)
    return (
        _call(function, args, options, _refused if only else _through_the_host, seen=seen) if result is ANEW else result
    )


def call_of_object(
    function: Callable[..., Any],
    array: CudaArray,
    state: tuple[Any, ...],
    on_host: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    """Call a method of an object whose array of CUDA is `array`; the object is the first of `arguments`.

    `on_host` is that of `takes_cuda_as`; `state` has the values of its attributes.
    """
    # Inside another call on arrays of CUDA, that call converts arguments and results.
    if is_inside():
        return function(*arguments, **options)
    arguments, options = _numbers_read(function, arguments, options)
    seen = recognised_call(function, (of_caller(array), *state, *arguments[1:]), options) if state else None
    result = ANEW if seen is None else repeated(seen)
    if result is not ANEW:
        return result

    def otherwise(*call: Any) -> Any:
        if not on_host:
            return _refused(*call)
        function, names, (self, *args), options, reason = call
        return _through_the_host(function, names, (getattr(self, on_host)(), *args), options, reason)

    return _call(function, arguments, options, otherwise, array, seen)


def _refused(function: Callable[..., Any], *_: Any) -> Any:
    raise UnsupportedError(f"{function.__qualname__}: expected a call that CUDA can do, which it cannot: {_[-1]}")


def _call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    otherwise: Callable[..., Any],
    like: CudaArray | None = None,
    seen: RecognisedCall | None = None,
) -> Any:
    # A stream of CUDA orders the call, so queues, events and allocators of OpenCL have no meaning.
    for name in _OF_OPENCL:
        if options.get(name):
            raise TypeError(f"{name}: expected none with arrays of CUDA, whose stream orders what is done")
    names = _names(function, len(args))

    def compute() -> Any:
        arguments = _Taken()
        positional = [arguments.value(name, value) for name, value in zip(names, args, strict=True)]
        named = {name: arguments.value(name, value) for name, value in options.items()}
        if like is None and not arguments.arrays:  # the host has read all arrays of CUDA
            return function(*positional, **named)
        first = arguments.arrays[0] if like is None else like
        with results_like(first.memory):
            # The first call on a device counts a known input: a driver whose launches go wrong must not compute.
            prove(first)
            return function(*positional, **named)

    try:
        return returned(noted(seen, compute))
    except NotDirectError as error:
        reason = str(error)
    # Outside of the except block, so that an error of the other way is not chained to this one.
    return (_refused if is_direct_only() else otherwise)(function, names, args, options, reason)


class _Taken:
    """Converts arguments for kernels: each distinct array of CUDA becomes one `CudaArray`."""

    def __init__(self) -> None:
        self.arrays: list[CudaArray] = []
        self._known: dict[int, CudaArray] = {}

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple | list | dict):
            return _each(value, name, self.value)
        # One object for each array, so that checks notice an array that is both `dest` and `out`.
        if id(value) in self._known:
            return self._known[id(value)]
        foreign = _recognised(name, value)
        if foreign is None:
            return value
        array = cuda_array(name, foreign, value)
        self.arrays.append(array)
        self._known[id(value)] = array
        return array


def _numbers_read(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with those that decide on the call, such as bins, read from arrays of CUDA.

    Kernels take all other arrays in place. They are read first, so that a call is repeated by their content.
    """
    for name, place in _numbers_of(function):
        if place < len(args):
            if type(args[place]) not in PLAIN and may_be_cuda(args[place]):
                args = (*args[:place], _read(args[place], name), *args[place + 1 :])
        elif name in options and may_be_cuda(options[name]):
            options = {**options, name: _read(options[name], name)}
    return args, options


def _read(value: Any, name: str) -> Any:
    """Return a value with its arrays of CUDA as arrays and scalars of NumPy."""
    if isinstance(value, tuple | list | dict):
        return _each(value, name, lambda inner, entry: _read(entry, inner))
    foreign = recognised(name, value)
    if foreign is None:
        return value
    library = foreign.library
    described = library.described(name, foreign.array)
    host = np.empty(described.shape, described.dtype)
    if host.size and host.strides == described.strides:
        with driver().on(described.device):
            driver().download(host, described.address, library.stream(described.device))
    elif host.size:  # with gaps
        host = library.to_host(foreign.array)
    return host if host.ndim else host[()]


def _each(values: Any, name: str, make: Callable[[str, Any], Any]) -> Any:
    """Apply `make` to the entries of a tuple, list or dict, unless it cannot contain arrays of CUDA."""
    if not may_be_cuda(values):
        return values
    if isinstance(values, dict):
        return {key: make(f"{name}[{key!r}]", entry) for key, entry in values.items()}
    entries = [make(f"{name}[{n}]", entry) for n, entry in enumerate(values)]
    if isinstance(values, list):
        return entries
    # Named tuples take their entries as separate arguments.
    return type(values)(*entries) if hasattr(values, "_fields") else tuple(entries)


def _recognised(name: str, value: Any) -> Recognised | None:
    """Return `recognised(name, value)`; raise TypeError for a read-only `out`."""
    foreign = recognised(name, value)
    if foreign is not None and foreign.is_read_only and name.partition("[")[0] == "out":
        root = type(value).__module__.partition(".")[0]
        raise TypeError(
            f"{name}: expected an array that can be written, got a read-only {type(value).__name__} of {root}; take "
            "what the call returns"
        )
    return foreign


def first_of_cuda(value: Any) -> CudaArray | None:
    """Return the first `CudaArray` that `value` is or has, in tuples, lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return next((array for entry in value if (array := first_of_cuda(entry)) is not None), None)
    return value if isinstance(value, CudaArray) else None


def returned(value: Any) -> Any:
    """Return a result with each `CudaArray` replaced by an array of the caller's library."""
    if isinstance(value, CudaArray):
        return of_caller(value)
    if isinstance(value, tuple):
        parts = [returned(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if type(value) is list:
        return [returned(one) for one in value]
    if isinstance(value, dict):  # of ours alone, perhaps with methods
        for key, one in value.items():
            value[key] = returned(one)
    return value


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(signature(function).parameters)


@functools.cache
def _numbers_of(function: Callable[..., Any]) -> tuple[tuple[str, int], ...]:
    """Return the parameters of a function that the host reads, and their places; ``**columns`` may have such names."""
    parameters = enumerate(signature(function).parameters.values())
    # Behind all arguments by position, if it is passed by name only.
    return tuple(
        (p.name, n if p.kind <= p.POSITIONAL_OR_KEYWORD else maxsize) for n, p in parameters if p.name in _NUMBERS
    )


@functools.cache
def _names(function: Callable[..., Any], number: int) -> list[str]:
    parameters = _parameters(function)
    return [parameters[n] if n < len(parameters) else parameters[-1] for n in range(number)]


def warn_of_host(name: str, reason: str) -> None:
    """Warn, once for a function of this name, that data of CUDA is copied to the host and back."""
    if name not in _warned:
        _warned.add(name)
        message = f"{name}: the data of CUDA goes through the host, since CUDA cannot do this directly: {reason}"
        warn_caller(message, UserWarning)


class _Copied(NamedTuple):
    host: np.ndarray
    foreign: Recognised
    argument: Any


def _through_the_host(
    function: Callable[..., Any], names: list[str], args: tuple[Any, ...], options: Mapping[str, Any], reason: str
) -> Any:
    warn_of_host(getattr(function, "__qualname__", "this function"), reason)
    copied: dict[int, _Copied] = {}

    def value(name: str, argument: Any) -> Any:
        if isinstance(argument, tuple | list | dict):
            return _each(argument, name, value)
        if id(argument) not in copied:
            # Each array is copied once, so that the copy of an `out` is recognised by identity in the result.
            foreign = _recognised(name, argument)
            if foreign is None:
                return argument
            copied[id(argument)] = _Copied(foreign.library.to_host(foreign.array), foreign, argument)
        return copied[id(argument)].host

    positional = [value(name, argument) for name, argument in zip(names, args, strict=True)]
    named = {name: value(name, argument) for name, argument in options.items()}
    return _back_from_host(function(*positional, **named), list(copied.values()))


def _back_from_host(result: Any, copied: Sequence[_Copied]) -> Any:
    """Convert a result to the library of the first of the `copied` arrays.

    A result that is the host copy of an argument, such as `out`, is written back to that argument.
    """

    def back(part: Any) -> Any:
        return _back_from_host(part, copied)

    for entry in copied:
        if result is entry.host:
            entry.foreign.library.from_host(result, entry.foreign.array)
            return entry.argument
    # Libraries of CUDA arrays have no structured dtypes.
    if isinstance(result, np.ndarray) and result.dtype.names is not None:
        return {name: back(np.ascontiguousarray(result[name])) for name in result.dtype.names}
    if isinstance(result, np.ndarray) and not result.dtype.hasobject:
        like = copied[0].foreign
        new = like.library.from_host(result, None, like.array)
        return new if like.back is None else like.back(new)
    if isinstance(result, tuple):
        parts = [back(one) for one in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if isinstance(result, dict):  # of ours alone, perhaps with methods
        for key, one in result.items():
            result[key] = back(one)
    return result


def prove(array: CudaArray) -> None:
    """Count a known input on the device of `array`, if that has not been done.

    Raises
    ------
    NotDirectError
        If counts were wrong.
    CaptureError
        If the stream is being captured.
    """
    device = array.memory.device
    if device not in _reasons:
        _reasons[device] = _counted(array)
    if _reasons[device]:
        raise NotDirectError(_reasons[device])


def _counted(array: CudaArray) -> str:
    queue = array.queue
    assert queue is not None
    # Local memory is forced: these bins exceed 48 KiB, beyond which CUDA requires it to be dynamic.
    x = np.arange(_N, dtype=np.int32) ** 2 % _BINS
    engine = Engine.of(queue.context, operators.add(np.int32), "const int *x, int step", "EMIT(x[i], step)")
    call = Call(_BINS, choices=Choices(memory="local"))
    try:
        (counts,) = engine.run([to_device(queue, x), 3], call).results
    except NotDirectError as error:
        return str(error)
    expected = 3 * np.bincount(x, minlength=_BINS)
    return "" if np.array_equal(counts.get(), expected) else "known values were counted wrong on this device"
