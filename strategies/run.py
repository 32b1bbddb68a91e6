"""Running a strategy on a device: built, compared with NumPy's result, then timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.kernels.maps import Parameter
from clhist._core.kernels.render import render_strategy
from clhist._core.opencl.device import device_profile, memory_budget
from clhist._core.opencl.program import Kernel, build, kept_by_context
from clhist.errors import BuildError, UnsupportedError
from clhist.kernel import HistogramKernel
from clhist.strategies.datasets import DataSet
from clhist.strategies.problem import (
    COUNTER_BYTES,
    Chosen,
    DeviceLimits,
    Local,
    NotApplicable,
    StrategyProblem,
    StrategyRecipe,
)
from clhist.strategies.registry import Strategy

_UINT = np.dtype(np.uint32)
# Copies for each work-item may be more than 2^32 words together.
_CLEAR = (Parameter("__global uint *", "cells", None), Parameter("const ulong", "words", np.dtype(np.uint64)))
_CLEAR_GROUP, _CLEAR_GROUPS = 64, 1024
_LONGEST = 4.0  # seconds: what takes longer is timed once
_RUNS, _SECONDS = (3, 9), 0.3  # least and most runs; about what is spent on them


@dataclass(frozen=True)
class StrategyOutcome:
    """The outcome of a strategy on an input.

    Attributes
    ----------
    strategy : str
        Its name.
    state : {"right", "wrong", "not applicable", "failed"}
        Whether the counts are NumPy's.
    note : str
        Why it was not timed.
    seconds : tuple of float
        What the device took, of each run; only if it is right.
    """

    strategy: str
    state: str
    note: str = ""
    seconds: tuple[float, ...] = ()

    @property
    def median(self) -> float | None:
        """The median of the seconds."""
        return statistics.median(self.seconds) if self.seconds else None


class Runner:
    """A device on which strategies run.

    Parameters
    ----------
    context : pyopencl.Context
        Its first device is used, through a queue with profiling.
    """

    def __init__(self, context: cl.Context) -> None:
        self.context = context
        self.queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.limits = limits_of(self.queue.device)
        self._loaded: tuple[DataSet, cl_array.Array] | None = None

    def problem(self, data: DataSet) -> StrategyProblem:
        """Return this input as a problem for strategies."""
        return StrategyProblem(data.elements.size, data.num_bins, data.element, data.bin, self.limits, data.race_factor)

    def counter(self, strategy: Strategy, data: DataSet, **parameters: Any) -> Callable[[], _Run]:
        """Return a function that counts once.

        Raises
        ------
        NotApplicable
            If the strategy cannot run here.
        """
        plan = strategy.plan(self.problem(data), **parameters)
        if isinstance(plan, StrategyRecipe):
            return _Launches(self, plan, data).run
        return partial(self._chosen, plan, data)

    def outcome(self, strategy: Strategy, data: DataSet, *, timed: bool = True, **parameters: Any) -> StrategyOutcome:
        """Run a strategy, compare its counts with NumPy's and, if they are right, time it."""
        answer = partial(StrategyOutcome, strategy.name)
        try:
            count = self.counter(strategy, data, **parameters)
            first = count()
            wrong = _difference(first.counts(), data.counts)
            if wrong:
                return answer("wrong", wrong)
            seconds = [count().seconds() for _ in range(_runs(first.seconds()))] if timed else []
        except NotApplicable as reason:
            return answer("not applicable", str(reason))
        except (BuildError, UnsupportedError, MemoryError, cl.Error) as error:
            words = str(error).strip().splitlines() or [""]
            return answer("failed", f"{type(error).__name__}: {words[0]}")
        return answer("right", seconds=tuple(seconds))

    def elements(self, data: DataSet) -> cl_array.Array:
        """Return the elements on the device; at least one, since there are no empty buffers."""
        if self._loaded is None or self._loaded[0] is not data:
            elements = data.elements if data.elements.size else np.zeros(1, data.elements.dtype)
            self._loaded = data, cl_array.to_device(self.queue, elements)
        return self._loaded[1]

    def _chosen(self, plan: Chosen, data: DataSet) -> _Run:
        kernel = _kernel(self.context, data.element, data.bin, plan.dtype, plan.is_count)
        elements, size = self.elements(data), data.elements.size
        choices: dict[str, Any] = dict(plan.choices)
        try:
            # A published formula may ask for more copies than there are work-items to share them.
            if "copies" in choices:
                choices["copies"] = kernel.plan(size, data.num_bins, queue=self.queue, **choices).copies
            result, stages = kernel.timed(elements, num_bins=data.num_bins, size=size, queue=self.queue, **choices)
        except (ValueError, MemoryError) as error:
            # The forced choices are not possible on this device.
            raise NotApplicable(str(error)) from error
        return _Run(result, sum(stages.values()))


class _Run:
    """Counts on the device, and the seconds that they took."""

    def __init__(self, result: cl_array.Array, seconds: float) -> None:
        self._result, self._seconds = result, seconds

    def counts(self) -> npt.NDArray:
        """Return the counts."""
        return self._result.get()

    def seconds(self) -> float:
        """Return the seconds that the device took."""
        return max(self._seconds, 1e-9)


class _Launches:
    """A recipe with its buffers and kernels."""

    def __init__(self, runner: Runner, recipe: StrategyRecipe, data: DataSet) -> None:
        self._queue, self._recipe = runner.queue, recipe
        self._result = cl_array.empty(runner.queue, data.num_bins, np.uint32)
        flags, context = cl.mem_flags.READ_WRITE, runner.context
        own: dict[str, Any] = {
            name: cl.Buffer(context, flags, max(COUNTER_BYTES, size)) for name, size in recipe.buffers.items()
        }
        self._buffers = own | {"x": runner.elements(data).data, "histogram": self._result.data}
        text = render_strategy(recipe.template, element=data.element, bin=data.bin, **recipe.constants)
        program = build(context, text, recipe.options)
        parameters = {launch.kernel: _parameters(launch.arguments) for launch in recipe.launches}
        self._clear = Kernel(program, "clhist_clear", _CLEAR)
        self._kernels = {name: Kernel(program, name, declared) for name, declared in parameters.items()}

    def run(self) -> _Run:
        """Enqueue everything, and wait for it."""
        events = []
        for name in self._recipe.cleared:
            buffer = self._buffers[name]
            arguments = {"cells": buffer, "words": buffer.size // COUNTER_BYTES}
            groups = min(_CLEAR_GROUPS, -(-arguments["words"] // _CLEAR_GROUP))
            size = (groups * _CLEAR_GROUP,), (_CLEAR_GROUP,)
            events.append(self._clear.enqueue(self._queue, *size, self._clear.ordered(arguments), []))
        for launch in self._recipe.launches:
            arguments = {
                f"a{k}": cl.LocalMemory(argument.nbytes)
                if isinstance(argument, Local)
                else self._buffers[argument]
                if isinstance(argument, str)
                else argument
                for k, argument in enumerate(launch.arguments)
            }
            size = (launch.work_groups * launch.work_group_size,), (launch.work_group_size,)
            kernel = self._kernels[launch.kernel]
            events.append(kernel.enqueue(self._queue, *size, kernel.ordered(arguments), []))
        self._queue.finish()
        return _Run(self._result, sum((event.profile.end - event.profile.start) * 1e-9 for event in events))


def limits_of(device: cl.Device) -> DeviceLimits:
    """Return the limits of a device."""
    return DeviceLimits(
        profile=device_profile(device),
        local_memory=device.local_mem_size,
        compute_units=device.max_compute_units,
        max_work_group_size=device.max_work_group_size,
        memory_budget=memory_budget(device),
        sub_groups=_sub_groups(device),
    )


def _sub_groups(device: cl.Device) -> str:
    if "cl_khr_subgroups" in device.extensions.split():
        return "khr"
    try:
        return "core" if any(feature.name == "__opencl_c_subgroups" for feature in device.opencl_c_features) else ""
    except (cl.Error, AttributeError):  # before OpenCL 3.0
        return ""


def _parameters(arguments: Sequence[object]) -> list[Parameter]:
    return [
        Parameter("", f"a{k}", _UINT if isinstance(argument, int) else None) for k, argument in enumerate(arguments)
    ]


@kept_by_context
def _kernel(context: cl.Context, element: str, bin: str, dtype: str, is_count: bool) -> HistogramKernel:
    # A value that is not plainly 1 keeps our own shortcuts for counts out of the authors' strategies.
    value = "1" if is_count else "(value_t)(bin >= 0)"
    operator = operators.count(dtype) if is_count else operators.add(dtype)
    code = f"const {element} x = elements[i]; const int bin = {bin}; EMIT(bin, {value})"
    return HistogramKernel(context, operator, arguments=f"const {element} *elements", map=code)


def _runs(seconds: float) -> int:
    least, most = _RUNS
    return 1 if seconds > _LONGEST else max(least, min(most, int(_SECONDS / seconds)))


def _difference(got: npt.NDArray, expected: npt.NDArray) -> str:
    wrong = np.flatnonzero(got.astype(np.int64) != expected)
    if not wrong.size:
        return ""
    first = wrong[0]
    return f"bin {first} has {got[first]}, expected {expected[first]}; {wrong.size} of {got.size} bins differ"
