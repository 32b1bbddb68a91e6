"""What bins hold from call to call: accumulators, on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyopencl as cl

from clhist.engine.partials import combine_arrays
from clhist.hardware.profile import Profile
from clhist.opencl import lost
from clhist.opencl.arrays import Array, empty, to_device
from clhist.opencl.cuda_arrays import StreamOrder
from clhist.opencl.device import device_profile
from clhist.opencl.elementwise import added
from clhist.operators.operator import Operator

T = TypeVar("T")


class Held:
    """Accumulators of the bins of one or several histograms.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where they are.
    profile : Profile
        Of its device.
    forms : sequence of Operator
        One for each histogram.
    arrays : sequence of array
        The accumulators.
    """

    def __init__(
        self, queue: cl.CommandQueue, profile: Profile, forms: Sequence[Operator], arrays: list[Array]
    ) -> None:
        self.queue, self.forms, self.arrays = queue, forms, arrays
        self._profile = profile
        self._spare: list[Array] = []
        self._order = StreamOrder()

    def on(self, queue: cl.CommandQueue) -> Held:
        """Return copies for another queue."""
        arrays = [to_device(queue, lost.fetched(each, self.queue)) for each in self.arrays]
        return Held(queue, device_profile(queue.device), self.forms, arrays)

    def check(self) -> None:
        """Raise if the device was lost; of CUDA's streams, wait for the last."""
        lost.check_queue(self.queue)
        self._order.begin([*self.arrays, *self._spare])

    def begin(self, dests: Sequence[Array | None] | None = None) -> None:
        """Hold these values and nothing else, or nothing at all."""
        for form, dest, array in zip(self.forms, dests or [None] * len(self.arrays), self.arrays, strict=True):
            self._combine(form, dest, array, out_is_partial=True)

    def join(self, enqueue: Callable[[list[Array], list[Array]], T]) -> T:
        """Add what a call computes, which gets `dest` and `out`: to all histograms or, if it raises, to none."""
        if not self._spare:
            is_one = len(self.arrays) == 1
            self._spare = self.arrays if is_one else empty_bins(self.queue, self.forms, [a.shape for a in self.arrays])
        found = enqueue(self.arrays, self._spare)
        self.arrays, self._spare = self._spare, self.arrays
        self._order.end(self.arrays)
        return found

    def add(self, parts: list[Array]) -> None:
        """Add what was computed apart, or hold it if nothing is held."""
        self.check()
        self.arrays = list(map(added, self.arrays, parts)) if self.arrays else parts
        self._order.end(self.arrays)

    def results(self, on_device: bool) -> list[Array]:
        """Return the histograms."""
        found = []
        for form, array in zip(self.forms, self.arrays, strict=True):
            found.append(empty(self.queue, array.shape, form.dtype, on_device))
            self._combine(form, array, found[-1], dest_is_partial=True)
        return found

    def portable(self, operators: Sequence[Operator]) -> tuple[np.ndarray, ...]:
        """Return the accumulators of portable forms, on the host."""
        found = []
        for form, wanted, array in zip(self.forms, operators, self.arrays, strict=True):
            if form.lift == wanted.lift and form.combine == wanted.combine:
                found.append(lost.fetched(array, self.queue).astype(wanted.accumulator, copy=False))
            else:  # what is held are values
                found.append(np.empty(array.shape, wanted.accumulator))
                self._combine(wanted, array, found[-1], out_is_partial=True)
        return tuple(found)

    def _combine(self, form: Operator, dest: Array | None, out: Array, **more: Any) -> None:
        combine_arrays(self.queue, self._profile, form, dest, out, **more)
        self._order.end(self.arrays)


def empty_bins(queue: cl.CommandQueue, forms: Sequence[Operator], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return accumulators with nothing in them yet, to be given something by `Held.begin`."""
    return [empty(queue, shape, form.accumulator, True) for form, shape in zip(forms, shapes, strict=True)]
