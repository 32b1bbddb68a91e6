"""Bound calls: they keep their arrays, know each as it was, and skip all checks as long as it still is so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, overload

import pyopencl as cl

from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array, is_array, is_device_array, is_taken
from clhist._core.opencl.cuda_kinds import NotDirectError, cuda_device_of, is_cuda
from clhist._core.opencl.on_device import OnDevice
from clhist._core.runtime.call import Call, CheckedCall, Outcome, checked_events
from clhist._core.runtime.cuda_calls import returned
from clhist._core.runtime.engine import Engine
from clhist.errors import UnsupportedError
from clhist.operators.c_types import check_booleans, integer

# Attributes of an array that a plan depends on; its content is free.
_LIKE = ("dtype", "shape", "strides")


class _BoundArray:
    """An array that a bound call keeps, with its memory, as it was when it was bound."""

    def __init__(self, name: str, array: Array, *, written: bool) -> None:
        on_device = is_device_array(array)
        self.name, self.array = name, array
        self._what = (*_LIKE, "offset") if on_device else (*_LIKE, "flags.writeable") if written else _LIKE
        self._like_of = attrgetter(*self._what)
        self._like, self._alike = self._like_of(array), _alike(array)
        self._buffer = array.base_data if on_device else None
        # A reference of our own: a buffer that its owner released is still there, and nobody else has one then.
        self._own: Any = None
        if type(self._buffer) is cl.Buffer:
            self._own = cl.Buffer.from_int_ptr(self._buffer.int_ptr, True)

    def check(self) -> None:
        """Raise ValueError if the array is not what it was."""
        array = self.array
        # The quick key of an array of CUDA covers dtype, shape, address and size. Attributes name what differs.
        if self._alike is not None and _alike(array) == self._alike:
            return
        if is_cuda(array):  # which describes what it was
            array = array.now(self.name)
        like = self._like_of(array)
        if like != self._like:
            fields = zip(self._what, self._like, like, strict=True)
            what, before, now = next(field for field in fields if field[1] != field[2])
            what = what.removeprefix("flags.")
            raise ValueError(f"{self.name}: expected the array as it was bound, with {what} {before}; got {what} {now}")
        if self._buffer is not None and array.base_data is not self._buffer and not is_cuda(array):
            raise ValueError(f"{self.name}: expected the array as it was bound, got it with other memory")
        # Only the reference of this object is left, so the owner released the buffer.
        if self._own is not None and self._own.reference_count == 1:
            raise ValueError(f"{self.name}: expected the array as it was bound, but its memory was released")


R = TypeVar("R")


class Bound(OnDevice, Generic[R], instead="what it was bound from can be, where that is a clhist.Spec"):
    """A call of a `HistogramKernel` with its arguments: checked, planned and built once, for loops.

    `HistogramKernel.bind` makes it. Calling it computes the histogram from what the arrays hold then. It keeps its
    arrays alive; a new result is made for each call unless `out` was bound.

    Raises
    ------
    ValueError
        When it is called, if an array is not what it was: its memory was released or replaced, or its shape, strides
        or dtype changed. The array is named, and nothing is enqueued.

    Examples
    --------
    >>> from pyopencl import array
    >>> queue = clhist.default_queue()
    >>> x = array.zeros(queue, 1000, np.int32)
    >>> kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    >>> count = kernel.bind(x, num_bins=256)
    >>> for frame in (3, 5):
    ...     x[:] = frame
    ...     print(count().get()[frame])
    1000
    1000

    Notes
    -----
    `offsets` are read when they are bound. Memory released to a pool is not noticed.
    """

    def __init__(self, engine: Engine, args: Sequence[Any], call: Call, checked: CheckedCall) -> None:
        self._engine, self._args, self._call, self._queue = engine, tuple(args), call, checked.queue
        # A bound call is made for repeats, so it gets a plan of its exact size at once, and its programs are loaded
        # now.
        self._prepared, operands = engine.prepare(checked, call, exact=True)
        self._prepared.executable.load_all(operands[0])
        pairs = [(a, value) for a, value in zip(engine.arguments, args, strict=True) if a.is_array]
        self._held = [_BoundArray(a.name, value, written=not a.is_const) for a, value in pairs]
        self._held += [_BoundArray(name, array, written=False) for name, array in _arrays("dest", call.dest)]
        self._held += [_BoundArray(name, array, written=True) for name, array in _arrays("out", call.out)]
        # What had to be copied is copied at each call: NumPy arrays with gaps, a `dest` that overlaps `out`.
        arrays = {id(bound.array) for bound in self._held}
        dests = [array for target in checked.targets for array in target.dest or ()]
        in_place = all(id(array) in arrays for array in dests) and all(map(is_taken, args, checked.values))
        self._operands = operands if in_place else None
        self._profiling: cl.CommandQueue | None = None

    @overload
    def __call__(self, *, wait_for: Sequence[cl.Event] | None = ..., return_event: Literal[False] = ...) -> R: ...
    @overload
    def __call__(
        self, *, wait_for: Sequence[cl.Event] | None = ..., return_event: Literal[True]
    ) -> tuple[R, cl.Event]: ...
    def __call__(self, *, wait_for: Sequence[cl.Event] | None = None, return_event: bool = False) -> Any:
        """Compute the histogram, or histograms.

        Parameters
        ----------
        wait_for : sequence of pyopencl.Event, optional
            What to wait for besides the events of the arrays, and what was bound.
        return_event : bool
            Whether to return ``(result, event)``; the event covers the whole call.

        Returns
        -------
        array of shape (num_bins,)
            As `HistogramKernel.__call__`.
        """
        if return_event is not False:
            check_booleans(return_event=return_event)
        if return_event and cuda_device_of(self._queue) is not None:
            raise TypeError("return_event: expected none with arrays of CUDA, whose stream orders what is done")
        self._checked()
        outcome = self._run(self._queue, wait_for)
        result = returned(self._engine.outputs.collect(outcome.results))
        return (result, outcome.event) if return_event else result

    @property
    def queue(self) -> cl.CommandQueue:
        """Where it runs."""
        return self._queue

    @property
    def plan(self) -> Any:
        """The `Plan`; of a kernel with several operators a tuple, one for each sweep over the input."""
        _, plans = self._prepared.executable.prepared.call
        return plans[0] if self._engine.outputs.is_single else plans

    def timed(self, runs: int = 1) -> list[dict[str, float]]:
        """Call it so many times and return the seconds of each run's stages on the device.

        Returns
        -------
        list of dict of str to float
            As `HistogramKernel.timed`. They run on a queue of its own if the bound one has no ``PROFILING_ENABLE``.
        """
        if cuda_device_of(self._queue) is not None:
            raise UnsupportedError("timed: expected arrays of PyOpenCL or NumPy; OpenCL times no launch of CUDA")
        queue = self._profiling or self._queue
        # Events have times only if their queue profiles, which the bound one need not do.
        if not queue.properties & cl.command_queue_properties.PROFILING_ENABLE:
            properties = cl.command_queue_properties.PROFILING_ENABLE
            self._profiling = queue = cl.CommandQueue(queue.context, queue.device, properties)
        runs = integer("runs", runs, 1)
        self._checked()
        return [self._run(queue, None).seconds(queue) for _ in range(runs)]

    def _checked(self) -> None:
        if lost.unchecked:
            lost.check_process()
        for bound in self._held:
            bound.check()

    def _run(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] | None) -> Outcome:
        engine, call = self._engine, self._call
        # Copies are made anew at each call, since the originals may have changed.
        operands = self._operands or engine.operands(engine.check(self._args, call), call)
        events = [*call.wait_for, *checked_events(wait_for)] if wait_for else call.wait_for
        try:
            return self._prepared.executable.run(queue, *operands, self._prepared.on_device, events, call.allocator)
        except NotDirectError as error:  # with less memory than there was when it was bound
            raise UnsupportedError(f"a bound call that CUDA cannot do: {error}") from error


def _alike(array: Array) -> Any:
    """Return a quick key of an array of CUDA, by its library; None of other arrays, or if there is no key."""
    return array.memory.library.alike(array.memory.owner) if is_cuda(array) else None


def _arrays(name: str, argument: Any) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of `dest` or `out`, nested or not, with their names."""
    if is_array(argument):
        yield name, argument
    elif isinstance(argument, Mapping):
        for key, entry in argument.items():
            yield from _arrays(f"{name}[{key!r}]", entry)
    elif isinstance(argument, list | tuple):
        for k, entry in enumerate(argument):
            yield from _arrays(f"{name}[{k}]", entry)
