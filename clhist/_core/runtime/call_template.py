"""Cached calls of an engine, with slots for the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl

from clhist._core.opencl.device import profile_names
from clhist._core.opencl.memory import Allocator
from clhist._core.runtime.call import Call
from clhist._core.runtime.call_cache import SizedCall, SizedCalls
from clhist._core.runtime.signature import call_templates, keys_of_columns
from clhist.operators.c_types import scalar

if TYPE_CHECKING:
    from clhist._core.runtime.engine import Engine

# Repeats after which a better table of bins has paid off; PoCL 3.0, two cores of an EPYC (Zen 2).
MANY = 16
_MOST_SCALARS = 64  # prepared calls whose scalars a template stores


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


class SweepCalls(NamedTuple):
    """An engine, and the prepared calls of all templates of one kind.

    Attributes
    ----------
    engine : Engine
        What computes them.
    prepared : dict
        Calls by which arrays of `dest` and `out` are one.
    """

    engine: Engine
    prepared: dict[Hashable, SizedCalls]


class CallTemplate:
    """A call of an engine for any sizes, without the arrays of its caller, who stores it by its own signature.

    Parameters
    ----------
    calls : SweepCalls
        The engine, and the prepared calls, which templates with other arguments of the same kinds share.
    args : sequence
        The arguments of the map: tables on the device, scalars, and None for each slot of an array, or of a scalar
        that depends on the sizes.
    call : Call
        The other options, except those that `call_with` adds.
    """

    __slots__ = ("args", "arrays", "call", "calls", "nbytes", "scalars", "tables", "uses")

    def __init__(self, calls: SweepCalls, args: Sequence[Any], call: Call) -> None:
        self.calls, self.args, self.call, self.uses = calls, tuple(args), call, 0
        self.arrays = [args[n] for n in calls.engine.arrays]
        self.tables = [n for n in calls.engine.arrays if args[n] is not None]
        self.nbytes = sum([args[n].nbytes for n in self.tables])
        # By prepared call: the same list tells an executable that its kernels have these arguments.
        self.scalars: dict[SizedCall, list[Any]] = {}

    @property
    def has_many_calls(self) -> bool:
        """Whether it had so many calls that better tables pay off."""
        return self.uses >= MANY

    def with_tables(self, arrays: Iterable[Any]) -> list[Any]:
        """Return the arrays of the map, with `arrays` in their slots."""
        if not self.tables:
            return [*arrays]
        remaining = iter(arrays)
        return [next(remaining) if array is None else array for array in self.arrays]

    def scalars_of(self, prepared: SizedCall, numbers: Iterable[Any]) -> list[Any]:
        """Return the scalars as kernels take them, with `numbers` in their slots, and the sizes; store them."""
        remaining, arguments = iter(numbers), self.calls.engine.arguments
        values = [(arguments[n], self.args[n]) for n in self.calls.engine.scalars]
        scalars: list[Any] = [
            scalar(argument, next(remaining) if value is None else value) for argument, value in values
        ]
        if len(self.scalars) >= _MOST_SCALARS:
            self.scalars = {}
        self.scalars[prepared] = scalars = [*scalars, *prepared.sizes]
        return scalars

    def with_args(self, begin: int, others: Sequence[Any]) -> CallTemplate:
        """Return the call with `others`, of the same dtypes, as the arguments from `begin` on."""
        return CallTemplate(self.calls, (*self.args[:begin], *others, *self.args[begin + len(others) :]), self.call)

    def with_slots(self, arrays: Iterable[Any], numbers: Iterable[Any]) -> list[Any]:
        """Return all arguments, with `arrays` and `numbers` in their slots."""
        of_arrays, of_numbers = iter(arrays), iter(numbers)
        return [
            value if value is not None else next(of_arrays if argument.is_array else of_numbers)
            for argument, value in zip(self.calls.engine.arguments, self.args, strict=True)
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


def sweep_calls(
    queue: cl.CommandQueue, arrays: Sequence[Any], kind: Hashable, make: Callable[[], Engine]
) -> SweepCalls:
    """Return the engine and the prepared calls of one kind, which are shared if `arrays` are columns of equal keys.

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
    key = None if parts is None else ("sweeps", queue, *parts, kind, *profile_names())
    calls: SweepCalls = call_templates.get(key) or SweepCalls(make(), {})
    call_templates.put(key, calls)  # stays where calls of many sizes displace each other
    return calls
