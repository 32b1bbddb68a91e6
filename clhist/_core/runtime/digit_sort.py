"""Radix sort of unsigned keys on a device, the least digit first.

Note [A CPU's work-group is one work-item], docs/decisions/0020.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.kernels.digit_sort import EACH, VALUES, lanes_of
from clhist._core.kernels.render import render_digits
from clhist._core.model.sort import DIGIT_BITS
from clhist._core.opencl.device import device_kind
from clhist._core.opencl.program import Kernel, kept_by_context, kernels_of
from clhist._core.runtime.chain import Chain

_FEWEST_LANES = 16  # of the kernel of a single tile, which PoCL 3.0 does not compile for one or two
_GROUPS = 4  # work-groups for each compute unit


def sorted_by_digits(
    chain: Chain,
    keys: Any,
    values: Any,
    size: int,
    word: np.dtype,
    bits: int,
    lanes: int | None = None,
) -> tuple[Any, Any]:
    """Enqueue a stable sort of keys with their values.

    Parameters
    ----------
    chain : Chain
        Enqueues the kernels and owns the scratch memory.
    keys, values : memory
        Unsigned integers, and uint32; both are overwritten.
    size : int
        The number of keys, less than 2**31.
    word : numpy.dtype
        The dtype of the keys: uint32 or uint64.
    bits : int
        Only so many of the lowest bits differ between keys.
    lanes : int, optional
        The largest work-group size. Defaults to one work-item on CPUs.

    Returns
    -------
    keys, values : memory
        The sorted keys with their values: the arguments, or scratch memory.
    """
    queue = chain.queue
    if lanes is None:
        lanes = 1 if device_kind(queue.device) == "cpu" else VALUES
    lanes = lanes_of(word, min(lanes, queue.device.max_work_group_size), queue.device.local_mem_size)
    kernels, tile = _kernels(queue.context, word, lanes), lanes * EACH

    def enqueue(name: str, groups: int, *arguments: Any) -> None:
        chain.run(kernels[name], groups, lanes, arguments)

    if size <= tile and lanes >= _FEWEST_LANES:  # one launch sorts all digits in local memory
        enqueue("sort_tile", 1, keys, values, size, bits)
        return keys, values
    # Whole tiles for each work-group, so that only the last share has an incomplete one.
    share = tile * ceil(size / (tile * queue.device.max_compute_units * _GROUPS))
    groups = ceil(size / share)
    counts = chain.new(VALUES * (groups + 1), np.uint32)
    # Two buffers take turns as source and destination of a digit.
    others = chain.new(size, word), chain.new(size, np.uint32)
    # The least digit first: since each pass is stable, it keeps the order of the digits below.
    for shift in range(0, bits, DIGIT_BITS):
        enqueue("count_digits", groups, keys, size, share, shift, counts)
        enqueue("scan_digits", VALUES, counts, groups)
        enqueue("move_digits", groups, keys, values, size, share, shift, counts, *others)
        (keys, values), others = others, (keys, values)
    return keys, values


@kept_by_context
def _kernels(context: cl.Context, word: np.dtype, lanes: int) -> dict[str, Kernel]:
    return kernels_of(context, render_digits(word, lanes))
