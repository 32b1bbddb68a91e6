"""`clhist bench --suite sizes`: functions on NumPy arrays of 100 to millions of elements, beside the usual tool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import isqrt
from typing import Any

import numpy as np

import clhist
from benchmarks import suite as bench_suite
from benchmarks.groups import add_calls
from benchmarks.lab import Lab, Row
from benchmarks.suite import Panels, Request, Suite, times
from clhist.cli.tables import grid

Call = Callable[[], Any]
_SMALLEST = 100  # elements; the other sizes are powers of ten up to the request's
_SECONDS, _LEAST_ROUNDS, _MOST_ROUNDS = 1.0, 3, 300  # of both implementations of one function and size
_CLHIST = "clhist"
_FIVE = ("mean", "sum", "min", "max", "count")
_NEW_SIZES, _MOST_NEW = 24, 1.3  # sizes not seen before, and how many times as long as repeated calls theirs may take
_LOSS, _LOST_SECONDS = 0.9, 10e-6  # a cell is slow if its ratio is below the first and it loses more than the second


@dataclass(frozen=True)
class Inputs:
    """Random arrays of one length: numbers in [0, 1), indices below `bins`, and sparse int64 keys."""

    x: np.ndarray
    y: np.ndarray
    indices: np.ndarray
    keys: np.ndarray
    bins: int

    @classmethod
    def of(cls, size: int, bins: int) -> Inputs:
        """Return arrays of `size` elements."""
        rng = np.random.default_rng(size)
        indices = rng.integers(0, bins, size)
        return cls(rng.random(size), rng.random(size), indices, indices * 2**33 - 7, bins)

    def without_last(self, number: int) -> Inputs:
        """Return the same arrays without the last elements, so many as `number`."""
        x, y, indices, keys = (array[: self.x.size - number] for array in (self.x, self.y, self.indices, self.keys))
        return Inputs(x, y, indices, keys, self.bins)


@dataclass(frozen=True)
class Problem:
    """One function: calls of clhist and of the usual tool, and the package of that tool."""

    tool: str
    calls: Callable[[Inputs], tuple[Call, Call]]


def _bincount(a: Inputs) -> tuple[Call, Call]:
    return lambda: clhist.bincount(a.indices), lambda: np.bincount(a.indices)


def _weights(a: Inputs) -> tuple[Call, Call]:
    return lambda: clhist.bincount(a.indices, a.x), lambda: np.bincount(a.indices, a.x)


def _histogram(a: Inputs) -> tuple[Call, Call]:
    return lambda: clhist.histogram(a.x, a.bins), lambda: np.histogram(a.x, a.bins)


def _histogram2d(a: Inputs) -> tuple[Call, Call]:
    side = max(1, isqrt(a.bins))
    return lambda: clhist.histogram2d(a.x, a.y, side), lambda: np.histogram2d(a.x, a.y, side)


def _digitize(a: Inputs) -> tuple[Call, Call]:
    edges = np.linspace(0, 1, a.bins + 1)
    return lambda: clhist.digitize(a.x, edges), lambda: np.digitize(a.x, edges)


def _unique(a: Inputs) -> tuple[Call, Call]:
    return lambda: clhist.unique(a.keys), lambda: np.unique(a.keys)


def _factorize(a: Inputs) -> tuple[Call, Call]:
    factorize = import_module("pandas").factorize
    return lambda: clhist.factorize(a.keys), lambda: factorize(a.keys)


def _binned_statistic(a: Inputs) -> tuple[Call, Call]:
    ours, theirs = (import_module(module).binned_statistic for module in ("clhist.stats", "scipy.stats"))
    return lambda: ours(a.x, a.y, "mean", a.bins), lambda: theirs(a.x, a.y, "mean", a.bins)


def _add(a: Inputs) -> tuple[Call, Call]:
    values = a.x.astype(np.float32)

    def theirs() -> np.ndarray:
        total = np.zeros(a.bins, np.float32)
        np.add.at(total, a.indices, values)
        return total

    return lambda: clhist.reduce_by_index(np.zeros(a.bins, np.float32), np.add, a.indices, values), theirs


def _group_by(a: Inputs) -> tuple[Call, Call]:
    values, names = import_module("pandas").Series(a.x), list(_FIVE)
    return lambda: clhist.group_by(a.keys).agg(x=(a.x, _FIVE))["x"], lambda: values.groupby(a.keys).agg(names)


def _median(a: Inputs) -> tuple[Call, Call]:
    values = import_module("pandas").Series(a.x)
    return lambda: clhist.group_by(a.keys).median(a.x), lambda: values.groupby(a.keys).median()


def _ndimage_mean(a: Inputs) -> tuple[Call, Call]:
    ours, theirs = (import_module(module).mean for module in ("clhist.ndimage", "scipy.ndimage"))
    index = np.unique(a.indices)
    return lambda: ours(a.x, a.indices, index), lambda: theirs(a.x, a.indices, index)


PROBLEMS = {
    "bincount": Problem("numpy", _bincount),
    "bincount-weights": Problem("numpy", _weights),
    "histogram": Problem("numpy", _histogram),
    "histogram2d": Problem("numpy", _histogram2d),
    "digitize": Problem("numpy", _digitize),
    "unique": Problem("numpy", _unique),
    "factorize": Problem("pandas", _factorize),
    "binned_statistic": Problem("scipy", _binned_statistic),
    "add": Problem("numpy", _add),
    "group_by": Problem("pandas", _group_by),
    "median": Problem("pandas", _median),
    "ndimage-mean": Problem("scipy", _ndimage_mean),
}


def sizes_of(request: Request) -> list[int]:
    """Return 100, 1000, ... up to the number of elements of a request."""
    size, sizes = _SMALLEST, list[int]()
    while size < request.num_elements:
        sizes.append(size)
        size *= 10
    return [*sizes, request.num_elements]


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield a row for each function, number of bins and size."""
    for bins in request.bins:
        for size in sizes_of(request):
            inputs = Inputs.of(size, bins)
            for name in request.operations:
                row = {"function": name, "num_elements": size, "num_bins": bins, "tool": PROBLEMS[name].tool}
                yield f"{name}, N = {size:,}", [row | _measured(PROBLEMS[name], inputs)]


def _measured(problem: Problem, inputs: Inputs) -> Row:
    """Return the least seconds of many calls of each, which take turns, and their ratio."""
    try:
        import_module(problem.tool)
    except ImportError:
        return {"note": f"not installed: {problem.tool}"}
    calls = dict(zip((_CLHIST, problem.tool), problem.calls(inputs), strict=True))
    results = [_arrays(call()) for call in calls.values()]
    if not _are_close(*results):
        return {"failed": True, "note": f"WRONG: not as {problem.tool}"}
    start = time.perf_counter()
    for call in calls.values():
        call()
    about = time.perf_counter() - start
    rounds = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, int(_SECONDS / about)))
    timed: dict[str, Row] = {name: {} for name in calls}
    add_calls(timed, calls, _CLHIST, rounds)
    ours, theirs = (min(timed[name]["call"]["samples"]) for name in calls)
    of_tool = timed[problem.tool]["call"]
    return {"call": timed[_CLHIST]["call"], "tool_call": of_tool, "least": ours, "tool_least": theirs} | {
        "ratio": theirs / ours,
        "slow": theirs < _LOSS * ours and ours - theirs > _LOST_SECONDS,
        "new_size": _of_new_sizes(problem, inputs),
    }


def _of_new_sizes(problem: Problem, inputs: Inputs) -> float:
    """Return how many times as long as repeated calls those of sizes not seen before take; medians, in turn."""
    repeated, _ = problem.calls(inputs)
    ratios = list[float]()
    for number in range(1, _NEW_SIZES + 1):
        new, _ = problem.calls(inputs.without_last(number))
        seconds = list[float]()
        for call in (repeated, new):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[1] / seconds[0])
    return float(np.median(ratios))


def _arrays(result: Any) -> list[np.ndarray]:
    """Return the arrays of a result; those of statistics by name, in the order of `_FIVE`."""
    if hasattr(result, "statistic"):
        return [result.statistic]
    if isinstance(result, tuple):
        return [np.asarray(array) for array in result]
    if isinstance(result, dict) or hasattr(result, "columns"):
        return [np.asarray(result[name]) for name in _FIVE]
    return [np.asarray(result)]


def _are_close(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    """Whether results are equal but for rounding, of float32 sums in any order."""
    rtol = 1e-3 if any(array.dtype == np.float32 for array in ours) else 1e-9
    return all(
        one.shape == other.shape and np.allclose(one, other, rtol=rtol, atol=0, equal_nan=True)
        for one, other in zip(ours, theirs, strict=True)
    )


def summary(rows: list[Row]) -> list[str]:
    """Return a table of ratios, functions by sizes, and the slow cells."""
    lines = list[str]()
    for bins in dict.fromkeys(row["num_bins"] for row in rows):
        by_cell = {(row["function"], row["num_elements"]): row for row in rows if row["num_bins"] == bins}
        functions, sizes = (list(dict.fromkeys(key[n] for key in by_cell)) for n in (0, 1))
        cells = [["time of the tool / clhist's", *(f"{size:,}" for size in sizes)]]
        cells += [[name, *(_ratio(by_cell.get((name, size), {})) for size in sizes)] for name in functions]
        lines += [f"H = {bins:,}", grid(cells, indent=2), ""]
        cells[0][0] = "time of new sizes / repeated"
        cells[1:] = [
            [name, *(times(by_cell.get((name, size), {}), "new_size") for size in sizes)] for name in functions
        ]
        lines += [grid(cells, indent=2), ""]
    slow, new = (
        sum(bool(row.get(key, 0) > most) for row in rows) for key, most in (("slow", 0), ("new_size", _MOST_NEW))
    )
    lines.append(f"{new} of {len(rows)} cells: new sizes above {_MOST_NEW}")
    return [*lines, f"* {slow} of {len(rows)} cells: below {_LOSS} and more than {_LOST_SECONDS * 1e6:.0f} µs slower"]


def _ratio(row: Row) -> str:
    return times(row, "ratio") + ("*" if row.get("slow") else "")


def panels(rows: list[Row]) -> Panels:
    """Return lines over the number of elements, a panel for each function and number of bins."""
    drawn: Panels = {}
    for row in rows:
        if "least" in row:
            panel = drawn.setdefault(f"{row['function']}, H = {row['num_bins']:,}", {})
            for label, key in ((_CLHIST, "least"), (row["tool"], "tool_least")):
                panel.setdefault(label, []).append((row["num_elements"], row[key] * 1e6))
    return drawn


def _microseconds(key: str) -> Callable[[Row], str]:
    return lambda row: f"{row[key] * 1e6:,.1f}" if key in row else "-"


SUITE = Suite(
    operations=tuple(PROBLEMS),
    default_operations=tuple(PROBLEMS),
    bins=(256,),
    race_factors=(),
    num_elements=10_000_000,
    x_label="N (elements)",
    steps=lambda request: len(request.operations) * len(request.bins) * len(sizes_of(request)),
    run=run,
    columns=(
        ("function", lambda row: row["function"]),
        bench_suite.BINS,
        ("N", lambda row: f"{row['num_elements']:,}"),
        ("clhist µs", _microseconds("least")),
        ("tool µs", _microseconds("tool_least")),
        ("tool", lambda row: row["tool"]),
        ("ratio", _ratio),
        ("new size", lambda row: times(row, "new_size")),
    ),
    panels=panels,
    summary=summary,
)
