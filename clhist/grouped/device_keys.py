"""Number keys of any type on the device, or on the host if the device has no kernel for the type."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, are_plain_numbers, is_device_array
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import to_device
from clhist.grouped.keys import Numbering, distinct, numbered_by_host
from clhist.grouped.numbering import MOST_ELEMENTS, can_number, number_keys


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
    by_host: bool = False,
) -> Numbering:
    """Return keys as numbers; `by_host`: whether the host numbers them; other parameters are those of `factorized`."""
    is_device = is_device_array(keys)
    own_queue = queue or (keys.queue if is_device else None) or default_queue()
    if not by_host and can_number(keys.dtype, own_queue.device) and keys.size < MOST_ELEMENTS:
        dtype = keys.dtype
        if not is_device:
            keys = np.ascontiguousarray(keys, dtype.newbyteorder("="))
        # Kernels need native byte order; the distinct keys then get the order of the caller back.
        options = {"sort": sort, "first": first, "missing": missing, "as_is": as_is, "only_keys": only_keys}
        numbering = number_keys(keys, own_queue, on_host=on_host, **options)
        return numbering if dtype.isnative else numbering._replace(keys=numbering.keys.astype(dtype))
    # Few keys, or no kernel for them: number them on the host, and put the results on the device of the keys.
    host = fetched(keys, own_queue) if is_device else keys
    if by_host and only_keys and sort and not first and are_plain_numbers(host):
        return Numbering(keys, to_device(own_queue, distinct(host)), None)
    numbers, *others = numbered_by_host(host, sort, first, missing)
    placed = (array if array is None or not is_device else to_device(own_queue, array) for array in others)
    return Numbering(numbers if on_host else to_device(own_queue, numbers), *placed)
