"""Sorting keys by their digits on a device."""

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

_FEWEST_LANES = 16  # of the kernel of a single tile, which PoCL 3.0 cannot compile for one or two
_GROUPS = 4  # for each compute unit


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
        What enqueues it.
    keys, values : memory
        Unsigned integers, and uint32; they are overwritten.
    size : int
        How many there are, less than 2**31.
    word : numpy.dtype
        Of the keys: uint32 or uint64.
    bits : int
        In how many of the lowest bits keys differ.
    lanes : int, optional
        Work-items of a work-group, at most. Defaults to one on CPUs.

    Returns
    -------
    keys, values : memory
        In order.
    """
    queue = chain.queue
    if lanes is None:
        lanes = 1 if device_kind(queue.device) == "cpu" else VALUES
    lanes = lanes_of(word, min(lanes, queue.device.max_work_group_size), queue.device.local_mem_size)
    kernels, tile = _kernels(queue.context, word, lanes), lanes * EACH

    def enqueue(name: str, groups: int, *arguments: Any) -> None:
        chain.run(kernels[name], groups, lanes, arguments)

    if size <= tile and lanes >= _FEWEST_LANES:
        enqueue("sort_tile", 1, keys, values, size, bits)
        return keys, values
    share = tile * ceil(size / (tile * queue.device.max_compute_units * _GROUPS))
    groups = ceil(size / share)
    counts = chain.new(VALUES * (groups + 1), np.uint32)
    others = chain.new(size, word), chain.new(size, np.uint32)
    for shift in range(0, bits, DIGIT_BITS):
        enqueue("count_digits", groups, keys, size, share, shift, counts)
        enqueue("scan_digits", VALUES, counts, groups)
        enqueue("move_digits", groups, keys, values, size, share, shift, counts, *others)
        (keys, values), others = others, (keys, values)
    return keys, values


@kept_by_context
def _kernels(context: cl.Context, word: np.dtype, lanes: int) -> dict[str, Kernel]:
    return kernels_of(context, render_digits(word, lanes))
