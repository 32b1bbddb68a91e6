"""Distinct keys of a device array alone, where one or two launches and one read of two words find them.

A call on CUDA is recorded and replayed, since its launches do not depend on what the host reads.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernel_code import KernelCode, signatures
from clhist._core.kernels.key_table import SORTED_BYTES, WINDOW, KeySpec
from clhist._core.kernels.render import render_key_sort, render_key_window
from clhist._core.opencl.arrays import Array
from clhist._core.opencl.cuda_kinds import is_cuda
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.new_arrays import beginning
from clhist._core.opencl.program import kept_by_context
from clhist._core.runtime.executable import Executable
from clhist._core.runtime.launcher import executable_of
from clhist._core.runtime.peek import Reading
from clhist._core.runtime.prepared import (
    MEMORY,
    OFFSET,
    VALUE,
    ArraySlot,
    Block,
    Launch,
    New,
    Part,
    Prepared,
    ResultSlots,
    Scratch,
    Slot,
)
from clhist._core.runtime.signature import call_templates
from clhist._core.runtime.single_kernel import sizes

_MOST = 1 << 22  # elements; more of them pay for looking at their range first
# Work-groups that mark up to so many elements; more of them give the last kernel more to read.
_GROUPS = ((1 << 12, 1), (1 << 16, 8), (_MOST, 64))
_LANES = 1024  # work-items of a work-group, at most


def distinct_on_device(keys: Array, queue: cl.CommandQueue) -> Array | None:
    """Return the distinct keys of a flat device array, sorted, NaN last; None if they need more launches.

    A GPU sorts numbers in local memory if they are few, and marks bits of integers that lie in a window of values.
    """
    way = way_of(keys, queue)
    if way is None:
        return None
    size, spec = keys.size, KeySpec(keys.dtype)
    if way == "sort":
        executable = _sorting(queue.context, queue, spec)
    else:
        executable = _marking(queue.context, queue, spec, next(number for most, number in _GROUPS if size <= most))
    room = New((min(size, WINDOW),))
    distinct, state = executable.run(queue, [keys, room, None], sizes(size), True).results
    reading = Reading(state, queue)

    def of_state(distinct: Any, state: np.ndarray) -> tuple[Any, bool]:
        number, is_outside = state.tolist()
        if is_outside:
            call_templates.put(_outside(keys, queue), True)
            return None, False
        return beginning(distinct, number), True  # of the caller's library in a replay

    if is_cuda(distinct):
        from clhist._core.runtime.cuda_repeats import ends_with

        ends_with(None, distinct, of_state)
    values: Array | None = of_state(distinct, reading.get())[0]
    return values


def way_of(keys: Array, queue: cl.CommandQueue) -> str | None:
    """Return how `distinct_on_device` looks for the keys: "sort" or "mark", which may fail; None if it does not."""
    size, kind = keys.size, keys.dtype.kind
    if device_kind(queue.device) == "cpu" or not keys.dtype.isnative or not 0 < size <= _MOST:
        return None
    if kind in "iubf" and size * KeySpec(keys.dtype).word.itemsize <= SORTED_BYTES:
        return "sort"
    return "mark" if kind in "iub" and not call_templates.get(_outside(keys, queue)) else None


def _outside(keys: Array, queue: cl.CommandQueue) -> Hashable:
    """Return the key under which arrays like `keys` are noted whose values were not in a window: they are not tried."""
    return "outside a window", queue, keys.dtype, keys.size


@kept_by_context
def _sorting(context: cl.Context, queue: cl.CommandQueue, spec: KeySpec) -> Executable:
    lanes = _lanes(queue)
    source = render_key_sort(spec, lanes)
    slots = _slots(spec)
    code = KernelCode(source, (), "clhist_sort", signatures(source)["sort"])
    arguments = [Slot(slot.name, kind) for slot in slots for kind in (MEMORY, OFFSET)]
    launch = Launch("combine", code, (lanes,), (lanes,), (*arguments, Slot("size", VALUE)))
    return _executable(queue, slots, Part(None, (), (launch,)))


@kept_by_context
def _marking(context: cl.Context, queue: cl.CommandQueue, spec: KeySpec, groups: int) -> Executable:
    lanes = _lanes(queue)
    source = render_key_window(spec, lanes, groups)
    codes = {name: KernelCode(source, (), f"clhist_{name}", of) for name, of in signatures(source).items()}
    slots = _slots(spec)
    keys, distinct, state = ([Slot(slot.name, kind) for kind in (MEMORY, OFFSET)] for slot in slots)
    parts, size = Scratch(0), Slot("size", VALUE)
    launches = (
        Launch("sweep", codes["mark"], (groups * lanes,), (lanes,), (*keys, parts, size)),
        Launch("combine", codes["list"], (lanes,), (lanes,), (*keys, parts, *distinct, *state, size)),
    )
    # A bit for each value, and the flag behind them.
    block = Block(groups * (WINDOW // 32 + 1) * 4, "for the bits of distinct values")
    return _executable(queue, slots, Part(None, (block,), launches))


def _lanes(queue: cl.CommandQueue) -> int:
    """Return the greatest power of 2 that a work-group may have."""
    return min(_LANES, 1 << queue.device.max_work_group_size.bit_length() - 1)


def _slots(spec: KeySpec) -> tuple[ArraySlot, ...]:
    return (
        ArraySlot("keys", True, False),
        ArraySlot("distinct", False, True, ((WINDOW,), spec.dtype)),
        ArraySlot("state", False, True, ((2,), np.dtype(np.uint32))),
    )


def _executable(queue: cl.CommandQueue, slots: tuple[ArraySlot, ...], part: Part) -> Executable:
    none: Any = None  # these results have no operator
    results = tuple(ResultSlots((n,), False, "", none) for n in (1, 2))
    return executable_of(queue, Prepared(slots, ("size",), (part,), results, call=("distinct values", ())))
