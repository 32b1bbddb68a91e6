"""Rates of plans as they are measured on a device."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import clhist
from clhist import operators
from clhist._core.model import times as model_times
from clhist._core.model.times import BANDWIDTH, CELLS, SHORT, VALUES
from clhist.calibration import rates as measure_plans
from clhist.calibration.measure import Bench

pytestmark = pytest.mark.usefixtures("without_optimizer")

KIND = "native int32"


def test_what_is_measured(gpu_like, queue, monkeypatch):
    some = {kind: measure_plans.KINDS[kind] for kind in (model_times.COUNT, KIND, "cas 32", "lock")}
    monkeypatch.setattr(measure_plans, "KINDS", some)  # the others differ in types alone
    rates = measure_plans.plan_rates(Bench.of(queue.device, quick=True), gpu_like, num_elements=30_000)
    assert {SHORT, "count, partitioned", "cas 32, in global memory", "lock, in global memory"} <= rates.keys()
    assert all(rate.value > 0 for rate in rates.values())
    known = {name: rate.value for name, rate in rates.items()} | {BANDWIDTH: 10.0, CELLS: 1.0, VALUES[4]: 1.0}
    profile = dataclasses.replace(gpu_like, rates=known)
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=profile
    )
    found = kernel.plan(10**6, 10**5)
    assert found.seconds > 0
    assert "predicted" in str(found)


def test_what_cannot_be_measured_is_said(gpu_like, queue, monkeypatch):
    """A rate that silently was not there had kept locks from being partitioned."""

    def refuse(self, *arrays, memory=None, **more):
        if memory == "partitioned":
            raise clhist.BuildError("too much local memory")
        return timed(self, *arrays, memory=memory, **more)

    timed = clhist.HistogramKernel.timed
    monkeypatch.setattr(clhist.HistogramKernel, "timed", refuse)
    monkeypatch.setattr(measure_plans, "KINDS", {"lock": measure_plans.KINDS["lock"]})
    words = r"^not measured: lock, 400000 bins, memory partitioned: too much local memory$"
    with pytest.warns(RuntimeWarning, match=words):
        rates = measure_plans.plan_rates(Bench.of(queue.device, quick=True), gpu_like, num_elements=30_000)
    assert "lock, partitioned" not in rates
    assert "lock, in global memory" in rates
