"""From a map and its operators to what runs: the plan for the numbers of a call, rendered, built and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.codegen.arguments import integer
from clhist.codegen.maps import Argument, is_streamed, uniform_value
from clhist.codegen.render import render_partition, render_sort_pairs, render_sweep
from clhist.codegen.specs import Output, SweepSpec
from clhist.engine.launch import Sweep, is_wide, local_capacity, order_of, sweep_kernel
from clhist.engine.outputs import Outputs
from clhist.engine.partition import partitioned_sweep, specs
from clhist.engine.sort import sorted_sweep
from clhist.errors import BuildError, UnsupportedError
from clhist.hardware.atomics import REPLACEABLE
from clhist.hardware.profile import Profile
from clhist.opencl.device import checked_profile, device_features, device_profile, memory_budget, profile_names
from clhist.operators.c_types import needs_fp64
from clhist.planning.plan import Forced, Plan
from clhist.planning.sweeps import PlannedSweep, Problem, Target, emits_of, plan_sweeps

FREE = Forced()
_MOST_RECENT = 256


@dataclass(frozen=True)
class Prepared:
    """What a call with the same numbers needs again."""

    profile: Profile
    sweeps: tuple[Sweep, ...]
    smaller: Callable[[Sweep, int], tuple[Sweep, ...]]  # as `clhist.engine.launch.Launch` takes it


class Preparation:
    """What a kernel is made of, and the plans that have been built for it.

    Parameters
    ----------
    context : pyopencl.Context
        Where it runs.
    outputs : Outputs
        Its operators.
    arguments : sequence of Argument
        Of the map.
    map, preamble : str
        C.
    structs : mapping of str to numpy.dtype
        Types that the C names.
    options : sequence of str
        For the compiler.
    profile : Profile or None
        In the place of the device's own.
    emits : int or None
        How many values an element has at most, if the caller says so.
    """

    def __init__(
        self,
        context: cl.Context,
        outputs: Outputs,
        arguments: Sequence[Argument],
        *,
        map: str,
        preamble: str,
        structs: Mapping[str, np.dtype],
        options: Sequence[str],
        profile: Profile | None,
        emits: int | None,
    ) -> None:
        self.context, self.arguments = context, tuple(arguments)
        self._outputs, self._map, self._preamble = outputs, map, preamble
        self._structs, self._options, self._profile = structs, tuple(options), profile
        seen = "\n".join([preamble, *(o.preamble for o in outputs.operators)])
        self.targets = [
            Target(
                o,
                suffix,
                emits_of(f"EMIT{suffix}", map, seen) if emits is None else emits,
                uniform_value(suffix, map, self.arguments, seen),
            )
            for o, suffix in zip(outputs.operators, outputs.suffixes, strict=True)
        ]
        self._prepared = lru_cache(maxsize=256)(self._prepare)
        self._recent: dict[tuple[Any, ...], Prepared] = {}
        self._refused: tuple[tuple[str, str], ...] = ()  # updates, and in which memory, that did not compile

    @property
    def emits(self) -> int:
        """How many values an element has at most for one histogram, as far as that is known; at least 1."""
        return max(1, *(target.emits or 1 for target in self.targets))

    @cached_property
    def read_bytes(self) -> int:
        """What the map reads for an element, as far as its arrays are read at ``[i]``."""
        streamed = [a for a in self.arguments if is_streamed(a, self._map, self._preamble)]
        return sum(argument.dtype.itemsize for argument in streamed)

    def prepared_for(
        self,
        device: cl.Device,
        size: int,
        shapes: tuple[tuple[int, ...], ...],
        histograms: int | None,
        factor: Any,
        forced: Forced,
        budget: int | None,
        *,
        aligned: bool,
        reach: bool,
        kind: str,
    ) -> Prepared:
        """Return the plan of a call, built; by a short way if the same was asked before without choices.

        Parameters
        ----------
        device : pyopencl.Device
            Where it runs.
        size, shapes, histograms, factor, forced, budget
            As in `problem`.
        aligned : bool
            Whether all arrays begin where loads of 16 bytes may.
        reach : bool
            Whether the largest bin is asked for.
        kind : str
            Of a batch, as `clhist.engine.batch.Batch.kind`; nothing without one.
        """
        key = None
        if forced is FREE and type(factor) is float and budget is None:
            key = (device.int_ptr, size, shapes, histograms, factor, aligned, reach, kind, *profile_names())
            if (found := self._recent.get(key)) is not None:
                return found
        even = kind != "table"
        problem = self.problem(size, shapes, histograms, factor, forced, budget, device, even)
        found = self._prepared(self.profile_of(device), device, problem, aligned, reach, kind)
        if key is not None:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            self._recent[key] = found
        return found

    def _prepare(
        self, profile: Profile, device: cl.Device, problem: Problem, aligned: bool, reach: bool, batch: str
    ) -> Prepared:
        """Plan and build; what a call with the same numbers needs again is kept by `_prepared`."""

        def built(sweep: PlannedSweep) -> Sweep:
            return self._built(sweep, self._spec(sweep, device, aligned=aligned, reach=reach, batch=batch), profile)

        def smaller(sweep: Sweep, budget: int) -> tuple[Sweep, ...]:
            if problem.forced.copies is not None:
                raise ValueError("copies: they are forced")
            less = replace(problem, memory_budget=min(budget, problem.memory_budget))
            return self._with_some_update(device, less, built, sweep.numbers)

        return Prepared(profile, self._with_some_update(device, problem, built), smaller)

    def _with_some_update(
        self,
        device: cl.Device,
        problem: Problem,
        built: Callable[[PlannedSweep], Sweep],
        numbers: tuple[int, ...] | None = None,
    ) -> tuple[Sweep, ...]:
        """Return the sweeps, built; where the compiler refuses an update that was not forced the next takes its place.

        What is wrong with the caller's own C is so with every update: then the words about the first are shown.
        """
        before, first = self._refused, None
        while True:
            found: list[Sweep] = []
            planned = self.plan(device, problem, numbers)
            try:
                for sweep in planned:
                    found.append(built(sweep))
                return tuple(found)
            except BuildError as error:
                first = first or error
            failed = planned[len(found)]
            refused = next((u for u in REPLACEABLE if any(u in output.updates for output in failed.outputs)), None)
            if problem.forced.update is not None or refused is None:
                self._refused = before
                raise first
            self._refused = (*self._refused, (refused, failed.plan.memory))

    def _built(self, sweep: PlannedSweep, spec: SweepSpec, profile: Profile) -> Sweep:
        number = sweep.numbers[0]
        if sweep.plan.update == "sort":
            emits = self.targets[number].emits or 1
            return sorted_sweep(self.context, sweep.plan, spec, emits, sweep.numbers, self._options)
        if sweep.plan.partitions:
            return partitioned_sweep(
                self.context,
                sweep.plan,
                spec,
                sweep.numbers,
                self._options,
                value=self.targets[number].value,
                local_memory=profile.local_memory,
            )
        return Sweep(sweep.plan, spec, sweep_kernel(self.context, spec, self._options), sweep.numbers)

    def plan(
        self, device: cl.Device, problem: Problem, numbers: tuple[int, ...] | None = None
    ) -> tuple[PlannedSweep, ...]:
        """Return the sweeps over the input that compute everything, or the results of these `numbers`."""
        known = replace(problem, refused=self._refused)
        return plan_sweeps(self.targets, known, *self._device_numbers(device), numbers)

    def problem(
        self,
        size: int,
        shapes: Sequence[tuple[int, ...]],
        num_histograms: int | None,
        race_factor: object,
        forced: Forced,
        budget: int | None,
        device: cl.Device,
        even: bool = True,
    ) -> Problem:
        """Return what is to be planned; raises for choices that are no numbers, or that the device cannot have."""
        for name in ("copies", "passes", "work_group_size", "locks"):
            if getattr(forced, name) is not None:
                integer(name, getattr(forced, name), 1)
        if forced.locks is not None and forced.locks & (forced.locks - 1):
            raise ValueError(f"locks: expected a power of two, got {forced.locks}")
        if not isinstance(race_factor, int | float | np.integer | np.floating):
            raise TypeError(f"race_factor: expected a number, 'sample' or 'sample once', got {race_factor!r}")
        most = device.max_work_group_size
        if forced.work_group_size is not None and forced.work_group_size > most:
            name = device.name.strip()
            raise ValueError(f"work_group_size: expected at most the {most} of {name}, got {forced.work_group_size}")
        bins = tuple(prod(shape) for shape in shapes)
        room = memory_budget(device) if budget is None else integer("memory_budget", budget, 1)
        return Problem(size, bins, num_histograms, float(race_factor), forced, room, self.emits, even, self.read_bytes)

    def profile_of(self, device: cl.Device) -> Profile:
        """Return the profile that was given, or that of `device`; raises ProfileError if the device cannot have it."""
        return device_profile(device) if self._profile is None else checked_profile(self._profile, device)

    def _device_numbers(self, device: cl.Device) -> tuple[Profile, frozenset[str]]:
        profile = self.profile_of(device)
        return profile, profile.features or frozenset()

    def _spec(self, sweep: PlannedSweep, device: cl.Device, *, aligned: bool, reach: bool, batch: str) -> SweepSpec:
        (profile, features), chosen = self._device_numbers(device), sweep.plan
        ignored = [target for n, target in enumerate(self.targets) if n not in sweep.numbers]
        return SweepSpec(
            sweep.outputs,
            self.arguments,
            self._map,
            chosen.memory,
            order_of(profile),
            chosen.work_group_size,
            local_capacity(sweep.outputs, chosen, profile),
            chosen.teams,
            "flat" if chosen.flat else batch,
            is_wide(chosen),
            aligned,
            reach,
            tuple(self._structs.items()),
            self._preamble,
            features,
            tuple(Output(target.operator, (), target.suffix) for target in ignored),
            chosen.packed,
            len(self.targets) == 1 and self.targets[0].emits == 1,
        )

    def source(self, chosen: Plan, device: cl.Device) -> str:
        """Return the OpenCL C of the sweep that `chosen` plan leads to on `device`."""
        known = [suffix.removeprefix("_") for suffix in self._outputs.suffixes]
        numbers = tuple(known.index(name) for name in chosen.outputs or known)
        targets, found = [self.targets[n] for n in numbers], None
        for update in (None, chosen.update):  # parts of one sweep may have different updates, unless one is forced
            rest = {"update": update, "work_group_size": chosen.work_group_size, "locks": chosen.locks}
            forced = Forced(**(chosen.choices | rest))
            problem = Problem(
                chosen.num_elements,
                chosen.bins,
                chosen.num_histograms if chosen.is_batch else None,
                chosen.race_factor,
                forced,
                2**62,
                self.emits,
                read_bytes=self.read_bytes,
            )
            try:
                sweeps = plan_sweeps(targets, problem, *self._device_numbers(device))
            except ValueError:  # what is chosen by itself needs more local memory
                continue
            if len(sweeps) == 1 and (sweeps[0].plan.memory, sweeps[0].plan.update) == (chosen.memory, chosen.update):
                found = replace(sweeps[0], plan=chosen, numbers=numbers)
                break
        if found is None:
            raise ValueError(f"chosen: expected a plan of this kernel, got {chosen}")
        batch = "even" if chosen.is_batch or chosen.flat else ""
        spec = self._spec(found, device, aligned=True, reach=False, batch=batch)
        if chosen.update == "sort":
            return render_sort_pairs(spec, targets[0].emits or 1)
        if chosen.partitions:
            before, over_pairs = specs(chosen, spec, targets[0].value, self.profile_of(device).local_memory)
            return f"{render_partition(before)}\n{render_sweep(over_pairs)}"
        return render_sweep(spec)

    def check_fp64(self) -> None:
        """Raise UnsupportedError if an operator or argument needs double precision and a device has none."""
        needing = [("operator", o.needs_fp64) for o in self._outputs.operators]
        needing += [(argument.name, needs_fp64(argument.dtype)) for argument in self.arguments]
        names = [name for name, needs in needing if needs]
        for device in self.context.devices:
            features = device_features(device, self.context)  # here, where a context is at hand to try things in
            if names and "fp64" not in features:
                raise UnsupportedError(
                    f"{names[0]}: {device.name.strip()} has no double precision (cl_khr_fp64); use float32 or integers"
                )
