"""Elementwise kernels: the numbers of pairs of two columns, and the result of each element's group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, as_bytes
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.operands import in_place
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.elementwise_kernel import Elementwise
from clhist._core.runtime.launcher import chain_on
from clhist.grouped.columns import flattened
from clhist.grouped.host import value_of_none
from clhist.operators.c_types import c_name


def join(a: Array, num_a: int, b: Array, num_b: int, queue: cl.CommandQueue, outside: int = -1) -> Array:
    """Return the numbers of the pairs of two columns, in the order of both; -1 where either number is out of range.

    Numbers of `b` that are out of range count as `outside`.
    """
    a, b = (in_place(flattened(column), queue) for column in (a, b))
    # 32 bits halve the memory traffic where all pairs fit.
    dtype = np.dtype(np.int32 if num_a * num_b < 2**31 else np.int64)
    joined = empty(queue, (a.size,), dtype, True)
    chain = chain_on(queue, "to join keys")
    _joiner(queue.context, a.dtype, b.dtype, dtype)(chain, a.size, [joined, a, b, num_a, num_b, outside])
    chain.finish(joined)
    return joined


@kept_by_context
def _joiner(context: cl.Context, a: np.dtype, b: np.dtype, joined: np.dtype) -> Elementwise:
    # Cast to unsigned, negative numbers are out of range as well: one comparison instead of two.
    second = "long second = (ulong)b[i] < num_b ? (long)b[i] : outside; "
    return Elementwise(
        context,
        f"{c_name(joined)} *joined, const {c_name(a)} *a, const {c_name(b)} *b, const ulong num_a, "
        "const ulong num_b, const long outside",
        f"{second}joined[i] = (ulong)a[i] < num_a && second >= 0 "
        f"? ({c_name(joined)})((ulong)a[i] * num_b + second) : -1",
        "clhist_join",
    )


def result_of_each(keys: Array, results: Array, none: Any = None) -> Array:
    """Return the result of the group of each element; `none`, or NaN, 0 or False, of one that is in no group."""
    none = value_of_none(results.dtype, none)
    is_bool = results.dtype.kind == "b"
    # OpenCL allows no bool in arguments of kernels, which copy bytes instead.
    results = as_bytes(results) if is_bool else results
    rows = empty(keys.queue, keys.shape, results.dtype, True)
    if keys.size:
        take = _take(keys.queue.context, keys.dtype, results.dtype)
        chain = chain_on(keys.queue, "for a result of each element")
        take(chain, keys.size, [rows, keys, results, results.size, results.dtype.type(none)])
        chain.finish(rows)
    return rows.view(np.bool_) if is_bool else rows


@kept_by_context
def _take(context: cl.Context, keys: np.dtype, results: np.dtype) -> Elementwise:
    key, result = c_name(keys), c_name(results)
    return Elementwise(
        context,
        f"{result} *found, const {key} *keys, const {result} *results, const ulong groups, const {result} none",
        "found[i] = (ulong)keys[i] < groups ? results[keys[i]] : none",
        "clhist_take_of_groups",
    )
