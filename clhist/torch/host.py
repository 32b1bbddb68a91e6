"""Operators on few elements of CPU tensors, by PyTorch's own: a kernel of OpenCL takes longer to start.

Each function has the parameters and results of the operator of its name, and returns NotImplemented for what kernels
compute: many elements, reproducible sums and half precision. Results differ from those of kernels by the rounding of
sums and of exponentials alone.
"""

from __future__ import annotations

from typing import Any

import torch

from clhist._core.host_spi import small

_DTYPES = frozenset((torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
_NAMES = {"min": "amin", "max": "amax", "prod": "prod"}


def _are_few(values: torch.Tensor, rows: int | None = None) -> bool:
    """Return whether PyTorch's operators take less time than kernels for values, or for so many of their rows."""
    size = values.numel() if rows is None else rows * values[:1].numel()
    return size > 0 and values.dtype in _DTYPES and not small.pays_off("tensors", size)


class _Groups:
    """The group of each row, as PyTorch's operators take it: indices outside have a group of their own, the last.

    Parameters
    ----------
    index : tensor of shape (N,) of integers
        The group of each row.
    number : int
        Number of groups.
    """

    def __init__(self, index: torch.Tensor, number: int) -> None:
        index = index.long()
        self.has_outside, self.number = False, number
        if index.shape[0]:
            low, high = index.aminmax()
            self.has_outside = int(low) < 0 or int(high) >= number
        self.index = torch.where((index < 0) | (index >= number), number, index) if self.has_outside else index

    def combined(self, rows: torch.Tensor, reduce: str, empty: float = 0) -> torch.Tensor:
        """Return rows combined by group, that of indices outside included; 0 or `empty` of groups without a row."""
        shape = self.number + self.has_outside, *rows.shape[1:]
        index = self.index if rows.dim() == 1 else by_rows(self.index, rows).expand_as(rows)
        if reduce != "sum":
            return rows.new_full(shape, empty).scatter_reduce_(0, index, rows, _NAMES[reduce], include_self=False)
        # One addition after the other: of float32 its roundings would exceed those of a kernel, which has partial sums.
        wide = torch.float64 if rows.dtype is torch.float32 else rows.dtype
        return rows.new_zeros(shape, dtype=wide).scatter_add_(0, index, rows.to(wide)).to(rows.dtype)

    def counts(self) -> torch.Tensor:
        """Return the number of rows of each group, as int64."""
        return torch.bincount(self.index, minlength=self.number + self.has_outside)

    def of_groups(self, result: torch.Tensor) -> torch.Tensor:
        """Return a result by group without that of indices outside."""
        return result[: self.number].clone() if self.has_outside else result

    def gathered(self, table: torch.Tensor) -> torch.Tensor:
        """Return the row of its group for each index, and any row for indices outside."""
        # A table without the group of indices outside.
        is_short = self.has_outside and table.shape[0] == self.number
        return table.index_select(0, self.index.clamp(max=self.number - 1) if is_short else self.index)

    def of_rows(self, result: torch.Tensor) -> torch.Tensor:
        """Return a result by row with 0 for indices outside."""
        if self.has_outside:
            result = torch.where(by_rows(self.index < self.number, result), result, 0)
        return result


def by_rows(of_rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one number for each row of `like` in a shape that broadcasts to it."""
    return of_rows.reshape(-1, *[1] * (like.dim() - 1))


def _identity(reduce: str, dtype: torch.dtype) -> float:
    """Return the identity element of a reduction."""
    if reduce in ("sum", "prod"):
        return 0 if reduce == "sum" else 1
    if dtype.is_floating_point:
        return torch.inf if reduce == "min" else -torch.inf
    info = torch.iinfo(dtype)
    return info.max if reduce == "min" else info.min


def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    reduce: str,
    reproducible: bool,
    empty: float | None = None,
    is_sorted: bool = False,
) -> Any:
    if reproducible or not (dim_size and _are_few(src)):
        return NotImplemented
    groups = _Groups(index, dim_size)
    if reduce not in ("sum", "mean"):
        of_none = _identity(reduce, src.dtype) if empty is None else empty
        return groups.of_groups(groups.combined(src, reduce, of_none))
    result = groups.combined(src, "sum")
    if reduce == "mean" or empty not in (None, 0):
        counts = by_rows(groups.counts(), result)
        if reduce == "mean":
            result = result / counts.to(result.dtype)  # NaN for groups without a row
        if empty is not None:
            result.masked_fill_(counts == 0, empty)
    return groups.of_groups(result)


def sums(src: torch.Tensor, index: torch.Tensor, dim_size: int, reduce: str, *more: Any) -> Any:
    """Return `scatter` of reductions whose gradient by PyTorch's operators is that of `scatter`."""
    # PyTorch shares the gradient of an extreme otherwise where there are NaN.
    return scatter(src, index, dim_size, reduce, *more) if reduce in ("sum", "mean") else NotImplemented


def count(index: torch.Tensor, dim_size: int) -> Any:
    if small.pays_off("tensors", index.numel()):
        return NotImplemented
    groups = _Groups(index, dim_size)
    return groups.of_groups(groups.counts())


def gather(table: torch.Tensor, index: torch.Tensor) -> Any:
    if not _are_few(table, index.shape[0]):
        return NotImplemented
    groups = _Groups(index, table.shape[0])
    return groups.of_rows(groups.gathered(table))


def scatter_gradient(
    grad: torch.Tensor, index: torch.Tensor, reduce: str, src: torch.Tensor | None, result: torch.Tensor | None
) -> Any:
    if not _are_few(grad, index.shape[0]):
        return NotImplemented
    groups = _Groups(index, grad.shape[0])
    if reduce == "sum":
        return groups.of_rows(groups.gathered(grad))
    if reduce == "mean":
        counts = groups.counts()[: groups.number].clamp(min=1)
        return groups.of_rows(groups.gathered(grad / by_rows(counts, grad).to(grad.dtype)))
    assert src is not None
    assert result is not None
    best = groups.gathered(result)
    # A NaN is the extreme of its group.
    won = (src == best) | (src.isnan() & best.isnan())
    winners = groups.combined(won.to(torch.int32), "sum")[: groups.number].clamp(min=1)
    return groups.of_rows(torch.where(won, groups.gathered(grad / winners.to(grad.dtype)), 0))


def softmax(src: torch.Tensor, index: torch.Tensor, dim_size: int, reproducible: bool, is_sorted: bool = False) -> Any:
    if reproducible or not (dim_size and _are_few(src)):
        return NotImplemented
    groups = _Groups(index, dim_size)
    powers = (src - groups.gathered(groups.combined(src, "max", 0))).exp_()
    return groups.of_rows(powers.div_(groups.gathered(groups.combined(powers, "sum"))))


def softmax_gradient(
    result: torch.Tensor,
    grad: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    reproducible: bool,
    is_sorted: bool = False,
) -> Any:
    if reproducible or not (dim_size and _are_few(result)):
        return NotImplemented
    groups = _Groups(index, dim_size)
    sums = groups.combined(result * grad, "sum")
    return groups.of_rows((grad - groups.gathered(sums)).mul_(result))


def log_sums(
    src: torch.Tensor,
    index: torch.Tensor,
    dim_size: int,
    reproducible: bool,
    empty: float | None = None,
    is_sorted: bool = False,
) -> Any:
    if reproducible or not (dim_size and _are_few(src)):
        return NotImplemented
    groups = _Groups(index, dim_size)
    maxima = groups.combined(src, "max", -torch.inf)
    sums = groups.combined((src - groups.gathered(maxima)).exp_(), "sum")
    # The sum of a group with an infinite maximum is NaN.
    result = torch.where(maxima.isinf(), maxima, sums.log() + maxima)
    result.masked_fill_(sums == 0, -torch.inf if empty is None else empty)
    return tuple(map(groups.of_groups, (result, maxima, sums)))


def log_sums_gradient(
    src: torch.Tensor, maxima: torch.Tensor, sums: torch.Tensor, index: torch.Tensor, grad: torch.Tensor
) -> Any:
    if not (maxima.numel() and _are_few(src)):
        return NotImplemented
    groups = _Groups(index, maxima.shape[0])
    shares = (src - groups.gathered(maxima)).exp_().div_(groups.gathered(sums))
    return groups.of_rows(shares.mul_(groups.gathered(grad)))


def spread(
    src: torch.Tensor,
    mean: torch.Tensor,
    index: torch.Tensor,
    correction: int,
    is_root: bool,
    empty: float | None,
    is_sorted: bool = False,
) -> Any:
    if not (mean.numel() and _are_few(src)):
        return NotImplemented
    groups = _Groups(index, mean.shape[0])
    squares = groups.of_groups(groups.combined((src - groups.gathered(mean)).square_(), "sum"))
    counts = groups.of_groups(groups.counts())
    numbers = by_rows(counts, mean)
    result = squares / (numbers - correction).to(mean.dtype)
    result = result.sqrt_() if is_root else result
    return result.masked_fill_(numbers <= correction, torch.nan if empty is None else empty), counts


def spread_gradient(
    src: torch.Tensor,
    mean: torch.Tensor,
    spread: torch.Tensor,
    index: torch.Tensor,
    grad: torch.Tensor,
    counts: torch.Tensor,
    correction: int,
    is_root: bool,
) -> Any:
    if not (mean.numel() and _are_few(src)):
        return NotImplemented
    groups = _Groups(index, mean.shape[0])
    numbers = by_rows(counts, mean)
    slopes = (1 / spread if is_root else 2) / (numbers - correction).to(mean.dtype) * grad
    # Groups with too few rows have no gradient; nor has a root at 0, whose slope is infinite.
    has_slope = (numbers > correction) & ~((spread == 0) & is_root)
    values = (src - groups.gathered(mean)) * groups.gathered(slopes)
    return groups.of_rows(torch.where(groups.gathered(has_slope), values, 0))


def gather_scatter(
    x: torch.Tensor,
    col: torch.Tensor,
    row: torch.Tensor,
    weight: torch.Tensor | None,
    dim_size: int,
    reproducible: bool,
    is_sorted: bool = False,
) -> Any:
    if reproducible or not (dim_size and _are_few(x, col.shape[0])):
        return NotImplemented
    sources, targets = _Groups(col, x.shape[0]), _Groups(row, dim_size)
    messages = sources.gathered(x)
    if weight is not None:
        messages = messages * by_rows(weight, messages)
    return targets.of_groups(targets.combined(sources.of_rows(messages), "sum"))


def row_dots(first: torch.Tensor, second: torch.Tensor, first_rows: torch.Tensor, second_rows: torch.Tensor) -> Any:
    if not (first.dtype.is_floating_point and second.numel() and _are_few(first, first_rows.shape[0])):
        return NotImplemented
    firsts, seconds = _Groups(first_rows, first.shape[0]), _Groups(second_rows, second.shape[0])
    products = (firsts.gathered(first) * seconds.gathered(second)).reshape(first_rows.shape[0], -1).sum(1)
    return firsts.of_rows(seconds.of_rows(products))
