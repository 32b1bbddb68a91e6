"""Calls of operators on plain tensors go to the kernel directly: PyTorch's dispatcher takes longer than small kernels.

Under `torch.compile`, transforms of `torch.func`, dispatch modes and tracing, operators are called as registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import forward_ad

from clhist._core.spi import ANEW, report_origin

Setup = Callable[[Any, tuple[Any, ...], Any], None]
Backward = Callable[..., Any]

_PLAIN = frozenset((type(None), bool, int, float, str))
TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))


def _private(name: str) -> Callable[[], Any]:
    """Return a function of PyTorch that says whether something watches calls; where it lacks it, something does."""
    function: Callable[[], Any] = getattr(torch._C, name, lambda: True)  # noqa: SLF001  # there is no public function
    return function


_dispatch_modes, _transforms, _tracing = map(
    _private, ("_len_torch_dispatch_stack", "_are_functorch_transforms_active", "_get_tracing_state")
)
_functorch = getattr(torch._C, "_functorch", None)  # noqa: SLF001  # there is no public function
# Tensors of `torch.autograd.functional.jacobian(vectorize=True)`, which no transform is active for.
is_batched: Callable[[Any], bool] = getattr(_functorch, "is_legacy_batchedtensor", lambda tensor: True)


def is_watched() -> bool:
    """Whether calls of operators must be seen by PyTorch's dispatcher."""
    if torch.compiler.is_compiling() or _dispatch_modes() or _transforms() or _tracing():
        return True
    return forward_ad._current_level >= 0  # noqa: SLF001  # there is no other way to ask


def direct(
    operator: Any,
    kernel: Callable[..., Any],
    backward: Backward | None = None,
    setup: Setup | None = None,
    few: Callable[..., Any] | None = None,
) -> Any:
    """Return a function that calls `kernel` with plain tensors, and `operator` with all others.

    Parameters
    ----------
    operator : torch._ops.OpOverload
        As registered; it has the gradient of `backward` and `setup`.
    kernel : callable
        Computes it on tensors of the CPU and of CUDA.
    backward, setup : callable, optional
        As of `torch.library.register_autograd`. Without them a call that needs a gradient goes to `operator`.
    few : callable, optional
        Computes it by operators of PyTorch that have the gradient, or returns NotImplemented.
    """
    function = None if backward is None or setup is None else _function(kernel, backward, setup)

    def call(*args: Any) -> Any:
        if is_watched():
            return operator(*args)
        needs_gradient = _needs_gradient(args)
        if needs_gradient is None:
            return operator(*args)
        # Without a gradient, neither the dispatcher nor autograd has a part in the call.
        if not needs_gradient or not torch.is_grad_enabled():
            return kernel(*args)
        # A gradient by a function of Python takes several times as long.
        if few is not None and (result := few(*args)) is not NotImplemented:
            return result
        if function is None:
            return operator(*args)
        # None: there are no recorded launches.
        result = function.apply(None, *args)
        report_origin(result, (_apply_of(function), args))
        return result

    return call


def _needs_gradient(args: Iterable[Any]) -> bool | None:
    """Return whether a tensor among arguments requires a gradient; None if one of them is not plain."""
    needed = False
    for value in args:
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind in TENSORS:
            # The dispatcher handles tensors of other devices, such as meta, and batched ones.
            if not (value.is_cuda or value.is_cpu) or is_batched(value):
                return None
            needed = needed or value.requires_grad
        elif kind is list:
            inner = _needs_gradient(value)
            if inner is None:
                return None
            needed = needed or inner
        else:
            return None
    return needed


def _apply_of(function: type[torch.autograd.Function]) -> Any:
    """Return ``function.apply`` for plain tensors: it does not look for transforms and their tensors."""
    base: Any = super(torch.autograd.Function, function)
    return base.apply


def _function(kernel: Callable[..., Any], backward: Backward, setup: Setup) -> type[torch.autograd.Function]:
    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, launch: Callable[[], Any] | None, *args: Any) -> Any:
            # Launch again what an earlier call of this signature launched.
            output = ANEW if launch is None else launch()
            if output is ANEW:
                output = kernel(*args)
            setup(ctx, args, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            # The argument in front, `launch`, has no gradient.
            return None, *backward(ctx, *grads)

    return Direct
