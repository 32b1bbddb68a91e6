"""Cached calls of an engine, with slots for the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from clhist._core.opencl.arrays import is_array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import profile_names
from clhist._core.opencl.memory import Allocator
from clhist._core.runtime.call import Call
from clhist._core.runtime.signature import call_templates, shape_of, signature_of_arguments, without_size
from clhist.operators.c_types import scalar

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

# Repeats after which separate preparation has paid off; PoCL 3.0, two cores of an EPYC (Zen 2).
_MANY = 16


class CallTemplate:
    """A call of an engine without the arrays of its caller, who stores it by the signature of its own arguments.

    Parameters
    ----------
    engine : Engine
        What computes it.
    args : sequence
        The arguments of the map; None for each slot of an array.
    call : Call
        The other options, except those that `call_with` adds.
    origin : CallTemplate, optional
        The template that this one differs from in the number of elements and in arguments.
    others : mapping, optional
        Scalars that calls of other sizes differ in, by their positions; None if other arguments differ as well.
    """

    __slots__ = ("_calls", "_is_alike", "args", "call", "engine", "nbytes", "origin", "others", "scalars")

    def __init__(
        self,
        engine: Engine,
        args: Sequence[Any],
        call: Call,
        origin: CallTemplate | None = None,
        others: Mapping[int, Any] | None = None,
    ) -> None:
        self.engine, self.args, self.call, self._calls = engine, tuple(args), call, 0
        self.origin, self.others = origin, others
        if origin is None or others is None:
            self._is_alike, self.nbytes = False, sum([value.nbytes for value in self.args if is_array(value)])
        else:  # the tables of axes are those of its origin
            is_fixed = any(value is not None and n not in others for n, value in enumerate(self.args))
            self._is_alike, self.nbytes = not is_fixed, origin.nbytes
        self.scalars = [scalar(engine.arguments[n], value) for n, value in others.items()] if others else []

    @property
    def fixed(self) -> tuple[int, ...]:
        """Positions of the arguments that executables of this template have: all but slots and `others`."""
        varying = self.others or ()
        return tuple([n for n, value in enumerate(self.args) if value is not None and n not in varying])

    @property
    def root(self) -> CallTemplate:
        """The origin of all templates whose calls share plans, whatever their other arguments."""
        return self if self.origin is None else self.origin.root

    def count_call(self, arrays: Sequence[Any]) -> bool:
        """Count a call; return whether enough calls preceded it to prepare this template separately.

        One is enough for arrays on a device without other arguments, which all sizes share, and for arrays of CUDA,
        whose launches are recorded.
        """
        if self._is_alike:  # what its origin prepares serves it as well
            return False
        if self._calls >= _MANY:
            return True
        is_early = bool(arrays) and (is_cuda(arrays[0]) or (is_device_array(arrays[0]) and not self.fixed))
        self._calls += _MANY if is_early else 1
        return False

    def of_size(self, size: int, others: Mapping[int, Any], bins: tuple[int, ...] | None = None) -> CallTemplate:
        """Return the call for `size` elements, with `others` as the scalars at these positions, and other `bins`."""
        args = list(self.args)
        for n, value in others.items():
            args[n] = value
        call = self._call(size)
        if bins is not None:
            call.num_bins = bins
        # The origin has the same other arguments.
        origin = self if self.origin is None or self.others is None else self.origin
        return CallTemplate(self.engine, args, call, origin, others)

    def with_args(self, begin: int, others: Sequence[Any], bins: int | tuple[int, ...]) -> CallTemplate:
        """Return the call with `others`, of the same dtypes, as the arguments from `begin` on, and for other `bins`."""
        args = *self.args[:begin], *others, *self.args[begin + len(others) :]
        call = self._call(self.call.size)
        call.num_bins = bins
        return CallTemplate(self.engine, args, call, self.root)

    def with_arrays(self, arrays: Iterable[Any]) -> list[Any]:
        """Return all arguments, with `arrays` in their slots."""
        remaining = iter(arrays)
        return [next(remaining) if value is None else value for value in self.args]

    def call_with(
        self,
        dest: Any,
        out: Any,
        allocator: Allocator | None = None,
        wait_for: Sequence[cl.Event] = (),
        begun: Callable[[], None] | None = None,
    ) -> Call:
        """Return the call with these results and events."""
        # The usual call is shared by all repeats, so nothing may change it.
        if dest is None and out is None and allocator is None and not wait_for:
            return self.call
        return self._call(self.call.size, dest, out, allocator, wait_for, begun)

    def _call(
        self,
        size: int | None,
        dest: Any = None,
        out: Any = None,
        allocator: Allocator | None = None,
        wait_for: Sequence[cl.Event] = (),
        begun: Callable[[], None] | None = None,
    ) -> Call:
        # Every field, in the order of `Call`: `dataclasses.replace` takes four microseconds more.
        call = self.call
        same = call.race_factor, call.choices, call.memory_budget, call.num_histograms, call.offsets
        of_bins = call.largest, call.partial
        return Call(call.num_bins, size, dest, out, call.queue, allocator, wait_for, *same, *of_bins, begun)


def call_for_size(signature: Any, size: int, results: int = 0, form: Any = None, **others: Any) -> Any:
    """Return the value in `call_templates` for a signature of `signature_of_data`, or None.

    If there is none for `size` elements, that of an earlier call is adapted by its method ``of_size`` and stored.
    The last arrays of the signature, so many as `results`, are not data. `form` is the signature without `others`,
    the further arguments of ``of_size``.
    """
    if (stored := call_templates.get(signature)) is not None:
        return stored
    key = _without_sizes(signature if form is None else form, results)
    if (earlier := call_templates.get(key)) is None or (adapted := earlier.of_size(size, **others)) is None:
        return None
    # Stored as the newest entry, so that calls of many sizes do not displace it.
    call_templates.put(key, earlier)
    call_templates.put(signature, adapted)
    return adapted


def store_for_sizes(signature: Any, value: Any, results: int = 0) -> None:
    """Store a value with a method ``of_size`` for data of other sizes, as `call_for_size` looks for it."""
    call_templates.put(_without_sizes(signature, results), value)


def stored_for_sizes(signature: Any, results: int = 0) -> Any:
    """Return the value that `store_for_sizes` stored last, or None."""
    return call_templates.get(_without_sizes(signature, results))


def _without_sizes(signature: Any, results: int) -> Hashable:
    """Return a signature without the size of the data; None unless all arrays are contiguous and one-dimensional."""
    if not isinstance(signature, tuple):
        return None
    arrays, *rest = signature
    number = len(arrays) - results
    parts = _of_columns(arrays[:number])
    return None if parts is None else ("any size", *parts, *arrays[number:], *rest)


def _of_columns(arrays: Sequence[Any]) -> list[Hashable] | None:
    """Return the signatures of arrays and None without the size; None unless all are contiguous and of one length."""
    shape, parts = None, []
    for part in arrays:
        if part is not None:
            other = shape_of(part)
            if other is None or len(other) != 1 or (shape is not None and other != shape):
                return None
            shape, part = other, without_size(part)
        parts.append(part)
    return parts


def origin_for(
    queue: cl.CommandQueue, arrays: Sequence[Any], kind: Hashable, make: Callable[[], Engine]
) -> CallTemplate | None:
    """Return the origin of templates for calls of one kind on columns alike, of any length; None of other arrays.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where they run.
    arrays : sequence of array
        Those for the slots.
    kind : hashable
        What else calls depend on, but for the content and the shapes of other arguments, and the number of bins.
    make : callable
        Returns the engine.
    """
    signature: Any = signature_of_arguments(arrays)
    parts = None if signature is None else _of_columns(signature)
    if parts is None:
        return None
    key = "origin", queue, *parts, kind, *profile_names()
    origin: CallTemplate | None = call_templates.get(key)
    if origin is None:
        # Without arguments, so that the cache keeps no tables alive.
        origin = CallTemplate(make(), (), Call(1, queue=queue))
    call_templates.put(key, origin)  # stays where calls of many sizes displace each other
    return origin
