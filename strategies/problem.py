"""The input and output of a strategy: numbers only, no OpenCL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from clhist._core.devices.profile import Profile

COUNTER_BYTES = 4
MOST_ELEMENTS = 2**31 - 1  # positions and counters have 32 bits


class NotApplicable(Exception):
    """A strategy cannot run here; the message is the reason, short enough for a cell of a table."""


@dataclass(frozen=True)
class DeviceLimits:
    """The limits of a device, for a strategy.

    Attributes
    ----------
    profile : Profile
        The numbers of the model.
    local_memory : int
        Bytes that a kernel may ask for by arguments.
    compute_units, max_work_group_size : int
        Numbers of units and of work-items.
    memory_budget : int
        Bytes that copies in global memory may take.
    sub_groups : {"", "khr", "core"}
        Sub-group functions: none, by the extension ``cl_khr_subgroups``, or of OpenCL C 3.0.
    """

    profile: Profile
    local_memory: int
    compute_units: int
    max_work_group_size: int
    memory_budget: int
    sub_groups: str = ""

    def work_groups(self, work_group_size: int) -> int:
        """Return how many work-groups fill the device."""
        return max(self.compute_units, ceil(self.profile.hardware_threads / work_group_size))


@dataclass(frozen=True)
class StrategyProblem:
    """Elements to be counted in bins, on a device.

    Attributes
    ----------
    size, num_bins : int
        N and H.
    element : str
        C type of an element.
    bin : str
        C expression of the bin of the element `x`; numbers outside of [0, num_bins) are in no bin.
    limits : Limits
        The device.
    race_factor : float
        RF, for strategies that plan with it.
    """

    size: int
    num_bins: int
    element: str
    bin: str
    limits: DeviceLimits
    race_factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.size <= MOST_ELEMENTS:
            raise ValueError(f"size: expected 0 to {MOST_ELEMENTS} elements, got {self.size}")
        if not 1 <= self.num_bins <= MOST_ELEMENTS:
            raise ValueError(f"num_bins: expected 1 to {MOST_ELEMENTS} bins, got {self.num_bins}")

    def check_group(self, work_group_size: int) -> None:
        """Raise `NotApplicable` if the device has no work-groups of this size."""
        most = self.limits.max_work_group_size
        if work_group_size > most:
            raise NotApplicable(f"work-groups of {work_group_size}; the device has {most}")

    def check_local(self, needed: int) -> None:
        """Raise `NotApplicable` if a work-group cannot have so many bytes of local memory."""
        room = self.limits.local_memory
        if needed > room:
            raise NotApplicable(f"needs {needed:,} bytes of local memory; the device has {room:,}")


@dataclass(frozen=True)
class Local:
    """An argument of a kernel: so many bytes of local memory."""

    nbytes: int


# An argument of a kernel: the name of a buffer, a number (uint), or local memory.
Argument = str | int | Local


@dataclass(frozen=True)
class StrategyLaunch:
    """One launch of a kernel.

    Attributes
    ----------
    kernel : str
        Its name.
    work_groups, work_group_size : int
        How many, and of how many work-items.
    arguments : tuple of str, int or Local
        In order. Names are buffers: "x", "histogram", or one of the recipe's own.
    """

    kernel: str
    work_groups: int
    work_group_size: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class StrategyRecipe:
    """The launches of a strategy with kernels of its own.

    Attributes
    ----------
    template : str
        Of ``kernels_cl/strategies``, without its ending.
    constants : mapping of str to object
        What the template gets besides the problem's `element` and `bin`.
    launches : tuple of Launch
        One after the other.
    buffers : mapping of str to int
        Bytes of further buffers in global memory.
    cleared : tuple of str
        Buffers that are set to zero first, as a part of the time.
    options : tuple of str
        For the OpenCL compiler.
    """

    template: str
    constants: Mapping[str, object]
    launches: tuple[StrategyLaunch, ...]
    buffers: Mapping[str, int] = field(default_factory=dict)
    cleared: tuple[str, ...] = ("histogram",)
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """A strategy that `clhist.HistogramKernel` has: its operator's dtype, and the choices that make it.

    Attributes
    ----------
    choices : mapping of str to object
        Keyword arguments of the call.
    dtype : str
        Of the counters.
    is_count : bool
        Whether the operator knows that every value is 1; if not, ones are added as any values are.
    """

    choices: Mapping[str, object]
    dtype: str = "uint32"
    is_count: bool = False


def one_launch(
    problem: StrategyProblem,
    template: str,
    *more: Argument,
    work_groups: int,
    work_group_size: int,
    options: tuple[str, ...] = (),
    **constants: Any,
) -> StrategyRecipe:
    """Return the recipe of one launch with the arguments that all kernels have, and `more`."""
    problem.check_group(work_group_size)
    problem.check_local(sum(argument.nbytes for argument in more if isinstance(argument, Local)))
    arguments = ("x", problem.size, problem.num_bins, "histogram", *more)
    launch = StrategyLaunch("clhist_strategy", max(1, work_groups), work_group_size, arguments)
    return StrategyRecipe(template, constants, (launch,), options=options)
