"""The functions of `clhist.torch`: arguments checked, then one operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

import torch

from clhist._core.spi import finished
from clhist.operators.c_types import check_booleans
from clhist.torch import moments, operators
from clhist.torch.checks import (
    SPREADS,
    check_data,
    check_empty,
    check_integers,
    check_no_gradient,
    check_size,
    check_tensor,
    check_values,
    check_weights,
    reduction,
    reductions_of,
    reproducibility,
)
from clhist.torch.groups import (
    by_groups,
    check_index,
    dimension_back,
    first_dimension,
    index_of_offsets,
    is_sorted,
    size_of,
)
from clhist.torch.repeats import repeats


@overload
def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: str = "sum",
    *,
    empty: float | None = 0,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> torch.Tensor: ...


@overload
def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    *,
    reduce: list[str] | tuple[str, ...],
    empty: float | None = 0,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> tuple[torch.Tensor, ...]: ...


@repeats("dim_size")
def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: Any = "sum",
    *,
    empty: float | None = 0,
    sorted: bool = False,
    reproducible: bool | None = None,
) -> Any:
    """Combine the values of each index: `torch_geometric.utils.scatter`, or `torch.Tensor.index_reduce`, on clhist.

    Parameters
    ----------
    src : tensor of shape (..., N, ...)
        Values, N along `dim`: floats, of half precision as well, or integers; of means floats, of minima and maxima
        booleans as well.
    index : tensor of shape (N,) of integers
        Where each value goes, on the device of `src`. Indices outside [0, `dim_size`) are ignored, as everywhere in
        clhist, and their values have a gradient of zero.
    dim : int
        The dimension of `src` that is reduced. The first costs least; of others the tensor is copied.
    dim_size : int, optional
        Number of bins. Defaults to the largest index and one, which is read on the host: under `torch.compile` and in
        graphs of CUDA it must be given.
    reduce : {"sum", "mean", "min", "max", "prod", "var", "std"}, or list or tuple of them
        How values are combined; "add", "mul", "amin" and "amax" are the same. "var" and "std" divide by the number of
        values, as `VarAggregation` of PyTorch Geometric; `clhist.torch.var` has a correction. Several reductions share
        sums, means and numbers of values.
    empty : float or None
        What bins without a value hold. Defaults to 0, as in PyTorch Geometric. None leaves the identity element of the
        reduction, as in `torch.segment_reduce`: 0 for sums, NaN for means, ±infinity (or the ends of an integer
        dtype) for minima and maxima, 1 for products.
    sorted : bool
        Whether `index` does not decrease: then the values of a bin follow each other, and need not be grouped. This
        is not checked. If it is wrong, so may be results, but nothing outside the tensors is read or written.
    reproducible : bool, optional
        Whether sums and means of floats are bitwise the same in any order and on any device, as of
        `clhist.reduce_by_index`. Defaults to what `torch.use_deterministic_algorithms` is set to.

    Returns
    -------
    tensor of shape (..., dim_size, ...), or tuple of them
        Contiguous, of the dtype and on the device of `src`. A tuple, in the order of `reduce`, if that is a list or a
        tuple.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, and nothing is enqueued.
    RuntimeError
        For products of floats where `torch.use_deterministic_algorithms` forbids what depends on an order.

    Notes
    -----
    The gradient of a sum is that of its bin, of a mean that divided by the number of values; of a minimum or maximum it
    goes in equal parts to the values that are equal to it, as of `torch.Tensor.scatter_reduce`; of a product it is
    right with zeros, too. All of these have gradients again, but products with zeros, which raise `RuntimeError`.
    `torch.vmap` takes a batch of values by one index, but not of "var" and "std".

    Examples
    --------
    >>> import torch
    >>> src, index = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 2, 0])
    >>> clhist.torch.scatter(src, index, dim_size=3)
    tensor([6., 0., 2.])
    >>> clhist.torch.scatter(src, index, dim_size=3, reduce=["mean", "std"])
    (tensor([3., 0., 2.]), tensor([2., 0., 0.]))
    """
    if not isinstance(reduce, str) or reduce in SPREADS:
        # Spreads need means first, and several reductions share sums: these have operators of their own.
        return _several(src, index, dim, dim_size, reduce, empty, reproducible, is_sorted(sorted))
    reduce = reduction(reduce)
    check_values("src", src, reduce)
    # Operators reduce the first dimension; `dim` is moved there, and back in the result.
    rows = first_dimension(src, dim)
    check_index(index, rows)
    if dim_size is None:
        dim_size = size_of(index)
    check_size("dim_size", dim_size)
    is_same = reproducibility(reproducible, src.dtype, reduce)
    check_empty(empty, src.dtype)
    result = operators.scatter(rows, index, dim_size, reduce, is_same, empty, is_sorted(sorted))
    return dimension_back(result, dim)


@overload
def segment(
    src: torch.Tensor,
    ptr: torch.Tensor,
    reduce: str = "sum",
    *,
    empty: float | None = 0,
    reproducible: bool | None = None,
) -> torch.Tensor: ...


@overload
def segment(
    src: torch.Tensor,
    ptr: torch.Tensor,
    reduce: list[str] | tuple[str, ...],
    *,
    empty: float | None = 0,
    reproducible: bool | None = None,
) -> tuple[torch.Tensor, ...]: ...


@repeats()
def segment(
    src: torch.Tensor,
    ptr: torch.Tensor,
    reduce: Any = "sum",
    *,
    empty: float | None = 0,
    reproducible: bool | None = None,
) -> Any:
    """Combine the values between offsets (CSR): `torch_geometric.utils.segment`, or `torch.segment_reduce`, on clhist.

    Parameters
    ----------
    src : tensor of shape (N, ...)
        Values, as of `scatter`.
    ptr : tensor of shape (S + 1,) of integers
        Segment k has the rows [ptr[k], ptr[k + 1]) of `src`; those before the first offset and behind the last are in
        none. On the device of `src`. Offsets on CUDA are not read on the host, so that the call can be captured in a
        CUDA graph, and not checked: if they decrease, it is undefined which segments rows belong to.
    reduce, empty, reproducible
        As of `scatter`.

    Returns
    -------
    tensor of shape (S, ...), or tuple of them
        As of `scatter`.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As of `scatter`; on the CPU ValueError also for offsets that decrease or are not in [0, N].

    Notes
    -----
    The index of each row is made of the offsets (int32), and `scatter` does the rest, with ``sorted=True``.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> clhist.torch.segment(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 2, 2, 3]))
    tensor([3., 0., 5.])
    """
    if not isinstance(reduce, str) or reduce in SPREADS:
        check_values("src", src, reductions_of(reduce)[0])
        return _several(src, index_of_offsets(ptr, src), 0, ptr.shape[0] - 1, reduce, empty, reproducible, True)
    reduce = reduction(reduce)
    check_values("src", src, reduce)
    is_same = reproducibility(reproducible, src.dtype, reduce)
    # The index made of offsets ascends, so its values need not be grouped.
    index = index_of_offsets(ptr, src)
    check_empty(empty, src.dtype)
    return operators.scatter(src, index, ptr.shape[0] - 1, reduce, is_same, empty, True)


@repeats()
def bincount(
    input: torch.Tensor,
    weights: torch.Tensor | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    reproducible: bool | None = None,
) -> torch.Tensor:
    """Count the occurrences of each value, or sum their weights: `torch.bincount`, whose weights have a gradient.

    Parameters
    ----------
    input : tensor of shape (N,) of non-negative integers
        What is counted.
    weights : tensor of shape (N,), optional
        What each counts; booleans and integers are summed in float64.
    minlength : int
        The least number of bins.
    length : int, optional
        The number of bins, as of `jax.numpy.bincount`; what is outside of [0, `length`) is ignored. With it the shape
        of the result depends on no value: it can be compiled by `torch.compile(fullgraph=True)` and captured into
        graphs of CUDA, and nothing waits for the device.
    reproducible : bool, optional
        As of `scatter`. Counts always are.

    Returns
    -------
    tensor of shape (length or max(minlength, max(input) + 1),)
        Counts of int64; sums of the dtype of `weights` if they are floats, or else of float64.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, and without `length` if an entry is negative.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> clhist.torch.bincount(torch.tensor([0, 2, 2]), minlength=4)
    tensor([1, 0, 2, 0])
    """
    check_integers("input", input)
    if weights is not None:
        check_weights("weights", weights, input, input.shape)
    check_size("minlength", minlength)
    dtype = torch.int64 if weights is None else operators.sum_dtype(weights)
    is_same = reproducibility(reproducible, dtype)
    # Without `length`, the largest value decides the shape: it is read on the host, and negative ones are refused.
    if length is None:
        return operators.bincount(input, weights, minlength, is_same)
    check_size("length", length)
    if length < minlength:
        raise ValueError(f"length: expected at least minlength, which is {minlength}, got {length}")
    if weights is None:
        return operators.count(input, length)
    return operators.scatter(weights.to(dtype), input, length, "sum", is_same)


@repeats()
def histogram(
    input: torch.Tensor,
    bins: int | torch.Tensor = 10,
    *,
    range: tuple[float, float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
    reproducible: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Count data by bins: `torch.histogram`, on tensors of CUDA as well, whose weights have a gradient.

    Parameters
    ----------
    input : tensor of any shape
        Data. It has no gradient: a tensor that requires one raises TypeError.
    bins : int or tensor of shape (H + 1,)
        Number of bins of one width, or the edges of all.
    range : (float, float), optional
        Ends of the bins. Defaults to the least and the greatest element.
    weight : tensor of the shape of `input`, optional
        What each element contributes.
    density : bool
        Whether to return the density at each bin instead.
    reproducible : bool, optional
        As of `scatter`.

    Returns
    -------
    hist : tensor of shape (H,)
        Counts of int64; sums of the dtype of `weight` if that is of floats, or else of float64. A density of counts is
        of float64.
    bin_edges : tensor of shape (H + 1,) of float64
        On the CPU, as the edges of `clhist.histogram` are.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; as `clhist.histogram`.

    Notes
    -----
    Edges and the bin of each element are NumPy's: a NaN is in no bin, and the last bin has its upper edge.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> counts, edges = clhist.torch.histogram(torch.tensor([0.1, 0.2, 0.9]), 2, range=(0, 1))
    >>> counts, edges
    (tensor([2, 1]), tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64))
    """
    check_data("input", input)
    if weight is not None:
        check_weights("weight", weight, input, input.shape)
        weight = weight.reshape(-1)
    ends = None if range is None else (range,)
    result = _histogram((input.reshape(-1),), (bins,), ends, weight, density, reproducible)
    return finished(result, _with_one_axis)


def _with_one_axis(result: tuple[torch.Tensor, tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    hist, (edges,) = result
    return hist, edges


def histogramdd(
    input: torch.Tensor | Sequence[torch.Tensor],
    bins: int | Sequence[int] | Sequence[torch.Tensor] = 10,
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
    reproducible: bool | None = None,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Count points by bins of several dimensions: `torch.histogramdd`, on tensors of CUDA as well.

    Parameters
    ----------
    input : tensor of shape (..., D), or sequence of D tensors of one shape
        Points. They have no gradient.
    bins : int, sequence of int, or sequence of tensors
        Number of bins of all dimensions or of each, or the edges of each.
    range : sequence of 2 D floats, optional
        Lower and upper end of each dimension in turn, as of `torch.histogramdd`.
    weight, density, reproducible
        As of `histogram`; `weight` of shape (...).

    Returns
    -------
    hist : tensor of shape (H_1, ..., H_D)
        As of `histogram`.
    bin_edges : tuple of tensors of float64
        Of each dimension, on the CPU.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; as `clhist.histogramdd`.

    Examples
    --------
    >>> import torch, clhist.torch
    >>> points = torch.tensor([[0.1, 0.3], [0.2, 0.4], [0.9, 0.8]])
    >>> counts, edges = clhist.torch.histogramdd(points, 2)
    >>> counts
    tensor([[2, 0],
            [0, 1]])
    """
    if isinstance(input, torch.Tensor):
        check_data("input", input)
        if input.dim() < 2 or not input.shape[-1]:
            raise ValueError(f"input: expected shape (..., D), got {tuple(input.shape)}")
        # One transposed copy makes all columns contiguous.
        columns = input.reshape(-1, input.shape[-1]).T.contiguous().unbind(0)
        shape = input.shape[:-1]
    else:
        for tensor in input:
            check_data("input", tensor)
        if not input or any(tensor.shape != input[0].shape or tensor.device != input[0].device for tensor in input):
            raise ValueError("input: expected tensors of one shape, on one device")
        columns, shape = tuple(tensor.reshape(-1) for tensor in input), input[0].shape
    if weight is not None:
        check_weights("weight", weight, columns[0], shape)
        weight = weight.reshape(-1)
    number = len(columns)
    by = [bins] * number if isinstance(bins, int) else list(bins)
    if len(by) != number:
        raise ValueError(f"bins: expected an int or one entry for each of {number} dimensions, got {len(by)}")
    if range is not None and len(range) != 2 * number:
        raise ValueError(f"range: expected two floats for each of {number} dimensions, got {len(range)}")
    ends = None if range is None else list(zip(range[::2], range[1::2], strict=True))
    return _histogram(columns, by, ends, weight, density, reproducible)


def _histogram(
    columns: Sequence[torch.Tensor],
    bins: Sequence[Any],
    range: Sequence[tuple[float, float]] | None,
    weight: torch.Tensor | None,
    density: bool,
    reproducible: bool | None,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return the histogram of points and its edges."""
    check_booleans(density=density)
    edges = [entry for entry in bins if isinstance(entry, torch.Tensor)]
    for axis_edges in edges:
        check_tensor("bins", axis_edges, (torch.float32, torch.float64, torch.int32, torch.int64))
        check_no_gradient("bins", axis_edges)
        if axis_edges.dim() != 1 or axis_edges.shape[0] < 2:
            raise ValueError(f"bins: expected edges of one dimension, two or more, got shape {tuple(axis_edges.shape)}")
    if edges and len(edges) != len(bins):
        raise TypeError("bins: expected numbers of all dimensions or edges of all, got some of both")
    if edges and range is not None:
        raise ValueError("range: expected none with edges, got one")
    numbers = [] if edges else [*bins]
    for number in numbers:
        check_size("bins", number)
    ends = [] if range is None else [float(end) for pair in range for end in pair]
    is_same = reproducibility(reproducible, operators.hist_dtype(weight))
    parts = operators.histogramdd(list(columns), numbers, ends, edges, weight, is_same)
    return finished(parts, partial(_hist_and_edges, density))


def _hist_and_edges(density: bool, parts: list[torch.Tensor]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    hist, *bin_edges = parts
    if density:
        # Integer counts become float64; sums keep their dtype.
        hist = hist / hist.sum() if hist.dtype.is_floating_point else hist.to(torch.float64) / hist.sum()
        for axis, axis_edges in enumerate(bin_edges):
            widths = axis_edges.diff().to(hist.device, hist.dtype)
            # Widths broadcast over the dimensions that follow.
            hist = hist / widths.reshape(-1, *[1] * (len(bin_edges) - 1 - axis))
    return hist, tuple(bin_edges)


def _several(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    dim_size: int | None,
    reduce: Any,
    empty: float | None,
    reproducible: bool | None,
    is_sorted: bool,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Return variances, standard deviations, or several reductions by index."""
    names = reductions_of(reduce)
    for name in names:
        check_values("src", src, name)
    rows, index, size = by_groups(src, index, None, dim_size, dim)
    check_empty(empty, src.dtype)
    results = moments.reductions(rows, index, size, names, reproducible, empty, is_sorted)
    results = tuple(dimension_back(result, dim) for result in results)
    return results[0] if isinstance(reduce, str) else results
