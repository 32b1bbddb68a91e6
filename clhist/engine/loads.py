"""What an engine planned, built and loaded, by what plans depend on, which more calls have in common than signatures.

Calls of close sizes are planned together, for the largest of them: to plan each takes longer than most of them run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pyopencl as cl

from clhist.codegen.maps import Argument
from clhist.engine.build import Builder
from clhist.engine.call import Call, CheckedCall
from clhist.engine.cuda_launcher import CudaLoaded
from clhist.engine.launcher import Loaded
from clhist.engine.prepare import Preparation
from clhist.engine.prepared import Part
from clhist.engine.ready import loaded_call
from clhist.engine.results import forms_of
from clhist.engine.signature import Remembered, itself
from clhist.engine.stages import Limits
from clhist.errors import BuildError
from clhist.opencl import lost
from clhist.opencl.cuda_arrays import cuda_device_of
from clhist.opencl.device import profile_names
from clhist.planning.problem import planned_size

_MOST = 256
_ONE, _EACH = "one", "each"  # size was seen of those that are close; or each is planned for itself


class Loads:
    """What runs the calls of one map, and for how many elements.

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

    def of(
        self, checked: CheckedCall, call: Call, fixed: Sequence[int], results: Hashable, *, exact: bool
    ) -> tuple[Loaded | CudaLoaded, tuple[int, ...]]:
        """Return what runs a call, and the sizes that kernels are given if others have others.

        The first size among close ones is planned for itself, the others together.

        Parameters
        ----------
        checked, call : CheckedCall, Call
            The call.
        fixed : sequence of int
            Places of the map's arguments that are the same in all calls.
        results : hashable
            What results are combined with and where they go.
        exact : bool
            Whether it is planned for its own size in any case.
        """
        batch, largest, size = checked.batch, None if call.largest is None else call.largest[:2], checked.size
        if batch is not None and batch.begins is not None:
            return self._loaded(checked, call, fixed, size), ()
        same = tuple([(n, itself(checked.values[n])) for n in fixed])
        asked = call.race_factor, call.choices, call.memory_budget, call.partial, largest
        shape = checked.queue.device, cuda_device_of(checked.queue), checked.shapes, batch, checked.is_aligned
        key = (results, asked, shape, same, *profile_names())
        loaded = self._of_one.get((size, key))
        if loaded is not None:
            return loaded, ()
        if not exact and size and batch is None:
            together = planned_size(size), key
            close = self._of_close.get(together)
            if close is None or close is _ONE:
                close = _ONE if close is None else self._loaded_for_close(checked, call, fixed, together[0]) or _EACH
                self._of_close.put(together, close)
            if not isinstance(close, str):
                return close, (size, self._builder.rows(size))
        loaded = self._loaded(checked, call, fixed, size)
        self._of_one.put((size, key), loaded)
        return loaded, ()

    def _loaded_for_close(
        self, checked: CheckedCall, call: Call, fixed: Sequence[int], size: int
    ) -> Loaded | CudaLoaded | None:
        """Return what runs a call of up to `size` elements; None if what is launched depends on their number."""
        try:
            return self._loaded(checked, call, fixed, size, tells_size=True)
        except _DependsOnSizeError:
            return None

    def _loaded(
        self, checked: CheckedCall, call: Call, fixed: Sequence[int], size: int, *, tells_size: bool = False
    ) -> Loaded | CudaLoaded:
        """Plan, build and prepare a call for so many elements."""
        batch, device = checked.batch, checked.queue.device
        try:
            problem = self._builder.problem(
                size,
                checked.shapes,
                None if batch is None else batch.num_histograms,
                call.race_factor,
                call.choices,
                call.memory_budget,
                device,
                even=batch is None or batch.kind != "ragged",
                one_launch=not call.partial and not any(target.fields for target in checked.targets),
            )
            used = "" if call.largest is None else call.largest.used
            built = self._builder.built_for(device, problem, aligned=checked.is_aligned, used=used)
            if tells_size and not all(sweep.plan.is_for_fewer for sweep in built.sweeps):
                raise _DependsOnSizeError
            limits = Limits(device.max_work_group_size, device.max_compute_units)
            arrays = sum(argument.is_array for argument in self._arguments)
            preparation = Preparation(
                self._arguments,
                forms_of(checked.targets, arrays),
                built.profile,
                limits,
                batch,
                call.largest,
                tells_size,
            )

            def smaller(part: Part, budget: int) -> list[Part]:
                assert part.plan is not None
                sweeps = built.smaller(part.plan, budget)
                if tells_size and not all(sweep.plan.is_for_fewer for sweep in sweeps):
                    raise ValueError("size: expected the planned one")
                return [preparation.part(sweep) for sweep in sweeps]

            same = {self._arguments[n].name: checked.values[n] for n in fixed}
            prepared = preparation.prepared(built.sweeps, built.operators)
            return loaded_call(checked.queue, prepared, smaller, same)
        except (cl.Error, BuildError) as error:  # what a lost device answers as well
            lost.settle(checked.queue, error)
            raise


class _DependsOnSizeError(Exception):
    """Raised for what is launched in another way for other numbers of elements."""
