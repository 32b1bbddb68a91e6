"""Axes of categories: bins of strings, found on the host, and axes that grow by what they are filled with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import boost_histogram as bh
import numpy as np
import pyopencl as cl
from boost_histogram import Histogram as BoostHistogram  # as it is now, should a program put ours in its place

from clhist._core.spi import Array, is_device_array
from clhist.binned.spi import extent

_FEW = 16  # categories that strings are compared with one after the other, which sorting is slower than


def string_bins(ax: Any, values: Array) -> Array:
    """Return bins of ``view(flow=True)`` of an array of strings as int32, -1 for what is dropped."""
    labels = list(ax)
    missing = len(labels) if ax.traits.overflow else -1
    if len(labels) <= _FEW:
        bins = np.full(len(values), missing, np.int32)
        for number, label in reversed(list(enumerate(labels))):
            bins[values == label] = number
        return bins
    unique, codes = np.unique(values, return_inverse=True)
    numbers = {label: number for number, label in reversed(list(enumerate(labels)))}
    return np.array([numbers.get(str(each), missing) for each in unique], np.int32)[codes]


def grown(h: Any, args: Sequence[Any], queue: cl.CommandQueue) -> None:
    """Append to the axes of `h` that grow the categories and integers of `args` that they lack.

    Parameters
    ----------
    h : boost_histogram.Histogram
        What is filled; it has new axes then, and its bins are kept.
    args : sequence of array or scalar
        One for each axis.
    queue : pyopencl.CommandQueue
        Of device arrays.
    """
    axes, starts = [], []
    for ax, values in zip(h.axes, args, strict=True):
        new, start = _grown_axis(ax, values, queue) if ax.traits.growth else (None, 0)
        axes.append(new)
        starts.append(start)
    if all(new is None for new in axes):
        return
    old = h.view(flow=True)
    parts = tuple(slice(start, start + ax.extent) for start, ax in zip(starts, h.axes, strict=True))
    whole = [new or ax for new, ax in zip(axes, h.axes, strict=True)]
    storage = _storage_like(h)
    fresh = BoostHistogram(*whole, storage=storage)
    leading = () if old.ndim == len(parts) else (slice(None),)  # cells of a bin
    fresh.view(flow=True)[leading + parts] = old
    for n, new in enumerate(axes):
        if new is not None:
            fresh._hist._set_axis_metadata(n, h.axes[n]._ax.raw_metadata)
    h._hist = fresh._hist
    h.axes = h._generate_axes_()


def _storage_like(h: Any) -> Any:
    if h.storage_type is bh.storage.MultiCell:
        return bh.storage.MultiCell(h.view().shape[0])
    return h.storage_type()


def _grown_axis(ax: Any, values: Any, queue: cl.CommandQueue) -> tuple[Any, int]:
    """Return the axis with what is new in `values`, or None, and the bin of it that was the first one."""
    if isinstance(ax, bh.axis.Integer):
        return _longer(ax, values, queue)
    known = list(ax)
    new = [each for each in _in_order(values, known, queue) if each not in known]
    if not new:
        return None, 0
    kind = bh.axis.StrCategory if isinstance(ax, bh.axis.StrCategory) else bh.axis.IntCategory
    return kind([*known, *new], growth=True), 0


def _longer(ax: Any, values: Any, queue: cl.CommandQueue) -> tuple[Any, int]:
    start = int(ax._ax.__getstate__()[-1])
    stop = start + len(ax)
    if np.ndim(values) or is_device_array(values):
        found = extent(values, None, queue)
        assert found is not None
        low, high = int(found[0]), int(found[1])
    else:
        low = high = int(values)
    if start <= low and high < stop:
        return None, 0
    begin = min(start, low)
    return bh.axis.Integer(begin, max(stop, high + 1), growth=True), start - begin


def _in_order(values: Any, known: Sequence[Any], queue: cl.CommandQueue) -> list[Any]:
    """Return the categories that occur in the order of their first appearance; known ones may be left out."""
    if isinstance(values, str | int | np.integer | np.bool_):
        return [values if isinstance(values, str) else int(values)]
    if is_device_array(values):
        values = values.get(queue)
    if len(known) <= _FEW and len(known) and values.dtype.kind in "UO":
        rest = np.ones(len(values), bool)
        for label in known:
            rest &= values != label
        values = values[rest]
    elif len(known) and values.dtype.kind in "biu":
        values = values[~np.isin(values, known)]
    unique, first = np.unique(values, return_index=True)
    ordered = unique[np.argsort(first)]
    return [str(each) if ordered.dtype.kind in "UO" else int(each) for each in ordered]
