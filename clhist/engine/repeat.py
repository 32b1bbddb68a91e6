"""Calls that repeat earlier ones: by what they are recognised, and how they are enqueued again.

Device arrays are recognised by dtype, shape, alignment and queue: other arrays that are alike, or other content, repeat
a call as well. So nothing of the caller's is kept alive, and what depends on content must not be kept here.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist.codegen.arguments import same_scalar, scalar
from clhist.codegen.maps import Argument
from clhist.engine.given import Call, Given, Outcome
from clhist.engine.outputs import Outputs
from clhist.engine.replay import Recording, Replay
from clhist.opencl import lost
from clhist.opencl.arrays import Array, empty, is_device_array, without_memory
from clhist.opencl.device import profile_names
from clhist.opencl.memory import OutOfMemoryError
from clhist.operators.operator import Operator
from clhist.planning.problem import FREE

_LOAD_BYTES = 16
_MOST_BYTES = 1 << 16  # of a NumPy array whose content is compared
_MOST_ITEMS = 64  # of a sequence, which takes longer

T = TypeVar("T")


class _UnknownError(Exception):
    """Raised for a value that calls are not recognised by."""


class _Itself:
    """Stands for an object that is compared by identity, and keeps it."""

    __slots__ = ("_object",)

    def __init__(self, value: object) -> None:
        self._object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)


class Remembered(Generic[T]):
    """What the latest calls of different keys left behind; threads may share it."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, dict[Hashable, T](), threading.Lock()

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


def alike(*values: Any) -> Hashable:
    """Return what a function can know its arguments by, but for the content of device arrays.

    Returns
    -------
    tuple or None
        Equal for values of the same types that are equal to the bit; NumPy arrays count by content. None if no value is
        a device array, or one is of another kind than these, numbers, strings, sequences, queues and operators.
    """
    try:
        found = tuple(map(_alike, values))
    except _UnknownError:
        return None
    return (found, profile_names()) if any(map(_has_device_array, values)) else None


def _alike(value: Any) -> Hashable:
    kind = type(value)
    if value is None or kind is cl.CommandQueue:
        return value
    if kind in _EXACT:
        return kind, value
    if isinstance(value, cl_array.Array):
        return _like(value)
    if kind is float:
        return kind, value.hex()  # 0.0 is not -0.0
    if (kind is tuple or kind is list) and len(value) <= _MOST_ITEMS:
        return (kind, *map(_alike, value))
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if kind is Operator:
        return _Itself(value)  # operators that differ in their identity element are equal
    if kind is np.ndarray and not value.dtype.hasobject and value.nbytes <= _MOST_BYTES:
        return kind, value.dtype, value.shape, value.tobytes()
    raise _UnknownError


_EXACT = {int, bool, str, np.ufunc}


def _has_device_array(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_device_array, value))
    return is_device_array(value)


def _like(array: Array) -> tuple[Any, ...]:
    """Return what arrays alike have in common; a queue says the context as well."""
    return array.dtype, array.shape, array.strides, array.queue or array.context


class Known(NamedTuple):
    """What a call of an engine is recognised by.

    Attributes
    ----------
    key : tuple
        Whatever decides on its checks and its plan.
    targets : list of pyopencl.array.Array
        The distinct arrays of `dest` and `out`.
    """

    key: Hashable
    targets: list[Array]

    @classmethod
    def of(cls, arguments: Sequence[Argument], args: Sequence[Any], call: Call) -> Known | None:
        """Return it for a call on device arrays; None of one that is checked each time."""
        if len(args) != len(arguments) or call.offsets is not None or type(call.race_factor) is not float:
            return None
        exactly = call.largest is not None  # whose array is an argument of two kernels
        arrays: list[Any] = []
        for argument, value in zip(arguments, args, strict=True):
            if argument.is_array:
                if not isinstance(value, cl_array.Array):
                    return None
                arrays.append((*_like(value), value.offset if exactly else value.offset % _LOAD_BYTES == 0))
        if not arrays:
            return None
        targets: list[Array] = []
        try:
            given = _target(call.dest, targets), _target(call.out, targets)
            numbers = tuple(map(_number, (call.num_bins, call.size, call.num_histograms, call.memory_budget)))
        except _UnknownError:
            return None
        choices = None if call.choices is FREE else call.choices
        if not (call.queue is None or isinstance(call.queue, cl.CommandQueue)):
            return None
        more = call.queue, call.race_factor, choices, call.largest, call.partial, *profile_names()
        return cls((numbers, tuple(arrays), given, more), targets)

    @property
    def is_plain(self) -> bool:
        """Whether the targets have a buffer each, so that none overlap."""
        targets = self.targets
        return len(targets) < 2 or len({array.base_data.int_ptr for array in targets}) == len(targets)


def _target(value: Any, targets: list[Array]) -> Hashable:
    """Return what `dest` or `out` is recognised by, and add its arrays to `targets`; those there are have a number."""
    if value is None:
        return None
    if isinstance(value, cl_array.Array):
        for n, each in enumerate(targets):
            if each is value:
                return n
        targets.append(value)
        return (*_like(value), value.offset)
    if type(value) is dict:
        return (dict, *value, *(_target(each, targets) for each in value.values()))
    if type(value) is tuple or type(value) is list:
        return (type(value), *(_target(each, targets) for each in value))
    raise _UnknownError


def _number(value: Any) -> Hashable:
    kind = type(value)
    if value is None or kind is int:
        return value
    if kind is dict:
        return (dict, *value, *map(_number, value.values()))
    if kind is tuple or kind is list:
        return (kind, *map(_number, value))
    raise _UnknownError


class Repeat:
    """Calls of an engine that are alike: the second one is recorded, and the later ones are replayed."""

    def __init__(self) -> None:
        self.is_tried = False  # whether it is known if such a call can be replayed
        self._replay: Replay | None = None
        self._called: Any = None  # as `clhist.opencl.lost` shows it
        # Of each output what a new result is like, without its memory, one for each field; None if `out` was given.
        self._likes: list[tuple[Array, ...] | None] = []
        self._fields: list[bool] = []
        self._scalars: tuple[list[Any], list[Any]] = [], []  # as they were given, and as kernels take them

    def record(
        self, recording: Recording, arguments: Sequence[Argument], call: Call, given: Given, targets: Sequence[Array]
    ) -> None:
        """Keep what repeats a call."""
        memory = [array.base_data for array in targets]
        likes: list[tuple[Array, ...] | None] = []
        for target in given.targets:
            out = target.out or ()
            if any(array is each for each in targets for array in out):
                likes.append(None)
                continue
            likes.append(tuple(map(without_memory, out)))
            memory += [array.base_data for array in out]
        if call.largest is not None:
            memory += _found(arguments, given.values, call)
        named: dict[str, Any] = {}
        for argument, value in zip(arguments, given.values, strict=True):
            taken = (value.base_data, np.uint64(value.offset)) if argument.is_array else (value,)
            named |= zip((parameter.name for parameter in argument.kernel_parameters), taken, strict=True)
        self._likes, self._fields = likes, [bool(target.fields) for target in given.targets]
        self._called, self.is_tried = lost.last_call, True
        self._replay = recording.replay(given.queue, memory, named)

    def again(
        self, outputs: Outputs, arguments: Sequence[Argument], args: Sequence[Any], call: Call, targets: Sequence[Array]
    ) -> Outcome | None:
        """Enqueue such a call; return None if it cannot be replayed, or if there is no scratch memory."""
        replay = self._replay
        if replay is None:
            return None
        scalars = iter(self._taken(arguments, args))
        arrays, memory = list(targets), [array.base_data for array in targets]
        written: list[Array] = []
        results: list[Any] = []
        outs = [call.out] if outputs.is_single or call.out is None else outputs.each("out", call.out)
        for k, likes in enumerate(self._likes):
            if likes is None:
                results.append(outs[k])
                written += outs[k] if self._fields[k] else (outs[k],)
                continue
            made = [empty(like.queue, like.shape, like.dtype, True, call.allocator, like) for like in likes]
            written += made
            memory += [array.base_data for array in made]
            results.append(tuple(made) if self._fields[k] else made[0])
        if call.largest is not None:
            memory += _found(arguments, args, call)
        for argument, value in zip(arguments, args, strict=True):
            if not argument.is_array:
                memory.append(next(scalars))
                continue
            memory += (value.base_data, np.uint64(value.offset))
            arrays.append(value)
            if not argument.is_const:
                written.append(value)
        lost.last_call = self._called
        try:
            event = replay.enqueue(memory, arrays, written, call.wait_for, call.allocator)
        except OutOfMemoryError:  # the call as a whole makes do with less
            return None
        return Outcome(results, {"combine": [event]}, {})

    def _taken(self, arguments: Sequence[Argument], args: Sequence[Any]) -> list[Any]:
        """Return the scalars as kernels take them; raises as `scalar` if one is wrong."""
        pairs = [(argument, value) for argument, value in zip(arguments, args, strict=True) if not argument.is_array]
        known, taken = self._scalars
        if len(known) != len(pairs) or not all(
            value is before or same_scalar(value, before) for (_, value), before in zip(pairs, known, strict=True)
        ):
            taken = [scalar(argument, value) for argument, value in pairs]
            self._scalars = [value for _, value in pairs], taken
        return taken


def _found(arguments: Sequence[Argument], values: Sequence[Any], call: Call) -> list[Any]:
    """Return the buffer for the largest bin, which the second stage gets as well."""
    assert call.largest is not None
    name = call.largest.argument
    return [value.base_data for argument, value in zip(arguments, values, strict=True) if argument.name == name]
