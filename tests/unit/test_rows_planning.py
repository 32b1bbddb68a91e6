"""Which plan sums of rows take on an H200: rows added by atomics of four floats, gathered, or updated as other bins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clhist import operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.vendors import expected_features
from clhist._core.model.partition import SHARED
from clhist._core.model.problem import Choices, Histogram, Problem, Rows
from clhist._core.model.sweeps import plan_sweeps

H200 = replace(named_profile("nvidia-h200"), features=expected_features("gpu", "NVIDIA H200"))

OLDER = replace(H200, features=H200.features - {"nvidia_ptx:add_float32x4_global"})


def _plan(rows, bins, components, operator=None, profile=H200, **more):
    operator = operator or operators.add(np.float32)
    histogram = Histogram(operator, bins * components)
    problem = Problem((histogram,), rows * components, read_bytes=8, rows=Rows(components, False), **more)
    return plan_sweeps(problem, profile)[0]


def test_narrow_rows_are_added_at_once():
    plan = _plan(10_000_000, 100_000, 4)
    assert (plan.strategy, plan.at_once, plan.again.strategy) == ("rows", 4, "partitioned")
    assert plan.again.outputs == (replace(plan.outputs[0], updates=("native",)),)
    assert "in their place: " in dict(plan.words())["if few bins have many rows"]
    few = _plan(50_000, 4000, 64)
    assert (few.at_once, few.again, few.launches) == (4, None, 2)


@pytest.mark.parametrize(
    "plan",
    [
        _plan(10_000_000, 100_000, 3),  # no multiple of four
        _plan(10_000_000, 100_000, 4, operators.add(np.int32)),
        _plan(10_000_000, 100_000, 4, operators.maximum(np.float32)),
        _plan(10_000_000, 2000, 4),  # too few results, which all want
        _plan(10_000_000, 100_000, 4, race_factor=100),
        _plan(10_000_000, 100_000, 4, profile=OLDER),
        _plan(2_000_000, 100_000, 64),  # which are gathered sooner
    ],
)  # fmt: skip
def test_others_are_not(plan):
    assert not getattr(plan, "at_once", 0)


def test_exact_sums_are_gathered_where_that_is_sooner():
    exact = operators.reproducible_add(np.float32)
    assert _plan(2_000_000, 100_000, 64, exact).in_doubles
    assert _plan(10_000_000, 2000, 4, exact).strategy != "rows"
    assert _plan(2_000_000, 100_000, 64, operators.reproducible_add(np.float32, 10.0)).strategy != "rows"


def test_rows_are_gathered_by_scaled_rates():
    unknown = named_profile("nvidia-geforce-rtx-4090")
    found = _plan(2_000_000, 100_000, 16, profile=unknown)
    assert found.strategy == "rows"
    assert found.seconds is not None


def test_ranges_of_bins_have_room_in_local_memory():
    for profile in ("nvidia-h200", "amd-instinct-mi300x", "intel-arc-a770", "amd-radeon-rx-580"):
        for rows, bins in ((40_000, 10_000), (2_000_000, 100_000), (10_000_000, 8_000_000), (400_000_000, 1000)):
            plan = _plan(rows, bins, 16, profile=named_profile(profile), choices=Choices(update="gather"))
            (split, most_width, carried), local = plan.ranges_of_bins, named_profile(profile).local_memory
            assert split.ranges * split.width >= bins
            assert split.width <= most_width
            assert 4 * (most_width + split.most_pairs + plan.placing_group) < local
            assert split.piece(1)[0] * SHARED <= split.most_pairs
            assert not carried
    # Rows of less than a cache line, of which no cache has so many, are grouped themselves.
    for rows, components, carried in ((10_000_000, 4, 16), (10_000_000, 3, 12), (10_000_000, 5, 0), (1_000_000, 4, 0)):
        plan = _plan(rows, 100_000, components, choices=Choices(update="gather"))
        assert plan.ranges_of_bins.carried_bytes == carried


def test_what_local_memory_has_no_room_for():
    small = replace(named_profile("intel-arc-a770"), local_memory=4096, work_group_size=64)
    for profile, bins, words in (
        (small, 100, "more than 4096 bytes"),
        (named_profile("intel-arc-a770"), 60_000_000, "at most"),
    ):
        with pytest.raises(ValueError, match=f"update: 'gather' .*{words}"):
            _plan(100_000, bins, 16, profile=profile, choices=Choices(update="gather"))
