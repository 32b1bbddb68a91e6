"""Calls on NumPy arrays that are alike: nothing of a call before stays in the next."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from repeats import N

import clhist
from clhist import HistogramKernel, operators
from clhist._core.opencl.device import default_device
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("without_optimizer")


def test_places_and_gaps(kernel, rng, checks):
    """Arrays at addresses that suit no wide loads, those with gaps, of the other byte order, and read-only ones."""
    room = rng.integers(-2, 52, 2 * N + 8, np.int32)
    for _ in range(3):
        for x in (
            room[:N],
            room[1 : N + 1],
            room[3 : N + 3],
            room[: 2 * N : 2],
            room[:N].astype(">i4"),
            room[N::-1][:N],
        ):
            x.flags.writeable = False
            np.testing.assert_array_equal(kernel(x, 1, num_bins=50), counts_of(x, 50))
    raw = np.frombuffer(bytes(1) + room[:N].tobytes(), np.int32, N, 1)  # at an odd address
    for _ in range(2):
        np.testing.assert_array_equal(kernel(raw, 1, num_bins=50), counts_of(room[:N], 50))


def test_dest_and_out(kernel, rng):
    """Their places are those of each call: apart, the same array, overlapping, read-only, of another dtype."""
    x = rng.integers(-2, 52, N, np.int32)
    want, room = counts_of(x, 50), np.zeros(120, np.int32)
    for _ in range(3):
        both = room[20:70]
        for dest, out in ((room[:50], room[50:100]), (room[10:60], room[:50]), (room[:50], room[:50]), (both, both)):
            room[:] = np.arange(120)
            before = dest.copy()
            assert kernel(x, 1, num_bins=50, dest=dest, out=out) is out
            np.testing.assert_array_equal(out, want + before)
        fixed = np.zeros(50, np.int32)
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="out: expected an array that can be written"):
            kernel(x, 1, num_bins=50, out=fixed)
        np.testing.assert_array_equal(kernel(x, 1, num_bins=50, dest=fixed), want)
        with pytest.raises(TypeError, match="out: expected an array of int32"):
            kernel(x, 1, num_bins=50, out=np.zeros(50, np.int64))


def test_ranges_are_checked_each_time():
    """Values that an operator cannot take are found in a repeated call as in the first."""
    total = operators.reproducible_add(np.float32, 10.0, count=4 * N)
    kernel = HistogramKernel(None, total, arguments="const float *x", map="EMIT(0, x[i])")
    x = np.ones(N, np.float32)
    for _ in range(3):
        assert kernel(x, num_bins=1)[0] == N
    x[5] = 1e6
    with pytest.raises(OverflowError):
        kernel(x, num_bins=1)
    x[5] = 1
    assert kernel(x, num_bins=1)[0] == N


def test_another_default_device(queue):
    """Its context is another one."""
    x = np.arange(2**15) % 7
    for _ in range(3):
        np.testing.assert_array_equal(clhist.bincount(x), np.bincount(x))
        with default_device(queue.device):
            np.testing.assert_array_equal(clhist.bincount(x), np.bincount(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_histograms_of_one_value_and_of_none(dtype, queue):
    where = np.ones(N, np.bool_)
    for value, which in ((3, False), (3, True), (3, True), (4, True), (3, False), (0, True)):
        x = np.full(N, value, dtype)
        where[:] = which
        for _ in range(2):
            counts, edges = clhist.histogram(x, 5, where=where, queue=queue)
            expected, expected_edges = np.histogram(x[where], 5)
            np.testing.assert_array_equal(counts, expected)
            np.testing.assert_array_equal(edges, expected_edges)


def test_histograms_with_something_else(numbers, queue, rng):
    """Weights, conditions, densities, edges that are changed in place, arrays with gaps or of the other byte order."""
    x, w = np.nan_to_num(numbers[0], neginf=0).astype(np.float64), rng.random(N)
    edges, out = np.array([0.0, 0.3, 1.0]), np.zeros(10, np.intp)
    for k in range(4):
        edges[1] = 0.1 * (k + 1)
        inside = x > 0.2 * k
        for given in (x, x.astype(np.float32), x.astype(">f8"), np.repeat(x, 2)[::2], x[:-1], x[1:]):
            more = w[: len(given)]
            np.testing.assert_array_equal(clhist.histogram(given, edges, queue=queue)[0], np.histogram(given, edges)[0])
            found, _ = clhist.histogram(given, 10, (0, 1), weights=more, queue=queue)
            np.testing.assert_allclose(found, np.histogram(given, 10, (0, 1), weights=more)[0], rtol=1e-13)
            found, _ = clhist.histogram(given, 10, (0, 1), density=True, queue=queue)
            np.testing.assert_array_equal(found, np.histogram(given, 10, (0, 1), density=True)[0])
            found, _ = clhist.histogram(given, 10, (0, 1), where=inside[: len(given)], queue=queue)
            np.testing.assert_array_equal(found, np.histogram(given[inside[: len(given)]], 10, (0, 1))[0])
            found, _ = clhist.histogram(given, 10, (-0.0, 1), out=out, queue=queue)
            assert found is out
            np.testing.assert_array_equal(out, np.histogram(given, 10, (0, 1))[0])


def test_counts_of_other_content(rng, checks, queue):
    for k in range(8):
        x = rng.integers(0, 40 + k % 2, 2**15)
        np.testing.assert_array_equal(clhist.bincount(x, queue=queue), np.bincount(x))
    x[100] = -1
    with pytest.raises(ValueError, match="negative"):
        clhist.bincount(x, queue=queue)
    x[100] = 1000
    np.testing.assert_array_equal(clhist.bincount(x, queue=queue), np.bincount(x))
    assert len(checks) <= 6


def test_nothing_is_kept_alive(kernel, queue, rng):
    x, y, out = rng.integers(0, 50, N, np.int32), rng.random(N), np.zeros(50, np.int32)
    for _ in range(3):
        kernel(x, 1, num_bins=50, out=out)
        clhist.histogram(y, 10, queue=queue)
        clhist.bincount(x, queue=queue)
    seen = [weakref.ref(each) for each in (x, y, out)]
    del x, y, out
    gc.collect()
    assert [each() for each in seen] == [None] * 3


def test_threads(kernel, rng, queue):
    given = [rng.integers(0, 50, N, np.int32) for _ in range(4)]

    def work(n):
        x = given[n % 4]
        for step in range(1, 6):
            np.testing.assert_array_equal(kernel(x, step, num_bins=50), step * counts_of(x, 50))
            np.testing.assert_array_equal(
                clhist.histogram(x, 10, (0, 50), queue=queue)[0], np.histogram(x, 10, (0, 50))[0]
            )

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(16)))


def test_after_an_interruption(kernel, rng, monkeypatch):
    """What failed half way leaves nothing behind."""
    from clhist._core.runtime import launcher

    x = rng.integers(0, 50, N, np.int32)
    want = counts_of(x, 50)
    kernel(x, 1, num_bins=50)
    original = launcher._Command.run
    for error in (KeyboardInterrupt, MemoryError):

        def fails(self, *args, error=error):
            original(self, *args)
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(launcher._Command, "run", fails)
            with pytest.raises(error):
                kernel(x, 3, num_bins=50)
        np.testing.assert_array_equal(kernel(x, 1, num_bins=50), want)
        np.testing.assert_array_equal(kernel(x, 3, num_bins=50), 3 * want)
