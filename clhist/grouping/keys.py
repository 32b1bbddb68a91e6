"""Keys of groups as numbers: those of any sortable values, on the host, and how many groups integers make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist.opencl.arrays import Array, is_device_array

# Integer keys larger than this, and than so many times the number of elements, are taken for identifiers rather than
# the numbers of groups, each of which has a place in every result.
_MOST_UNASKED = 1 << 24
_SPARSE = 16


def has_missing(keys: Any) -> bool:
    """Whether `keys` are of pandas, and some of them None or NA, which NumPy cannot sort."""
    return hasattr(keys, "factorize") and not hasattr(keys, "levels") and bool(np.any(keys.isna()))


def numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, sorted, and the number of each key among them; -1 of NaN and NaT."""
    try:
        labels, numbers = np.unique(keys, return_inverse=True)
    except TypeError as error:
        raise TypeError(f"keys: expected what numpy.unique can sort, got {keys.dtype}: {error}") from error
    numbers = numbers.reshape(keys.shape)
    missing = labels != labels if labels.dtype.kind in "fcmMO" else np.zeros(len(labels), bool)
    if missing.any():  # at the end
        kept = int(len(labels) - np.count_nonzero(missing))
        labels, numbers = labels[:kept], np.where(numbers < kept, numbers, -1)
    return labels, numbers


def number_of_groups(keys: Array, queue: cl.CommandQueue) -> int:
    """Return one more than the largest key; raise ValueError if keys look like identifiers."""
    if not keys.size:
        return 0
    largest = cl_array.max(keys, queue).get() if is_device_array(keys) else keys.max()
    return number_up_to(int(largest), keys.size)


def number_up_to(largest: int, size: int) -> int:
    """Return the same of `size` keys, the largest of which is known."""
    if largest >= max(_MOST_UNASKED, _SPARSE * size):
        raise ValueError(
            f"keys: expected numbers of groups, got {largest} among {size}; give num_groups= if that is one, or "
            "number the keys by numpy.unique(keys, return_inverse=True)"
        )
    return max(0, largest + 1)
