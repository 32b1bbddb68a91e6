"""Cached calls of an engine, with slots for the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.memory import Allocator
from clhist._core.runtime.call import Call

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
    """

    __slots__ = ("_args", "_calls", "call", "engine", "fixed")

    def __init__(self, engine: Engine, args: Sequence[Any], call: Call) -> None:
        self.engine, self._args, self.call, self._calls = engine, tuple(args), call, 0
        self.fixed = tuple(n for n, value in enumerate(args) if value is not None)

    def count_call(self, arrays: Sequence[Any]) -> bool:
        """Count a call; return whether enough calls preceded it to prepare this template separately.

        One is enough for arrays on a device.
        """
        if self._calls >= _MANY:
            return True
        self._calls += 1 if arrays and type(arrays[0]) is np.ndarray else _MANY
        return False

    def of_size(self, size: int, others: Mapping[int, Any]) -> CallTemplate:
        """Return the call for `size` elements, with `others` as the arguments at these positions."""
        args = [others.get(n, value) for n, value in enumerate(self._args)]
        return CallTemplate(self.engine, args, replace(self.call, size=size))

    def with_arrays(self, arrays: Iterable[Any]) -> list[Any]:
        """Return all arguments, with `arrays` in their slots."""
        remaining = iter(arrays)
        return [next(remaining) if value is None else value for value in self._args]

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
        call = self.call
        if dest is None and out is None and allocator is None and not wait_for:
            return call
        # Every field, in the order of `Call`: on an EPYC `dataclasses.replace` takes 5.8 µs, this 1.0.
        again = call.race_factor, call.choices, call.memory_budget, call.num_histograms, call.offsets
        of_bins = call.largest, call.partial
        return Call(call.num_bins, call.size, dest, out, call.queue, allocator, wait_for, *again, *of_bins, begun)
