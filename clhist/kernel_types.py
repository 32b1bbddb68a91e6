"""The types of a `HistogramKernel`: what its calls return, by its operators and by where the arguments are."""

# The implementations are the class's own; calls with nothing but scalars could be of both kinds, and run as NumPy's.
# mypy: disable-error-code="no-overload-impl, overload-overlap"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, overload

import pyopencl as cl

from clhist.opencl.on_device import OnDevice
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from typing import Unpack

    from clhist.engine.bound import Bound
    from clhist.planning.plan import Plan
    from clhist.typing import DeviceArray, HostArray, KernelOptions, NumBins, PlanChoices, Scalar

# One operator, several in order, or several by name: the type of `HistogramKernel.operator`.
K = TypeVar("K")
One = Operator
Ordered = Sequence[Operator]
Named = Mapping[str, Operator]


class KernelCalls(OnDevice, Generic[K], instead="a clhist.Spec of the same arguments can be: see its partial()"):
    """The signatures of the calls of a `HistogramKernel`; type checkers see these alone.

    The two kinds of arguments stay apart: NumPy arrays give NumPy arrays, PyOpenCL arrays give PyOpenCL arrays.
    """

    if TYPE_CHECKING:

        @overload
        def __call__(
            self: KernelCalls[One], *args: HostArray | Scalar, num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> HostArray: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[One], *args: HostArray | Scalar, num_bins: NumBins,
            return_event: Literal[True], **options: Unpack[KernelOptions],
        ) -> tuple[HostArray, cl.Event]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[One], *args: DeviceArray | Scalar, num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> DeviceArray: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[One], *args: DeviceArray | Scalar, num_bins: NumBins,
            return_event: Literal[True], **options: Unpack[KernelOptions],
        ) -> tuple[DeviceArray, cl.Event]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Ordered], *args: HostArray | Scalar, num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> tuple[HostArray, ...]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Ordered], *args: HostArray | Scalar, num_bins: NumBins,
            return_event: Literal[True], **options: Unpack[KernelOptions],
        ) -> tuple[tuple[HostArray, ...], cl.Event]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Ordered], *args: DeviceArray | Scalar, num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> tuple[DeviceArray, ...]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Ordered], *args: DeviceArray | Scalar, num_bins: NumBins,
            return_event: Literal[True], **options: Unpack[KernelOptions],
        ) -> tuple[tuple[DeviceArray, ...], cl.Event]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Named], *args: HostArray | Scalar, num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> dict[str, HostArray]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Named], *args: HostArray | Scalar, num_bins: NumBins,
            return_event: Literal[True], **options: Unpack[KernelOptions],
        ) -> tuple[dict[str, HostArray], cl.Event]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Named], *args: DeviceArray | Scalar, num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> dict[str, DeviceArray]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Named], *args: DeviceArray | Scalar, num_bins: NumBins,
            return_event: Literal[True], **options: Unpack[KernelOptions],
        ) -> tuple[dict[str, DeviceArray], cl.Event]: ...  # fmt: skip

        @overload
        def bind(
            self: KernelCalls[One], *args: HostArray | Scalar, num_bins: NumBins, **options: Unpack[KernelOptions]
        ) -> Bound[HostArray]: ...

        @overload
        def bind(
            self: KernelCalls[One], *args: DeviceArray | Scalar, num_bins: NumBins, **options: Unpack[KernelOptions]
        ) -> Bound[DeviceArray]: ...

        @overload
        def bind(
            self: KernelCalls[Ordered], *args: HostArray | Scalar, num_bins: NumBins, **options: Unpack[KernelOptions]
        ) -> Bound[tuple[HostArray, ...]]: ...

        @overload
        def bind(
            self: KernelCalls[Ordered], *args: DeviceArray | Scalar, num_bins: NumBins, **options: Unpack[KernelOptions]
        ) -> Bound[tuple[DeviceArray, ...]]: ...

        @overload
        def bind(
            self: KernelCalls[Named], *args: HostArray | Scalar, num_bins: NumBins, **options: Unpack[KernelOptions]
        ) -> Bound[dict[str, HostArray]]: ...

        @overload
        def bind(
            self: KernelCalls[Named], *args: DeviceArray | Scalar, num_bins: NumBins, **options: Unpack[KernelOptions]
        ) -> Bound[dict[str, DeviceArray]]: ...

        @overload
        def plan(
            self: KernelCalls[One], size: int, num_bins: NumBins, *, queue: cl.CommandQueue | None = ...,
            race_factor: float = ..., memory_budget: int | None = ..., num_histograms: int | None = ...,
            **choices: Unpack[PlanChoices],
        ) -> Plan: ...  # fmt: skip

        @overload
        def plan(
            self: KernelCalls[Ordered], size: int, num_bins: NumBins, *, queue: cl.CommandQueue | None = ...,
            race_factor: float = ..., memory_budget: int | None = ..., num_histograms: int | None = ...,
            **choices: Unpack[PlanChoices],
        ) -> tuple[Plan, ...]: ...  # fmt: skip

        @overload
        def plan(
            self: KernelCalls[Named], size: int, num_bins: NumBins, *, queue: cl.CommandQueue | None = ...,
            race_factor: float = ..., memory_budget: int | None = ..., num_histograms: int | None = ...,
            **choices: Unpack[PlanChoices],
        ) -> tuple[Plan, ...]: ...  # fmt: skip
