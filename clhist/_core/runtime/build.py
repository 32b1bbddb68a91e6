"""From a map and its operators to what runs: the plan for the numbers of a call, rendered, built and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyopencl as cl

from clhist._core.devices.profile import Profile
from clhist._core.devices.vendors import rolled_updates
from clhist._core.kernels.from_plan import Programs, programs_of
from clhist._core.kernels.render import render_programs
from clhist._core.kernels.source import Source
from clhist._core.model.plan import Output, Plan, unheeded
from clhist._core.model.problem import Choices, Problem, check_choices
from clhist._core.model.sweeps import plan_sweeps
from clhist._core.model.updates import REPLACEABLE
from clhist._core.opencl.device import (
    check_fp64,
    checked_profile,
    device_features,
    device_kind,
    memory_budget,
    planning_profile,
)
from clhist._core.opencl.faults import faults_of
from clhist._core.opencl.program import kernel_of
from clhist._core.runtime.caller import warn_caller
from clhist._core.runtime.stages import Look, Sweep, sweep_code
from clhist.errors import BuildError, UnsupportedError
from clhist.operators.c_types import integer
from clhist.operators.operator import merged

if TYPE_CHECKING:
    from clhist._core.model.packed import PackedPlan

_MOST_BUILT = 256
_WITHOUT_FP64 = "use float32 or integers (of clhist.reduce_by_index, where a function sums in float64)"


class Built(NamedTuple):
    """The parts of a call that calls with the same numbers share.

    Attributes
    ----------
    profile : Profile
        Of the device.
    sweeps : tuple of Sweep
        Over the input; their kernels have been built.
    smaller : callable
        Gives the sweeps that do the same as one of a plan, with copies of at most so many bytes; raises MemoryError or
        ValueError if none do.
    operators : str
        What is computed, for errors.
    """

    profile: Profile
    sweeps: tuple[Sweep, ...]
    smaller: Callable[[Plan, int], tuple[Sweep, ...]]
    operators: str


class Builder:
    """The parts of a kernel, and the plans that have been built for it.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    source : Source
        Its map and operators.
    profile : Profile or None
        In the place of the device's own.
    """

    def __init__(self, context: cl.Context, source: Source, profile: Profile | None) -> None:
        self.context, self._source, self._profile = context, source, profile
        self.histograms = source.histograms([1] * len(source.operators))  # until a call says how many bins
        self._kept = lru_cache(maxsize=_MOST_BUILT)(self._build)
        self._refused: tuple[tuple[str, str], ...] = ()  # updates, and in which memory, that did not compile

    def built_for(self, device: cl.Device, problem: Problem, *, aligned: bool, used: str = "") -> Built:
        """Return the sweeps of a call, built for a device.

        Parameters
        ----------
        device : pyopencl.Device
            Where it runs.
        problem : Problem
            What is asked, from `problem`.
        aligned : bool
            Whether all arrays begin where loads of 16 bytes may.
        used : str
            As in `clhist._core.kernels.specs.CombineSpec`.
        """
        # The profile is a part of the key: it changes once the device has proven its atomics.
        return self._kept(self.profile_of(device), device, problem, aligned, used)

    def _build(self, profile: Profile, device: cl.Device, problem: Problem, aligned: bool, used: str) -> Built:
        """Plan and build; `_kept` keeps what comes of it."""

        def built(plan: Plan) -> Sweep:
            if plan.work_group_size == 1:
                _check_work_groups_of_one(device)
            # By now the device has proven what the plan needs.
            rolled = rolled_updates(device.platform.name)
            programs = programs_of(
                plan, self._source, self.profile_of(device), aligned=aligned, used=used, rolled=rolled
            )
            sweep = sweep_of(plan, programs, self._source.options)
            looks = () if sweep.look is None else (sweep.look.kernel,)
            # Kernels that contain the caller's C are built now, so that its errors arise before anything is enqueued.
            for code in (*sweep.kernels, *looks, *(() if sweep.again is None else sweep.again.kernels)):
                kernel_of(self.context, code)
            if sweep.plan.strategy == "sort":
                from clhist._core.runtime.sort import build_sort

                build_sort(self.context, sweep.spec.outputs[0].operator)
            return sweep

        def smaller(plan: Plan, budget: int) -> tuple[Sweep, ...]:
            if problem.choices.copies is not None:
                raise ValueError("copies: they are forced")
            # The replacement must keep the caller's own budget as well.
            most = budget if problem.memory_budget is None else min(budget, problem.memory_budget)
            less = replace(problem, memory_budget=most)
            return self._with_some_update(device, less, built, plan.output_indices)

        sweeps = self._with_some_update(device, problem, built)
        plans = tuple(sweep.plan for sweep in sweeps)
        for text in unheeded(problem.choices, plans):
            warn_caller(text, UserWarning)
        operators = ", ".join(str(operator) for operator in self._source.operators)
        return Built(self.profile_of(device), sweeps, smaller, operators)

    def _with_some_update(
        self,
        device: cl.Device,
        problem: Problem,
        built: Callable[[Plan], Sweep],
        indices: tuple[int, ...] | None = None,
    ) -> tuple[Sweep, ...]:
        """Return the built sweeps; replace an update that the compiler refuses, unless it was forced, by the next.

        An error in the caller's C fails with every update: then the first error is raised.
        """
        # Refused updates are remembered for later plans, since the compiler will refuse them again.
        before, first = self._refused, None
        while True:
            sweeps: list[Sweep] = []
            planned = self.plan(device, problem, indices)
            try:
                for sweep in planned:
                    sweeps.append(built(sweep))
                return tuple(sweeps)
            except BuildError as error:
                first = first or error
            failed = planned[len(sweeps)]
            refused = next((u for u in REPLACEABLE if any(u in output.updates for output in failed.outputs)), None)
            # Nothing else can be tried, so the caller's C is wrong: updates refused on the way are allowed again.
            if problem.choices.update is not None or refused is None:
                self._refused = before
                raise first
            self._refused = (*self._refused, (refused, failed.memory))

    def plan(self, device: cl.Device, problem: Problem, indices: tuple[int, ...] | None = None) -> tuple[Plan, ...]:
        """Return the sweeps over the input that compute everything, or the results of these `indices`."""
        if problem.choices.update not in (None, "private"):  # which may be one that the device has to prove
            device_features(device, self.context)
        problem, profile = replace(problem, refused=self._refused), self.profile_of(device)
        planned = plan_sweeps(problem, profile, indices)
        # Plans of private copies need no atomics, so the kernels that prove these need not be built.
        if all(update == "private" for plan in planned for output in plan.outputs for update in output.updates):
            return planned
        device_features(device, self.context)  # proven from now on
        proven = self.profile_of(device)
        return planned if proven == profile else plan_sweeps(problem, proven, indices)

    def step(self, device: cl.Device, problem: Problem, element_bytes: int = 0) -> int | None:
        """Return the number of elements of a piece of a call; None for all at once.

        `element_bytes` are copied to the device for each element. If all elements do not fit, two pieces do.
        """
        from clhist._core.model.pieces import elements_of_piece  # imported here, since most calls take all at once

        # Two pieces are on the device at a time: one is uploaded while the other is computed.
        needed, room = problem.size * element_bytes, memory_budget(device)
        least = 1 if needed <= room else ceil(2 * needed / room)
        return elements_of_piece(replace(problem, refused=self._refused), self.profile_of(device), least)

    def sizes(self, size: int, bins: int) -> tuple[int, ...]:
        """Return the numbers that `clhist._core.runtime.prepare.SIZES` has names for."""
        text = self._source.rows
        if text is None:
            return size, size, bins, bins
        # Kernels of rows count whole rows; all others count components.
        row_bins = bins // text.rows.components
        return size, text.rows.elements(size), bins, row_bins

    def problem(
        self,
        size: int,
        shapes: Sequence[tuple[int, ...]],
        num_histograms: int | None,
        race_factor: object,
        choices: Choices,
        budget: int | None,
        device: cl.Device,
        even: bool = True,
        one_launch: bool = True,
    ) -> Problem:
        """Return what is to be planned; raises for numbers that are none, or that the device cannot have."""
        check_choices(choices, device.max_work_group_size, device.name.strip())
        if not isinstance(race_factor, int | float | np.integer | np.floating):
            raise TypeError(f"race_factor: expected a number, 'sample' or 'sample once', got {race_factor!r}")
        bins = tuple(prod(shape) for shape in shapes)
        room = memory_budget(device) if budget is None else integer("memory_budget", budget, 1)
        histograms, read_bytes = self._source.histograms(bins), self._source.read_bytes
        one_launch = one_launch and self._source.may_combine
        text, race_factor = self._source.rows, float(race_factor)
        more: dict[str, Any] = {"one_launch": one_launch, "rows": None if text is None else text.rows}
        return Problem(histograms, size, num_histograms, even, race_factor, choices, room, read_bytes, **more)

    def profile_of(self, device: cl.Device) -> Profile:
        """Return the profile that was given, or that of `device`; raises ProfileError if the device cannot have it."""
        return planning_profile(device) if self._profile is None else checked_profile(self._profile, device)

    def source(self, plan: Plan, device: cl.Device) -> str:
        """Return the OpenCL C of the sweep that `plan` leads to on `device`."""
        if not self._is_own(plan):
            raise ValueError(f"chosen: expected a plan of this kernel, got {plan}")
        rolled = rolled_updates(device.platform.name)
        programs = programs_of(plan, self._source, self.profile_of(device), aligned=True, rolled=rolled)
        return "\n".join(text for _, text, _ in render_programs(programs._replace(behind=None)))

    def _is_own(self, plan: Plan) -> bool:
        """Whether `plan` fills histograms of this kernel."""
        # A plan may use another form of an operator with the same result, such as one with narrow sums.
        operators = {histogram.suffix: histogram.operator for histogram in self.histograms}

        def is_form(output: Output) -> bool:
            operator = operators.get(output.suffix)
            forms = (
                []
                if operator is None
                else [
                    operator,
                    merged(operator),
                    *operator.narrow,
                    *(equivalent.operator for equivalent in operator.equivalents),
                ]
            )
            return output.operator in forms

        return bool(plan.outputs) and all(is_form(output) for output in plan.outputs)

    def check_fp64(self) -> None:
        """Raise UnsupportedError if an operator or argument needs double precision and a device has none."""
        names = self._source.needs_fp64
        for device in self.context.devices:
            if device_kind(device) != "cpu":
                device_features(device, self.context)  # proven here, where a context is at hand to try things in
            if names:
                check_fp64(device, names[0], _WITHOUT_FP64)


def _check_work_groups_of_one(device: cl.Device) -> None:
    """Raise UnsupportedError if the driver of `device` has shown that it runs no work-groups of one work-item."""
    for fault in faults_of(device):
        raise UnsupportedError(
            f"work_group_size, copies: {device.name.strip()} (driver {device.driver_version.strip()}) runs no "
            f"work-groups of one work-item, since {fault.words}; pass 2 or more of both, or neither"
        )


def _other_sweep(strategy: str) -> Callable[[Plan, Programs, tuple[str, ...]], Sweep] | None:
    """Return the constructor for a strategy of several kernels, imported when needed; None for all others."""
    if strategy == "sort":
        from clhist._core.runtime.sort import sorted_sweep

        return sorted_sweep
    if strategy == "partitioned":
        from clhist._core.runtime.partition import partitioned_sweep

        return partitioned_sweep
    if strategy == "rows":
        from clhist._core.runtime.rows import rows_sweep

        return rows_sweep
    return None


def sweep_of(plan: Plan, programs: Programs, options: tuple[str, ...]) -> Sweep:
    """Return the sweep of a plan, with the fallback that computes again if its flag is raised.

    Raises
    ------
    ValueError
        If the strategy does not take the batch.
    """
    # Narrow sums and rows: a fallback with a second stage of its own.
    if plan.again is not None and programs.behind is not None:
        first = sweep_of(replace(plan, again=None), programs._replace(behind=None), options)
        again = sweep_of(plan.again, programs.behind, options)
        look = None if programs.look is None else Look.of(programs.look, options)
        return replace(first, plan=plan, look=look, again=again)
    if make := _other_sweep(plan.strategy):
        return make(plan, programs, options)
    kernel = sweep_code(programs.sweep, options)
    if plan.behind is None or programs.behind is None:
        return Sweep(plan=plan, spec=programs.sweep, kernel=kernel)
    # Packed counters: the fallback shares their second stage.
    from clhist._core.runtime.packed import PackedSweep

    behind = sweep_of(plan.behind, programs.behind, options)
    return PackedSweep(plan=cast("PackedPlan", plan), spec=programs.sweep, kernel=kernel, robust=behind)
