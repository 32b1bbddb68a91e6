"""Plans of private copies on CPUs: how many each work-item updates in turn, from measured rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clhist import Problem, Profile, operators
from clhist._core.devices.profile import Report, merge
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model.private import COUNT, GRID, KINDS, PrivateRates, cells_name, kind_of
from clhist._core.model.problem import Choices
from clhist._core.model.sweeps import plan
from clhist._core.model.times import CELLS
from clhist._core.opencl.device import processor_aliases

CPU = Profile("cpu", "cpu", 32768, 2**20, 64, 2, 1, {}, features=frozenset({"fp64"}))


def rated(*rates, filling=1.0):
    """A CPU with these rates for the cells of `GRID`."""
    each = {cells_name(kind, cells): rate for kind in KINDS for cells, rate in zip(GRID, rates, strict=True)}
    return replace(CPU, rates=each | {CELLS: filling})


#             8    64   512  4096 32k  256k 2M cells
LIKE_INTEL = rated(0.6, 0.7, 1.4, 1.4, 1.1, 0.9, 0.2)
LEVEL = rated(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
SMALL_IS_FAST = rated(2.0, 1.0, 0.9, 0.8, 0.5, 0.3, 0.1)


def turns(profile, bins, size=20_000_000, operator=None, **more):
    return plan(Problem.of(operator or operators.add(np.int32), bins, size, **more), profile).turns


@pytest.mark.parametrize(
    ("bins", "expected"), [(1, 8), (8, 8), (64, 8), (300, 8), (512, 8), (2041, 2), (30_000, 1), (150_000, 1)]
)
def test_few_bins_get_several_copies(bins, expected):
    assert turns(LIKE_INTEL, bins) == expected


def test_where_uniform_bins_lose_nothing_skewed_ones_decide():
    assert turns(LEVEL, 64) == 8
    assert turns(LEVEL, 1_000_000) == 1, "cells are to be filled, too"
    assert turns(SMALL_IS_FAST, 8) == 1


def test_few_elements_are_not_worth_many_cells():
    assert turns(LIKE_INTEL, 300, size=2000) == 1
    assert turns(LIKE_INTEL, 64, size=100_000) == 8


def test_without_rates_there_is_one_copy():
    assert turns(CPU, 64) == 1
    missing = {name: rate for name, rate in LIKE_INTEL.rates.items() if name != CELLS}
    assert turns(replace(CPU, rates=missing), 64) == 1


def test_only_what_one_pair_an_element_fills_takes_turns():
    assert turns(LIKE_INTEL, 64, max_pairs=3) == 1
    assert turns(LIKE_INTEL, 64, max_pairs=None) == 1
    both = Problem.of(operators.add(np.int32), 64, 20_000_000)
    both = replace(both, histograms=(both.histograms[0], replace(both.histograms[0], suffix="_b")))
    assert plan(both, LIKE_INTEL).turns == 1
    gpu = replace(LIKE_INTEL, kind="gpu", work_group_size=64)
    assert turns(gpu, 64, choices=Choices(update="private", memory="global")) == 1


def test_the_plan_says_where_its_numbers_come_from():
    profile = replace(LIKE_INTEL, sources={"rates": "devices/some.toml: rates of Some CPU"})
    chosen = plan(Problem.of(operators.add(np.int32), 64, 20_000_000), profile)
    (step,) = [step for step in chosen.steps if step.symbol == "K"]
    assert (step.value, step.formula) == (8, "copies of a work-item in turn, by devices/some.toml: rates of Some CPU")
    assert "8 copies for each work-item in turn" in str(chosen)


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (15, 4), (16, 8), (1000, 8)])
def test_forced_copies(asked, expected):
    choices = Choices(update="private", copies=asked)
    assert turns(CPU, 64, choices=choices) == expected, "powers of two, two work-items"


def test_memory_bounds_the_copies():
    found = plan(Problem.of(operators.add(np.int32), 64, 20_000_000, memory_budget=64 * 4 * 9), LIKE_INTEL)
    assert (found.turns, found.copies) == (4, 8)


def test_rates_between_the_measured_ones():
    rates = PrivateRates.of(LIKE_INTEL.rates, 0, 4)
    assert rates.rate(1) == rates.rate(8) == 0.6
    assert rates.rate(64) == 0.7
    assert 0.7 < rates.rate(100) < rates.rate(200) < 1.4
    assert rates.rate(2**21) == pytest.approx(0.2)
    growth = (1 / 0.2 - 1 / rates.rate(2**18)) / 3  # of the time of an update, where cells double
    assert 1 / rates.rate(2**24) == pytest.approx(1 / 0.2 + 3 * growth)
    assert rates.nanoseconds(1000, 64, 2, 1) == pytest.approx(1000 / 0.7 + 128)


def test_kinds_of_cells():
    assert [kind_of(False, size) for size in (1, 4, 5, 8, 12, 16, 400)] == ["4 bytes"] * 2 + ["8 bytes"] * 2 + [
        "16 bytes"
    ] * 3
    assert kind_of(True, 4) == COUNT


def report(*aliases, name="Some Processor", vendor="Some Vendor"):
    return Report(name, vendor, "cpu", 2, 4096, 32768, 2**20, 64, aliases)


def test_rates_of_a_family_and_of_any_cpu():
    any_cpu, family = (
        merge(report(), load_profiles("cpu")),
        merge(report("GenuineIntel cpu family 6 model 143 amx_bf16"), load_profiles("cpu")),
    )
    assert any_cpu.sources["rates"].startswith("devices/default-cpu.toml: ")
    assert family.sources["rates"].startswith("devices/intel-xeon-amx.toml: ")
    assert PrivateRates.of(any_cpu.rates, 0, 4) is not None
    for value, size in ((0, 4), (4, 4), (8, 8), (4, 16), (16, 16)):
        assert PrivateRates.of(family.rates, value, size) is not None


def test_rates_of_another_gpu_are_not_taken():
    assert "rates" not in merge(report(name="Unknown")._replace(kind="gpu"), load_profiles()).sources


def test_the_name_of_a_processor(tmp_path):
    text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
    text += "flags\t\t: fpu avx2 avx512f amx_bf16\n\n"
    path = tmp_path / "cpuinfo"
    path.write_text(text + text.replace("143", "1"))
    assert processor_aliases(path) == ("GenuineIntel cpu family 6 model 143 amx_bf16 avx512f avx2",)
    path.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")  # of an ARM
    assert processor_aliases(path) == ()
    assert processor_aliases(tmp_path / "none") == ()
