"""Pairs that are grouped by ranges of bins before they are combined: every operator, every kind of map, hard inputs."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from click.testing import CliRunner
from covering import mostly_slow
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan

import clhist
from clhist import HistogramKernel, Operator, operators
from clhist._core.devices.profile import named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.kernels.maps import uniform_value
from clhist._core.model.feature import division
from clhist._core.model.problem import Choices
from clhist._core.runtime.call import Call
from clhist._core.runtime.prepare import LargestBin
from clhist.accumulator import Accumulator
from clhist.cli.main import main
from clhist.selftest.cases import CASES, NUM_BINS, PRODUCTS, pair_kernel, problem
from clhist.selftest.reference import counts_of, groups_of

H200 = named_profile("nvidia-h200", load_profiles())
PARTITIONED = {"memory": "partitioned"}


@pytest.mark.parametrize(
    ("name", "update"),
    mostly_slow(
        [
            *((name, None) for name in CASES | PRODUCTS),
            *((name, "cas") for name in ("add int32", "add float32", "maximum int8")),
            *((name, "lock") for name in ("add int32", "argmax float32", "variance float64")),
        ]
    ),
)
def test_each_operator(name, update, gpu_like):
    case, (bins, values, check) = (CASES | PRODUCTS)[name], problem(name)
    kernel = pair_kernel(case.operator, gpu_like)
    for partitions in (5, 7):
        check(kernel(bins, values, num_bins=NUM_BINS, update=update, passes=partitions, **PARTITIONED))


COUNT = {"arguments": "const int *x", "map": "EMIT(x[i], 1)"}


@pytest.fixture(scope="module")
def count(gpu_like):
    return HistogramKernel(None, operators.count(), profile=gpu_like, **COUNT)


@pytest.mark.parametrize("partitions", [1, 7, 60])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 1023, 1024, 1025, 70_001])
def test_sizes(size, partitions, count, rng):
    x = rng.integers(-3, 1003, size, np.int32)
    np.testing.assert_array_equal(count(x, num_bins=1000, passes=partitions, **PARTITIONED), counts_of(x, 1000))


HARD = {
    "all in one bin": np.full(50_000, 123, np.int32),
    "all in the last bin": np.full(50_000, 999, np.int32),
    "half in one bin": np.where(np.arange(50_000) % 2, 500, np.arange(50_000) % 1000).astype(np.int32),
    "sorted": np.sort(np.random.default_rng(1).integers(0, 1000, 50_000, np.int32)),
    "in no bin": np.full(50_000, 1000, np.int32),
    "negative": np.full(50_000, -1, np.int32),
    "one in a bin": np.concatenate([np.full(30_000, -7), [500], np.full(19_999, 2**31 - 1)]).astype(np.int32),
    "in two far bins": np.where(np.arange(50_000) % 3, 0, 999).astype(np.int32),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_inputs(name, count):
    x = HARD[name]
    for partitions in (3, 60):
        np.testing.assert_array_equal(count(x, num_bins=1000, passes=partitions, **PARTITIONED), counts_of(x, 1000))


def test_more_bins_than_elements(count, rng):
    x = rng.integers(0, 100_000, 3000, np.int32)
    chosen = count.plan(3000, 100_000, **PARTITIONED)
    assert chosen.partitions == 13  # of 32 KiB of counters
    np.testing.assert_array_equal(count(x, num_bins=100_000, **PARTITIONED), counts_of(x, 100_000))


MAPS = {
    "conditional": ("if (x[i] % 3 == 0) EMIT(x[i], w[i]);", lambda x, w: (x[x % 3 == 0], w[x % 3 == 0])),
    "with the position": ("EMIT(i % 500, w[i])", lambda x, w: (np.arange(len(x)) % 500, w)),
    "with another element": ("EMIT(x[i > 0 ? i - 1 : 0], w[i])", lambda x, w: (np.r_[x[0], x[:-1]], w)),
    "of 64 bits": (
        "EMIT((long)x[i] + (x[i] % 7 == 0 ? 1L << 32 : 0), w[i])",
        lambda x, w: (x[x % 7 != 0], w[x % 7 != 0]),
    ),
    "a local name": ("const int k = x[i] / 2; const float v = 2 * w[i]; EMIT(k, v)", lambda x, w: (x // 2, 2 * w)),
    "one value": ("EMIT(x[i], scale)", lambda x, w: (x, np.full(len(x), 3.0))),
    "a sum of scalars": ("EMIT(x[i], (scale + 2.0f) * 0.5f)", lambda x, w: (x, np.full(len(x), 2.5))),
}


@pytest.mark.parametrize(
    ("name", "order"), mostly_slow([*((name, "gpu") for name in MAPS), ("conditional", "cpu"), ("one value", "cpu")], 2)
)
def test_maps(name, order, gpu_like, rng):
    code, expected = MAPS[name]
    profile = dataclasses.replace(gpu_like, kind=order)
    kernel = HistogramKernel(
        None,
        {"total": operators.add(np.float32)},
        arguments="const int *x, const float *w, float scale",
        map=code.replace("EMIT", "EMIT_total"),
        profile=profile,
    )
    x, w = rng.integers(0, 500, 20_011, np.int32), rng.integers(-50, 50, 20_011).astype(np.float32)
    bins, values = expected(x, w)
    want = np.zeros(500)
    np.add.at(want, bins, values)
    np.testing.assert_array_equal(kernel(x, w, 3.0, num_bins=500, passes=9, **PARTITIONED)["total"], want)


@pytest.mark.parametrize("dtype", mostly_slow([np.uint8, np.int16, np.int64, np.float64], 2))
def test_input_of_any_width(dtype, gpu_like, rng):
    """One load brings 16, 8, 2 elements; arrays that begin anywhere are read one by one."""
    kind = {"u1": "uchar", "i2": "short", "i8": "long", "f8": "double"}[np.dtype(dtype).str[1:]]
    kernel = HistogramKernel(
        None, operators.count(), arguments=f"const {kind} *x", map="EMIT((int)x[i], 1)", profile=gpu_like
    )
    for start in (0, 1):
        x = rng.integers(0, 250, 30_001).astype(dtype)[start:]
        found = kernel(x, num_bins=256, passes=4, **PARTITIONED)
        np.testing.assert_array_equal(found, counts_of(x.astype(int), 256))


def test_device_arrays_dest_out_and_events(count, queue, rng):
    x = rng.integers(0, 700, 10_000, np.int32)
    device, dest = cl_array.to_device(queue, x), cl_array.to_device(queue, rng.integers(0, 9, 700).astype(np.int64))
    kernel = HistogramKernel(None, operators.add(np.int64), profile=count.engine.profile, **COUNT)
    want = dest.get() + counts_of(x, 700)
    out, event = kernel(device, num_bins=700, dest=dest, out=dest, passes=3, return_event=True, **PARTITIONED)
    event.wait()
    assert out is dest
    np.testing.assert_array_equal(out.get(), want)
    shape = kernel(device[1:], num_bins=(7, 100), passes=3, **PARTITIONED)
    np.testing.assert_array_equal(shape.get(), counts_of(x[1:], 700).reshape(7, 100))


def test_out_of_order_queues(count, out_of_order_queue, rng):
    x = cl_array.to_device(out_of_order_queue, rng.integers(0, 700, 20_000, np.int32))
    for _ in range(5):
        found = count(x, num_bins=700, passes=11, queue=out_of_order_queue, **PARTITIONED)
        np.testing.assert_array_equal(found.get(), counts_of(x.get(), 700))


def test_arrays_that_the_map_writes_are_written_once(gpu_like, rng):
    kernel = HistogramKernel(
        None, operators.count(), arguments="const int *x, int *y", map="y[i] += x[i]; EMIT(x[i], 1)", profile=gpu_like
    )
    x = rng.integers(0, 300, 9_999, np.int32)
    y = x.copy()
    np.testing.assert_array_equal(kernel(x, y, num_bins=300, passes=10, **PARTITIONED), counts_of(x, 300))
    np.testing.assert_array_equal(y, 2 * x)


def test_the_largest_bin_with_a_value_is_reported(gpu_like, queue, rng):
    """As bincount needs it."""
    x, found = cl_array.to_device(queue, rng.integers(0, 380, 5000, np.int32)), cl_array.zeros(queue, 1, np.uint32)
    kernel = HistogramKernel(
        None, operators.count(), arguments="const int *x, uint *found", map="EMIT(x[i], 1)", profile=gpu_like
    )
    choices, largest = Choices(memory="partitioned"), LargestBin("total != 0", "found")
    outcome = kernel.engine.run([x, found], Call(400, queue=queue, choices=choices, largest=largest))
    np.testing.assert_array_equal(outcome.results[0].get(), counts_of(x.get(), 400))
    assert found.get() == x.get().max()


def test_user_structures_and_preamble(gpu_like, rng):
    point = np.dtype([("x", np.float32), ("kind", np.int32)])
    kernel = HistogramKernel(
        None,
        Operator(
            np.dtype([("a", np.float64), ("b", np.int64)]),
            "a.a > b.a || (a.a == b.a && a.b < b.b) ? a : b",
            (-np.inf, 0),
        ),
        arguments="__global const point_t *p",
        map="const value_t v = {near(p[i].x), i}; EMIT(p[i].kind, v)",
        preamble="float near(float x) { return round(x); }",
        structs={"point_t": point},
        profile=gpu_like,
    )
    points = np.zeros(8_003, point)
    points["x"], points["kind"] = rng.normal(0, 5, 8_003), rng.integers(-1, 41, 8_003)
    found = kernel(points, num_bins=40, passes=6, **PARTITIONED)
    pairs = groups_of(points["kind"], list(zip(np.rint(points["x"]).tolist(), range(8_003), strict=True)), 40)
    expected = [max(group, key=lambda pair: (pair[0], -pair[1])) for group in pairs]
    assert found.tolist() == expected


def test_scalars_of_user_structures(gpu_like, rng):
    """The second kernel has the scalar arguments too where all values are the same."""
    window = np.dtype([("first", np.int32), ("step", np.int32)])
    kernel = HistogramKernel(
        None,
        operators.add(np.int32),
        arguments="const int *x, window_t w, int weight",
        map="EMIT((x[i] - w.first) / w.step, weight)",
        structs={"window_t": window},
        profile=gpu_like,
    )
    x = rng.integers(10, 2010, 9_001, np.int32)
    found = kernel(x, np.array((10, 4), window)[()], 3, num_bins=500, passes=8, **PARTITIONED)
    np.testing.assert_array_equal(found, 3 * counts_of((x - 10) // 4, 500))


@settings(max_examples=60)
@given(st.lists(st.integers(-2, 130), max_size=3000), st.integers(1, 128), st.integers(1, 64))
def test_any_input_and_partitions(count, bins, num_bins, partitions):
    x = np.array(bins, np.int32)
    found = count(x, num_bins=num_bins, size=len(x), passes=partitions, **PARTITIONED)
    np.testing.assert_array_equal(found, counts_of(x, num_bins))


def test_nan_and_infinities(gpu_like):
    kernel = HistogramKernel(
        None,
        operators.maximum(np.float32),
        arguments="const int *x, const float *w",
        map="EMIT(x[i], w[i])",
        profile=gpu_like,
    )
    x, w = np.arange(4000, dtype=np.int32) % 200, np.tile(np.array([np.nan, np.inf, -np.inf, -0.0, 5], np.float32), 800)
    want = np.array([max(w[x == k], key=lambda v: (v != v, v)) for k in range(200)])
    np.testing.assert_array_equal(kernel(x, w, num_bins=200, passes=20, **PARTITIONED), want)


def test_streams_go_through_it_too(count, rng):
    x = rng.integers(0, 300, 30_000, np.int32)
    accumulator = count.accumulator(300, passes=4, **PARTITIONED)
    assert isinstance(accumulator, Accumulator)
    for piece in np.array_split(x, 7):
        accumulator.add(piece)
    np.testing.assert_array_equal(accumulator.result(), counts_of(x, 300))


@given(st.integers(2, 2**16), st.integers(0, 2**31 - 1))
def test_division(width, number):
    multiplier, shift = division(width)
    assert 0 < multiplier < 2**32
    for n in (number, number // width * width, max(0, number // width * width - 1), 2**31 - 1):
        assert (n * multiplier >> 32) >> shift == n // width


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("EMIT(x[i], 1)", "1"),
        ("EMIT(x[i], scale);", "scale"),
        ("EMIT(clamp(x[i], 0, 9), (scale + 1) / 2.5f)", "(scale + 1) / 2.5f"),
        ("if (x[i] > 0) EMIT(x[i], -1.0e3f)", "-1.0e3f"),
        ("EMIT(x[i], w[i])", None),
        ("EMIT(x[i], i)", None),
        ("EMIT(x[i], f(1))", None),
        ("EMIT(x[i], ONE)", None),
        ("int k = 2; EMIT(x[i], k)", None),
        ("EMIT(x[i], 1); w[i] = 2", "1"),
        ("EMIT(x[i], w[i]); EMIT(x[i] + 1, 1)", None),
        ("\n#define ONE 1\nEMIT(x[i], 1)", None),
        ("{ EMIT(x[i], scale); }", "scale"),
        ("EMIT(x[i], (value_t){1, 2})", None),
    ],
)
def test_values_that_are_the_same_for_all(code, expected):
    kernel = HistogramKernel(
        None, operators.count(), arguments="const int *x, float *w, float scale", map="EMIT(x[i], 1)"
    )
    assert uniform_value("", code, kernel.arguments) == expected
    assert uniform_value("", code, kernel.arguments, "#define MORE EMIT(0, 2)") is None


MANY = 1_572_863  # bins
KINDS = {"native": "native int32", "cas": "cas 32", "lock": "lock"}  # of rates


def chosen(num_bins, size=50_000_000, update="native", profile=H200, **more):
    kinds = ((KINDS[update],),) * 2
    return plan(
        size, num_bins, profile, local_update=update, global_update=update, rate_kinds=kinds, **{"max_pairs": 1, **more}
    )


def test_when_the_model_partitions():
    """Where passes over the input would take longer, and there are elements enough."""
    assert [chosen(bins).strategy for bins in (1000, 49_145, 98_290, 196_607)] == ["local"] * 4
    assert [chosen(bins, value_bytes=0).partitions for bins in (400_000, MANY)] == [132, 132], (
        "one for each compute unit"
    )
    assert [chosen(196_607, update="cas").partitions, chosen(98_290, update="cas").memory] == [132, "local"]
    assert chosen(98_290, update="lock", bin_bytes=(16,)).partitions == 9
    assert chosen(MANY, size=500_000).strategy != "partitioned"
    assert chosen(MANY, profile=dataclasses.replace(H200, kind="cpu")).strategy != "partitioned"
    assert chosen(MANY, choices=Choices(copies=1)).strategy != "partitioned"
    assert chosen(MANY, memory_budget=10**7).strategy != "partitioned"
    assert chosen(MANY, max_pairs=None).strategy != "partitioned"  # how many values an element has is not known
    assert chosen(2**31).memory == "global"


def test_a_plan_says_so():
    found = chosen(MANY, value_bytes=0)
    assert (found.memory, found.copies, found.passes, found.bins_per_pass) == ("local", 1, 1, 11_916)
    assert "native updates in local memory of pairs in 132 partitions" in str(found)
    assert any(step.symbol == "P" and step.value == 132 for step in found.steps)


def test_the_source_can_be_read(count):
    source = count.source(count.plan(10**5, 50_000, **PARTITIONED))
    assert "void clhist_split(" in source
    assert "void clhist_sweep(" in source


def test_partitions_take_no_more_local_memory_than_there_is(count, gpu_like):
    """AMD's compiler refuses a byte more than 64 KiB."""
    kernel = HistogramKernel(None, operators.add(np.int32), profile=gpu_like, **COUNT)
    found = kernel.plan(10**5, 200_000, **PARTITIONED)
    assert 4 * found.bins_per_pass > gpu_like.local_memory * 3 // 4
    sweep = kernel.source(found).partition("void clhist_index(")[2].partition("typedef")[2]
    pools = re.findall(r"__local (?:u?int|uchar|ushort|uint4) (\w+)\[(\d+)\]", sweep)
    assert pools == [("clhist_pool", str(gpu_like.local_memory))]


def test_the_command_line():
    options = ["-n", "50M", "-H", "196607", "--memory", "partitioned", "--profile", "nvidia-h200"]
    result = CliRunner().invoke(main, ["plan", *options, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["partitions"] == 132
    text = CliRunner().invoke(main, ["plan", *options]).output
    assert "partitions (P) 132: the pairs are grouped by ranges of bins first" in " ".join(text.split())


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({"copies": 2}, ValueError, "copies: expected 1 with memory='partitioned', got 2"),
        ({"update": "private"}, ValueError, "memory: 'partitioned' takes native, cas and lock updates, got 'private'"),
        ({"update": "sort"}, ValueError, "memory: 'partitioned' takes native, cas and lock updates, got 'sort'"),
        ({"num_histograms": 2}, ValueError, "memory: 'partitioned' makes one histogram, and no batch"),
        ({"memory_budget": 100}, MemoryError, "memory_budget: partitioning 1000 pairs takes .* got 100 bytes"),
    ],
)
def test_what_cannot_be(count, choices, error, message):
    out = np.full(2000, 7, np.int64)
    with pytest.raises(error, match=message):
        count(
            np.zeros(1000, np.int32),
            num_bins=2000,
            out=None if "num_histograms" in choices else out,
            **(PARTITIONED | choices),
        )
    assert np.all(out == 7)


def test_maps_with_several_values_cannot_be(gpu_like):
    kernel = HistogramKernel(
        None, operators.count(), arguments="const int *x", map="EMIT(x[i], 1); EMIT(x[i] + 1, 1)", profile=gpu_like
    )
    with pytest.raises(ValueError, match="memory: 'partitioned' takes maps that emit one value for an element at most"):
        kernel(np.zeros(5, np.int32), num_bins=5, **PARTITIONED)


def test_no_room_for_the_pairs(count, queue, monkeypatch, rng):
    def none_left(size):
        if size > 10**5:
            raise cl.MemoryError("out of memory")
        return clhist._core.opencl.memory.scratch_allocator(queue)(size)

    x = cl_array.to_device(queue, rng.integers(0, 900, 60_000, np.int32))
    message = r"no \d+ bytes more to partition 60000 \(bin, value\) pairs; memory='global'"
    with pytest.raises(MemoryError, match=message):
        count(x, num_bins=900, allocator=none_left, out=cl_array.empty(queue, 900, np.int64), **PARTITIONED)


def test_large_values_take_a_small_tile(gpu_like, rng):
    """A tile of 64 work-items with structs of 24 bytes does not fit 32 KiB; partitions that are asked for have less."""
    dtype = np.dtype([("n", "i4"), ("s", "f8"), ("m", "i4")], align=True)
    operator = Operator(
        dtype, "((accumulator_t){a.n + b.n, a.s + b.s, a.m > b.m ? a.m : b.m})", (0, 0.0, np.iinfo(np.int32).min)
    )
    bins, values = rng.integers(-3, 20_003, 9000, np.int32), np.zeros(9000, dtype)
    values["n"], values["s"], values["m"] = 1, rng.integers(-99, 99, 9000), rng.integers(-99, 99, 9000)
    found = pair_kernel(operator, gpu_like)(bins, values, num_bins=20_000, update="lock", **PARTITIONED)
    inside, expected = (bins >= 0) & (bins < 20_000), np.full(20_000, operator.neutral, dtype)
    for field, ufunc in (("n", np.add), ("s", np.add), ("m", np.maximum)):
        ufunc.at(expected[field], bins[inside], values[field][inside])
    np.testing.assert_array_equal(found, expected)
