"""Functions and fillers that are called again with device arrays alike: nothing of a call before stays in the next."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from repeats import N, given

import clhist

pytestmark = pytest.mark.usefixtures("without_optimizer")


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
    dest = cl_array.zeros(queue, 10, np.float32)
    keys = cl_array.zeros(queue, N, np.int32)
    for _ in range(4):
        clhist.histogram(x, 10, (0, 1), weights=w)[0].get()
        clhist.reduce_by_index(dest, np.add, keys, w).get()
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


def test_reproducible_sums_of_complex_numbers_in_turns(queue, rng):
    indices = rng.integers(0, 8, N)
    on_device = cl_array.to_device(queue, indices)
    for _ in range(4):
        values = rng.random(N) + 1j * rng.random(N)
        found = clhist.reduce_by_index(8, "sum", on_device, cl_array.to_device(queue, values), reproducible=True)
        expected = np.bincount(indices, values.real, 8) + 1j * np.bincount(indices, values.imag, 8)
        np.testing.assert_allclose(found.get(), expected, rtol=1e-12)
