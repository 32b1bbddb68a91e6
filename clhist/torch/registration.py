"""Registration of operators with `torch.library`: kernels, shapes, gradients and rules of `torch.vmap`.

Operators are registered by `torch.library.Library`: a call costs a third of one by `torch.library.custom_op`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from clhist.torch.eager import direct
from clhist.torch.repeats import repeats

F = TypeVar("F", bound=Callable[..., Any])

# Kept for the life of the process: registrations end with their library.
LIBRARY = torch.library.Library("clhist", "DEF")
NO_VMAP = "clhist.torch: {} is not under torch.vmap; make one index of the number of the sample and that of the bin"


def register_operator(schema: str) -> Callable[[F], F]:
    """Register the kernel of an operator for tensors of the CPU and of CUDA."""
    name = schema.partition("(")[0]

    def register(kernel: F) -> F:
        # By this tag the inputs of a compiled call have the strides that they have in eager mode.
        LIBRARY.define(schema, tags=(torch.Tag.needs_fixed_stride_order,))
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(name, kernel, key)
        return kernel

    return register


def register_fake(name: str) -> Callable[[F], F]:
    """Register the shapes of an operator."""
    return torch.library.register_fake(f"clhist::{name}", lib=LIBRARY)


def register_gradient(name: str, backward: Callable[..., Any], setup: Callable[..., Any] | None) -> None:
    """Register the gradient of an operator, and what saves for it what it needs."""
    torch.library.register_autograd(f"clhist::{name}", backward, setup_context=setup, lib=LIBRARY)


def register_vmap(name: str) -> Callable[[F], F]:
    """Register the rule of an operator under `torch.vmap`."""
    return torch.library.register_vmap(f"clhist::{name}", lib=LIBRARY)


def refuse_vmap(name: str, description: str) -> None:
    """Let an operator raise RuntimeError under `torch.vmap`."""

    def rule(*_: Any) -> Any:
        raise RuntimeError(NO_VMAP.format(description))

    register_vmap(name)(rule)


def operator_function(
    name: str, kernel: Callable[..., Any], backward: Callable[..., Any] | None = None, setup: Any = None
) -> Any:
    """Return the function that calls an operator, whose gradient is registered if it has one."""
    if backward is not None:
        register_gradient(name, backward, setup)
    # From outside in: repeat recorded launches, call the kernel directly, or go through the dispatcher.
    return repeats()(direct(getattr(torch.ops.clhist, name).default, kernel, backward, setup))
