"""Functions of NumPy on Dask collections, and `fill` of boost-histogram and hist."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np

from clhist import operators
from clhist._core.spi import any_missing, kernel_dtype, split, unlabelled
from clhist.binned.spi import numpy_edges, numpy_histogramdd, range_ends
from clhist.dask.tree import as_array, blocks_of, check_pickles, on_host, task, tree
from clhist.histogram import histogramdd as histogram_of_points
from clhist.multi_device import counts_part, histogram_part, merge_padded, of_edges, partial_of
from clhist.operators.c_types import check_booleans, check_max_abs
from clhist.operators.operator import Operator
from clhist.partial import Partial, merge


def bincount(
    x: Any,
    weights: Any = None,
    minlength: int = 0,
    *,
    reproducible: bool = False,
    max_abs: float | None = None,
    split_every: int | None = None,
) -> da.Array:
    """Count the occurrences of each value, or sum their weights: `clhist.bincount` of Dask collections.

    Parameters
    ----------
    x : dask array of shape (N,), dataframe column, or `Delayed`
        Non-negative integers.
    weights : of the same kind and blocks, optional
        Summed in float64.
    minlength : int
        Number of bins. With 0, which takes as many as there must be, the length of the result is unknown until it is
        computed.
    reproducible : bool
        Whether sums are bitwise the same for any chunks, workers and devices: the exact ones, rounded once.
    max_abs : float, optional
        Upper bound of ``abs(weights)``, as of `clhist.operators.reproducible_add`. Only with `reproducible`.
    split_every : int, optional
        How many partial results one task merges.

    Returns
    -------
    dask.array.Array of shape (minlength,) or (nan,)
        Of int64, or float64 with weights.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, before any work starts. When it is computed, as `numpy.bincount`, and if
        an element is beyond a `minlength` that is not 0.

    Examples
    --------
    >>> import dask.array as da
    >>> clhist.dask.bincount(da.arange(6, chunks=2) % 3).compute()
    array([2, 2, 2])
    """
    check_max_abs(max_abs, reproducible)
    if getattr(x, "ndim", 1) != 1:
        raise ValueError(f"x: expected one dimension, got {x.ndim}")
    minlength = python_operator.index(minlength)
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    blocks = blocks_of(x=x, weights=weights)
    # The number of elements is unknown until tasks run: accumulators are sized for up to 2**40.
    form = operators.reproducible_add(np.float64, max_abs, count=None if max_abs is None else 2**40)
    sums = form if reproducible and weights is not None else None
    whole = tree([task(_counts)(*row, minlength, sums) for row in blocks.rows], merge_padded, split_every)
    dtype = np.dtype(np.int64 if weights is None else np.float64)
    return as_array(task(_first)(whole, minlength), (minlength or np.nan,), dtype)


def histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    split_every: int | None = None,
) -> tuple[da.Array, Any]:
    """Count data by bins: `clhist.histogram` of Dask collections.

    Parameters
    ----------
    a : dask array of any shape, dataframe column, or `Delayed`
        Data.
    bins : int or sequence of scalars
        Number of bins, or their edges.
    range : (float, float), optional
        Lower and upper end of the bins. Without it a pass over the data finds the least and the greatest element.
    density : bool, optional
        Whether to return the probability density at each bin instead of the count.
    weights : of the shape and blocks of `a`, optional
        What each element contributes to its bin.
    split_every : int, optional
        How many partial results one task merges.

    Returns
    -------
    hist : dask.array.Array of shape (H,)
        As of `clhist.histogram`.
    bin_edges : array of shape (H + 1,)
        NumPy's, or Dask's if a pass over the data finds them.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, before any work starts where that is possible.

    Examples
    --------
    >>> import dask.array as da
    >>> counts, edges = clhist.dask.histogram(da.arange(6, chunks=2), bins=3)
    >>> counts.compute()
    array([2, 2, 2])
    """
    _check_density(density)
    if isinstance(bins, str):
        raise TypeError(
            f"bins: expected a number or edges for a Dask collection, got {bins!r}, a rule that needs all data"
        )
    blocks = blocks_of(a=a, weights=weights)
    dtype = kernel_dtype(getattr(a, "dtype", np.dtype(np.float64)))
    # Without a range the extent is known only when tasks run, so the edges are a lazy array.
    lazy = range is None and np.ndim(bins) == 0
    if lazy:
        numpy_edges(np.zeros(1, dtype), bins)  # raises what is wrong with them
        extents = tree([task(_extents)((block,), None) for block, _ in blocks.rows], _joined_extents, split_every)
        range = task(_range)(extents, dtype)
        number = int(bins)
        edges: Any = as_array(task(_edges)(extents, dtype, bins), (number + 1,), _edge_dtype(dtype))
    else:
        edges = numpy_edges(np.zeros(0, dtype), bins, range)
        number = len(edges) - 1
        bins = np.asarray(bins) if np.ndim(bins) else bins
    parts = [task(_binned)(block, weight, bins, range) for block, weight in blocks.rows]
    whole = tree(parts, merge, split_every)
    result = np.dtype(np.float64) if density else np.dtype(np.int64) if weights is None else weights.dtype
    return as_array(task(of_edges)(whole, edges, density, result), (number,), result), edges


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    split_every: int | None = None,
) -> tuple[da.Array, list[Any]]:
    """Count points by bins of several dimensions: `clhist.histogramdd` of Dask collections.

    Parameters
    ----------
    sample : dask array of shape (N, D), or sequence of D collections of N elements
        Points.
    bins : int, sequence of int, or sequence of arrays
        Number of bins of all dimensions or of each, or the edges of each.
    range : sequence of (float, float), optional
        Lower and upper end of each dimension. Without it a pass over the data finds them.
    density, weights, split_every
        As of `histogram`.

    Returns
    -------
    hist : dask.array.Array of shape (H_1, ..., H_D)
        Of float64.
    edges : list of array
        Of each dimension: NumPy's, or Dask's if a pass over the data finds them.

    Raises
    ------
    TypeError, ValueError
        As NumPy's, before any work starts where that is possible.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(6, chunks=2)
    >>> counts, edges = clhist.dask.histogramdd((x, x % 2), bins=2, range=((0, 6), (0, 2)))
    >>> counts.compute()
    array([[2., 1.],
           [1., 2.]])
    """
    _check_density(density)
    sample, weights = unlabelled(sample), unlabelled(weights)
    is_array = isinstance(sample, da.Array)
    points = _points(sample)
    dims = sample.shape[1] if is_array else len(points)
    of_points = _blocks_with_weights(points, weights)
    dtype = np.result_type(*(np.dtype(getattr(collection, "dtype", np.float64)) for collection in points.values()))
    bins_of_dims = _each_bins(bins, dims)
    numbers = [len(one) - 1 if isinstance(one, np.ndarray) else one for one in bins_of_dims]
    lazy = range is None and not all(isinstance(one, np.ndarray) for one in bins_of_dims)
    if lazy:
        parts = [task(_extents)(row[:-1], dims if is_array else None) for row in of_points]
        extents = tree(parts, _joined_extents, split_every)
        range = task(_ranges)(extents, dtype)
        lazy_edges = task(_edges_dd)(extents, dtype, bins_of_dims)
        kinds = [one.dtype if isinstance(one, np.ndarray) else _edge_dtype(dtype) for one in bins_of_dims]
        edges: list[Any] = [as_array(lazy_edges[k], (numbers[k] + 1,), kind) for k, kind in enumerate(kinds)]
    else:
        # Edges do not depend on the data here: one point of zeros suffices for NumPy to make them.
        edges = list(numpy_histogramdd(np.zeros((1, dims), dtype), bins_of_dims, range)[1])
    tasks = [task(_binned_dd)(row[:-1], row[-1], bins_of_dims, range) for row in of_points]
    whole = tree(tasks, merge, split_every)
    return as_array(task(of_edges)(whole, edges, density, np.dtype(np.float64)), tuple(numbers), np.float64), edges


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
    *,
    split_every: int | None = None,
) -> tuple[da.Array, Any, Any]:
    """Count points by bins of two dimensions: `clhist.histogram2d` of Dask collections.

    Parameters
    ----------
    x, y : dask array, dataframe column, or `Delayed`
        Coordinates, in the same blocks.
    bins, range, density, weights, split_every
        As of `histogramdd`; edges may be given once for both.

    Returns
    -------
    hist : dask.array.Array of shape (H_x, H_y)
        Of float64.
    x_edges, y_edges : array
        Of each dimension.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(6, chunks=2)
    >>> counts, x_edges, y_edges = clhist.dask.histogram2d(x, x % 2, bins=2, range=((0, 6), (0, 2)))
    >>> counts.compute()
    array([[2., 1.],
           [1., 2.]])
    """
    # As in numpy.histogram2d, bins of another length are the edges of both dimensions.
    if not isinstance(bins, int | np.integer) and len(bins) not in (1, 2):
        bins = [np.asarray(bins)] * 2
    hist, edges = histogramdd((x, y), bins, range, density, weights, split_every=split_every)
    return hist, edges[0], edges[1]


def _check_density(density: object) -> None:
    if density is not None:
        check_booleans(density=density)


def _points(sample: Any) -> dict[str, Any]:
    """Return the collections of points by their names in error messages."""
    if not isinstance(sample, da.Array):
        return {f"sample[{k}]": collection for k, collection in enumerate(sample)}
    if sample.ndim != 2:
        raise ValueError(f"sample: expected shape (N, D), got {sample.shape}")
    # A block must have all coordinates of its points.
    return {"sample": sample.rechunk({1: -1}) if len(sample.chunks[1]) > 1 else sample}


def _each_bins(bins: Any, dims: int) -> list[Any]:
    """Return the edges of each dimension, or how many bins it has."""
    per_dim = list(bins) if isinstance(bins, list | tuple) or np.ndim(bins) else [bins] * dims
    if len(per_dim) != dims:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    return [np.asarray(one) if np.ndim(one) else int(one) for one in per_dim]


def _blocks_with_weights(points: dict[str, Any], weights: Any) -> list[tuple[Any, ...]]:
    """Return the blocks of the points and of their weights, which have one dimension less than an array (N, D)."""
    rows = blocks_of(**points).rows
    if weights is None:
        return [(*row, None) for row in rows]
    first = next(iter(points.values()))
    # Weights follow the chunks of the points, which fix the number of tasks.
    if isinstance(first, da.Array) and isinstance(weights, da.Array) and weights.chunks[0] != first.chunks[0]:
        weights = weights.rechunk((first.chunks[0],))
    of_weights = blocks_of(weights=weights).rows
    if len(of_weights) != len(rows):
        raise ValueError(f"weights: expected {len(rows)} blocks as of the points, got {len(of_weights)}")
    return [(*row, *weight) for row, weight in zip(rows, of_weights, strict=True)]


def _counts(x: Any, weights: Any, minlength: int, sums: Operator | None) -> Partial:
    return counts_part(on_host(x), on_host(weights), minlength, sums)


def _binned(a: Any, weights: Any, bins: Any, ends: Any) -> Partial:
    return histogram_part(on_host(a), on_host(weights), bins, ends)


def _first(whole: Partial, number: int) -> Any:
    counts = whole.result()
    # The Dask array was declared with `minlength` elements, so more bins would contradict its shape.
    if number and len(counts) > number:
        raise ValueError(
            f"x: expected elements below minlength={number}, the length of the Dask array, got {len(counts) - 1}; "
            "minlength=0 takes any"
        )
    return counts


def _binned_dd(points: Sequence[Any], weights: Any, bins: Any, ranges: Any) -> Partial:
    sample = [on_host(block) for block in points]
    # One block of shape (N, D) has all coordinates; otherwise there is one block for each dimension.
    coordinates = sample[0] if len(sample) == 1 and sample[0].ndim == 2 else sample
    counts, _ = histogram_of_points(coordinates, bins, ranges, weights=on_host(weights))
    return partial_of(operators.add(np.float64), counts, len(sample[0]))


def _extents(points: Sequence[Any], dims: int | None) -> Any:
    """Return the least and the greatest element of each dimension; None of an empty block."""
    pairs = [split("points", on_host(block)) for block in points]
    arrays, missing = [array for array, _ in pairs], any_missing(*(mask for _, mask in pairs))
    if missing is not None:
        # A point counts only if all of its coordinates are present.
        present = ~(missing if dims is None else missing.any(1))
        arrays = [array[present] for array in arrays]
    # As in NumPy, whose histograms convert booleans to uint8.
    arrays = [array.astype(np.uint8) if array.dtype.kind == "b" else array for array in arrays]
    if dims is not None:
        arrays = [arrays[0][:, k] for k in range(dims)]
    return [(array.min(), array.max()) for array in arrays] if arrays[0].size else None


def _joined_extents(parts: Sequence[Any]) -> Any:
    extents = [part for part in parts if part is not None]
    if not extents:
        return None
    return [
        (np.min([low for low, _ in ends]), np.max([high for _, high in ends])) for ends in zip(*extents, strict=True)
    ]


def _edge_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of edges that NumPy makes for the extent of data."""
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _stub(extents: Any, dtype: np.dtype) -> np.ndarray:
    """Return minimal data with the same extents, for which NumPy makes the same edges."""
    if extents is None:
        return np.zeros((0, 1), dtype)
    return np.array([[low for low, _ in extents], [high for _, high in extents]], dtype)


def _range(extents: Any, dtype: np.dtype) -> Any:
    stub = _stub(extents, dtype)[:, 0]
    numpy_edges(stub, 1)  # raises what NumPy does for data that are not finite
    return range_ends(None if extents is None else (stub[0], stub[1]), None)


def _ranges(extents: Any, dtype: np.dtype) -> Any:
    return None if extents is None else [tuple(column) for column in _stub(extents, dtype).T]


def _edges(extents: Any, dtype: np.dtype, bins: Any) -> np.ndarray:
    return np.asarray(numpy_edges(_stub(extents, dtype)[:, 0], bins))


def _edges_dd(extents: Any, dtype: np.dtype, bins: Any) -> list[np.ndarray]:
    stub = _stub(extents, dtype) if extents is not None else np.zeros((0, len(bins)), dtype)
    return list(numpy_histogramdd(stub, bins, None)[1])


def fill(
    h: Any, *args: Any, weight: Any = None, sample: Any = None, split_every: int | None = None, **named: Any
) -> Any:
    """Fill a histogram of boost-histogram or hist: `clhist.hist.fill` of Dask collections.

    Parameters
    ----------
    h : boost_histogram.Histogram or hist.Hist
        What is filled; it is left as it is. Its Regular and Variable axes do not grow.
    *args : dask array, dataframe column, `Delayed`, or scalar
        One for each axis, in the same blocks.
    weight, sample : of the same blocks, or scalar, optional
        As of `clhist.hist.fill`.
    split_every : int, optional
        How many partial histograms one task merges.
    **named
        By the names of axes.

    Returns
    -------
    Delayed
        Of a histogram of the type of `h`, with what `h` has.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong or `h` cannot be pickled; it is named, before any work starts.

    Examples
    --------
    >>> import boost_histogram as bh, dask.array as da
    >>> h = bh.Histogram(bh.axis.Regular(2, 0, 1))
    >>> clhist.dask.fill(h, da.linspace(0, 0.99, 1000, chunks=300)).compute().sum()
    1000.0
    """
    from clhist.hist.filler import Filler

    # Raises TypeError for an unsupported histogram.
    Filler(h)
    check_pickles("h", h)
    positional = {f"args[{k}]": collection for k, collection in enumerate(args)}
    blocks = blocks_of(**positional, **named, weight=weight, sample=sample)
    names = (*(None for _ in args), *named, "weight", "sample")
    # Partial histograms start empty, so that the contents of `h` count once, in the last merge.
    empty = h.copy().reset() if hasattr(h, "copy") else h
    parts = [task(_filled)(empty, names, *row) for row in blocks.rows]
    return task(_joined)([h, tree(parts, _joined, split_every)])


def _filled(h: Any, names: Sequence[str | None], *row: Any) -> Any:
    from clhist.hist.filler import Filler

    arrays = [on_host(block) for block in row]
    args = [array for name, array in zip(names, arrays, strict=True) if name is None]
    named = {name: array for name, array in zip(names, arrays, strict=True) if name is not None}
    return Filler(h).fill(*args, **named).partial()


def _joined(parts: Sequence[Any]) -> Any:
    from clhist.hist.filler import Filler

    whole = Filler(parts[0])
    for part in parts[1:]:
        whole.merge(part)
    return whole.result()
