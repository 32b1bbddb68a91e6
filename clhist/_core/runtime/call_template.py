"""Cached calls of an engine, with slots for the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl

from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import profile_names
from clhist._core.opencl.memory import Allocator
from clhist._core.runtime.call import Call
from clhist._core.runtime.call_cache import SizedCalls
from clhist._core.runtime.signature import call_templates, keys_of_columns
from clhist.operators.c_types import scalar

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

# Repeats after which separate preparation has paid off; PoCL 3.0, two cores of an EPYC (Zen 2).
MANY = 16


class Sizes(NamedTuple):
    """The numbers that calls of one template differ in.

    Attributes
    ----------
    size : int
        The number of elements, N.
    bins : int or tuple of int
        The number or the shape of bins.
    numbers : tuple
        The scalars that have slots.
    """

    size: int
    bins: int | tuple[int, ...]
    numbers: tuple[Any, ...] = ()


@lru_cache(maxsize=1024)
def sizes_of(size: int, bins: int | tuple[int, ...], numbers: tuple[Any, ...] = ()) -> Sizes:
    """Return the sizes of a call; those of a repeat are one object, which is made and compared sooner."""
    return Sizes(size, bins, numbers)


class CallTemplate:
    """A call of an engine for any sizes, without the arrays of its caller, who stores it by its own signature.

    Parameters
    ----------
    engine : Engine
        What computes it.
    args : sequence
        The arguments of the map; None for each slot of an array, or of a scalar that depends on the sizes.
    call : Call
        The other options, except those that `call_with` adds.
    origin : CallTemplate, optional
        The template whose calls have arguments of the same kinds. Calls of both share plans.
    """

    __slots__ = (
        "_calls",
        "_scalars",
        "args",
        "arrays",
        "call",
        "engine",
        "fixed",
        "nbytes",
        "origin",
        "separate",
        "shared",
    )

    def __init__(self, engine: Engine, args: Sequence[Any], call: Call, origin: CallTemplate | None = None) -> None:
        self.engine, self.args, self.call, self._calls = engine, tuple(args), call, 0
        self.origin = self if origin is None else origin
        # Positions of the arguments that executables of this template have: all but slots.
        self.fixed = tuple([n for n, value in enumerate(self.args) if value is not None])
        self.arrays, self._scalars, self.nbytes = list[Any](), list[Any](), 0
        for argument, value in zip(engine.arguments if args else (), self.args, strict=True):
            if not argument.is_array:
                self._scalars.append((argument, value))
            else:
                self.arrays.append(value)
                self.nbytes += 0 if value is None else value.nbytes
        # The prepared calls, by which arrays of `dest` and `out` are one: `separate` ones take the slots alone,
        # `shared` ones all arguments of the templates whose origin this is.
        self.separate: dict[Hashable, SizedCalls] = {}
        self.shared: dict[Hashable, SizedCalls] = {}

    @property
    def has_many_calls(self) -> bool:
        """Whether it had so many calls that preparing it better pays off."""
        return self._calls >= MANY

    def is_separate(self, arrays: Sequence[Any]) -> bool:
        """Count a call; return whether enough calls preceded it to prepare this template separately.

        One is enough for arrays of CUDA, whose launches are recorded. Templates without fixed arguments are separate.
        """
        if not self.fixed or self._calls >= MANY:
            return True
        self._calls += MANY if arrays and is_cuda(arrays[0]) else 1
        return False

    def with_tables(self, arrays: Iterable[Any]) -> list[Any]:
        """Return the arrays of the map, with `arrays` in their slots."""
        remaining = iter(arrays)
        return [next(remaining) if array is None else array for array in self.arrays]

    def scalars(self, numbers: Sequence[Any], *, all_of_them: bool) -> list[Any]:
        """Return the scalars as kernels take them, with `numbers` in their slots; only these unless `all_of_them`."""
        remaining = iter(numbers)
        return [
            scalar(argument, next(remaining) if value is None else value)
            for argument, value in self._scalars
            if all_of_them or value is None
        ]

    def with_args(self, begin: int, others: Sequence[Any]) -> CallTemplate:
        """Return the call with `others`, of the same dtypes, as the arguments from `begin` on."""
        args = *self.args[:begin], *others, *self.args[begin + len(others) :]
        return CallTemplate(self.engine, args, self.call, self.origin)

    def with_slots(self, arrays: Iterable[Any], numbers: Iterable[Any]) -> list[Any]:
        """Return all arguments, with `arrays` and `numbers` in their slots."""
        of_arrays, of_numbers = iter(arrays), iter(numbers)
        return [
            value if value is not None else next(of_arrays if argument.is_array else of_numbers)
            for argument, value in zip(self.engine.arguments, self.args, strict=True)
        ]

    def call_with(
        self,
        dest: Any,
        out: Any,
        allocator: Allocator | None = None,
        wait_for: Sequence[cl.Event] = (),
        begun: Callable[[], None] | None = None,
        sizes: Sizes | None = None,
    ) -> Call:
        """Return the call with these results and events, and of these sizes."""
        # The usual call is shared by all repeats, so nothing may change it.
        if dest is None and out is None and allocator is None and not wait_for and sizes is None:
            return self.call
        # Every field, in the order of `Call`: `dataclasses.replace` takes four microseconds more.
        call = self.call
        size, bins = (call.size, call.num_bins) if sizes is None else sizes[:2]
        same = call.race_factor, call.choices, call.memory_budget, call.num_histograms, call.offsets
        of_bins = call.largest, call.partial
        return Call(bins, size, dest, out, call.queue, allocator, wait_for, *same, *of_bins, begun)


def origin_for(
    queue: cl.CommandQueue, arrays: Sequence[Any], kind: Hashable, make: Callable[[], Engine]
) -> CallTemplate | None:
    """Return the origin of templates for calls of one kind on columns of equal keys; None of other arrays.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where they run.
    arrays : sequence of array
        Those for the slots.
    kind : hashable
        What else calls depend on, but for sizes and the content and the shapes of other arguments.
    make : callable
        Returns the engine.
    """
    parts = keys_of_columns(arrays)
    if parts is None:
        return None
    key = "origin", queue, *parts, kind, *profile_names()
    origin: CallTemplate | None = call_templates.get(key)
    if origin is None:
        # Without arguments, so that the cache keeps no tables alive.
        origin = CallTemplate(make(), (), Call(1, queue=queue))
    call_templates.put(key, origin)  # stays where calls of many sizes displace each other
    return origin
