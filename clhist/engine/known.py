"""Calls that functions recognise by the signature of their own arguments, and keep for those that repeat them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from clhist.engine.call import Call, Outcome
from clhist.opencl.arrays import Array
from clhist.opencl.memory import Allocator

if TYPE_CHECKING:
    from clhist.engine.engine import Engine


class KnownCall:
    """A call of an engine but for the arrays of the caller, who recognises calls with arrays that are alike.

    Parameters
    ----------
    engine : Engine
        What computes it.
    args : sequence
        The arguments of the map; None in the places of the caller's arrays.
    call : Call
        What else it asks for, but for what `run` is given.
    """

    __slots__ = ("_args", "_is_repeated", "call", "engine", "fixed")

    def __init__(self, engine: Engine, args: Sequence[Any], call: Call) -> None:
        self.engine, self._args, self.call, self._is_repeated = engine, tuple(args), call, False
        self.fixed = tuple(n for n, value in enumerate(args) if value is not None)

    def with_arrays(self, arrays: Iterable[Any]) -> list[Any]:
        """Return all arguments, with these in their places."""
        given = iter(arrays)
        return [next(given) if value is None else value for value in self._args]

    def run(
        self,
        arrays: Sequence[Array],
        dest: Any = None,
        out: Any = None,
        allocator: Allocator | None = None,
        wait_for: Sequence[cl.Event] = (),
    ) -> Outcome:
        """Run it for these arrays, without the checks that the first of them passed."""
        call = self.call
        if dest is not None or out is not None or allocator is not None or wait_for:
            again = call.race_factor, call.choices, call.memory_budget, call.num_histograms, call.offsets
            call = Call(call.num_bins, call.size, dest, out, call.queue, allocator, wait_for, *again)
        if self._is_repeated:
            return self.engine.run(arrays, call, self)
        self._is_repeated = True  # and then is worth what it takes to prepare it apart from calls with other arguments
        return self.engine.run(self.with_arrays(arrays), call)
