"""Medians of groups by radix selection: the digits of the middle value of each group, the highest first.

Each digit takes one sweep: a histogram of (group, digit) pairs over the values that have the digits before it. Nothing
is sorted or moved, all of it runs on the device, and nothing is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.elementwise import ElementwiseKernel

from clhist import operators
from clhist.engine.engine import Engine
from clhist.grouping.median_texts import CPU, GPU, Recipe, key_type, texts
from clhist.opencl.arrays import Array, empty, zeros
from clhist.opencl.device import device_kind
from clhist.opencl.program import building, kept_by_context

_MOST_BINS = 1 << 20  # of one digit of all groups
_DIGIT_BITS = (4, 11)


def group_medians(
    keys: Array, values: Array, num_groups: int, dtype: np.dtype, result: np.dtype, queue: cl.CommandQueue, *, nan: bool
) -> Array:
    """Return the median of each group, NaN for one without values.

    Parameters
    ----------
    keys : pyopencl.array.Array
        Groups; one outside [0, num_groups) is ignored.
    values : pyopencl.array.Array
        Of as many elements.
    num_groups : int
        How many groups there are.
    dtype : numpy.dtype
        Of the values, with booleans as bytes.
    result : numpy.dtype
        Of the medians: a float.
    queue : pyopencl.CommandQueue
        Where it runs.
    nan : bool
        Whether a NaN makes the median of its group NaN, rather than being no value.
    """
    recipe = CPU if device_kind(queue.device) == "cpu" else GPU
    kernels = _kernels(queue.context, keys.dtype, dtype, result, nan and dtype.kind == "f", recipe)
    width = 8 * kernels.key.itemsize
    least, most = _DIGIT_BITS
    digit = min(most, max(least, (_MOST_BINS // num_groups).bit_length() - 1))
    digit = -(-width // -(-width // digit))  # no larger than as many sweeps need
    held = [np.dtype(each) for each in (kernels.key, np.int64, np.int64, np.uint32)]
    found, rank, size, equal = (zeros(queue, (num_groups,), each) for each in held)
    shift = width
    groups = (num_groups,) if recipe.takes_groups else ()
    while shift:
        bits, whole = min(digit, shift), int(shift == width)
        shift -= bits
        given = (keys, values, found, num_groups, shift, bits, whole)
        counts = kernels.digits(*given, num_bins=num_groups << bits, queue=queue)
        kernels.choose(counts, found, rank, size, equal, bits, whole, *groups, queue=queue, range=slice(num_groups))
    above = kernels.above(keys, values, found, num_groups, num_bins=num_groups, queue=queue)
    medians = empty(queue, (num_groups,), result, True)
    kernels.finish(found, above[0], above[-1], rank, size, equal, medians, queue=queue)
    return medians


@dataclass(frozen=True)
class _Kernels:
    """The kernels of one kind of keys and values; `key` is the unsigned integer in the order of the values."""

    key: np.dtype
    digits: Engine
    choose: ElementwiseKernel
    above: Engine
    finish: ElementwiseKernel


@kept_by_context
def _kernels(
    context: cl.Context, group: np.dtype, dtype: np.dtype, result: np.dtype, nan: bool, recipe: Recipe
) -> _Kernels:
    key, text = key_type(dtype), texts(group, dtype, result, recipe, nan=nan)
    above: Any = [recipe.next_above(key), *([operators.maximum(key)] if nan else [])]
    digits = Engine.of(context, operators.count(np.uint32), arguments=text.digits_arguments, map=text.digits, emits=1)
    following = Engine.of(context, above, arguments=text.following_arguments, map=text.following, emits=1)
    with building():
        choose = ElementwiseKernel(context, text.choose_arguments, text.choose, "clhist_choose")
        finish = ElementwiseKernel(context, text.finish_arguments, text.finish, "clhist_finish")
    return _Kernels(key, digits, choose, following, finish)
