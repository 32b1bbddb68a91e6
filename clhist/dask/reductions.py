"""`reduce` and `reduce_by_index` on Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import Delayed

from clhist._core.spi import leave_out, mask_of, mask_of_values
from clhist.dask.tree import SPLIT_EVERY, Blocks, as_array, blocks_of, check_pickles, on_host, task, tree
from clhist.operators.c_types import check_max_abs, integer
from clhist.operators.names import COUNT, operator_of_call, operator_on_bins
from clhist.operators.operator import Operator
from clhist.operators.reproducible import reproducible_form
from clhist.partial import Partial, merge
from clhist.spec import Spec


def reduce(spec: Spec, *collections: Any, split_every: int | None = None) -> Any:
    """Compute any histograms of Dask collections.

    Parameters
    ----------
    spec : Spec
        What to compute.
    *collections : dask array, dataframe column, bag, Delayed, sequence of Delayed, or scalar
        The arguments of its map, or indices and values. Arrays that the map uses at other places than ``[i]`` must be
        scalars or `Delayed` of one block.
    split_every : int, optional
        How many partial results one task merges.

    Returns
    -------
    Delayed
        Of what `Spec.result` returns.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named, before any work starts.

    Examples
    --------
    >>> import dask.array as da
    >>> spec = clhist.Spec("count", 3, arguments="const int *bin", map="EMIT(bin[i], 1)")
    >>> clhist.dask.reduce(spec, da.arange(9, chunks=4, dtype=np.int32) % 3).compute()
    array([3, 3, 3])
    """
    if not isinstance(spec, Spec):
        raise TypeError(f"spec: expected a clhist.Spec, got {type(spec).__name__}")
    blocks = blocks_of(**{f"collections[{k}]": collection for k, collection in enumerate(collections)})
    return task(spec.result)(partial_of(spec, blocks, split_every))


def reduce_by_index(
    dest: Any,
    op: Any,
    indices: Any,
    values: Any,
    reproducible: bool = False,
    max_abs: float | None = None,
    dtype: Any = None,
    *,
    split_every: int | None = None,
    shards: int | None = None,
) -> da.Array:
    """Combine each value into the bin of its index: `clhist.reduce_by_index` of Dask collections.

    Parameters
    ----------
    dest : int, (int,), or array of shape (H,)
        Number of bins, or their initial contents.
    op : Operator, numpy.ufunc or str
        How to combine.
    indices, values : dask array, dataframe column, or `Delayed`
        In the same blocks; `values` may be a scalar. Positions, such as those of ``"argmax"``, are those in the whole.
    reproducible : bool
        Make sums of floats bitwise the same for any chunks, workers and devices.
    max_abs : float, optional
        As of `clhist.reduce_by_index`. Only with `reproducible`.
    dtype : dtype-like, optional
        As of `clhist.reduce_by_index`: of the result, where `dest` is a number of bins.
    split_every : int, optional
        How many partial results one task merges.
    shards : int, optional
        Send the pairs to where their bins are, in so many ranges, instead of merging all bins: for more bins than a
        device or a worker can hold, or than there are elements in a few blocks. See docs/scaling.md.

    Returns
    -------
    dask.array.Array of shape (H,)
        Of the operator's dtype; with `shards` a chunk each.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, if chunk sizes are unknown where positions count, or if the operator cannot be pickled;
        it is named, before any work starts.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(6, chunks=2)
    >>> clhist.dask.reduce_by_index(3, "sum", x % 3, x).compute()
    array([3, 5, 7])
    """
    check_max_abs(max_abs, reproducible)
    initial, shape = _bins(dest)
    of_values = _dtype_of(values, op, initial if dtype is None else np.empty(0, dtype))
    if initial is None:
        operator = operator_of_call(op, of_values, dtype)
    elif dtype is not None:
        raise TypeError(f"dtype: expected none, since dest is an array and has its own, got {dtype!r}")
    else:
        operator = operator_on_bins(op, initial.dtype)
    check_pickles("op", operator)
    blocks = blocks_of(indices=indices, values=1 if isinstance(op, str) and op == COUNT else values)
    # Structured values bring their positions; plain ones get them from the start of their block.
    if operator.positional and getattr(of_values, "names", None) is None and blocks.starts is None:
        raise ValueError(
            f"values: expected chunks of known sizes, since {operator.name} needs positions, got unknown ones; "
            "x.compute_chunk_sizes() finds them"
        )
    if reproducible:
        # The initial contents of a bin are one more value.
        operator = reproducible_form(operator, max_abs, 2**40 if blocks.size is None else blocks.size + 1)
    if shards is not None:
        return sharded(operator, shape[0], blocks, shards, split_every, initial)
    spec = Spec(operator, shape)
    whole = partial_of(spec, blocks, split_every)
    return as_array(task(result_of)(spec, whole, initial), shape, operator.dtype)


def partial_of(spec: Any, blocks: Blocks, split_every: int | None) -> Any:
    """Return the partial result of all blocks; `spec` may be what a task returns."""
    if isinstance(spec, Spec):
        check_pickles("spec", spec)
    return tree(blocks.tasks(part_of_block, spec), merge, split_every)


def part_of_block(spec: Spec, start: int | None, *arrays: Any) -> Partial:
    """Return the partial result of a block whose first element has the position `start`."""
    part = spec.partial(*(on_host(array) for array in arrays), start=start)
    # The position of the first element is unknown: claim none, or merging would see the same positions twice.
    return part if start is not None else replace(part, positions=None)


def _bins(dest: Any) -> tuple[np.ndarray | None, tuple[int, ...]]:
    """Return the initial contents of the bins, if there are any, and their shape."""
    initial = None if isinstance(dest, int | np.integer | tuple) else np.asarray(dest)
    shape = (dest,) if isinstance(dest, int | np.integer) else dest if initial is None else initial.shape
    if len(shape) != 1:
        raise ValueError(f"dest: expected one dimension for Dask collections, got shape {shape}")
    return initial, shape


def _dtype_of(values: Any, op: Any, initial: np.ndarray | None) -> np.dtype:
    """Return the dtype of the values; for `Delayed`, which has none, the dtype of the operator or the bins."""
    if not isinstance(values, Delayed | list):
        dtype = getattr(values, "dtype", None)
        return np.result_type(values) if dtype is None else dtype
    if initial is None and not isinstance(op, Operator) and op != COUNT:
        raise TypeError(
            f"values: expected a collection of a known dtype, got {type(values).__name__}; "
            "give an array as dest, or a clhist.Operator"
        )
    return np.dtype(np.int64) if initial is None else initial.dtype


def sharded(
    operator: Operator, num_bins: int, blocks: Blocks, shards: int, split_every: int | None, dest: np.ndarray | None
) -> da.Array:
    """Return the histogram as an array of a chunk for each shard, of equal ranges of bins but for the last.

    Each block's pairs are sorted by shard once and sent to the bins of the shard, instead of bins to bins. A task takes
    the pairs of several blocks, since each of its partial results has all bins of the shard.
    """
    shards = integer("shards", shards, 1)
    # Rounded up: the last shard may be smaller, and few bins may need fewer shards.
    size = -(-num_bins // shards)
    split = blocks.tasks(_split, operator, size, shards)
    width = SPLIT_EVERY if split_every is None else split_every
    chunks = []
    for k, begin in enumerate(range(0, num_bins, size)):
        here = min(size, num_bins - begin)
        spec = Spec(operator, here)
        of_blocks = [pairs[k] for pairs in split]
        parts = [
            task(_partial_of_pieces)(spec, task(_list)(*of_blocks[n : n + width]))
            for n in range(0, len(of_blocks), width)
        ]
        initial = None if dest is None else dest[begin : begin + here]
        result = task(result_of)(spec, tree(parts, merge, split_every), initial)
        chunks.append(as_array(result, (here,), operator.dtype))
    return da.concatenate(chunks)


def _list(*parts: Any) -> list[Any]:
    return list(parts)


def _split(operator: Operator, size: int, shards: int, start: int | None, indices: Any, values: Any) -> list[Any]:
    """Return the indices and values of each shard, relative to its first bin; positional operators get positions."""
    indices, values = on_host(indices), on_host(values)
    of_indices, of_values = mask_of(indices), mask_of_values(values)
    if of_indices is not None or of_values is not None:
        scalar = np.ndim(values) == 0
        columns = values if scalar else (np.asarray(values),)
        indices, columns = leave_out(np.asarray(indices), columns, of_indices, of_values)
        values = columns if scalar else columns[0]
    # Positions count over the whole collection, so pairs get theirs before they are split by shard.
    if operator.positional and values.dtype.names is None:
        pairs = np.zeros(values.shape, operator.dtype)
        pairs["value"], pairs["index"] = values, np.arange(values.size) + (start or 0)
        values = pairs
    # Pairs outside of all bins are sorted behind the last shard, and dropped.
    inside = (indices >= 0) & (indices < size * shards)
    shard = np.where(inside, indices // size, shards)
    # After one sort the pairs of shard k are consecutive: order[ends[k]:ends[k + 1]].
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    scalar = np.ndim(values) == 0
    parts = []
    for k in range(shards):
        chosen = order[ends[k] : ends[k + 1]]
        parts.append(((indices[chosen] - k * size).astype(np.int64), values if scalar else values[chosen]))
    return parts


def _partial_of_pieces(spec: Spec, pieces: Sequence[tuple[np.ndarray, Any]]) -> Partial:
    accumulator = spec.accumulator()
    accumulator.extend(pieces)
    return accumulator.partial()


def result_of(spec: Spec, whole: Partial, initial: np.ndarray | None) -> Any:
    """Return the histogram, combined with initial contents if there are any."""
    if initial is None:
        return spec.result(whole)
    accumulator = spec.accumulator(dest=initial)
    accumulator.merge(whole)
    return accumulator.result()
