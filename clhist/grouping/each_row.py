"""A value for each element from what its group has: the result of a statistic, or its place in the group."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.elementwise import ElementwiseKernel

from clhist.engine.digit_sort import sorted_by_digits
from clhist.opencl.arrays import Array, as_bytes, empty, is_device_array, to_device
from clhist.opencl.memory import allocated, scratch_allocator
from clhist.opencl.program import building, kept_by_context
from clhist.operators.c_types import c_name

_UINT, _INT64 = np.dtype(np.uint32), np.dtype(np.int64)
_PURPOSE = "to sort elements by group"


def result_of_each(keys: Array, results: Array) -> Array:
    """Return the result of the group of each element; NaN, 0 or False of one that is in no group."""
    none = results.dtype.type(np.nan if results.dtype.kind in "fc" else 0)
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
        take(found, keys, results, results.size, results.dtype.type(none), queue=keys.queue)
    return found.view(np.bool_) if is_bool else found


def place_of_each(keys: Array, num_groups: int, queue: cl.CommandQueue) -> Array:
    """Return how many elements of its group come before each element, as int64; -1 of one that is in no group."""
    on_device = is_device_array(keys)
    given = keys if on_device else to_device(queue, keys)
    places = empty(queue, given.shape, _INT64, True)
    if not given.size:
        return places if on_device else places.get()
    allocate = scratch_allocator(queue)
    memory = [allocated(allocate, 4 * given.size, _PURPOSE) for _ in range(2)]
    prepare, begin, place = _places(queue.context, given.dtype)
    done = prepare(given, *(_array(queue, each, given.size) for each in memory), num_groups, queue=queue)
    bits = max(1, num_groups.bit_length())  # there is a number for those in no group
    groups, order = memory
    *held, events = sorted_by_digits(queue, groups, order, given.size, _UINT, bits, allocate, [done])
    sorted_, positions = (_array(queue, each, given.size) for each in held)
    begins = _array(queue, allocated(allocate, 4 * (num_groups + 1), _PURPOSE), num_groups + 1)
    begin(sorted_, begins, queue=queue, wait_for=events, range=slice(given.size))
    place(sorted_, positions, begins, places, num_groups, queue=queue, range=slice(given.size))
    return places if on_device else places.get()


def _array(queue: cl.CommandQueue, memory: object, size: int) -> Array:
    return cl_array.Array(queue, (size,), _UINT, data=memory)


@kept_by_context
def _take(context: cl.Context, keys: np.dtype, results: np.dtype) -> ElementwiseKernel:
    key, result = c_name(keys), c_name(results)
    with building():
        return ElementwiseKernel(
            context,
            f"{result} *found, const {key} *keys, const {result} *results, const ulong groups, const {result} none",
            "found[i] = (ulong)keys[i] < groups ? results[keys[i]] : none",
            "clhist_take_of_groups",
        )


@kept_by_context
def _places(context: cl.Context, keys: np.dtype) -> tuple[ElementwiseKernel, ...]:
    texts = {
        "numbers": (
            f"const {c_name(keys)} *keys, uint *groups, uint *positions, const uint none",
            "groups[i] = (ulong)keys[i] < none ? (uint)keys[i] : none; positions[i] = i",
        ),
        "begins": (
            "const uint *groups, uint *begins",
            "if (i == 0 || groups[i] != groups[i - 1]) begins[groups[i]] = i",
        ),
        "places": (
            "const uint *groups, const uint *positions, const uint *begins, long *places, const uint none",
            "places[positions[i]] = groups[i] == none ? -1 : i - begins[groups[i]]",
        ),
    }
    with building():
        return tuple(
            ElementwiseKernel(context, arguments, code, f"clhist_group_{name}")
            for name, (arguments, code) in texts.items()
        )
