"""`clhist bench --suite hist`: histogram objects filled on the device, beside boost-histogram with threads and CuPy."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clhist.cli.bench import suite as bench_suite
from clhist.cli.bench.histogram import panels
from clhist.cli.bench.inputs import InputSpec
from clhist.cli.bench.lab import Lab, Row
from clhist.cli.bench.suite import Request, Suite, times
from clhist.cli.bench.timing import pipelined

Call = Callable[[], Any]

_DEVICE, _NUMPY = "clhist, device arrays", "clhist, NumPy arrays"
_CUTS = 20  # histograms of "many": selections of one variable


@dataclass(frozen=True)
class Problem:
    """What is filled: how many axes, which storage, from which arrays."""

    name: str
    axes: int
    storage: str
    dtype: str
    many: bool = False

    def bins(self, asked: int) -> int:
        """Return the bins of each axis."""
        return asked if self.axes < 3 else max(1, round(asked ** (2 / 3)))

    @property
    def options(self) -> tuple[str, ...]:
        """What is given besides the columns."""
        return {"Double": (), "Weight": ("weight",), "Mean": ("sample",)}[self.storage]

    @property
    def row_bytes(self) -> int:
        """Bytes that are read for one entry."""
        return (self.axes + len(self.options)) * np.dtype(self.dtype).itemsize + self.many * _CUTS


PROBLEMS = (
    *(
        Problem(f"{axes}-D {storage}, {dtype}", axes, storage, dtype)
        for dtype in ("float64", "float32")
        for axes, storage in ((1, "Double"), (1, "Mean"), (2, "Weight"), (3, "Weight"))
    ),
    Problem(f"{_CUTS} selections, Weight, float32", 1, "Weight", "float32", many=True),
)


@dataclass(frozen=True)
class Given:
    """Columns, weights or samples, and selections, on the host or on the device."""

    columns: tuple[Any, ...]
    options: dict[str, Any]
    cuts: tuple[Any, ...]


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each problem with each number of bins."""
    bh = importlib.import_module("boost_histogram")
    rng = np.random.default_rng(1)
    for bins in request.bins:
        for problem in PROBLEMS:
            columns, rest = (
                tuple(rng.normal(size=request.num_elements).astype(problem.dtype) for _ in range(number))
                for number in (problem.axes, len(problem.options))
            )
            cuts = tuple(rng.random(request.num_elements) > n / _CUTS for n in range(_CUTS if problem.many else 0))
            host = Given(columns, dict(zip(problem.options, rest, strict=True)), cuts)
            nbytes = problem.row_bytes * request.num_elements
            # The floor is the time to read so many bytes: indices and values of 4 bytes each.
            reading = lab.input(InputSpec(-(-nbytes // 8), bins), weighted=True)
            floor = lab.floor(reading, nbytes)
            common = {
                "op": problem.name,
                "num_elements": request.num_elements,
                "num_bins": bins,
                "bytes": nbytes,
                "is_cold": reading.is_cold,
            }
            rows: list[Row] = []
            expected: list[Any] | None = None
            for name, make, finish in _implementations(bh, problem, host, problem.bins(bins), lab):
                row = common | {"implementation": name, "floor": floor.record()}
                ours = name in (_DEVICE, _NUMPY)
                try:
                    row |= _timed(make, finish, expected if ours else None)
                    expected = row.pop("result", expected)
                except Exception as error:  # of somebody else's code as well: out of memory, nothing installed
                    row |= {"failed": ours, "note": f"{type(error).__name__}: {str(error)[:80]}"}
                rows.append(row)
            reference = rows[0].get("call")
            for row in rows:
                if "call" in row:
                    row["call_per_floor"] = row["call"]["median"] / floor.median
                    if reference:
                        row["speedup"] = reference["median"] / row["call"]["median"]
            yield f"{problem.name}, H = {bins:,}", rows


def _implementations(
    bh: Any, problem: Problem, host: Given, bins: int, lab: Lab
) -> Iterator[tuple[str, Callable[[], Call], Callable[[Any], Any]]]:
    """Yield the name of each implementation, what makes its call, and what waits for it; boost-histogram first."""
    hist = importlib.import_module("clhist.hist")

    def empty() -> list[Any]:
        axes = [bh.axis.Regular(bins, -3, 3) for _ in range(problem.axes)]
        return [bh.Histogram(*axes, storage=getattr(bh.storage, problem.storage)()) for _ in host.cuts or [None]]

    def theirs() -> Call:
        hists = empty()
        threads = None if problem.storage == "Mean" else os.cpu_count() or 1  # which its means do not take

        def call() -> list[Any]:
            for h, cut in zip(hists, host.cuts or [None], strict=True):
                h.reset()
                chosen = _identity if cut is None else _chosen(cut)
                options = {name: chosen(array) for name, array in host.options.items()}
                h.fill(*map(chosen, host.columns), threads=threads, **options)
            return hists

        return call

    def ours(given: Given) -> Call:
        hists = empty()

        def call() -> list[Any]:
            for h in hists:
                h.reset()
            if given.cuts:
                each = zip(hists, given.cuts, strict=True)
                hist.fill_many([(h, given.columns, {**given.options, "where": cut}) for h, cut in each])
            else:
                hist.fill(hists[0], *given.columns, **given.options)
            return hists

        return call

    def on_device() -> Call:
        def placed(array: np.ndarray) -> Any:
            return cl_array.to_device(lab.queue, array.view(np.uint8) if array.dtype == bool else array)

        options = {name: placed(array) for name, array in host.options.items()}
        return ours(Given(tuple(map(placed, host.columns)), options, tuple(map(placed, host.cuts))))

    threads = 1 if problem.storage == "Mean" else os.cpu_count() or 1
    yield f"boost-histogram {bh.__version__}, {threads} threads", theirs, _nothing
    yield _DEVICE, on_device, _nothing
    yield _NUMPY, partial(ours, host), _nothing
    if problem.storage != "Mean" and importlib.util.find_spec("cupy") is not None:
        yield "cupy, as cuda-histogram", partial(_cupy, problem, host, bins), _synchronize


def _cupy(problem: Problem, host: Given, bins: int) -> Call:
    """Return what cuda-histogram does: positions by a search for each axis, then a bincount for each sum."""
    cupy = importlib.import_module("cupy")
    columns = [cupy.asarray(column) for column in host.columns]
    weight = [cupy.asarray(array, dtype=np.float64) for array in host.options.values()]
    edges = cupy.linspace(-3, 3, bins + 1)
    size = (bins + 2) ** problem.axes
    cuts = [cupy.asarray(cut) for cut in host.cuts]

    def sums(columns: Sequence[Any], weight: Sequence[Any]) -> list[Any]:
        index = cupy.zeros(len(columns[0]), np.int64)
        for column in columns:
            index = index * (bins + 2) + cupy.searchsorted(edges, column, "right")
        if not weight:
            return [cupy.bincount(index, minlength=size)]
        return [cupy.bincount(index, weights=w, minlength=size) for w in (weight[0], weight[0] ** 2)]

    def call() -> list[Any]:
        if not cuts:
            return sums(columns, weight)
        return [sums([c[cut] for c in columns], [w[cut] for w in weight]) for cut in cuts]

    return call


def _identity(array: np.ndarray) -> np.ndarray:
    return array


def _chosen(cut: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: array[cut]


def _nothing(result: Any) -> None:
    pass


def _synchronize(result: Any) -> None:
    importlib.import_module("cupy").cuda.Device().synchronize()


def _timed(make: Callable[[], Call], finish: Callable[[Any], Any], expected: list[Any] | None) -> Row:
    """Return the times of a call; ours is compared with what boost-histogram filled."""
    call = make()
    start = time.perf_counter()
    result = call()
    finish(result)
    row: Row = {"first": time.perf_counter() - start}
    if expected is None:
        row["result"] = result
    elif wrong := _difference(result, expected):
        return row | {"failed": True, "note": f"WRONG: {wrong}"}
    found = pipelined(call, finish)
    return row | {"call": found.whole.record(), "host": found.host.record()}


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """Return what differs: counts must be equal, sums within rounding."""
    for h, reference in zip(found, expected, strict=True):
        ours, theirs = np.asarray(h.view(flow=True)), np.asarray(reference.view(flow=True))
        for name in ours.dtype.names or [()]:
            a, b = ours[name], theirs[name]
            tolerance = 1e-9 if ours.dtype.names else 0.0
            if not np.allclose(a, b, rtol=tolerance, atol=tolerance * float(np.abs(b).max())):
                return f"{name or 'counts'} differ, in {int((a != b).sum())} of {a.size} bins"
    return ""


SUITE = Suite(
    operations=(),
    default_operations=(),
    bins=(100,),
    race_factors=(),
    steps=lambda request: len(PROBLEMS) * len(request.bins),
    run=run,
    columns=(
        ("histogram", lambda row: row["op"]),
        bench_suite.BINS,
        ("implementation", lambda row: row["implementation"]),
        ("first call ms", lambda row: f"{row['first'] * 1e3:,.1f}" if "first" in row else "-"),
        *bench_suite.CALL,
        bench_suite.CALL_FLOOR,
        ("x faster", lambda row: times(row, "speedup")),
    ),
    panels=panels,
)
