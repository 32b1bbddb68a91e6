"""Calls of close sizes are planned together, for the largest of them, and give what each would give alone."""

from __future__ import annotations

import dataclasses
import importlib
import re
import warnings
from unittest.mock import Mock

import numpy as np
import pyopencl.array as cl_array
import pytest
from allocators import Limited
from covering import covering

import clhist
from clhist import operators
from clhist._core.model.problem import planned_size
from clhist._core.runtime.call_cache import CallCache
from clhist._core.runtime.engine import Engine
from clhist.binned import numbers
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

CLOSE = (5000, 5120, 4609, 4611, 5119, 5001, 4999, 4610)  # all planned for 5120
BINS = 301
WAYS = {
    "chosen": {},
    "local": {"memory": "local"},
    "global": {"memory": "global"},
    "copies": {"memory": "global", "copies": 2},
    "partitioned": {"memory": "partitioned"},
    "cas": {"update": "cas"},
    "locks": {"update": "lock", "locks": 8},
    "passes": {"memory": "local", "passes": 3},
    "side by side": {"memory": "local", "passes": 3, "pass_order": "side by side"},
    "sorted": {"update": "sort"},
    "work-groups of 48": {"work_group_size": 48},
}


@pytest.fixture
def loaded(monkeypatch):
    """Return for how many elements each call was planned."""
    found, original = [], CallCache._built

    def noted(self, checked, call, most=None):
        found.append(checked.size if most is None else most[0])
        return original(self, checked, call, most)

    monkeypatch.setattr(CallCache, "_built", noted)
    return found


@pytest.mark.parametrize("bins", [(BINS,) * 8, (301, 300, 320, 289, 319, 290, 303, 302)], ids=["same", "close"])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "way", [way if n < 4 else pytest.param(way, marks=pytest.mark.slow) for n, way in enumerate(WAYS)]
)
def test_counts(way, on_device, bins, profile, loaded, queue, rng):
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=profile
    )
    for size, number in zip(CLOSE, bins, strict=True):
        x = rng.integers(-2, number + 40, size, np.int32)
        given, dest = x, np.full(number, 7, np.int32)
        if on_device:
            given, dest = cl_array.to_device(queue, x), cl_array.to_device(queue, dest)
        got = kernel(given, num_bins=number, **WAYS[way])
        np.testing.assert_array_equal(got.get() if on_device else got, counts_of(x, number))
        guarded = np.full(number + 64, -5, np.int32)  # what is behind the result is not touched
        out = cl_array.to_device(queue, guarded) if on_device else guarded
        kernel(given, num_bins=number, dest=dest, out=out[:number], **WAYS[way])
        guarded = out.get() if on_device else guarded
        np.testing.assert_array_equal(guarded[:number], counts_of(x, number) + 7)
        assert (guarded[number:] == -5).all()
    if way not in ("sorted", "copies"):  # what is launched depends on the number of pairs; more bins leave less room
        assert loaded == [5000, 5000, 5120, 5120]  # without and with dest


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("name", ["uniform", "all in one"])
def test_packed_counters(bits, name, gpu_like, loaded, queue, rng):
    """Those that raise their flag, too: what counts again gets the same number of elements."""
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like
    )
    for size, bins in ((300_001, 301), (327_680, 301), (294_913, 301), (299_999, 300), (299_999, 289), (327_000, 320)):
        x = rng.integers(0, bins + 9, size, np.int32) if name == "uniform" else np.full(size, 7, np.int32)
        np.testing.assert_array_equal(kernel(x, num_bins=bins, counter_bits=bits), counts_of(x, bins))
    assert loaded == [300_001, *[planned_size(300_001)] * 2]  # for as many bins, and for more


@pytest.mark.parametrize("size", [1, 2, 7, 15, 16, 17, 31, 33, 100, 4608, 4609])
def test_each_size_is_planned_for_as_many_or_a_quarter_more(size):
    assert size <= planned_size(size) <= max(size, size * 5 // 4)
    assert planned_size(planned_size(size)) == planned_size(size)


@pytest.mark.parametrize("forced", [{"memory": "local", "passes": 1}, {"memory": "global", "memory_budget": 16_000}])
def test_where_only_the_bins_asked_for_fit(forced, gpu_like, queue, rng):
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)",
        profile=dataclasses.replace(gpu_like, local_memory=16_384),
    )  # fmt: skip
    for bins in (3700, 3990, 3650, 3600, 3999):  # planned for 4096, and so 16,384 bytes
        x = rng.integers(0, bins, 5000 - bins, np.int32)
        np.testing.assert_array_equal(kernel(x, num_bins=bins, **forced), counts_of(x, bins))


def test_copies_that_are_forced_are_had_whatever_came_before(gpu_like, queue, rng):
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bins in (250, 257, 270):
            x = rng.integers(0, bins, 5000, np.int32)
            got = kernel(x, num_bins=bins, memory="global", copies=4, memory_budget=16 * bins)
            np.testing.assert_array_equal(got, counts_of(x, bins))


@pytest.mark.parametrize("repeats", [1, 3])
def test_memory_for_the_bins_asked_for_is_enough(repeats, any_profile, queue, rng):
    """Whatever came before: 2560 bins are planned for, and have no room."""
    kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    x = rng.integers(0, 2049, 300_000, np.int32)
    on_device = cl_array.to_device(queue, x)
    kernel(on_device[:-5], num_bins=2040)
    for n in range(repeats):
        if n < repeats - 1:
            kernel(on_device, num_bins=2049)
        else:
            got = kernel(on_device, num_bins=2049, allocator=Limited(queue, 16_400))
    np.testing.assert_array_equal(got.get(), counts_of(x, 2049))


def test_few_elements_of_all_sizes(profile, queue, rng):
    kernel = clhist.HistogramKernel(
        queue.context, operators.argmax(np.float32), arguments="const int *x, const float *v",
        map="EMIT(x[i], ((value_t){v[i], i}))", profile=profile,
    )  # fmt: skip
    for size in [*range(20), 33, 69, 48, 31, 64, *range(17, 0, -3)]:
        x, v = rng.integers(0, 5, size, np.int32), rng.permutation(size).astype(np.float32)
        found = kernel(x, v, num_bins=5)
        for b in range(5):
            if (x == b).any():
                assert found["index"][b] == np.flatnonzero(x == b)[v[x == b].argmax()]
            else:
                assert found["value"][b] == -np.inf


@pytest.mark.parametrize(
    ("op", "shape", "any_profile"),
    covering(["sum", "exact", "max", "mean"], [(), (3,), (64,)], ["own profile", "as a GPU"]),
    indirect=["any_profile"],
)
def test_rows_and_values(op, shape, any_profile, queue, rng):
    options = {"reproducible": True} if op == "exact" else {}
    for size, bins in ((2000, 50), (1999, 50), (2048, 50), (1921, 49), (1950, 51), (1950, 52), (2040, 49)):
        x = rng.integers(-1, bins, size)
        v = rng.integers(-9, 9, (size, *shape)).astype(np.float32)
        x_on_device, v_on_device = cl_array.to_device(queue, x), cl_array.to_device(queue, v)
        got = clhist.reduce_by_index(
            (bins, *shape), "sum" if op == "exact" else op, x_on_device, v_on_device, **options
        )
        inside = x >= 0
        if op == "max":
            expected = np.full((bins, *shape), -np.inf, np.float32)
            np.maximum.at(expected, x[inside], v[inside])
        else:
            expected = np.zeros((bins, *shape), np.float32)
            np.add.at(expected, x[inside], v[inside])
            if op == "mean":
                expected /= np.bincount(x[inside], minlength=bins).reshape(bins, *(1 for _ in shape))
        np.testing.assert_allclose(got.get(), expected, rtol=1e-6)


def test_functions(any_profile, queue, rng):
    for size in (50_000, 49_999, 53_248, 49_153, 50_001, 300, 299):
        x, v = rng.integers(0, 99, size), rng.normal(size=size)
        bins = 30 + size % 3
        for make in (np.asarray, lambda array: cl_array.to_device(queue, array)):
            counts = clhist.bincount(make(x), minlength=120)
            np.testing.assert_array_equal(
                counts if isinstance(counts, np.ndarray) else counts.get(), np.bincount(x, minlength=120)
            )
            for ends in (None, (-2, 2), (-2, 2 + size / 1e6)):
                got, edges = clhist.histogram(make(v), bins, ends)
                expected, expected_edges = np.histogram(v, bins, ends)
                np.testing.assert_array_equal(got if isinstance(got, np.ndarray) else got.get(), expected)
                np.testing.assert_array_equal(edges, expected_edges)


def test_a_call_that_comes_often_is_planned_for_its_own_numbers(queue, loaded, rng):
    kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    for n, size in enumerate([5000, *[4998, 4999] * 40]):
        x = cl_array.to_device(queue, rng.integers(0, BINS, size, np.int32))
        np.testing.assert_array_equal(kernel(x, num_bins=BINS).get(), counts_of(x.get(), BINS))
        assert loaded == [5000, 5120, 4998, 4999][: 1 if n == 0 else 2 if n < 65 else n - 62]


def test_a_bound_call_is_planned_for_its_own_size(queue, loaded, rng):
    kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    for size in CLOSE[:4]:
        x = rng.integers(0, BINS, size, np.int32)
        kernel(x, num_bins=BINS)
        bound = kernel.bind(x, num_bins=BINS)
        assert bound.plan.num_elements == size
        np.testing.assert_array_equal(bound(), counts_of(x, BINS))


@pytest.mark.parametrize("bins", [300, (70, 3)], ids=str)
def test_new_sizes_run_as_larger_ones(bins, loaded, queue, rng):
    """The first few calls of a size do as what was planned for up to four times as many; what is forced does not."""
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)"
    )

    def call(size, bins, **forced):
        x = rng.integers(-2, np.prod(bins) + 40, size, np.int32)
        got = kernel(x, num_bins=bins, **forced)
        np.testing.assert_array_equal(got, counts_of(x, int(np.prod(bins))).reshape(np.shape(got)))

    def fewer(n):
        return (bins[0] - n, *bins[1:]) if isinstance(bins, tuple) else bins - 2 * n

    for n, size in enumerate((300_000, 299_000)):  # one for itself, one for others
        call(size, fewer(n))
    assert len(loaded) == 2
    for n, size in enumerate((290_000, 250_000, 201_000, 150_000, 110_001, 90_000)):
        call(size, fewer(n % 4))
    assert len(loaded) == 2
    for _ in range(3):
        for n in range(9):  # of which each is repeated, too
            call(150_000 - n, fewer(1))
    assert len(loaded) == 3  # planned for 163,840 and fewer
    call(70_000, fewer(1))  # less than a fourth of some, not of all
    call(30_000, fewer(1))
    assert len(loaded) == 4
    before = len(loaded)
    for size in (300_000, 299_000, 150_000):
        call(size, bins, memory="global")
    assert len(loaded) == before + 3


def test_new_sizes_skip_the_checks_of_calls_alike(queue, rng, checks):
    """Checks that depend on the size are made all the same."""
    kernel = clhist.HistogramKernel(
        queue.context,
        operators.add(np.int32),
        arguments="const int *x, const int *y, int a",
        map="EMIT(x[i], a + y[i])",
    )
    sizes, numbers = rng.integers(4700, 5100, 60).tolist(), rng.integers(290, 319, 60).tolist()
    x, y = rng.integers(-3, 340, (2, 5200)).astype(np.int32)
    for n, (size, bins) in enumerate(zip(sizes, numbers, strict=True)):
        inside = (x[:size] >= 0) & (x[:size] < bins)
        expected = np.bincount(x[:size][inside], (y[:size] + n)[inside], bins)
        np.testing.assert_array_equal(kernel(x[:size], y[:size], n, num_bins=bins, size=size), expected)
    assert len(checks) < 30
    for _ in range(80):  # which is planned for itself in the end
        np.testing.assert_array_equal(kernel(x[:size], y[:size], n, num_bins=bins, size=size), expected)
    np.testing.assert_array_equal(kernel(x[: 2 * size : 2], y[:size], n, num_bins=1, size=1), [0])
    with pytest.raises(ValueError, match="y: expected at least 4990 elements, got 4989"):
        kernel(x[:4990], y[:4989], 1, num_bins=bins, size=4990)
    with pytest.raises(TypeError, match=r"x: expected an array of int32, got one of int64"):
        kernel(x[:4991].astype(np.int64), y[:4991], 1, num_bins=bins, size=4991)
    with pytest.raises((TypeError, ValueError), match="a: "):
        kernel(x[:4992], y[:4992], 2**40, num_bins=bins, size=4992)
    with pytest.raises(ValueError, match="num_bins: "):
        kernel(x[:4993], y[:4993], 1, num_bins=-3, size=4993)


def test_new_sizes_with_results_in_given_arrays(queue, rng, checks):
    """Skip the checks too, as do shapes of one dimension; arrays of another shape or dtype are refused all the same."""
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)"
    )
    x = rng.integers(-3, 340, 5200).astype(np.int32)
    sizes, numbers = rng.integers(4700, 5100, 60).tolist(), rng.integers(290, 319, 60).tolist()
    for size, bins in zip(sizes, numbers, strict=True):
        inside = x[:size][(x[:size] >= 0) & (x[:size] < bins)]
        out = np.full(bins, -1, np.int32)
        assert kernel(x[:size], num_bins=(bins,), out=out) is out
        np.testing.assert_array_equal(out, np.bincount(inside, minlength=bins))
    assert len(checks) < 30
    for wrong in (np.zeros(bins + 1, np.int32), np.zeros(bins, np.int64), np.zeros((bins, 2), np.int32)[:, 0]):
        with pytest.raises((TypeError, ValueError), match=r"^out: "):
            kernel(x[:4999], num_bins=(bins,), out=wrong)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_histogram_of_another_size_needs_no_axis(on_device, queue, rng, monkeypatch):
    def data(size):
        return cl_array.to_device(queue, rng.random(size)) if on_device else rng.random(size)

    clhist.histogram(data(80_000), 10, (0, 1), queue=queue)
    monkeypatch.setattr(
        importlib.import_module("clhist.binned.histograms"), "_counted", Mock(side_effect=AssertionError)
    )
    for size in (80_001, 300_000):
        counts, _ = clhist.histogram(data(size), 10, (0, 1), queue=queue)
        assert (counts.get() if on_device else counts).sum() == size
    for wrong in ({"weights": data(7)}, {"where": data(80_003) > 0.5 if not on_device else data(3)}):
        with pytest.raises((TypeError, ValueError)):
            clhist.histogram(data(80_002), 10, (0, 1), queue=queue, **wrong)


def test_few_elements_stay_on_the_host_whatever_came_before(rng, monkeypatch):
    for size in (500_000, 400_000):
        clhist.histogram(rng.random(size), 10, (0, 1), weights=rng.random(size))
    monkeypatch.setattr(Engine, "run", Mock(side_effect=AssertionError("few elements went to a device")))
    clhist.histogram(rng.random(50), 10, (0, 1), weights=rng.random(50))


def test_calls_that_are_known_and_planned_for_close_sizes(queue, rng):
    """A call that its function recognises, and whose plan is of close sizes, is prepared for itself in the end."""
    for size in (90_001, 90_002, 90_003):
        x, values = rng.integers(0, BINS, size, np.int32), rng.integers(0, 9, size, np.int32)
        given = cl_array.to_device(queue, x), cl_array.to_device(queue, values)
        dest = cl_array.zeros(queue, BINS, np.int32)
        expected = np.bincount(x, values, BINS)
        for target in (dest, BINS) * 40:
            np.testing.assert_array_equal(clhist.reduce_by_index(target, "sum", *given).get(), expected)


def _unchecked(monkeypatch):
    """Let checks and signatures of all arguments fail: from now on calls have to repeat earlier ones."""
    fails = Mock(side_effect=AssertionError("made anew"))
    monkeypatch.setattr(Engine, "check", fails)
    monkeypatch.setattr("clhist._core.runtime.engine.signature_of_call", fails)
    monkeypatch.setattr("clhist.binned.histograms._counted", fails)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("edges", [np.linspace(0, 1, 300), np.linspace(1, 0, 20), np.array([0.5])], ids=len)
def test_bin_numbers_of_other_sizes(edges, on_device, queue, rng, monkeypatch):
    def check(size):
        x = rng.random(size)
        x[0] = np.nan
        result = clhist.digitize(cl_array.to_device(queue, x) if on_device else x, edges, queue=queue)
        np.testing.assert_array_equal(result.get() if on_device else result, np.digitize(x, edges))

    for size in (5000, 5001, 4999, 300, 80_000, *[5000] * 20, *range(5010, 5050)):
        check(size)
    _unchecked(monkeypatch)
    for size in (5060, 4700, 4800):
        check(size)


@pytest.mark.parametrize("kind", ["counts", "weights", "where"])
@pytest.mark.parametrize("bins", [10, 300])
def test_histograms_over_the_range_of_other_data(bins, kind, queue, rng, monkeypatch):
    """Neither another range nor another size leads to new checks; results are NumPy's."""

    def check(size, low, high):
        a = low + (high - low) * rng.random(size)
        weights = rng.integers(-9, 10, size) if kind == "weights" else None
        where = rng.random(size) < 0.7 if kind == "where" else None
        counts, edges = clhist.histogram(a, bins, weights=weights, where=where, queue=queue)
        inside = slice(None) if where is None else where
        expected, numpy_edges = np.histogram(a[inside], bins, weights=None if weights is None else weights[inside])
        np.testing.assert_array_equal(edges, numpy_edges)
        np.testing.assert_array_equal(counts, expected)
        edges[:] = 7  # which no later call may see

    ranges = [(0, 1), (-1, 1), (1e-300, 3e-300), (-5e7, 3), (0, 1e300)]
    for n in range(25):
        check(20_000 + 40 * n, *ranges[n % 5])
    _unchecked(monkeypatch)
    for n in range(5):
        check(20_100 + 300 * n, 0.1 * n, 7)


def test_the_range_of_other_data_may_need_other_bins(queue, rng):
    """Ranges that one multiplication cannot divide, none at all, and those that NumPy refuses."""
    narrow = np.nextafter(1, 2)
    for a in (rng.random(9000), 1 + 1e-13 * rng.random(9000), np.ones(9000), rng.random(9001), rng.random(9000)):
        counts, edges = clhist.histogram(a, 50, queue=queue)
        expected, numpy_edges = np.histogram(a, 50)
        np.testing.assert_array_equal(edges, numpy_edges)
        np.testing.assert_array_equal(counts, expected)
    for wrong in ([1.0, narrow] * 4500, [np.nan] * 9000, [np.inf] * 9000):
        with pytest.raises(ValueError, match=r"bins|range") as error:
            np.histogram(wrong, 50)
        with pytest.raises(ValueError, match=re.escape(str(error.value))):
            clhist.histogram(np.array(wrong), 50, queue=queue)


@pytest.mark.parametrize("target", ["new", "dest", "out", "both"])
def test_reductions_of_device_arrays_of_other_sizes_skip_the_checks(target, queue, rng, monkeypatch):
    def check(size):
        index, values = rng.integers(-1, 103, size), rng.integers(-99, 100, size)
        given = [cl_array.to_device(queue, each) for each in (index, values)]
        dest = 101 if target in ("new", "out") else cl_array.to_device(queue, np.full(101, 3))
        out = {"out": cl_array.zeros(queue, 101, np.int64), "both": dest}.get(target)
        got = clhist.reduce_by_index(dest, np.add, *given, out=out)
        inside = (index >= 0) & (index < 101)
        expected = np.full(101, 0 if target in ("new", "out") else 3)
        np.add.at(expected, index[inside], values[inside])
        np.testing.assert_array_equal(got.get(), expected)

    for size in (6000, 6000, 6000, *range(6001, 6010), 7000, 7001):
        check(size)
    _unchecked(monkeypatch)
    for size in (6011, 6100, 5900, 7002):
        check(size)


@pytest.mark.parametrize("right", [False, True])
def test_numbers_of_bins_in_pieces(right, monkeypatch, queue):
    """Elements of the host that a device may lack the memory for are uploaded in pieces."""
    monkeypatch.setattr(numbers, "_UPLOADED", 1000)
    monkeypatch.setattr(numbers, "shares_memory", lambda device: False)
    x, edges = np.random.default_rng(0).integers(0, 50, (9, 500)).astype(np.float32), np.arange(3.0, 40.0)
    np.testing.assert_array_equal(clhist.digitize(x, edges, right, queue=queue), np.digitize(x, edges, right))


def test_entries_beyond_the_guess_are_counted_whatever_plans_there_are(queue, rng):
    """A plan with spare bins would take such entries as inside, and not report them."""
    arrays = {size: cl_array.zeros(queue, size, np.int32) for size in (2000, 2023, 3758)}
    for bins in (5000, 100, 3000, 300, 1130, 3000, 100, 5000, 1130, 300, 5000, 100, 3000, 1130):
        for size, array in arrays.items():
            x, weights = rng.integers(0, bins, size, np.int32), rng.integers(-9, 9, size).astype(np.float64)
            array.set(x)
            got = clhist.bincount(array, cl_array.to_device(queue, weights)).get()
            np.testing.assert_array_equal(got, np.bincount(x, weights))
