"""Measuring from which size on a device computes calls on NumPy arrays sooner than other libraries do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from clhist._core.runtime.small import rate_name
from clhist.bincount import bincount
from clhist.calibration.measure import Bench, Measurement
from clhist.groupby import GroupBy
from clhist.grouped.groups import groups_of
from clhist.histogram import histogram, histogram2d
from clhist.reduce import reduce_by_index
from clhist.unique import factorize, unique

_SIZES = tuple(2**k for k in range(10, 23))


def host_sizes(bench: Bench) -> dict[str, Measurement]:
    """Return the least size by the names of `clhist._core.runtime.small.rate_name`: of 100 bins, and of 30 x 30."""
    x, y = np.random.default_rng(1).random((2, _SIZES[-1]))
    indices = (x * 100).astype(np.int64)
    wide = indices << 40
    queue = bench.queue

    def counts(ours: bool, size: int) -> Any:
        return bincount(indices[:size], queue=queue) if ours else np.bincount(indices[:size])

    def sums(ours: bool, size: int) -> Any:
        if ours:
            return reduce_by_index(100, "sum", indices[:size], y[:size], queue=queue)
        return np.add.at(np.zeros(100), indices[:size], y[:size])

    def single(ours: bool, size: int) -> Any:
        given = x[:size], 100, (0.0, 1.0)
        return histogram(*given, queue=queue) if ours else np.histogram(*given)

    def double(ours: bool, size: int) -> Any:
        given = x[:size], y[:size], 30, ((0.0, 1.0), (0.0, 1.0))
        return histogram2d(*given, queue=queue) if ours else np.histogram2d(*given)

    def different(ours: bool, size: int) -> Any:
        given = wide[:size]
        return unique(given, queue=queue, return_inverse=True) if ours else np.unique(given, return_inverse=True)

    def sorted_alone(ours: bool, size: int) -> Any:
        return unique(y[:size], queue=queue) if ours else np.unique(y[:size])

    def hashed(ours: bool, size: int) -> Any:
        return factorize(wide[:size], queue=queue) if ours else import_module("pandas").factorize(wide[:size])

    def regions(ours: bool, size: int) -> Any:
        if ours:
            groups = groups_of(indices[:size], 100, True, queue)
            return GroupBy(groups).mean(y[:size])
        return import_module("scipy.ndimage").mean(y[:size], indices[:size], np.arange(100))

    def means(ours: bool, size: int) -> Any:
        groups = groups_of(indices[:size], None, True, queue if ours else None)
        return GroupBy(groups if ours else groups._replace(queue=None)).mean(y[:size])

    calls = {"bincount": counts, "reduce_by_index": sums, "1 dimension": single, "2 dimensions": double}
    calls["unique"], calls["distinct"] = different, sorted_alone
    if find_spec("pandas"):
        calls["factorize"] = hashed
    calls["group_by"] = means
    if find_spec("scipy"):
        calls["ndimage"] = regions
    if find_spec("boost_histogram"):
        import boost_histogram as bh

        from clhist.hist import fill

        h = bh.Histogram(bh.axis.Regular(100, 0, 1))
        calls["boost-histogram"] = lambda ours, size: fill(h, x[:size], queue=queue) if ours else h.fill(x[:size])
    method = "the least power of two of float64 from which on a call takes less time than the other library's"
    return {
        rate_name(name): Measurement(float(_least(bench, call)), "elements", 0.0, method)
        for name, call in calls.items()
    }


def _least(bench: Bench, call: Callable[[bool, int], Any]) -> int:
    least = _SIZES[-1]
    for size in reversed(_SIZES):  # from which on it stays so
        if _seconds(bench, partial(call, True, size)) > _seconds(bench, partial(call, False, size)):
            break
        least = size
    return least


def _seconds(bench: Bench, call: Callable[[], Any]) -> float:
    call()
    samples = []
    for _ in range(bench.runs):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)
