"""Medians of groups by radix selection: the digits of the middle value of each group, the highest first.

Each digit takes one sweep: a histogram of (group, digit) pairs over the values that have the digits before it. Nothing
is sorted or moved, all of it runs on the device, and nothing is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.elementwise import ElementwiseKernel

from clhist import operators
from clhist.kernel import HistogramKernel
from clhist.opencl.arrays import Array
from clhist.opencl.device import device_kind
from clhist.opencl.program import building, kept_by_context
from clhist.operators.c_types import c_name
from clhist.operators.equivalents import decoded, encoded

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
    on_cpu = device_kind(queue.device) == "cpu"
    kernels = _kernels(queue.context, keys.dtype, dtype, result, nan and dtype.kind == "f", on_cpu)
    width = 8 * kernels.key.itemsize
    least, most = _DIGIT_BITS
    digit = min(most, max(least, (_MOST_BINS // num_groups).bit_length() - 1))
    digit = -(-width // -(-width // digit))  # no larger than as many sweeps need
    found, rank, size = (cl_array.zeros(queue, num_groups, t) for t in (kernels.key, np.int64, np.int64))
    equal = cl_array.zeros(queue, num_groups, np.uint32)
    shift = width
    groups = (num_groups,) if on_cpu else ()
    while shift:
        bits, whole = min(digit, shift), int(shift == width)
        shift -= bits
        given = (keys, values, found, num_groups, shift, bits, whole)
        counts = kernels.digits(*given, num_bins=num_groups << bits, queue=queue)
        kernels.choose(counts, found, rank, size, equal, bits, whole, *groups, queue=queue, range=slice(num_groups))
    above = kernels.above(keys, values, found, num_groups, num_bins=num_groups, queue=queue)
    medians = cl_array.empty(queue, num_groups, result)
    kernels.finish(found, above[0], above[-1], rank, size, equal, medians, queue=queue)
    return medians


@dataclass(frozen=True)
class _Kernels:
    """The kernels of one kind of keys and values; `key` is the unsigned integer in the order of the values."""

    key: np.dtype
    digits: HistogramKernel
    choose: ElementwiseKernel
    above: HistogramKernel
    finish: ElementwiseKernel


@kept_by_context
def _kernels(
    context: cl.Context, group: np.dtype, dtype: np.dtype, result: np.dtype, nan: bool, on_cpu: bool
) -> _Kernels:
    key = np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)
    unsigned, ones = c_name(key), f"({c_name(key)})-1"
    value, back = encoded("v", dtype), decoded("k", dtype)
    if dtype.kind == "f":
        value = f"(v != v ? {ones} : {value})"  # no number has this key
    keep = "" if nan or dtype.kind != "f" else " && v == v"
    arguments = (
        f"const {c_name(group)} *keys, const {c_name(dtype)} *values, const {unsigned} *found, const long groups"
    )
    start = (
        f"const {c_name(group)} g = keys[i]; const {c_name(dtype)} v = values[i]; "
        f"if (g >= 0 && g < groups{keep}) {{ const {unsigned} k = {value}; "
    )
    digit = f"(long)(k >> shift & (((({unsigned})1) << bits) - 1))"
    # Most values share a few digits. On CPUs the bins of a digit are neighbours, so that these few are in the cache.
    place = f"{digit} * groups + g" if on_cpu else f"((long)g << bits) + {digit}"
    digits = HistogramKernel(
        context,
        operators.count(np.uint32),
        arguments=f"{arguments}, const uint shift, const uint bits, const int whole",
        map=f"{start}if (whole || k >> shift >> bits == found[g]) EMIT({place}, 1); }}",
        emits=1,
    )
    # Half of the values are above, in no order, and CPUs would mispredict a branch: modulo 2^32 or 2^64 `found[g] - k`
    # is largest for the next value above, and small for all that are not above.
    next_above, upper = operators.minimum(key), "if (k > found[g]) EMIT0(g, k); "
    if on_cpu:  # a minimum of `k - found[g] - 1` of 64 bits crashes the compiler of Intel's runtime
        next_above, upper = operators.maximum(key), "EMIT0(g, found[g] - k); "
    above: Any = [next_above, *([operators.maximum(key)] if nan else [])]
    upper += ("EMIT1(g, k); " if nan else "") + "}"
    following = HistogramKernel(context, above, arguments=arguments, map=start + upper, emits=1)
    first, at = ("", "i + d * groups") if on_cpu else ("first = (long)i << bits, ", "first + d")
    with building():
        choose = ElementwiseKernel(
            context,
            f"const uint *counts, {unsigned} *found, long *rank, long *size, uint *equal, uint bits, int whole"
            + (", long groups" if on_cpu else ""),
            f"""
            const long {first}last = (1l << bits) - 1;
            if (whole) {{
                for (long d = 0; d <= last; ++d) size[i] += counts[{at}];
                rank[i] = (size[i] - 1) / 2;
            }}
            long left = rank[i], d = 0;
            for (; d < last && left >= counts[{at}]; ++d) left -= counts[{at}];
            rank[i] = left;
            equal[i] = counts[{at}];
            found[i] = (whole ? 0 : found[i] << bits) | d;
            """,
            "clhist_choose",
        )
        finish = ElementwiseKernel(
            context,
            f"const {unsigned} *found, const {unsigned} *above, const {unsigned} *top, const long *rank, "
            f"const long *size, const uint *equal, {c_name(result)} *medians",
            f"""
            const {unsigned} higher = rank[i] + 1 < equal[i] ? found[i] : {"found[i] - " if on_cpu else ""}above[i];
            {unsigned} k = found[i];
            const {c_name(result)} low = {back};
            k = size[i] % 2 ? k : higher;
            const {c_name(result)} high = {back};
            const int missing = size[i] == 0{f" || top[i] == {ones}" if nan else ""};
            medians[i] = missing ? NAN : low == high ? low : (low + high) / 2;
            """,
            "clhist_finish",
        )
    return _Kernels(key, digits, choose, following, finish)
