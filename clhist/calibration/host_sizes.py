"""Measuring from which size on a device computes histograms of NumPy arrays sooner than NumPy does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from clhist.binning.inputs import LEAST_SIZE_NAMES
from clhist.calibration.measure import Bench, Measurement
from clhist.histogram import histogram, histogram2d

_SIZES = tuple(2**k for k in range(10, 23))


def host_sizes(bench: Bench) -> dict[str, Measurement]:
    """Return the least size by the names of `clhist.binning.inputs.LEAST_SIZE_NAMES`: of 100 bins, and of 30 x 30."""
    x, y = np.random.default_rng(1).random((2, _SIZES[-1]))
    queue = bench.queue

    def single(ours: bool, size: int) -> Any:
        given = x[:size], 100, (0.0, 1.0)
        return histogram(*given, queue=queue) if ours else np.histogram(*given)

    def double(ours: bool, size: int) -> Any:
        given = x[:size], y[:size], 30, ((0.0, 1.0), (0.0, 1.0))
        return histogram2d(*given, queue=queue) if ours else np.histogram2d(*given)

    method = "the least power of two of float64 from which on a call takes less time than NumPy's"
    return {
        LEAST_SIZE_NAMES[is_single]: Measurement(float(_least(bench, call)), "elements", 0.0, method)
        for is_single, call in ((True, single), (False, double))
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
