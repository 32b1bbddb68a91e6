"""Number keys of any type: on the device, or on the host if they are few or of a type without kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.opencl.arrays import Array, are_plain_numbers, is_device_array
from clhist._core.opencl.cuda_kinds import is_cuda, is_direct_only
from clhist._core.runtime.columns import ColumnData
from clhist._core.runtime.small import are_few_of_device, is_small
from clhist.grouped.keys import Numbering, are_hashed, numbered_by_host

if TYPE_CHECKING:
    import pyopencl as cl


def factorized(
    keys: Array,
    queue: cl.CommandQueue | None,
    *,
    sort: bool = True,
    first: bool = False,
    missing: bool = False,
    as_is: bool = False,
    on_host: bool | None = None,
    only_keys: bool = False,
    counts: bool = False,
) -> Numbering:
    """Return the numbering of keys of any type that can be hashed and sorted; see `number_keys`.

    Parameters
    ----------
    keys : array
        Of one dimension.
    queue : pyopencl.CommandQueue or None
        The caller's.
    sort, first, missing, as_is, on_host, only_keys
        As of `number_keys`.
    counts : bool
        Whether the elements of each key are counted if `keys` is an array of a device; every one then has a key.

    Raises
    ------
    TypeError
        If keys cannot be hashed or sorted.
    """
    is_device = is_device_array(keys)
    on_host = not is_device if on_host is None else on_host
    by_host = are_few(keys, queue, sort, only_keys=only_keys and sort and not first)
    if by_host and not is_device:
        return numbered_by_host(keys, sort, first, missing)
    from clhist.grouped.device_keys import numbered_by_device  # PyOpenCL, which few keys do without

    options = {"sort": sort, "first": first, "missing": missing, "as_is": as_is, "only_keys": only_keys}
    options["counts"] = counts and is_device
    return numbered_by_device(keys, queue, on_host=on_host, by_host=by_host, **options)


def are_few(keys: Array, queue: cl.CommandQueue | None, sort: bool = True, *, only_keys: bool = False) -> bool:
    """Whether the host numbers the keys faster than the device, or returns them if `only_keys` are needed."""
    is_device = is_device_array(keys)
    if is_cuda(keys) and (is_direct_only() or (only_keys and _is_replayed(keys))):
        return False
    is_less = partial(are_few_of_device, keys.queue) if is_device else is_small
    if only_keys and is_device and are_plain_numbers(keys):
        return is_less("distinct" if keys.dtype.kind == "f" else "factorize", keys.size, queue)
    if is_less("unique", keys.size, queue):
        return True
    # To sort different floats takes as long as to hash them.
    size = 2 * keys.size if sort and keys.dtype.kind == "f" else keys.size
    # `are_hashed` may import pandas, so ask it last.
    return is_less("factorize", size, queue) and are_hashed(keys)


def _is_replayed(keys: Array) -> bool:
    """Whether a call that needs the distinct keys of an array of CUDA alone is replayed, which takes less."""
    from clhist.grouped.distinct_keys import way_of  # PyOpenCL, which few keys do without

    return way_of(keys, keys.queue) is not None


def factorized_column(
    column: ColumnData, queue: cl.CommandQueue | None, *, sort: bool, first: bool = False, missing: bool = False
) -> Numbering:
    """Return the numbering of a column; missing elements are one more value if `missing` is true.

    The keys are of the type of `column`, masked or NaT if missing; a missing key is the last in sorted order.
    """
    nan = missing or column.nan_is_value
    of_nat = missing and column.values.dtype.kind in "mM"  # NaT marks the missing value in the array itself
    if column.missing is None or of_nat:
        numbering = factorized(column.values.reshape(-1), queue, sort=sort, first=first, missing=nan)
        return numbering._replace(keys=_like(column, numbering.keys, missing))
    mask = column.missing.reshape(-1)
    # Number the present elements only, and scatter their numbers to their positions.
    present = np.flatnonzero(~mask)
    # The missing key takes its place by first position, so those of the other keys are needed, too.
    is_counted = missing and len(present) < mask.size
    numbering = factorized(column.present.reshape(-1), queue, sort=sort, first=first or is_counted, missing=nan)
    numbers = np.full(mask.size, -1, numbering.numbers.dtype)
    numbers[present] = numbering.numbers
    keys: np.ndarray = numbering.keys
    positions = None if numbering.first is None else present[numbering.first]
    if is_counted:
        assert positions is not None
        at = int(mask.argmax())
        # Insert the missing key: last if sorted, otherwise by its first position.
        place = len(keys) if sort else int(np.searchsorted(positions, at))
        numbers[numbers >= place] += 1
        numbers[mask] = place
        positions = np.insert(positions, place, at)
        keys = np.ma.array(np.insert(keys, place, 0), mask=np.arange(len(keys) + 1) == place)
    return Numbering(numbers, _like(column, keys, missing), positions if first else None)


def _like(column: ColumnData, keys: np.ndarray, missing: bool) -> Any:
    """Return distinct values in the type of the column; a masked array if one may be missing."""
    if column.like is not None:
        return column.like(keys)
    return np.ma.asarray(keys) if missing and keys.dtype.kind not in "mM" else keys
