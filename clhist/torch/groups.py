"""Groups of values, by index or by offsets, as functions of `clhist.torch` take them."""

from __future__ import annotations

import torch

from clhist.operators.c_types import check_booleans
from clhist.torch import operators
from clhist.torch.checks import check_dim, check_integers, check_size


def by_groups(
    src: torch.Tensor, index: torch.Tensor | None, ptr: torch.Tensor | None, dim_size: int | None, dim: int
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return `src` with `dim` as its first dimension, the group of each of its rows, and the number of groups.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    """
    rows = first_dimension(src, dim)
    if ptr is not None:
        index = index_of_offsets(ptr, rows)
        groups = ptr.shape[0] - 1
        if dim_size is not None and dim_size != groups:
            raise ValueError(f"dim_size: expected {groups} as of ptr, got {dim_size}")
        return rows, index, groups
    if index is None:
        raise ValueError("index: expected the group of each value, or ptr, got neither")
    check_index(index, rows)
    if dim_size is None:
        dim_size = size_of(index)
    check_size("dim_size", dim_size)
    return rows, index, dim_size


def is_sorted(sorted: object, ptr: torch.Tensor | None = None) -> bool:
    """Return whether the index of groups does not decrease, by the caller's word or by offsets.

    Raises
    ------
    TypeError
        If `sorted` is no bool.
    """
    check_booleans(sorted=sorted)
    return bool(sorted) or ptr is not None


def first_dimension(src: torch.Tensor, dim: int) -> torch.Tensor:
    """Return `src` with `dim` as its first dimension."""
    check_dim(src, dim)
    return src.movedim(dim, 0) if dim else src


def dimension_back(result: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a contiguous result whose first dimension is `dim` of the caller's tensor."""
    # Contiguous like results of PyTorch, whose callers take views of them.
    return result.movedim(0, dim).contiguous() if dim else result


def check_index(index: torch.Tensor, rows: torch.Tensor) -> None:
    """Raise an exception unless `index` has an integer for each row."""
    check_integers("index", index, rows)
    if index.shape[0] != rows.shape[0]:
        raise ValueError(f"index: expected shape ({rows.shape[0]},) as of src along dim, got {tuple(index.shape)}")


def size_of(index: torch.Tensor, name: str = "index") -> int:
    """Return the largest index and one, which is read on the host."""
    # Reading the maximum waits for the device.
    size = int(index.max()) + 1 if index.shape[0] else 0
    if size < 0:
        raise ValueError(
            f"{name}: expected an index of 0 or more, or dim_size, got {size - 1} as the largest; "
            "negative indices are left out"
        )
    return size


def index_of_offsets(ptr: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the segment of each row."""
    check_integers("ptr", ptr, rows)
    if ptr.shape[0] == 0:
        raise ValueError("ptr: expected at least one offset, got none")
    return operators.segment_index(ptr, rows.shape[0])
