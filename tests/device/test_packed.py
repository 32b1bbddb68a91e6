"""Counters of 16 bits and fewer, several to a word of local memory, that overflow into global memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from plans import plan

from clhist import HistogramKernel, bincount, operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model import packed
from clhist._core.model.problem import Choices
from clhist._core.opencl.device import profile_context
from clhist.selftest.inputs import drawn
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("with_optimizer")

H200 = dataclasses.replace(named_profile("nvidia-h200", load_profiles()), rates={})  # planned by rules


@pytest.fixture(scope="module")
def profile(gpu_like):
    """Room for 8184 counters of 16 bits, and so for 4096 whole ones."""
    return dataclasses.replace(gpu_like, local_memory=16384)


@pytest.fixture(scope="module")
def kernels(profile):
    return {operator: kernel_of(operator, profile) for operator in COUNTING}


def kernel_of(operator, profile, code="EMIT(x[i], 1)"):
    return HistogramKernel(None, operator, arguments="const int *x", map=code, profile=profile)


NUMBER = 300_001
COUNTING = [operators.add(np.int32), operators.add(np.uint32), operators.count()]
INPUTS = [
    "uniform, some outside",
    "all in one",
    "all in the last bin",
    "neighbours in a word",
    "one of a word",
    "sorted",
    "half in one",
    "all behind the last",
]


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("bits", packed.WIDTHS)
def test_counts(bits, name, kernels, rng):
    """512 work-items have 300,001 elements: counters overflow, and of less than 16 bits have to be counted again."""
    for operator in COUNTING if bits == 16 else COUNTING[:1]:
        kernel = kernels[operator]
        for bins in (5000, 8183):
            x = drawn(name, rng, NUMBER, bins)
            np.testing.assert_array_equal(kernel(x, num_bins=bins, counter_bits=bits), counts_of(x, bins))


@pytest.mark.parametrize("name", [*INPUTS, "the fields of a few words"])
@pytest.mark.parametrize("bits", [8, 4])
def test_carries_through_all_fields(bits, name, kernels, rng, monkeypatch):
    """No flag here: all that the counters cannot hold is recorded, and carried through the fields of their word."""
    spill_all(monkeypatch)
    kernel, bins = kernel_of_its_own(kernels), 5003
    if name == "the fields of a few words":  # each work-item at another field, all of them over and over
        x = (rng.integers(0, 3, NUMBER) * (32 // bits) + np.arange(NUMBER) % (32 // bits)).astype(np.int32)
    else:
        x = drawn(name, rng, NUMBER, bins)
    dest = rng.integers(-9, 9, bins, np.int32)
    for passes in (1, 2):
        found = kernel(x, num_bins=bins, dest=dest, counter_bits=bits, passes=passes)
        np.testing.assert_array_equal(found, dest + counts_of(x, bins))


def spill_all(monkeypatch, most_bins=8192):
    """Let a flag be raised by more spilled bins than these alone: not by their number, nor by what is seen ahead."""
    monkeypatch.setattr(packed, "SPILLED_BINS", most_bins)
    for name, number in (("most_spills", 1 << 30), ("most_alike", 1 << 30), ("least_distinct", 0)):
        monkeypatch.setattr(packed.PackedPlan, name, number)


def kernel_of_its_own(kernels):
    """Return a kernel that has planned nothing yet; its programs are shared."""
    shared = kernels[COUNTING[0]]
    return kernel_of(COUNTING[0], shared.engine.profile)


@pytest.mark.parametrize("bits", packed.WIDTHS)
def test_passes_side_by_side(bits, kernels, rng):
    kernel = kernels[COUNTING[0]]
    for bins in (50_001, 3):
        for passes in (None, 7):
            try:
                found = kernel.plan(NUMBER, bins, counter_bits=bits, passes=passes)
            except ValueError:
                assert (bits, bins, passes) == (16, 50_001, 7)
                continue
            assert found.strategy == "packed"
            assert found.bins_per_pass % (32 // bits) == 0
            for name in ("uniform, some outside", "half in one"):
                x = drawn(name, rng, NUMBER, bins)
                counts = kernel(x, num_bins=bins, counter_bits=bits, passes=passes)
                np.testing.assert_array_equal(counts, counts_of(x, bins))


@pytest.mark.usefixtures("only_measured_rates")
def test_the_robust_plan_partitions(profile, rng):
    """Where passes would be many, pairs are partitioned if the flag is raised."""
    kernel, bins = kernel_of(COUNTING[0], profile), 33_333
    found = kernel.plan(NUMBER, bins, counter_bits=4)
    assert found.robust.strategy == "partitioned"
    for name in ("uniform, some outside", "all in one", "zipf"):
        x, dest = drawn(name, rng, NUMBER, bins), rng.integers(-9, 9, bins, np.int32)
        result = kernel(x, num_bins=bins, counter_bits=4, dest=dest)
        np.testing.assert_array_equal(result, dest + counts_of(x, bins))


def test_a_flag_that_some_groups_raise(profile, rng, monkeypatch):
    """A few spills are recorded, one more and all is counted again: whatever the bound is, nothing is lost."""
    bins = 30_000
    x = np.where(rng.random(NUMBER) < 0.01, 7, rng.integers(0, bins, NUMBER)).astype(np.int32)
    for most_bins in (1, 4, 32, 128):
        spill_all(monkeypatch, most_bins)
        found = kernel_of(COUNTING[0], profile)(x, num_bins=bins, counter_bits=4)
        np.testing.assert_array_equal(found, counts_of(x, bins))
    for most_spills in (0, 1, 20, 500):
        monkeypatch.setattr(packed.PackedPlan, "most_spills", most_spills)
        found = kernel_of(COUNTING[0], profile)(x, num_bins=bins, counter_bits=4)
        np.testing.assert_array_equal(found, counts_of(x, bins))


def test_bincount_looks_for_the_largest_bin(profile, rng):
    with profile_context(profile):
        for x in (rng.integers(0, 6000, NUMBER), np.full(NUMBER, 6123), np.r_[np.zeros(9999, int), 7001]):
            np.testing.assert_array_equal(bincount(x.astype(np.int32)), np.bincount(x))


@pytest.mark.parametrize("size", [0, 1, 63, 8192, 8193])
def test_sizes_and_dest(size, kernels, rng):
    kernel = kernels[COUNTING[0]]
    x, dest = rng.integers(0, 6000, size, np.int32), rng.integers(-9, 9, 6000, np.int32)
    for bits in (None, 4):
        found = kernel(x, num_bins=6000, dest=dest, counter_bits=bits)
        np.testing.assert_array_equal(found, dest + counts_of(x, 6000))


@pytest.mark.usefixtures("only_measured_rates")
def test_when(profile):
    """Only where counters of 32 bits do not fit in one pass, and only for plain counts."""

    def width(bins, size=10**6, **more):
        return getattr(plan(size, bins, H200, counts=True, max_pairs=1, **more), "counter_bits", None)

    bins = (31, 56_832, 56_833, 113_656, 113_657, 227_312, 227_313, 454_624, 454_625)
    assert [width(n) for n in bins] == [None, None, 16, 16, 8, 8, 4, 4, None]
    assert width(98_290, race_factor=1e4) is None
    assert width(98_290, choices=Choices(copies=1)) is None
    assert width(98_290, choices=Choices(passes=2)) is None
    assert width(98_290, choices=Choices(memory="global")) is None
    assert width(98_290, choices=Choices(counter_bits=32)) is None
    assert width(98_290, local_update="cas") is None
    assert plan(10**6, 98_290, H200, max_pairs=1).strategy != "packed"
    for operator, code in [
        (operators.add(np.int32), "EMIT(x[i], 2)"),
        (operators.add(np.int32), "EMIT(x[i], x[i])"),
        (operators.add(np.float32), "EMIT(x[i], 1)"),
        (operators.maximum(np.int32), "EMIT(x[i], 1)"),
        (operators.add(np.int32), "EMIT(x[i], 1); EMIT(x[i] + 1, 1)"),
    ]:
        assert kernel_of(operator, profile, code).plan(NUMBER, 6000).strategy != "packed"
    assert (
        kernel_of(operators.add(np.int32), dataclasses.replace(profile, kind="cpu")).plan(NUMBER, 6000).strategy
        != "packed"
    )


@pytest.mark.parametrize("rates", [True, False])
@pytest.mark.parametrize("bins", [98_290, 196_607, 393_215])
def test_whole_counters_are_planned_as_for_skewed_input(bins, rates):
    """That narrow ones are not wanted leaves all else to us."""
    profile = named_profile("nvidia-h200", load_profiles()) if rates else H200
    whole = plan(5 * 10**7, bins, profile, counts=True, max_pairs=1, choices=Choices(counter_bits=32))
    skewed = plan(5 * 10**7, bins, profile, counts=True, max_pairs=1, race_factor=1e4)
    for name in ("strategy", "memory", "passes", "pass_order", "work_groups"):
        assert getattr(whole, name) == getattr(skewed, name), name
    assert whole.strategy in ("local", "partitioned")


@pytest.mark.usefixtures("only_measured_rates")
def test_the_plan_and_the_source_say_so(profile):
    kernel = kernel_of(operators.add(np.int32), profile)
    found = kernel.plan(NUMBER, 6000)
    assert "of 16-bit counters, with local copies behind" in str(found)
    assert "clhist_carry" in kernel.source(found)
    narrow = kernel.plan(NUMBER, 30_000, counter_bits=4)
    assert f"of 4-bit counters, with {narrow.robust.strategy} copies behind" in str(narrow)


@pytest.mark.usefixtures("only_measured_rates")
def test_narrow_counters_are_for_spread_input(profile):
    """What each is expected to count, by size and race factor, must be far less than it holds."""
    few, many = (plan(size, 200_000, H200, counts=True, max_pairs=1) for size in (10**6, 10**10))
    assert few.counter_bits == 8
    assert many.strategy != "packed"
    assert plan(10**8, 200_000, H200, counts=True, max_pairs=1, race_factor=64.0).strategy != "packed"


@pytest.mark.parametrize("name", ["sorted", "all in one", "one bin late"])
def test_a_look_ahead_raises_the_flag(name, profile, rng, monkeypatch):
    """No number of spills does."""
    monkeypatch.setattr(packed.PackedPlan, "most_spills", 1 << 30)
    monkeypatch.setattr(packed, "SPILLED_BINS", 8192)
    kernel = kernel_of(COUNTING[0], profile)
    if name == "one bin late":
        x = rng.integers(0, 30_000, NUMBER, np.int32)
        x[-NUMBER // 10 :] = 123
    else:
        x = drawn(name, rng, NUMBER, 30_000)
    np.testing.assert_array_equal(kernel(x, num_bins=30_000, counter_bits=8), counts_of(x, 30_000))


def test_how_many_distinct_are_looked_for():
    """Few where counters have room, nearly all where they have little: H200, 50 million elements."""
    shares = {
        bins: plan(5 * 10**7, bins, H200, counts=True, max_pairs=1, choices=Choices(counter_bits=bits)).least_distinct
        / 2**16
        for bins, bits in ((196_607, 8), (393_215, 4))
    }
    alike = plan(5 * 10**7, 196_607, H200, counts=True, max_pairs=1, choices=Choices(counter_bits=8)).most_alike
    assert alike == 81, "of one bin: 4 % of 2048"
    assert shares[196_607] == pytest.approx(0.72, abs=0.01)
    assert shares[393_215] == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"counter_bits": 5}, r"^counter_bits: expected one of 4, 8, 16, 32, got 5$"),
        ({"counter_bits": 8, "memory": "global"}, r"^counter_bits: narrow counters are in local memory, got memory="),
        ({"counter_bits": 8, "update": "cas"}, r"^counter_bits: only 32-bit integers that are added"),
        ({"counter_bits": 4, "num_histograms": 2}, r"^counter_bits: one histogram, and no batch"),
        ({"counter_bits": 16, "passes": 1}, r"^passes: expected at least 13 for counters of 16 bits, got 1$"),
        ({"pass_order": "beside"}, r"^pass_order: expected one of in turn, side by side, got 'beside'$"),
        ({"pass_order": "side by side", "memory": "global"}, r"^pass_order: 'side by side' is of passes over local"),
    ],
)
def test_choices_that_cannot_be(choices, words, profile):
    kernel = kernel_of(COUNTING[0], profile)
    with pytest.raises(ValueError, match=words):
        kernel.plan(NUMBER, 100_000, **choices)
    x = np.zeros(10, np.int32)
    more = {"size": 10} if "num_histograms" in choices else {}
    with pytest.raises(ValueError, match=words):
        kernel(x, num_bins=100_000, **choices, **more)
