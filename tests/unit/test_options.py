"""The options of a call: those of the planner, of calls, and of what type checkers see are the same."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field, fields, replace
from itertools import product
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from clhist import operators, stats
from clhist._core.devices.profile import Profile, named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model.problem import CHOICES, FREE, NUMBERS, PLACES, Choices, Histogram, Problem, Rows
from clhist._core.model.shared import STRATEGIES
from clhist._core.model.sweeps import plan_sweeps
from clhist._core.model.updates import FORCEABLE
from clhist._core.runtime.call import Call, call_of
from clhist._core.runtime.row_means import are_row_means
from clhist.accumulator import Accumulator
from clhist.groupby import GroupBy
from clhist.kernel import HistogramKernel
from clhist.operators.names import NAMES
from clhist.operators.recognition import recognise
from clhist.reduce import reduce_by_index
from clhist.statistics.table import BINNED, STATISTICS, TABLE
from clhist.typing import (
    BinName,
    CallOptions,
    GroupName,
    KernelOptions,
    OperatorName,
    OperatorText,
    PlanChoices,
    StreamChoices,
)

OF_KERNELS = {"return_event", "reproducible", "max_abs"}  # which no call of an engine has


def test_type_checkers_see_the_options_of_calls():
    parameters = inspect.signature(HistogramKernel.__call__).parameters.keys() - {"self", "args", "num_bins"}
    for actual, typed in ((parameters, KernelOptions), ({*CHOICES}, PlanChoices)):
        different = (actual ^ typed.__annotations__.keys()) - {"return_event"}
        assert not different, f"clhist/option_types.py or typing.py: {typed.__name__} differs by {different}"
    assert set(CHOICES) < StreamChoices.__annotations__.keys() < parameters
    assert set(CHOICES) < CallOptions.__annotations__.keys() <= parameters


def test_type_checkers_see_the_names_of_operators_and_statistics():
    assert set(get_args(OperatorName)) == set(NAMES)
    assert set(get_args(BinName)) == set(BINNED)
    assert set(get_args(GroupName)) == {name for name in TABLE if not TABLE[name].takes}
    for text in get_args(OperatorText):
        assert any(recognise(text, np.dtype(dtype)) for dtype in ("i4", "f4"))


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (HistogramKernel.__call__, KernelOptions.__annotations__),
        (reduce_by_index, CallOptions.__annotations__),
        (Accumulator, StreamChoices.__annotations__),
        (GroupBy.agg, STATISTICS),
        (stats.binned_statistic_dd, BINNED),
    ],
)
def test_docstrings_name_each_option_and_statistic(function, names):
    lacking = [name for name in names if not re.search(rf"\b{name}\b", function.__doc__)]
    assert not lacking, f"{function.__qualname__}: its docstring lacks {lacking}"


def test_each_statistic_is_a_method_of_groups():
    lacking = [name for name in STATISTICS if not hasattr(GroupBy, name)]
    assert not lacking, f"clhist/grouped/methods.py lacks {lacking}"


@pytest.mark.parametrize("name", sorted(KernelOptions.__annotations__.keys() - OF_KERNELS))
def test_a_call_takes_each_option(name):
    value: Any = 4 if name in NUMBERS else {"wait_for": (), "allocator": bytearray}.get(name, object())
    call = call_of(9, {name: value})
    expected = Choices(**{name: value}) if name in CHOICES else FREE
    assert call.choices == expected
    assert name in CHOICES or getattr(call, name) is value


@pytest.mark.parametrize("name", ["num_bins", "choices", "largest", "partial", "num_histogram"])
def test_a_call_takes_no_other(name):
    with pytest.raises(TypeError, match=f"^{name}: expected one of allocator, "):
        call_of(9, {name: 1})
    assert call_of(9, {}) == Call(9)


@dataclass(frozen=True)
class MoreChoices(Choices):
    """With an option that every strategy heeds, and one that says how many copies there are."""

    ahead: int | None = field(default=None, metadata={"forces": None})
    rows: int | None = field(default=None, metadata={"forces": "copies"})


XEON = next(each for each in load_profiles() if each.key == "intel-xeon-amx")
PROFILES = (
    replace(named_profile("nvidia-h200", load_profiles()), features=frozenset({"fp64", "int64_base_atomics"})),
    Profile("Xeon", "cpu", 32768, 2**20, 64, 8, 1, {}, rates=XEON.rates),
)
INT, TWO = operators.add(np.int32), operators.argmin(np.int64, np.int64)
BINS = (10, 100_000, 400_000, 3_000_000, 40_000_000)


def plans(choices):
    """Return plans of all strategies, if nothing is forced."""
    found = []
    for profile, (operator, value), bins, size, race_factor, rows in product(
        PROFILES, ((INT, "1"), (TWO, None)), BINS, (10**5, 10**6, 10**8), (1, 1e6), (None, 5000)
    ):
        histogram = Histogram(operator, bins, value=value)
        problem = Problem((histogram,), size, num_histograms=rows, race_factor=race_factor, choices=choices)
        found += plan_sweeps(problem, profile)
    for profile in PROFILES:
        vectors = Problem((Histogram(INT, 10**6),), 10**7, choices=choices, rows=Rows(64, is_element=False))
        found += plan_sweeps(vectors, profile)
    return found


def test_an_option_that_all_strategies_heed_changes_no_plan():
    expected = plans(FREE)
    missing = set(STRATEGIES) - {each.strategy for each in expected}
    assert not missing, f"no problem of plans() leads to {missing}: add one, or leave out what only a choice forces"
    assert plans(MoreChoices(ahead=4)) == expected
    free_alone = {each.strategy for each in expected} - {each.strategy for each in plans(MoreChoices(rows=4))}
    assert free_alone == {"packed", "partitioned", "rows", "sort"}
    spec = SimpleNamespace(vector=2, by_rows=True, values="f4", operator=operators.mean(np.float32))
    leaves = {choices: are_row_means(spec, Call(9, choices=choices)) for choices in (FREE, MoreChoices(ahead=4))}
    assert all(leaves.values())
    assert not are_row_means(spec, Call(9, choices=MoreChoices(rows=4)))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_forced_memory_or_update_is_that_of_the_plan_or_refused(profile):
    """Whatever else is asked for: a strategy that takes the call first must not drop a choice."""
    forced = product(PLACES, (None, *FORCEABLE))
    for (memory, update), (operator, value), bins, size, number in product(
        forced, ((INT, "1"), (TWO, None)), (10, 100_000), (10**3, 10**7), (None, 3, 50)
    ):
        choices = Choices(memory=memory, update=update)
        problem = Problem((Histogram(operator, bins, value=value),), size, num_histograms=number, choices=choices)
        try:
            (plan,) = plan_sweeps(problem, profile)
        except (ValueError, MemoryError):
            continue
        asked = f"{choices}, num_histograms={number}, {bins} bins, {size} elements"
        assert plan.choices["memory"] == memory, f"the {plan.strategy} plan drops the memory of {asked}"
        assert update in (None, plan.update), f"the {plan.strategy} plan drops the update of {asked}"
        # An update without atomics is wrong in a copy that work-items share.
        assert plan.update != "private" or plan.cooperation == 1, f"work-items share private copies: {asked}"


def test_choices_without_those_that_force_other_things():
    choices = MoreChoices(update="cas", passes=2, pass_order="in turn", ahead=4, rows=3)
    assert choices.forced == {"update", "passes", "copies"}
    assert choices.only("passes") == MoreChoices(passes=2, pass_order="in turn", ahead=4)
    assert choices.only() == MoreChoices(ahead=4)
    assert not choices.only().forced
    assert all("forces" in each.metadata for each in fields(Choices)), "each option says what it forces"
