"""One chooser for all devices: rates that are measured or scaled, and what holds of plans over all profiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from covering import covering

from clhist import operators
from clhist._core.devices.profile import Report, merge, named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.devices.vendors import expected_features
from clhist._core.model import scaling
from clhist._core.model.global_memory import MOST_PASSES
from clhist._core.model.plan import Plan
from clhist._core.model.problem import Problem
from clhist._core.model.scaling import rates_of
from clhist._core.model.sweeps import plan_sweeps
from clhist._core.model.times import BANDWIDTH, LAUNCH, SHORT

OPERATORS = {
    "count": (operators.add(np.int32), "1"),
    "sum of float32": (operators.add(np.float32), None),
    "product of int64": (operators.multiply(np.int64), None),
    "argmax of int64": (operators.argmax(np.int64, np.int64), None),
    "mean of float32": (operators.mean(np.float32), None),
}
ELEMENTS = (10**3, 10**5, 10**6, 10**7, 10**9)
BINS = (16, 2048, 20_000, 100_000, 10**6, 10**7, 10**8)
FILES = [file for file in load_profiles("gpu") if file.level == "device"]
H200 = named_profile("nvidia-h200")


def of_device(profile):
    return replace(profile, features=expected_features(profile.kind, profile.name))


@cache
def planned(profile, name: str, elements: int, bins: int) -> Plan:
    operator, value = OPERATORS[name]
    read = 4 + (0 if value else operator.dtype.itemsize)
    (found,) = plan_sweeps(Problem.of(operator, bins, elements, value=value, read_bytes=read), profile)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.key)
def test_passes_over_global_memory(file):
    """Few read the input again, and none whose elements touch no line of the cache twice."""
    profile = of_device(named_profile(file.key))
    for name, elements, bins in covering(OPERATORS, ELEMENTS, BINS, seed=file.key):
        plan = planned(profile, name, elements, bins)
        if plan.strategy == "global":
            assert plan.passes <= MOST_PASSES
            assert plan.passes == 1 or elements * profile.l2_line > 4 * bins, (name, elements, bins)


def test_borrowed_rates_choose_nearly_as_measured_ones():
    """An H200 without its own rates has those of an H100, by its bandwidth."""
    own, borrowed = of_device(H200), of_device(replace(H200, rates={}))
    different = 0
    for name in OPERATORS:
        for elements in ELEMENTS:
            for bins in BINS:
                one, other = (planned(profile, name, elements, bins) for profile in (own, borrowed))
                different += (one.strategy, one.passes) != (other.strategy, other.passes)
    assert different <= 0.05 * len(OPERATORS) * len(ELEMENTS) * len(BINS)


@pytest.mark.parametrize("bins", [256, 2041, 12_281])
def test_exact_float64_sums_are_partitioned(bins):
    """Measured on an H200, 20 million: 399 µs for 467, 402 for 480 and 579 for 907 (decision 0004)."""
    problem = Problem.of(operators.reproducible_add(np.float64), bins, 20_000_000, read_bytes=12)
    (found,) = plan_sweeps(problem, of_device(H200))
    assert found.strategy == "partitioned"
    assert found.seconds == pytest.approx({256: 399e-6, 2041: 402e-6, 12_281: 579e-6}[bins], rel=1 / 3)


def test_every_profile_has_rates():
    # Which arrays the host computes is not scaled.
    of_plans = {name for name in scaling._measured()[0].rates if not name.endswith(", least")}
    for file in FILES:
        profile = named_profile(file.key)
        rates, source = rates_of(profile)
        assert rates.keys() >= of_plans - {"local memory as an argument"}
        if file.key not in scaling.MEASURED:
            assert source.startswith("scaled from NVIDIA H")
        assert file.data_sheet, file.path
    for kind in ("gpu", "cpu"):
        report = Report("Quux 3000", "Quux", kind, 20, 1024, 32768, 2**21, 64)
        rates, source = rates_of(merge(report, load_profiles(kind)))
        assert rates
        assert "scaled" in source or "not measured on this device" in source


def test_how_rates_are_scaled():
    half = replace(
        H200, name="NVIDIA H50", rates={}, data_sheet={"compute_units": 66, "clock": 1980, "bandwidth": 1675}
    )
    rates, source = rates_of(half)
    h100 = named_profile("nvidia-h100").rates
    assert source.startswith("scaled from NVIDIA H100 by 0.5 (bandwidth) and 0.5")
    assert rates[BANDWIDTH] == pytest.approx(h100[BANDWIDTH] / 2)
    assert rates["lock, one pass in local memory"] == pytest.approx(h100["lock, one pass in local memory"] / 2)
    assert rates[SHORT] == h100[SHORT]
    assert rates_of(replace(half, name="Radeon"))[0][LAUNCH] == pytest.approx(h100[LAUNCH])
    own = rates_of(replace(half, rates={BANDWIDTH: 3088.0}))
    assert own.values["count, in global memory"] == pytest.approx(h100["count, in global memory"] / 2)
    assert own.values[BANDWIDTH] == 3088.0
