"""Statistics of values by bins: which outputs of a sweep they need, and what they make of these."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import operators
from clhist.axes.block_search import BLOCK
from clhist.binning.selection import bin_medians
from clhist.binning.sweep import Binned, sweep
from clhist.opencl.arrays import is_device_array, to_device
from clhist.operators.operator import Operator

STATISTICS = ("mean", "median", "count", "sum", "std", "min", "max")

_NEEDS = {
    "count": ("count",),
    "sum": ("sum",),
    "mean": ("sum", "count"),
    "std": ("sum", "count"),
    "min": ("fmin",),
    "max": ("maximum", "count"),
    "median": ("count",),
}


def statistics_of(
    binned: Binned | None,
    shape: tuple[int, ...],
    values: Any,
    names: Iterable[str],
    queue: cl.CommandQueue,
    *,
    reproducible: bool,
) -> dict[str, np.ndarray]:
    """Return statistics by bins as float64 on the host: all but medians and reproducible sums from one sweep.

    Standard deviations take a second one around the means: sums alone would cancel where a mean is large, and combining
    means and deviations needs a lock on GPUs.

    Parameters
    ----------
    binned : Binned or None
        None of data that lies in no bin.
    shape : tuple of int
        Bins of each axis.
    values : array or None
        One for each element; None if only counts are asked for.
    names : iterable of str
        Of `STATISTICS`.
    queue : pyopencl.CommandQueue
        Where it runs.
    reproducible : bool
        Whether sums are bitwise the same in any order.
    """
    names = tuple(dict.fromkeys(names))
    if binned is None or not binned.size:
        return {name: np.full(shape, 0.0 if name in ("count", "sum") else np.nan) for name in names}
    needed = sorted({part for name in names for part in _NEEDS[name]})
    ready = _operators(binned.size < 2**32 - BLOCK)
    outputs = tuple((part, ready[part], "1" if part == "count" else "(double)v0[i]") for part in needed)
    arrays = () if needed == ["count"] else (values,)
    found: dict[str, Any] = {}
    for group in [outputs] if not reproducible else [(each,) for each in outputs]:
        is_sum = reproducible and group[0][0] == "sum"
        found |= sweep(
            binned, group, arrays if group[0][0] != "count" or len(group) > 1 else (), queue=queue, reproducible=is_sum
        )
    parts = {name: part.get(queue) if is_device_array(part) else part for name, part in found.items()}
    results = {}
    with np.errstate(all="ignore"):
        for name in names:
            if name == "mean":
                results[name] = np.where(parts["count"] > 0, parts["sum"] / parts["count"], np.nan)
            elif name == "std":
                results[name] = np.sqrt(_variances(binned, values, parts, queue, reproducible=reproducible))
            elif name == "max":
                results[name] = np.where(parts["count"] > 0, parts["maximum"], np.nan)
            elif name == "median":
                results[name] = bin_medians(binned, values, parts["count"], queue)
            else:
                results[name] = parts[{"min": "fmin"}.get(name, name)].astype(np.float64)
    return results


def _variances(
    binned: Binned, values: Any, parts: dict[str, np.ndarray], queue: cl.CommandQueue, *, reproducible: bool
) -> np.ndarray:
    count = parts["count"].astype(np.float64)
    means = np.append(parts["sum"] / count, 0.0)  # one more of what has no bin
    given: Any = to_device(queue, means) if is_device_array(values) else means
    apart, add = "((double)v0[i] - v1[max(bin, 0)])", operators.add(np.float64)
    # `shift` would be 0 but for the rounding of the mean.
    outputs = (("shift", add, apart), ("squares", add, f"({apart} * {apart})"))
    found = sweep(binned, outputs, (values, given), queue=queue, reproducible=reproducible)
    shift, squares = (part.get(queue) if is_device_array(part) else part for part in found.values())
    return np.where(count > 0, np.maximum(squares - shift * shift / count, 0.0) / count, np.nan)


@lru_cache(maxsize=2)
def _operators(few: bool) -> dict[str, Operator]:
    return {
        "count": operators.count(np.intp) if few else operators.add(np.intp),
        "sum": operators.add(np.float64),
        "fmin": operators.fmin(np.float64),  # SciPy's least value ignores NaN
        "maximum": operators.maximum(np.float64),  # but its greatest does not
    }
