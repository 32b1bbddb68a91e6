"""Messages along the edges of a graph, summed by node without an array of all messages."""

from __future__ import annotations

from typing import Any

import torch

from clhist._core.spi import reduce_mapped, row_dots, takes_cuda
from clhist.operators import add
from clhist.torch import host, operators
from clhist.torch.checks import SUMMED, check_integers, check_no_tangent, check_size, check_tensor, reproducibility
from clhist.torch.groups import is_sorted, size_of
from clhist.torch.host import by_rows
from clhist.torch.operators import as_array, as_tensor
from clhist.torch.registration import operator_function, refuse_vmap, register_operator
from clhist.torch.repeats import repeats


@repeats("dim_size")
def gather_scatter(
    x: torch.Tensor,
    col: torch.Tensor,
    row: torch.Tensor,
    weight: torch.Tensor | None = None,
    dim_size: int | None = None,
    *,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Sum messages along edges: ``scatter(x[col] * weight, row)`` without the array of all messages.

    This is the product of a sparse matrix and a dense one, with the matrix as its coordinates (COO).

    Parameters
    ----------
    x : tensor of shape (M, ...)
        Features of the source nodes: floats, of half precision as well, or integers.
    col : tensor of shape (E,) of integers
        Source of each edge. Edges whose source is outside [0, M) add nothing.
    row : tensor of shape (E,) of integers
        Target of each edge. Edges whose target is outside [0, `dim_size`) add nothing.
    weight : tensor of shape (E,), optional
        Weight of each edge, of the dtype of `x`. Defaults to 1.
    dim_size : int, optional
        Number of target nodes, as of `scatter`.
    sorted : bool
        Whether `row` does not decrease, as of `scatter`.
    reproducible : bool, optional
        Whether sums are bitwise the same in any order of edges, as of `scatter`. The messages are stored then.

    Returns
    -------
    tensor of shape (dim_size, ...)
        Of the dtype and on the device of `x`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong.

    Notes
    -----
    `x` and `weight` have gradients of any order, which store no messages either.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> col, row = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 2])
    >>> clhist.torch.gather_scatter(x, col, row, torch.tensor([1.0, 1.0, 0.5]))
    tensor([[4.0000, 6.0000],
            [0.0000, 0.0000],
            [1.5000, 2.0000]])
    """
    check_tensor("x", x, SUMMED)
    if x.dim() == 0:
        raise ValueError("x: expected one dimension or more, got a tensor of none")
    check_no_tangent("x", x)
    check_integers("col", col, x)
    check_integers("row", row, x)
    if row.shape != col.shape:
        raise ValueError(f"row: expected shape {tuple(col.shape)} as of col, got {tuple(row.shape)}")
    if weight is not None:
        check_tensor("weight", weight, (x.dtype,), x)
        if weight.shape != col.shape:
            raise ValueError(f"weight: expected shape {tuple(col.shape)} as of col, got {tuple(weight.shape)}")
        check_no_tangent("weight", weight)
    if dim_size is None:
        dim_size = size_of(row, "row")
    check_size("dim_size", dim_size)
    is_same = reproducibility(reproducible, x.dtype)
    return _messages(x, col, row, weight, dim_size, is_same, is_sorted(sorted))


def _messages_shape(x: torch.Tensor, col: Any, row: Any, weight: Any, dim_size: int, *_: Any) -> torch.Tensor:
    return x.new_empty((dim_size, *x.shape[1:]))


@register_operator(
    "gather_scatter(Tensor x, Tensor col, Tensor row, Tensor? weight, SymInt dim_size, bool reproducible, "
    "bool is_sorted=False) -> Tensor",
    _messages_shape,
    host.gather_scatter,
)
def _gather_scatter(
    x: torch.Tensor,
    col: torch.Tensor,
    row: torch.Tensor,
    weight: torch.Tensor | None,
    dim_size: int,
    reproducible: bool,
    is_sorted: bool = False,
) -> torch.Tensor:
    shape = (dim_size, *x.shape[1:])
    if not (x.numel() and dim_size and col.shape[0]):
        return x.new_zeros(shape)
    # The reproducible sum takes an array of all messages.
    if reproducible:
        messages = operators.gather(x.contiguous(), col)
        if weight is not None:
            messages = messages * by_rows(weight, messages)
        # An edge without a source gathers 0, which an infinite weight would make NaN.
        is_edge = by_rows((col >= 0) & (col < x.shape[0]), messages)
        return operators.scatter(torch.where(is_edge, messages, 0), row, dim_size, "sum", True, None, is_sorted)
    weights = None if weight is None else as_array(weight)
    return as_tensor(_summed(as_array(x), as_array(col), as_array(row), weights, shape, is_sorted))


@takes_cuda
def _summed(x: Any, col: Any, row: Any, weights: Any, shape: tuple[int, ...], is_sorted: bool) -> Any:
    components = x.size // x.shape[0]
    message = f"x[(long)col[{{row}}] * {components} + {{component}}]"
    arrays = {"x": x, "col": col}
    if weights is not None:
        message, arrays["weight"] = f"{message} * weight[{{row}}]", weights
    # The kernel checks each source, so that nothing outside of `x` is read.
    value = f"((long)col[{{row}}] >= 0 && (long)col[{{row}}] < sources ? {message} : 0)"
    return reduce_mapped(shape, add(x.dtype), row, value, arrays, {"sources": x.shape[0]}, is_sorted=is_sorted)


def _dots_shape(first: torch.Tensor, second: torch.Tensor, first_rows: torch.Tensor, _: Any) -> torch.Tensor:
    return first.new_empty(first_rows.shape[0])


@register_operator(
    "row_dots(Tensor first, Tensor second, Tensor first_rows, Tensor second_rows) -> Tensor", _dots_shape, host.row_dots
)
def _row_dots(
    first: torch.Tensor, second: torch.Tensor, first_rows: torch.Tensor, second_rows: torch.Tensor
) -> torch.Tensor:
    if not (first.numel() and second.numel() and first_rows.shape[0]):
        return first.new_zeros(first_rows.shape[0])
    return as_tensor(_dots_of(*map(as_array, (first, second, first_rows, second_rows))))


_dots_of = takes_cuda(row_dots)


def _messages_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, col, row, weight, ctx.dim_size, ctx.reproducible, *_ = inputs
    ctx.save_for_backward(x, col, row, *(() if weight is None else (weight,)))


def _messages_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, col, row, *weights = ctx.saved_tensors
    grad, weight = grad.contiguous(), weights[0] if weights else None
    of_x = of_weight = None
    # Count from the end: a call on plain tensors has one argument more in front.
    needs_x, _, _, needs_weight, *_ = ctx.needs_input_grad[-7:]
    if needs_x:
        # The transposed product: sources and targets change places, and their order is unknown.
        of_x = _messages(grad, row, col, weight, x.shape[0], ctx.reproducible, False)
    if weight is not None and needs_weight:
        # The gradient of a weight is the dot product of the rows of its source and its target.
        of_weight = _dots(x, grad, col, row)
    return of_x, None, None, of_weight, None, None, None


def _dots_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _dots_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    first, second, first_rows, second_rows = ctx.saved_tensors
    grad = grad.contiguous()
    of_first = _messages(second, second_rows, first_rows, grad, first.shape[0], False, False)
    of_second = _messages(first, first_rows, second_rows, grad, second.shape[0], False, False)
    return of_first, of_second, None, None


_messages = operator_function(
    "gather_scatter", _gather_scatter, _messages_backward, _messages_setup, host.gather_scatter
)
_dots = operator_function("row_dots", _row_dots, _dots_backward, _dots_setup)
for _name in ("gather_scatter", "row_dots"):
    refuse_vmap(_name, "gather_scatter")
