"""Several threads at once: the same kernels, the same queue, and kernels that none of them has built yet."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from clhist import HistogramKernel, bincount, operators, reduce_by_index
from clhist.selftest.reference import counts_of

THREADS = 8
ROUNDS = 25


def at_once(work):
    """Run `work(k)` in as many threads, which all start together; raise what one of them raises."""
    barrier = Barrier(THREADS)

    def start(k):
        barrier.wait()
        work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(start, k) for k in range(THREADS)]:
            done.result()


@pytest.fixture(autouse=True)
def frequent_switches():
    """Let threads take turns after every few instructions, not after milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def kernel(profile):
    return HistogramKernel(
        None,
        operators.add(np.int32),
        arguments="const int *bins, int value",
        map="EMIT(bins[i], value)",
        profile=profile,
    )


def test_one_kernel_with_numpy_arrays(kernel):
    def work(k):
        rng = np.random.default_rng(k)
        for _ in range(ROUNDS):
            size, num_bins = rng.integers(1, 3000), int(rng.integers(1, 100))
            bins = rng.integers(0, num_bins, size, np.int32)
            np.testing.assert_array_equal(kernel(bins, k, num_bins=num_bins), k * counts_of(bins, num_bins))

    at_once(work)


@pytest.mark.parametrize("shared", [True, False], ids=["one queue", "a queue each"])
def test_one_kernel_with_device_arrays(kernel, shared, queue):
    def work(k):
        mine = queue if shared else cl.CommandQueue(queue.context)
        rng = np.random.default_rng(k)
        inputs = [rng.integers(0, 50 + k, 3000, np.int32) for _ in range(ROUNDS)]
        there = [cl_array.to_device(mine, bins) for bins in inputs]
        results = [kernel(bins, k, num_bins=50 + k, memory="global", copies=2) for bins in there]
        for bins, result in zip(inputs, results, strict=True):
            np.testing.assert_array_equal(result.get(), k * counts_of(bins, 50 + k))

    at_once(work)


def test_kernels_that_are_built_meanwhile():
    # No other test has this operator: all threads find it missing.
    def work(k):
        for dtype in (np.int16, np.uint32, np.int64):
            values = np.arange(3000).astype(dtype)
            result = reduce_by_index(np.zeros(7, dtype), "b | a", np.arange(3000) % 7, values)
            assert result.tolist() == [np.bitwise_or.reduce(values[r::7]) for r in range(7)]

    at_once(work)


def test_functions():
    def work(k):
        rng = np.random.default_rng(k)
        for _ in range(ROUNDS):
            x = rng.integers(0, 40 * k + 1, 2000)
            np.testing.assert_array_equal(bincount(x), np.bincount(x))
            np.testing.assert_array_equal(bincount(x, x), np.bincount(x, x))

    at_once(work)
