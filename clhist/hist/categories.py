"""Axes of categories: bins that are found on the host, and axes that grow by what they are filled with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import boost_histogram as bh
import numpy as np
import pyopencl as cl
from boost_histogram import Histogram as BoostHistogram  # as it is now, should a program put ours in its place

from clhist._core.spi import Array, is_device_array
from clhist.binned.spi import extent

# Up to so many categories, comparing values with each of them is faster than a sort.
_FEW = 16


def category_bins(ax: Any, values: Array) -> Array:
    """Return bins of ``view(flow=True)`` of an array of strings or integers as int32, -1 for what is dropped."""
    labels = list(ax)
    missing = len(labels) if ax.traits.overflow else -1
    if len(labels) <= _FEW:
        bins = np.full(len(values), missing, np.int32)
        # The first of equal labels is written last, so that it wins.
        for number, label in reversed(list(enumerate(labels))):
            bins[values == label] = number
        return bins
    # Look up each distinct value once, then expand the bins to all elements.
    unique, codes = np.unique(values, return_inverse=True)
    numbers = {label: number for number, label in reversed(list(enumerate(labels)))}
    kind = str if isinstance(ax, bh.axis.StrCategory) else int
    return np.array([numbers.get(kind(value), missing) for value in unique], np.int32)[codes]


def grown(h: Any, args: Sequence[Any], queue: cl.CommandQueue | None) -> None:
    """Append to the axes of `h` that grow the categories and integers of `args` that they lack.

    Parameters
    ----------
    h : boost_histogram.Histogram
        What is filled; it has new axes then, and its bins are kept.
    args : sequence of array or scalar
        One for each axis.
    queue : pyopencl.CommandQueue or None
        Of device arrays, if there are any.
    """
    axes, starts = [], []
    for ax, values in zip(h.axes, args, strict=True):
        new, start = _grown_axis(ax, values, queue) if ax.traits.growth else (None, 0)
        axes.append(new)
        starts.append(start)
    if all(new is None for new in axes):
        return
    # Copy the bins to their place in a new histogram on the grown axes.
    old = h.view(flow=True)
    parts = tuple(slice(start, start + ax.extent) for start, ax in zip(starts, h.axes, strict=True))
    whole = [new or ax for new, ax in zip(axes, h.axes, strict=True)]
    storage = _storage_like(h)
    fresh = BoostHistogram(*whole, storage=storage)
    leading = () if old.ndim == len(parts) else (slice(None),)  # cells of a bin
    fresh.view(flow=True)[leading + parts] = old
    # New axes get the metadata, such as names, of those that they replace.
    for n, new in enumerate(axes):
        if new is not None:
            fresh._hist._set_axis_metadata(n, h.axes[n]._ax.raw_metadata)
    # Replaced last: an exception above leaves `h` as it was.
    h._hist = fresh._hist
    h.axes = h._generate_axes_()


@contextmanager
def growth_undone_on_error(h: Any) -> Iterator[None]:
    """Restore the axes and bins that `h` had before `grown` if an exception is raised."""
    histogram, axes = h._hist, h.axes
    try:
        yield
    except BaseException:
        # Also KeyboardInterrupt: restore the histogram in any case.
        h._hist, h.axes = histogram, axes
        raise


def _storage_like(h: Any) -> Any:
    if h.storage_type is bh.storage.MultiCell:
        return bh.storage.MultiCell(h.view().shape[0])
    return h.storage_type()


def _grown_axis(ax: Any, values: Any, queue: cl.CommandQueue | None) -> tuple[Any, int]:
    """Return the axis with what is new in `values`, or None, and the bin of it that was the first one."""
    if isinstance(ax, bh.axis.Integer):
        return _longer(ax, values, queue)
    labels = list(ax)
    new = [value for value in _in_order(values, labels, queue) if value not in labels]
    if not new:
        return None, 0
    kind = bh.axis.StrCategory if isinstance(ax, bh.axis.StrCategory) else bh.axis.IntCategory
    return kind([*labels, *new], growth=True), 0


def _longer(ax: Any, values: Any, queue: cl.CommandQueue | None) -> tuple[Any, int]:
    start = int(ax._ax.__getstate__()[-1])
    stop = start + len(ax)
    if np.ndim(values) or is_device_array(values):
        ends = extent(values, None, queue)
        assert ends is not None
        low, high = int(ends[0]), int(ends[1])
    else:
        low = high = int(values)
    if start <= low and high < stop:
        return None, 0
    begin = min(start, low)
    return bh.axis.Integer(begin, max(stop, high + 1), growth=True), start - begin


def _in_order(values: Any, labels: Sequence[Any], queue: cl.CommandQueue | None) -> list[Any]:
    """Return the categories that occur in the order of their first appearance; known ones may be left out."""
    if isinstance(values, str | int | np.integer | np.bool_):
        return [values if isinstance(values, str) else int(values)]
    if is_device_array(values):
        values = values.get(queue)
    # Dropping known categories first leaves fewer values for the sort of `np.unique`.
    if len(labels) <= _FEW and len(labels) and values.dtype.kind in "UO":
        rest = np.ones(len(values), bool)
        for label in labels:
            rest &= values != label
        values = values[rest]
    elif len(labels) and values.dtype.kind in "biu":
        values = values[~np.isin(values, labels)]
    unique, first = np.unique(values, return_index=True)
    ordered = unique[np.argsort(first)]
    return [str(value) if ordered.dtype.kind in "UO" else int(value) for value in ordered]
