"""Cached calls of an engine, with slots for the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.memory import Allocator
from clhist._core.runtime.call import Call
from clhist._core.runtime.signature import call_templates, shape_of, without_size
from clhist.operators.c_types import scalar

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

# Repeats on NumPy arrays after which separate preparation has paid off; PoCL 3.0, two cores of an EPYC (Zen 2).
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

    __slots__ = ("_calls", "args", "call", "engine", "origin", "others", "scalars")

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
        self.scalars = [scalar(engine.arguments[n], value) for n, value in others.items()] if others else []

    @property
    def fixed(self) -> tuple[int, ...]:
        """Positions of the arguments that executables of this template have: all but slots and `others`."""
        varying = self.others or ()
        return tuple([n for n, value in enumerate(self.args) if value is not None and n not in varying])

    def count_call(self, arrays: Sequence[Any]) -> bool:
        """Count a call; return whether enough calls preceded it to prepare this template separately.

        One is enough for arrays on a device.
        """
        if self._calls >= _MANY:
            return True
        self._calls += 1 if arrays and type(arrays[0]) is np.ndarray else _MANY
        return False

    def of_size(self, size: int, others: Mapping[int, Any]) -> CallTemplate:
        """Return the call for `size` elements, with `others` as the scalars at these positions."""
        args = list(self.args)
        for n, value in others.items():
            args[n] = value
        alike = self.origin is None or self.others is not None
        return CallTemplate(self.engine, args, self._call(size), self.origin or self, others if alike else None)

    def with_args(self, begin: int, others: Sequence[Any]) -> CallTemplate:
        """Return the call with `others`, of the same dtypes, as the arguments from `begin` on."""
        args = *self.args[:begin], *others, *self.args[begin + len(others) :]
        return CallTemplate(self.engine, args, self.call, self.origin or self)

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


def call_for_size(signature: Any, size: int, results: int = 0) -> Any:
    """Return the value in `call_templates` for a signature of `signature_of_data`, or None.

    If there is none for `size` elements, that of an earlier call is adapted by its method ``of_size`` and stored.
    The last arrays of the signature, so many as `results`, are not data.
    """
    if (stored := call_templates.get(signature)) is not None:
        return stored
    key = _without_sizes(signature, results)
    if (earlier := call_templates.get(key)) is None or (adapted := earlier.of_size(size)) is None:
        return None
    # Stored as the newest entry, so that calls of many sizes do not displace it.
    call_templates.put(key, earlier)
    call_templates.put(signature, adapted)
    return adapted


def store_for_sizes(signature: Any, value: Any, results: int = 0) -> None:
    """Store a value with a method ``of_size`` for data of other sizes, as `call_for_size` looks for it."""
    call_templates.put(_without_sizes(signature, results), value)


def _without_sizes(signature: Any, results: int) -> Hashable:
    """Return a signature without the size of the data; None unless all arrays are contiguous and one-dimensional."""
    if not isinstance(signature, tuple):
        return None
    arrays, *rest = signature
    number = len(arrays) - results
    shape, parts = None, []
    for part in arrays[:number]:
        if part is not None:
            other = shape_of(part)
            if other is None or len(other) != 1 or (shape is not None and other != shape):
                return None
            shape, part = other, without_size(part)
        parts.append(part)
    return "any size", *parts, *arrays[number:], *rest
