"""Keys of any type as the numbers of their groups: on the device, or on the host where there are few, or no kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from clhist._core.opencl.arrays import Array, is_device_array
from clhist._core.opencl.device import default_queue
from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import to_device
from clhist._core.runtime.columns import ColumnData
from clhist._core.runtime.small import is_small
from clhist.grouped.keys import are_hashed, hashed, numbered
from clhist.grouped.numbering import MOST_ELEMENTS, Numbering, can_number, number_keys


def factorized(
    keys: Array,
    queue: cl.CommandQueue | None,
    *,
    sort: bool = True,
    first: bool = False,
    missing: bool = False,
    as_is: bool = False,
    on_host: bool | None = None,
) -> Numbering:
    """Return keys as numbers, as `clhist.grouped.numbering.number_keys`; of any type that can be hashed and sorted.

    Parameters
    ----------
    keys : array
        Of one dimension.
    queue : pyopencl.CommandQueue or None
        The caller's.
    sort, first, missing, as_is, on_host
        As of `number_keys`.

    Raises
    ------
    TypeError
        If keys cannot be hashed or sorted.
    """
    is_device = is_device_array(keys)
    on_host = not is_device if on_host is None else on_host
    if not is_device and are_few(keys, queue):
        return _by_the_host(keys, sort, first, missing)
    found = queue or (keys.queue if is_device else None) or default_queue()
    if can_number(keys.dtype, found.device) and keys.size < MOST_ELEMENTS:
        dtype = keys.dtype
        if not is_device:
            keys = np.ascontiguousarray(keys, dtype.newbyteorder("="))
        numbering = number_keys(keys, found, sort=sort, first=first, missing=missing, as_is=as_is, on_host=on_host)
        return numbering if dtype.isnative else numbering._replace(keys=numbering.keys.astype(dtype))
    numbers, *others = _by_the_host(fetched(keys, found) if is_device else keys, sort, first, missing)
    placed = (each if each is None or not is_device else to_device(found, each) for each in others)
    return Numbering(numbers if on_host else to_device(found, numbers), *placed)


def are_few(keys: np.ndarray, queue: cl.CommandQueue | None) -> bool:
    """Whether the host numbers keys sooner than the device."""
    if is_small("unique", keys.size, queue):
        return True
    return are_hashed(keys) and is_small("factorize", keys.size, queue)


def factorized_column(
    column: ColumnData, queue: cl.CommandQueue | None, *, sort: bool, first: bool = False, missing: bool = False
) -> Numbering:
    """Return the values of a column as numbers, as `factorized`; missing ones are one more value if `missing` is true.

    The keys are those of `column`, with a mask or NaT; a missing one comes last in their order.
    """
    nan = missing or column.nan_is_value
    of_nat = missing and column.values.dtype.kind in "mM"  # NaT is missing itself
    if column.missing is None or of_nat:
        found = factorized(column.values.reshape(-1), queue, sort=sort, first=first, missing=nan)
        return found._replace(keys=_like(column, found.keys, missing))
    mask = column.missing.reshape(-1)
    present = np.flatnonzero(~mask)
    is_counted = missing and len(present) < mask.size
    found = factorized(column.present.reshape(-1), queue, sort=sort, first=first or is_counted, missing=nan)
    numbers = np.full(mask.size, -1, found.numbers.dtype)
    numbers[present] = found.numbers
    keys: np.ndarray = found.keys
    positions = None if found.first is None else present[found.first]
    if is_counted:
        assert positions is not None
        at = int(mask.argmax())
        place = len(keys) if sort else int(np.searchsorted(positions, at))
        numbers[numbers >= place] += 1
        numbers[mask] = place
        positions = np.insert(positions, place, at)
        keys = np.ma.array(np.insert(keys, place, 0), mask=np.arange(len(keys) + 1) == place)
    return Numbering(numbers, _like(column, keys, missing), positions if first else None)


def _like(column: ColumnData, keys: np.ndarray, missing: bool) -> Any:
    """Return different values as the column has them; masked if one may be missing."""
    if column.like is not None:
        return column.like(keys)
    return np.ma.asarray(keys) if missing and keys.dtype.kind not in "mM" else keys


def _by_the_host(keys: np.ndarray, sort: bool, first: bool, missing: bool) -> Numbering:
    in_order = None if sort or first else hashed(keys)
    if in_order is not None:
        return Numbering(in_order[1].astype(np.int32 if keys.size < 2**31 else np.int64), in_order[0], None)
    labels, numbers = numbered(keys, sort)
    numbers = numbers.astype(np.int32 if keys.size < 2**31 else np.int64, copy=False)
    has_none = numbers < 0
    if missing and has_none.any():
        numbers = np.where(has_none, numbers.dtype.type(len(labels)), numbers)
        one = keys[has_none][:1].astype(labels.dtype, copy=False)
        labels = np.concatenate([labels, one], dtype=labels.dtype)  # whose byte order is not NumPy's choice
    if sort and not first:
        return Numbering(numbers, labels, None)
    ordered, others, positions = in_first_order(numbers, labels)
    if not sort:
        return Numbering(ordered, others, np.sort(positions) if first else None)
    return Numbering(numbers, labels, positions if first else None)


def in_first_order(numbers: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers and labels in the order of the labels' first positions, and these, in the order of before.

    A number of -1 stays.
    """
    positions = np.zeros(len(labels) + 1, np.int64)
    flat = numbers.reshape(-1)
    positions[flat[::-1]] = np.arange(flat.size - 1, -1, -1)  # the last that is written is the first one
    positions = positions[: len(labels)]
    order = np.argsort(positions)
    ranks = np.full(len(labels) + 1, -1, numbers.dtype)
    ranks[order] = np.arange(len(labels), dtype=numbers.dtype)
    return ranks.take(numbers, mode="wrap"), labels[order], positions  # which checks no bounds
