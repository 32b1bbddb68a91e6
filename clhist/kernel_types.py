"""The types of a `HistogramKernel`: what its calls return, by its operators and by where the arguments are.

Of the signatures of a method, type checkers keep the one whose `self` fits, and print no other if a call is wrong.
"""

# The implementations are the class's own. A str is an operator, though it is a sequence of str as well.
# mypy: disable-error-code="no-overload-impl, overload-overlap"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import pyopencl as cl

from clhist._core.opencl.on_device import OnDevice
from clhist.typing import K, KernelOf, Named, One, Ordered

if TYPE_CHECKING:
    from typing import Unpack

    from clhist._core.model.plan import Plan
    from clhist._core.runtime.bound import Bound
    from clhist.operators.operator import Operator
    from clhist.typing import A, KernelOptions, NumBins, PlanChoices, Scalar, TimedOptions


class _OperatorOf:
    """The attribute `operator` of a kernel, with operators in the place of names and ufuncs."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, kernel: KernelCalls[One], of: Any) -> Operator: ...
        @overload
        def __get__(self, kernel: KernelCalls[Ordered], of: Any) -> Sequence[Operator]: ...
        @overload
        def __get__(self, kernel: KernelCalls[Named], of: Any) -> Mapping[str, Operator]: ...
        def __set__(self, kernel: Any, operator: Any) -> None: ...


class KernelCalls(OnDevice, KernelOf[K], instead="a clhist.Spec of the same arguments can be: see its partial()"):
    """The signatures of the calls of a `HistogramKernel`; type checkers see these alone.

    The two kinds of arguments stay apart: NumPy arrays give NumPy arrays, PyOpenCL arrays give PyOpenCL arrays. They
    know calls with ``return_event`` of a `Bound` alone; see `clhist.typing.CallOptions`.
    """

    if TYPE_CHECKING:
        operator = _OperatorOf()

        @overload
        def __call__(
            self: KernelCalls[One], *args: A | Scalar | Sequence[float], num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> A: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Ordered], *args: A | Scalar | Sequence[float], num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> tuple[A, ...]: ...  # fmt: skip

        @overload
        def __call__(
            self: KernelCalls[Named], *args: A | Scalar | Sequence[float], num_bins: NumBins,
            return_event: Literal[False] = ..., **options: Unpack[KernelOptions],
        ) -> dict[str, A]: ...  # fmt: skip

        @overload
        def bind(
            self: KernelCalls[One], *args: A | Scalar | Sequence[float], num_bins: NumBins,
            **options: Unpack[KernelOptions],
        ) -> Bound[A]: ...  # fmt: skip

        @overload
        def bind(
            self: KernelCalls[Ordered], *args: A | Scalar | Sequence[float], num_bins: NumBins,
            **options: Unpack[KernelOptions],
        ) -> Bound[tuple[A, ...]]: ...  # fmt: skip

        @overload
        def bind(
            self: KernelCalls[Named], *args: A | Scalar | Sequence[float], num_bins: NumBins,
            **options: Unpack[KernelOptions],
        ) -> Bound[dict[str, A]]: ...  # fmt: skip

        @overload
        def timed(
            self: KernelCalls[One], *args: A | Scalar | Sequence[float], num_bins: NumBins, queue: cl.CommandQueue,
            **options: Unpack[TimedOptions],
        ) -> tuple[A, dict[str, float]]: ...  # fmt: skip

        @overload
        def timed(
            self: KernelCalls[Ordered], *args: A | Scalar | Sequence[float], num_bins: NumBins, queue: cl.CommandQueue,
            **options: Unpack[TimedOptions],
        ) -> tuple[tuple[A, ...], dict[str, float]]: ...  # fmt: skip

        @overload
        def timed(
            self: KernelCalls[Named], *args: A | Scalar | Sequence[float], num_bins: NumBins, queue: cl.CommandQueue,
            **options: Unpack[TimedOptions],
        ) -> tuple[dict[str, A], dict[str, float]]: ...  # fmt: skip

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
