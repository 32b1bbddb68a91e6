"""`clhist bench --suite latency`: what a call on few elements costs, on the host and until it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from benchmarks import suite as bench_suite
from benchmarks.inputs import InputSpec
from benchmarks.lab import Lab, Row, difference
from benchmarks.suite import Panels, Request, Suite, microseconds
from clhist import HistogramKernel, bincount, operators, reduce_by_index
from clhist.cli.timing import pipelined

_FUNCTIONS = ("HistogramKernel", "HistogramKernel, out=", "HistogramKernel, bound", "reduce_by_index", "bincount")
_ARRAYS = ("device", "NumPy")


def run(lab: Lab, request: Request) -> Iterator[tuple[str, list[Row]]]:
    """Yield a row for each function on each kind of arrays; all of them count int32."""
    for bins in request.bins:
        data = lab.input(InputSpec(request.num_elements, bins), weighted=False)
        for function in _FUNCTIONS:
            for arrays in _ARRAYS:
                x = data.arrays(("bins",))[0][0] if arrays == "device" else data.host.bins
                row = {"function": function, "arrays": arrays, "num_elements": request.num_elements, "num_bins": bins}
                yield (
                    f"{function}, {arrays} arrays",
                    [row | _timed(lab, _call(lab, function, x, bins), data.host.counts)],
                )


def _call(lab: Lab, function: str, x: Any, bins: int) -> Callable[[], Any]:
    if function.startswith("HistogramKernel"):
        kernel = HistogramKernel(
            lab.context, operators.add(np.int32), arguments="const int *bins", map="EMIT(bins[i], 1)"
        )
        call = partial(kernel, x, num_bins=bins, queue=lab.queue)
        if function.endswith("bound"):
            return kernel.bind(x, num_bins=bins, queue=lab.queue, out=call())
        return partial(call, out=call()) if function.endswith("out=") else call
    if function == "bincount":
        return partial(bincount, x, minlength=bins, queue=lab.queue)
    on_device = isinstance(x, cl_array.Array)
    dest = cl_array.zeros(lab.queue, bins, np.int32) if on_device else np.zeros(bins, np.int32)
    return partial(reduce_by_index, dest, np.add, x, 1, queue=lab.queue)


def _timed(lab: Lab, call: Callable[[], Any], expected: np.ndarray) -> Row:
    lab.queue.finish()
    start = time.perf_counter()
    result = call()
    lab.queue.finish()
    first = time.perf_counter() - start
    wrong = difference(result.get() if isinstance(result, cl_array.Array) else result, expected)
    if wrong:
        return {"first": first, "failed": True, "note": f"WRONG: {wrong}"}
    times = pipelined(call, lambda last: lab.queue.finish())
    return {"first": first, "host": times.host.record(), "call": times.whole.record()}


def panels(rows: list[Row]) -> Panels:
    """Return bars of the host's time."""
    drawn: Panels = {}
    for row in rows:
        if "host" in row:
            panel = drawn.setdefault(f"N = {row['num_elements']:,}, H = {row['num_bins']:,}: host", {})
            panel.setdefault(f"{row['arrays']} arrays", []).append((row["function"], row["host"]["median"] * 1e6))
    return drawn


SUITE = Suite(
    operations=(),
    default_operations=(),
    bins=(64,),
    race_factors=(),
    num_elements=1000,
    steps=lambda request: len(_FUNCTIONS) * len(_ARRAYS) * len(request.bins),
    run=run,
    columns=(
        ("function", lambda row: row["function"]),
        ("arrays", lambda row: row["arrays"]),
        bench_suite.BINS,
        ("first call ms", lambda row: f"{row['first'] * 1e3:,.1f}"),
        ("host µs", lambda row: microseconds(row, "host")),
        ("spread", lambda row: bench_suite.spread(row, "host")),
        *bench_suite.CALL,
    ),
    panels=panels,
)
