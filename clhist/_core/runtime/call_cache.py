"""Cache of the calls of an engine: by their signatures, and by what plans depend on, which is coarser.

Calls of similar sizes share a plan for the largest of them: a plan for each takes longer than most of them run.
Note [Close sizes share a plan], docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import pyopencl as cl

from clhist._core.kernels.source import Source
from clhist._core.model.problem import FREE, Problem, planned_size
from clhist._core.opencl import lost
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.device import profile_names
from clhist._core.recording import heard
from clhist._core.runtime.build import Builder
from clhist._core.runtime.call import Call, CheckedCall, Outcome
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.launcher import executable_of
from clhist._core.runtime.prepare import Preparation, forms_of
from clhist._core.runtime.prepared import New, Part
from clhist._core.runtime.signature import Remembered
from clhist._core.runtime.stages import Limits, Sweep
from clhist.errors import BuildError

# Uses of a shared plan after which a call gets one for its exact size.
MANY_USES = 32

Operands = tuple[list[Array | None], Sequence[Any]]  # arrays and scalars of a call, as `Executable.run` takes them


_MOST = 256
_MOST_LATELY = 64
_MOST_SIZES = 16
# The first _FIRST calls of a size of up to _FEW elements use a plan for up to _TIMES as many: a plan takes about as
# long as a call of _FEW elements.
_FEW, _TIMES, _FIRST = 2**22, 4, 8
_EACH = "each"  # instead of an executable: calls of these sizes need separate plans

_Planned = tuple[int, tuple[Any, ...]]  # number of elements, and the shape of the results or of each of them


class _Family:
    """The executables of calls that differ in their sizes alone.

    Attributes
    ----------
    first : tuple
        The sizes of the first call.
    exact : Remembered
        Executables by the sizes that they are for.
    shared : Remembered
        Executables for fewer elements and bins as well, by the most of them; `_EACH` where there can be none.
    borrowed : Remembered
        How often sizes without an executable of their own used that of larger ones.
    """

    __slots__ = ("borrowed", "exact", "first", "shared")

    def __init__(self, first: _Planned) -> None:
        self.first = first
        self.exact: Remembered[Executable] = Remembered(_MOST_LATELY)
        self.shared: Remembered[Executable | str] = Remembered(_MOST_SIZES)
        self.borrowed: Remembered[int] = Remembered(_MOST_LATELY)

    def may_borrow(self, most: _Planned) -> bool:
        """Count a use of a larger plan by these sizes; return whether it is one of the first few."""
        number = (self.borrowed.get(most) or 0) + 1
        self.borrowed.put(most, number)
        return number <= _FIRST

    def larger(self, most: _Planned, *, exact_bins: bool) -> Executable | str | None:
        """Return the executable of a larger plan for the first few calls of a size; None for later ones.

        A plan takes longer than these calls run. With `exact_bins`, it is for more elements alone: values in spare bins
        would not be reported.
        """
        size, shape = most
        number = prod(shape)
        if size > _FEW:
            return None
        for other in self.shared.oldest_first():
            planned, bins = other
            # A borrowed plan has spare work-groups and bins, so it may be larger by a limited factor only.
            is_near = size <= planned <= _TIMES * size
            if is_near and (bins == shape or (not exact_bins and number <= prod(bins) <= _TIMES * number)):
                return self.shared.get(other) if self.may_borrow(most) else None
        return None


@dataclass(slots=True, eq=False)
class SizedCall:
    """A prepared call on a queue, for calls of one signature and of one size.

    Attributes
    ----------
    executable : Executable
        Runs the call; the executables of shared plans serve other sizes as well.
    queue : pyopencl.CommandQueue
        The queue that runs it.
    on_device : bool
        Whether arrays are PyOpenCL's.
    targets : tuple of int or None
        For each array after those of the map, its index among the arrays of `dest` and `out`; None for a new result.
    sizes : tuple of int
        The values of `clhist._core.runtime.prepare.SIZES` that kernels get; empty if the plan is for exact sizes.
    new : New or None
        The new results of a shared plan; None if the plan is for exact sizes.
    planned : tuple of int or None
        The shape of the bins of a shared plan, for calls of other sizes.
    borrows : callable or None
        Counts a use of a plan that is borrowed from larger sizes; returns whether it may be used again.
    scalars : tuple of (object, list)
        The origin of the scalars of the previous call, and these as kernels take them, followed by `sizes`.
    uses : int
        How often a shared plan was used.
    """

    executable: Executable
    queue: cl.CommandQueue
    on_device: bool
    targets: tuple[int | None, ...] = ()
    sizes: tuple[int, ...] = ()
    new: New | None = None
    planned: tuple[int, ...] | None = None
    borrows: Callable[[], bool] | None = None
    scalars: tuple[Any, list[Any]] = (None, [])
    uses: int = 0

    def of_sizes(self, sizes: tuple[int, ...], shape: tuple[int, ...]) -> SizedCall:
        """Return the call for other sizes that the plan serves, with a use count of its own."""
        # `dataclasses.replace` takes three times as long.
        return SizedCall(self.executable, self.queue, self.on_device, self.targets, sizes, New(shape))

    def ends_for_less(self) -> bool:
        """Return whether a plan for exactly this call's bins may fit after memory was refused; if so, request it."""
        # Only a call of one part and one result is certain to have enqueued nothing when memory is refused.
        if self.new is None or not self.executable.prepared.is_of_one:
            return False
        self.uses = MANY_USES
        return True

    def run(self, arrays: list[Any], scalars: Sequence[Any], call: Call, targets: Sequence[Array]) -> Outcome:
        """Enqueue the call with the arrays and scalars of the map, and count a use of a shared plan.

        Add those of the results to `arrays`, some of the `targets` or requests for new ones.
        """
        for k in self.targets:
            arrays.append(self.new if k is None else targets[k])
        if self.new is not None:
            self.uses += 1
            # A replay does not pass here, so the recording contains the call.
            if heard.calls is not None:
                heard.calls.append(self)
        on_device, events = self.on_device, call.wait_for
        return self.executable.run(self.queue, arrays, scalars, on_device, events, call.allocator, call.begun)


class SizedCalls:
    """The prepared calls that differ in their sizes alone: for these sizes, and for all that are planned together.

    Sizes are tuples that begin with the number of elements, or None, and the bins.
    """

    __slots__ = ("_close", "_exact", "get")

    def __init__(self) -> None:
        self._exact: dict[Hashable, SizedCall] = {}
        # Apart from those of single sizes, which displace each other.
        self._close: dict[Hashable, SizedCall] = {}
        self.get = self._exact.get  # returns the call of these sizes, or None

    def close(self, size: int | None, bins: Hashable, *, exact_bins: bool) -> tuple[SizedCall, tuple[int, ...]] | None:
        """Return a call whose plan serves these sizes as well, and the shape of the bins; None if there is none.

        With `exact_bins`, only a plan for just these bins does.
        """
        shape = shape_of_bins(bins)
        if shape is None or size is None:
            return None
        # A plan for exactly these bins comes first.
        planned = planned_size(size)
        call = self._usable((planned, shape))
        if call is None and not exact_bins:
            call = self._usable((planned, planned_shape(shape)))
        return None if call is None else (call, shape)

    def _usable(self, planned: _Planned) -> SizedCall | None:
        """Return the call of a shared plan for so many elements and bins, unless it was borrowed often enough."""
        call = self._close.get(planned)
        return call if call is None or call.borrows is None or call.borrows() else None

    def put(self, sizes: tuple[Any, ...], call: SizedCall, *, any_size: bool = False) -> None:
        """Store a call; with `any_size`, also for other sizes that its plan serves."""
        self._exact = _with(self._exact, sizes, call)
        self.get = self._exact.get
        if any_size and sizes[0] is not None and call.planned is not None:
            self._close = _with(self._close, (planned_size(sizes[0]), call.planned), call)


def _with(calls: dict[Hashable, SizedCall], key: Hashable, call: SizedCall) -> dict[Hashable, SizedCall]:
    """Return `calls` with one more; if there are many, a copy without the older half of them."""
    if len(calls) >= _MOST_LATELY:
        calls = dict(calls)  # which other threads do not change
        for old in [*calls][: _MOST_LATELY // 2]:
            del calls[old]
    calls[key] = call
    return calls


class CallCache(Remembered[Any]):
    """The calls of one map: prepared ones by their signatures, and families of executables by what plans depend on.

    Parameters
    ----------
    builder : Builder
        Plans and builds.
    source : Source
        The map.
    """

    def __init__(self, builder: Builder, source: Source) -> None:
        super().__init__(_MOST)
        self._builder, self._arguments = builder, source.arguments

    def prepared(self, checked: CheckedCall, call: Call, results: Hashable, *, exact: bool) -> SizedCall:
        """Return the prepared call of a checked one.

        The first call gets a plan of its exact size, and so does a frequent one. Other calls with similar numbers of
        elements, or also of bins, share a plan.

        Parameters
        ----------
        checked, call : CheckedCall, Call
            The call.
        results : hashable
            The description of `dest` and `out` that `numbered` returns.
        exact : bool
            Whether to plan for the size of this call alone.
        """
        batch, largest, size = checked.batch, None if call.largest is None else call.largest[:2], checked.size
        place = checked.queue, checked.on_device
        # The offsets of a ragged batch are in tables of the launches, so nothing is shared.
        if batch is not None and batch.begins is not None:
            return SizedCall(self._built(checked, call), *place)
        budget = type(call.memory_budget), call.memory_budget  # 64.0 is refused, though it equals 64
        # NumPy's True is refused, too, though it equals 1.0.
        options = type(call.race_factor), call.race_factor, call.choices, budget, call.partial, largest
        where = checked.queue.device, cuda_device_of(checked.queue), batch, checked.is_aligned
        key = (results, options, where, *profile_names())
        own = size, checked.shapes
        family: _Family = self.get(key) or _Family(own)
        # An executable for exactly these sizes is preferred to a shared one.
        if (executable := family.exact.get(own)) is not None:
            return SizedCall(executable, *place)
        # Exact plans are for the first sizes, for frequent ones, and for calls that cannot share a plan.
        if not (exact or own == family.first) and self._are_planned_together(checked, call):
            # An entry out of range is reported through the largest bin, so the plan must not have spare bins for it.
            is_exact = family.first[1] == checked.shapes or largest is not None
            shape = checked.shapes[0] if is_exact else planned_shape(checked.shapes[0])
            most = planned_size(size), shape
            close = self._for_close(checked, call, most, family)
            if close is not None:
                self.put(key, family)  # stays where signatures of many sizes displace each other
                sizes, new = self._builder.sizes(size, prod(checked.shapes[0])), New(checked.targets[0].shape)
                borrows = None if family.shared.get(most) is close else partial(family.may_borrow, most)
                return SizedCall(close, *place, (), sizes, new, shape, borrows)
        executable = self._built(checked, call)
        family.exact.put(own, executable)
        self.put(key, family)
        return SizedCall(executable, *place)

    def _are_planned_together(self, checked: CheckedCall, call: Call) -> bool:
        is_free = call.choices.copies is None and call.memory_budget is None  # spare bins may not fit beside these
        return is_free and checked.size > 0 and checked.batch is None and len({*checked.shapes}) == 1

    def _for_close(self, checked: CheckedCall, call: Call, most: _Planned, family: _Family) -> Executable | None:
        """Return the executable for at most `most` elements and bins; None if launches depend on the exact sizes."""
        executable = family.shared.get(most)
        if executable is None and call.choices == FREE:
            executable = family.larger(most, exact_bins=call.largest is not None)
        if executable is None:
            try:
                executable = self._built(checked, call, most)
            except (MemoryError, ValueError, BuildError):  # the exact sizes may still succeed
                # Stored, too: this attempt is not repeated for each call.
                executable = _EACH
            family.shared.put(most, executable)
        return None if isinstance(executable, str) else executable

    def check(self, checked: CheckedCall, call: Call, size: int) -> None:
        """Plan a call of `size` elements, once for its numbers: what cannot be planned raises, and nothing is enqueued.

        For calls before whose plan something is enqueued: a look at their elements, or their first piece.
        """
        budget = type(call.memory_budget), call.memory_budget  # 64.0 is refused, though it equals 64
        batch, device = checked.batch, checked.queue.device
        batched = None if batch is None else (batch.num_histograms, batch.kind)
        key = "planned", size, checked.shapes, batched, call.choices, budget, call.partial, device, *profile_names()
        if self.get(key):
            return
        with lost.settled(checked.queue, BuildError):
            # The race factor may not be measured yet. It decides which plan is chosen, not whether there is one.
            self._builder.plan(device, self._problem(checked, replace(call, race_factor=1.0), size, checked.shapes))
        self.put(key, True)

    def _problem(self, checked: CheckedCall, call: Call, size: int, shapes: tuple[tuple[int, ...], ...]) -> Problem:
        batch = checked.batch
        return self._builder.problem(
            size,
            shapes,
            None if batch is None else batch.num_histograms,
            call.race_factor,
            call.choices,
            call.memory_budget,
            checked.queue.device,
            even=batch is None or batch.kind != "ragged",
            one_launch=not call.partial and not any(target.fields for target in checked.targets),
        )

    def _built(self, checked: CheckedCall, call: Call, most: _Planned | None = None) -> Executable:
        """Plan, build and prepare a call, for at `most` so many elements and bins of a shape if that is given."""
        batch, device = checked.batch, checked.queue.device
        size, shapes = checked.size, checked.shapes
        if most is not None:
            size, shapes = most[0], (most[1],) * len(shapes)

        def check(sweeps: Sequence[Sweep]) -> None:
            if most is not None and not all(sweep.plan.is_for_fewer for sweep in sweeps):
                # Kernels get the sizes at each call, but the number of work-groups or tables may depend on them.
                raise _DependsOnSizeError

        with lost.settled(checked.queue, BuildError):  # what a lost device answers as well
            problem = self._problem(checked, call, size, shapes)
            used = "" if call.largest is None else call.largest.used
            built = self._builder.built_for(device, problem, aligned=checked.is_aligned, used=used)
            check(built.sweeps)
            limits = Limits(device.max_work_group_size, device.max_compute_units)
            arrays = sum(argument.is_array for argument in self._arguments)
            preparation = Preparation(
                self._arguments,
                forms_of(checked.targets, arrays),
                built.profile,
                limits,
                batch,
                call.largest,
                most is not None,
            )

            # A replacement for refused memory must suit all sizes that the executable serves.
            def smaller(part: Part, budget: int) -> list[Part]:
                assert part.plan is not None
                sweeps = built.smaller(part.plan, budget)
                check(sweeps)
                return [preparation.part(sweep) for sweep in sweeps]

            return executable_of(checked.queue, preparation.prepared(built.sweeps, built.operators), smaller)


def shape_of_bins(num_bins: Any) -> tuple[int, ...] | None:
    """Return the shape of a number of bins, or of numbers; None unless they are of Python."""
    if type(num_bins) is int:
        return (num_bins,)
    return num_bins if type(num_bins) is tuple and {int}.issuperset(map(type, num_bins)) else None


def planned_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the bins that a shared plan for `shape` has: plans depend on their number alone."""
    return (planned_size(prod(shape)),)


class _DependsOnSizeError(ValueError):
    """Raised if launches depend on the numbers of elements or bins."""
