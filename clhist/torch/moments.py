"""Variances and standard deviations by index or by segment, and several reductions of one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import itemgetter
from typing import Any

import torch

from clhist._core.spi import finished, reduce_mapped, row_kernels, takes_cuda
from clhist.operators import add
from clhist.operators.halves import number_of
from clhist.torch import host, operators
from clhist.torch.checks import SPREADS, check_empty, check_values, reproducibility
from clhist.torch.groups import by_groups, dimension_back, is_sorted
from clhist.torch.host import by_rows
from clhist.torch.operators import as_array, as_tensor, divided
from clhist.torch.registration import (
    like_first,
    operator_function,
    refuse_vmap,
    register_operator,
    rows_of_bins,
)
from clhist.torch.repeats import repeats
from clhist.torch.rows import combine_rows, count_rows

_WIDE = (torch.float32, torch.float64)  # dtypes of sums that a mean can be computed from


@repeats("dim_size", "ptr")
def var(
    src: torch.Tensor,
    index: torch.Tensor | None = None,
    ptr: torch.Tensor | None = None,
    dim_size: int | None = None,
    dim: int = 0,
    *,
    correction: int = 1,
    empty: float | None = 0,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Compute the variance of the values of each group: `torch.var` by index or by segment.

    Parameters
    ----------
    src, index, ptr, dim_size, dim, sorted, reproducible
        As of `softmax`.
    correction : int
        The squares of deviations are divided by the number of values less this, as in `torch.var`.
    empty : float or None
        The result of groups with at most `correction` values. Defaults to 0; None leaves NaN.

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
    The mean is computed first, then the squares of the deviations from it: a common offset cancels no digits.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> clhist.torch.var(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    tensor([2., 0.])
    """
    return _spread("var", src, index, ptr, dim_size, dim, correction, empty, sorted, reproducible)


@repeats("dim_size", "ptr")
def std(
    src: torch.Tensor,
    index: torch.Tensor | None = None,
    ptr: torch.Tensor | None = None,
    dim_size: int | None = None,
    dim: int = 0,
    *,
    correction: int = 1,
    empty: float | None = 0,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Compute the standard deviation of the values of each group: `torch_scatter.scatter_std`.

    Parameters
    ----------
    src, index, ptr, dim_size, dim, correction, empty, sorted, reproducible
        As of `var`.

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
    Where all values of a group are equal, the gradient is 0.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> clhist.torch.std(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), correction=0)
    tensor([1., 0.])
    """
    return _spread("std", src, index, ptr, dim_size, dim, correction, empty, sorted, reproducible)


def _spread(
    name: str,
    src: torch.Tensor,
    index: torch.Tensor | None,
    ptr: torch.Tensor | None,
    dim_size: int | None,
    dim: int,
    correction: int,
    empty: float | None,
    sorted: bool,
    reproducible: bool | None,
) -> torch.Tensor:
    check_values("src", src, "mean")
    is_same = reproducibility(reproducible, src.dtype)
    check_empty(empty, src.dtype)
    if isinstance(correction, bool) or not isinstance(correction, int) or correction < 0:
        raise ValueError(f"correction: expected an int of at least 0, got {correction!r}")
    rows, index, size = by_groups(src, index, ptr, dim_size, dim)
    options = size, correction, is_same, is_sorted(sorted, ptr)
    # The operator `moments` has exact sums, and means of float32 for half precision.
    if is_same or src.dtype not in _WIDE:
        result = _by_moments(rows, index, options, name, empty)
    else:
        # Deviations from the mean add up to 0, so the mean has no part in the gradient.
        with torch.no_grad():
            mean = operators.scatter(rows, index, size, "mean", False, None, options[3])
        spreads = _spreads(rows, mean, index, correction, name == "std", empty, options[3])
        result = finished(spreads, itemgetter(0))
    return dimension_back(result, dim)


def _by_moments(
    rows: torch.Tensor, index: torch.Tensor, options: tuple[int, int, bool, bool], name: str, empty: float | None
) -> torch.Tensor:
    """Return variances or standard deviations from moments; `options` are those of the operator."""
    _, variance, counts = _moments(rows, index, *options)
    return _with_empty(_finished(name, variance), counts, options[1], empty)


def reductions(
    rows: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    names: Sequence[str],
    reproducible: bool | None,
    empty: float | None,
    is_sorted: bool,
) -> tuple[torch.Tensor, ...]:
    """Return several reductions by index of the rows of one tensor, which share sums, means and numbers of rows."""
    same = {name: reproducibility(reproducible, rows.dtype, name) for name in names}
    results: dict[str, torch.Tensor] = {}
    # Names that share sums, means or counts are computed together; those left over one by one.
    spreads = [name for name in SPREADS if name in same]
    if spreads and not same[spreads[0]] and rows.dtype in _WIDE:
        # With the sums at hand, the means are only a division.
        if "sum" in same:
            results["sum"], mean, counts = _sums_and_means(rows, index, dim_size, empty, is_sorted)
            results["mean"] = _with_empty(mean, counts, 0, empty)
        else:
            mean = results["mean"] = operators.scatter(rows, index, dim_size, "mean", False, empty, is_sorted)
        for name in spreads:
            results[name], _ = _spreads(rows, mean.detach(), index, 0, name == "std", empty, is_sorted)
    elif spreads:
        # The operator `moments` has exact sums, and means of float32 for half precision.
        mean, variance, counts = _moments(rows, index, dim_size, 0, same[spreads[0]], is_sorted)
        results["mean"] = _with_empty(mean, counts, 0, empty)
        for name in spreads:
            results[name] = _with_empty(_finished(name, variance), counts, 0, empty)
    elif "sum" in same and "mean" in same and not same["sum"] and rows.dtype in _WIDE:
        results["sum"], mean, counts = _sums_and_means(rows, index, dim_size, empty, is_sorted)
        results["mean"] = _with_empty(mean, counts, 0, empty)
    for name in names:
        if name not in results:
            results[name] = operators.scatter(rows, index, dim_size, name, same[name], empty, is_sorted)
    return tuple(results[name] for name in names)


def _sums_and_means(
    rows: torch.Tensor, index: torch.Tensor, dim_size: int, empty: float | None, is_sorted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return sums, their quotients by the number of values of each group, and these numbers."""
    sums = operators.scatter(rows, index, dim_size, "sum", False, empty, is_sorted)
    counts = operators.count(index, dim_size)
    # The clamp prevents 0 / 0 for empty groups, whose mean the caller replaces.
    return sums, sums / by_rows(counts, sums).clamp(min=1).to(rows.dtype), counts


def _finished(name: str, variance: torch.Tensor) -> torch.Tensor:
    """Return a variance or its square root, whose gradient is 0 where the variance is."""
    if name == "var":
        return variance
    # The inner `where` keeps the infinite slope of sqrt at 0 out of the graph: times 0 it would be NaN.
    is_zero = variance == 0
    return torch.where(is_zero, 0, torch.where(is_zero, 1, variance).sqrt())


def _with_empty(result: torch.Tensor, counts: torch.Tensor, correction: int, empty: float | None) -> torch.Tensor:
    """Return `result` with `empty` for groups of at most `correction` values."""
    return torch.where(by_rows(counts, result) > correction, result, torch.nan if empty is None else empty)


def _moments_shape(src: torch.Tensor, index: torch.Tensor, dim_size: int, *_: Any) -> tuple[torch.Tensor, ...]:
    mean, variance = (rows_of_bins(src, index, dim_size) for _ in range(2))
    return mean, variance, index.new_empty(dim_size, dtype=torch.int64)


@register_operator(
    "moments(Tensor src, Tensor index, SymInt dim_size, int correction, bool reproducible, bool is_sorted=False) -> "
    "(Tensor, Tensor, Tensor)",
    _moments_shape,
)
def _moments_of(
    src: torch.Tensor, index: torch.Tensor, dim_size: int, correction: int, reproducible: bool, is_sorted: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return means and variances, NaN for groups with too few values, and the number of values of each group."""
    shape = (dim_size, *src.shape[1:])
    if 0 in (*shape, src.shape[0]):
        return src.new_full(shape, torch.nan), src.new_full(shape, torch.nan), operators.count(index, dim_size)
    # The common case is one call, which CUDA may repeat by its launches alone.
    if not reproducible and not correction and src.dtype in _WIDE:
        result: Any = _means_and_variances(as_array(src), as_array(index), shape, is_sorted)
        if not src.is_cuda:
            result = tuple(map(as_tensor, result))
        return result  # of CUDA as it is, which is recognised where it is repeated
    counts = operators.count(index, dim_size)
    rows, indices = as_array(src), as_array(index)
    means = _means(rows, indices, shape, reproducible, is_sorted)
    # The reproducible sum takes an array of values, so the squares of deviations are stored.
    if reproducible:
        wide = torch.promote_types(src.dtype, torch.float32)
        deviations = src.to(wide) - operators.gather(as_tensor(means), index)
        squares = operators.scatter(deviations * deviations, index, dim_size, "sum", True, None, is_sorted)
    else:
        squares = as_tensor(_squares(rows, means, indices, shape, is_sorted))
    # Groups with too few values have no variance: NaN, also where the divisor is negative.
    number = by_rows(counts - correction, squares)
    variances = torch.where(number > 0, squares / number.to(squares.dtype), torch.nan)
    return as_tensor(means).to(src.dtype), variances.to(src.dtype), counts


@takes_cuda
def _means(src: Any, indices: Any, shape: tuple[int, ...], reproducible: bool, is_sorted: bool) -> Any:
    """Return means by index; those of half precision as float32."""
    options: dict[str, Any] = {"reproducible": reproducible, "is_sorted": is_sorted}
    return combine_rows(shape, "mean", indices, src, None, dtype=number_of(src.dtype), **options)


@takes_cuda
def _squares(src: Any, means: Any, indices: Any, shape: tuple[int, ...], is_sorted: bool) -> Any:
    """Return the sums of the squares of deviations from the mean."""
    deviation = f"(x[{{element}}] - mean[(long)indices[{{row}}] * {prod(shape[1:])} + {{component}}])"
    arrays = {"x": src, "mean": means}
    value = f"{deviation} * {deviation}"
    return reduce_mapped(shape, add(number_of(src.dtype)), indices, value, arrays, is_sorted=is_sorted)


@takes_cuda
def _means_and_variances(src: Any, indices: Any, shape: tuple[int, ...], is_sorted: bool) -> tuple[Any, Any, Any]:
    """Return means, variances and numbers of rows in one call, which only launches where it is repeated."""
    means, counts = _means(src, indices, shape, False, is_sorted), count_rows(indices, shape[0])
    squares = _squares(src, means, indices, shape, is_sorted)
    return means, row_kernels.means(squares, counts, src.dtype), counts


def _spread_shape(src: Any, mean: torch.Tensor, index: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return mean.new_empty(mean.shape), index.new_empty(mean.shape[0], dtype=torch.int64)


@register_operator(
    "spread(Tensor src, Tensor mean, Tensor index, int correction, bool is_root, float? empty, bool is_sorted=False)"
    " -> (Tensor, Tensor)",
    _spread_shape,
    host.spread,
)
def _spread_of(
    src: torch.Tensor,
    mean: torch.Tensor,
    index: torch.Tensor,
    correction: int,
    is_root: bool,
    empty: float | None,
    is_sorted: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return variances or their roots of float32 or float64 by means, and the number of values of each group."""
    of_none = torch.nan if empty is None else empty
    if not (src.numel() and mean.numel()):
        return torch.full_like(mean, of_none), operators.count(index, mean.shape[0])
    rows, means, indices = as_array(src), as_array(mean), as_array(index)
    result: Any = _spreads_and_counts(rows, means, indices, correction, is_root, of_none, is_sorted)
    if not src.is_cuda:
        result = tuple(map(as_tensor, result))
    return result  # of CUDA as it is, which is recognised where it is repeated


@takes_cuda
def _spreads_and_counts(
    src: Any, means: Any, indices: Any, correction: int, is_root: bool, empty: float, is_sorted: bool
) -> tuple[Any, Any]:
    counts = count_rows(indices, means.shape[0])
    squares = _squares(src, means, indices, means.shape, is_sorted)
    return row_kernels.spreads(squares, counts, correction, empty, is_root=is_root), counts


@register_operator(
    "spread_gradient(Tensor src, Tensor mean, Tensor spread, Tensor index, Tensor grad, Tensor counts, int correction,"
    " bool is_root) -> Tensor",
    like_first,
    host.spread_gradient,
)
def _spread_gradient(
    src: torch.Tensor,
    mean: torch.Tensor,
    spread: torch.Tensor,
    index: torch.Tensor,
    grad: torch.Tensor,
    counts: torch.Tensor,
    correction: int,
    is_root: bool,
) -> torch.Tensor:
    if not (src.numel() and mean.numel()):
        return torch.zeros_like(src, memory_format=torch.contiguous_format)
    rows, means, spreads, indices, gradient, numbers = map(as_array, (src, mean, spread, index, grad, counts))
    return as_tensor(_spread_sloped(rows, means, spreads, indices, gradient, numbers, correction, is_root=is_root))


_spread_sloped = takes_cuda(row_kernels.spread_gradient)


@register_operator(
    "moments_gradient(Tensor src, Tensor mean, Tensor index, Tensor slope, Tensor added) -> Tensor", like_first
)
def _moments_gradient(
    src: torch.Tensor, mean: torch.Tensor, index: torch.Tensor, slope: torch.Tensor, added: torch.Tensor
) -> torch.Tensor:
    if not (src.numel() and mean.numel()):
        return torch.zeros_like(src, memory_format=torch.contiguous_format)
    return as_tensor(_sloped(*map(as_array, (src, mean, index, slope, added))))


_sloped = takes_cuda(row_kernels.moments_gradient)


def _moments_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    src, index, _, ctx.correction, *_ = inputs
    mean, _, counts = output
    ctx.mark_non_differentiable(counts)
    ctx.save_for_backward(src, index, mean, counts)


def _moments_backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    src, index, mean, counts = ctx.saved_tensors
    of_mean, of_variance = (torch.zeros_like(mean) if grad is None else grad for grad in grads[:2])
    number = by_rows(counts, mean)
    has_spread = number > ctx.correction
    # For each value of a group: dvariance/dx = 2 (x - mean) / (n - correction), and dmean/dx = 1 / n.
    slope = torch.where(has_spread, divided(2 * of_variance, (number - ctx.correction).clamp(min=1)), 0)
    added = torch.where(number > 0, divided(of_mean, number.clamp(min=1)), 0)
    if torch.is_grad_enabled():  # a second gradient
        centred = src - operators.gather(mean, index)
        of_src = centred * operators.gather(slope, index) + operators.gather(added, index)
    else:
        # One kernel in the place of three gathers, which has no gradient itself.
        of_src = _gradient(src, mean, index, slope.contiguous(), added.contiguous())
    return of_src, *[None] * 5


def _spread_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    src, mean, index, *ctx.options = inputs
    spread, counts = output
    ctx.mark_non_differentiable(counts)
    ctx.save_for_backward(src, mean, index, spread, counts)


def _spread_backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
    src, mean, index, spread, counts = ctx.saved_tensors
    correction, is_root, empty, is_sorted = ctx.options
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # a second gradient
        # Differentiate the variance by moments instead, whose gradient has a gradient.
        options = mean.shape[0], correction, False, is_sorted
        again = _by_moments(src, index, options, "std" if is_root else "var", empty)
        (of_src,) = torch.autograd.grad(again, src, grad, create_graph=True)
    else:
        of_src = _slopes(src, mean, spread.detach(), index, grad.contiguous(), counts, correction, is_root)
    return of_src, *[None] * 6


_spreads = operator_function("spread", _spread_of, _spread_backward, _spread_setup)
_slopes = operator_function("spread_gradient", _spread_gradient)
_moments = operator_function("moments", _moments_of, _moments_backward, _moments_setup)
_gradient = operator_function("moments_gradient", _moments_gradient)
for _name in ("moments", "moments_gradient", "spread", "spread_gradient"):
    refuse_vmap(_name, "a variance")
