"""Types of arguments and results, for programs that are type-checked.

Results live where the inputs do: a `HostArray` for NumPy arrays, a `DeviceArray` for PyOpenCL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypeAlias, TypedDict
from typing import TypeVar as WithoutDefault

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import DTypeLike, NDArray

from clhist.hardware.profile import Profile
from clhist.operators.operator import Operator
from clhist.planning.problem import CounterBits, Memory, PassOrder
from clhist.planning.updates import Name as Update

if TYPE_CHECKING:  # whose type variables have defaults, which Python has from 3.13 on
    from typing_extensions import TypeVar
else:

    def TypeVar(name: str, *types: Any, default: Any = None, **options: Any) -> Any:
        """Return a type variable without its default, which nothing looks at when a program runs."""
        return WithoutDefault(name, *types, **options)


__all__ = [
    "Allocator",
    "AnyOperator",
    "Axes",
    "CallOptions",
    "DeviceArray",
    "Devices",
    "Ends",
    "HostArray",
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
Ends: TypeAlias = Sequence[float] | HostArray  # lower and upper end of a range of bins
Axes: TypeAlias = int | str | Sequence[int] | Sequence[str]  # dimensions, by number or by the names of xarray
Devices: TypeAlias = Literal["all"] | Sequence[cl.Device]  # that compute parts of an array at the same time
Shape: TypeAlias = int | tuple[int, ...]
NumBins: TypeAlias = Shape | Sequence[Shape] | Mapping[str, Shape]
Allocator: TypeAlias = Callable[[int], Any]

# The names of operators are for completion. An operator may be any C expression, so the call reports a wrong name.
OperatorName: TypeAlias = Literal[
    "sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax", "first", "last", "count"
]
AnyOperator: TypeAlias = Operator | np.ufunc | OperatorName | str
Rule: TypeAlias = Literal["auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges"]  # for a number of bins
BinnedStatistic: TypeAlias = Literal["mean", "median", "count", "sum", "std", "min", "max"]


class HasArray(Protocol):
    """An array of any library: what `numpy.asarray` takes."""

    def __array__(self) -> HostArray: ...


# Several arguments of a call are all NumPy's or all PyOpenCL's. Type checkers find that out by a type variable in each
# of them, beside what says nothing: sequences and arrays of other libraries. Those take a dtype by its name in
# ``__array__``, which NumPy's own do not.
class ForeignArray(Protocol):
    """An array of another library, such as pandas or polars."""

    def __array__(self, *, dtype: None = ...) -> Any: ...


Values: TypeAlias = Sequence[Any] | HasArray  # of NumPy, or to be converted by it
Others: TypeAlias = Sequence[Any] | ForeignArray  # to be converted by NumPy
Bins: TypeAlias = int | Rule | Values

# The results of functions without overloads: type checkers print each overload of a wrong call, with all its options.
A = TypeVar("A", DeviceArray, HostArray, default=HostArray)
Positions = TypeVar("Positions", DeviceArray, NDArray[np.intp], default=NDArray[np.intp])
Dest = TypeVar(
    "Dest", bound=DeviceArray | HostArray | tuple[DeviceArray, ...] | tuple[HostArray, ...], default=HostArray
)
_Own = TypeVar("_Own")


class OnDevice(Protocol[_Own]):  # type: ignore[misc]  # one type exactly, or a mix of arrays would be a union of them
    """A PyOpenCL array, as what tells a type variable its type."""

    @property
    def base_data(self) -> Any: ...

    def __pos__(self) -> _Own: ...


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
    """Keywords of `clhist.reduce_by_index` besides its own.

    Type checkers know the result without its event only: a second signature would print both, with all options, of
    every wrong call. With ``return_event=True`` write a `typing.cast`, or bind a kernel: `Bound` has both.
    """

    update: Update | None
    return_event: Literal[False]


class KernelOptions(_Kernel, total=False):
    """Keywords of a call of a `clhist.HistogramKernel`, but for ``return_event``."""

    update: Update | None
    queue: cl.CommandQueue | None


class TimedOptions(_Kernel, total=False):
    """Keywords of `clhist.HistogramKernel.timed` besides its own."""

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
