"""Distinct values of each group: their number, and the most frequent one.

Pairs of the numbers of group and value are numbered as keys.
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import Array, as_bytes, is_device_array
from clhist._core.opencl.new_arrays import empty, to_device
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.launcher import chain_on
from clhist.grouped.element_kernels import join
from clhist.grouped.factorized import factorized
from clhist.grouped.numbering import number_keys
from clhist.grouped.sweep import size_kernel
from clhist.operators.c_types import c_name
from clhist.statistics.outputs import positioned

_INT64 = np.dtype(np.int64)


def number_of_different(
    keys: Array, num_groups: int, numbers: Array, num_values: int, skipna: bool, queue: cl.CommandQueue
) -> Array:
    """Return the number of distinct values of each group; missing values count as one more unless `skipna`."""
    values = num_values + (not skipna)
    # One integer for each pair of group and value: distinct pairs are counted like distinct keys.
    joined = join(keys, num_groups, numbers, values, queue, outside=-1 if skipna else num_values)
    pairs = number_keys(joined, queue, none=-1, bound=num_groups * values, only_keys=True).keys
    counts: Array = _counter(queue.context, pairs.dtype)(pairs, max(1, values), num_bins=num_groups, queue=queue)
    return counts


def most_frequent(keys: Array, num_groups: int, values: Array, skipna: bool, queue: cl.CommandQueue) -> Array:
    """Return the least of the most frequent values of each group; NaN or 0 for a group without values."""
    is_bool = values.dtype.kind == "b"
    # Number the values, then number and count the pairs of group and value.
    numbering = factorized(as_bytes(values) if is_bool else values, queue, missing=not skipna)
    labels = numbering.keys if is_device_array(numbering.keys) else to_device(queue, numbering.keys)
    joined = join(keys, num_groups, numbering.numbers, labels.size, queue)
    pairs = number_keys(joined, queue, none=-1, bound=num_groups * labels.size)
    count = size_kernel(queue.context, pairs.numbers.dtype)
    # Pairs are in ascending order and argmax takes the first maximum, so ties go to the least value.
    best, take = _of_most_frequent(queue.context, pairs.keys.dtype, labels.dtype)
    counts = count(pairs.numbers, num_bins=max(1, pairs.keys.size), queue=queue)
    largest, index = (empty(queue, (num_groups,), _INT64, True) for _ in range(2))
    best(pairs.keys, counts, max(1, labels.size), num_bins=num_groups, out=(largest, index), queue=queue)
    result = empty(queue, (num_groups,), labels.dtype, True)
    # Kernels need non-empty buffers, even if no pair is read.
    unread = empty(queue, (1,), pairs.keys.dtype, True), result
    arguments = (pairs.keys, labels) if pairs.keys.size else unread
    chain = chain_on(queue, "for the most frequent values")
    take(chain, num_groups, [result, index, *arguments, max(1, labels.size)])
    chain.finish(result)
    return result.view(np.bool_) if is_bool else result


@kept_by_context
def _counter(context: cl.Context, pairs: np.dtype) -> Engine:
    count, arguments = operators.count(np.int64), f"const {c_name(pairs)} *pairs, const long values"
    return Engine.of(context, count, arguments, "EMIT(pairs[i] / values, 1)", emits=1)


@kept_by_context
def _of_most_frequent(context: cl.Context, pairs: np.dtype, dtype: np.dtype) -> tuple[Engine, Elementwise]:
    """Return the kernels that find the most frequent pair of each group, and its value."""
    best = Engine.of(
        context,
        positioned("argmax", _INT64, _INT64),
        arguments=f"const {c_name(pairs)} *pairs, const long *counts, const long values",
        map="EMIT(pairs[i] / values, ((value_t){counts[i], i}))",
        emits=1,
    )
    none = "NAN" if dtype.kind == "f" else "0"
    take = Elementwise(
        context,
        f"{c_name(dtype)} *found, const long *index, const {c_name(pairs)} *pairs, "
        f"const {c_name(dtype)} *labels, const long values",
        f"found[i] = index[i] < 0 ? ({c_name(dtype)}){none} : labels[pairs[index[i]] % values]",
        "clhist_take_most_frequent",
    )
    return best, take
