"""Registration of operators with `torch.library`: kernels, shapes, gradients and rules of `torch.vmap`.

Operators are registered by `torch.library.Library`: a call costs a third of one by `torch.library.custom_op`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, TypeVar, cast

import torch

from clhist.torch.eager import direct
from clhist.torch.repeats import repeats

F = TypeVar("F", bound=Callable[..., Any])

# Kept for the life of the process: registrations end with their library.
LIBRARY = torch.library.Library("clhist", "DEF")
_NO_VMAP = "clhist.torch: {} is not under torch.vmap; make one index of the number of the sample and that of the bin"


def register_operator(
    schema: str, result: Callable[..., Any], few: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Register the kernel of an operator for tensors of the CPU and of CUDA; return what computes it for both.

    Parameters
    ----------
    schema : str
        Name, parameters and results.
    result : callable
        Takes the arguments of the operator and returns empty tensors of the shapes and dtypes of its results.
    few : callable, optional
        Takes them on the CPU and returns what the operator does, or NotImplemented; see `clhist.torch.host`.
    """
    name = schema.partition("(")[0]

    def register(kernel: F) -> F:
        if few is not None:
            kernel = _with_few(kernel, few)
        # By this tag the inputs of a compiled call have the strides that they have in eager mode.
        LIBRARY.define(schema, tags=(torch.Tag.needs_fixed_stride_order,))
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(name, kernel, key)
        torch.library.register_fake(f"clhist::{name}", result, lib=LIBRARY)
        return kernel

    return register


def _with_few(kernel: F, few: Callable[..., Any]) -> F:
    """Return what calls `few` with contiguous tensors of the CPU, and `kernel` with others or as `few` refuses them."""

    @wraps(kernel)
    def call(*args: Any) -> Any:
        result = _on_cpu(few, *args)
        return kernel(*args) if result is NotImplemented else result

    return cast(F, call)


def _on_cpu(few: Callable[..., Any], *args: Any) -> Any:
    """Return the result of `few` for contiguous tensors of the CPU, or NotImplemented."""
    if args[0].is_cuda:
        return NotImplemented
    return few(*[arg.contiguous() if isinstance(arg, torch.Tensor) else arg for arg in args])


def like_first(first: torch.Tensor, *_: Any) -> torch.Tensor:
    """Return the result of an operator that has the shape and dtype of its first tensor."""
    return first.new_empty(first.shape)


def rows_by_index(rows: torch.Tensor, index: torch.Tensor, *_: Any) -> torch.Tensor:
    """Return the result of an operator that takes or makes one row for each entry of `index`."""
    return rows.new_empty((index.shape[0], *rows.shape[1:]))


def rows_of_bins(rows: torch.Tensor, index: torch.Tensor, dim_size: int, *_: Any) -> torch.Tensor:
    """Return the result of an operator that combines rows by index."""
    return rows.new_empty((dim_size, *rows.shape[1:]))


def register_gradient(name: str, backward: Callable[..., Any], setup: Callable[..., Any] | None) -> None:
    """Register the gradient of an operator, and what saves for it what it needs."""
    torch.library.register_autograd(f"clhist::{name}", backward, setup_context=setup, lib=LIBRARY)


def map_rows(
    name: str, call: Callable[..., Any], refused: str, operands: tuple[int, ...] = (0,), index: int = 1
) -> None:
    """Let `torch.vmap` map a batch of rows by one index as one call: each sample becomes a component of the rows.

    Parameters
    ----------
    name : str
        Of the operator.
    call : callable
        Calls it.
    refused : str
        What the error of a batch of indices names.
    operands : tuple of int
        Places of the arguments that have rows; others follow as they are.
    index : int
        Place of the index.
    """

    def rule(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        if in_dims[index] is not None:
            raise RuntimeError(_NO_VMAP.format(f"{refused} a batch of indices"))
        size = next(args[place].shape[in_dims[place]] for place in operands if in_dims[place] is not None)
        mapped = list(args)
        for place in operands:
            rows, dim = args[place], in_dims[place]
            if rows is not None:
                # An operand without the batch dimension is repeated for each sample.
                rows = rows.unsqueeze(-1).expand(*rows.shape, size) if dim is None else rows.movedim(dim, -1)
                mapped[place] = rows.contiguous()
        result, dim = call(*mapped), mapped[0].dim() - 1
        return result, tuple([dim] * len(result)) if isinstance(result, tuple) else dim

    torch.library.register_vmap(f"clhist::{name}", rule, lib=LIBRARY)


def refuse_vmap(name: str, description: str) -> None:
    """Let an operator raise RuntimeError under `torch.vmap`."""

    def rule(*_: Any) -> Any:
        raise RuntimeError(_NO_VMAP.format(description))

    torch.library.register_vmap(f"clhist::{name}", rule, lib=LIBRARY)


def operator_function(
    name: str,
    kernel: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    setup: Any = None,
    few: Callable[..., Any] | None = None,
) -> Any:
    """Return the function that calls an operator, whose gradient is registered if it has one.

    `few` is as of `register_operator`, for arguments whose gradient PyTorch's own operators have.
    """
    if backward is not None:
        register_gradient(name, backward, setup)
    of_few = None if few is None else partial(_on_cpu, few)
    # From outside in: repeat recorded launches, call the kernel directly, or go through the dispatcher.
    return repeats()(direct(getattr(torch.ops.clhist, name).default, kernel, backward, setup, of_few))
