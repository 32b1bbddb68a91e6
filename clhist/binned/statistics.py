"""Binned statistics: one sweep or two compute their parts, and the host finishes the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist._core.opencl.arrays import as_bytes, is_device_array, on_host
from clhist._core.opencl.device import check_fp64
from clhist._core.opencl.new_arrays import to_device
from clhist._core.opencl.operands import in_place
from clhist.axes.block_search import BLOCK
from clhist.binned.numbers import place_in_bins
from clhist.binned.sweep import Binned, sweep
from clhist.operators.operator import Operator
from clhist.statistics.selection import select
from clhist.statistics.selection_texts import Order
from clhist.statistics.table import PARTS, TABLE
from clhist.statistics.variance import deviation_terms

_F8 = np.dtype(np.float64)


def statistics_of(
    binned: Binned | None,
    shape: tuple[int, ...],
    values: Any,
    names: Iterable[str],
    queue: cl.CommandQueue,
    *,
    reproducible: bool,
    q: float | None = None,
    weights: Any = None,
) -> dict[str, np.ndarray]:
    """Return binned statistics as float64 on the host.

    One sweep computes all parts, except order statistics and reproducible sums, which take one each. Standard
    deviations take a second sweep around the means. Sums alone would cancel where a mean is large, and an operator of
    means and deviations needs a lock on GPUs.

    Parameters
    ----------
    binned : Binned or None
        The data with its axes; None if no element lies in a bin.
    shape : tuple of int
        Bins of each axis.
    values : array or None
        One for each element; None if only counts are requested.
    names : iterable of str
        From `clhist.statistics.table.BINNED`.
    queue : pyopencl.CommandQueue
        The queue that computes.
    reproducible : bool
        Whether sums are bitwise the same in any order.
    q : float, optional
        Probability of the quantile.
    weights : array, optional
        Weights of the values, for the quantile.

    Returns
    -------
    dict of str to array
        Each of shape `shape`.
    """
    names = tuple(dict.fromkeys(names))
    if binned is None or not binned.size:
        return {name: np.full(shape, TABLE[name].of_none, float) for name in names}
    if names != ("count",):
        check_fp64(queue.device, "values", "use clhist.group_by with the bins of clhist.digitize: it has float32, too")
    parts = _first_parts(binned, names, values, queue, reproducible=reproducible)
    if "std" in names:
        parts |= _around_means(binned, parts, values, queue, reproducible=reproducible)
    # Selection reads bins once for each digit: store the bin of each element instead of searching again.
    places = place_in_bins(binned, queue) if any(TABLE[name].is_apart for name in names) else None
    if "median" in names:
        parts["median"] = _selected(places, values, None, shape, queue, q=None)
    if "quantile" in names:
        parts["quantile"] = _selected(places, values, weights, shape, queue, q=q)
    results = {}
    with np.errstate(all="ignore"):
        for name in names:
            finish = TABLE[name].finish
            assert finish is not None
            results[name] = finish(parts).astype(np.float64)
    return results


def _first_parts(
    binned: Binned, names: Sequence[str], values: Any, queue: cl.CommandQueue, *, reproducible: bool
) -> dict[str, np.ndarray]:
    """Return the parts of all statistics (counts, sums, ...), from one sweep, or one for each if reproducible."""
    parts: dict[str, np.ndarray] = {}
    needed = sorted({part for name in names for part in TABLE[name].parts})
    ready = _operators(binned.size < 2**32 - BLOCK)
    outputs = tuple((part, ready[part], PARTS[part][1]) for part in needed)
    # Counts and extremes have no exact form, so parts that may need one get a sweep each.
    for group in [outputs] if not reproducible else [(output,) for output in outputs]:
        arrays = () if [part for part, _, _ in group] == ["count"] else (values,)
        rounds = reproducible and group[0][1].operation == "add" and group[0][1].dtype.kind == "f"
        parts |= _swept(binned, group, arrays, queue, reproducible=rounds) if group else {}
    return parts


def _around_means(
    binned: Binned, parts: Mapping[str, np.ndarray], values: Any, queue: cl.CommandQueue, *, reproducible: bool
) -> dict[str, np.ndarray]:
    """Return sums of the deviations from the mean of each bin, and of their squares: the second sweep."""
    with np.errstate(all="ignore"):
        means = np.append(parts["sum"] / parts["count"], 0.0)  # and an entry for the spare bin of elements without one
    mean_array: Any = to_device(queue, means) if is_device_array(values) else means
    terms = deviation_terms("(double)v0[i]", "v1[max(bin, 0)]")
    second = tuple((name, operators.add(_F8), term) for name, term in zip(("shift", "squares"), terms, strict=True))
    return _swept(binned, second, (values, mean_array), queue, reproducible=reproducible)


def _swept(
    binned: Binned,
    outputs: tuple[tuple[str, Operator, str], ...],
    arrays: Sequence[Any],
    queue: cl.CommandQueue,
    **options: Any,
) -> dict[str, np.ndarray]:
    results = sweep(binned, outputs, arrays, queue=queue, **options)
    return {name: on_host(part, queue) for name, part in results.items()}


def _selected(
    places: Any, values: Any, weights: Any, shape: tuple[int, ...], queue: cl.CommandQueue, *, q: float | None
) -> np.ndarray:
    """Return the median of each bin, where NaN sorts last, or (with `q`) the quantile, where NaN makes the bin NaN."""
    arrays = [as_bytes(array) if array.dtype.kind == "b" else array for array in (values, weights) if array is not None]
    arrays = [in_place(array, queue) for array in arrays]
    dtype = arrays[0].dtype
    result = dtype if dtype.kind == "f" else _F8
    order = Order(places.dtype, dtype, result, _F8, "greatest" if q is None else "propagated", q is None)
    if weights is not None:
        order = replace(order, weights=arrays[1].dtype)
    quantiles = select(
        order, places, arrays[0], prod(shape), queue, q=q or 0.0, weights=None if weights is None else arrays[1]
    )
    return quantiles.get(queue).astype(np.float64).reshape(shape)


@lru_cache(maxsize=2)
def _operators(few: bool) -> dict[str, Operator]:
    return {name: make(few) for name, (make, _) in PARTS.items()}
