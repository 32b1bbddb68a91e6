"""Sums of a `Filler` that stay on the device: how a fill joins them, and fills that repeat earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyopencl as cl

from clhist.binning.sweep import Sweep, shaped
from clhist.hist.columns import Columns, is_column, looks_at_content
from clhist.hist.storages import Sums
from clhist.opencl.arrays import empty
from clhist.opencl.cuda_arrays import StreamOrder, cuda_device_of
from clhist.opencl.elementwise import added


class KnownFill(NamedTuple):
    """A fill but for its arrays.

    Attributes
    ----------
    sweep : Sweep
        What computes its sums.
    scale : float, str or None
        What these are multiplied with in the end; "each" of weights that are an array.
    places : tuple of int
        Which of the arguments of the fill the sweep takes, in its order.
    """

    sweep: Sweep
    scale: Any
    places: tuple[int, ...]

    @classmethod
    def of(cls, h: Any, given: Sequence[Any], columns: Columns, sweep: Sweep, scale: Any) -> KnownFill | None:
        """Return it, or None if a fill with arrays alike may differ; `given` ends in weight and sample."""
        dims = len(given) - 2
        places = [n for n in (*reversed(range(dims)), dims, dims + 1) if is_column(given[n])]
        arrays = columns.arrays
        as_given = len(arrays) == len(places) and all(a is given[n] for a, n in zip(arrays, places, strict=True))
        if not as_given or any(looks_at_content(ax, each) for ax, each in zip(h.axes, given, strict=False)):
            return None
        return cls(sweep, scale, tuple(places))

    def arrays(self, given: Sequence[Any]) -> list[Any]:
        """Return the arrays of another fill that the sweep takes."""
        return [given[n] for n in self.places]


class HeldSums:
    """Sums by name on a device."""

    def __init__(self) -> None:
        self._sums: Sums = {}
        self._spare: Sums = {}
        self._order = StreamOrder()

    def add(self, sums: Sums) -> None:
        """Add sums that were computed."""
        self._begin()
        held = self._sums
        self._sums = {name: added(held[name], part) for name, part in sums.items()} if held else sums
        self._order.end(list(self._sums.values()))

    def sweep(self, sweep: Sweep, arrays: Sequence[Any]) -> None:
        """Add those of arrays: all of them, or none if anything is raised."""
        if not (self._sums and sweep.may_combine):
            self.add(dict(zip(sweep.names, sweep.run(arrays), strict=True)))
            return
        self._begin()
        if not self._spare:
            self._spare = {
                name: empty(sweep.queue, array.shape, array.dtype, True) for name, array in self._sums.items()
            }
        like = sweep.known.engine.outputs.like
        sweep.run(arrays, like(list(self._sums.values())), like(list(self._spare.values())))
        self._sums, self._spare = self._spare, self._sums
        self._order.end(list(self._sums.values()))

    def shaped(self, shape: tuple[int, ...]) -> Sums:
        """Return them in the shape of the bins, without those of what has no bin."""
        self._begin()
        return {name: shaped(each, shape) if each.ndim == 1 else each for name, each in self._sums.items()}

    def _begin(self) -> None:
        """Let streams of CUDA wait for what was done with the sums, and refuse to capture it."""
        self._order.begin([*self._sums.values(), *self._spare.values()])


def same_context(one: cl.CommandQueue, other: cl.CommandQueue) -> bool:
    """Whether arrays of one queue can be used on the other."""
    return one is other or (one.context == other.context and cuda_device_of(one) == cuda_device_of(other))
