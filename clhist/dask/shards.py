"""Sharded histograms, for more bins than a device or a message should hold: a worker has the bins of some shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np

from clhist._core.spi import leave_out, mask_of, mask_of_values
from clhist.dask.tree import SPLIT_EVERY, Blocks, as_array, on_host, task, tree
from clhist.operators.c_types import integer
from clhist.operators.operator import Operator
from clhist.partial import Partial, merge
from clhist.spec import Spec


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
    starts = blocks.starts or [None] * len(blocks.rows)
    split = [task(_split)(operator, size, shards, start, *row) for start, row in zip(starts, blocks.rows, strict=True)]
    width = SPLIT_EVERY if split_every is None else split_every
    chunks = []
    for k, begin in enumerate(range(0, num_bins, size)):
        here = min(size, num_bins - begin)
        spec = Spec(operator, here)
        of_blocks = [pairs[k] for pairs in split]
        parts = [task(_partial)(spec, task(_list)(*of_blocks[n : n + width])) for n in range(0, len(of_blocks), width)]
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


def _partial(spec: Spec, pieces: Sequence[tuple[np.ndarray, Any]]) -> Partial:
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
