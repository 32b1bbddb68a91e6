"""Fills of histograms of means on the host, by two passes of NumPy over the samples, as on a device.

boost-histogram updates a running mean and variance, which loses digits where means are large beside the deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import boost_histogram as bh
import numpy as np

from clhist._core.spi import Array
from clhist.hist.axes import flow_bins, number_kind
from clhist.hist.categories import category_bins, grown
from clhist.hist.columns import MEANS, are_usual, bin_of, common_length, fits, is_column, storage_of
from clhist.hist.storages import Sums, join_means, mean_fields, moments

# Sums of all bins cost less than a sort of the samples' bins up to so many bins, and up to so many for each sample.
_FEW_BINS, _BINS_PER_SAMPLE = 2**12, 8


def add_means(h: Any, args: Sequence[Any], weight: Any, sample: Any) -> bool:
    """Add NumPy arrays of samples to a histogram of means.

    Parameters
    ----------
    h : boost_histogram.Histogram
        What is filled. Axes of categories and integers may grow.
    args, weight, sample
        As of `clhist.hist.fill`, after `as_column`.

    Returns
    -------
    bool
        False, with `h` unchanged, if boost-histogram must take the arguments: it raises what is wrong with them, and
        has axes of numbers that grow.
    """
    storage = storage_of(h)
    arrays = [value for value in (*args, weight, sample) if is_column(value)]
    size = common_length(arrays, storage)
    if storage not in MEANS or sample is None or size is None or len(args) != len(h.axes):
        return False
    if not are_usual(h, args, weight, sample) or not all(fits(ax, x, None) for ax, x in zip(h.axes, args, strict=True)):
        return False
    grown(h, args, None)
    bins, is_inside = _bins_of(h.axes, args, size)
    values = [np.asarray(value, np.float64) if is_column(value) else value for value in (weight, sample)]
    # Drop samples without a bin before the sums.
    if is_inside is not None:
        bins, *values = (value[is_inside] if is_column(value) else value for value in (bins, *values))
    # The first axis varies fastest in memory.
    flat = np.asarray(h.view(flow=True)).reshape(-1, order="F")
    if len(flat) <= max(_FEW_BINS, _BINS_PER_SAMPLE * len(bins)):
        joined = flat.copy()
        join_means(joined, _sums(bins, len(flat), *values), mean_fields(storage))
        flat[...] = joined  # all fields change in one step, before or after which Ctrl-C is heard
    else:
        # Few samples in many bins: sum only the bins that occur.
        cells, codes = np.unique(bins, return_inverse=True)
        joined = flat[cells]
        join_means(joined, _sums(codes, len(cells), *values), mean_fields(storage))
        flat[cells] = joined
    return True


def _bins_of(axes: Sequence[Any], args: Sequence[Any], size: int) -> tuple[Array, np.ndarray | None]:
    """Return the flat bin of each sample, and which samples have one; None if all have."""
    flat: Any = 0
    is_inside, stride = None, 1
    for ax, values in zip(axes, args, strict=True):
        bins = _axis_bins(ax, values)
        if np.min(bins) < 0:
            is_inside = bins >= 0 if is_inside is None else is_inside & (bins >= 0)
        # The combined bin of a sample outside an axis is wrong; `is_inside` drops it.
        flat = flat + bins * stride
        stride *= ax.extent
    # Each axis got one value for all: the samples share one bin.
    if not np.ndim(flat):
        flat = np.full(size, flat)
    return flat, None if is_inside is None else np.broadcast_to(is_inside, size)


def _axis_bins(ax: Any, values: Any) -> Any:
    """Return bins of ``view(flow=True)``, -1 for values that the axis drops."""
    if not is_column(values):
        return bin_of(ax, values)
    if isinstance(ax, bh.axis.StrCategory | bh.axis.IntCategory):  # whose index raises KeyError for others
        return category_bins(ax, values).astype(np.int64)
    index = ax.index(np.asarray(values, np.float64 if number_kind(ax) == "real" else np.int64))
    if ax.extent == len(ax) + 2:  # all values have a bin
        return index.astype(np.int64) + 1
    return flow_bins(ax, index)


def _sums(bins: Array, num_bins: int, weight: Any, sample: Any) -> Sums:
    """Return the sums by bins of `clhist.hist.storages.moments`."""
    sums: Sums = {}
    is_weighted = is_column(weight)
    with np.errstate(all="ignore"):
        if is_weighted:
            sums["weight"] = np.bincount(bins, weight, num_bins)
            sums["square"] = np.bincount(bins, weight * weight, num_bins)
        else:
            sums["count"] = np.bincount(bins, minlength=num_bins)
        if is_column(sample):
            sums["sum"] = np.bincount(bins, weight * sample if is_weighted else sample, num_bins)

    def around(means: Array) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(all="ignore"):
            deviations = sample - means[bins]
            terms = weight * deviations if is_weighted else deviations
            return np.bincount(bins, terms, num_bins), np.bincount(bins, terms * deviations, num_bins)

    return moments(sums, weight, sample, around)
