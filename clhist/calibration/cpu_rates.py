"""Measuring what plans of CPUs are chosen by: how fast private copies of so many cells are updated."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clhist import operators
from clhist._core.devices.profile import Profile
from clhist._core.model.private import GRID, KINDS, WORK_ITEMS, cells_name, tiles_name
from clhist._core.model.times import CELLS
from clhist.calibration.measure import MIB, Bench, Measurement
from clhist.kernel import HistogramKernel
from clhist.operators.operator import Operator

_FEW_ELEMENTS = 1024  # take no time beside filling the cells
_RECORD = np.dtype([("key", np.int64), ("position", np.int64)])


def _measured(features: frozenset[str]) -> dict[str, tuple[Operator, str]]:
    """Return for each of `KINDS` an operator, and the C of its values."""
    # Kinds are told apart by the bytes of a cell, so that int64 can stand for float64.
    eight = np.float64 if "fp64" in features else np.int64
    combine = "b.key > a.key || (b.key == a.key && b.position < a.position) ? b : a"
    record = Operator(_RECORD, combine, (0, 0), verified=True)
    measured = (
        (operators.add(np.int32), "1"),
        (operators.add(np.float32), "(float)values[i]"),
        (operators.add(eight), "(value_t)values[i]"),
        (record, "((value_t){values[i], i})"),
    )
    return dict(zip(KINDS, measured, strict=True))


def cpu_rates(bench: Bench, profile: Profile) -> dict[str, Measurement]:
    """Return the rates of private copies, by the names of `clhist._core.model.private`, for uniform bins.

    Each is that of the best run: what else a processor has to do slows the others.

    Parameters
    ----------
    bench : Bench
        The device: a CPU.
    profile : Profile
        What is planned with; without rates.
    """
    size = (MIB if bench.quick else 4 * MIB) + 1
    random = np.random.default_rng(1)
    values = cl_array.to_device(bench.queue, random.integers(0, 1000, size, dtype=np.int32))
    inputs = {cells: cl_array.to_device(bench.queue, random.integers(0, cells, size, dtype=np.int32)) for cells in GRID}
    items = float(profile.hardware_threads)
    rates = {WORK_ITEMS: Measurement(items, "work-items", 0.0, "of which the rates of private copies are")}
    for kind, (operator, value) in _measured(profile.features or frozenset()).items():
        kernel = HistogramKernel(
            bench.context,
            operator,
            arguments="const int *bins, const int *values",
            map=f"EMIT(bins[i], {value})",
            profile=profile,
        )
        timed = partial(kernel.timed, queue=bench.queue, update="private")
        direct = "a copy for each work-item"
        # First the rate of filling cells, whose time the other rates leave out.
        if CELLS not in rates:
            own = partial(timed, copies=profile.hardware_threads)
            rates[CELLS] = _filling(bench, profile, own, inputs[GRID[-1]], values)
        ways: list[tuple[str, int, str, dict[str, Any]]] = [
            (cells_name(kind, cells), cells, direct, {"copies": profile.hardware_threads}) for cells in GRID
        ]
        ways.append((tiles_name(kind), GRID[-1], "pairs split by tiles", {"memory": "partitioned"}))
        for name, cells, how, choices in ways:
            copies = choices.get("copies", 1)
            filling = copies * cells * operator.bin_bytes / 4 / rates[CELLS].value
            every = [timed(inputs[cells], values, num_bins=cells, **choices)[1].values() for _ in range(bench.runs)]
            # The time of filling is an estimate: a tenth of the run remains in any case.
            samples = [size / max(run - filling, run / 10) for run in (sum(stages) * 1e9 for stages in every)]
            method = f"{size} elements, {cells} uniform bins, {how}"
            rates[name] = Measurement.largest(samples, "G/s", method)
    return rates


def _filling(bench: Bench, profile: Profile, timed, bins: cl_array.Array, values: cl_array.Array) -> Measurement:
    """Return the rate at which the cells of all work-items are initialised and combined."""
    cells = profile.hardware_threads * GRID[-1]
    runs = [
        sum(timed(bins[:_FEW_ELEMENTS], values, num_bins=GRID[-1], size=_FEW_ELEMENTS)[1].values()) * 1e9
        for _ in range(bench.runs)
    ]
    samples = [cells / run for run in runs]
    method = f"a copy of {GRID[-1]} bins of 4 bytes for each of {profile.hardware_threads} work-items"
    return Measurement.largest(samples, "G/s", method)
