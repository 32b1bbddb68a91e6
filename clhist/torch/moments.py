"""Variances and standard deviations by index or by segment, and several reductions of one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

import clhist
from clhist._core.spi import reduce_mapped, row_kernels, takes_cuda
from clhist.operators import add
from clhist.operators.halves import number_of
from clhist.reduce import reduce_by_index
from clhist.torch import operators
from clhist.torch.checks import SPREADS, check_empty, check_values, reproducibility
from clhist.torch.groups import by_groups
from clhist.torch.operators import as_array, as_tensor, by_rows, divided
from clhist.torch.registration import operator_function, refuse_vmap, register_fake, register_operator

_WIDE = (torch.float32, torch.float64)  # dtypes of sums that a mean can be computed from


def var(
    src: torch.Tensor,
    index: torch.Tensor | None = None,
    ptr: torch.Tensor | None = None,
    dim_size: int | None = None,
    dim: int = 0,
    *,
    correction: int = 1,
    empty: float | None = 0,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Compute the variance of the values of each group: `torch.var` by index or by segment.

    Parameters
    ----------
    src, index, ptr, dim_size, dim, reproducible
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
    return _spread("var", src, index, ptr, dim_size, dim, correction, empty, reproducible)


def std(
    src: torch.Tensor,
    index: torch.Tensor | None = None,
    ptr: torch.Tensor | None = None,
    dim_size: int | None = None,
    dim: int = 0,
    *,
    correction: int = 1,
    empty: float | None = 0,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Compute the standard deviation of the values of each group: `torch_scatter.scatter_std`.

    Parameters
    ----------
    src, index, ptr, dim_size, dim, correction, empty, reproducible
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
    return _spread("std", src, index, ptr, dim_size, dim, correction, empty, reproducible)


def _spread(
    name: str,
    src: torch.Tensor,
    index: torch.Tensor | None,
    ptr: torch.Tensor | None,
    dim_size: int | None,
    dim: int,
    correction: int,
    empty: float | None,
    reproducible: bool | None,
) -> torch.Tensor:
    check_values("src", src, "mean")
    is_same = reproducibility(reproducible, src.dtype)
    check_empty(empty, src.dtype)
    if isinstance(correction, bool) or not isinstance(correction, int) or correction < 0:
        raise ValueError(f"correction: expected an int of at least 0, got {correction!r}")
    rows, index, size = by_groups(src, index, ptr, dim_size, dim)
    _, variance, counts = _moments(rows, index, size, correction, is_same)
    result = _with_empty(_finished(name, variance), counts, correction, empty)
    return result.movedim(0, dim) if dim else result


def reductions(
    rows: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    names: Sequence[str],
    reproducible: bool | None,
    empty: float | None,
) -> tuple[torch.Tensor, ...]:
    """Return several reductions by index of the rows of one tensor, which share sums, means and numbers of rows."""
    same = {name: reproducibility(reproducible, rows.dtype, name) for name in names}
    results: dict[str, torch.Tensor] = {}
    spreads = [name for name in SPREADS if name in same]
    if spreads:
        mean, variance, counts = _moments(rows, index, dim_size, 0, same[spreads[0]])
        results["mean"] = _with_empty(mean, counts, 0, empty)
        for name in spreads:
            results[name] = _with_empty(_finished(name, variance), counts, 0, empty)
    elif "sum" in same and "mean" in same and not same["sum"] and rows.dtype in _WIDE:
        results["sum"] = operators.scatter(rows, index, dim_size, "sum", False, empty)
        counts = operators.count(index, dim_size)
        number = by_rows(counts, results["sum"]).clamp(min=1).to(rows.dtype)
        results["mean"] = _with_empty(results["sum"] / number, counts, 0, empty)
    for name in names:
        if name not in results:
            results[name] = operators.scatter(rows, index, dim_size, name, same[name], empty)
    return tuple(results[name] for name in names)


def _finished(name: str, variance: torch.Tensor) -> torch.Tensor:
    """Return a variance or its square root, whose gradient is 0 where the variance is."""
    if name == "var":
        return variance
    is_zero = variance == 0
    return torch.where(is_zero, 0, torch.where(is_zero, 1, variance).sqrt())


def _with_empty(result: torch.Tensor, counts: torch.Tensor, correction: int, empty: float | None) -> torch.Tensor:
    """Return `result` with `empty` for groups of at most `correction` values."""
    return torch.where(by_rows(counts, result) > correction, result, torch.nan if empty is None else empty)


@register_operator(
    "moments(Tensor src, Tensor index, SymInt dim_size, int correction, bool reproducible) -> (Tensor, Tensor, Tensor)"
)
def _moments_of(
    src: torch.Tensor, index: torch.Tensor, dim_size: int, correction: int, reproducible: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return means and variances, NaN for groups with too few values, and the number of values of each group."""
    shape = (dim_size, *src.shape[1:])
    if 0 in (*shape, src.shape[0]):
        return src.new_full(shape, torch.nan), src.new_full(shape, torch.nan), operators.count(index, dim_size)
    if not reproducible and not correction and src.dtype in _WIDE:
        result: Any = _means_and_variances(as_array(src), as_array(index), shape)
        if not src.is_cuda:
            result = tuple(map(as_tensor, result))
        return result  # of CUDA as it is, which is recognised where it is repeated
    counts = operators.count(index, dim_size)
    rows, indices = as_array(src), as_array(index)
    means = _means(rows, indices, shape, reproducible)
    if reproducible:
        wide = torch.promote_types(src.dtype, torch.float32)
        deviations = src.to(wide) - operators.gather(as_tensor(means), index)
        squares = operators.scatter(deviations * deviations, index, dim_size, "sum", True)
    else:
        squares = as_tensor(_squares(rows, means, indices, shape))
    number = by_rows(counts - correction, squares)
    variances = torch.where(number > 0, squares / number.to(squares.dtype), torch.nan)
    return as_tensor(means).to(src.dtype), variances.to(src.dtype), counts


@takes_cuda
def _means(src: Any, indices: Any, shape: tuple[int, ...], reproducible: bool) -> Any:
    """Return means by index; those of half precision as float32."""
    dest: Any = shape if len(shape) > 1 else shape[0]
    number = number_of(src.dtype)
    if not reproducible:
        return reduce_by_index(dest, clhist.operators.mean(number), indices, src)
    sums = reduce_by_index(dest, add(number), indices, src, reproducible=True)
    return row_kernels.means(sums, reduce_by_index(shape[0], "count", indices, 1), number)


@takes_cuda
def _squares(src: Any, means: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """Return the sums of the squares of deviations from the mean."""
    deviation = f"(x[{{element}}] - mean[(long)indices[{{row}}] * {prod(shape[1:])} + {{component}}])"
    arrays = {"x": src, "mean": means}
    return reduce_mapped(shape, add(number_of(src.dtype)), indices, f"{deviation} * {deviation}", arrays)


@takes_cuda
def _means_and_variances(src: Any, indices: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return means, variances and numbers of rows in one call, which only launches where it is repeated."""
    means, counts = _means(src, indices, shape, False), reduce_by_index(shape[0], "count", indices, 1)
    return means, row_kernels.means(_squares(src, means, indices, shape), counts, src.dtype), counts


@register_fake("moments")
def _(
    src: torch.Tensor, index: torch.Tensor, dim_size: int, correction: int, reproducible: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = (dim_size, *src.shape[1:])
    return src.new_empty(shape), src.new_empty(shape), index.new_empty(dim_size, dtype=torch.int64)


@register_operator("moments_gradient(Tensor src, Tensor mean, Tensor index, Tensor slope, Tensor added) -> Tensor")
def _moments_gradient(
    src: torch.Tensor, mean: torch.Tensor, index: torch.Tensor, slope: torch.Tensor, added: torch.Tensor
) -> torch.Tensor:
    if not (src.numel() and mean.numel()):
        return torch.zeros_like(src, memory_format=torch.contiguous_format)
    return as_tensor(_sloped(*map(as_array, (src, mean, index, slope, added))))


_sloped = takes_cuda(row_kernels.moments_gradient)


@register_fake("moments_gradient")
def _(
    src: torch.Tensor, mean: torch.Tensor, index: torch.Tensor, slope: torch.Tensor, added: torch.Tensor
) -> torch.Tensor:
    return src.new_empty(src.shape)


def _moments_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    src, index, _, ctx.correction, _ = inputs
    mean, _, counts = output
    ctx.mark_non_differentiable(counts)
    ctx.save_for_backward(src, index, mean, counts)


def _moments_backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    src, index, mean, counts = ctx.saved_tensors
    of_mean, of_variance = (torch.zeros_like(mean) if grad is None else grad for grad in grads[:2])
    number = by_rows(counts, mean)
    has_spread = number > ctx.correction
    slope = torch.where(has_spread, divided(2 * of_variance, (number - ctx.correction).clamp(min=1)), 0)
    added = torch.where(number > 0, divided(of_mean, number.clamp(min=1)), 0)
    if torch.is_grad_enabled():  # a second gradient
        centred = src - operators.gather(mean, index)
        of_src = centred * operators.gather(slope, index) + operators.gather(added, index)
    else:
        of_src = _gradient(src, mean, index, slope.contiguous(), added.contiguous())
    return of_src, None, None, None, None


_moments = operator_function("moments", _moments_of, _moments_backward, _moments_setup)
_gradient = operator_function("moments_gradient", _moments_gradient)
for _name in ("moments", "moments_gradient"):
    refuse_vmap(_name, "a variance")
