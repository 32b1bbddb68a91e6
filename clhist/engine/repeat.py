"""Calls that repeat earlier ones: by what they are recognised, and how they are enqueued again.

Device arrays are recognised by dtype, shape, alignment and queue: other arrays that are alike, or other content, repeat
a call as well. So nothing of the caller's is kept alive, and what depends on content must not be kept here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist.codegen.arguments import same_scalar, scalar
from clhist.codegen.maps import Argument
from clhist.engine.build import Built
from clhist.engine.given import Call, Given, Outcome
from clhist.engine.outputs import Outputs
from clhist.engine.replay import Recording, Replay
from clhist.opencl import lost
from clhist.opencl.arrays import Array, empty, without_memory
from clhist.opencl.device import profile_names
from clhist.opencl.fork_guard import check_process
from clhist.opencl.memory import OutOfMemoryError
from clhist.operators.operator import Operator
from clhist.planning.problem import FREE

_LOAD_BYTES = 16
_MOST_KINDS = 8
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
        Equal for values of the same types that are equal to the bit; NumPy arrays count by content. None if one is of
        another kind than these, numbers, strings, short sequences, queues and operators.
    """
    try:
        return (*map(_alike, values), *profile_names())
    except _UnknownError:
        return None


def _alike(value: Any) -> Hashable:
    if value is None:
        return None
    part = _PARTS.get(type(value))
    if part is not None:
        return part(value)
    if isinstance(value, cl_array.Array):
        return _like(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    raise _UnknownError


def _sequence(value: Any) -> Hashable:
    if len(value) > _MOST_ITEMS:
        raise _UnknownError
    return (type(value), *map(_alike, value))


def _content(value: np.ndarray) -> Hashable:
    if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
        raise _UnknownError
    return np.ndarray, value.dtype, value.shape, value.tobytes()


def _like(array: Array) -> Hashable:
    """Return what arrays alike have in common; the queue stands for its context."""
    queue = array.queue or array.context
    return array.dtype, array.shape, array.strides, queue, array.offset % _LOAD_BYTES == 0


_PARTS: dict[type, Callable[[Any], Hashable]] = {
    cl_array.Array: _like,
    int: lambda value: value,
    bool: lambda value: (bool, value),
    float: lambda value: (float, value.hex()),  # 0.0 is not -0.0
    str: lambda value: value,
    tuple: _sequence,
    list: _sequence,
    np.ndarray: _content,
    np.ufunc: lambda value: value,
    Operator: _Itself,  # those that differ in their identity element are equal
    cl.CommandQueue: lambda value: value,
}


class Runs(Protocol):
    """What repeated calls need of `clhist.engine.engine.Engine`."""

    outputs: Outputs

    @property
    def arguments(self) -> tuple[Argument, ...]: ...

    def check(self, args: Sequence[Any], call: Call) -> Given: ...

    def prepared(self, given: Given, call: Call) -> Built: ...

    def enqueue(self, given: Given, call: Call, prepared: Built, recording: Recording | None = None) -> Outcome: ...


@dataclass(slots=True)
class _Kind:
    """Calls that are alike, and from the second one on what replays them, if anything can.

    Attributes
    ----------
    is_tried : bool
        Whether that is known.
    replay : Replay or None
        What is enqueued.
    new : list of array
        What the new arrays are like, without their memory.
    outs : list of (int, bool), or None
        Of each output the number of its new arrays, and whether it has one for each field; None if the only result is a
        new array.
    called : tuple
        As `clhist.opencl.lost` shows it.
    scalars : tuple of two lists
        The scalars of the call before as they were given, and as kernels take them.
    """

    is_tried: bool = False
    replay: Replay | None = None
    new: list[Array] = field(default_factory=list)
    outs: list[tuple[int, bool]] | None = None
    called: Any = None
    scalars: tuple[list[Any], list[Any]] = ([], [])


class Repeats:
    """The calls of an engine: those that are alike are recorded when they come again, and replayed from then on.

    Parameters
    ----------
    engine : Engine
        What is called.
    args : sequence, optional
        The map's arguments that are the same in all calls, and None in the place of the others. Defaults to None in all
        places.
    """

    def __init__(self, engine: Runs, args: Sequence[Any] | None = None) -> None:
        arguments = engine.arguments
        self._engine, self._args = engine, args
        self._places = [n for n in range(len(arguments)) if args is None or args[n] is None]
        self._changing = [arguments[n] for n in self._places]
        self._arrays = [n for n, argument in enumerate(self._changing) if argument.is_array]
        self._scalars = [n for n, argument in enumerate(self._changing) if not argument.is_array]
        self._kinds: Remembered[_Kind] = Remembered(_MOST_KINDS)

    def run(self, values: Sequence[Any], call: Call, key: Hashable = None) -> Outcome:
        """Enqueue a call with these in the places of the arguments that change; it is checked unless it is known.

        A caller may say that calls are alike but for `dest` being `out`, by the same `key`.
        """
        targets: list[Array] = []
        if key is None:
            key = self._key(values, call, targets)
        elif call.dest is not None or call.out is not None:
            key = key, *(_number_of(array, targets) for given in (call.dest, call.out) for array in _each(given))
        if len(targets) > 1 and len({array.base_data.int_ptr for array in targets}) < len(targets):
            key = None  # some may overlap
        check_process()
        kind = self._kinds.get(key)
        if kind is not None and (outcome := self._again(kind, values, call, targets)) is not None:
            return outcome
        engine, args = self._engine, values
        if self._args is not None:
            args = list(self._args)
            for n, value in zip(self._places, values, strict=True):
                args[n] = value
        given = engine.check(args, call)
        recording = Recording() if kind is not None and not kind.is_tried else None
        outcome = engine.enqueue(given, call, engine.prepared(given, call), recording)
        if kind is None:
            self._kinds.put(key, _Kind())
        elif recording is not None:
            self._record(kind, recording, call, given, targets)
        return outcome

    def _key(self, values: Sequence[Any], call: Call, targets: list[Array]) -> Hashable:
        """Return whatever decides on the checks and the plan of a call, and add the arrays of `dest` and `out`.

        None of a call that is checked each time, as are those on NumPy arrays.
        """
        if len(values) != len(self._changing) or call.offsets is not None or type(call.race_factor) is not float:
            return None
        exactly = call.largest is not None  # whose array is an argument of two kernels
        arrays: list[Any] = []
        for n in self._arrays:
            value = values[n]
            if not isinstance(value, cl_array.Array):
                return None
            arrays.append((_like(value), value.offset) if exactly else _like(value))
        size, queue = call.size, call.queue
        if not arrays or not (size is None or type(size) is int):
            return None
        if not (queue is None or isinstance(queue, cl.CommandQueue)):
            return None
        try:
            given = _target(call.dest, targets), _target(call.out, targets)
            bins = call.num_bins if type(call.num_bins) is int else _numbers(call.num_bins)
            rest = _numbers(call.num_histograms), _numbers(call.memory_budget)
        except _UnknownError:
            return None
        choices = None if call.choices is FREE else call.choices
        asked = bins, size, queue, call.race_factor, call.largest, call.partial, choices
        return (*arrays, *given, *asked, *rest, *profile_names())

    def _record(self, kind: _Kind, recording: Recording, call: Call, given: Given, targets: Sequence[Array]) -> None:
        """Keep what replays a call."""
        memory = [array.base_data for array in targets]
        new: list[Array] = []
        outs: list[tuple[int, bool]] = []
        for target in given.targets:
            out = target.out or ()
            made = () if any(array is each for each in targets for array in out) else out
            outs.append((len(made), bool(target.fields)))
            new += map(without_memory, made)
            memory += [array.base_data for array in made]
        values = [given.values[n] for n in self._places]
        if call.largest is not None:
            memory.append(self._found(values, call))
        named: dict[str, Any] = {}
        for argument, value in zip(self._changing, values, strict=True):
            taken = (value.base_data, np.uint64(value.offset)) if argument.is_array else (value,)
            named |= zip((parameter.name for parameter in argument.kernel_parameters), taken, strict=True)
        kind.new, kind.outs = new, None if outs == [(1, False)] else outs
        kind.called, kind.is_tried = lost.last_call, True
        kind.replay = recording.replay(given.queue, memory, named)

    def _again(self, kind: _Kind, values: Sequence[Any], call: Call, targets: Sequence[Array]) -> Outcome | None:
        """Replay a call; return None if it cannot be, or if there is no scratch memory."""
        replay, allocator = kind.replay, call.allocator
        if replay is None:
            return None
        made = [empty(like.queue, like.shape, like.dtype, True, allocator, like) for like in kind.new]
        memory = [array.base_data for array in (*targets, *made)]
        if call.largest is not None:
            memory.append(self._found(values, call))
        if self._scalars:
            taken = iter(self._taken(kind, values))
        arrays, written = list(targets), []
        for argument, value in zip(self._changing, values, strict=True):
            if argument.is_array:
                memory += (value.base_data, np.uint64(value.offset) if value.offset else _ZERO)
                arrays.append(value)
                if not argument.is_const:
                    written.append(value)
            else:
                memory.append(next(taken))
        results: list[Any] = made
        if kind.outs is not None:
            results = self._results(kind.outs, made, call)
            written += targets if call.dest is None else _each(call.out)
        lost.last_call = kind.called
        try:
            event = replay.enqueue(memory, arrays, written, call.wait_for, allocator)
        except OutOfMemoryError:  # the call as a whole makes do with less
            return None
        for array in made:
            array.events.append(event)
        return Outcome(results, {"combine": [event]}, {})

    def _results(self, outs: Sequence[tuple[int, bool]], made: Sequence[Array], call: Call) -> list[Any]:
        """Return the results: those of the caller, and the arrays that were made for the others."""
        outputs, new = self._engine.outputs, iter(made)
        given = [call.out] if outputs.is_single or call.out is None else outputs.each("out", call.out)
        return [
            given[k] if not number else tuple(next(new) for _ in range(number)) if has_fields else next(new)
            for k, (number, has_fields) in enumerate(outs)
        ]

    def _taken(self, kind: _Kind, values: Sequence[Any]) -> Sequence[Any]:
        """Return the scalars as kernels take them; raises as `scalar` if one is wrong."""
        known, taken = kind.scalars
        given = [values[n] for n in self._scalars]
        if len(known) != len(given) or not all(map(_is_same, given, known)):
            taken = [scalar(self._changing[n], values[n]) for n in self._scalars]
            kind.scalars = given, taken
        return taken

    def _found(self, values: Sequence[Any], call: Call) -> Any:
        """Return the buffer for the largest bin, which the second stage gets as well."""
        assert call.largest is not None
        return next(v.base_data for a, v in zip(self._changing, values, strict=True) if a.name == call.largest.argument)


def _target(value: Any, targets: list[Array]) -> Hashable:
    """Return what `dest` or `out` is known by, and add its arrays to `targets`."""
    if value is None:
        return None
    if isinstance(value, cl_array.Array):
        return _number_of(value, targets), _like(value), value.offset
    if type(value) is dict:
        return (dict, *value, *(_target(each, targets) for each in value.values()))
    if type(value) is tuple or type(value) is list:
        return (type(value), *(_target(each, targets) for each in value))
    raise _UnknownError


def _number_of(array: Array, targets: list[Array]) -> int:
    """Return the number of an array among `targets`, where it is afterwards."""
    for n, each in enumerate(targets):
        if each is array:
            return n
    targets.append(array)
    return len(targets) - 1


def _numbers(value: Any) -> Hashable:
    """Return integers in whatever structure, which are not equal to floats then."""
    kind = type(value)
    if value is None or kind is int:
        return value
    if kind is dict:
        return (dict, *value, *map(_numbers, value.values()))
    if kind is tuple or kind is list:
        return (kind, *map(_numbers, value))
    raise _UnknownError


def _is_same(one: Any, other: Any) -> bool:
    return one is other or same_scalar(one, other)


def _each(given: Any) -> list[Array]:
    """Return the arrays of `out`, given in whatever way."""
    if given is None:
        return []
    if isinstance(given, cl_array.Array):
        return [given]
    return [array for each in (given.values() if type(given) is dict else given) for array in _each(each)]


_ZERO = np.uint64(0)
