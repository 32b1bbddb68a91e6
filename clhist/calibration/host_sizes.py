"""Measuring from which size on a device computes calls on NumPy arrays sooner than other libraries do."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import log2
from typing import Any, TypeAlias

import numpy as np

from clhist._core.opencl.lost import fetched
from clhist._core.opencl.new_arrays import beginning, to_device
from clhist._core.runtime.small import rate_name
from clhist.bincount import bincount
from clhist.calibration.measure import Bench, Measurement
from clhist.digitize import digitize
from clhist.groupby import GroupBy
from clhist.grouped.groups import groups_of
from clhist.grouped.keys import distinct, numbered_by_host
from clhist.histogram import histogram, histogram2d
from clhist.reduce import reduce_by_index
from clhist.stats import binned_statistic
from clhist.unique import factorize, unique

_SIZES = tuple(2**k for k in range(10, 23))  # elements that are tried, ascending
_EDGES, _ROUNDS = 101, 7
_STEPS = {"digitize": _EDGES.bit_length()}  # of a binary search, for an element
Call: TypeAlias = Callable[[int], Any]  # of the first elements


def host_sizes(bench: Bench) -> dict[str, Measurement]:
    """Return the least size by the names of `clhist._core.runtime.small.rate_name`: of 100 bins, and of 30 x 30."""
    method = "between the powers of two of float64 from which on a call takes less time than the other library's"
    return {
        rate_name(name): Measurement(float(_least(bench, *calls) * _STEPS.get(name, 1)), "elements", 0.0, method)
        for name, calls in _calls(bench).items()
    }


def _calls(bench: Bench) -> dict[str, tuple[Call, Call]]:
    """Return calls on the device, and of the other library if it is installed."""
    x, y = np.random.default_rng(1).random((2, _SIZES[-1]))
    indices = (x * 100).astype(np.int64)
    # Keys too far apart for a table that they index.
    wide, edges = indices << 40, np.linspace(0, 1, _EDGES)
    queue, unit = bench.queue, (0.0, 1.0)
    arrays = {id(array): to_device(queue, array) for array in (y, wide)}

    def there(array: np.ndarray, size: int) -> Any:
        return beginning(arrays[id(array)], size)

    def by_host(array: np.ndarray, size: int) -> Any:
        numbers, keys, *_ = numbered_by_host(fetched(there(array, size), queue), False, False, False)
        return to_device(queue, numbers), to_device(queue, keys)

    def mean(size: int, queue: Any, num_groups: int | None) -> Any:
        groups = groups_of(indices[:size], num_groups, True, queue)
        return GroupBy(groups if queue is not None else groups._replace(queue=None)).mean(y[:size])

    calls: dict[str, tuple[Call, Call]] = {
        "bincount": (lambda n: bincount(indices[:n], queue=queue), lambda n: np.bincount(indices[:n])),
        "bincount, weights": (
            lambda n: bincount(indices[:n], y[:n], queue=queue),
            lambda n: np.bincount(indices[:n], y[:n]),
        ),
        "reduce_by_index": (
            lambda n: reduce_by_index(100, "sum", indices[:n], y[:n], queue=queue),
            lambda n: np.add.at(np.zeros(100), indices[:n], y[:n]),
        ),
        "1 dimension": (
            lambda n: histogram(x[:n], 100, unit, queue=queue),
            lambda n: np.histogram(x[:n], 100, unit),
        ),
        "rule": (lambda n: histogram(x[:n], "sturges", queue=queue), lambda n: np.histogram(x[:n], "sturges")),
        "edges": (lambda n: histogram(x[:n], edges, queue=queue), lambda n: np.histogram(x[:n], edges)),
        "digitize": (lambda n: digitize(x[:n], edges, queue=queue), lambda n: np.digitize(x[:n], edges)),
        "2 dimensions": (
            lambda n: histogram2d(x[:n], y[:n], 30, (unit, unit), queue=queue),
            lambda n: np.histogram2d(x[:n], y[:n], 30, (unit, unit)),
        ),
        "unique": (
            lambda n: unique(wide[:n], queue=queue, return_inverse=True),
            lambda n: np.unique(wide[:n], return_inverse=True),
        ),
        "distinct": (lambda n: unique(y[:n], queue=queue), lambda n: np.unique(y[:n])),
        # Arrays of the device, and the same with copies of them.
        "unique, of a device": (lambda n: factorize(there(y, n), queue=queue), lambda n: by_host(y, n)),
        "distinct, of a device": (
            lambda n: unique(there(y, n), queue=queue),
            lambda n: to_device(queue, distinct(fetched(there(y, n), queue))),
        ),
        # The path on the host stands for another library.
        "group_by": (lambda n: mean(n, queue, None), lambda n: mean(n, None, None)),
    }
    if find_spec("pandas"):
        calls["factorize"] = (
            lambda n: factorize(wide[:n], queue=queue),
            lambda n: import_module("pandas").factorize(wide[:n]),
        )
        import_module("pandas")
        calls["factorize, of a device"] = lambda n: factorize(there(wide, n), queue=queue), lambda n: by_host(wide, n)
    if find_spec("scipy"):
        calls["binned_statistic"] = (
            lambda n: binned_statistic(x[:n], y[:n], "mean", 100, queue=queue),
            lambda n: import_module("scipy.stats").binned_statistic(x[:n], y[:n], "mean", 100),
        )
        calls["ndimage"] = (
            lambda n: mean(n, queue, 100),
            lambda n: import_module("scipy.ndimage").mean(y[:n], indices[:n], np.arange(100)),
        )
    if find_spec("torch"):
        import torch

        places, values = torch.from_numpy(indices), torch.from_numpy(y)
        calls["tensors"] = (
            lambda n: reduce_by_index(100, "sum", indices[:n], y[:n], queue=queue),
            lambda n: torch.zeros(100, dtype=values.dtype).scatter_add_(0, places[:n], values[:n]),
        )
    if find_spec("boost_histogram"):
        import boost_histogram as bh

        from clhist.hist import fill
        from clhist.hist.means import add_means

        h = bh.Histogram(bh.axis.Regular(100, 0, 1))
        calls["boost-histogram"] = lambda n: fill(h, x[:n], queue=queue), lambda n: h.fill(x[:n])
        of_means = bh.Histogram(bh.axis.Regular(100, 0, 1), storage=bh.storage.Mean())
        calls["boost-histogram, means"] = (
            lambda n: fill(of_means, x[:n], sample=y[:n], queue=queue),
            lambda n: add_means(of_means, (x[:n],), None, y[:n]),
        )
    return calls


def _least(bench: Bench, ours: Call, theirs: Call) -> int:
    """Return from how many elements on the device is faster, between two sizes by the logarithms of both ratios."""
    least, above = _SIZES[-1], 0.0
    for size in reversed(_SIZES):  # from which on it stays so
        # Above 0 the other library is faster; between two sizes the logarithm is taken for a line.
        ratio = log2(_seconds(bench, partial(ours, size)) / _seconds(bench, partial(theirs, size)))
        if ratio > 0:
            # Without a size at which the device is faster, the largest one is the only bound.
            return round(least * 2 ** (-above / (above - ratio))) if above < 0 else least
        least, above = size, ratio
    return least


def _seconds(bench: Bench, call: Callable[[], Any]) -> float:
    """Return the least seconds of a call, which other work on the cores changes less than the median."""
    call()
    samples = []
    for _ in range(max(bench.runs, _ROUNDS)):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return min(samples)
