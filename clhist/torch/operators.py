"""The operators of `torch.library`: what computes them, their shapes, and their gradients.

Those who call them have checked the arguments (`clhist.torch.functions`). Bins that an index does not name, outside
[0, dim_size), are nobody's: values with such are left out, and their gradient is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import clhist
from clhist.cuda.libraries import library

_LIBRARY: Any = library("torch")


def _array(tensor: torch.Tensor) -> Any:
    """Return a tensor as public functions take it: one of the CPU as NumPy's array of the same memory."""
    tensor = tensor.detach()
    return tensor.contiguous() if tensor.is_cuda else _LIBRARY.as_numpy(tensor)


def _tensor(array: Any) -> torch.Tensor:
    found: torch.Tensor = _LIBRARY.from_numpy(array) if isinstance(array, np.ndarray) else array
    return found


def _divided(total: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return the quotients of `total`: of half precision, which has few integers, by way of float32."""
    wide = torch.promote_types(total.dtype, torch.float32)
    return (total.to(wide) / numbers.to(wide)).to(total.dtype)


@torch.library.custom_op("clhist::scatter", mutates_args=())
def scatter(src: torch.Tensor, index: torch.Tensor, dim_size: int, reduce: str, reproducible: bool) -> torch.Tensor:
    """Combine the rows of `src` by index."""
    shape = (dim_size, *src.shape[1:])
    if 0 in shape:
        return src.new_empty(shape)
    if reproducible and reduce == "mean":  # exact sums, each divided once
        wide = torch.promote_types(src.dtype, torch.float32)
        zeros = src.new_zeros(shape, dtype=wide)
        total = _tensor(clhist.reduce_by_index(_array(zeros), "sum", _array(index), _array(src), reproducible=True))
        return _divided(total, _by_rows(count(index, dim_size), total)).to(src.dtype)
    dest: Any = shape if src.dim() > 1 else dim_size
    operator: Any = reduce
    # Sums and products of narrow types would be wider by default; PyTorch Geometric's have the dtype of `src`.
    is_narrow = src.element_size() < (4 if src.is_floating_point() else 8) and reduce in ("sum", "prod")
    more: dict[str, Any] = {"dtype": _LIBRARY.numpy_dtype(src)} if is_narrow else {}
    return _tensor(
        clhist.reduce_by_index(dest, operator, _array(index), _array(src), reproducible=reproducible, **more)
    )


@scatter.register_fake
def _(src: torch.Tensor, index: torch.Tensor, dim_size: int, reduce: str, reproducible: bool) -> torch.Tensor:
    return src.new_empty((dim_size, *src.shape[1:]))


@torch.library.custom_op("clhist::count", mutates_args=())
def count(index: torch.Tensor, dim_size: int) -> torch.Tensor:
    """Count the indices."""
    if not dim_size:
        return index.new_empty(0, dtype=torch.int64)
    return _tensor(clhist.reduce_by_index(dim_size, "count", _array(index), 1)).to(torch.int64)


@count.register_fake
def _(index: torch.Tensor, dim_size: int) -> torch.Tensor:
    return index.new_empty(dim_size, dtype=torch.int64)


@torch.library.custom_op("clhist::bincount", mutates_args=())
def bincount(input: torch.Tensor, weights: torch.Tensor | None, minlength: int, reproducible: bool) -> torch.Tensor:
    """Count the indices, or sum their weights, into as many bins as there are indices."""
    if weights is None:
        return _tensor(clhist.bincount(_array(input), minlength=minlength)).to(torch.int64)
    found = _tensor(clhist.bincount(_array(input), _array(weights), minlength, reproducible=reproducible))
    return found.to(sum_dtype(weights))


@bincount.register_fake
def _(input: torch.Tensor, weights: torch.Tensor | None, minlength: int, reproducible: bool) -> torch.Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return input.new_empty(size, dtype=torch.int64 if weights is None else sum_dtype(weights))


@torch.library.custom_op("clhist::segment_index", mutates_args=())
def segment_index(ptr: torch.Tensor, size: int) -> torch.Tensor:
    """Return the segment of each of `size` elements, -1 for those before the first and len(ptr) - 1 behind the last."""
    ends = ptr.cpu().numpy().astype(np.int64)
    if len(ends) == 0 or ends[0] < 0 or ends[-1] > size or (ends[1:] < ends[:-1]).any():
        raise ValueError(f"ptr: expected numbers of elements that do not decrease, from 0 to {size} at most, got {ptr}")
    segments = torch.arange(-1, len(ends), dtype=torch.int32, device=ptr.device)
    repeats = torch.from_numpy(np.diff(ends, prepend=0, append=size)).to(ptr.device)
    return torch.repeat_interleave(segments, repeats, output_size=size)


@segment_index.register_fake
def _(ptr: torch.Tensor, size: int) -> torch.Tensor:
    return ptr.new_empty(size, dtype=torch.int32)


@torch.library.custom_op("clhist::histogramdd", mutates_args=())
def histogramdd(
    columns: Sequence[torch.Tensor],
    bins: Sequence[int],
    range: Sequence[float],
    edges: Sequence[torch.Tensor],
    weight: torch.Tensor | None,
    reproducible: bool,
) -> list[torch.Tensor]:
    """Count points by bins, or sum their weights; the edges, on the host, follow.

    There are either numbers of `bins`, perhaps with the ends of their `range`, or all `edges`.
    """
    by = [each.detach().cpu().numpy() for each in edges] if edges else list(bins)
    ends = list(zip(range[::2], range[1::2], strict=True)) or None
    dtype = hist_dtype(weight)
    options: dict[str, Any] = {"reproducible": reproducible}
    if weight is not None:
        options["weights"] = _array(weight.to(dtype))
    found: Any
    if len(columns) == 1:
        hist, last = clhist.histogram(_array(columns[0]), by[0], None if ends is None else ends[0], **options)
        found = (last,)
    else:
        hist, found = clhist.histogramdd([_array(each) for each in columns], by, ends, **options)
    return [_tensor(hist).to(dtype).contiguous(), *(torch.from_numpy(np.array(each, np.float64)) for each in found)]


@histogramdd.register_fake
def _(
    columns: Sequence[torch.Tensor],
    bins: Sequence[int],
    range: Sequence[float],
    edges: Sequence[torch.Tensor],
    weight: torch.Tensor | None,
    reproducible: bool,
) -> list[torch.Tensor]:
    sizes = [each.shape[0] - 1 for each in edges] if edges else bins
    hist = columns[0].new_empty(tuple(sizes), dtype=hist_dtype(weight))
    return [hist, *(torch.empty(size + 1, dtype=torch.float64) for size in sizes)]


def sum_dtype(weights: torch.Tensor) -> torch.dtype:
    """Return the dtype of sums of weights: that of floats, float64 of others."""
    return weights.dtype if weights.dtype.is_floating_point else torch.float64


def hist_dtype(weight: torch.Tensor | None) -> torch.dtype:
    """Return the dtype of a histogram."""
    return torch.int64 if weight is None else sum_dtype(weight)


def _by_rows(of_rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one number for each row of `like` in a shape that broadcasts to it."""
    return of_rows.reshape(-1, *[1] * (like.dim() - 1))


def gathered(bins: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return for each index its row of `bins`, zeros for those outside."""
    index, size = index.to(torch.int64), bins.shape[0]
    nothing = bins.new_zeros(1, *bins.shape[1:])
    return torch.cat([bins, nothing]).index_select(0, torch.where((index >= 0) & (index < size), index, size))


def _scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, index, ctx.dim_size, ctx.reduce, ctx.reproducible = inputs
    needs_values = ctx.reduce in ("min", "max", "prod")
    ctx.save_for_backward(index, *((src, output) if needs_values else ()))


def _scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    index, *values = ctx.saved_tensors
    if ctx.reduce == "mean":
        grad = _divided(grad, _by_rows(count(index, ctx.dim_size).clamp(min=1), grad))
    if ctx.reduce in ("min", "max"):
        found = _of_winners(grad, index, *values)
    elif ctx.reduce == "prod":
        found = _of_products(grad, index, *values)
    else:
        found = gathered(grad, index)
    return found, None, None, None, None


def _of_winners(grad: torch.Tensor, index: torch.Tensor, src: torch.Tensor, extremes: torch.Tensor) -> torch.Tensor:
    """Return the gradient of minima or maxima: that of a bin, in equal parts to the values that are its extreme."""
    best = gathered(extremes.detach(), index)
    won = (src == best) | (src.isnan() & best.isnan())
    winners = scatter(won.to(torch.int32), index, grad.shape[0], "sum", False).clamp(min=1)
    return torch.where(won, gathered(_divided(grad, winners), index), 0)


def _of_products(grad: torch.Tensor, index: torch.Tensor, src: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
    """Return the gradient of products: the product of a bin's other values, also where some are zero."""
    is_zero = src == 0
    zeros = scatter(is_zero.to(torch.int32), index, grad.shape[0], "sum", False)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling() and bool(zeros.any()):
        raise RuntimeError("src: a second gradient of products is defined only where no value is zero")
    nonzero = torch.where(is_zero, 1, src)
    others = gathered(grad * scatter(nonzero, index, grad.shape[0], "prod", False), index) / nonzero
    return torch.where(gathered(zeros, index) == is_zero.to(torch.int32), others, 0)


def _bincount_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    input, weights, _, _ = inputs
    ctx.dtype = None if weights is None else weights.dtype
    ctx.save_for_backward(input)


def _bincount_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (input,) = ctx.saved_tensors
    # No index is outside, and the number of bins is that of no argument.
    return None, grad.index_select(0, input.to(torch.int64)), None, None


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
    for column, each in zip(columns, edges, strict=True):
        numbers, bounds = column.to(torch.float64), each.to(column.device)
        inside = inside & (numbers >= bounds[0]) & (numbers <= bounds[-1])
        # Not of a part of the bounds: of such, Inductor (PyTorch 2.11) takes the beginning of the whole.
        bins = each.shape[0] - 1
        index = index * bins + (torch.bucketize(numbers, bounds, right=True) - 1).clamp(0, bins - 1)
    of_weight = gathered(grad.reshape(-1), torch.where(inside, index, -1))
    return [None] * ctx.columns, *ctx.none, of_weight, None


scatter.register_autograd(_scatter_backward, setup_context=_scatter_setup)
bincount.register_autograd(_bincount_backward, setup_context=_bincount_setup)
histogramdd.register_autograd(_histogramdd_backward, setup_context=_histogramdd_setup)


@scatter.register_vmap
def _(
    info: Any, in_dims: Sequence[Any], src: torch.Tensor, index: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, int]:
    """Of a batch of values by one index each sample is a component of the rows."""
    if in_dims[1] is not None:
        raise RuntimeError(_NO_VMAP.format("scatter of a batch of indices"))
    return scatter(src.movedim(in_dims[0], -1).contiguous(), index, *rest), src.dim() - 1


_NO_VMAP = "clhist.torch: {} is not under torch.vmap; make one index of the number of the sample and that of the bin"


def _refuse_vmap(name: str) -> Any:
    def rule(*_: Any) -> Any:
        raise RuntimeError(_NO_VMAP.format(name))

    return rule


for _operator, _name in ((count, "a count"), (bincount, "bincount"), (segment_index, "a batch of offsets")):
    _operator.register_vmap(_refuse_vmap(_name))
histogramdd.register_vmap(_refuse_vmap("a histogram"))
