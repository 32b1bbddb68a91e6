"""Calls that functions recognise by the signature of their own arguments, and keep for those that repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clhist.engine.call import Call
from clhist.engine.engine import Engine
from clhist.engine.ready import KnownArguments
from clhist.opencl.arrays import Array


class KnownCall:
    """A call of an engine but for the arrays of the caller, who recognises calls with arrays that are alike.

    Parameters
    ----------
    engine : Engine
        What computes it.
    args : sequence
        The arguments of the map; None in the places of the caller's arrays.
    call : Call
        What else it asks for, without `dest` and `out`.
    """

    __slots__ = ("arguments", "call", "engine")

    def __init__(self, engine: Engine, args: Sequence[Any], call: Call) -> None:
        self.engine, self.arguments, self.call = engine, KnownArguments(args), call

    def run(self, arrays: Sequence[Array], dest: Any = None, out: Any = None) -> list[Any]:
        """Return the results for these arrays, without the checks that the first of them passed."""
        call = self.call
        if dest is not None or out is not None:
            call = Call(call.num_bins, call.size, dest, out, call.queue, num_histograms=call.num_histograms)
        return self.engine.run_known(self.arguments, arrays, call).results
