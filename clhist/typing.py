"""Types of arguments and results, for programs that are type-checked.

Results live where the inputs do: a `HostArray` for NumPy arrays, a `DeviceArray` for PyOpenCL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Required, TypeAlias, TypedDict, overload
from typing import TypeVar as WithoutDefault

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import DTypeLike, NDArray

from clhist._core.devices.profile import Profile
from clhist._core.model.problem import CounterBits as CounterBits  # of options, by whose names these are looked up
from clhist._core.model.problem import Memory
from clhist._core.model.problem import PassOrder as PassOrder
from clhist._core.model.updates import Name as Update
from clhist.operators.operator import Operator
from clhist.option_types import Allocator, CallOptions, RaceFactorMode, _Call, _Choices, _Stream

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

OperatorName: TypeAlias = Literal[
    "sum", "add", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax", "first", "last", "count"
]
# Those that are known without an `Operator`; type checkers know this spelling alone.
OperatorText: TypeAlias = Literal[
    "a + b", "a * b", "a & b", "a | b", "a ^ b", "min(a, b)", "max(a, b)", "fmin(a, b)", "fmax(a, b)"
]
AnyOperator: TypeAlias = Operator | np.ufunc | OperatorName | OperatorText
Rule: TypeAlias = Literal["auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges"]  # for a number of bins
# Statistics by name, or by functions that are named so, such as `numpy.mean`.
GroupName: TypeAlias = Literal[
    "sum", "mean", "count", "var", "std", "min", "max", "argmin", "argmax", "first", "last", "median", "prod", "any",
    "all", "sem", "skew", "kurt", "size", "nunique", "mode",
]  # fmt: skip
BinName: TypeAlias = Literal["mean", "std", "median", "count", "sum", "min", "max", "quantile"]
Function: TypeAlias = Callable[..., Any]
QuantileName: TypeAlias = Literal["q1", "q5", "q10", "q25", "q50", "q75", "q90", "q95", "q99"]  # others are taken, too
GroupStatistics: TypeAlias = GroupName | QuantileName | Function | list[Any] | tuple[Any, ...]  # of names


class HasArray(Protocol):
    """An array of any library: what `numpy.asarray` takes."""

    def __array__(self) -> HostArray: ...


# Several arguments of a call are all NumPy's or all PyOpenCL's. Type checkers find that out by a type variable in each
# of them, beside what says nothing: sequences and arrays of other libraries. Those take a dtype by its name in
# ``__array__``, which NumPy's own do not.
class Foreign(Protocol):
    """An array of another library, such as pandas or polars."""

    def __array__(self, *, dtype: None = ...) -> Any: ...


class Listed(Protocol):
    """A sequence, such as a list or a tuple, but no str: that contains nothing else than str."""

    def __contains__(self, key: object, /) -> bool: ...

    def index(self, value: Any, /) -> int: ...


Values: TypeAlias = Listed | HasArray  # of NumPy, or to be converted by it
Others: TypeAlias = Listed | Foreign  # to be converted by NumPy
Bins: TypeAlias = int | Rule | Values

# The results of functions without overloads: type checkers print each overload of a wrong call, with all its options.
A = TypeVar("A", DeviceArray, HostArray, default=HostArray)
Positions = TypeVar("Positions", DeviceArray, NDArray[np.intp], default=NDArray[np.intp])
Dest = TypeVar(
    "Dest", bound=DeviceArray | HostArray | tuple[DeviceArray, ...] | tuple[HostArray, ...], default=HostArray
)
Own = TypeVar("Own", DeviceArray, HostArray, default=HostArray)
_One: TypeAlias = BinName | Function
_Several: TypeAlias = list[Any] | tuple[Any, ...]
Asked = TypeVar("Asked", _One, _Several, default=_One)
_Own = TypeVar("_Own")


class OnDevice(Protocol[_Own]):  # type: ignore[misc]  # one type exactly, or a mix of arrays would be a union of them
    """A PyOpenCL array, as what tells a type variable its type."""

    @property
    def base_data(self) -> Any: ...

    def __pos__(self) -> _Own: ...


class _StatisticOf:
    """The attribute `statistic` of results: an array, or arrays by name if several statistics were asked for."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, result: _Result[A, _One], of: Any) -> A: ...
        @overload
        def __get__(self, result: _Result[A, _Several], of: Any) -> dict[str, A]: ...
        def __get__(self, result: Any, of: Any) -> Any: ...


class _Result(Generic[A, Asked]):
    if TYPE_CHECKING:
        statistic = _StatisticOf()
        binnumber: A


# SciPy's tuples, as type checkers see them. Unpacked, they know the first item of one statistic alone.
class BinnedStatisticResult(tuple[A, HostArray, A], _Result[A, Asked]):
    """The result of `clhist.stats.binned_statistic`."""

    if TYPE_CHECKING:
        bin_edges: HostArray


class BinnedStatistic2dResult(tuple[A, HostArray, HostArray, A], _Result[A, Asked]):
    """The result of `clhist.stats.binned_statistic_2d`."""

    if TYPE_CHECKING:
        x_edge: HostArray
        y_edge: HostArray


class BinnedStatisticddResult(tuple[A, list[HostArray], A], _Result[A, Asked]):
    """The result of `clhist.stats.binned_statistic_dd`."""

    if TYPE_CHECKING:
        bin_edges: list[HostArray]


class OnHost(Protocol[_Own]):  # type: ignore[misc]  # as of OnDevice
    """A NumPy array of any shape and dtype, as what tells a type variable that it is one: two may differ in both."""

    @property
    def base(self) -> _Own | None: ...

    @property
    def flat(self) -> Any: ...


Given: TypeAlias = OnDevice[A] | OnHost[A] | Others  # arrays of one kind, whatever their dtypes, or what says nothing
Arrays: TypeAlias = Values | DeviceArray  # of either kind

# What was made: one histogram, several in order, or several by name, and so the results.
One: TypeAlias = Operator | np.ufunc | str
Ordered: TypeAlias = Sequence[object]  # mypy finds no closer type of operators of several kinds
Named: TypeAlias = Mapping[str, object]
K = TypeVar("K", covariant=True, default=Any)
Made = TypeVar("Made", covariant=True, default=One)  # of streams, which are of operators, too
MadeOf = TypeVar("MadeOf", One, Ordered, Named, default=One)


class Recipe(Generic[K]):
    """An object with operators: a kernel, or a `clhist.Spec`."""


class KernelOf(Recipe[K]):
    """A `clhist.HistogramKernel`."""


Streamed: TypeAlias = AnyOperator | KernelOf[Made]
Chunk: TypeAlias = Given[A] | Scalar


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


class KernelOptions(_Kernel, total=False):
    """Keywords of a call of a `clhist.HistogramKernel`, but for ``return_event``."""

    update: Update | None
    queue: cl.CommandQueue | None


class TimedOptions(_Kernel, total=False):
    """Keywords of `clhist.HistogramKernel.timed` besides its own."""

    update: Update | None


class BinOptions(TypedDict, total=False):
    """Keywords of the functions of `clhist.stats`."""

    where: Arrays | None
    queue: cl.CommandQueue | None
    reproducible: bool
    binnumber: bool
    q: float | None
    weights: Arrays | None


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
