"""`clhist bench --suite groups`: statistics of groups beside pandas and NumPy, round by round.

Maxima of one and of eight columns by keys whose values are not known beforehand are libcudf's benchmark
groupby_max_cardinality; each number of groups is a cardinality.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import clhist
from benchmarks import suite as bench_suite
from benchmarks.lab import Lab, Row
from benchmarks.suite import Panels, Request, Suite, microseconds, times
from clhist._core.opencl.arrays import is_device_array
from clhist.cli.timing import Samples

_ROUNDS = 5
STATISTICS = {"five statistics": ("mean", "std", "min", "max", "count"), "median": ("median",)}
COLUMNS = (1, 8)  # of the maxima
_ON_DEVICE, _ON_HOST = "clhist, device arrays", "clhist, NumPy arrays"
_ON_SKEWED = "clhist, device arrays, Zipf keys"
_EXPONENT = 1.5  # of the Zipf keys
_CLOSE = 1e-4  # of float32, relative to a standard deviation of 1

Statistics = dict[str, Any]


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield for each number of groups and each choice of statistics a row for each implementation."""
    for groups in request.bins:
        rng = np.random.default_rng(1)
        keys = rng.integers(0, groups, request.num_elements).astype(np.int32)
        values = rng.normal(size=request.num_elements).astype(np.float32)
        for what, names in STATISTICS.items():
            common = {"function": what, "num_elements": request.num_elements, "num_bins": groups}
            yield f"{what}, H = {groups:,}", [common | row for row in _rows(lab, keys, values, groups, names)]
        skewed = ((rng.zipf(_EXPONENT, request.num_elements) - 1) % groups).astype(np.int32)
        for columns in COLUMNS:
            what = f"maximum of {columns} column{'s' * (columns > 1)}, any keys"
            common = {"function": what, "num_elements": request.num_elements, "num_bins": groups}
            yield f"{what}, H = {groups:,}", [common | row for row in _maxima(lab, keys, skewed, columns)]


def _rows(lab: Lab, keys: np.ndarray, values: np.ndarray, groups: int, names: tuple[str, ...]) -> list[Row]:
    device_keys, device_values = (cl_array.to_device(lab.queue, array) for array in (keys, values))
    calls: dict[str, Callable[[], Statistics]] = {
        _ON_HOST: partial(_clhist, keys, values, groups, names, lab),
        _ON_DEVICE: partial(_clhist, device_keys, device_values, groups, names, lab),
        "NumPy": partial(numpy_statistics, keys, values, groups, names),
    }
    if importlib.util.find_spec("pandas") is not None:
        calls["pandas"] = _pandas(keys, values, groups, names)
    reference = numpy_statistics(keys, values, groups, names)
    rows: dict[str, Row] = {}
    for name, call in calls.items():
        start = time.perf_counter()
        result = call()
        rows[name] = {"implementation": name, "first": time.perf_counter() - start}
        ours = name != "pandas"  # which divides by n - 1
        wrong = next(
            (statistic for statistic in names if ours and not _is_close(result[statistic], reference[statistic])), None
        )
        if wrong is not None:
            rows[name] |= {"failed": True, "note": f"WRONG: {wrong}"}
    add_calls(rows, calls, _ON_HOST, _ROUNDS)
    return list(rows.values())


def _maxima(lab: Lab, keys: np.ndarray, skewed: np.ndarray, columns: int) -> list[Row]:
    """Return a row for maxima of columns on the device by uniform keys, and one by skewed keys."""
    rng = np.random.default_rng(columns)
    values = [rng.integers(-(2**31), 2**31, keys.size).astype(np.int32) for _ in range(columns)]
    on_device: dict[str, Any] = {
        f"column{n}": (cl_array.to_device(lab.queue, column), "max") for n, column in enumerate(values)
    }
    rows: dict[str, Row] = {}
    calls: dict[str, Callable[[], Statistics]] = {}
    for name, key in ((_ON_DEVICE, keys), (_ON_SKEWED, skewed)):
        device_key = cl_array.to_device(lab.queue, key)

        def call(device_key: Any = device_key) -> Statistics:
            results = clhist.group_by(device_key, queue=lab.queue).agg(**on_device)
            lab.queue.finish()
            return results

        start = time.perf_counter()
        results = call()
        rows[name] = {"implementation": name, "first": time.perf_counter() - start}
        present, numbers = np.unique(key, return_inverse=True)
        for n, column in enumerate(values):
            expected = np.full(present.size, np.iinfo(np.int32).min, np.int32)
            np.maximum.at(expected, numbers, column)
            if not np.array_equal(results[f"column{n}"]["max"].get(), expected):
                rows[name] |= {"failed": True, "note": f"WRONG: column {n}"}
        calls[name] = call
    add_calls(rows, calls, _ON_DEVICE, _ROUNDS)
    return list(rows.values())


def add_calls(rows: dict[str, Row], calls: dict[str, Callable[[], Any]], reference: str, rounds: int) -> None:
    """Add the times of calls to those rows that have no note, and their ratios to a reference."""
    seconds: dict[str, list[float]] = {name: [] for name, row in rows.items() if "note" not in row}
    for _ in range(rounds):  # in turn: what slows the machine down for a while slows all of them
        for name in seconds:
            start = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - start)
    for name, samples in seconds.items():
        rows[name]["call"] = Samples(tuple(samples)).record()
        if reference in seconds:
            ratios = [one / ours for one, ours in zip(samples, seconds[reference], strict=True)]
            rows[name]["per_clhist"] = statistics.median(ratios)


def _clhist(keys: Any, values: Any, groups: int, names: tuple[str, ...], lab: Lab) -> Statistics:
    results = clhist.group_by(keys, groups, queue=lab.queue).agg(x=(values, names))["x"]
    lab.queue.finish()
    return results


def numpy_statistics(keys: np.ndarray, values: np.ndarray, groups: int, names: tuple[str, ...]) -> Statistics:
    """Return statistics of groups as one computes them by NumPy."""
    if names == ("median",):
        order = np.lexsort((values, keys))
        ends = np.cumsum(np.bincount(keys, minlength=groups))
        sizes = np.diff(ends, prepend=0)
        ordered = np.append(values[order], np.nan)
        low, high = (np.where(sizes > 0, ends - sizes + (sizes - k) // 2, len(values)) for k in (1, 0))
        return {"median": (ordered[low] + ordered[high]) / 2}
    count = np.bincount(keys, minlength=groups)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(keys, values, groups) / count
        std = np.sqrt(np.bincount(keys, (values - mean[keys]) ** 2, groups) / count)
    low, high = np.full(groups, np.nan, values.dtype), np.full(groups, np.nan, values.dtype)
    np.fmin.at(low, keys, values)
    np.fmax.at(high, keys, values)
    return {"mean": mean, "std": std, "min": low, "max": high, "count": count}


def _pandas(keys: np.ndarray, values: np.ndarray, groups: int, names: tuple[str, ...]) -> Callable[[], Statistics]:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame({"key": keys, "x": values})
    functions = list(names)

    def call() -> Statistics:
        return frame.groupby("key")["x"].agg(functions).reindex(range(groups))

    return call


def _is_close(result: Any, expected: np.ndarray) -> bool:
    got = np.asarray(result.get() if is_device_array(result) else result, np.float64)
    return bool(np.allclose(np.nan_to_num(got), np.nan_to_num(expected), rtol=0, atol=_CLOSE))


def panels(rows: list[Row]) -> Panels:
    """Return bars of whole calls."""
    drawn: Panels = {}
    for row in rows:
        if "call" in row:
            panel = drawn.setdefault(f"{row['function']}, H = {row['num_bins']:,}", {})
            panel.setdefault("call", []).append((row["implementation"], row["call"]["median"] * 1e6))
    return drawn


SUITE = Suite(
    operations=(),
    default_operations=(),
    bins=(2000,),
    race_factors=(),
    steps=lambda request: (len(STATISTICS) + len(COLUMNS)) * len(request.bins),
    run=run,
    columns=(
        ("function", lambda row: row["function"]),
        bench_suite.BINS,
        ("implementation", lambda row: row["implementation"]),
        ("first call ms", lambda row: f"{row['first'] * 1e3:,.0f}"),
        ("call µs", lambda row: microseconds(row, "call")),
        ("spread", lambda row: bench_suite.spread(row, "call")),
        ("x clhist", lambda row: times(row, "per_clhist")),
    ),
    panels=panels,
)
