"""Counters of 16 bits, two to a word of local memory, that overflow into global memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from plans import plan

from clhist import HistogramKernel, operators
from clhist.hardware.profile import named_profile
from clhist.hardware.profile_files import load_profiles
from clhist.planning.problem import Choices
from clhist.selftest.inputs import drawn
from clhist.selftest.reference import counts_of

H200 = dataclasses.replace(named_profile("nvidia-h200", load_profiles()), rates={})  # planned by rules


@pytest.fixture(scope="module")
def profile(gpu_like):
    """Room for 8190 such counters, and so for 4096 whole ones."""
    return dataclasses.replace(gpu_like, local_memory=16384)


def kernel_of(operator, profile, code="EMIT(x[i], 1)"):
    return HistogramKernel(None, operator, arguments="const int *x", map=code, profile=profile)


NUMBER = 300_001
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
@pytest.mark.parametrize(
    "operator",
    [operators.add(np.int32), operators.add(np.uint32), operators.count()],
    ids=lambda o: f"{o.name} {o.dtype}",
)
def test_counts(operator, name, profile, rng):
    """Counters overflow many times here: 512 work-items have 300,001 elements."""
    kernel = kernel_of(operator, profile)
    for bins in (5000, 8189):
        assert kernel.plan(NUMBER, bins).strategy == "packed"
        x = drawn(name, rng, NUMBER, bins)
        np.testing.assert_array_equal(kernel(x, num_bins=bins), counts_of(x, bins))


@pytest.mark.parametrize("size", [0, 1, 63, 8192, 8193])
def test_sizes_and_dest(size, profile, rng):
    kernel = kernel_of(operators.add(np.int32), profile)
    x, dest = rng.integers(0, 6000, size, np.int32), rng.integers(-9, 9, 6000, np.int32)
    np.testing.assert_array_equal(kernel(x, num_bins=6000, dest=dest), dest + counts_of(x, 6000))


def test_when(profile):
    """Only where counters of 32 bits do not fit in one pass, and only for plain counts."""

    def packed(bins, size=10**6, **more):
        return plan(size, bins, H200, counts=True, max_pairs=1, **more).strategy == "packed"

    assert [packed(bins) for bins in (31, 56_832, 56_833, 113_662, 113_663)] == [False, False, True, True, False]
    assert not packed(98_290, race_factor=1e4)
    assert not packed(98_290, choices=Choices(copies=1))
    assert not packed(98_290, choices=Choices(passes=2))
    assert not packed(98_290, choices=Choices(memory="global"))
    assert not packed(98_290, local_update="cas")
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


def test_the_plan_and_the_source_say_so(profile):
    kernel = kernel_of(operators.add(np.int32), profile)
    found = kernel.plan(NUMBER, 6000)
    assert "of 16-bit counters" in str(found)
    assert found.global_copies == found.work_groups + 1
    assert "clhist_beyond" in kernel.source(found)
