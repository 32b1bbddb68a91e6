"""Plans that an engine has built and loaded, by the numbers that plans depend on: several signatures share them.

Calls of close numbers are planned together, for the largest of them: to plan each takes longer than most of them run.
Note [Close sizes share a plan], docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from clhist._core.kernels.maps import Argument
from clhist._core.model.problem import FREE, Problem, planned_size
from clhist._core.opencl import lost
from clhist._core.opencl.cuda_kinds import cuda_device_of
from clhist._core.opencl.device import profile_names
from clhist._core.runtime.build import Builder
from clhist._core.runtime.call import Call, CheckedCall
from clhist._core.runtime.launcher import Loaded
from clhist._core.runtime.prepare import Preparation
from clhist._core.runtime.prepared import Part
from clhist._core.runtime.ready import Uses, loaded_call
from clhist._core.runtime.results import forms_of
from clhist._core.runtime.signature import Remembered, itself
from clhist._core.runtime.stages import Limits, Sweep
from clhist.errors import BuildError

if TYPE_CHECKING:
    from clhist._core.runtime.cuda_launcher import CudaLoaded

_MOST = 256
_MOST_LATELY = 64
_MOST_SIZES = 16
_FEW, _TIMES, _FIRST = 2**22, 4, 8  # elements that take about as long as a plan; how much larger; how many calls
_EACH = "each"  # is planned for itself


class Loads:
    """The executables of one map, by their numbers of elements.

    Parameters
    ----------
    builder : Builder
        Plans and builds.
    arguments : sequence of Argument
        Of the map.
    """

    def __init__(self, builder: Builder, arguments: Sequence[Argument]) -> None:
        self._builder, self._arguments = builder, tuple(arguments)
        self._of_one: Remembered[Loaded | CudaLoaded] = Remembered(_MOST)
        self._of_close: Remembered[Loaded | CudaLoaded | str] = Remembered(_MOST)
        self._first: Remembered[tuple[int, tuple[tuple[int, ...], ...]]] = Remembered(_MOST)
        self._lately: Remembered[Uses] = Remembered(_MOST_LATELY)
        # The sizes that are in `_of_close`, and how often one that is not was run as a larger one.
        self._sizes: Remembered[tuple[tuple[int, tuple[int, ...]], ...]] = Remembered(_MOST)
        self._in_place: Remembered[Uses] = Remembered(_MOST)
        self._planned: Remembered[bool] = Remembered(_MOST)

    def of(
        self, checked: CheckedCall, call: Call, fixed: Sequence[int], results: Hashable, *, exact: bool
    ) -> tuple[Loaded | CudaLoaded, tuple[int, ...], Uses | None]:
        """Return what runs a call, and the numbers that kernels are given if others have others, with its uses.

        The first call is planned for itself, and so is one that comes often. Others of close numbers of elements, or
        also of bins, are planned together.

        Parameters
        ----------
        checked, call : CheckedCall, Call
            The call.
        fixed : sequence of int
            Places of the map's arguments that are the same in all calls.
        results : hashable
            What results are combined with and where they go.
        exact : bool
            Whether it is planned for its own numbers in any case.
        """
        batch, largest, size = checked.batch, None if call.largest is None else call.largest[:2], checked.size
        if batch is not None and batch.begins is not None:
            return self._loaded(checked, call, fixed), (), None
        same = tuple([(n, itself(checked.values[n])) for n in fixed])
        budget = type(call.memory_budget), call.memory_budget  # 64.0 is refused, though it equals 64
        asked = call.race_factor, call.choices, budget, call.partial, largest
        where = checked.queue.device, cuda_device_of(checked.queue), batch, checked.is_aligned
        key = (results, asked, where, same, *profile_names())
        own = (size, checked.shapes), key
        loaded = self._of_one.get(own)
        if loaded is not None:
            return loaded, (), None
        first = self._first.get(key)
        uses = self._lately.get(own) or Uses()
        is_own = exact or first in (None, own[0]) or uses.are_many or not self._are_planned_together(checked, call)
        if first is not None and not is_own:
            self._lately.put(own, uses)
            # What is beyond the bins asked for is reported where the largest is: no kernel may have bins for it.
            is_exact = first[1] == checked.shapes or largest is not None
            shape = checked.shapes[0] if is_exact else _planned(checked.shapes[0])
            most = planned_size(size), shape
            close = self._for_close(checked, call, fixed, most, key)
            if close is not None:
                if len(shape) == 1 and self._of_close.get((most, key)) is close:
                    uses.bins = shape[0]
                return close, self._builder.sizes(size, prod(checked.shapes[0])), uses
        loaded = self._loaded(checked, call, fixed)
        self._of_one.put(own, loaded)
        if first is None:
            self._first.put(key, own[0])
        return loaded, (), None

    def _are_planned_together(self, checked: CheckedCall, call: Call) -> bool:
        is_free = call.choices.copies is None and call.memory_budget is None  # which more bins may not leave room for
        return is_free and checked.size > 0 and checked.batch is None and len({*checked.shapes}) == 1

    def _for_close(
        self, checked: CheckedCall, call: Call, fixed: Sequence[int], most: tuple[int, tuple[int, ...]], key: Hashable
    ) -> Loaded | CudaLoaded | None:
        """Return what runs a call of `most` so many elements and bins; None if what is launched depends on them."""
        found = self._of_close.get((most, key))
        if found is None and (found := self._larger(most, key, call.choices == FREE)) is None:
            try:
                found = self._loaded(checked, call, fixed, most)
            except (MemoryError, ValueError, BuildError):  # of so many, perhaps, and not of those asked for
                found = _EACH
            self._of_close.put((most, key), found)
            if not isinstance(found, str):
                self._sizes.put(key, (*(self._sizes.get(key) or ())[-_MOST_SIZES:], most))
        return None if isinstance(found, str) else found

    def _larger(
        self, most: tuple[int, tuple[int, ...]], key: Hashable, is_free: bool
    ) -> Loaded | CudaLoaded | str | None:
        """Return what runs calls of more elements and bins, for the first few calls of a size; None for others.

        To plan takes longer than these calls run.
        """
        size, shape = most
        if size > _FEW or not is_free:
            return None
        for other in self._sizes.get(key) or ():
            each, bins = other
            is_near = size <= each <= _TIMES * size and shape[1:] == bins[1:]
            if is_near and (bins == shape or (shape and shape[0] <= bins[0] <= _TIMES * shape[0])):
                uses = self._in_place.get((most, key)) or Uses()
                uses.number += 1
                self._in_place.put((most, key), uses)
                return self._of_close.get((other, key)) if uses.number <= _FIRST else None
        return None

    def check(self, checked: CheckedCall, call: Call, size: int) -> None:
        """Plan a call of `size` elements, once for its numbers: what cannot be planned raises, and nothing is enqueued.

        For calls before whose plan something is enqueued: a look at their elements, or their first piece.
        """
        budget = type(call.memory_budget), call.memory_budget  # 64.0 is refused, though it equals 64
        batch, device = checked.batch, checked.queue.device
        batched = None if batch is None else (batch.num_histograms, batch.kind)
        key = size, checked.shapes, batched, call.choices, budget, call.partial, device, *profile_names()
        if self._planned.get(key):
            return
        with lost.settled(checked.queue, BuildError):
            self._builder.plan(device, self._problem(checked, replace(call, race_factor=1.0), size, checked.shapes))
        self._planned.put(key, True)

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

    def _loaded(
        self,
        checked: CheckedCall,
        call: Call,
        fixed: Sequence[int],
        most: tuple[int, tuple[int, ...]] | None = None,
    ) -> Loaded | CudaLoaded:
        """Plan, build and prepare a call, for at `most` so many elements and bins of a shape if that is given."""
        batch, device = checked.batch, checked.queue.device
        size, shapes = checked.size, checked.shapes
        if most is not None:
            size, shapes = most[0], (most[1],) * len(shapes)

        def check(sweeps: Sequence[Sweep]) -> None:
            if most is not None and not all(sweep.plan.is_for_fewer for sweep in sweeps):
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

            def smaller(part: Part, budget: int) -> list[Part]:
                assert part.plan is not None
                sweeps = built.smaller(part.plan, budget)
                check(sweeps)
                return [preparation.part(sweep) for sweep in sweeps]

            same = {self._arguments[n].name: checked.values[n] for n in fixed}
            prepared = preparation.prepared(built.sweeps, built.operators)
            return loaded_call(checked.queue, prepared, smaller, same)


def _planned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (planned_size(shape[0]), *shape[1:]) if shape and shape[0] else shape


class _DependsOnSizeError(ValueError):
    """Raised for what is launched in another way for other numbers of elements or bins."""
