"""Calls that repeat the one before skip its checks, and nothing else: what is new is seen."""

from __future__ import annotations

import gc
import math
import sys
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import HistogramKernel, operators, reduce_by_index
from clhist._core.runtime import reducing
from clhist._core.runtime.signature import Remembered
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

reduce = sys.modules["clhist.reduce"]


@pytest.fixture
def data(queue, rng):
    return cl_array.to_device(queue, rng.integers(-2, 52, 10_000, np.int32))


@pytest.fixture
def checks(kernel, monkeypatch):
    """Return how often arguments have been checked."""
    found = []
    original = kernel.engine.check
    monkeypatch.setattr(kernel.engine, "check", lambda *args: found.append(1) or original(*args))
    return found


def test_shapes_repeat_too(kernel, data, checks):
    want = counts_of(data.get(), 50).reshape(5, 10)
    for _ in range(3):
        found = kernel(data, 1, num_bins=(5, 10))
        np.testing.assert_array_equal(found.get(), want)
    assert len(checks) == 1
    with pytest.raises(TypeError, match=r"num_bins: expected an integer, got 5\.0"):
        kernel(data, 1, num_bins=(5.0, 10))


@pytest.mark.parametrize(
    "kind", ["scalar", "num_bins", "array", "size", "race_factor", "passes", "host", "shape", "step"]
)
def test_what_is_new_is_checked(kind, kernel, data, checks, queue):
    for _ in range(3):
        kernel(data, 1, num_bins=50)
    x, more, step, bins = data, {}, 1, 50
    if kind == "scalar":
        step = 3
    elif kind == "num_bins":
        bins = 20
    elif kind == "array":
        x = cl_array.to_device(queue, data.get()[::-1].copy())
    elif kind == "size":
        more["size"] = 77
    elif kind == "race_factor":
        more["race_factor"] = 5.0
    elif kind == "passes":
        more["passes"] = 1
    elif kind == "host":
        x = data.get()
    elif kind == "shape":
        x.shape, x.strides = (100, 100), (400, 4)
    elif kind == "step":
        step = np.int32(1)
    found = kernel(x, step, num_bins=bins, **more)
    host = (x if kind == "host" else x.get()).ravel()[: more.get("size")]
    np.testing.assert_array_equal(found if kind == "host" else found.get(), int(step) * counts_of(host, bins))
    assert len(checks) == (1 if kind in ("scalar", "array", "step") else 2)


@pytest.mark.parametrize("race_factor", [1, 2, True, np.int64(2), np.float32(2), np.float64(2)], ids=repr)
def test_race_factors_of_any_type_are_prepared_once(race_factor, kernel, data, checks):
    for factor in (race_factor, race_factor, float(race_factor)):
        found = kernel(data, 1, num_bins=50, race_factor=factor)
        np.testing.assert_array_equal(found.get(), counts_of(data.get(), 50))
    assert len(checks) == 1


def test_wrong_arguments_are_found_after_right_ones(kernel, data):
    for _ in range(3):
        kernel(data, 1, num_bins=50)
    with pytest.raises(TypeError, match="step: expected a scalar of int32, got str"):
        kernel(data, "1", num_bins=50)
    with pytest.raises(ValueError, match="num_bins: expected at least 1, got 0"):
        kernel(data, 1, num_bins=0)
    with pytest.raises(ValueError, match="x: expected at least 10001 elements, got 10000"):
        kernel(data, 1, num_bins=50, size=10_001)
    with pytest.raises(TypeError, match="expected 2 arguments"):
        kernel(data, num_bins=50)
    data.dtype = np.dtype(np.float32)
    with pytest.raises(TypeError, match="x: expected an array of int32, got one of float32"):
        kernel(data, 1, num_bins=50)


def test_nothing_is_kept_alive(kernel, data, queue):
    out = cl_array.empty(queue, 50, np.int32)
    for _ in range(3):
        kernel(data, 1, num_bins=50, out=out).get()
    seen = weakref.ref(out)
    queue.finish()
    del out
    gc.collect()
    assert seen() is None


# `reduce_by_index` knows the call before, too.


@pytest.fixture
def long_ways(monkeypatch):
    """Return how often arguments have been looked at, of calls like no other test's before."""
    found, original = [], reduce.checked_pairs
    monkeypatch.setattr(reduce, "checked_pairs", lambda *given: found.append(1) or original(*given))
    monkeypatch.setattr(reducing.call_templates, "_kept", {})
    return found


def test_reduce_by_index_again(queue, rng, long_ways):
    indices, values = rng.integers(-1, 41, 3000), rng.integers(0, 9, 3000, np.int32)
    dest = cl_array.to_device(queue, np.arange(40, dtype=np.int32))
    given = cl_array.to_device(queue, indices), cl_array.to_device(queue, values)
    inside = (indices >= 0) & (indices < 40)

    def expected(values):
        found = dest.get()
        np.add.at(found, indices[inside], values[inside])
        return found

    for _ in range(3):
        np.testing.assert_array_equal(reduce_by_index(dest, np.add, *given).get(), expected(values))
    assert len(long_ways) == 1
    given[1].fill(3)
    dest += 1
    np.testing.assert_array_equal(reduce_by_index(dest, np.add, *given).get(), expected(np.full(3000, 3)))
    out = cl_array.empty(queue, 40, np.int32)
    for _ in range(2):
        assert reduce_by_index(dest, np.add, *given, out=out) is out
        np.testing.assert_array_equal(out.get(), expected(np.full(3000, 3)))
    assert len(long_ways) == 2
    for number in (2, 2, 3, np.int32(3), True, 1):
        result = reduce_by_index(dest, np.add, given[0], number).get()
        np.testing.assert_array_equal(result, expected(np.full(3000, int(number))))
    assert len(long_ways) == 7


def test_calls_in_turn_are_recognised_however_many(queue, rng, long_ways):
    indices, values = rng.integers(0, 90, 500), rng.integers(0, 9, 500, np.int32)
    arrays = cl_array.to_device(queue, indices), cl_array.to_device(queue, values)
    for _ in range(3):
        for bins in range(1, 60):
            expected = np.bincount(indices, values, 90)[:bins]
            np.testing.assert_array_equal(reduce_by_index(bins, np.add, *arrays).get(), expected)
    assert len(long_ways) == 1  # other numbers of bins have what the first prepared


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("name", ["bincount", "histogram", "reduce_by_index"])
def test_a_repeated_call_looks_into_two_caches_at_most(name, on_device, queue, rng, monkeypatch):
    """The function's own, which skips its checks, and that of the engine, which has the loaded kernels."""
    indices, values = rng.integers(0, 40, 3000), rng.random(3000)
    if on_device:
        indices, values = (cl_array.to_device(queue, array) for array in (indices, values))
    call = {
        "bincount": lambda: clhist.bincount(indices, queue=queue),
        "histogram": lambda: clhist.histogram(values, 10, (0, 1), queue=queue),
        "reduce_by_index": lambda: reduce_by_index(40, np.add, indices, values, queue=queue),
    }[name]
    for _ in range(40):  # the call is planned for its own size by then
        call()
    lookups, original = [], Remembered.get
    monkeypatch.setattr(Remembered, "get", lambda self, key: lookups.append(self) or original(self, key))
    call()
    assert 1 <= len(lookups) <= 2


def test_reduce_by_index_with_something_else(queue, rng, long_ways):
    indices, values = rng.integers(0, 40, 3000), rng.integers(1, 9, 3000, np.int32)
    dest = cl_array.zeros(queue, 40, np.int32)
    given = cl_array.to_device(queue, indices), cl_array.to_device(queue, values)
    expected = np.zeros(40, np.int32)
    np.maximum.at(expected, indices, values)
    for op in (np.add, np.add, np.add, np.maximum, np.maximum):
        reduce_by_index(dest, op, *given)
    np.testing.assert_array_equal(reduce_by_index(dest, np.maximum, *given).get(), expected)
    np.testing.assert_array_equal(reduce_by_index(dest, np.maximum, *given, passes=2).get(), expected)
    with pytest.raises(TypeError, match="max_abs: expected none"):
        reduce_by_index(dest, np.maximum, *given, max_abs=1.0)
    with pytest.raises(ValueError, match=r"out: expected shape \(40,\), got \(39,\)"):
        reduce_by_index(dest, np.maximum, *given, out=cl_array.zeros(queue, 39, np.int32))
    given[1].dtype = np.dtype(np.float32)
    with pytest.raises(TypeError, match="values: expected what converts to int32 of dest, got float32"):
        reduce_by_index(dest, np.maximum, *given)
    given[1].dtype = np.dtype(np.uint32)
    np.testing.assert_array_equal(reduce_by_index(dest, np.maximum, *given).get(), expected)


def test_options_are_recognised_by_their_values(queue, rng, long_ways):
    n, made = 3000, []
    indices, values = rng.integers(0, 40, n), rng.integers(1, 9, n, np.int32)
    given = cl_array.to_device(queue, indices), cl_array.to_device(queue, values)
    whole = np.bincount(indices, values, 40).astype(np.int32)
    for options in ({"update": "gather"}, {"passes": 2}, {"passes": 1}, {"passes": True}, {"race_factor": 3.0}):
        before = len(long_ways)
        for _ in range(4):
            np.testing.assert_array_equal(reduce_by_index(40, "sum", *given, **options).get(), whole)
        assert len(long_ways) == before + 1
    for error, wrong in (
        (TypeError, {"passes": 1.0}),
        (TypeError, {"passes": [1]}),
        (ValueError, {"passes": 0}),
        (MemoryError, {"memory_budget": 1}),
        (TypeError, {"copy": 1}),
        (TypeError, {"race_factor": "twice"}),
    ):
        with pytest.raises(error, match=next(iter(wrong))):
            reduce_by_index(40, "sum", *given, **wrong)
    before = len(long_ways)
    for k in range(4):  # what belongs to one call
        options = {"allocator": lambda size: made.append(size) or cl.Buffer(queue.context, 1, size)}
        event = cl.UserEvent(queue.context)
        event.set_status(cl.command_execution_status.COMPLETE)
        result = reduce_by_index(40, "sum", *given, wait_for=[event], return_event=k % 2 == 1, **options)
        np.testing.assert_array_equal((result[0] if k % 2 else result).get(), whole)
        assert k % 2 == 0 or isinstance(result[1], cl.Event)
    assert len(long_ways) == before + 1
    assert len(made) >= 4


def test_offsets_are_recognised_by_their_content(kernel, data, checks, queue, long_ways):
    host, offsets = data.get(), np.array([0, 10, 10_000])
    for last in (10_000, 10_000, 10_000, 7, 5000, 10_000):
        offsets[1] = last
        want = [counts_of(host[:last], 50), counts_of(host[last:], 50)]
        np.testing.assert_array_equal(kernel(data, 1, num_bins=50, offsets=offsets).get(), want)
        on_device = cl_array.to_device(queue, offsets)
        for given in (offsets, on_device, [*map(int, offsets)]):
            np.testing.assert_array_equal(reduce_by_index((2, 50), "count", data, 1, offsets=given).get(), want)
    assert len(checks) == 3
    rows = data.reshape(2, 5000)
    for batched in (True, True, True, False):
        found = reduce_by_index((2, 50) if batched else 50, "count", rows, 1, batched=batched).get()
        want = [counts_of(each, 50) for each in host.reshape(2, 5000)]
        np.testing.assert_array_equal(found, want if batched else sum(want))
    assert len(long_ways) == 3 + 6 + 3 + 2


@pytest.mark.parametrize("max_abs", [None, 8.0])
def test_reproducible_calls_of_kernels_are_recognised(max_abs, queue, rng):
    x = rng.random(3000, np.float32)
    kernel = HistogramKernel(None, operators.add(np.float32), arguments="const float *x", map="EMIT(i % 3, x[i])")
    for n in (3000, 3000, 3000, 1500):
        given = cl_array.to_device(queue, x[:n])
        found = kernel(given, num_bins=3, reproducible=True, max_abs=max_abs).get()
        sums = [math.fsum(x[k:n:3].tolist()) for k in range(3)]
        np.testing.assert_allclose(found, np.array(sums, np.float32), rtol=0 if max_abs is None else 1e-6)


@pytest.mark.parametrize("kind", ["device", "host"])
def test_zeros_have_signs(kind, queue):
    x = np.zeros(3, np.int32)
    if kind == "device":
        x = cl_array.to_device(queue, x)
    kernel = HistogramKernel(
        None, operators.add(np.float32), arguments="const int *x, float s", map="EMIT(x[i], copysign(1.0f, s))"
    )
    for s in (0.0, 0.0, 0.0, -0.0, -0.0, np.float32(0), np.float32(-0.0), 0):
        found = kernel(x, s, num_bins=1)
        assert (found.get() if kind == "device" else found) == [np.copysign(3, s)]
