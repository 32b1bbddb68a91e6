"""Functions and fillers that are called again with device arrays alike: nothing of a call before stays in the next."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import boost_histogram as bh
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.engine.engine import Engine
from clhist.hist import Filler

N = 3001


@pytest.fixture
def checks(monkeypatch):
    """Return how often arguments of a map were checked."""
    found, original = [], Engine.check
    monkeypatch.setattr(Engine, "check", lambda *args: found.append(1) or original(*args))
    return found


@pytest.fixture
def numbers(rng):
    """Return arrays alike, with values on edges, outside, NaN."""
    found = [rng.normal(0.5, 0.4, N).astype(np.float32) for _ in range(4)]
    for k, each in enumerate(found):
        each[k : k + 5] = 0, 1, 0.5, np.nan, -np.inf
    return found


def given(queue, arrays):
    return [cl_array.to_device(queue, array) for array in arrays]


def test_histogram_of_arrays_in_turns(queue, numbers, checks):
    columns = given(queue, numbers)
    for n in range(9):
        counts, edges = clhist.histogram(columns[n % 3], 10, (0, 1))
        expected, expected_edges = np.histogram(numbers[n % 3], 10, (0, 1))
        np.testing.assert_array_equal(counts.get(), expected)
        np.testing.assert_array_equal(edges, expected_edges)
        edges[:] = 7  # they are the caller's
        counts.fill(-1)
    assert len(checks) <= 3
    columns[0][:] = 0.25
    assert clhist.histogram(columns[0], 10, (0, 1))[0].get()[2] == N


CHANGES = [
    {"bins": 11},
    {"bins": 10.5},
    {"range": (0.0, 1.0)},
    {"range": (-0.0, 1)},
    {"range": (0, 2)},
    {"range": None},
    {"bins": np.array([0.0, 0.3, 1.0])},
    {"bins": [0, 0.3, 1]},
    {"density": True},
    {"weights": 1},
    {"where": 0},
    {"axis": 0},
    {"queue": 0},
    {"out": 0},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_histogram_with_something_else(queue, numbers, rng, change):
    numbers[0] = np.nan_to_num(numbers[0], neginf=0)  # or there is no range
    x, *_ = given(queue, numbers)
    for _ in range(3):
        clhist.histogram(x, 10, (0, 1))
    asked = {"bins": 10, "range": (0, 1)} | change
    more, of_numpy = {}, numbers[0]
    if "weights" in change:
        more["weights"] = rng.random(N).astype(np.float32)
    if "where" in change:
        asked["where"] = cl_array.to_device(queue, (of_numpy > 0.4).astype(np.uint8))
        of_numpy = of_numpy[of_numpy > 0.4]
    if "queue" in change:
        asked["queue"] = cl.CommandQueue(queue.context)
    if "out" in change:
        asked["out"] = cl_array.zeros(queue, 10, np.intp)
    plain = {name: value for name, value in asked.items() if name not in ("where", "axis", "queue", "out", "weights")}
    on_device = {name: cl_array.to_device(queue, value) for name, value in more.items()}
    if isinstance(asked["bins"], float):
        with pytest.raises(TypeError):
            clhist.histogram(x, **asked)
        return
    for _ in range(3):
        counts, edges = clhist.histogram(x, **(asked | on_device))
        expected, expected_edges = np.histogram(of_numpy, **plain, **more)
        np.testing.assert_allclose(counts.get(), expected, rtol=1e-5 if more else 1e-15)
        np.testing.assert_array_equal(edges, expected_edges)
        assert "out" not in change or counts is asked["out"]


def test_edges_that_are_changed_in_place(queue, numbers):
    x, *_ = given(queue, numbers)
    edges, as_list = np.array([0.0, 0.3, 1.0]), [0.0, 0.3, 1.0]
    for k in range(6):
        for bins in (edges, as_list):
            bins[1] = 0.1 * (k // 2 + 1)
            expected, _ = np.histogram(numbers[0], bins)
            np.testing.assert_array_equal(clhist.histogram(x, bins)[0].get(), expected)


def test_other_dtypes_shapes_and_places(queue, numbers):
    (x, *_), whole = given(queue, numbers), np.concatenate(numbers)
    room = cl_array.to_device(queue, whole)
    for _ in range(3):
        for n in (0, 1, 2, 4):
            counts, _ = clhist.histogram(room[n : n + N], 10, (0, 1))
            np.testing.assert_array_equal(counts.get(), np.histogram(whole[n : n + N], 10, (0, 1))[0])
        double = x.astype(np.float64)
        np.testing.assert_array_equal(
            clhist.histogram(double, 10, (0, 1))[0].get(), np.histogram(numbers[0].astype(float), 10, (0, 1))[0]
        )
        rows = room.reshape(4, N)
        counts, _ = clhist.histogram(rows, 10, (0, 1), axis=1)
        expected = [np.histogram(row, 10, (0, 1))[0] for row in numbers]
        np.testing.assert_array_equal(counts.get(), expected)
        np.testing.assert_array_equal(clhist.histogram(rows, 10, (0, 1))[0].get(), np.sum(expected, axis=0))


def test_points(queue, numbers, checks):
    columns = given(queue, numbers)
    edges = [np.linspace(0, 1, 6), np.array([0, 0.2, 1])]
    for bins, ends in ((7, [(0, 1), (0, 1)]), (edges, None)):
        for n in range(6):
            x, y = n % 2, 2 + n % 2
            counts, *found = clhist.histogram2d(columns[x], columns[y], bins, ends)
            fine = ~np.isnan(numbers[x]) & ~np.isnan(numbers[y])
            expected, *expected_edges = np.histogram2d(numbers[x][fine], numbers[y][fine], bins, ends)
            np.testing.assert_array_equal(counts.get(), expected)
            for one, other in zip(found, expected_edges, strict=True):
                np.testing.assert_array_equal(one, other)
                one[:] = 3
    assert len(checks) <= 8


def test_nothing_of_a_call_is_kept_alive(queue, numbers):
    x, w, *_ = given(queue, numbers)
    filler = Filler(bh.Histogram(bh.axis.Regular(10, 0, 1), storage=bh.storage.Weight()))
    dest = cl_array.zeros(queue, 10, np.float32)
    keys = cl_array.zeros(queue, N, np.int32)
    for _ in range(4):
        clhist.histogram(x, 10, (0, 1), weights=w)[0].get()
        clhist.reduce_by_index(dest, np.add, keys, w).get()
        filler.fill(x, weight=w)
    seen = [weakref.ref(each) for each in (x, w, dest, keys)]
    queue.finish()
    del x, w, dest, keys, _
    gc.collect()
    assert [each() for each in seen] == [None] * 4


def test_another_context(queue, numbers):
    context = cl.Context([queue.device])
    other = cl.CommandQueue(context)
    for _ in range(3):
        for each in (queue, other):
            counts, _ = clhist.histogram(cl_array.to_device(each, numbers[0]), 10, (0, 1))
            assert counts.context == each.context
            np.testing.assert_array_equal(counts.get(), np.histogram(numbers[0], 10, (0, 1))[0])


def test_threads(queue, numbers):
    columns = given(queue, numbers)
    expected = [np.histogram(each, 10, (0, 1))[0] for each in numbers]

    def work(n):
        for _ in range(5):
            np.testing.assert_array_equal(clhist.histogram(columns[n % 4], 10, (0, 1))[0].get(), expected[n % 4])

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(16)))


# Fillers.

STORAGES = [bh.storage.Weight, bh.storage.Double, bh.storage.Int64, bh.storage.Mean]


def empty(storage):
    return bh.Histogram(bh.axis.Regular(10, 0, 1), bh.axis.Variable([0, 0.1, 0.5, 2]), storage=storage())


def assert_same(found, expected):
    one, other = found.view(flow=True), expected.view(flow=True)
    for name in one.dtype.names or (None,):
        np.testing.assert_allclose(one[name] if name else one, other[name] if name else other, rtol=1e-12)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda each: each.__name__)
def test_filler_of_arrays_that_are_gone(queue, numbers, storage, rng):
    """Sizes in turns, results in between, and weights of each kind."""
    filler, expected = Filler(empty(storage), queue=queue), empty(storage)
    for n in range(18):
        size = (N, N, 70, 1)[n % 4]
        x, y = (each[:size] for each in (numbers[n % 3], numbers[3]))
        w = rng.integers(1, 9, size).astype(np.float64)
        more = {"sample": w} if storage is bh.storage.Mean else [{"weight": w}, {"weight": 2}, {}][n // 4 % 3]
        expected.fill(x.astype(float), y.astype(float), **more)
        placed = {
            name: cl_array.to_device(queue, each) if isinstance(each, np.ndarray) else each
            for name, each in more.items()
        }
        filler.fill(*given(queue, (x, y)), **placed)
        if n in (6, 13):
            assert_same(filler.result(), expected)
    assert_same(filler.result(), expected)
    assert_same(Filler(empty(storage)).merge(filler).merge(filler).result(), expected + expected)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda each: each.__name__)
def test_fills_of_histograms_in_turns(queue, numbers, storage):
    """Some are gone when the next one comes, others have other axes."""
    x, y, w, _ = given(queue, np.nan_to_num(numbers, neginf=3))
    held = [(empty(storage), empty(storage)) for _ in range(2)]
    for n in range(12):
        found, expected = held[n % 2]
        if n % 5 == 4:
            axis = bh.axis.Regular(10 + n % 3, 0, 1)
            found, expected = held[n % 2] = [bh.Histogram(axis, axis, storage=storage()) for _ in range(2)]
        name = "sample" if storage is bh.storage.Mean else "weight"
        more = {} if storage is bh.storage.Int64 else {name: w}
        clhist.hist.fill(found, x, y, **more)
        expected.fill(x.get(), y.get(), **{name: each.get() for name, each in more.items()})
        assert_same(found, expected)
        found.reset()
        expected.reset()


def test_a_fill_is_enqueued_alone(queue, numbers, checks, monkeypatch):
    x, y, w, z = given(queue, np.nan_to_num(numbers, neginf=3))
    filler, expected = Filler(empty(bh.storage.Weight)), empty(bh.storage.Weight)
    for n in range(9):
        filler.fill((x, z)[n % 2], y, weight=w)
        expected.fill((x, z)[n % 2].get(), y.get(), weight=w.get())
    assert len(checks) <= 3  # the first, which has no sums to join, and two that join them
    with monkeypatch.context() as patch:
        patch.setattr("clhist.engine.replay.Replay.enqueue", _refuse)
        with pytest.raises(KeyboardInterrupt):
            filler.fill(x, y, weight=w)
    assert_same(filler.result(), expected)  # of what failed there is nothing


def _refuse(*args):
    raise KeyboardInterrupt


def test_filler_of_integers_looks_at_them(queue):
    """Whether a kernel takes them depends on what they are."""
    h = bh.Histogram(bh.axis.Integer(0, 5), storage=bh.storage.Int64())
    filler, expected = Filler(h, queue=queue), h.copy()
    for value in (1, 2, 3, 2**40, 4, -(2**40), 4):
        array = np.full(N, value)
        if abs(value) > 5:
            with pytest.raises(ValueError, match="32-bit"):
                filler.fill(cl_array.to_device(queue, array))
            continue
        filler.fill(cl_array.to_device(queue, array))
        expected.fill(array)
    assert_same(filler.result(), expected)


def test_filler_of_categories_that_grow(queue):
    h = bh.Histogram(bh.axis.IntCategory([], growth=True), storage=bh.storage.Weight())
    filler, expected = Filler(h, queue=queue), h.copy()
    for value in (1, 1, 1, 5, 1, 7):
        array, w = np.full(N, value, np.int32), np.full(N, 0.5)
        array[0] = 3
        filler.fill(cl_array.to_device(queue, array), weight=cl_array.to_device(queue, w))
        expected.fill(array, weight=w)
    assert list(filler.result().axes[0]) == list(expected.axes[0])
    assert_same(filler.result(), expected)


def test_filler_in_two_contexts(queue, numbers):
    context = cl.Context([queue.device])
    other = cl.CommandQueue(context)
    filler, expected = Filler(empty(bh.storage.Weight)), empty(bh.storage.Weight)
    for n in range(8):
        x, y, w, _ = given((queue, other)[n // 3 % 2], np.nan_to_num(numbers, neginf=3))
        filler.fill(x, y, weight=w)
        expected.fill(x.get(), y.get(), weight=w.get())
    assert_same(filler.result(), expected)
