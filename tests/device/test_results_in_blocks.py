"""Small results of NumPy arrays come through blocks of memory that kernels and the host see alike, on CPUs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import clhist
from clhist import HistogramKernel, operators
from clhist._core.opencl import operands
from clhist._core.opencl.operands import FETCHED_BYTES, blocks_of
from clhist.selftest.reference import counts_of

pytestmark = pytest.mark.usefixtures("without_optimizer")

MOST = FETCHED_BYTES // 4  # bins of int32 that a block has room for
N = 20_000


@pytest.fixture(scope="module")
def counting():
    return HistogramKernel(None, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)")


@pytest.mark.parametrize("bins", [1, 7, MOST - 1, MOST, MOST + 1])
def test_sizes(counting, bins, rng):
    """Results that just fit into a block, and that just do not; new ones, with `dest`, and in place."""
    x = rng.integers(-1, bins + 1, N, np.int32)
    want, dest, both = counts_of(x, bins), np.arange(bins, dtype=np.int32), np.full(bins, 3, np.int32)
    first = counting(x, num_bins=bins)
    np.testing.assert_array_equal(counting(x, num_bins=bins, dest=dest), want + np.arange(bins))
    assert counting(x, num_bins=bins, dest=both, out=both) is both
    np.testing.assert_array_equal(both, want + 3)
    np.testing.assert_array_equal(dest, np.arange(bins))
    np.testing.assert_array_equal(first, want)  # which no later call has changed


def test_places(counting, rng):
    """An `out` between other elements, at an address that suits no device: its neighbours stay."""
    x, room = rng.integers(0, 50, N, np.int32), np.full(60, -1, np.int32)
    assert counting(x, num_bins=50, out=room[3:53]).base is room
    np.testing.assert_array_equal(room, np.r_[np.full(3, -1), counts_of(x, 50), np.full(7, -1)])


def test_threads(counting, rng):
    """Calls of several threads at a time have blocks of their own."""
    each = [rng.integers(0, 50, N, np.int32) for _ in range(24)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda x: counting(x, num_bins=50), each * 2))
    for x, result in zip(each * 2, results, strict=True):
        np.testing.assert_array_equal(result, counts_of(x, 50))


def test_structs_and_several(rng):
    """Results of other types, and several of a call."""
    index, value = rng.integers(0, 90, N), rng.random(N)
    best = clhist.reduce_by_index(90, "argmax", index, value)
    for k in (0, 41, 89):
        at = np.flatnonzero(index == k)
        assert best["index"][k] == at[value[at].argmax()]
    table = clhist.group_by(index, 90).agg(x=(value, "min", "max", "count"))["x"]
    np.testing.assert_array_equal(table["count"], np.bincount(index, minlength=90))
    np.testing.assert_array_equal(table["max"], [value[index == k].max() for k in range(90)])


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_after_an_exception(counting, monkeypatch, rng, error):
    """A block that a call did not give back is not taken by the next."""
    x = rng.integers(0, 50, N, np.int32)
    want = counting(x, num_bins=50)
    if (blocks := blocks_of(counting.context)) is None:
        pytest.skip("this device has no memory that the host sees while kernels run")
    taken = []

    def interrupted(block):
        taken.append(block)
        raise error

    monkeypatch.setattr(blocks, "give", interrupted)
    with pytest.raises(error):
        counting(x, num_bins=50)
    monkeypatch.undo()
    np.testing.assert_array_equal(counting(x, num_bins=50), want)
    assert len(taken) == 1
    assert taken[0] not in blocks._idle


def test_devices_without(counting, monkeypatch, rng):
    """Where there is no such memory results are fetched or mapped, and are the same."""
    x = rng.integers(0, 50, N, np.int32)
    want = counting(x, num_bins=50)
    monkeypatch.setattr(operands, "shares_memory", lambda device: False)
    assert blocks_of.__wrapped__(counting.context) is None
    monkeypatch.undo()
    monkeypatch.setattr("clhist._core.runtime.launcher.blocks_of", lambda context: None)
    other = HistogramKernel(None, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)")
    clhist.clear_caches()
    np.testing.assert_array_equal(other(x, num_bins=50), want)
