"""Predicted times: what they are made of, and that the plan is the one of the least."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from click.testing import CliRunner
from plans import plan

from clhist import operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model import times as model_times
from clhist._core.model.problem import Choices
from clhist._core.model.shared import PREDICTED
from clhist._core.model.times import (
    BANDWIDTH,
    CELLS,
    COUNT,
    EVERYWHERE,
    FURTHER_PASS,
    ONE_PASS,
    PACKED,
    PACKED_ASIDE,
    PARTITIONED,
    PASS_ASIDE,
    PASS_DEALT,
    SHORT,
    VALUES,
    rate_name,
)
from clhist._core.model.updates import rate_kind
from clhist.calibration import rates as measure_plans
from clhist.cli.main import main

H200 = named_profile("nvidia-h200", load_profiles())
KIND = "native int32"
RATES = {
    SHORT: 5.0,
    CELLS: 100.0,
    BANDWIDTH: 1000.0,
    VALUES[4]: 400.0,
    VALUES[8]: 100.0,
    rate_name(KIND, ONE_PASS): 100.0,
    rate_name(KIND, FURTHER_PASS): 200.0,
    rate_name(KIND, PARTITIONED): 20.0,
    rate_name(KIND, EVERYWHERE): 10.0,
}
ASIDE = {rate_name(kind, PASS_ASIDE): 400.0 for kind in (KIND, COUNT)}
N = 10**8


pytestmark = pytest.mark.usefixtures("only_measured_rates")


def chosen(bins, size=N, rates=RATES, kind=KIND, **more):
    more = {"max_pairs": 1, **more}
    return plan(size, bins, dataclasses.replace(H200, rates=rates), rate_kinds=((kind,), (kind,)), **more)


def forced(bins, memory, **more):
    return chosen(bins, choices=Choices(memory=memory, **more))


def test_the_time_of_each_way():
    """By hand: elements by the rate of the way, cells of 4 bytes that are filled, and 5 us for each kernel."""
    local = forced(50_000, "local")
    assert local.passes == 1
    assert local.seconds == pytest.approx(1e-3 + local.work_groups * 50_000 / 100e9 + 10e-6)
    local = forced(200_000, "local")
    assert local.passes == 4
    assert local.seconds == pytest.approx(1e-3 + 3 * 0.5e-3 + local.work_groups * 200_000 / 100e9 + 10e-6)
    split = forced(200_000, "partitioned")
    cells = split.partitions * split.bins_per_pass
    assert split.seconds == pytest.approx(5e-3 + N * 4 / 400e9 + cells / 100e9 + 20e-6), "values of 4 bytes besides"
    wide = forced(200_000, "partitioned")
    assert chosen(200_000, choices=Choices(memory="partitioned"), value_bytes=8).seconds == pytest.approx(
        wide.seconds + N * (8 / 100e9 - 4 / 400e9)
    )
    everywhere = forced(200_000, "global", copies=3, passes=2)
    assert everywhere.seconds == pytest.approx(10e-3 + N * 4 / 850e9 + 3 * 200_000 / 100e9 + 15e-6)


def test_passes_side_by_side():
    """The first as in turn; the others by their own rate, but no faster than the cache gives what counts read of it."""
    rates = {**RATES, **ASIDE}
    aside = chosen(200_000, rates=rates, choices=Choices(memory="local"))
    assert (aside.passes, aside.pass_order, aside.work_groups) == (4, "side by side", 33)
    assert aside.seconds == pytest.approx(1e-3 + 3 * 0.25e-3 + 33 * 200_000 / 100e9 + 10e-6)
    wide = chosen(200_000, rates=rates, read_bytes=16, choices=Choices(memory="local"))
    assert wide.seconds == pytest.approx(N * 16 / 850e9 + 3 * 1e-3 + 33 * 200_000 / 100e9 + 10e-6)
    slow = rates | {rate_name(KIND, PASS_ASIDE): 50.0}
    in_turn = chosen(200_000, rates=slow, choices=Choices(memory="local"))
    assert (in_turn.pass_order, in_turn.work_groups) == ("in turn", 132)
    for update, loops, order in (("cas", False, "in turn"), ("lock", False, "in turn"), ("native", True, "in turn")):
        found = chosen(200_000, rates=rates, local_update=update, loops=loops, choices=Choices(memory="local"))
        assert found.pass_order == order, "sums that are loops have a rate of their own"
    dealt = rates | {rate_name(KIND, PASS_DEALT): 300.0}
    found = chosen(200_000, rates=dealt, loops=True, choices=Choices(memory="local"))
    assert (found.pass_order, found.cyclic_passes) == ("side by side", True)
    assert chosen(10**8, rates=rates, choices=Choices(memory="local")).pass_order == "in turn", "too many passes"


def test_counters_of_each_width():
    rates = {**RATES, **ASIDE, **{rate_name(COUNT, name): 100.0 for name in (ONE_PASS, FURTHER_PASS, PARTITIONED)}}
    rates |= {rate_name(COUNT, EVERYWHERE): 10.0, **{rate_name(COUNT, name): 90.0 for name in PACKED.values()}}
    rates |= {rate_name(COUNT, name): 150.0 for name in PACKED_ASIDE.values()}
    for bins, width, passes in ((100_000, 16, 1), (200_000, 8, 1), (400_000, 4, 1), (900_000, 4, 2)):
        found = chosen(bins, rates=rates, counts=True, value_bytes=0, choices=Choices(counter_bits=width))
        assert (found.counter_bits, found.passes) == (width, passes)
        cells, kernels = found.work_groups * -(-bins * width // 32), 1 + found.robust.kernels
        each = N / 90e9 + (passes - 1) * N / 150e9
        assert found.seconds == pytest.approx(each + cells / 100e9 + kernels * 5e-6, rel=1e-3)


def test_reading_is_the_least_that_an_element_takes():
    assert chosen(1000, read_bytes=34).seconds == pytest.approx(4e-3 + chosen(1000).seconds - 1e-3)


def test_elements_of_several_pairs():
    one, three = (chosen(1000, max_pairs=emits) for emits in (1, 3))
    assert three.seconds == pytest.approx(one.seconds + 2e-3)
    assert chosen(1000, max_pairs=None).seconds is None, "a loop whose length is not known"


def test_the_least_time_is_taken():
    for bins in (100, 50_000, 100_000, 200_000, 1_000_000, 20_000_000):
        for size in (1000, 10**6, N):
            found = chosen(bins, size)
            times = [step.value for step in found.steps if step.symbol in PREDICTED]
            saved = (found.kernels - found.launches) * 5
            assert saved == (5 if (bins, size) == (100, 1000) else 0), "one work-group anyway, and few bins"
            assert found.seconds * 1e6 == pytest.approx(min(times) - saved)
            assert len(times) == 3


@pytest.mark.parametrize(
    ("slow", "memory", "partitions"),
    [(PARTITIONED, "global", False), (EVERYWHERE, "local", True), (None, "local", True)],
)
def test_what_is_slow_is_avoided(slow, memory, partitions):
    rates = RATES | ({rate_name(KIND, slow): 0.01} if slow else {})
    found = chosen(2_000_000, rates=rates)
    assert (found.memory, found.strategy == "partitioned") == (memory, partitions)


@pytest.mark.parametrize(
    ("rate", "size", "strategy"), [(10.0, N, "partitioned"), (7.0, N, "global"), (10.0, 10**6, "global")]
)
def test_global_memory_must_be_much_faster(rate, size, strategy):
    """It is ten times slower than predicted where bins are hot: 10.5 ms against 11.1 and 15.4 of uniform ones."""
    found = chosen(2_000_000, size, rates=RATES | {rate_name(KIND, PARTITIONED): rate})
    assert found.strategy == strategy


@pytest.mark.parametrize(
    "missing",
    [SHORT, CELLS, BANDWIDTH, VALUES[4], *(rate_name(KIND, way) for way in (ONE_PASS, PARTITIONED, EVERYWHERE))],
)
def test_rules_where_a_rate_is_missing(missing):
    rates = {name: value for name, value in {**RATES, **ASIDE}.items() if name != missing}
    for bins in (1000, 1_000_000):
        found, by_rules = chosen(bins, rates=rates), chosen(bins, rates={})
        assert dataclasses.replace(found, seconds=None, steps=()) == dataclasses.replace(by_rules, steps=())
        assert by_rules.seconds is None
    assert chosen(1000, kind="").seconds is None


def test_choices_are_obeyed():
    assert forced(1000, "global").memory == "global"
    assert chosen(1_000_000, choices=Choices(copies=1)).strategy != "partitioned"
    assert chosen(1_000_000, choices=Choices(copies=1)).steps[-1].symbol not in PREDICTED


@pytest.mark.parametrize(
    "more",
    [
        {"choices": Choices(update="private", memory="local")},
        {"num_histograms": 10},
    ],
)
def test_nothing_is_predicted_of_what_was_not_measured(more):
    assert chosen(100).seconds is not None
    assert chosen(100, **more).seconds is None


def test_kinds():
    kinds = {
        ("native", np.int32): "native int32",
        ("native", np.uint32): "native int32",
        ("native", np.float32): "native float32",
        ("native", np.float64): "native float64",
        ("native", np.int64): "native int64",
        ("cas", np.float32): "cas 32",
        ("cas", np.float64): "cas 64",
        ("lock", np.float64): "lock",
        ("private", np.int32): "",
    }
    for (update, dtype), kind in kinds.items():
        assert rate_kind(operators.add(dtype).parts[0], update) == kind
    sums = [operators.reproducible_add(*of) for of in ((np.float64,), (np.float32,), (np.float32, 1000.0))]
    exact = {rate_kind(operator.narrow[0].parts[0], "carry") for operator in sums}
    measured = set(measure_plans.KINDS) - {model_times.COUNT}
    assert set(kinds.values()) - {""} | exact == measured


def test_the_shipped_rates_are_used():
    """Times of 50 million elements on an H200, within a third. Note [Rates of the H200], docs/decisions/0004."""
    for bins, microseconds, more in (
        (2041, 62, {"counts": True, "value_bytes": 0}),
        (49_145, 80, {"counts": True, "value_bytes": 0}),
        (98_290, 99, {"counts": True, "value_bytes": 0}),
        (300_000, 110, {"counts": True, "value_bytes": 0}),
        (1_572_863, 271, {"counts": True, "value_bytes": 0}),
    ):
        found = plan(50_000_000, bins, H200, rate_kinds=((KIND,), (KIND,)), max_pairs=1, **more)
        assert found.seconds * 1e6 == pytest.approx(microseconds, rel=1 / 3)
    result = CliRunner().invoke(main, ["plan", "-n", "50M", "-H", "196607", "--counts", "--profile", "nvidia-h200"])
    assert result.exit_code == 0, result.output
    assert "Predicted, in µs" in result.output
    assert "t_partitioned" in result.output
    assert all(f"t_{bits}bit" in result.output for bits in (16, 8, 4))
    assert "8 bits, 4 to a word" in result.output
    assert "counted again" in result.output
    assert "predicted time" in result.output
