"""Softmax and logsumexp by index or by segment."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import torch

from clhist._core.spi import finished, reduce_mapped, row_kernels, takes_cuda
from clhist.operators import add
from clhist.operators.halves import number_of
from clhist.torch import host, operators
from clhist.torch.checks import check_empty, check_values, reproducibility
from clhist.torch.groups import by_groups, dimension_back, is_sorted
from clhist.torch.host import by_rows
from clhist.torch.operators import as_array, as_tensor
from clhist.torch.registration import like_first, map_rows, operator_function, register_operator, rows_of_bins
from clhist.torch.repeats import repeats
from clhist.torch.rows import reduce_rows


@repeats("dim_size", "ptr")
def softmax(
    src: torch.Tensor,
    index: torch.Tensor | None = None,
    ptr: torch.Tensor | None = None,
    dim_size: int | None = None,
    dim: int = 0,
    *,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Compute the softmax of the values of each group: `torch_geometric.utils.softmax`.

    Parameters
    ----------
    src : tensor of shape (..., N, ...)
        Values, N along `dim`: floats, of half precision as well.
    index : tensor of shape (N,) of integers, optional
        The group of each value. Values whose index is outside [0, `dim_size`) belong to no group: their result and
        gradient are 0.
    ptr : tensor of shape (S + 1,) of integers, optional
        Offsets of the groups, as of `segment`, in place of `index`. If both are passed, `ptr` is used.
    dim_size : int, optional
        Number of groups, as of `scatter`: `num_nodes` in PyTorch Geometric. Not with `ptr` alone.
    dim : int
        The dimension of `src` that is normalised.
    sorted : bool
        Whether `index` does not decrease, as of `scatter`. With `ptr` it does not.
    reproducible : bool, optional
        Whether sums are bitwise the same in any order of values, as of `scatter`.

    Returns
    -------
    tensor of the shape of `src`
        Of its dtype, on its device.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong.

    Notes
    -----
    The maximum of each group is subtracted first, so that no exponential overflows. Values of -infinity have a result
    of 0. As of `torch.softmax`, a group with a NaN, with +infinity or with nothing but -infinity has NaN.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> src = torch.ones(4)
    >>> clhist.torch.softmax(src, torch.tensor([0, 0, 1, 2]))
    tensor([0.5000, 0.5000, 1.0000, 1.0000])
    >>> clhist.torch.softmax(src, ptr=torch.tensor([0, 2, 3, 4]))
    tensor([0.5000, 0.5000, 1.0000, 1.0000])
    """
    check_values("src", src, "mean")
    is_same = reproducibility(reproducible, src.dtype)
    rows, index, size = by_groups(src, index, ptr, dim_size, dim)
    result = _of_groups(rows, index, size, is_same, is_sorted(sorted, ptr))
    return dimension_back(result, dim)


@repeats("dim_size", "ptr")
def logsumexp(
    src: torch.Tensor,
    index: torch.Tensor | None = None,
    ptr: torch.Tensor | None = None,
    dim_size: int | None = None,
    dim: int = 0,
    *,
    empty: float | None = 0,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Compute the logarithm of the sum of exponentials of each group: `torch_geometric.utils.segment_logsumexp`.

    Parameters
    ----------
    src, index, ptr, dim_size, dim, sorted, reproducible
        As of `softmax`.
    empty : float or None
        The result of groups without a value. Defaults to 0, as in PyTorch Geometric; None leaves -infinity.

    Returns
    -------
    tensor of shape (..., dim_size, ...)
        Of the dtype and on the device of `src`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong.

    Notes
    -----
    The gradient of a group goes to its values in proportion to their softmax.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> clhist.torch.logsumexp(torch.zeros(4), torch.tensor([0, 0, 0, 2]))
    tensor([1.0986, 0.0000, 0.0000])
    """
    check_values("src", src, "mean")
    is_same = reproducibility(reproducible, src.dtype)
    check_empty(empty, src.dtype)
    rows, index, size = by_groups(src, index, ptr, dim_size, dim)
    sums = _log_sums(rows, index, size, is_same, empty, is_sorted(sorted, ptr))
    return dimension_back(finished(sums, itemgetter(0)), dim)


@register_operator(
    "softmax(Tensor src, Tensor index, SymInt dim_size, bool reproducible, bool is_sorted=False) -> Tensor",
    like_first,
    host.softmax,
)
def _softmax(
    src: torch.Tensor, index: torch.Tensor, dim_size: int, reproducible: bool, is_sorted: bool = False
) -> torch.Tensor:
    # Without a group, all values are outside, whose softmax is 0.
    if not (src.numel() and dim_size):
        return torch.zeros_like(src, memory_format=torch.contiguous_format)
    shape = (dim_size, *src.shape[1:])
    return as_tensor(_normalised(as_array(src), as_array(index), shape, reproducible, is_sorted))


@takes_cuda
def _normalised(src: Any, indices: Any, shape: tuple[int, ...], reproducible: bool, is_sorted: bool) -> Any:
    """Return the softmax of rows; exponentials and sums of half precision are float32."""
    number = number_of(src.dtype)
    maxima = reduce_rows(shape, "max", indices, src, is_sorted=is_sorted)
    powers = row_kernels.exponentials(src, maxima, indices, number)
    sums = reduce_rows(shape, "sum", indices, powers, reproducible=reproducible, is_sorted=is_sorted)
    return row_kernels.quotients(powers, sums, indices, src.dtype)


@register_operator(
    "softmax_gradient(Tensor result, Tensor grad, Tensor index, SymInt dim_size, bool reproducible,"
    " bool is_sorted=False) -> Tensor",
    like_first,
    host.softmax_gradient,
)
def _softmax_gradient(
    result: torch.Tensor,
    grad: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    reproducible: bool,
    is_sorted: bool = False,
) -> torch.Tensor:
    if not (result.numel() and dim_size):
        return torch.zeros_like(result, memory_format=torch.contiguous_format)
    shape = (dim_size, *result.shape[1:])
    products = None
    # The reproducible sum takes an array; otherwise the kernel multiplies as it sums.
    if reproducible:
        wide = torch.promote_types(result.dtype, torch.float32)
        products = as_array(result.to(wide) * grad.to(wide))
    return as_tensor(_gradient_of(as_array(result), as_array(grad), as_array(index), shape, products, is_sorted))


@takes_cuda
def _gradient_of(result: Any, grad: Any, indices: Any, shape: tuple[int, ...], products: Any, is_sorted: bool) -> Any:
    """Return ``result * (grad - s)``, s being the sum of ``result * grad`` of each group."""
    number = number_of(result.dtype)
    if products is None:
        arrays = {"x": result, "y": grad}
        sums = reduce_mapped(shape, add(number), indices, "x[{element}] * y[{element}]", arrays, is_sorted=is_sorted)
    else:
        sums = reduce_rows(shape, "sum", indices, products, reproducible=True, is_sorted=is_sorted)
    return row_kernels.softmax_gradient(result, sums, indices, grad)


def _log_sums_shape(src: torch.Tensor, index: Any, dim_size: int, *_: Any) -> tuple[torch.Tensor, ...]:
    result, maxima = (rows_of_bins(src, index, dim_size) for _ in range(2))
    return result, maxima, result.new_empty(result.shape, dtype=torch.promote_types(src.dtype, torch.float32))


@register_operator(
    "log_sums(Tensor src, Tensor index, SymInt dim_size, bool reproducible, float? empty=None, bool is_sorted=False)"
    " -> (Tensor, Tensor, Tensor)",
    _log_sums_shape,
    host.log_sums,
)
def _log_sums_of(
    src: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    reproducible: bool,
    empty: float | None = None,
    is_sorted: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the logarithms of sums of exponentials, the maxima, and the sums of exponentials less the maximum."""
    shape, of_none = (dim_size, *src.shape[1:]), -torch.inf if empty is None else empty
    if 0 in (*shape, src.shape[0]):
        sums = src.new_zeros(shape, dtype=torch.promote_types(src.dtype, torch.float32))
        return src.new_full(shape, of_none), src.new_full(shape, -torch.inf), sums
    result: Any = _log_sums_and_parts(as_array(src), as_array(index), shape, reproducible, of_none, is_sorted)
    if not src.is_cuda:
        result = tuple(map(as_tensor, result))
    return result  # of CUDA as it is, which is recognised where it is repeated


@takes_cuda
def _log_sums_and_parts(
    src: Any, indices: Any, shape: tuple[int, ...], reproducible: bool, empty: float, is_sorted: bool
) -> tuple[Any, Any, Any]:
    maxima = reduce_rows(shape, "max", indices, src, is_sorted=is_sorted)
    powers = row_kernels.exponentials(src, maxima, indices, number_of(src.dtype))
    sums = reduce_rows(shape, "sum", indices, powers, reproducible=reproducible, is_sorted=is_sorted)
    return row_kernels.log_sums(sums, maxima, empty), maxima, sums


@register_operator(
    "log_sums_gradient(Tensor src, Tensor maxima, Tensor sums, Tensor index, Tensor grad) -> Tensor",
    like_first,
    host.log_sums_gradient,
)
def _log_sums_gradient(
    src: torch.Tensor, maxima: torch.Tensor, sums: torch.Tensor, index: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    if not (src.numel() and maxima.numel()):
        return torch.zeros_like(src, memory_format=torch.contiguous_format)
    return as_tensor(_log_sums_sloped(*map(as_array, (src, maxima, sums, index, grad))))


_log_sums_sloped = takes_cuda(row_kernels.log_sum_gradient)


def _softmax_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, index, *ctx.options = inputs
    ctx.save_for_backward(output, index)


def _softmax_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    result, index = ctx.saved_tensors
    return _gradient(result, grad.contiguous(), index, *ctx.options), *[None] * 4


def _gradient_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    result, grad, index, *ctx.options = inputs
    ctx.save_for_backward(result, grad, index)


def _gradient_backward(ctx: Any, second: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    result, grad, index = ctx.saved_tensors
    dim_size, is_same, is_sorted = ctx.options

    def summed(products: torch.Tensor) -> torch.Tensor:
        """Return the sum of the group of each row."""
        sums = operators.scatter(products, index, dim_size, "sum", is_same, None, is_sorted)
        return operators.gather(sums, index)

    # Rows of no group have no gradient, but a `second * grad` that need not be 0.
    is_inside = by_rows((index >= 0) & (index < dim_size), result)
    of_result = torch.where(is_inside, second * (grad - summed(result * grad)) - grad * summed(second * result), 0)
    return of_result, _gradient(result, second.contiguous(), index, *ctx.options), *[None] * 4


def _log_sums_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    src, index, dim_size, reproducible, _, is_sorted = inputs
    _, maxima, sums = output
    ctx.options = dim_size, reproducible, is_sorted
    ctx.mark_non_differentiable(maxima, sums)
    ctx.save_for_backward(src, index, maxima, sums)


def _log_sums_backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
    src, index, maxima, sums = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # a second gradient
        of_src = operators.gather(grad.contiguous(), index) * _of_groups(src, index, *ctx.options)
    else:
        of_src = _shares(src, maxima, sums, index, grad.contiguous())
    return of_src, *[None] * 5


_of_groups = operator_function("softmax", _softmax, _softmax_backward, _softmax_setup)
_gradient = operator_function("softmax_gradient", _softmax_gradient, _gradient_backward, _gradient_setup)
_log_sums = operator_function("log_sums", _log_sums_of, _log_sums_backward, _log_sums_setup)
map_rows("softmax", _of_groups, "softmax of")
map_rows("softmax_gradient", _gradient, "softmax_gradient of", (0, 1), 2)
_shares = operator_function("log_sums_gradient", _log_sums_gradient)
map_rows("log_sums", _log_sums, "log_sums of")
map_rows("log_sums_gradient", _shares, "log_sums_gradient of", (0, 1, 2, 4), 3)
