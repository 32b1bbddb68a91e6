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

from benchmarks import suite as bench_suite
from benchmarks.histogram import panels
from benchmarks.inputs import InputSpec
from benchmarks.lab import Lab, Row
from benchmarks.suite import Request, Suite, add_ratios, times
from clhist.cli.timing import pipelined

Call = Callable[[], Any]

_DEVICE, _NUMPY, _FILLER = "clhist, device arrays", "clhist, NumPy arrays", "clhist.hist.Filler, device arrays"
_CUTS = 20  # selections
_VARIABLES, _VARIATIONS, _FEWER = 50, 30, 1000  # of "analysis", which has so many times fewer events


@dataclass(frozen=True)
class Problem:
    """A fill: its axes, its storage and its arrays; perhaps a histogram for each selection.

    An analysis has one for each variable and each selection, and a sum for each variation of the weights.
    """

    name: str
    axes: int
    storage: str
    dtype: str
    many: bool = False
    analysis: bool = False

    def bins(self, requested: int) -> int:
        """Return the bins of each axis."""
        return requested if self.axes < 3 else max(1, round(requested ** (2 / 3)))

    @property
    def options(self) -> tuple[str, ...]:
        """The arguments of a fill besides the columns."""
        return {"Double": (), "Weight": ("weight",), "MultiCell": ("weight",), "Mean": ("sample",)}[self.storage]

    @property
    def columns(self) -> int:
        """Columns that there are."""
        return _VARIABLES if self.analysis else self.axes

    def size(self, requested: int) -> int:
        """Return the number of entries."""
        return max(1, requested // _FEWER) if self.analysis else requested

    @property
    def row_bytes(self) -> int:
        """Bytes that are read for one entry."""
        values = self.columns + len(self.options) * (_VARIATIONS if self.analysis else 1)
        return values * np.dtype(self.dtype).itemsize + self.many * _CUTS


PROBLEMS = (
    *(
        Problem(f"{axes}-D {storage}, {dtype}", axes, storage, dtype)
        for dtype in ("float64", "float32")
        for axes, storage in ((1, "Double"), (1, "Mean"), (2, "Weight"), (3, "Weight"))
    ),
    Problem(f"{_CUTS} selections, Weight, float32", 1, "Weight", "float32", many=True),
    Problem(
        f"{_VARIABLES} variables, {_CUTS} selections, {_VARIATIONS} weights, float32",
        1,
        "MultiCell",
        "float32",
        many=True,
        analysis=True,
    ),
)


@dataclass(frozen=True)
class Given:
    """Columns, weights or samples, and selections, on the host or on the device."""

    columns: tuple[Any, ...]
    options: dict[str, Any]
    cuts: tuple[Any, ...]

    def fills(self, axes: int) -> list[tuple[tuple[Any, ...], Any]]:
        """Return the columns and the selection, or None, of each histogram that has so many axes."""
        groups = [self.columns[n : n + axes] for n in range(0, len(self.columns), axes)]
        return [(group, cut) for group in groups for cut in self.cuts or (None,)]


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each problem with each number of bins."""
    bh = importlib.import_module("boost_histogram")
    rng = np.random.default_rng(1)
    for bins in request.bins:
        for problem in PROBLEMS:
            size = problem.size(request.num_elements)
            columns = tuple(rng.normal(size=size).astype(problem.dtype) for _ in range(problem.columns))
            shape = (size, _VARIATIONS) if problem.analysis else (size,)
            options = {name: rng.normal(size=shape).astype(problem.dtype) for name in problem.options}
            cuts = tuple(rng.random(size) > n / _CUTS for n in range(_CUTS if problem.many else 0))
            host = Given(columns, options, cuts)
            nbytes = problem.row_bytes * size
            # The floor is the time to read so many bytes: indices and values of 4 bytes each.
            reading = lab.input(InputSpec(-(-nbytes // 8), bins), weighted=True)
            floor = lab.floor(reading, nbytes)
            common = {
                "op": problem.name,
                "num_elements": size,
                "num_bins": bins,
                "bytes": nbytes,
                "is_cold": reading.is_cold,
            }
            rows: list[Row] = []
            expected: list[Any] | None = None
            for name, make, finish in _implementations(bh, problem, host, problem.bins(bins), lab):
                row: Row = common | {"implementation": name, "floor": floor.record()}
                ours = name in (_DEVICE, _NUMPY, _FILLER)
                try:
                    row |= _timed(make, finish, expected if ours else None)
                    expected = row.pop("result", expected)
                except Exception as error:  # of somebody else's code as well: out of memory, nothing installed
                    row |= {"failed": ours, "note": f"{type(error).__name__}: {str(error)[:80]}"}
                rows.append(row)
            add_ratios(rows, floor.median)
            yield f"{problem.name}, H = {bins:,}", rows


def _implementations(
    bh: Any, problem: Problem, host: Given, bins: int, lab: Lab
) -> Iterator[tuple[str, Callable[[], Call], Callable[[Any], Any]]]:
    """Yield the name of each implementation, what makes its call, and what waits for it; boost-histogram first."""
    hist = importlib.import_module("clhist.hist")

    def empty() -> list[Any]:
        axes = [bh.axis.Regular(bins, -3, 3) for _ in range(problem.axes)]
        cells = (_VARIATIONS,) if problem.analysis else ()
        storage = getattr(bh.storage, problem.storage)
        return [bh.Histogram(*axes, storage=storage(*cells)) for _ in host.fills(problem.axes)]

    def theirs() -> Call:
        hists = empty()
        threads = None if problem.storage == "Mean" else os.cpu_count() or 1  # which its means do not take

        def call() -> list[Any]:
            for h, (columns, cut) in zip(hists, host.fills(problem.axes), strict=True):
                h.reset()
                chosen = _identity if cut is None else _chosen(cut)
                options = {name: chosen(array) for name, array in host.options.items()}
                h.fill(*map(chosen, columns), threads=threads, **options)
            return hists

        return call

    def ours(inputs: Given) -> Call:
        hists = empty()

        def call() -> list[Any]:
            for h in hists:
                h.reset()
            if inputs.cuts:
                pairs = zip(hists, inputs.fills(problem.axes), strict=True)
                hist.fill_many([(h, columns, {**inputs.options, "where": cut}) for h, (columns, cut) in pairs])
            else:
                hist.fill(hists[0], *inputs.columns, **inputs.options)
            return hists

        return call

    def placed() -> Given:
        def put(array: np.ndarray) -> Any:
            return cl_array.to_device(lab.queue, array.view(np.uint8) if array.dtype == bool else array)

        options = {name: put(array) for name, array in host.options.items()}
        return Given(tuple(map(put, host.columns)), options, tuple(map(put, host.cuts)))

    def fillers() -> Call:
        inputs, filler = placed(), hist.Filler(*empty())
        return lambda: [filler.fill(*inputs.columns, **inputs.options)]

    threads = 1 if problem.storage == "Mean" else os.cpu_count() or 1
    yield f"boost-histogram {bh.__version__}, {threads} threads", theirs, _nothing
    yield _DEVICE, lambda: ours(placed()), _nothing
    yield _NUMPY, partial(ours, host), _nothing
    if not host.cuts and problem.storage != "Mean":  # means stay on the host
        yield _FILLER, fillers, lambda result: lab.queue.finish()
    if problem.storage != "Mean" and importlib.util.find_spec("cupy") is not None:
        yield "cupy, as cuda-histogram", partial(_cupy, problem, host, bins), _synchronize


def _cupy(problem: Problem, host: Given, bins: int) -> Call:
    """Return what cuda-histogram does: positions by a search for each axis, then a bincount for each sum."""
    cupy = importlib.import_module("cupy")
    columns = [cupy.asarray(column) for column in host.columns]
    weight = [cupy.asarray(array, dtype=np.float64) for array in host.options.values()]
    if problem.analysis:
        weight = [cupy.ascontiguousarray(component) for component in weight[0].T]
    edges = cupy.linspace(-3, 3, bins + 1)
    size = (bins + 2) ** problem.axes
    cuts = [cupy.asarray(cut) for cut in host.cuts]

    def sums(columns: Sequence[Any], weight: Sequence[Any]) -> list[Any]:
        index = cupy.zeros(len(columns[0]), np.int64)
        for column in columns:
            index = index * (bins + 2) + cupy.searchsorted(edges, column, "right")
        if not weight:
            return [cupy.bincount(index, minlength=size)]
        terms = weight if problem.analysis else (weight[0], weight[0] ** 2)
        return [cupy.bincount(index, weights=w, minlength=size) for w in terms]

    def call() -> list[Any]:
        if not cuts:
            return sums(columns, weight)
        fills = Given(tuple(columns), {}, tuple(cuts)).fills(problem.axes)
        return [sums([c[cut] for c in these], [w[cut] for w in weight]) for these, cut in fills]

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
    elif wrong := _difference([h.result() if hasattr(h, "result") else h for h in result], expected):
        return row | {"failed": True, "note": f"WRONG: {wrong}"}
    timing = pipelined(call, finish)
    return row | {"call": timing.whole.record(), "host": timing.host.record()}


def _difference(result: Sequence[Any], expected: Sequence[Any]) -> str:
    """Return what differs: counts must be equal, sums within rounding."""
    for h, reference in zip(result, expected, strict=True):
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
    needs=("boost_histogram", "hist"),
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
