"""Accumulators that stay on a device between calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_arrays import StreamOrder
from clhist._core.opencl.device import device_profile
from clhist._core.opencl.elementwise import added
from clhist._core.opencl.new_arrays import empty, to_device
from clhist._core.runtime.partials import combine_arrays
from clhist.operators.operator import Operator

T = TypeVar("T")


class Updates:
    """Refuses bins that an exception left with a part of an update.

    Parameters
    ----------
    name : str
        The class of the object whose bins they are.
    remedy : str
        How to go on, for the error.

    Attributes
    ----------
    is_open : bool
        Whether an update began and has not ended.
    """

    __slots__ = ("_name", "_remedy", "is_open")

    def __init__(self, name: str, remedy: str = "") -> None:
        self._name, self.is_open = name, False
        again = f"make a new {name}, merge the last partial() into it if there is one, and add what came later again"
        self._remedy = remedy or again

    def begin(self) -> None:
        """Note that bins, or what describes them, may change from now on."""
        self.is_open = True

    def end(self) -> None:
        """Note that the bins and what describes them agree."""
        self.is_open = False

    def check(self) -> None:
        """Raise RuntimeError if an update began and never ended."""
        if self.is_open:
            raise RuntimeError(
                f"{self._name}: an exception, such as that of Ctrl-C, ended an earlier call while it changed the bins, "
                f"which may hold a part of a chunk; {self._remedy}"
            )


class DeviceAccumulators:
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
        # Results of several histograms go to the spare arrays, which then change places with the current ones.
        self._spare: list[Array] = []
        self._order = StreamOrder()

    def on(self, queue: cl.CommandQueue) -> DeviceAccumulators:
        """Return copies for another queue."""
        arrays = [to_device(queue, lost.fetched(array, self.queue)) for array in self.arrays]
        return DeviceAccumulators(queue, device_profile(queue.device), self.forms, arrays)

    def check(self) -> None:
        """Raise if the device was lost; of CUDA's streams, wait for the last."""
        lost.check_queue(self.queue)
        self._order.begin([*self.arrays, *self._spare])

    def begin(self, updates: Updates, dests: Sequence[Array | None] | None = None) -> None:
        """Set the bins to `dests`, or to identity elements without it; `updates` has begun when this returns."""
        for form, dest, array in zip(self.forms, dests or [None] * len(self.arrays), self.arrays, strict=True):
            self._combine(form, dest, array, out_is_partial=True, begun=updates.begin)

    def join(self, enqueue: Callable[[list[Array], list[Array], Callable[[], None] | None], T], updates: Updates) -> T:
        """Add what a call computes: to all histograms or, if it raises before `updates` began, to none.

        Parameters
        ----------
        enqueue : callable
            Gets `dest`, `out`, and what it calls before the first command that changes bins.
        updates : Updates
            Begun when this returns.
        """
        # One histogram is updated in place. Several get their results in spare arrays: an exception between their
        # launches leaves all as they were.
        if not self._spare:
            is_one = len(self.arrays) == 1
            self._spare = self.arrays if is_one else empty_bins(self.queue, self.forms, [a.shape for a in self.arrays])
        in_place = self._spare is self.arrays
        result = enqueue(self.arrays, self._spare, updates.begin if in_place else None)
        updates.is_open = True
        self.arrays, self._spare = self._spare, self.arrays
        self._order.end(self.arrays)
        return result

    def add(self, parts: list[Array], updates: Updates) -> None:
        """Add accumulators to the bins, or adopt them if there are none; `updates` has begun when this returns."""
        self.check()
        # The sums are new arrays, so that an exception before the exchange leaves the bins unchanged.
        arrays = list(map(added, self.arrays, parts)) if self.arrays else parts
        updates.begin()
        self.arrays = arrays
        self._order.end(self.arrays)

    def results(self, on_device: bool) -> list[Array]:
        """Return the histograms."""
        histograms = []
        for form, array in zip(self.forms, self.arrays, strict=True):
            # `finish` of the operator makes results of accumulators, which stay as they are.
            histograms.append(empty(self.queue, array.shape, form.dtype, on_device))
            self._combine(form, array, histograms[-1], dest_is_partial=True)
        return histograms

    def portable(self, operators: Sequence[Operator]) -> tuple[np.ndarray, ...]:
        """Return the accumulators of portable forms, on the host."""
        accumulators = []
        for form, wanted, array in zip(self.forms, operators, self.arrays, strict=True):
            # The accumulators of both forms are the same numbers, perhaps of another width.
            if form.lift == wanted.lift and form.combine == wanted.combine:
                accumulators.append(lost.fetched(array, self.queue).astype(wanted.accumulator, copy=False))
            else:  # the bins hold values, which the portable form lifts
                accumulators.append(np.empty(array.shape, wanted.accumulator))
                self._combine(wanted, array, accumulators[-1], out_is_partial=True)
        return tuple(accumulators)

    def _combine(self, form: Operator, dest: Array | None, out: Array, **more: Any) -> None:
        combine_arrays(self.queue, self._profile, form, dest, out, **more)
        self._order.end(self.arrays)


def empty_bins(queue: cl.CommandQueue, forms: Sequence[Operator], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return uninitialised accumulators, which `DeviceAccumulators.begin` sets."""
    return [empty(queue, shape, form.accumulator, True) for form, shape in zip(forms, shapes, strict=True)]
