"""Measuring what `clhist._core.model.rows` predicts from: how fast rows are placed and gathered, or added."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.devices.profile import Profile
from clhist._core.devices.vendors import vector_atomic
from clhist._core.model.times import (
    BANDWIDTH,
    LAUNCH,
    ROWS_ADDED,
    ROWS_AT_ONCE,
    ROWS_FOUND,
    ROWS_GATHERED,
    ROWS_PLACED,
    ROWS_UPDATED,
)
from clhist._core.opencl.device import profile_context, trust
from clhist._core.runtime.call import call_of
from clhist._core.runtime.scatter import ScatterSpec, arguments_of, elements, scatter_engine
from clhist.calibration.measure import Bench, Measurement

_CPU_ROWS, _CPU_BINS = 2**20, 1000
_GPU_ROWS, _GPU_BINS, _GPU_COMPONENTS = 2**21, 100_000, 64
# Components: two widths separate the time of a row from that of its numbers.
_NARROW, _WIDE = 2, 64
_PLACED_ROWS, _PLACED_COMPONENTS = 2**24, 5
_AT_ONCE, _NUMBERS = 8, 4  # components of rows that atomics add, and of one of these


def row_rates(bench: Bench, profile: Profile) -> dict[str, Measurement]:
    """Return the rates of float32 rows that are summed in uniform bins, by the names of `clhist._core.model.times`."""
    shrink = 8 if bench.quick else 1
    if profile.kind == "cpu":
        rows = _CPU_ROWS // shrink
        narrow, wide, updated = (
            min(sum(run) for run in _stages(bench, rows, _CPU_BINS, d, is_element=True, update=update)) * 1e9 / rows
            for d, update in ((_NARROW, "gather"), (_WIDE, "gather"), (_WIDE, "private"))
        )
        # Noise may hide the difference of both widths: the bounds keep rates finite and positive.
        added = 4 * (_WIDE - _NARROW) / max(1e-3, wide - narrow)
        finding = 1 / max(1e-2, narrow - 4 * _NARROW / added)
        method = f"{rows} rows of {_NARROW} and {_WIDE} components into {_CPU_BINS} uniform bins, the best run"
        return {
            ROWS_FOUND: Measurement(finding, "G/s", 0.0, method),
            ROWS_ADDED: Measurement(added, "GB/s", 0.0, method),
            ROWS_UPDATED: Measurement(_WIDE / updated, "G/s", 0.0, method),
        }
    bins, measured = _GPU_BINS // shrink, {}

    def note(name: str, unit: str, samples: list[float], rows: int, components: int) -> None:
        method = f"{rows} rows of {components} components into {bins} uniform bins"
        measured[name] = Measurement.median(samples, unit, method)

    rows, components = _PLACED_ROWS // shrink, _PLACED_COMPONENTS
    runs = _stages(bench, rows, bins, components, is_element=False)
    note(ROWS_PLACED, "G/s", [(rows + bins) / before * 1e-9 for before, _ in runs], rows, components)
    rows, components = _GPU_ROWS // shrink, _GPU_COMPONENTS
    runs = _stages(bench, rows, bins, components, is_element=False)
    note(ROWS_GATHERED, "GB/s", [4 * components * (rows + bins) / last * 1e-9 for _, last in runs], rows, components)
    if vector_atomic("add", np.dtype(np.float32), profile.features or ()):
        # With these rates the plan takes atomics of several numbers, whatever else is faster.
        preferred = trust(replace(profile, rates={ROWS_AT_ONCE: inf, BANDWIDTH: 1.0, LAUNCH: 1.0}))
        with profile_context(preferred):
            runs = _stages(bench, rows, bins, _AT_ONCE, is_element=False, update=None)
        note(ROWS_AT_ONCE, "G/s", [rows * _AT_ONCE / _NUMBERS / last * 1e-9 for _, last in runs], rows, _AT_ONCE)
    return measured


def _stages(
    bench: Bench, rows: int, bins: int, components: int, *, is_element: bool, update: str | None = "gather"
) -> list[tuple[float, float]]:
    """Return the seconds before the kernels that write results, and of these, of each run."""
    random = np.random.default_rng(1)
    operator = operators.add(np.float32)
    spec = ScatterSpec(operator, np.dtype(np.int32), (operator.dtype,), components, is_element)
    indices = cl_array.to_device(bench.queue, random.integers(0, bins, rows, dtype=np.int32))
    values = cl_array.to_device(bench.queue, np.ones((rows, components), np.float32))
    call = call_of((bins, components), {"update": update})
    call.size, call.queue = elements(spec, indices), bench.queue
    engine = scatter_engine(bench.context, spec)
    runs = []
    for _ in range(bench.runs + 1):
        outcome = engine.run(arguments_of(spec, indices, (values,), bins), call)
        bench.queue.finish()
        seconds = {
            stage: sum(1e-9 * (event.profile.end - event.profile.start) for event in events)
            for stage, events in outcome.events.items()
        }
        last = seconds.pop("combine")
        runs.append((sum(seconds.values()), last))
    # The first run compiles.
    return runs[1:]
