"""The calls that `clhist warm` makes, whose kernels most programs need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from clhist import ndimage, stats
from clhist._core.opencl.device import devices, has_fp64, use_device
from clhist.bincount import bincount
from clhist.errors import NoDeviceError
from clhist.groupby import group_by
from clhist.histogram import histogram, histogram2d
from clhist.reduce import reduce_by_index
from clhist.selftest.checks import Check
from clhist.selftest.suite import queue_of
from clhist.unique import unique

_ELEMENTS, _BINS = 1_000_000, 1000  # plans of other sizes are mostly the same
_FLOATS, _INTEGERS = ("float64", "float32"), ("int64", "int32")
_STATISTICS = ("sum", "mean", "min", "max", "std", "var", "median", "first", "last", "argmin", "argmax", "nunique")
_OF_INTEGERS = ("sum", "mean", "min", "max", "median")
_FIVE = ("mean", "std", "min", "max", "sum")
_QUANTILES = (0.25, 0.5, 0.75)


def calls_elsewhere(device: cl.Device, *, quick: bool) -> Callable[[], list[Check]]:
    """Return a function that gives `common_calls` of the same device in another process."""
    return partial(_calls_of, devices().index(device), device.name, quick)


def _calls_of(number: int, name: str, quick: bool) -> list[Check]:
    # Another process may list other devices, so the name must match as well.
    present = devices()
    if len(present) <= number or present[number].name != name:
        raise NoDeviceError(f"device {number} was {name.strip()}; now there are {[d.name.strip() for d in present]}")
    use_device(present[number])
    return list(common_calls(queue_of(present[number]), quick=quick))


def common_calls(queue: cl.CommandQueue, *, quick: bool = False) -> Iterator[Check]:
    """Yield the calls, those that compile longest last.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the device for which they compile.
    quick : bool
        Whether counts, histograms and sums of one dtype will do.
    """
    floats = _FLOATS if has_fp64(queue.device) else _FLOATS[1:]
    keys = np.arange(_ELEMENTS) % _BINS
    columns = {name: (keys * 7 % 1009).astype(name) for name in (*floats, *_INTEGERS)}
    yield _call("bincount", "int64", "counts", bincount, keys, queue=queue)
    for dtype, x in [*columns.items()][: 1 if quick else None]:
        yield _call("histogram", dtype, "even bins", histogram, x, 100, queue=queue)
        yield _call("reduce_by_index", dtype, "sum", reduce_by_index, _BINS, "sum", keys, x, queue=queue)
    if quick:
        return
    yield _call("bincount", "int32", "counts", bincount, columns["int32"], queue=queue)
    for dtype, x in columns.items():
        for name in ("min", "max", *(("argmin", "argmax") if dtype in floats else ())):
            yield _call("reduce_by_index", dtype, name, reduce_by_index, _BINS, name, keys, x, queue=queue)
        for name in _STATISTICS if dtype in floats else _OF_INTEGERS:
            yield _call("group_by", dtype, name, _of_groups, name, keys, x, queue)
        if dtype != "int32":
            yield _call("unique", dtype, "values", unique, x, queue=queue)
    for dtype in floats:
        yield from _calls_of_floats(queue, dtype, keys, columns[dtype])


def _calls_of_floats(queue: cl.CommandQueue, dtype: str, keys: np.ndarray, x: np.ndarray) -> Iterator[Check]:
    yield _call("bincount", dtype, "weights", bincount, keys, x, queue=queue)
    yield _call("histogram", dtype, "edges", histogram, x, np.geomspace(1, 1009, 50), queue=queue)
    yield _call("histogram", dtype, "weights", histogram, x, 100, weights=x, queue=queue)
    yield _call("histogram2d", dtype, "even bins", histogram2d, x, x, 50, queue=queue)
    for name in ("mean", "sum", "std", "median"):
        yield _call("binned_statistic", dtype, name, stats.binned_statistic, x, x, name, 50, queue=queue)
    yield _call("binned_statistic_2d", dtype, "mean", stats.binned_statistic_2d, x, x, x, bins=50, queue=queue)
    for name in ("sum_labels", "mean", "minimum", "maximum"):
        yield _call("ndimage", dtype, name, getattr(ndimage, name), x, keys, np.arange(1, _BINS))
    for name in ("five statistics", "quantiles"):
        yield _call("group_by", dtype, name, _of_groups, name, keys, x, queue)
    yield _call("group_by, two keys", dtype, "median", _of_groups, "median", [keys, keys % 7], x, queue)


def _call(row: str, dtype: str, name: str, function: Any, *args: Any, **options: Any) -> Check:
    def action() -> None:
        function(*args, **options)

    return Check(row, dtype, name, action)


def _of_groups(name: str, keys: Any, x: np.ndarray, queue: cl.CommandQueue) -> None:
    groups = group_by(keys, queue=queue)
    if name == "five statistics":
        columns: Any = {statistic: (x, statistic) for statistic in _FIVE}
        groups.agg(**columns)
    elif name == "quantiles":
        groups.quantile(x, _QUANTILES)
    else:
        getattr(groups, name)(x)
