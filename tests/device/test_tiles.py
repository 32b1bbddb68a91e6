"""Pairs that are split by tiles: by single work-items of a CPU, by work-groups whose tiles have several rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest
from covering import covering, each_value_quick
from operator_checks import COMPUTED, check_computed_bins, check_operator

import clhist
from clhist import HistogramKernel, Problem, operators
from clhist._core.devices.vendors import of_warps
from clhist._core.kernels import partitions
from clhist._core.model.private import GRID, KINDS, cells_name, tiles_name
from clhist._core.model.problem import Choices
from clhist._core.model.sweeps import plan
from clhist._core.model.times import CELLS
from clhist._core.opencl.device import profile_context
from clhist._core.runtime.stages import sweep_code
from clhist.selftest.cases import CASES, pair_kernel
from clhist.selftest.inputs import DISTRIBUTIONS, drawn
from clhist.selftest.reference import counts_of

COUNT = operators.add(np.int32)
TILES = {"memory": "partitioned"}


@pytest.fixture
def small(monkeypatch):
    """Tiles of few elements, so that there are many; maps that only read a bin are called twice for each."""
    monkeypatch.setattr(partitions, "CPU_TILE", 64)
    monkeypatch.setattr(partitions, "tile_elements", lambda ranges, value_bytes: 2**20)


def test_the_plan(few_items):
    found = pair_kernel(COUNT, few_items).plan(10**6, 300_000, **TILES)
    assert (found.strategy, found.update, found.memory) == ("partitioned", "private", "local")
    assert found.bins_per_pass & (found.bins_per_pass - 1) == 0
    assert found.partitions == -(-300_000 // found.bins_per_pass)
    forced = pair_kernel(COUNT, few_items).plan(10**6, 300_000, update="private", passes=200, **TILES)
    assert (forced.update, forced.bins_per_pass, forced.partitions) == ("private", 2048, 147)


@pytest.mark.parametrize(("name", "ranges", "empty"), each_value_quick(covering(list(CASES), (1, 7), (False, True))))
def test_operators(name, ranges, empty, few_items, small):
    """Also with `dest`, and without elements."""
    check_operator(name, few_items, empty=empty, passes=ranges, **TILES)


PROGRAMS = covering(
    ["few_items", "gpu_like", "cpu_like"], ["EMIT(bins[i], 1)", "if (bins[i] >= 0) EMIT(bins[i], 1)"], [1, 4, 64]
)


@pytest.mark.parametrize(("profile", "code", "ranges"), each_value_quick(PROGRAMS))
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distributions(distribution, profile, code, ranges, request, small, rng):
    """One range is shared out among work-groups, others are filled by one; bins are read once and twice."""
    bins = drawn(distribution, rng, 20_003, 300)
    kernel = HistogramKernel(
        None, COUNT, arguments="const int *bins", map=code, profile=request.getfixturevalue(profile)
    )
    found = kernel(bins, num_bins=300, passes=ranges, **TILES)
    np.testing.assert_array_equal(found, counts_of(bins, 300))


@pytest.mark.parametrize(("operator", "ufunc"), [(operators.add, np.add), (operators.maximum, np.maximum)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_values_of_crowded_ranges(operator, ufunc, dtype, few_items, small, rng):
    """One bin has most pairs of its range: where four in a row are alike they are combined first."""
    kernel = pair_kernel(operator(dtype), few_items)
    assert "clhist_is_crowded" in kernel.source(kernel.plan(20_003, 300, passes=64, **TILES))
    values = rng.integers(-99, 99, 20_003).astype(dtype)
    for share in (0.5, 0.9, 1):
        bins = np.where(rng.random(20_003) < share, 123, rng.integers(-9, 309, 20_003)).astype(np.int32)
        want, inside = np.full(300, operator(dtype).neutral, dtype), (bins >= 0) & (bins < 300)
        ufunc.at(want, bins[inside], values[inside])
        np.testing.assert_array_equal(kernel(bins, values, num_bins=300, passes=64, **TILES), want)


@pytest.mark.parametrize("ranges", [2, 60])
def test_tiles_of_several_rounds(ranges, gpu_like, small, rng):
    """Values that differ, and others; the last tile is not full."""
    bins, values = rng.integers(-9, 1009, 70_001, np.int32), rng.integers(-99, 99, 70_001).astype(np.float32)
    kernel = pair_kernel(operators.add(np.float32), gpu_like)
    inside = (bins >= 0) & (bins < 1000)
    want = np.bincount(bins[inside], values[inside], minlength=1000)
    np.testing.assert_array_equal(kernel(bins, values, num_bins=1000, passes=ranges, **TILES), want)
    count = HistogramKernel(None, COUNT, arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like)
    assert "for (uint clhist_round" in count.source(count.plan(70_001, 1000, passes=ranges, **TILES))
    np.testing.assert_array_equal(count(bins, num_bins=1000, passes=ranges, **TILES), counts_of(bins, 1000))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_lanes_that_stay_together(distribution, gpu_like, small, rng, monkeypatch):
    """As on NVIDIA's devices, whose lanes wait for each other after each pair: a warp reads one segment, or several."""
    bins, values = drawn(distribution, rng, 20_003, 300), rng.integers(-99, 99, 20_003).astype(np.float32)
    path = of_warps({"nvidia_ptx"}, 32)._replace(
        reconvergence="mem_fence(CLK_LOCAL_MEM_FENCE)", any_lane="return condition;"
    )
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "1")  # no stored source: the specification does not have this path
    monkeypatch.setattr("clhist._core.kernels.specs.SweepSpec.warp", path)
    monkeypatch.setattr("clhist._core.runtime.partition.sweep_code", sweep_code.__wrapped__)
    kernel, want = pair_kernel(operators.add(np.float32), gpu_like), np.zeros(300)
    inside = (bins >= 0) & (bins < 300)
    np.add.at(want, bins[inside], values[inside])
    for ranges in (1, 5, 64):
        found = kernel(bins, values, num_bins=300, passes=ranges, **TILES)
        np.testing.assert_array_equal(found, want)
    source = kernel.source(kernel.plan(20_003, 300, **TILES))
    assert "while (clhist_any(clhist_tile < clhist_last_tile))" in source


@pytest.mark.parametrize(("ranges", "code"), each_value_quick(covering([1, 2, 4], COMPUTED)))
def test_bins_that_are_computed(ranges, code, few_items, small):
    check_computed_bins(code, few_items, passes=ranges, **TILES)


def test_places_of_sixteen_bits(few_items, rng):
    """The first and the last place of each range, and as many bins as there are, and one more."""
    for num_bins in (32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 200_000):
        edges = [bin for k in range(0, num_bins, 8_192) for bin in (k - 1, k, k + 1)]
        bins = np.concatenate([rng.integers(-5, num_bins + 5, 50_000), np.repeat(edges, 3)]).astype(np.int32)
        kernel = HistogramKernel(None, COUNT, arguments="const int *bins", map="EMIT(bins[i], 1)", profile=few_items)
        np.testing.assert_array_equal(kernel(bins, num_bins=num_bins, **TILES), counts_of(bins, num_bins))


@pytest.mark.parametrize("profile", ["few_items", "gpu_like"])
def test_results_in_place(profile, request, queue, small, rng):
    """`dest` and `out` are one array, or parts of a larger one, of which nothing else is written."""
    bins = rng.integers(0, 700, 30_000, np.int32)
    kernel = HistogramKernel(
        None, COUNT, arguments="const int *x", map="EMIT(x[i], 1)", profile=request.getfixturevalue(profile)
    )
    whole = cl_array.to_device(queue, np.arange(800, dtype=np.int32))
    kernel(cl_array.to_device(queue, bins), num_bins=700, dest=whole[50:750], out=whole[50:750], passes=9, **TILES)
    want = np.arange(800)
    want[50:750] += counts_of(bins, 700)
    np.testing.assert_array_equal(whole.get(), want)


def rated(profile, tiles):
    each = {cells_name(kind, cells): 1.0 if cells < 2**18 else 0.2 for kind in KINDS for cells in GRID}
    rates = each | {tiles_name(kind): tiles for kind in KINDS} | {CELLS: 10.0}
    return replace(profile, rates=rates, hardware_threads=3)


@pytest.mark.parametrize(
    ("bins", "size", "tiles", "more", "expected"),
    [
        (1_400_000, 20_000_000, 0.4, {}, "partitioned"),
        (1_400_000, 20_000_000, 0.2, {}, "private"),  # no gain
        (1_400_000, 20_000_000, 0.0, {}, "private"),  # not measured
        (5_000, 20_000_000, 9.0, {}, "private"),  # of one range
        (1_400_000, 20_000_000, 0.4, {"race_factor": 1000.0}, "private"),  # few bins occur
        (1_400_000, 20_000_000, 0.4, {"memory_budget": 20_000_000}, "private"),  # copies, but no pairs
        (1_400_000, 100_000, 0.2, {}, "partitioned"),  # one copy, of a single work-item
        (1_400_000, 100_000, 0.0, {"memory_budget": 5_000_000}, "partitioned"),  # pairs, but no copy
        (1_400_000, 20_000_000, 0.4, {"choices": Choices(update="private")}, "private"),
        (1_400_000, 20_000_000, 0.4, {"num_histograms": 2}, "batch"),
    ],
)
def test_what_rates_choose(bins, size, tiles, more, expected, few_items):
    found = plan(Problem.of(COUNT, bins, size, **more), rated(few_items, tiles))
    assert found.strategy == expected


def test_functions(few_items, rng):
    """As they are called, with rates that make for tiles; what lies beyond the guessed bins is found."""
    bins = rng.integers(0, 300_000, 600_000, np.int32)
    weights = rng.integers(0, 9, bins.size).astype(np.float64)
    with profile_context(rated(few_items, 0.9)):
        assert plan(Problem.of(COUNT, 300_000, bins.size), rated(few_items, 0.9)).strategy == "partitioned"
        for outlier in (300_000, 301_234, 10**6):
            bins[12_345] = outlier
            np.testing.assert_array_equal(clhist.bincount(bins), np.bincount(bins))
            np.testing.assert_array_equal(clhist.bincount(bins, weights), np.bincount(bins, weights))
        bins[12_345] = -1
        with pytest.raises(ValueError, match="negative"):
            clhist.bincount(bins)


def test_exact_sums(few_items, cpu_like):
    """Both that of few words and that of all take one way; work-groups have no cells of their own in local memory."""
    exact = Problem.of(operators.reproducible_add(np.float32), 1_400_000, 20_000_000)
    for tiles, strategy in ((0.4, "partitioned"), (0.01, "private")):
        found = plan(exact, rated(few_items, tiles))
        assert (found.strategy, found.again.strategy, found.again.ranges > 0) == (strategy, strategy, tiles > 0.1)
    with pytest.raises(MemoryError, match="memory_budget: one copy of 1400000 bins"):
        plan(replace(exact, size=1000, memory_budget=50_000_000), cpu_like)


def test_errors(few_items, gpu_like):
    two = HistogramKernel(
        None, {"a": COUNT, "b": COUNT}, arguments="", map="EMIT_a(i % 5, 1); EMIT_b(i % 3, 2)", profile=few_items
    )
    found = two(num_bins={"a": 5, "b": 3}, size=90, update="private", **TILES)  # a sweep each
    assert (found["a"].tolist(), found["b"].tolist()) == ([18] * 5, [60] * 3)
    private = Choices(update="private", **TILES)
    with pytest.raises(ValueError, match="memory: 'partitioned' makes one histogram, and no batch"):
        plan(Problem.of(COUNT, 9, 90, num_histograms=2, choices=private), few_items)
    with pytest.raises(ValueError, match="takes native, cas and lock updates, got 'private'"):
        plan(Problem.of(COUNT, 9, 90, choices=private), gpu_like)
    with pytest.raises(MemoryError, match="memory_budget: partitioning 90 pairs takes"):
        plan(Problem.of(COUNT, 9, 90, memory_budget=120, choices=private), few_items)


def test_too_many_partitions_cannot_be(gpu_like):
    kernel = HistogramKernel(None, COUNT, arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like)
    message = "memory: 'partitioned' makes at most 4096 partitions, 40000000 bins need 488"
    with pytest.raises(ValueError, match=message):
        kernel(np.zeros(1000, np.int32), num_bins=40_000_000, **TILES)


WAYS = [{}, {"update": "cas"}, {"memory": "local"}, {"memory": "partitioned"}, {"update": "sort"}]


@pytest.mark.parametrize(
    ("name", "profile", "way", "operator"),
    each_value_quick(covering(["bin", "value", "at"], [None, "gpu_like"], WAYS, ["count", "add"])),
)
def test_arrays_have_any_name(name, profile, way, operator, request):
    bins = np.random.default_rng(4).integers(0, 77, 5000, np.int32)
    more = {"profile": profile and request.getfixturevalue(profile)}
    if operator == "count":
        count = clhist.HistogramKernel(None, "count", arguments=f"const int *{name}", map=f"EMIT({name}[i], 1)", **more)
        np.testing.assert_array_equal(count(bins, num_bins=77, **way), np.bincount(bins, minlength=77))
        return
    arguments, code = f"const int *{name}, const int *values", f"EMIT({name}[i], values[i])"
    add = clhist.HistogramKernel(None, np.add, dtype=np.int64, arguments=arguments, map=code, **more)
    np.testing.assert_array_equal(add(bins, bins, num_bins=77, **way), np.bincount(bins, bins, 77))


@pytest.mark.parametrize("name", ["k", "p", "bin", "value", "emitted", "at", "tile"])
def test_scalars_have_any_name(name):
    bins = np.random.default_rng(3).integers(0, 77, 5000, np.int32)
    kernel = clhist.HistogramKernel(
        None,
        clhist.operators.add(np.int64),
        arguments=f"const int *x, int {name}",
        map=f"EMIT(x[i], {name} + (x[i] & 1))",
    )
    found = kernel(bins, 5, num_bins=3000, race_factor=50.0, memory="partitioned")
    np.testing.assert_array_equal(found[:77], np.bincount(bins, 5 + (bins & 1), 77))
    assert not found[77:].any()
