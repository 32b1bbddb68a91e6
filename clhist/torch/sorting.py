"""Counting sort of small integers: counts, offsets and a stable permutation in one call."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from clhist._core.spi import finished, takes_cuda
from clhist.grouped.spi import MOST_ELEMENTS
from clhist.grouped.spi import counting_sort as sort_by_counting
from clhist.torch.checks import check_integers, check_size
from clhist.torch.eager import direct
from clhist.torch.operators import as_array, as_tensor
from clhist.torch.registration import refuse_vmap, register_operator
from clhist.torch.repeats import repeats

_MOST_KEYS = 2**31 - 1  # keys are sorted as 32-bit words


class CountingSort(NamedTuple):
    """The result of `counting_sort`.

    Attributes
    ----------
    counts : tensor of shape (length,) of int64
        Number of ids of each value.
    offsets : tensor of shape (length + 1,) of int64
        Where the ids of each value begin in sorted order; last the number of ids in [0, `length`).
    permutation : tensor of shape (N,) of int64
        Positions of the ids in sorted order.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> clhist.torch.counting_sort(torch.tensor([1, 0, 1]), 2).permutation
    tensor([1, 0, 2])
    """

    counts: torch.Tensor
    offsets: torch.Tensor
    permutation: torch.Tensor


@repeats()
def counting_sort(ids: torch.Tensor, length: int) -> CountingSort:
    """Sort integers of [0, `length`) stably and count them: tokens by expert, edges by node.

    Parameters
    ----------
    ids : tensor of shape (N,) of integers
        Keys, such as the expert of each token.
    length : int
        Number of keys. Ids outside [0, `length`) are not counted. Their positions come last in the permutation, in
        their order.

    Returns
    -------
    CountingSort
        A named tuple of `counts`, `offsets` and `permutation`, all of int64 and on the device of `ids`. The ids equal
        to k are those at ``permutation[offsets[k]:offsets[k + 1]]``, in ascending order of position.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong.

    Notes
    -----
    The result is deterministic. On CUDA, nothing is read on the host: the call can be captured in a CUDA graph, and
    ``torch.compile(fullgraph=True)`` takes it. Integers have no gradient; those of values sorted by the permutation are
    those of indexing.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> experts = torch.tensor([2, 0, 2, 1, 0])
    >>> counts, offsets, permutation = clhist.torch.counting_sort(experts, 4)
    >>> counts, offsets
    (tensor([2, 1, 2, 0]), tensor([0, 2, 3, 5, 5]))
    >>> permutation
    tensor([1, 4, 3, 0, 2])
    """
    check_integers("ids", ids)
    check_size("length", length)
    if ids.shape[0] > MOST_ELEMENTS:
        raise ValueError(f"ids: expected at most {MOST_ELEMENTS} elements, got {ids.shape[0]}")
    if length > _MOST_KEYS:
        raise ValueError(f"length: expected at most {_MOST_KEYS}, got {length}")
    return finished(_sort(ids, length), CountingSort._make)


def _sort_shape(ids: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    number = torch.int64
    return (
        ids.new_empty(length, dtype=number),
        ids.new_empty(length + 1, dtype=number),
        ids.new_empty(ids.shape[0], dtype=number),
    )


@register_operator("counting_sort(Tensor ids, SymInt length) -> (Tensor, Tensor, Tensor)", _sort_shape)
def _counting_sort(ids: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if not (ids.shape[0] and length):
        # Nothing to launch: no id is counted, and each keeps its position.
        counts = ids.new_zeros(length, dtype=torch.int64)
        offsets = ids.new_zeros(length + 1, dtype=torch.int64)
        return counts, offsets, torch.arange(ids.shape[0], device=ids.device)
    return finished(_sorted(as_array(ids), length), _tensors)


def _tensors(arrays: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    counts, offsets, permutation = map(as_tensor, arrays)
    return counts, offsets, permutation


_sorted: Any = takes_cuda(sort_by_counting)


_sort = direct(torch.ops.clhist.counting_sort.default, _counting_sort)
refuse_vmap("counting_sort", "a counting sort")
