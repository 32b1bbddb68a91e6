"""The contents of `clhist report`, as values: nothing here knows HTML."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import clhist
from clhist import HistogramKernel, default_queue, operators
from clhist._core.opencl.device import device_kind
from clhist.calibration.measure import Bench
from clhist.cli.info import describe
from clhist.cli.timing import interleaved, read_floor

_BINS = (31, 255, 2041, 16_384, 131_072, 1_048_576)
_QUICK_BINS = (31, 2041, 131_072)
_ELEMENTS = {("gpu", False): 50_000_000, ("gpu", True): 5_000_000, ("cpu", False): 5_000_000, ("cpu", True): 500_000}
_PLANNED_ELEMENTS = 50_000_000
_PLANNED_BINS = tuple(4**k for k in range(2, 13))
_RACE_FACTORS = (1, 4, 16, 64, 256, 1024)


def device() -> dict[str, Any]:
    """Return the description of the default device, and versions."""
    opencl_device = default_queue().device
    versions = {
        "clhist": clhist.__version__,
        "PyOpenCL": cl.VERSION_TEXT,
        "NumPy": np.__version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
    }
    return {"versions": versions, **describe(opencl_device, is_default=True)}


def checks(*, quick: bool) -> dict[str, Any]:
    """Run the self-test in this process, and return its table and what is wrong."""
    from clhist.selftest.checks import HOLDS, UNAVAILABLE, WRONG
    from clhist.selftest.suite import checks as every

    outcomes = [check.run() for check in every(default_queue(), quick=quick)]
    rows = list(dict.fromkeys(outcome.check.row for outcome in outcomes))
    columns = list(dict.fromkeys(outcome.check.column for outcome in outcomes))
    cells: dict[str, dict[str, dict[str, int]]] = {row: {} for row in rows}
    for outcome in outcomes:
        cell = cells[outcome.check.row].setdefault(outcome.check.column, dict.fromkeys((HOLDS, WRONG, UNAVAILABLE), 0))
        cell[outcome.status] += 1
    wrong = [{"check": outcome.check.label, "words": outcome.words} for outcome in outcomes if outcome.status == WRONG]
    return {"columns": columns, "cells": cells, "wrong": wrong, "seconds": sum(outcome.seconds for outcome in outcomes)}


def times(operation: str, *, quick: bool) -> dict[str, Any]:
    """Return the seconds of calls over bins, of arrays on the device and of NumPy's, beside NumPy and the floor F."""
    queue = default_queue()
    # The floor is measured by the device's clock, for which a queue must be profiled.
    profiling = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    size = _ELEMENTS[device_kind(queue.device), quick]
    bins = _QUICK_BINS if quick else _BINS
    lines: dict[str, list[tuple[int, float]]] = {}
    for number in bins:
        keys = np.random.default_rng(0).integers(0, number, size, np.int32)
        host = (keys, np.ones(size, np.float32)) if operation == "add" else (keys,)
        device = [cl_array.to_device(queue, array) for array in host]
        for name, samples in interleaved(_calls(host, device, number, queue)).items():
            lines.setdefault(name, []).append((number, samples.median))
    # Keys and values have 4 bytes each, so F is that of one array times their number.
    floor = read_floor(Bench(queue.context, profiling), [device[0].base_data], keys.nbytes).median * len(host)
    lines["reading the input once"] = [(number, floor) for number in bins]
    return {"operation": operation, "num_elements": size, "lines": lines}


def _calls(host: tuple[np.ndarray, ...], device: list[Any], bins: int, queue: cl.CommandQueue) -> dict[str, Any]:
    """Return the calls that are compared: each with what waits for it, and about how many seconds it takes."""

    def ours(x: Any, values: Any = np.int32(1)) -> Any:
        return clhist.reduce_by_index(bins, np.add, x, values)

    weights = host[1] if len(host) > 1 else None
    calls = {
        "clhist, arrays on the device": (lambda: ours(*device), lambda _: queue.finish()),
        "clhist, NumPy arrays": (lambda: ours(*host), lambda _: None),
        "NumPy": (lambda: np.bincount(host[0], weights, bins), lambda _: None),
    }
    seconds = {}
    for name, (call, finish) in calls.items():
        # The first call compiles.
        finish(call())
        start = perf_counter()
        finish(call())
        seconds[name] = perf_counter() - start
    return {name: (*call, seconds[name]) for name, call in calls.items()}


def plans() -> dict[str, Any]:
    """Return which plan is taken for each number of bins and race factor, for three operators."""
    kernels = {
        "count": (operators.count(), "1"),
        "add float32": (operators.add(np.float32), "(float)i"),
        "argmax float32": (operators.argmax(np.float32), "((value_t){(float)i, i})"),
    }
    maps: dict[str, list[dict[str, Any]]] = {}
    for name, (operator, value) in kernels.items():
        kernel = HistogramKernel(
            default_queue().context, operator, arguments="const int *bin", map=f"EMIT(bin[i], {value})"
        )
        maps[name] = []
        for factor in _RACE_FACTORS:
            for bins in _PLANNED_BINS:
                # A race factor above the number of bins would leave less than one distinct bin.
                if factor <= bins:
                    plan = kernel.plan(_PLANNED_ELEMENTS, bins, race_factor=float(factor))
                    maps[name].append(
                        {
                            "num_bins": bins,
                            "race_factor": factor,
                            "strategy": plan.strategy,
                            "update": plan.update,
                            "memory": plan.memory,
                            "copies": plan.copies,
                            "passes": plan.passes,
                        }
                    )
    return {"num_elements": _PLANNED_ELEMENTS, "bins": _PLANNED_BINS, "race_factors": _RACE_FACTORS, "maps": maps}
