"""Order statistics of groups: medians and quantiles, also of weighted values. Two algorithms give the same result.

Radix selection: each digit of the result's key takes one sweep, a histogram of (group, digit) pairs over the values
that share the digits before it. Nothing is sorted or moved. Many groups on a CPU: a counting sort arranges values by
group, then quickselect finds the result of each group, or quicksort counts distinct values. Both run on the device
without synchronisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.kernels.render import render_selection
from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import default_queue, device_kind
from clhist._core.opencl.new_arrays import empty, zeros
from clhist._core.opencl.program import build, building, kept_by_context
from clhist._core.runtime.call import Call
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.engine import Engine
from clhist._core.runtime.launcher import chain_on
from clhist.operators.c_types import c_name
from clhist.statistics.quantiles import fraction_of
from clhist.statistics.selection_texts import CPU, GPU, Order, Recipe, texts

_MOST_BINS = 1 << 20  # of the histogram of one digit of all groups
_DIGIT_BITS = (4, 11)  # least and most bits of a digit: many groups need narrow digits for few bins
# Groups a core from which a CPU sorts the values by group: of 2 M float32 in 10,000 and more, on a Xeon of two cores.
# Note [Groups sorted on CPUs], docs/decisions/0021.
_MANY_GROUPS = 128
_MOST_SORTED = 1 << 32  # elements; the sort counts positions in 32 bits


def select(
    order: Order,
    keys: Array,
    values: Array,
    num_groups: int,
    queue: cl.CommandQueue,
    *,
    q: float = 0.5,
    weights: Array | None = None,
) -> Array:
    """Return the order statistic of each group, NaN for one without values.

    Parameters
    ----------
    order : Order
        What is asked.
    keys, values : pyopencl.array.Array
        Groups and as many values; a key outside [0, num_groups) is ignored.
    num_groups : int
        How many groups there are.
    queue : pyopencl.CommandQueue
        Where it runs.
    q : float
        Probability of a quantile.
    weights : pyopencl.array.Array, optional
        Weights of the values, not negative, of the dtype of `order`.
    """
    if order.is_exact:
        part, whole = fraction_of(q)
        q = order.probability.type(part << 32 | whole)
    if weights is None and sorts(values, num_groups, queue):
        return _sorted_by_group(order, keys, values, num_groups, q, queue)
    recipe = CPU if device_kind(queue.device) == "cpu" else GPU
    return _digit_by_digit(order, recipe, keys, values, num_groups, q, weights, queue)


def sorts(values: Array, num_groups: int, queue: cl.CommandQueue) -> bool:
    """Whether values are sorted by group rather than selected digit by digit: on CPUs, for many groups."""
    is_many = num_groups >= _MANY_GROUPS * queue.device.max_compute_units
    return is_many and device_kind(queue.device) == "cpu" and values.size < _MOST_SORTED and not is_cuda(values)


def check_weights(weights: Array, queue: cl.CommandQueue | None = None) -> None:
    """Raise TypeError or ValueError for invalid weights of a quantile; wait for device arrays."""
    if weights.dtype.kind not in "biuf":
        raise TypeError(f"weights: expected real numbers, got {weights.dtype}")
    # Booleans and unsigned integers are never negative.
    if weights.dtype.kind not in "if" or not weights.size:
        return
    if is_device_array(weights):
        queue = queue or default_queue(weights)
        engine = _negatives(queue.context, np.dtype(weights.dtype))
        (flags,) = engine.run([weights], Call(1, queue=queue)).results
        has_negative = bool(flags.get()[0])
    else:
        has_negative = bool((weights < 0).any())
    if has_negative:
        raise ValueError("weights: expected no negative weights, got some")


def _digit_by_digit(
    order: Order,
    recipe: Recipe,
    keys: Array,
    values: Array,
    num_groups: int,
    q: float,
    weights: Array | None,
    queue: cl.CommandQueue,
) -> Array:
    digits, blocks, choose, above_of, finish = _kernels(queue.context, order, recipe)
    shift = width = 8 * order.key.itemsize
    least, most = _DIGIT_BITS
    # The histogram has 2^digit bins for each group: the more groups, the narrower the digits.
    digit = min(most, max(least, (_MOST_BINS // num_groups).bit_length() - 1))
    digit = -(-width // -(-width // digit))  # the narrowest digit with the same number of sweeps
    total = np.dtype(np.int64) if weights is None else order.real
    dtypes = order.key, total, total, np.dtype(np.uint32)
    prefixes, rank, members, equal = chosen = [zeros(queue, (num_groups,), dtype) for dtype in dtypes]
    groups = (num_groups,) if recipe.takes_groups else ()
    data = (keys, values) if weights is None else (keys, values, weights)

    def run(kernel: Elementwise, arguments: Sequence[Any], *written: Array) -> None:
        chain = chain_on(queue, "for medians and quantiles")
        kernel(chain, num_groups, arguments)
        chain.finish(*written)

    def run_choose(counts: Array, bits: int, whole: int) -> None:
        chain = chain_on(queue, "for medians and quantiles")
        of_blocks: tuple[Any, ...] = ()
        if blocks is not None:
            low = bits // 2  # half of the digit's bits tell the block, so that loads are the fewest
            of_blocks = chain.new(num_groups << bits - low, total), low
            blocks(chain, num_groups << bits - low, [counts, *of_blocks])
        choose(chain, num_groups, [counts, *chosen, q, bits, whole, *groups, *of_blocks])
        chain.finish(*chosen)

    # From the highest digit on: count values that share the chosen digits, then choose the next digit of each group.
    while shift:
        bits, whole = min(digit, shift), int(shift == width)
        shift -= bits
        counts = digits(*data, prefixes, num_groups, shift, bits, whole, num_bins=num_groups << bits, queue=queue)
        run_choose(counts, bits, whole)
    # A statistic between two values needs the next greater one as well, found by another sweep.
    above: Any = (prefixes,)
    if above_of is not None:
        above = above_of(*data, prefixes, num_groups, num_bins=num_groups, queue=queue)
        above = above if isinstance(above, tuple) else (above,)
    result = empty(queue, (num_groups,), order.result, True)
    run(finish, [prefixes, above[0], above[-1], rank, members, equal, q, result], result)
    return result


def _sorted_by_group(
    order: Order, keys: Array, values: Array, num_groups: int, q: float, queue: cl.CommandQueue
) -> Array:
    count, begin, arrange, choose = _sorting_kernels(queue.context, order)
    cores = queue.device.max_compute_units
    # Each chunk has a count for every group: with more chunks the counts would outnumber the values.
    chunks = max(1, min(cores, values.size // num_groups))
    result = empty(queue, (num_groups,), order.result, True)
    # Memory from the queue's pool: touching new pages would take as long as the sort.
    chain = chain_on(queue, "for values sorted by group")
    places, keyed = chain.new(chunks * num_groups, np.uint32), chain.new(values.size, order.key)
    size, groups = np.int64(values.size), np.int64(num_groups)
    data = [part for array in (keys, values) for part in (array.base_data, np.uint64(array.offset))]
    data += [size, groups, places]
    one = (1,)
    # Counting sort: counts by chunk and group, where each begins, keys by group; then a selection in each group.
    done = count(queue, (chunks,), one, *data, wait_for=[*keys.events, *values.events])
    done = begin(queue, one, one, places, groups, np.int64(chunks), wait_for=[done])
    done = arrange(queue, (chunks,), one, *data, keyed, wait_for=[done])
    # Writing has advanced the places: those of the last chunk are the ends of the groups. Offset in bytes.
    ends = np.uint64(4 * (chunks - 1) * num_groups)
    last = [places, ends, keyed, groups, order.probability.type(q), result.data]
    result.add_event(choose(queue, (min(num_groups, 64 * cores),), one, *last, wait_for=[done]))
    return result


@kept_by_context
def _sorting_kernels(context: cl.Context, order: Order) -> tuple[Any, ...]:
    program = build(context, render_selection(order))
    with building(context):
        return tuple(cl.Kernel(program, f"clhist_{name}") for name in ("count", "begin", "arrange", "select"))


@kept_by_context
def _kernels(
    context: cl.Context, order: Order, recipe: Recipe
) -> tuple[Engine, Elementwise | None, Elementwise, Engine | None, Elementwise]:
    """Return the kernels of a radix selection: the counts of digits, those of blocks, the choice, the next value above,
    the results; None of those that are not needed.
    """
    text, weighted = texts(order, recipe), order.weights is not None
    following: Any = [] if weighted else [recipe.next_above(order.key)]
    following += [operators.maximum(order.key)] if order.propagates else []
    counted = operators.add(order.real) if weighted else operators.count(np.uint32)
    digits = Engine.of(context, counted, text.digits_arguments, text.digits, emits=1)
    above = None
    if following:
        operator = following if not weighted else following[0]
        above = Engine.of(context, operator, text.following_arguments, text.following, emits=1)
    parts = [
        (text.choose_arguments, text.choose, "clhist_choose"),
        (text.finish_arguments, text.finish, "clhist_finish"),
    ]
    if text.blocks:
        parts.append((text.blocks_arguments, text.blocks, "clhist_blocks"))
    choose, finish, *blocks = Elementwise.together(context, parts, text.functions)
    return digits, blocks[0] if blocks else None, choose, above, finish


@kept_by_context
def _negatives(context: cl.Context, dtype: np.dtype) -> Engine:
    return Engine.of(context, operators.maximum(np.uint8), f"const {c_name(dtype)} *x", "EMIT(0, x[i] < 0)", emits=1)
