"""A call: its request, its checked arguments, and its outcome.

The queue of a call is resolved here, for all functions and classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyopencl as cl

from clhist._core.kernels.maps import Argument
from clhist._core.kernels.scalars import scalar
from clhist._core.model.problem import CHOICES, FREE, Choices
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, check_array, is_device_array, is_plain_array, shown_context
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.memory import Allocator
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.prepare import LargestBin
from clhist._core.runtime.result_arrays import ResultArrays


@dataclass(slots=True)
class Call:
    """The request of one call besides the map's arguments; see `clhist.HistogramKernel.__call__`.

    `partial` names those of `dest` and `out` that hold accumulators; `largest` asks for the largest bin with a value.
    `begun` is called before the first command is enqueued.
    """

    num_bins: Any
    size: int | None = None
    dest: Any = None
    out: Any = None
    queue: cl.CommandQueue | None = None
    allocator: Allocator | None = None
    wait_for: Sequence[cl.Event] = ()
    race_factor: float | str = 1.0
    choices: Choices = FREE
    memory_budget: int | None = None
    num_histograms: int | None = None
    offsets: Any = None
    largest: LargestBin | None = None
    partial: tuple[str, ...] = ()
    begun: Callable[[], None] | None = None


# What the public classes let callers choose by keyword besides `num_bins`.
_CHOICES = {*CHOICES, *(each.name for each in fields(Call))} - {"num_bins", "choices", "largest", "partial", "begun"}


def checked_events(wait_for: Any) -> Sequence[cl.Event]:
    """Return the events that a caller wants a call to wait for; raises TypeError if they are none."""
    if not wait_for:
        return ()
    try:
        events = tuple(wait_for)
    except TypeError:
        raise TypeError(f"wait_for: expected a sequence of pyopencl.Event, got {wait_for!r:.60}") from None
    for event in events:
        if not isinstance(event, cl.Event):
            raise TypeError(f"wait_for: expected a sequence of pyopencl.Event, got one with {event!r:.60}")
    return events


def call_of(num_bins: Any, choices: Mapping[str, Any]) -> Call:
    """Return the call with these keyword arguments of `clhist.HistogramKernel.__call__`.

    Raises
    ------
    TypeError
        If one of them is unknown; it is named.
    """
    if not choices:
        return Call(num_bins)
    unknown = sorted(choices.keys() - _CHOICES)
    if unknown:
        raise TypeError(f"{unknown[0]}: expected one of {', '.join(sorted(_CHOICES))}")
    forced = {name: value for name, value in choices.items() if name in CHOICES and value is not None}
    rest = {name: value for name, value in choices.items() if name not in CHOICES}
    rest["wait_for"] = checked_events(events) if (events := rest.get("wait_for")) else ()
    return Call(num_bins, choices=Choices(**forced) if forced else FREE, **rest)


@dataclass(slots=True)
class CheckedCall:
    """The arguments of a call, checked.

    Attributes
    ----------
    values : list
        The map's arguments.
    size : int
        N: the map runs for `i` in [0, N).
    shapes : tuple of tuple of int
        The shape of one histogram of each output.
    batch : Batch or None
        Which elements belong to which histogram.
    targets : list of ResultArrays
        `dest` and `out` of each output.
    on_device : bool
        Whether the arrays are PyOpenCL's rather than NumPy's.
    is_aligned : bool
        Whether all of them begin where loads of 16 bytes may.
    queue : pyopencl.CommandQueue
        Where the call runs.
    wait_for : list of pyopencl.Event
        The caller's events and those of the arrays.
    """

    values: list[Any]
    size: int
    shapes: tuple[tuple[int, ...], ...]
    batch: Batch | None
    targets: list[ResultArrays]
    on_device: bool
    is_aligned: bool
    queue: cl.CommandQueue
    wait_for: list[cl.Event]

    @property
    def longest(self) -> int:
        """The most elements that one histogram has."""
        return self.size if self.batch is None else self.batch.longest(self.size)


Events = dict[str, list[cl.Event]]


@dataclass(slots=True)
class Outcome:
    """The results and events of a call.

    Attributes
    ----------
    results : list
        In the order of the outputs.
    events : dict of str to list of pyopencl.Event
        Those of each stage.
    after : dict of pyopencl.Event to pyopencl.Event
        Of the last event of several commands of PyOpenCL's the event that the first of them waited for.
    """

    results: list[Any]
    events: Events
    after: dict[cl.Event, cl.Event]

    @property
    def event(self) -> cl.Event:
        """The event that covers the whole call."""
        return self.events["combine"][-1]

    def seconds(self, queue: cl.CommandQueue) -> dict[str, float]:
        """Return the seconds of each stage on the device, which is waited for; `queue` must have profiling."""
        with lost.settled(queue):
            cl.wait_for_events([events[-1] for events in self.events.values()])
        return {
            stage: sum(event.profile.end - self._start(event) for event in events) * 1e-9
            for stage, events in self.events.items()
        }

    def _start(self, event: cl.Event) -> int:
        return self.after[event].profile.end if event in self.after else event.profile.start


def taken_argument(argument: Argument, value: object) -> Any:
    """Return what is given for an argument of a map as kernels take it; raises what is wrong with it."""
    if not argument.is_array:
        return scalar(argument, value)
    if argument.is_const and is_plain_array(value, argument.dtype):
        array: Array = value
    else:
        array = check_array(argument.name, value, argument.dtype, written=not argument.is_const)
    if argument.is_first and not array.size:  # which kernels read whatever there is to do
        raise ValueError(f"{argument.name}: expected an array with a first element, got an empty one")
    return array


def named_arrays(
    arguments: Sequence[Argument], values: Sequence[Any], targets: Sequence[ResultArrays]
) -> list[tuple[str, Array]]:
    """Return all arrays of a call with the names that errors give them."""
    named = [(a.name, value) for a, value in zip(arguments, values, strict=True) if a.is_array]
    for target in targets:
        named += target.named
    return named


def queue_for(
    queue: cl.CommandQueue | None, context: cl.Context | None = None, of_arrays: cl.CommandQueue | None = None
) -> cl.CommandQueue:
    """Return the queue of a call: `queue`, that of its arrays, the default one, or one that is kept for the context.

    Parameters
    ----------
    queue : pyopencl.CommandQueue or None
        The caller's.
    context : pyopencl.Context or None
        Where the call runs; None for anywhere.
    of_arrays : pyopencl.CommandQueue or None
        Of the first array that has one, in `context`.

    Raises
    ------
    TypeError, ValueError
        If `queue` is none, or of another context.
    DeviceLostError
        If its device was lost.
    """
    if queue is None:
        queue = of_arrays or default_queue()
        if of_arrays is None and context is not None and queue.context != context:
            queue = _queue_of(context)
    elif not isinstance(queue, cl.CommandQueue):
        raise TypeError(f"queue: expected a pyopencl.CommandQueue or None, got {queue!r}")
    elif context is not None and queue.context != context:
        shown = shown_context(queue.context)
        raise ValueError(
            f"queue: expected a queue of the context {shown_context(context)}, got one of {shown}; "
            "pass queue.context to HistogramKernel, or make the arrays with this queue"
        )
    lost.check_queue(queue)
    return queue


def queue_of(*arrays: Array) -> cl.CommandQueue | None:
    """Return the queue of the first of some arrays that has one."""
    return next((array.queue for array in arrays if is_device_array(array) and array.queue is not None), None)


@kept_by_context
def _queue_of(context: cl.Context) -> cl.CommandQueue:
    return cl.CommandQueue(context)
