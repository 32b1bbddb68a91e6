"""`clhist bench --suite histogram`: histograms and statistics by bins, beside NumPy's, SciPy's and others."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import clhist
from benchmarks import suite as bench_suite
from benchmarks.inputs import InputSpec
from benchmarks.lab import Lab, Row
from benchmarks.suite import Panels, Request, Suite, add_ratios, times
from clhist import stats
from clhist.cli.timing import pipelined

_DEVICE, _NUMPY = "clhist, device arrays", "clhist, NumPy arrays"
_STATISTICS = ["mean", "std", "min", "max", "count"]

Call = Callable[[], Any]
Maker = Callable[[Any, Any, int], Call]  # of arrays x and y of float32, and the number of bins


@dataclass(frozen=True)
class Problem:
    """A computation by clhist and by the host's library, and the number of arrays that it reads."""

    name: str
    ours: Maker
    theirs: tuple[str, Maker]
    arrays: int = 1


def _edges(name: str, bins: int) -> np.ndarray:
    if name == "logarithmic":
        return np.geomspace(1e-4, 1.0, bins + 1)
    return np.sort(np.random.default_rng(0).random(bins + 1))


def _of_numpy(name: str) -> tuple[Maker, tuple[str, Maker]]:
    """Return the same call of our function and of NumPy's."""

    def maker(module: Any) -> Maker:
        def make(x: Any, y: Any, bins: int) -> Call:
            if name == "2-D":
                side = max(1, round(bins**0.5))
                return partial(module.histogram2d, x, y, side, ((0.0, 1.0), (0.0, 1.0)))
            if name in ("even", "range found"):
                return partial(module.histogram, x, bins, (0.0, 1.0) if name == "even" else None)
            return partial(module.histogram, x, _edges(name, bins))

        return make

    return maker(clhist), (f"numpy {np.__version__}", maker(np))


def _scipy(x: Any, y: Any, bins: int) -> Call:
    theirs = importlib.import_module("scipy.stats").binned_statistic

    def call() -> dict[str, Any]:
        return {name: theirs(x, y, name, bins, (0.0, 1.0))[0] for name in _STATISTICS}

    return call


def _ours_by_bins(x: Any, y: Any, bins: int) -> Call:
    return partial(stats.binned_statistic, x, y, _STATISTICS, bins, (0.0, 1.0), binnumber=False)


PROBLEMS = (
    *(Problem(name, *_of_numpy(name)) for name in ("even", "range found", "logarithmic", "random edges")),
    Problem("2-D", *_of_numpy("2-D"), arrays=2),
    Problem("five statistics", _ours_by_bins, ("scipy", _scipy), arrays=2),
)


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each problem with each number of bins."""
    rng = np.random.default_rng(1)
    x, y = (rng.random(request.num_elements, np.float32) for _ in range(2))
    on_device = cl_array.to_device(lab.queue, x), cl_array.to_device(lab.queue, y)
    for bins in request.bins:
        data = lab.input(InputSpec(request.num_elements, bins), weighted=True)
        for problem in PROBLEMS:
            nbytes = 4 * problem.arrays * request.num_elements
            common = {
                "op": problem.name,
                "num_elements": request.num_elements,
                "num_bins": bins,
                "bytes": nbytes,
                "is_cold": data.is_cold,
            }
            floor = lab.floor(data, nbytes)
            calls = _calls(problem, (x, y), on_device, bins)
            expected: Any = None
            rows: list[Row] = []
            for name, make, finish in calls:
                row: Row = common | {"implementation": name, "floor": floor.record()}
                try:
                    row |= _timed(make, finish, expected, lab, ours=name in (_DEVICE, _NUMPY))
                    expected = row.pop("result", expected)
                except Exception as error:  # of somebody else's code as well: out of memory, nothing installed
                    row |= {"failed": name in (_DEVICE, _NUMPY), "note": f"{type(error).__name__}: {str(error)[:80]}"}
                rows.append(row)
            add_ratios(rows, floor.median)
            yield f"{problem.name}, H = {bins:,}", rows


def _calls(
    problem: Problem, host: tuple[Any, Any], device: tuple[Any, Any], bins: int
) -> Iterator[tuple[str, Call, Callable[[Any], Any]]]:
    """Yield the name of each implementation, what makes its call, and what waits for it: the host's library first."""
    name, theirs = problem.theirs
    yield name, partial(theirs, *host, bins), _nothing
    yield _DEVICE, partial(problem.ours, *device, bins), _finish
    yield _NUMPY, partial(problem.ours, *host, bins), _nothing
    if problem.name == "five statistics":
        return
    for module, make, finish in (("boost_histogram", _boost, _nothing), ("cupy", _cupy, _synchronize)):
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        yield f"{module} {library.__version__}", partial(make, library, problem, *host, bins), finish


def _nothing(result: Any) -> None:
    pass


def _finish(result: Any) -> None:
    first = result[0] if isinstance(result, tuple) else result
    if isinstance(first, cl_array.Array):
        (first.queue or clhist.default_queue()).finish()


def _synchronize(result: Any) -> None:
    importlib.import_module("cupy").cuda.Device().synchronize()


def _boost(library: Any, problem: Problem, x: Any, y: Any, bins: int) -> Call:
    """Return the fill of boost-histogram's regular axes, which have no edges of their own; one thread for each core."""
    axis = library.axis
    axes: list[Any] = [axis.Regular(bins, 0, 1)]
    if problem.name == "2-D":
        axes = [axis.Regular(max(1, round(bins**0.5)), 0, 1)] * 2
    elif problem.name not in ("even", "range found"):
        axes = [axis.Variable(_edges(problem.name, bins))]
    data = (x, y)[: len(axes)]
    threads = os.cpu_count() or 1
    return lambda: (library.Histogram(*axes, storage=library.storage.Int64()).fill(*data, threads=threads).view(),)


def _cupy(library: Any, problem: Problem, x: Any, y: Any, bins: int) -> Call:
    x, y = library.asarray(x), library.asarray(y)
    if problem.name == "2-D":
        side = max(1, round(bins**0.5))
        return partial(library.histogram2d, x, y, side, ((0.0, 1.0), (0.0, 1.0)))
    if problem.name in ("even", "range found"):
        return partial(library.histogram, x, bins, (0.0, 1.0) if problem.name == "even" else None)
    return partial(library.histogram, x, library.asarray(_edges(problem.name, bins)))


def _timed(make: Callable[[], Call], finish: Callable[[Any], Any], expected: Any, lab: Lab, *, ours: bool) -> Row:
    """Return the times of a call; ours is compared with what the host's library computed."""
    call = make()
    start = time.perf_counter()
    result = call()
    finish(result)
    first = time.perf_counter() - start
    row: Row = {"first": first}
    got = _on_host(result)
    if expected is None:
        row["result"] = got
    elif ours and (wrong := _difference(got, expected)):
        return row | {"failed": True, "note": f"WRONG: {wrong}"}
    timing = pipelined(call, finish)
    return row | {"call": timing.whole.record(), "host": timing.host.record()}


def _on_host(result: Any) -> dict[str, np.ndarray]:
    first = result[0] if isinstance(result, tuple) else result
    results = first if isinstance(first, dict) else {"": first}
    return {name: array.get() if hasattr(array, "get") else np.asarray(array) for name, array in results.items()}


def _difference(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str:
    """Return what differs: counts must be equal, other statistics within rounding."""
    for name, array in expected.items():
        tolerance = 0.0 if name in ("", "count", "min", "max") else 1e-9
        if not np.allclose(got[name], array, rtol=tolerance, atol=0, equal_nan=True):
            return f"{name or 'counts'} differ, in {int((got[name] != array).sum())} of {array.size} bins"
    return ""


def panels(rows: list[Row]) -> Panels:
    """Return bars of each implementation, a panel for each number of bins."""
    drawn: Panels = {}
    for row in rows:
        if "call" in row:
            panel = drawn.setdefault(f"H = {row['num_bins']:,}", {})
            panel.setdefault(row["implementation"], []).append((row["op"], row["call"]["median"] * 1e6))
    return drawn


SUITE = Suite(
    operations=(),
    default_operations=(),
    bins=(100, 1000),
    race_factors=(),
    steps=lambda request: len(PROBLEMS) * len(request.bins),
    run=run,
    columns=(
        ("bins are", lambda row: row["op"]),
        bench_suite.BINS,
        ("implementation", lambda row: row["implementation"]),
        ("first call ms", lambda row: f"{row['first'] * 1e3:,.1f}" if "first" in row else "-"),
        *bench_suite.CALL,
        bench_suite.CALL_FLOOR,
        ("x faster", lambda row: times(row, "speedup")),
    ),
    panels=panels,
)
