"""When a plan sorts: few of as many bins as elements, each with a lock that many wait for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from click.testing import CliRunner
from plans import plan

from clhist import Operator, Profile, operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.devices.vendors import ALL_FEATURES
from clhist._core.model.problem import Choices, Histogram, Problem
from clhist._core.model.sort import MOST_SORTED_PAIRS, sort_bytes
from clhist._core.model.sweeps import plan_sweeps
from clhist._core.model.times import BANDWIDTH, LAUNCH
from clhist.cli.main import main

SUM = operators.add(np.int32)
ARGMIN = operators.argmin(np.int64, np.int64)
H200 = named_profile("nvidia-h200", load_profiles())
CPU = Profile("processor", "cpu", 32768, 2**20, 64, 7, 1, {})


def contended(**changes):
    """Return a plan of locks on an H200 where all elements meet in one bin of a million.

    Two pairs of each element, which cannot be partitioned.
    """
    given = {
        "num_elements": 10**6,
        "num_bins": 10**6,
        "profile": H200,
        "local_update": "lock",
        "global_update": "lock",
        "bin_bytes": 16,
        "race_factor": 1e6,
        "memory_budget": 2**36,
        "max_pairs": 2,
    }
    return plan(**(given | changes))


def test_sorted_where_many_wait_for_few_locks():
    found = contended()
    assert (found.update, found.memory, found.copies, found.passes, found.cooperation) == ("sort", "global", 1, 1, 1)
    steps = {step.symbol: step.value for step in found.steps}
    assert steps["X"] == H200.hardware_threads
    assert steps["t_lock"] == pytest.approx(8000)  # ms: two million times 4 us, one after the other
    launches, rates = 15, H200.rates  # clear, pairs, three digits and a scan of three kernels each, combine
    moved = 2e6 * (3 * 20 / 0.2 + (28 + 80) / 0.85) + 1e6 * 4 / 0.85 + 3 * 16e6
    seconds = moved / rates[BANDWIDTH] * 1e-9 + launches * rates[LAUNCH] * 1e-6
    assert steps["launches"] == launches
    assert steps["t_sort"] == pytest.approx(1e3 * seconds)
    assert found.seconds == pytest.approx(seconds)
    assert steps["pairs"] == 2 * 10**6
    assert steps["bits"] == 20
    assert steps["bytes"] == sort_bytes(2 * 10**6, 10**6, 16) == 2 * 10**6 * (20 + 16) + 10**6 * 16
    assert "sort updates in global memory" in str(found)


@pytest.mark.parametrize(
    "changes",
    [
        {"race_factor": 1.0},
        {"race_factor": 10.0},
        {"num_elements": 10, "race_factor": 1e6},
        {"global_update": "cas"},
        {"global_update": "native"},
        {"max_pairs": None},
        {"memory_budget": 5 * 10**7},
        {"bin_bytes": 68},
        {"num_elements": MOST_SORTED_PAIRS + 1},
        {"num_elements": MOST_SORTED_PAIRS // 3, "max_pairs": 4},
        {"num_histograms": 1},
        {"num_bins": (10**6, 10**6), "bin_bytes": (16, 16), "race_factor": 2e6},
        {"profile": CPU},
        {"choices": Choices(update="lock")},
        {"choices": Choices(memory="global")},
        {"choices": Choices(copies=1)},
        {"choices": Choices(passes=1)},
        {"choices": Choices(work_group_size=256)},
        {"choices": Choices(locks=1024)},
    ],
    ids=str,
)
def test_otherwise_not(changes):
    found = contended(**changes)
    assert found.update != "sort"
    assert "bits" not in [step.symbol for step in found.steps]


def test_sorted_where_no_copy_with_its_locks_fits():
    copy = 10**6 * 20
    needed = sort_bytes(100_000, 10**6, 16)
    assert needed < copy
    given = {"num_elements": 50_000, "race_factor": 1.0}
    assert contended(**given, memory_budget=copy).update == "lock"
    found = contended(**given, memory_budget=needed)
    assert found.update == "sort"
    assert "not even one copy with its locks fits the memory budget" in " ".join(step.formula for step in found.steps)
    with pytest.raises(MemoryError, match=r"^memory_budget: "):
        contended(**given, memory_budget=needed - 1)
    for changes in (
        {"memory_budget": needed, "max_pairs": None},
        {"memory_budget": needed, "choices": Choices(memory="global")},
    ):
        with pytest.raises(MemoryError, match=r"^memory_budget: one copy of 1000000 bins takes 20000000 bytes, got"):
            contended(**given, **changes)


def sweeps(*given, bins, emits=2, race_factor=1e6, **forced):
    histograms = tuple(
        Histogram(operator, bins, f"_{k}" if len(given) > 1 else "", emits) for k, operator in enumerate(given)
    )
    problem = Problem(histograms, 10**6, race_factor=race_factor, choices=Choices(**forced), memory_budget=2**36)
    return plan_sweeps(problem, dataclasses.replace(H200, features=ALL_FEATURES - {"amd_builtins"}))


def test_an_output_that_is_sorted_is_a_sweep_of_its_own():
    counts, least, more = sweeps(SUM, ARGMIN, ARGMIN, bins=10**6)
    assert (counts.update, least.update, more.update) == ("native", "sort", "sort")
    assert [sweep.output_indices for sweep in (counts, least, more)] == [(0,), (1,), (2,)]
    assert least.outputs[0].updates == ("sort",)
    both = sweeps(ARGMIN, ARGMIN, bins=10**6, race_factor=1.0)
    assert [sweep.update for sweep in both] == ["lock"] * len(both)
    assert [sweep.update for sweep in sweeps(ARGMIN, bins=10**6, emits=None)] == ["lock"]


def test_a_form_with_a_better_update_goes_before_sorting():
    pair = np.dtype([("value", np.int64), ("index", np.int64)])
    own = Operator(pair, "a.value < b.value ? b : a", (0, 0), "own")
    atomic = Operator(pair, "max(a, b)", 0, accumulator=np.uint64, lift="v.value", finish="(value_t){a, a}")
    assert sweeps(own, bins=10**6)[0].update == "sort"
    lifted = Operator(pair, "a.value < b.value ? b : a", (0, 0), "own", equivalents=atomic)
    assert sweeps(lifted, bins=10**6)[0].update == "native"
    (forced,) = sweeps(lifted, bins=10**6, update="sort")
    assert (forced.update, forced.outputs[0].operator) == ("sort", lifted)


def test_wide_accumulators_are_sorted_on_demand():
    assert sweeps(operators.reproducible_add(np.float64), bins=100, update="sort")[0].update == "sort"


def test_the_plan_is_explained_on_the_command_line():
    given = ["plan", "-n", "1M", "-H", "100M", "--profile", "nvidia-geforce-rtx-2080-ti", "--element-size", "16"]
    (forced, chosen) = (
        CliRunner().invoke(main, [*given, *more], catch_exceptions=False)
        for more in (["--update", "sort"], ["--update", "lock", "--race-factor", "1e8"])
    )
    for result in (forced, chosen):
        assert result.exit_code == 0
        assert "In global memory (sorted pairs)" in result.output
        assert "sort (pairs are sorted by bin and scanned, Listing 4 of" in result.output
        assert "GiB (1,636,000,000 B) for the pairs and one copy" in result.output
    assert "t_lock" not in forced.output
    assert "t_lock" in chosen.output
