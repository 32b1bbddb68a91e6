"""The race factor, measured by sampling: what it should be is known for these inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist.race_factor
from clhist import HistogramKernel, RaceFactor, operators
from clhist.cases.gromacs_data import load_nonbonded
from clhist.cases.water import water_box
from clhist.selftest.cases import pair_kernel

pytestmark = pytest.mark.usefixtures("with_optimizer")

SPEC_FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "gromacs_inl1100_largest.npz"
COUNT = operators.add(np.int32)


@pytest.fixture(scope="module")
def kernel():
    return HistogramKernel(None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)")


def by_hand(bins, num_bins, length=None):
    """Return the pairs over the distinct bins of 16 windows of H elements."""
    length = min(len(bins), length or num_bins)
    starts = np.linspace(0, len(bins) - length, max(1, min(16, len(bins) - length + 1))).astype(int)
    windows = [bins[start : start + length] for start in starts]
    windows = [window[(window >= 0) & (window < num_bins)] for window in windows]
    return sum(len(window) for window in windows), sum(len(set(window.tolist())) for window in windows), len(windows)


@pytest.mark.parametrize("num_bins", [100, 1000, 60_000])
def test_uniform_bins(kernel, num_bins, rng):
    bins = rng.integers(0, num_bins, 300_000, np.int32)
    found = kernel.race_factor(bins, num_bins=num_bins)
    assert isinstance(found, RaceFactor)
    assert (found.pairs, found.distinct, found.windows) == by_hand(bins, num_bins)
    assert found.value == found.pairs / found.distinct
    assert abs(found.value - 1 / (1 - np.exp(-1))) < 0.05, "about 1.58 (SC'20, III-D)"
    assert float(found) == found.value
    assert found.seconds > 0


def test_all_in_one_bin_and_each_in_its_own(kernel):
    assert kernel.race_factor(np.full(5000, 7, np.int32), num_bins=1000).value == 1000
    assert kernel.race_factor(np.full(300, 7, np.int32), num_bins=1000).value == 300
    assert kernel.race_factor(np.arange(5000, dtype=np.int32) % 1000, num_bins=1000).value == 1
    fives = kernel.race_factor(np.arange(5000, dtype=np.int32) // 5, num_bins=1000)
    assert 5 * 200 / 201 < fives.value <= 5, "a window may begin and end within five"


@pytest.mark.parametrize("bins", [[], [-1] * 50, [99] * 50, [3]], ids=["none", "negative", "too large", "one"])
def test_nothing_to_race(kernel, bins):
    found = kernel.race_factor(np.array(bins, np.int32), num_bins=9)
    assert (found.value, found.pairs, found.distinct) == (1.0, int(3 in bins), int(3 in bins))


def test_more_bins_than_are_counted_at_once(kernel, rng):
    bins = rng.integers(0, 5_000_000, 1_000_000, np.int32)
    found = kernel.race_factor(bins, num_bins=5_000_000)
    assert (found.pairs, found.distinct, found.windows) == (1_000_000, len(np.unique(bins)), 1)


def test_neighbours_of_gromacs(kernel, queue):
    here = SPEC_FILE.exists()  # or else a box of water of that size
    neighbours = (load_nonbonded(SPEC_FILE) if here else water_box()).jjnr.astype(np.int32)
    found = kernel.race_factor(neighbours, num_bins=23_178)
    assert (24 <= found.value <= 25) if here else found.value > 10
    assert (found.pairs, found.distinct, found.windows) == by_hand(neighbours, 23_178)
    on_device = kernel.race_factor(cl_array.to_device(queue, neighbours), num_bins=23_178)
    assert (on_device.value, on_device.windows) == (found.value, found.windows)


def test_device_arrays_on_any_queue(kernel, queue, out_of_order_queue, rng):
    bins = rng.integers(-5, 60, 4000, np.int32)
    for used in (queue, out_of_order_queue):
        given = cl_array.empty(used, 4000, np.int32)
        given.set(bins, async_=True)
        found = kernel.race_factor(given, num_bins=50, queue=used)
        assert (found.pairs, found.distinct, found.windows) == by_hand(bins, 50)
        result = kernel(given, num_bins=50, race_factor="sample", queue=used)
        np.testing.assert_array_equal(result.get(), np.bincount(bins[(bins >= 0) & (bins < 50)], minlength=50))


def test_maps_that_emit_more_than_once(rng):
    kernel = HistogramKernel(
        None, COUNT, arguments="const int *x, const int *y", map="EMIT(x[i], 1); if (y[i] >= 0) { EMIT(y[i], 1); }"
    )
    x, y = rng.integers(0, 100, 5000, np.int32), np.full(5000, -1, np.int32)
    found = kernel.race_factor(x, y, num_bins=100)
    assert (found.pairs, found.distinct) == by_hand(x, 100, length=50)[:2]
    found = kernel.race_factor(x, x, num_bins=100)
    assert (found.pairs, found.distinct) == (2 * 16 * 50, by_hand(x, 100, length=50)[1])
    assert kernel.race_factor(x, y, num_bins=100, size=30).pairs == 30


def test_outputs_count_together(rng):
    kernel = HistogramKernel(
        None,
        {"a": COUNT, "b": operators.argmax(np.float32), "c": operators.variance(np.float32)},
        arguments="const int *x",
        map="EMIT_a(x[i], 1); EMIT_b(0, ((value_b_t){1, i})); EMIT_c(x[i] % 10, 2.0f)",
    )
    x = np.arange(6000, dtype=np.int32) % 70
    found = kernel.race_factor(x, num_bins={"a": (7, 10), "b": 20, "c": 10})
    assert found.pairs == 3 * found.windows * 100, "of windows of as many elements as there are bins"
    assert found.distinct == found.windows * (70 + 1 + 10)


@pytest.mark.parametrize("operator", [operators.mean(np.float32), operators.saturating_add(np.uint8, 9)], ids=repr)
def test_what_values_are_makes_no_difference(operator, rng):
    bins = rng.integers(0, 40, 1000, np.int32)
    found = pair_kernel(operator).race_factor(bins, np.zeros(1000, operator.dtype), num_bins=40)
    assert (found.pairs, found.distinct) == by_hand(bins, 40)[:2]


def test_how_often_it_is_measured(monkeypatch, gpu_like):
    measured = []

    def measure(engine, given):
        measured.append(given.shapes)
        return RaceFactor(63.0, 63, 1, 1, 0.0)

    monkeypatch.setattr(clhist.race_factor, "sample_race_factor", measure)
    kernel = HistogramKernel(None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=gpu_like)
    x = np.arange(1000, dtype=np.int32) % 40
    expected = np.bincount(x, minlength=40)
    for _ in range(3):
        assert (kernel(x, num_bins=40, race_factor="sample once") == expected).all()
    assert measured == [((40,),)]
    kernel(x, num_bins=41, race_factor="sample once")
    kernel(x, num_bins=40, race_factor="sample once")
    assert measured[1:] == [((41,),)], "once for each number of bins"
    for _ in range(2):
        kernel(x, num_bins=40, race_factor="sample")
    kernel(x, num_bins=40)
    assert len(measured) == 4
    assert kernel(x, num_bins=(4, 10), num_histograms=2, race_factor="sample").shape == (2, 4, 10)
    assert measured[4] == ((4, 10),)


def test_the_plan_gets_what_was_measured(gpu_like, monkeypatch):
    seen = []
    plan_sweeps = clhist._core.runtime.build.plan_sweeps

    def note(problem, *others):
        seen.append(problem.race_factor)
        return plan_sweeps(problem, *others)

    monkeypatch.setattr(clhist._core.runtime.build, "plan_sweeps", note)
    kernel = HistogramKernel(None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=gpu_like)
    x = np.zeros(2000, np.int32)
    assert kernel(x, num_bins=500, race_factor="sample")[0] == 2000
    assert seen[-1] == 500
