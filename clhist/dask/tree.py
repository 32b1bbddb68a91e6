"""Blocks of Dask collections, and the tree of tasks that merges their partial results."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed
from dask.delayed import Delayed

from clhist._core.spi import masked, unlabelled
from clhist.operators.c_types import integer

SPLIT_EVERY = 8  # partial results that one task merges


@dataclass(frozen=True)
class Blocks:
    """The blocks of several collections side by side.

    Attributes
    ----------
    rows : tuple of tuple
        For each block what the collections have: a `Delayed`, or the same scalar or None for all.
    starts : tuple of int, or None
        The position of each block's first element; None if sizes are unknown, or the arrays have more dimensions.
    size : int or None
        How many elements there are.
    """

    rows: tuple[tuple[Any, ...], ...]
    starts: tuple[int, ...] | None
    size: int | None

    def tasks(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return a task for each block: `function` of `args`, the start of the block or None, and its row."""
        starts = self.starts or [None] * len(self.rows)
        return [task(function)(*args, start, *row) for start, row in zip(starts, self.rows, strict=True)]


def blocks_of(**collections: Any) -> Blocks:
    """Return the blocks of collections by the names of their arguments.

    Parameters
    ----------
    **collections : dask collection, chunked array of xarray, Delayed, sequence of Delayed, scalar or None
        Arrays of one shape are cut alike; other collections must have as many blocks.

    Raises
    ------
    TypeError, ValueError
        If there is no collection, they do not fit; they are named.
    """
    arguments = {name: unlabelled(value) for name, value in collections.items()}
    arguments |= _arrays(arguments)
    columns = {name: _delayed(value) for name, value in arguments.items()}
    numbers = {name: len(column) for name, column in columns.items() if column is not None}
    if not numbers:
        raise TypeError(f"{', '.join(arguments)}: expected a Dask collection, got none")
    (first, number), *rest = numbers.items()
    for name, other in rest:
        if other != number:
            raise ValueError(f"{name}: expected {number} blocks as of {first}, got {other}")
    block_columns = [columns[name] or [arguments[name]] * number for name in arguments]
    array = next((value for value in arguments.values() if isinstance(value, da.Array)), None)
    starts, size = (None, None) if array is None else _starts_and_size(array)
    return Blocks(tuple(zip(*block_columns, strict=True)), starts, size)


def _arrays(arguments: Mapping[str, Any]) -> dict[str, da.Array]:
    """Return the arrays among collections as Dask arrays of equal chunks; raise ValueError if their shapes differ."""
    arrays = {name: value for name, value in arguments.items() if isinstance(value, da.Array)}
    first = next(iter(arrays), None)
    for name, value in arguments.items():
        if _delayed(value) is None and np.ndim(value) > 0:  # NumPy's
            plain = masked(name, value)
            if first is None:
                raise TypeError(f"{name}: expected a Dask collection as the others are, got an array of {plain.dtype}")
            arrays[name] = da.from_array(plain, chunks=plain.shape)
    for name, array in arrays.items():
        if first is not None and not _same_shape(arrays[first].shape, array.shape):
            raise ValueError(f"{name}: expected shape {arrays[first].shape} as of {first}, got {array.shape}")
    # Chunks of unknown sizes cannot be rechunked: blocks are paired in order.
    if first is None or any(math.isnan(n) for array in arrays.values() for n in array.shape):
        return arrays
    # Equal chunks pair the blocks of all arrays element by element.
    return {name: array.rechunk(arrays[first].chunks) for name, array in arrays.items()}


def _starts_and_size(array: da.Array) -> tuple[tuple[int, ...] | None, int | None]:
    """Return the starts of the blocks of a 1-D array, and the size of an array; None for unknown ones."""
    if any(math.isnan(n) for n in array.shape):
        return None, None
    starts = tuple(int(n) for n in np.cumsum([0, *array.chunks[0][:-1]])) if array.ndim == 1 else None
    return starts, int(math.prod(array.shape))


def tree(parts: Sequence[Any], join: Callable[[Sequence[Any]], Any], split_every: int | None = None) -> Any:
    """Join all parts by a tree of tasks.

    Parameters
    ----------
    parts : sequence of Delayed
        At least one.
    join : callable
        Of a list of parts; it must be associative.
    split_every : int, optional
        How many parts a task joins.
    """
    width = integer("split_every", SPLIT_EVERY if split_every is None else split_every, 2)
    level = list(parts)
    joined = delayed(join, pure=True, traverse=True)
    while len(level) > 1:
        # A single part at the end goes to the next level as it is.
        level = [joined(level[k : k + width]) if len(level) > k + 1 else level[k] for k in range(0, len(level), width)]
    return level[0]


def task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes a task of each call."""
    # Equal calls of a pure function have the same key, so Dask computes them once.
    made: Callable[..., Any] = delayed(function, pure=True, traverse=False)
    return made


def as_array(result: Any, shape: tuple[Any, ...], dtype: Any) -> da.Array:
    """Return the result of a task as a Dask array."""
    return da.from_delayed(result, shape, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))


def meta_of(collection: Any) -> Any:
    """Return the empty frame or array that has the types of a collection; None if it has none."""
    return getattr(collection, "_meta", None)


def check_unmasked(**collections: Any) -> None:
    """Raise ValueError, which names the argument, if elements of an array may be masked."""
    for name, value in collections.items():
        if isinstance(meta_of(unlabelled(value)), np.ma.MaskedArray):
            raise ValueError(f"{name}: expected an array without masked elements; dask.array.ma.filled fills it")


def on_host(block: Any) -> Any:
    """Return a block as an array of NumPy, a masked one if elements are missing; scalars and None as they are."""
    return block if block is None or np.ndim(block) == 0 else masked("block", block)


def check_pickles(name: str, value: Any) -> None:
    """Raise TypeError, which names the argument, if `value` cannot go to other processes."""
    try:
        pickle.dumps(value)
    except Exception as error:  # the objects to pickle may raise anything
        raise TypeError(f"{name}: expected what can be pickled, since it goes to workers: {error}") from error


def _delayed(value: Any) -> list[Any] | None:
    """Return the blocks of a collection, or None of a scalar."""
    if isinstance(value, da.Array):
        return list(value.to_delayed().ravel())
    if hasattr(value, "to_delayed"):
        return list(value.to_delayed())
    if isinstance(value, Delayed):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(part, Delayed) for part in value):
        return list(value)
    return None


def _same_shape(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(a == b or math.isnan(a) or math.isnan(b) for a, b in pairs)
