"""Plans of one launch: where a second costs more than the other work-groups save."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from eager import eager
from plans import plan
from sources import device

from clhist import Problem, Profile, operators
from clhist._core.model.private import WORK_ITEMS
from clhist._core.model.problem import Choices
from clhist._core.model.sweeps import plan as plan_problem

CPU = replace(eager(device("cpu"), 10.0), hardware_threads=2)
GPU = eager(device("nvidia"), 10.0)  # 256 work-groups of 256, each alone doing an element or a cell in 0.256 us
COUNT = operators.add(np.int32)


def one(size: int, bins: int, profile: Profile = CPU, **more) -> bool:
    choices = Choices(**more.pop("choices", {}))
    found = plan_problem(Problem.of(COUNT, bins, size, choices=choices, **more), profile)
    assert not found.is_one_launch or (found.work_groups, found.launches) == (1, 1)
    return found.is_one_launch


@pytest.mark.parametrize(
    ("size", "bins", "profile", "expected"),
    [
        (0, 10, CPU, False),
        (1, 10, CPU, True),
        (9000, 10, CPU, True),  # half of 18 us, and the cells
        (11_000, 10, CPU, False),
        (9000, 2000, CPU, False),
        (1, 4000, CPU, True),
        (1, 6000, CPU, False),
        (1, 10, GPU, True),
        (256, 30, GPU, True),  # one work-group anyway: cells alone count
        (256, 50, GPU, False),
        (257, 10, GPU, False),
    ],
)
def test_where_it_is_sooner(size, bins, profile, expected):
    choices = {"memory": "local", "update": "native", "copies": 1} if profile is GPU else {}
    assert one(size, bins, profile, choices=choices) == expected


def test_rates_of_other_processors():
    """Rates of two work-items say as much of one of them where there are thirty-two."""
    many = replace(CPU, hardware_threads=32)
    assert not one(4000, 10, many)
    assert one(4000, 10, replace(many, rates={**many.rates, WORK_ITEMS: 2.0}))


@pytest.mark.parametrize(("profile", "bins"), [(device("cpu"), 1)])
def test_without_rates_only_if_nothing_is_lost(profile, bins):
    """One work-group anyway, and a work-item for each bin."""
    group = profile.work_group_size
    choices = {"memory": "local"} if profile.kind == "gpu" else {}
    assert one(group, bins, profile, choices=choices)
    assert not one(group, bins + 1, profile, choices=choices)
    assert not one(2 * group, bins, profile, choices=choices)


@pytest.mark.parametrize(
    "choices",
    [{"update": "private", "copies": 2}, {"passes": 2}, {"memory": "global", "update": "native"}, {"update": "sort"}],
)
def test_what_is_forced_stays(choices):
    found = plan_problem(Problem.of(COUNT, 10, 1000, choices=Choices(**choices)), CPU)
    assert not found.is_one_launch
    assert found.copies == choices.get("copies", found.copies)
    assert found.passes == choices.get("passes", 1)


def test_what_has_two_launches():
    assert not one(100, 10, one_launch=False)
    assert not one(100, 10, num_histograms=5)
    assert not plan(100, (10, 10), CPU, bin_bytes=(4, 4)).is_one_launch


def test_the_plan_says_so():
    found = plan_problem(Problem.of(COUNT, 10, 1000), CPU)
    assert "one work-group of 1, one launch" in str(found)
    steps = {step.symbol: step.value for step in found.steps}
    assert steps["t_launch"] == pytest.approx(10)
    assert steps["t_alone"] == pytest.approx(1 + 2 * 0.01 * found.turns, rel=0.1)
