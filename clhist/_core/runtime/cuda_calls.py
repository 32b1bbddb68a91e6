"""Public functions on arrays of CUDA's memory: taken as they are, and results given back in the caller's library.

What CUDA cannot do goes through the host, with one warning.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from clhist._core.cuda.kinds import may_be_cuda
from clhist._core.cuda.recognised import Recognised, recognised
from clhist._core.opencl.cuda_arrays import CudaArray, of_caller
from clhist._core.opencl.cuda_kinds import NotDirectError, is_inside, results_like
from clhist._core.opencl.cuda_queues import cuda_array
from clhist._core.runtime.caller import warn_caller
from clhist._core.runtime.cuda_check import prove
from clhist._core.runtime.cuda_repeats import ANEW, RecognisedCall, noted, recognised_call, repeated
from clhist.errors import UnsupportedError

_OF_OPENCL = ("queue", "wait_for", "allocator", "return_event", "devices")
_NUMBERS = ("bins", "range", "minlength", "max_abs", "index", "min", "max", "q")  # the host needs them: they are read
_warned: set[str] = set()


class _Strict(threading.local):
    on = False


_strict = _Strict()


@contextmanager
def direct_only() -> Iterator[None]:
    """Let calls of this thread raise UnsupportedError where their data would go through the host."""
    before = _strict.on
    try:
        _strict.on = True
        yield
    finally:
        _strict.on = before


def call_on_cuda(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], only: bool) -> Any:
    """Return the result of a call some of whose arguments are arrays of CUDA's memory.

    `only` says that copies on the host are of no use: what CUDA cannot do raises UnsupportedError then.
    """
    seen = recognised_call(function, args, options)
    found = ANEW if seen is None else repeated(seen)
    return (
        _call(function, args, options, _refused if only else _through_the_host, seen=seen) if found is ANEW else found
    )


def call_of_object(
    function: Callable[..., Any], held: Any, on_host: str, given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Return the result of a method of an object that has a device array, `held`; the object is the first of `given`.

    `on_host` is that of `takes_cuda_as`.
    """
    if not isinstance(held, CudaArray) or is_inside():
        return function(*given, **options)

    def otherwise(*call: Any) -> Any:
        if not on_host:
            return _refused(*call)
        function, names, (self, *args), options, reason = call
        return _through_the_host(function, names, (getattr(self, on_host)(), *args), options, reason)

    return _call(function, given, options, otherwise, held)


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
    for name in _OF_OPENCL:
        if options.get(name):
            raise TypeError(f"{name}: expected none with arrays of CUDA, whose stream orders what is done")
    names = _names(function, len(args))

    def compute() -> Any:
        taken = _Taken(_numbers_of(function))
        given = [taken.value(name, value) for name, value in zip(names, args, strict=True)]
        named = {name: taken.value(name, value) for name, value in options.items()}
        if like is None and not taken.arrays:  # nothing but what was read
            return function(*given, **named)
        first = taken.arrays[0] if like is None else like
        with results_like(first.memory):
            prove(first)
            return function(*given, **named)

    try:
        return returned(noted(seen, compute))
    except NotDirectError as error:
        reason = str(error)
    return (_refused if _strict.on else otherwise)(function, names, args, options, reason)


class _Taken:
    """The arguments of a call with arrays as kernels take them; an array that is there twice is one object."""

    def __init__(self, numbers: Sequence[str]) -> None:
        self.arrays: list[CudaArray] = []
        self._numbers = numbers  # the arguments that the host needs
        self._known: dict[int, CudaArray] = {}

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple | list | dict):
            return _each(value, name, self.value)
        if id(value) in self._known:
            return self._known[id(value)]
        found = _recognised(name, value)
        if found is None:
            return value
        array = cuda_array(name, found, value)
        if name.partition("[")[0] in self._numbers:
            host = array.get()
            return host if host.ndim else host[()]
        self.arrays.append(array)
        self._known[id(value)] = array
        return array


def _each(values: Any, name: str, make: Callable[[str, Any], Any]) -> Any:
    """Return a tuple, list or dict with what `make` makes of each entry, if there may be arrays of CUDA."""
    if not may_be_cuda(values):
        return values
    if isinstance(values, dict):
        return {key: make(f"{name}[{key!r}]", each) for key, each in values.items()}
    found = [make(f"{name}[{n}]", each) for n, each in enumerate(values)]
    if isinstance(values, list):
        return found
    return type(values)(*found) if hasattr(values, "_fields") else tuple(found)


def _recognised(name: str, value: Any) -> Recognised | None:
    """Return what `recognised` does; raises TypeError also where what would be written must not be."""
    found = recognised(name, value)
    if found is not None and found.is_read_only and name.partition("[")[0] == "out":
        root = type(value).__module__.partition(".")[0]
        raise TypeError(
            f"{name}: expected an array that can be written, got a read-only {type(value).__name__} of {root}; take "
            "what the call returns"
        )
    return found


def first_of_cuda(value: Any) -> CudaArray | None:
    """Return the first `CudaArray` that `value` is or has, in tuples, lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return next((found for each in value if (found := first_of_cuda(each)) is not None), None)
    return value if isinstance(value, CudaArray) else None


def returned(value: Any) -> Any:
    """Return a result with the caller's arrays in the place of those of kernels."""
    if isinstance(value, CudaArray):
        return of_caller(value)
    if isinstance(value, tuple):
        each = [returned(one) for one in value]
        return type(value)(*each) if hasattr(value, "_fields") else tuple(each)
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
def _numbers_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return which of a function's own parameters are numbers: columns may have these names as well."""
    return tuple(name for name in _NUMBERS if name in _parameters(function))


@functools.cache
def _names(function: Callable[..., Any], number: int) -> list[str]:
    known = _parameters(function)
    return [known[n] if n < len(known) else known[-1] for n in range(number)]


def warn_of_host(name: str, reason: str) -> None:
    """Warn, once for a function of this name, that data of CUDA is copied to the host and back."""
    if name not in _warned:
        _warned.add(name)
        message = f"{name}: the data of CUDA goes through the host, since CUDA cannot do this directly: {reason}"
        warn_caller(message, UserWarning)


class _Copied(NamedTuple):
    host: np.ndarray
    found: Recognised
    given: Any


def _through_the_host(
    function: Callable[..., Any], names: list[str], args: tuple[Any, ...], options: Mapping[str, Any], reason: str
) -> Any:
    warn_of_host(getattr(function, "__qualname__", "this function"), reason)
    copied: dict[int, _Copied] = {}

    def value(name: str, given: Any) -> Any:
        if isinstance(given, tuple | list | dict):
            return _each(given, name, value)
        if id(given) not in copied:
            found = _recognised(name, given)
            if found is None:
                return given
            copied[id(given)] = _Copied(found.library.to_host(found.array), found, given)
        host = copied[id(given)].host
        return host if host.ndim or name not in _numbers_of(function) else host[()]

    given = [value(name, each) for name, each in zip(names, args, strict=True)]
    named = {name: value(name, each) for name, each in options.items()}
    return _back_from_host(function(*given, **named), list(copied.values()))


def _back_from_host(result: Any, copied: Sequence[_Copied]) -> Any:
    """Return a result as arrays of the library of the first of the arrays that were `copied`, which are written to."""

    def back(part: Any) -> Any:
        return _back_from_host(part, copied)

    for each in copied:
        if result is each.host:
            each.found.library.from_host(result, each.found.array)
            return each.given
    if isinstance(result, np.ndarray) and result.dtype.names is not None:
        return {name: back(np.ascontiguousarray(result[name])) for name in result.dtype.names}
    if isinstance(result, np.ndarray) and not result.dtype.hasobject:
        like = copied[0].found
        new = like.library.from_host(result, None, like.array)
        return new if like.back is None else like.back(new)
    if isinstance(result, tuple):
        parts = [back(one) for one in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if isinstance(result, dict):  # of ours alone, perhaps with methods
        for key, one in result.items():
            result[key] = back(one)
    return result
