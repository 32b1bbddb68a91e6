"""By what calls are recognised that repeat an earlier one: all that decides on their checks and their plan.

Arrays are recognised by dtype, shape, strides, alignment and queue, not by content: other arrays that are alike repeat
a call as well. So nothing of the caller's is kept alive, and what depends on content must not be kept by a signature.
Notes [Signature of a call] and [Options belong to the signature], docs/decisions/0015.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist._core.kernels.maps import Argument
from clhist._core.model.problem import FREE
from clhist._core.opencl.arrays import Array, address_of, overlap
from clhist._core.opencl.cuda_kinds import is_cuda, may_be_written
from clhist._core.opencl.device import default_queue, profile_names
from clhist._core.runtime.call import Call, queue_for
from clhist._core.runtime.results import index_in
from clhist.operators.operator import Operator

_LOAD_BYTES = 16
_MOST_BYTES = 1 << 16  # of a NumPy array whose content is compared
_MOST_ITEMS = 64  # of a sequence, which takes longer

T = TypeVar("T")


class UnknownError(Exception):
    """Raised for a value that calls are not recognised by."""


class Remembered(Generic[T]):
    """A bounded cache by the signature of a call; threads may share it."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, dict[Hashable, T](), threading.Lock()
        with _registering:
            _every.add(self)

    def get(self, key: Hashable) -> T | None:
        """Return what is kept by `key`; None has nothing."""
        try:
            return None if key is None else self._kept.get(key)
        except TypeError:  # of an argument that has no hash, which is wrong
            return None

    def put(self, key: Hashable, value: T | None) -> None:
        """Keep `value` by `key`, unless one of them is None."""
        if key is None or value is None:
            return
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = value

    def take(self, key: Hashable) -> T | None:
        """Return what is kept by `key`, which nobody else gets from now on."""
        with self._lock:
            return self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            gone, self._kept = self._kept, {}
        del gone  # outside of the lock: what is let go of may end in code that calls for it


_every: weakref.WeakSet[Remembered[Any]] = weakref.WeakSet()
_registering = threading.Lock()


def forget_calls() -> None:
    """Forget all that was remembered of calls: the next ones are made as first ones are."""
    with _registering:
        every = [*_every]
    for each in every:
        each.clear()


def signature_of_call(
    arguments: Sequence[Argument], values: Sequence[Any], call: Call, context: cl.Context, targets: list[Array]
) -> Hashable:
    """Return what decides on the checks and the plan of a call, but for scalars of the map.

    Parameters
    ----------
    arguments, values
        Of the map.
    call : Call
        What else it asks for.
    context : pyopencl.Context
        Where it runs.
    targets : list
        Gets the arrays of `dest` and `out`, each once.

    Returns
    -------
    Hashable or None
        None of a call that is checked each time.
    """
    if len(values) != len(arguments) or type(call.race_factor) is not float:
        return None
    size, queue, largest = call.size, call.queue, call.largest
    if not (size is None or type(size) is int) or not (queue is None or isinstance(queue, cl.CommandQueue)):
        return None
    parts: list[Any] = []
    try:
        if not _add_arrays(parts, arguments, values) and queue is None:
            queue = _queue_in(context)
        if call.dest is not None or call.out is not None:
            parts += _target(call.dest, targets), _target(call.out, targets)
            if len(targets) > 1 and _may_overlap(targets):
                return None
        bins = call.num_bins if type(call.num_bins) is int else alike(call.num_bins)
        histograms = None if call.num_histograms is None else alike(call.num_histograms)
        budget = None if call.memory_budget is None else alike(call.memory_budget)
        offsets = None if call.offsets is None else _read_on_host(call.offsets)
    except UnknownError:
        return None
    choices = None if call.choices is FREE else call.choices
    asked = None if largest is None else largest[:2]
    rest = bins, size, queue, call.race_factor, asked, call.partial, choices, histograms, budget, offsets
    return (*parts, *rest, *profile_names())


def _add_arrays(parts: list[Any], arguments: Sequence[Argument], values: Sequence[Any]) -> bool:
    """Add to `parts` what the arrays of a map are known by, and return whether one is on a device."""
    on_device = False
    for argument, value in zip(arguments, values):  # noqa: B905  # as many, and `strict` takes time in each call
        if not argument.is_array:
            continue
        if isinstance(value, cl_array.Array):
            on_device = True
            if not argument.is_const and not may_be_written(value):
                raise UnknownError
        elif type(value) is not np.ndarray:
            raise UnknownError
        parts.append(_like(value))
    return on_device


def _queue_in(context: cl.Context) -> cl.CommandQueue:
    queue = default_queue()
    return queue if queue.context == context else queue_for(None, context)


def signature_of_targets(key: Hashable, call: Call, targets: list[Array]) -> Hashable:
    """Return the signature of a call that its caller recognised by `key`, but for which of `dest` and `out` is which.

    `targets` gets their arrays, each once.
    """
    if call.dest is None and call.out is None:
        return key
    numbers = [index_in(array, targets) for given in (call.dest, call.out) for array in _each(given)]
    return None if len(targets) > 1 and _may_overlap(targets) else (key, *numbers)


def signature_of(*values: Any) -> Hashable:
    """Return what a function can recognise its arguments by, but for the content of device arrays.

    Returns
    -------
    tuple or None
        Equal for values of the same types that are equal to the bit; NumPy arrays count by content. None if one is of
        another kind than these, numbers, strings, short sequences, dicts, queues and operators.
    """
    parts = _parts(values, _content)
    return None if parts is None else (*parts, *profile_names())


def signature_of_data(arrays: Sequence[Any], queue: cl.CommandQueue | None, *values: Any) -> Hashable:
    """Return what a function can recognise its arguments by, but for the content of `arrays`.

    Parameters
    ----------
    arrays : sequence
        Data, of NumPy or PyOpenCL, and None.
    queue : pyopencl.CommandQueue or None
        The caller's; None for that of the arrays, or the default one.
    *values
        As of `signature_of`.

    Returns
    -------
    tuple or None
        As of `signature_of`; None also if there is an array of another kind.
    """
    on_device = False
    for array in arrays:
        is_on_device = isinstance(array, cl_array.Array)
        if not is_on_device and array is not None and type(array) is not np.ndarray:
            return None
        on_device = on_device or is_on_device
    rest = signature_of(*values)
    if rest is None:
        return None
    return _parts(arrays, _like), rest, queue if queue is not None or on_device else default_queue()


def signature_of_arguments(values: Sequence[Any]) -> Hashable:
    """Return what arguments can be recognised by: arrays but for their content, others as by `signature_of`."""
    return _parts(values, _like)


def _parts(values: Sequence[Any], of_numpy: Callable[[np.ndarray], Hashable]) -> tuple[Hashable, ...] | None:
    """Return by what each value is recognised, an array of NumPy as `of_numpy` says; None if one is not."""
    parts: list[Hashable] = []
    try:
        for value in values:
            kind = type(value)
            if value is None or kind is int:
                parts.append(value)
            else:
                parts.append(of_numpy(value) if kind is np.ndarray else alike(value))
    except UnknownError:
        return None
    return tuple(parts)


class _Itself:
    """Stands for an object that is compared by identity, and keeps it."""

    __slots__ = ("_object",)

    def __init__(self, value: object) -> None:
        self._object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)


def itself(value: Any) -> Hashable:
    """Return what stands for this very array, or for a number of NumPy's that is equal to the bit."""
    return (value.dtype, value.tobytes()) if isinstance(value, np.generic) else _Itself(value)


def alike(value: Any) -> Hashable:
    """Return what one value is recognised by, as of `signature_of`; raises UnknownError of one of another kind."""
    kind = type(value)
    if value is None or kind is int:
        return value
    part = _PARTS.get(kind)
    if part is not None:
        return part(value)
    if isinstance(value, cl_array.Array):
        return _like(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    raise UnknownError


def _read_on_host(value: Any) -> Hashable:
    """Return what a value is recognised by whose content matters; that of a device is not looked at for this."""
    if isinstance(value, cl_array.Array):
        raise UnknownError
    return alike(value)


def _sequence(value: Any) -> Hashable:
    if len(value) > _MOST_ITEMS:
        raise UnknownError
    return (type(value), *map(alike, value))


def _content(value: np.ndarray) -> Hashable:
    if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
        raise UnknownError
    return np.ndarray, value.dtype, value.shape, value.tobytes()


def _like(array: Array) -> Hashable:
    """Return what arrays alike have in common; the queue of one of PyOpenCL's stands for its context."""
    if isinstance(array, cl_array.Array):
        where = array.queue or array.context
        return array.dtype, array.shape, array.strides, where, array.offset % _LOAD_BYTES == 0
    flags, aligned = array.flags, address_of(array) % _LOAD_BYTES == 0
    return np.ndarray, array.dtype, array.shape, array.strides, aligned, flags.aligned, flags.writeable


_PARTS: dict[type, Callable[[Any], Hashable]] = {
    cl_array.Array: _like,
    bool: lambda value: (bool, value),
    float: lambda value: (float, value.hex()),  # 0.0 is not -0.0
    str: lambda value: value,
    tuple: _sequence,
    list: _sequence,
    dict: lambda value: (dict, *value, *map(alike, value.values())),
    np.ndarray: _content,
    np.ufunc: lambda value: value,
    Operator: _Itself,  # those that differ in their identity element are equal
    cl.CommandQueue: lambda value: value,
}


def recognise(kind: type, part: Callable[[Any], Hashable]) -> None:
    """Let objects of a class be recognised by what `part` returns of one."""
    _PARTS[kind] = part


def _target(value: Any, targets: list[Array]) -> Hashable:
    """Return what `dest` or `out` is known by, and add its arrays to `targets`."""
    kind = type(value)
    if value is None:
        return None
    if kind is np.ndarray or isinstance(value, cl_array.Array):
        return index_in(value, targets), _like(value)
    if kind is dict:
        return (dict, *value, *(_target(each, targets) for each in value.values()))
    if kind is tuple or kind is list:
        return (kind, *(_target(each, targets) for each in value))
    raise UnknownError


def without_size(part: Any) -> Hashable:
    """Return the signature of an array, as `_like` makes it, without shape and strides."""
    if part[0] is np.ndarray:
        kind, dtype, _, _, *rest = part
        return kind, dtype, *rest
    dtype, _, _, *rest = part
    return dtype, *rest


def shape_of(part: Any) -> tuple[int, ...] | None:
    """Return the shape in the signature of an array, as `_like` makes it; None unless the array is contiguous."""
    _, dtype, shape, strides, *_ = part if part[0] is np.ndarray else (None, *part)
    expected = dtype.itemsize
    for length, stride in zip(shape[::-1], strides[::-1], strict=True):
        if stride != expected:
            return None
        expected *= length
    return shape


def without_sizes(target: Any) -> Hashable:
    """Return the signature of results, as `_target` makes it, without shapes and strides."""
    if type(target) is not tuple:
        return target
    if len(target) == 2 and type(target[0]) is int:
        number, part = target
        return number, without_size(part)
    return tuple(map(without_sizes, target))


def _may_overlap(targets: Sequence[Array]) -> bool:
    """Whether two arrays may share memory: then one of them may have to be copied."""
    for n, one in enumerate(targets):
        for other in targets[:n]:
            is_opencl = isinstance(one, cl_array.Array) and not is_cuda(one)
            if is_opencl and isinstance(other, cl_array.Array):
                if one.base_data is not None and one.base_data == other.base_data:
                    return True
            elif overlap(one, other):
                return True
    return False


def _each(given: Any) -> list[Array]:
    """Return the arrays of `dest` or `out`, given in whatever way."""
    if given is None:
        return []
    if isinstance(given, cl_array.Array | np.ndarray):
        return [given]
    return [array for each in (given.values() if type(given) is dict else given) for array in _each(each)]
