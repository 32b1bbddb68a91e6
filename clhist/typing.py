"""Types of arguments and results, for programs that are type-checked.

Results live where the inputs do: a `HostArray` for NumPy arrays, a `DeviceArray` for PyOpenCL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import ArrayLike, DTypeLike

from clhist.hardware.profile import Profile
from clhist.operators.operator import Operator
from clhist.planning.problem import CounterBits, Memory, PassOrder
from clhist.planning.updates import Name as Update

__all__ = [
    "Allocator",
    "AnyOperator",
    "Axes",
    "CallOptions",
    "DeviceArray",
    "DeviceValues",
    "Devices",
    "Ends",
    "HostArray",
    "HostValues",
    "KernelOptions",
    "KernelSpec",
    "Memory",
    "NumBins",
    "PlanChoices",
    "RaceFactorMode",
    "Scalar",
    "Shape",
    "StreamChoices",
    "Update",
]

HostArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
DeviceArray: TypeAlias = cl_array.Array
Scalar: TypeAlias = int | float | complex | np.generic
HostValues: TypeAlias = ArrayLike | tuple[HostArray, ...]
DeviceValues: TypeAlias = DeviceArray | tuple[DeviceArray, ...] | Scalar
Ends: TypeAlias = Sequence[float] | HostArray  # lower and upper end of a range of bins
Axes: TypeAlias = int | str | Sequence[int] | Sequence[str]  # dimensions, by number or by the names of xarray
Devices: TypeAlias = Literal["all"] | Sequence[cl.Device]  # that compute parts of an array at the same time
Shape: TypeAlias = int | tuple[int, ...]
NumBins: TypeAlias = Shape | Sequence[Shape] | Mapping[str, Shape]
AnyOperator: TypeAlias = Operator | np.ufunc | str
Allocator: TypeAlias = Callable[[int], Any]

RaceFactorMode: TypeAlias = Literal["sample", "sample once"]


# Pyright finds a field called "update" in a TypedDict's own body only: in an inherited one it sees the method of
# dictionaries. So each public class declares it.
class _Choices(TypedDict, total=False):
    memory: Memory | None
    copies: int | None
    passes: int | None
    work_group_size: int | None
    locks: int | None
    pass_order: PassOrder | None
    counter_bits: CounterBits | None


class _Stream(_Choices, total=False):
    memory_budget: int | None


class _Call(_Stream, total=False):
    allocator: Allocator | None
    wait_for: Sequence[cl.Event] | None
    race_factor: float | RaceFactorMode


class _Kernel(_Call, total=False):
    size: int | None
    dest: Any
    out: Any
    queue: cl.CommandQueue | None
    num_histograms: int | None
    offsets: Any
    reproducible: bool
    max_abs: float | None


class PlanChoices(_Choices, total=False):
    """Keywords that force what the model would choose; see `clhist.HistogramKernel.__call__`."""

    update: Update | None


class StreamChoices(_Stream, total=False):
    """Keywords of an `clhist.Accumulator` besides its own."""

    update: Update | None


class CallOptions(_Call, total=False):
    """Keywords of `clhist.reduce_by_index` besides its own."""

    update: Update | None


class KernelOptions(_Kernel, total=False):
    """Keywords of a call of a `clhist.HistogramKernel`, but for ``return_event``."""

    update: Update | None


class KernelSpec(TypedDict, total=False):
    """Keywords that make a `clhist.HistogramKernel`."""

    arguments: Required[str]
    map: Required[str]
    preamble: str
    structs: Mapping[str, DTypeLike] | None
    options: Sequence[str]
    profile: Profile | None
    emits: int | None
    dtype: DTypeLike | Mapping[str, DTypeLike] | None
