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


CHANGES_OF_STATISTICS = [
    {"statistic": "sum"},
    {"statistic": ["std", "mean"]},
    {"statistic": ["mean"]},
    {"statistic": np.max},
    {"statistic": "quantile", "q": 0.25},
    {"bins": 7},
    {"bins": [0, 0.3, 1]},
    {"range": (0.0, 2)},
    {"range": None},
    {"values": (2, N)},
    {"values": None, "statistic": "count"},
    {"where": 0},
    {"reproducible": True},
    {"binnumber": False},
    {"queue": 0},
    {"on_device": False},
]


# The text of a function has its address, in which workers differ.
@pytest.mark.parametrize("change", CHANGES_OF_STATISTICS, ids=lambda change: str(change).partition(" at ")[0])
def test_statistics_with_something_else(change, queue, rng):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    change = {"on_device": True, "values": (N,), "where": None, **change}
    on_device, shape, is_masked = (change.pop(name) for name in ("on_device", "values", "where"))
    arguments = {"statistic": "mean", "bins": 10, "range": (0.0, 1.0)} | change
    plain = {name: arguments[name] for name in ("statistic", "bins", "range")}
    if "q" in arguments:
        plain["statistic"] = lambda values: np.quantile(values, 0.25)
    if "queue" in arguments:
        arguments["queue"] = cl.CommandQueue(queue.context)
    for _ in range(3):
        usual = [cl_array.to_device(queue, rng.random(N)) for _ in range(2)]
        clhist.stats.binned_statistic(*usual, "mean", 10, (0.0, 1.0))
        x, values = rng.random(N), None if shape is None else rng.integers(-9, 9, shape).astype(float)
        where = None if is_masked is None else rng.random(N) < 0.5
        arrays = [one if one is None or not on_device else cl_array.to_device(queue, one) for one in (x, values, where)]
        options = {"queue": queue, "where": arrays[2], **arguments}
        result = clhist.stats.binned_statistic(*arrays[:2], **options)
        chosen = slice(None) if where is None else where
        of_values = np.zeros(N) if values is None else values
        several = arguments["statistic"] if isinstance(arguments["statistic"], list) else [plain["statistic"]]
        parts = result.statistic.values() if isinstance(result.statistic, dict) else [result.statistic]
        for one, part in zip(several, parts, strict=True):
            expected = stats.binned_statistic(x[chosen], of_values[..., chosen], **(plain | {"statistic": one}))
            part = part.get() if on_device else part
            np.testing.assert_allclose(part, expected.statistic, rtol=1e-12)
            np.testing.assert_array_equal(result.bin_edges, expected.bin_edges)
        assert (result.binnumber is None) == (not arguments.get("binnumber", True))
        if result.binnumber is not None and where is None:
            np.testing.assert_array_equal(result.binnumber.get() if on_device else result.binnumber, expected.binnumber)
        result.bin_edges[:] = 0  # which no later call may see


def test_rows_of_values_at_any_address(queue, rng):
    for size in (N, N - 1, N + 3):
        for on_device in (False, True):
            for skip in (0, 1, 0):
                x, values = rng.random(size), rng.integers(-9, 9, (5, size)).astype(np.float32)
                wide = np.concatenate([np.zeros(skip, np.float32), values.ravel()])
                y = (cl_array.to_device(queue, wide) if on_device else wide)[skip:].reshape(5, size)
                at = cl_array.to_device(queue, x) if on_device else x
                found = clhist.stats.binned_statistic(at, y, ["sum", "std"], [0.0, 0.5, 1.0], queue=queue).statistic
                sums, deviations = (part.get() if on_device else part for part in found.values())
                for inside, one, other in zip((x < 0.5, x >= 0.5), sums.T, deviations.T, strict=True):
                    np.testing.assert_array_equal(one, values[:, inside].sum(axis=1, dtype=float))
                    np.testing.assert_allclose(other, values[:, inside].std(axis=1, dtype=float), rtol=1e-12)


def test_points_of_repeated_statistics_have_to_be_finite(queue, rng):
    for on_device in (False, True):
        for range_ in (None, (0.0, 1.0)):
            x, values = rng.random(N), rng.random(N)

            def call(x, values, range_=range_, on_device=on_device):
                arrays = [cl_array.to_device(queue, one) for one in (x, values)] if on_device else (x, values)
                return clhist.stats.binned_statistic(*arrays, "mean", 5, range_, queue=queue)

            for _ in range(3):
                call(x, values)
            for wrong in (np.nan, np.inf):
                with pytest.raises(ValueError, match="contains non-finite values"):
                    call(np.append(x[1:], wrong), values)
            with pytest.raises(AttributeError, match="The number of `values` elements"):
                call(x, values[1:])
            call(x, values)


def test_edges_that_are_changed_in_place(queue, numbers):
    x, *_ = given(queue, numbers)
    edges, as_list = np.array([0.0, 0.3, 1.0]), [0.0, 0.3, 1.0]
    for k in range(6):
        for bins in (edges, as_list):
            bins[1] = 0.1 * (k // 2 + 1)
            expected, _ = np.histogram(numbers[0], bins)
            np.testing.assert_array_equal(clhist.histogram(x, bins)[0].get(), expected)
            counts = clhist.stats.binned_statistic(x, None, "count", bins).statistic
            np.testing.assert_array_equal(counts.get(), expected)


def test_nothing_of_a_call_is_kept_alive(queue, numbers):
    x, w, *_ = given(queue, numbers)
    dest = cl_array.zeros(queue, 10, np.float32)
    keys = cl_array.zeros(queue, N, np.int32)
    for _ in range(4):
        clhist.histogram(x, 10, (0, 1), weights=w)[0].get()
        clhist.stats.binned_statistic(x, w, ["std", "median"], [0.0, 0.5, 1.0]).statistic["median"].get()
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
            x, edges = cl_array.to_device(each, numbers[0]), np.linspace(0, 1, 11, dtype=np.float32)
            counts = clhist.stats.binned_statistic(x, None, "count", edges).statistic
            assert counts.context == each.context
            np.testing.assert_array_equal(counts.get(), np.histogram(numbers[0], edges)[0])


def test_threads(queue, numbers):
    columns = given(queue, numbers)
    expected = [np.histogram(each, 10, (0, 1))[0] for each in numbers]
    edges = np.linspace(0, 1, 11, dtype=np.float32)
    counts = [np.histogram(column, edges)[0] for column in numbers]
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    with np.errstate(all="ignore"):  # of infinities, which lie in no bin
        deviations = [stats.binned_statistic(column, column, "std", edges).statistic for column in numbers]

    def work(n):
        for _ in range(5):
            np.testing.assert_array_equal(clhist.histogram(columns[n % 4], 10, (0, 1))[0].get(), expected[n % 4])
            result = clhist.stats.binned_statistic(columns[n % 4], columns[n % 4], ["count", "std"], edges).statistic
            np.testing.assert_array_equal(result["count"].get(), counts[n % 4])
            np.testing.assert_allclose(result["std"].get(), deviations[n % 4], rtol=1e-9)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(16)))
