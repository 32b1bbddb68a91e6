"""The result of a statistic for each element of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, as_bytes, is_device_array
from clhist._core.opencl.new_arrays import empty
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.chain import chain_on
from clhist._core.runtime.each import Elementwise
from clhist.operators.c_types import c_name


def result_of_each(keys: Array, results: Array, none: Any = None) -> Array:
    """Return the result of the group of each element; `none`, or NaN, 0 or False, of one that is in no group."""
    if none is None:
        none = np.nan if results.dtype.kind in "fc" else 0
    none = results.dtype.type(none)
    if not is_device_array(keys):
        number = len(results)
        inside = (keys >= 0) & (keys < number)
        taken = results.take(np.where(inside, keys, 0).astype(np.int64)) if number else np.full(keys.shape, none)
        return np.where(inside, taken, none)
    is_bool = results.dtype.kind == "b"
    results = as_bytes(results) if is_bool else results
    found = empty(keys.queue, keys.shape, results.dtype, True)
    if keys.size:
        take = _take(keys.queue.context, keys.dtype, results.dtype)
        chain = chain_on(keys.queue, "for a result of each element")
        take(chain, keys.size, [found, keys, results, results.size, results.dtype.type(none)])
        chain.finish(found)
    return found.view(np.bool_) if is_bool else found


@kept_by_context
def _take(context: cl.Context, keys: np.dtype, results: np.dtype) -> Elementwise:
    key, result = c_name(keys), c_name(results)
    return Elementwise(
        context,
        f"{result} *found, const {key} *keys, const {result} *results, const ulong groups, const {result} none",
        "found[i] = (ulong)keys[i] < groups ? results[keys[i]] : none",
        "clhist_take_of_groups",
    )
