"""A call in three stages: `Call` (as requested), `CheckedCall` (validated), `Outcome` (results and events).

`queue_for` resolves the queue of a call for all functions and classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernels.maps import Argument
from clhist._core.model.problem import CHOICES, FREE, Choices
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, check_array, is_device_array, is_plain_array, shown_context
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.memory import Allocator
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.batch import Batch
from clhist._core.runtime.prepare import LargestBin
from clhist._core.runtime.result_arrays import ResultArrays
from clhist.operators.c_types import scalar


@dataclass(slots=True)
class Call:
    """The options of one call besides the map's arguments; see `clhist.HistogramKernel.__call__`.

    Internal options: `partial` lists which of "dest" and "out" hold accumulators. `largest` requests the largest bin
    with a value. `begun` is called before the first command is enqueued.
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

    def __post_init__(self) -> None:
        if self.allocator is not None and not callable(self.allocator):
            expected = "a function that takes a number of bytes and returns a buffer"
            raise TypeError(f"allocator: expected {expected}, got {self.allocator!r:.60}")
        # Equal race factors of other types are one in the signatures of calls.
        if type(self.race_factor) is not float and isinstance(self.race_factor, int | float | np.integer | np.floating):
            self.race_factor = float(self.race_factor)


# Keywords of the public classes besides `num_bins`: all fields but the internal ones.
_CHOICES = {*CHOICES, *(field.name for field in fields(Call))} - {"num_bins", "choices", "largest", "partial", "begun"}


def checked_events(wait_for: Any) -> Sequence[cl.Event]:
    """Return `wait_for` as a sequence; raise TypeError unless it is one of events."""
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
    """Return the call with the keyword arguments `choices` of `clhist.HistogramKernel.__call__`.

    Raises
    ------
    TypeError
        If a keyword is unknown.
    """
    if not choices:  # the most frequent case
        return Call(num_bins)
    unknown = sorted(choices.keys() - _CHOICES)
    if unknown:
        raise TypeError(f"{unknown[0]}: expected one of {', '.join(sorted(_CHOICES))}")
    # Forced choices become one value, which is `FREE` itself if there are none: signatures compare it by identity.
    forced = {name: value for name, value in choices.items() if name in CHOICES and value is not None}
    rest = {name: value for name, value in choices.items() if name not in CHOICES}
    rest["wait_for"] = checked_events(events) if (events := rest.get("wait_for")) else ()
    return Call(num_bins, choices=Choices(**forced) if forced else FREE, **rest)


@dataclass(slots=True)
class CheckedCall:
    """The validated arguments of a call.

    Attributes
    ----------
    values : list
        The map's arguments.
    size : int
        N: the map runs for `i` in [0, N).
    shapes : tuple of tuple of int
        The shape of one histogram of each output.
    batch : Batch or None
        The assignment of elements to histograms; None for a single one.
    targets : list of ResultArrays
        `dest` and `out` of each output.
    on_device : bool
        Whether the arrays are PyOpenCL's rather than NumPy's.
    is_aligned : bool
        Whether all arrays begin at a multiple of 16 bytes, so that kernels may load vectors.
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
        """The largest number of elements of one histogram."""
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
        The events of each stage.
    after : dict of pyopencl.Event to pyopencl.Event
        For an event that ends several commands, the event before the first of them. Their time starts where that ends.
    """

    results: list[Any]
    events: Events
    after: dict[cl.Event, cl.Event]

    @property
    def event(self) -> cl.Event:
        """The last event of the call; its completion means that all results are complete."""
        return self.events["combine"][-1]

    def seconds(self, queue: cl.CommandQueue) -> dict[str, float]:
        """Wait for the call and return the seconds of each stage on the device; `queue` must enable profiling."""
        with lost.settled(queue):
            # The last event of each stage covers those before it.
            cl.wait_for_events([events[-1] for events in self.events.values()])
        return {
            stage: sum(event.profile.end - self._start(event) for event in events) * 1e-9
            for stage, events in self.events.items()
        }

    def _start(self, event: cl.Event) -> int:
        """Return the device time in nanoseconds at which the commands of `event` start."""
        return self.after[event].profile.end if event in self.after else event.profile.start


def taken_argument(argument: Argument, value: object) -> Any:
    """Return the value of a map's argument as an array or a NumPy scalar; raise if it does not fit the declaration."""
    if not argument.is_array:
        return scalar(argument, value)
    # The usual case is decided by its type and dtype; all others take the full check, which may convert.
    if argument.is_const and is_plain_array(value, argument.dtype):
        array: Array = value
    else:
        array = check_array(argument.name, value, argument.dtype, written=not argument.is_const)
    if argument.is_first and not array.size:  # kernels read its first element even if N is 0
        raise ValueError(f"{argument.name}: expected an array with a first element, got an empty one")
    return array


def named_arrays(
    arguments: Sequence[Argument], values: Sequence[Any], targets: Sequence[ResultArrays], tables: Sequence[int] = ()
) -> list[tuple[str, Array]]:
    """Return (name, array) of all arrays of a call but `tables`, by their positions; the names are those of errors."""
    named = [(a.name, values[n]) for n, a in enumerate(arguments) if a.is_array and n not in tables]
    for target in targets:
        named += target.named
    return named


def queue_for(
    queue: cl.CommandQueue | None, context: cl.Context | None = None, of_arrays: cl.CommandQueue | None = None
) -> cl.CommandQueue:
    """Return the queue of a call: `queue`, that of its arrays, the default one, or a cached one of the context.

    Parameters
    ----------
    queue : pyopencl.CommandQueue or None
        The caller's.
    context : pyopencl.Context or None
        The context that the call must run in; None for any.
    of_arrays : pyopencl.CommandQueue or None
        The queue of the first array that has one, in `context`.

    Raises
    ------
    TypeError, ValueError
        If `queue` is not a queue, or belongs to another context.
    DeviceLostError
        If its device was lost.
    """
    if queue is None:
        queue = of_arrays or default_queue()
        # The default queue is of one context; calls in another share a queue that is cached for it.
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
    """Return the queue of the first array that has one, or None."""
    return next((array.queue for array in arrays if is_device_array(array) and array.queue is not None), None)


@kept_by_context
def _queue_of(context: cl.Context) -> cl.CommandQueue:
    return cl.CommandQueue(context)
