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
