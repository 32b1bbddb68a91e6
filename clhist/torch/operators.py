"""The operators of `torch.library`: what computes them, their shapes, and their gradients.

Those who call them have checked the arguments (`clhist.torch.functions`). Bins that an index does not name, outside
[0, dim_size), are nobody's: values with such are left out, and their gradient is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import clhist
from clhist._core.spi import finished, is_cuda, library, reduce_mapped, row_kernels, takes_cuda
from clhist.operators.halves import number_of
from clhist.torch import host
from clhist.torch.eager import direct
from clhist.torch.host import by_rows
from clhist.torch.registration import (
    map_rows,
    operator_function,
    refuse_vmap,
    register_gradient,
    register_operator,
    rows_by_index,
    rows_of_bins,
)
from clhist.torch.rows import combine_rows, count_rows, segments

_LIBRARY: Any = library("torch")


def as_array(tensor: torch.Tensor) -> Any:
    """Return a tensor as public functions take it: one of the CPU as NumPy's array of the same memory."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    # Kernels read contiguous memory; a tensor that is contiguous is not copied.
    return tensor.contiguous() if tensor.is_cuda else _LIBRARY.as_numpy(tensor.contiguous())


def as_tensor(array: Any) -> torch.Tensor:
    tensor: torch.Tensor = _LIBRARY.from_numpy(array) if isinstance(array, np.ndarray) else array
    return tensor


def divided(total: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return the quotients of `total`: of half precision, which has few integers, by way of float32."""
    wide = torch.promote_types(total.dtype, torch.float32)
    return (total.to(wide) / numbers.to(wide)).to(total.dtype)


@register_operator(
    "scatter(Tensor src, Tensor index, SymInt dim_size, str reduce, bool reproducible, float? empty=None, "
    "bool is_sorted=False) -> Tensor",
    rows_of_bins,
    host.scatter,
)
def _scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    reduce: str,
    reproducible: bool,
    empty: float | None = None,
    is_sorted: bool = False,
) -> torch.Tensor:
    shape = (dim_size, *src.shape[1:])
    if 0 in shape:
        return src.new_empty(shape)
    # The identity element is the result of an empty bin in any case.
    if empty == {"sum": 0, "prod": 1}.get(reduce):
        empty = None
    rows, indices = as_array(src), as_array(index)
    return as_tensor(_combined(shape, reduce, indices, rows, empty, reproducible=reproducible, is_sorted=is_sorted))


_combined = takes_cuda(combine_rows)
_counts = takes_cuda(count_rows)


def _count_shape(index: torch.Tensor, dim_size: int) -> torch.Tensor:
    return index.new_empty(dim_size, dtype=torch.int64)


@register_operator("count(Tensor index, SymInt dim_size) -> Tensor", _count_shape, host.count)
def _count(index: torch.Tensor, dim_size: int) -> torch.Tensor:
    if not dim_size:
        return index.new_empty(0, dtype=torch.int64)
    return as_tensor(_counts(as_array(index), dim_size))


def _bincount_shape(input: torch.Tensor, weights: torch.Tensor | None, *_: Any) -> torch.Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return input.new_empty(size, dtype=torch.int64 if weights is None else sum_dtype(weights))


@register_operator(
    "bincount(Tensor input, Tensor? weights, SymInt minlength, bool reproducible) -> Tensor", _bincount_shape
)
def _bincount(input: torch.Tensor, weights: torch.Tensor | None, minlength: int, reproducible: bool) -> torch.Tensor:
    dtype, values = (torch.int64, None) if weights is None else (sum_dtype(weights), as_array(weights))
    result: Any = clhist.bincount(as_array(input), values, minlength, reproducible=reproducible)
    return finished(result, lambda array: as_tensor(array).to(dtype))


def _segment_index_shape(ptr: torch.Tensor, size: int) -> torch.Tensor:
    return ptr.new_empty(size, dtype=torch.int32)


@register_operator("segment_index(Tensor ptr, SymInt size) -> Tensor", _segment_index_shape)
def _segment_index(ptr: torch.Tensor, size: int) -> torch.Tensor:
    # Offsets of CUDA are not checked: reading them on the host would wait for the device.
    if ptr.is_cuda:
        return as_tensor(segments(as_array(ptr), size)) if size else ptr.new_empty(0, dtype=torch.int32)
    ends = ptr.numpy().astype(np.int64)
    if len(ends) == 0 or ends[0] < 0 or ends[-1] > size or (ends[1:] < ends[:-1]).any():
        raise ValueError(f"ptr: expected numbers of elements that do not decrease, from 0 to {size} at most, got {ptr}")
    numbers = np.arange(-1, len(ends), dtype=np.int32)
    # Segments -1 and S, of the rows before the first offset and behind the last, are no bins either.
    # PyTorch's `repeat_interleave` takes 5 to 3,000 times as long.
    return torch.from_numpy(np.repeat(numbers, np.diff(ends, prepend=0, append=size)))


def _histogramdd_shape(
    columns: Sequence[torch.Tensor], bins: Any, range: Any, edges: Any, weight: torch.Tensor | None, _: Any
) -> list[torch.Tensor]:
    sizes = [array.shape[0] - 1 for array in edges] if edges else bins
    hist = columns[0].new_empty(tuple(sizes), dtype=hist_dtype(weight))
    return [hist, *(torch.empty(size + 1, dtype=torch.float64) for size in sizes)]


@register_operator(
    "histogramdd(Tensor[] columns, SymInt[] bins, float[] range, Tensor[] edges, Tensor? weight, bool reproducible)"
    " -> Tensor[]",
    _histogramdd_shape,
)
def _histogramdd(
    columns: Sequence[torch.Tensor],
    bins: Sequence[int],
    range: Sequence[float],
    edges: Sequence[torch.Tensor],
    weight: torch.Tensor | None,
    reproducible: bool,
) -> list[torch.Tensor]:
    # The thresholds of bins are computed on the host, so edges have to be there.
    by = [array.detach().cpu().numpy() for array in edges] if edges else list(bins)
    ends = list(zip(range[::2], range[1::2], strict=True)) or None
    dtype = hist_dtype(weight)
    options: dict[str, Any] = {"reproducible": reproducible}
    if weight is not None:
        options["weights"] = as_array(weight.to(dtype))
    if len(columns) == 1:
        result: Any = clhist.histogram(as_array(columns[0]), by[0], None if ends is None else ends[0], **options)
    else:
        result = clhist.histogramdd([as_array(column) for column in columns], by, ends, **options)
    return finished(result, partial(_hist_and_edges, dtype))


def _hist_and_edges(dtype: torch.dtype, result: tuple[Any, Any]) -> list[torch.Tensor]:
    hist, edges = result
    edges = [edges] if isinstance(edges, np.ndarray) else edges
    # Copies: the result of an operator may not alias its arguments, which these edges may be.
    arrays = [torch.from_numpy(np.array(array, np.float64)) for array in edges]
    return [as_tensor(hist).to(dtype).contiguous(), *arrays]


@register_operator("gather(Tensor table, Tensor index) -> Tensor", rows_by_index, host.gather)
def _gather(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    shape = (index.shape[0], *table.shape[1:])
    if 0 in (*shape, *table.shape):
        return table.new_zeros(shape)
    return as_tensor(_gathered(as_array(table), as_array(index)))


_gathered = takes_cuda(row_kernels.gather)


@register_operator(
    "scatter_gradient(Tensor grad, Tensor index, str reduce, Tensor? src, Tensor? result) -> Tensor",
    rows_by_index,
    host.scatter_gradient,
)
def _scatter_gradient(
    grad: torch.Tensor, index: torch.Tensor, reduce: str, src: torch.Tensor | None, result: torch.Tensor | None
) -> torch.Tensor:
    shape = (index.shape[0], *grad.shape[1:])
    if 0 in (*shape, *grad.shape):
        return grad.new_zeros(shape)
    values = () if src is None or result is None else (as_array(src), as_array(result))
    return as_tensor(_gradient(as_array(grad), as_array(index), reduce, *values))


@takes_cuda
def _gradient(grad: Any, indices: Any, reduce: str, *values: Any) -> Any:
    """Return the gradient of each row of a sum, a mean, a minimum or a maximum, from that of its bin."""
    if reduce == "sum":
        return row_kernels.gather(grad, indices)
    if reduce == "mean":
        counts = count_rows(indices, grad.shape[0])
        if is_cuda(grad) or grad.shape[0] > indices.size:
            return row_kernels.mean_gradient(grad, indices, counts)
        # Bins are fewer: a CPU divides their gradients sooner than those of all rows.
        return row_kernels.gather(row_kernels.means(grad, counts, grad.dtype), indices)
    src, extremes = values
    # A GPU counts ties by atomics, since few values equal the extreme; a CPU sums them over all rows.
    if is_cuda(src):
        return row_kernels.extreme_gradient_by_ties(src, extremes, indices, grad)
    winners = reduce_mapped(grad.shape, _WINNERS, indices, _is_winner(src, extremes), {"x": src, "best": extremes})
    return row_kernels.extreme_gradient(src, extremes, indices, grad, winners)


_WINNERS = clhist.operators.add(np.int32)


def _is_winner(src: Any, extremes: Any) -> str:
    """Return C of whether a component of a row is the extreme of its bin, as a NaN is of a bin with one."""
    best = f"best[(long)indices[{{row}}] * {extremes.size // extremes.shape[0]} + {{component}}]"
    won = f"x[{{element}}] == {best}"
    has_nan = number_of(src.dtype).kind == "f"
    return f"({won} || (x[{{element}}] != x[{{element}}] && {best} != {best}))" if has_nan else f"({won})"


def sum_dtype(weights: torch.Tensor) -> torch.dtype:
    """Return the dtype of sums of weights: that of floats, float64 of others."""
    return weights.dtype if weights.dtype.is_floating_point else torch.float64


def hist_dtype(weight: torch.Tensor | None) -> torch.dtype:
    """Return the dtype of a histogram."""
    return torch.int64 if weight is None else sum_dtype(weight)


def _scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, index, ctx.dim_size, ctx.reduce, *_ = inputs
    # The gradients of sums and means depend on the index alone, so values need not stay in memory.
    needs_values = ctx.reduce in ("min", "max", "prod")
    ctx.save_for_backward(index, *((src, output) if needs_values else ()))


def _scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    index, *values = ctx.saved_tensors
    if ctx.reduce == "prod":
        return _of_products(grad, index, *values), *[None] * 6
    # Only the gradient of the bins is differentiable again.
    if torch.is_grad_enabled():
        values = [tensor.detach() for tensor in values]
    src, result = values or (None, None)
    return scatter_gradient(grad.contiguous(), index, ctx.reduce, src, result), *[None] * 6


def _gradient_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    grad, index, ctx.reduce, *values = inputs
    ctx.dim_size = grad.shape[0]
    ctx.save_for_backward(index, *(tensor for tensor in values if tensor is not None))


def _gradient_backward(ctx: Any, second: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradient with respect to that of the bins, which is linear in it."""
    index, *values = ctx.saved_tensors
    if ctx.reduce in ("min", "max"):
        # Equal extremes share the gradient, so its gradient is divided by their number.
        second, number = _of_winners(second, index, ctx.dim_size, *values)
    sums = scatter(second, index, ctx.dim_size, "sum", False)
    if ctx.reduce == "mean":
        number = by_rows(count(index, ctx.dim_size), sums)
    if ctx.reduce != "sum":
        # A bin without values has the sum 0; the clamp prevents 0 / 0.
        sums = divided(sums, number.clamp(min=1))
    return sums, None, None, None, None


def _of_winners(
    second: torch.Tensor, index: torch.Tensor, dim_size: int, src: torch.Tensor, extremes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `second` where a value is the extreme of its bin, otherwise 0; and how many values of each bin are."""
    best = gather(extremes, index)
    won = (src == best) | (src.isnan() & best.isnan())
    return torch.where(won, second, 0), scatter(won.to(torch.int32), index, dim_size, "sum", False)


def _gather_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    table, index = inputs
    ctx.dim_size = table.shape[0]
    ctx.save_for_backward(index)


def _gather_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (index,) = ctx.saved_tensors
    return scatter(grad, index, ctx.dim_size, "sum", False), None


def _of_products(grad: torch.Tensor, index: torch.Tensor, src: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
    """Return the gradient of products: the product of a bin's other values, also where some are zero."""
    is_zero = src == 0
    zeros = scatter(is_zero.to(torch.int32), index, grad.shape[0], "sum", False)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling() and bool(zeros.any()):
        raise RuntimeError("src: a second gradient of products is defined only where no value is zero")
    # The product of the nonzero values, divided by the row's own; a zero counts as 1.
    nonzero = torch.where(is_zero, 1, src)
    others = gather(grad * scatter(nonzero, index, grad.shape[0], "prod", False), index) / nonzero
    # One zero in a bin leaves a gradient to that zero alone, two leave none.
    return torch.where(gather(zeros, index) == is_zero.to(torch.int32), others, 0)


def _bincount_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _bincount_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (input,) = ctx.saved_tensors
    return None, gather(grad.contiguous(), input), None, None


def _histogramdd_setup(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    columns, bins, range, edges, _, _ = inputs
    ctx.columns = len(columns)
    # PyTorch takes an empty list for one of tensors, each of which has a gradient.
    ctx.none = None if bins else [], None if range else [], [None] * len(edges)
    ctx.save_for_backward(*columns, *output[1:])


def _histogramdd_backward(ctx: Any, grads: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    saved, grad = ctx.saved_tensors, grads[0]
    columns, edges = saved[: ctx.columns], saved[ctx.columns :]
    index = torch.zeros_like(columns[0], dtype=torch.int64)
    inside = torch.ones_like(columns[0], dtype=torch.bool)
    for column, axis_edges in zip(columns, edges, strict=True):
        numbers, bounds = column.to(torch.float64), axis_edges.to(column.device)
        # NaN compares false, so its weight has no gradient.
        inside = inside & (numbers >= bounds[0]) & (numbers <= bounds[-1])
        # Not of a part of the bounds: of such, Inductor (PyTorch 2.11) takes the beginning of the whole.
        bins = axis_edges.shape[0] - 1
        index = index * bins + (torch.bucketize(numbers, bounds, right=True) - 1).clamp(0, bins - 1)
    # Index -1 gathers a gradient of 0.
    of_weight = gather(grad.reshape(-1), torch.where(inside, index, -1))
    return [None] * ctx.columns, *ctx.none, of_weight, None


scatter = operator_function("scatter", _scatter, _scatter_backward, _scatter_setup, host.sums)
scatter_gradient = operator_function("scatter_gradient", _scatter_gradient, _gradient_backward, _gradient_setup)
gather = operator_function("gather", _gather, _gather_backward, _gather_setup, host.gather)
bincount = operator_function("bincount", _bincount, _bincount_backward, _bincount_setup)
count = operator_function("count", _count)
segment_index = direct(torch.ops.clhist.segment_index.default, _segment_index)
register_gradient("histogramdd", _histogramdd_backward, _histogramdd_setup)
# Lists of tensors have a gradient by the dispatcher alone.
histogramdd = direct(torch.ops.clhist.histogramdd.default, _histogramdd)
map_rows("scatter", scatter, "scatter of")
map_rows("gather", gather, "a gradient by")
map_rows("scatter_gradient", scatter_gradient, "a gradient by", (0, 3, 4))
for _refused, _words in (("count", "a count"), ("bincount", "bincount"), ("segment_index", "a batch of offsets")):
    refuse_vmap(_refused, _words)
refuse_vmap("histogramdd", "a histogram")
