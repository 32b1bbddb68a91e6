"""Number keys on the device, or by the host for the device where it has no kernel for them; `factorized` chooses."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, are_plain_numbers, is_device_array
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import to_device
from clhist.grouped.keys import Numbering, distinct, numbered_by_host
from clhist.grouped.numbering import MOST_ELEMENTS, can_number, number_keys
from clhist.grouped.sweep import size_kernel


def numbered_by_device(
    keys: Array,
    queue: cl.CommandQueue | None,
    *,
    sort: bool,
    first: bool,
    missing: bool,
    as_is: bool,
    on_host: bool,
    only_keys: bool,
    counts: bool,
    by_host: bool = False,
) -> Numbering:
    """Return keys as numbers; `by_host`: whether the host numbers them; other parameters are those of `factorized`."""
    is_device = is_device_array(keys)
    own_queue = queue or (keys.queue if is_device else None) or default_queue()
    if by_host or not can_number(keys.dtype, own_queue.device) or keys.size >= MOST_ELEMENTS:
        # Few keys, or no kernel for them.
        alone = by_host and only_keys and sort and not first
        return _by_host(keys, own_queue, sort, first, missing, on_host=on_host, alone=alone, counts=counts)
    dtype = keys.dtype
    if not is_device:
        keys = np.ascontiguousarray(keys, dtype.newbyteorder("="))
    # Kernels need native byte order; the distinct keys then get the order of the caller back.
    options = {"sort": sort, "first": first, "missing": missing, "as_is": as_is, "only_keys": only_keys}
    numbering = number_keys(keys, own_queue, on_host=on_host, **options)
    if counts and keys.size:
        count, number = size_kernel(own_queue.context, numbering.numbers.dtype), numbering.keys.size
        numbering = numbering._replace(counts=count(numbering.numbers, num_bins=number, queue=own_queue))
    return numbering if dtype.isnative else numbering._replace(keys=numbering.keys.astype(dtype))


def _by_host(
    keys: Array,
    queue: cl.CommandQueue,
    sort: bool,
    first: bool,
    missing: bool,
    *,
    on_host: bool,
    alone: bool,
    counts: bool,
) -> Numbering:
    """Return keys as numbers by the host, on the device of the keys; `alone`: only the sorted keys of a device."""
    is_device = is_device_array(keys)
    host = fetched(keys, queue) if is_device else keys
    if alone and are_plain_numbers(host):
        return Numbering(keys, to_device(queue, distinct(host)), None)
    numbers, *others = numbered_by_host(host, sort, first, missing)
    if counts:
        others[-1] = np.bincount(numbers, minlength=len(others[0]))
    placed = (array if array is None or not is_device else to_device(queue, array) for array in others)
    return Numbering(numbers if on_host else to_device(queue, numbers), *placed)
