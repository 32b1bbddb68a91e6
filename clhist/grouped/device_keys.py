"""Keys of any type as the numbers of their groups, on a device where that can be."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import to_device
from clhist.grouped.keys import Numbering, numbered_by_host
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
) -> Numbering:
    """Return keys as numbers; the parameters are those of `clhist.grouped.factorized.factorized`."""
    is_device = is_device_array(keys)
    found = queue or (keys.queue if is_device else None) or default_queue()
    if can_number(keys.dtype, found.device) and keys.size < MOST_ELEMENTS:
        dtype = keys.dtype
        if not is_device:
            keys = np.ascontiguousarray(keys, dtype.newbyteorder("="))
        numbering = number_keys(keys, found, sort=sort, first=first, missing=missing, as_is=as_is, on_host=on_host)
        return numbering if dtype.isnative else numbering._replace(keys=numbering.keys.astype(dtype))
    numbers, *others = numbered_by_host(fetched(keys, found) if is_device else keys, sort, first, missing)
    placed = (each if each is None or not is_device else to_device(found, each) for each in others)
    return Numbering(numbers if on_host else to_device(found, numbers), *placed)
