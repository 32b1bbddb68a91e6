"""Order statistics of groups: medians and quantiles, of weighted values as well. There are two ways to the same result.

Digit by digit (radix selection): each digit of the key of the result takes one sweep, a histogram of (group, digit)
pairs over the values that have the digits before it. Nothing is sorted or moved. Many groups on a CPU: values are
sorted by group, by counting, and in each a quickselect finds the result; or a quicksort counts different values. Both
run on the device and wait for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

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
from clhist._core.runtime.chain import chain_on
from clhist._core.runtime.each import Elementwise
from clhist._core.runtime.engine import Engine
from clhist.operators.c_types import c_name
from clhist.operators.names import name_hint
from clhist.statistics.selection_texts import CPU, GPU, METHODS, Method, Order, Recipe, texts

_MOST_BINS = 1 << 20  # of one digit of all groups
_DIGIT_BITS = (4, 11)
# Groups a core from which a CPU sorts the values by group. Note [Groups sorted on CPUs], docs/decisions/0021.
_MANY_GROUPS = 128
_MOST_SORTED = 1 << 32


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
    if weights is None and sorts(values, num_groups, queue):
        return _sorted_by_group(order, keys, values, num_groups, q, queue)
    recipe = CPU if device_kind(queue.device) == "cpu" else GPU
    return _digit_by_digit(order, recipe, keys, values, num_groups, q, weights, queue)


def sorts(values: Array, num_groups: int, queue: cl.CommandQueue) -> bool:
    """Whether these values are sorted by so many groups."""
    is_many = num_groups >= _MANY_GROUPS * queue.device.max_compute_units
    return is_many and device_kind(queue.device) == "cpu" and values.size < _MOST_SORTED and not is_cuda(values)


def probability(q: object) -> float:
    """Return the probability of a quantile; raise TypeError or ValueError if it is none."""
    if isinstance(q, bool | np.bool_) or not isinstance(q, int | float | np.integer | np.floating):
        raise TypeError(f"q: expected a number from 0 to 1, got {q!r:.60}")
    if not 0 <= q <= 1:
        raise ValueError(f"q: expected a number from 0 to 1, got {q}")
    return float(q)


def checked_method(method: Any) -> Method:
    """Return the method of a quantile; raise ValueError if there is none of that name."""
    if method not in METHODS:
        raise ValueError(
            f"method: expected one of {', '.join(METHODS)}, got {method!r:.60}{name_hint(method, [*METHODS])}"
        )
    return cast(Method, method)


def check_weights(weights: Array, queue: cl.CommandQueue | None = None) -> None:
    """Raise TypeError or ValueError if these cannot be the weights of a quantile; of device arrays it waits."""
    if weights.dtype.kind not in "biuf":
        raise TypeError(f"weights: expected real numbers, got {weights.dtype}")
    if weights.dtype.kind not in "if" or not weights.size:
        return
    if is_device_array(weights):
        queue = queue or default_queue(weights)
        engine = _negatives(queue.context, np.dtype(weights.dtype))
        (found,) = engine.run([weights], Call(1, queue=queue)).results
        has_negative = bool(found.get()[0])
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
    digits, choose, above_of, finish = _kernels(queue.context, order, recipe)
    shift = width = 8 * order.key.itemsize
    least, most = _DIGIT_BITS
    digit = min(most, max(least, (_MOST_BINS // num_groups).bit_length() - 1))
    digit = -(-width // -(-width // digit))  # no larger than as many sweeps need
    total = np.dtype(np.int64) if weights is None else order.real
    dtypes = order.key, total, total, np.dtype(np.uint32)
    found, rank, members, equal = chosen = [zeros(queue, (num_groups,), dtype) for dtype in dtypes]
    groups = (num_groups,) if recipe.takes_groups else ()
    data = (keys, values) if weights is None else (keys, values, weights)

    def run(kernel: Elementwise, arguments: Sequence[Any], *written: Array) -> None:
        chain = chain_on(queue, "for medians and quantiles")
        kernel(chain, num_groups, arguments)
        chain.finish(*written)

    while shift:
        bits, whole = min(digit, shift), int(shift == width)
        shift -= bits
        counts = digits(*data, found, num_groups, shift, bits, whole, num_bins=num_groups << bits, queue=queue)
        run(choose, [counts, *chosen, q, bits, whole, *groups], *chosen)
    above: Any = (found,)
    if above_of is not None:
        above = above_of(*data, found, num_groups, num_bins=num_groups, queue=queue)
        above = above if isinstance(above, tuple) else (above,)
    result = empty(queue, (num_groups,), order.result, True)
    run(finish, [found, above[0], above[-1], rank, members, equal, q, result], result)
    return result


def _sorted_by_group(
    order: Order, keys: Array, values: Array, num_groups: int, q: float, queue: cl.CommandQueue
) -> Array:
    count, begin, arrange, choose = _sorting_kernels(queue.context, order)
    cores = queue.device.max_compute_units
    chunks = max(1, min(cores, values.size // num_groups))
    result = empty(queue, (num_groups,), order.result, True)
    chain = chain_on(queue, "for values sorted by group")  # from the queue's pool: new pages take as long as a sort
    places, keyed = chain.new(chunks * num_groups, np.uint32), chain.new(values.size, order.key)
    size, groups = np.int64(values.size), np.int64(num_groups)
    data = [part for each in (keys, values) for part in (each.base_data, np.uint64(each.offset))]
    data += [size, groups, places]
    one = (1,)
    done = count(queue, (chunks,), one, *data, wait_for=[*keys.events, *values.events])
    done = begin(queue, one, one, places, groups, np.int64(chunks), wait_for=[done])
    done = arrange(queue, (chunks,), one, *data, keyed, wait_for=[done])
    ends = np.uint64(4 * (chunks - 1) * num_groups)
    last = [places, ends, keyed, groups, order.real.type(q), result.data]
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
) -> tuple[Engine, Elementwise, Engine | None, Elementwise]:
    """Return the kernels of a selection digit by digit; the third is None where nothing is looked for above it."""
    text, weighted = texts(order, recipe), order.weights is not None
    following: Any = [] if weighted else [recipe.next_above(order.key)]
    following += [operators.maximum(order.key)] if order.propagates else []
    counted = operators.add(order.real) if weighted else operators.count(np.uint32)
    digits = Engine.of(context, counted, text.digits_arguments, text.digits, emits=1)
    above = None
    if following:
        operator = following if not weighted else following[0]
        above = Engine.of(context, operator, text.following_arguments, text.following, emits=1)
    choose = Elementwise(context, text.choose_arguments, text.choose, "clhist_choose", text.functions)
    finish = Elementwise(context, text.finish_arguments, text.finish, "clhist_finish", text.functions)
    return digits, choose, above, finish


@kept_by_context
def _negatives(context: cl.Context, dtype: np.dtype) -> Engine:
    return Engine.of(context, operators.maximum(np.uint8), f"const {c_name(dtype)} *x", "EMIT(0, x[i] < 0)", emits=1)
