"""Calls of close sizes are planned together, for the largest of them, and give what each would give alone."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import operators
from clhist.engine.loads import Loads
from clhist.planning.problem import planned_size
from clhist.selftest.reference import counts_of

CLOSE = (5000, 5120, 4609, 4610, 5119, 5001, 4999, 4610)  # all planned for 5120
BINS = 301
WAYS = {
    "chosen": {},
    "local": {"memory": "local"},
    "global": {"memory": "global", "copies": 2},
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
    found, original = [], Loads._loaded
    monkeypatch.setattr(Loads, "_loaded", lambda *args, **more: found.append(args[4]) or original(*args, **more))
    return found


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_counts(way, on_device, profile, loaded, queue, rng):
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=profile
    )
    for size in CLOSE:
        x = rng.integers(-2, BINS + 2, size, np.int32)
        got = kernel(cl_array.to_device(queue, x) if on_device else x, num_bins=BINS, **WAYS[way])
        np.testing.assert_array_equal(got.get() if on_device else got, counts_of(x, BINS))
    if way == "sorted":  # what is launched depends on the number of pairs
        assert set(loaded) == {*CLOSE, 5120}
    else:
        assert loaded == [5000, 5120]


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("name", ["uniform", "all in one"])
def test_packed_counters(bits, name, gpu_like, loaded, queue, rng):
    """Those that raise their flag, too: what counts again gets the same number of elements."""
    kernel = clhist.HistogramKernel(
        queue.context, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=gpu_like
    )
    for size in (300_001, 327_680, 294_913, 299_999):
        x = rng.integers(0, BINS, size, np.int32) if name == "uniform" else np.full(size, 7, np.int32)
        np.testing.assert_array_equal(kernel(x, num_bins=BINS, counter_bits=bits), counts_of(x, BINS))
    assert loaded == [300_001, planned_size(300_001)]


@pytest.mark.parametrize("size", [1, 2, 7, 15, 16, 17, 31, 33, 100, 4608, 4609])
def test_each_size_is_planned_for_as_many_or_an_eighth_more(size):
    assert size <= planned_size(size) <= max(size, size * 9 // 8)
    assert planned_size(planned_size(size)) == planned_size(size)


def test_few_elements_of_all_sizes(profile, queue, rng):
    kernel = clhist.HistogramKernel(
        queue.context, operators.argmax(np.float32), arguments="const int *x, const float *v",
        map="EMIT(x[i], ((value_t){v[i], i}))", profile=profile,
    )  # fmt: skip
    for size in [*range(70), *range(69, 0, -1)]:
        x, v = rng.integers(0, 5, size, np.int32), rng.permutation(size).astype(np.float32)
        found = kernel(x, v, num_bins=5)
        for b in range(5):
            if (x == b).any():
                assert found["index"][b] == np.flatnonzero(x == b)[v[x == b].argmax()]
            else:
                assert found["value"][b] == -np.inf


@pytest.mark.parametrize("shape", [(), (3,), (64,)])
@pytest.mark.parametrize("op", ["sum", "exact", "max", "mean"])
def test_rows_and_values(op, shape, any_profile, queue, rng):
    options = {"reproducible": True} if op == "exact" else {}
    for size in (2000, 1999, 2048, 1921, 1950):
        x = rng.integers(-1, 50, size)
        v = rng.integers(-9, 9, (size, *shape)).astype(np.float32)
        x_on_device, v_on_device = cl_array.to_device(queue, x), cl_array.to_device(queue, v)
        got = clhist.reduce_by_index((50, *shape), "sum" if op == "exact" else op, x_on_device, v_on_device, **options)
        inside = x >= 0
        if op == "max":
            expected = np.full((50, *shape), -np.inf, np.float32)
            np.maximum.at(expected, x[inside], v[inside])
        else:
            expected = np.zeros((50, *shape), np.float32)
            np.add.at(expected, x[inside], v[inside])
            if op == "mean":
                expected /= np.bincount(x[inside], minlength=50).reshape(50, *(1 for _ in shape))
        np.testing.assert_allclose(got.get(), expected, rtol=1e-6)


def test_functions(any_profile, queue, rng):
    for size in (50_000, 49_999, 53_248, 49_153, 50_001, 300, 299):
        x, v = rng.integers(0, 99, size), rng.normal(size=size)
        for make in (np.asarray, lambda array: cl_array.to_device(queue, array)):
            counts = clhist.bincount(make(x), minlength=120)
            np.testing.assert_array_equal(
                counts if isinstance(counts, np.ndarray) else counts.get(), np.bincount(x, minlength=120)
            )
            for ends in (None, (-2, 2), (-2, 2 + size / 1e6)):
                got, edges = clhist.histogram(make(v), 30, ends)
                expected, expected_edges = np.histogram(v, 30, ends)
                np.testing.assert_array_equal(got if isinstance(got, np.ndarray) else got.get(), expected)
                np.testing.assert_array_equal(edges, expected_edges)


def test_a_bound_call_is_planned_for_its_own_size(queue, loaded, rng):
    kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    for size in CLOSE[:4]:
        x = rng.integers(0, BINS, size, np.int32)
        kernel(x, num_bins=BINS)
        bound = kernel.bind(x, num_bins=BINS)
        assert bound.plan.num_elements == size
        np.testing.assert_array_equal(bound(), counts_of(x, BINS))
