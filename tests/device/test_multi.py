"""Several devices: chunks go to whichever is free, and what one fails at to another; two contexts stand for devices."""

from __future__ import annotations

import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from streams import SUM

import clhist
from clhist import Accumulator, HistogramKernel, MultiAccumulator, Operator, operators
from clhist.errors import DeviceLostError
from clhist.selftest.cases import random_values
from clhist.selftest.reference import groups_of

pytestmark = pytest.mark.usefixtures("without_optimizer")


@pytest.fixture
def queues(queue, other_queue):
    return [queue, other_queue]


@pytest.fixture
def pairs(rng):
    """Return indices, some of which do not exist, values, and the sums of 40 bins."""
    indices, values = rng.integers(-3, 45, 30_001), rng.integers(-99, 99, 30_001)
    return indices, values, np.array([sum(group) for group in groups_of(indices, values, 40)])


@pytest.fixture
def shares(monkeypatch):
    """How many elements each queue computed, and what makes one fail: ``fail[queue]`` pieces later.

    Where one is to fail, the other waits for that: however fast it is, it does not do all the work before.
    """
    seen, fail, original, failed = {}, {}, Accumulator._continue, threading.Event()

    def spy(self, engine, given, size):
        if self.queue in fail:
            fail[self.queue] -= 1
            if fail[self.queue] < 0:
                failed.set()
                raise cl.RuntimeError("the device caught fire")
        elif fail:
            assert failed.wait(60), "the other queue got no work"
        seen[self.queue] = seen.get(self.queue, 0) + size
        return original(self, engine, given, size)

    monkeypatch.setattr(Accumulator, "_continue", spy)
    return seen, fail


@pytest.fixture
def no_queue_does_all(shares, monkeypatch):
    """Let the queues wait with their first pieces until each has one."""
    begun, both, counting = set(), threading.Barrier(2), Accumulator._continue

    def spy(self, engine, given, size):
        if self.queue not in begun:
            begun.add(self.queue)
            both.wait(60)
        return counting(self, engine, given, size)

    monkeypatch.setattr(Accumulator, "_continue", spy)


@pytest.mark.usefixtures("no_queue_does_all")
def test_sums(queues, pairs, shares):
    indices, values, expected = pairs
    accumulator = MultiAccumulator(SUM, 40, queues=queues, chunk_bytes=4096, dest=np.arange(40))
    for _ in range(3):
        accumulator.add(indices, values)
    accumulator.add(indices[:0], values[:0])
    np.testing.assert_array_equal(accumulator.result(), 3 * expected + np.arange(40), strict=True)
    assert accumulator.size == sum(shares[0].values()) == 90_003
    assert set(shares[0]) == set(queues)


@pytest.mark.slow
def test_positions_and_several_histograms(queues, rng):
    code = "EMIT_best(k[i], ((value_best_t){x[i], first + i})); EMIT_n(k[i], 1)"
    kernel = HistogramKernel(
        queues[0].context,
        {"best": operators.argmax(np.float32, np.int64), "n": operators.count()},
        arguments="const int *k, const float *x, long first",
        map=code,
    )
    k, x = rng.integers(0, 7, 20_000, np.int32), random_values(rng, 20_000, np.float32)
    accumulator = MultiAccumulator(kernel, 7, queues=queues, chunk_bytes=4096, first_index="first", start=5)
    accumulator.extend(each for each in zip(np.array_split(k, 3), np.array_split(x, 3), strict=True))
    found = accumulator.result()
    groups = [np.flatnonzero(k == g) for g in range(7)]
    assert found["best"]["index"].tolist() == [int(g[x[g].argmax()]) + 5 for g in groups]
    assert found["n"].tolist() == [len(g) for g in groups]
    assert accumulator.partial().positions == ((5, 20_005),)


@pytest.mark.parametrize("after", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_a_device_that_fails_is_left_out_and_nothing_is_lost_or_counted_twice(after, queues, pairs, shares):
    indices, values, expected = pairs
    shares[1][queues[1]] = after
    accumulator = MultiAccumulator(SUM, 40, queues=queues, chunk_bytes=4096, start=0)
    with pytest.warns(RuntimeWarning, match=r"failed and is not used any more; 1 other device did its work: .*fire"):
        accumulator.extend([(indices, values)] * 4)
    np.testing.assert_array_equal(accumulator.result(), 4 * expected, strict=True)
    assert accumulator.partial().positions == ((0, 4 * 30_001),)
    assert len(accumulator.failed) == 1
    accumulator.add(indices, values)  # by the other one
    np.testing.assert_array_equal(accumulator.result(), 5 * expected, strict=True)


def test_arrays_on_a_device_that_failed_are_refused_and_its_bins_are_not_counted_again(queues, pairs, shares):
    indices, values, expected = pairs
    shares[1][queues[1]] = 2
    accumulator = MultiAccumulator(SUM, 40, queues=queues, chunk_bytes=4096)
    with pytest.warns(RuntimeWarning, match="failed and is not used any more"):
        accumulator.add(indices, values)
    shares[1].clear()
    for _ in range(2):
        with pytest.raises(cl.RuntimeError, match="fire"):
            accumulator.add(*(cl_array.to_device(queues[1], array) for array in (indices, values)))
        accumulator.add(*(cl_array.to_device(queues[0], array) for array in (indices, values)))
    np.testing.assert_array_equal(accumulator.result(), 3 * expected, strict=True)
    assert accumulator.size == 3 * 30_001


def test_a_first_device_that_is_lost_leaves_the_others(queues, pairs, shares, monkeypatch):
    indices, values, expected = pairs
    shares[1][queues[0]] = 0
    accumulator, checked = MultiAccumulator(SUM, 40, queues=queues), Accumulator.piece
    with pytest.warns(RuntimeWarning, match="failed and is not used any more"):
        accumulator.extend([(indices, values)] * 4)

    def piece(self, *args):
        if self.queue is queues[0] and type(self) is Accumulator:
            raise DeviceLostError("each use of a lost device raises this")
        return checked(self, *args)

    monkeypatch.setattr(Accumulator, "piece", piece)
    accumulator.add(indices, values)
    np.testing.assert_array_equal(accumulator.result(), 5 * expected, strict=True)


def test_the_last_device_raises_and_what_was_finished_stays(queues, pairs, shares):
    indices, values, expected = pairs
    accumulator = MultiAccumulator(SUM, 40, queues=queues, chunk_bytes=1 << 20)
    accumulator.add(indices, values)
    shares[1].update(dict.fromkeys(queues, 0))
    with pytest.raises(cl.RuntimeError, match="fire"):
        accumulator.add(indices, values)
    assert accumulator.size == 30_001
    np.testing.assert_array_equal(accumulator.result(), expected, strict=True)
    with pytest.raises(cl.RuntimeError, match="fire"):
        accumulator.add(indices, values)


@pytest.mark.parametrize("number", [1, 2])
def test_what_came_before_an_iterable_raises_stays(number, queues, pairs):
    indices, values, expected = pairs

    def chunks():
        for _ in range(3):
            yield indices, values
        raise OSError("disk")

    accumulator = MultiAccumulator(SUM, 40, queues=queues[:number], chunk_bytes=4096)
    with pytest.raises(OSError, match="disk"):
        accumulator.extend(chunks())
    with pytest.raises(TypeError, match=r"^indices"):
        accumulator.extend([(indices, values), (indices.astype(float), values), (indices, values)])
    assert accumulator.size == 4 * 30_001
    np.testing.assert_array_equal(accumulator.result(), 4 * expected, strict=True)


def test_device_arrays_go_where_they_are(queues, pairs, shares):
    indices, values, expected = pairs
    accumulator = MultiAccumulator(SUM, 40, queues=queues)
    accumulator.extend(tuple(cl_array.to_device(queue, array) for array in (indices, values)) for queue in queues)
    np.testing.assert_array_equal(accumulator.result(), 2 * expected, strict=True)
    assert shares[0] == dict.fromkeys(queues, 30_001)
    context = cl.Context([queues[0].device])
    elsewhere = cl.CommandQueue(context)
    with pytest.raises(ValueError, match=r"^indices: expected an array of the context"):
        accumulator.add(*(cl_array.to_device(elsewhere, array) for array in (indices, values)))
    assert accumulator.size == 60_002


@pytest.mark.slow
def test_what_an_iterator_raises_leaves_what_came_before(queues, pairs):
    indices, values, expected = pairs
    accumulator = MultiAccumulator(SUM, 40, queues=queues, chunk_bytes=4096)

    def chunks():
        yield indices, values
        raise KeyError("no more")

    with pytest.raises(KeyError):
        accumulator.extend(chunks())
    parts = accumulator.partial()
    assert 0 < parts.size == accumulator.size <= 30_001
    with pytest.raises(TypeError, match=r"^indices: expected integers, got float64"):
        accumulator.extend([(indices, values), (values / 2, values)])
    accumulator = MultiAccumulator(SUM, 40, queues=queues)
    with pytest.raises(TypeError):
        accumulator.add(values / 2, values)
    accumulator.add(indices, values)
    np.testing.assert_array_equal(accumulator.result(), expected)


@pytest.mark.slow
def test_progress(queues, pairs):
    seen = []
    accumulator = MultiAccumulator(SUM, 40, queues=queues, chunk_bytes=65536)
    accumulator.extend([pairs[:2]] * 2, total=60_002, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (60_002, 60_002)
    assert seen == sorted(seen)
    with pytest.raises(TypeError, match=r"^progress: "):
        accumulator.extend([], progress=3)


def test_merge_of_what_is_no_accumulator(queues):
    accumulator = MultiAccumulator(SUM, 40, queues=queues)
    with pytest.raises(TypeError, match=r"^other: expected an Accumulator or a clhist\.Partial, got int"):
        accumulator.merge(5)


@pytest.mark.slow
def test_merge_and_devices(queues, pairs):
    indices, values, expected = pairs
    accumulator = MultiAccumulator(SUM, 40)
    accumulator.add(indices, values)
    other = MultiAccumulator(SUM, 40, devices=[queues[0].device])
    other.add(indices, values)
    before = other.partial()
    accumulator.merge(other)
    accumulator.merge(Accumulator(SUM, 40, dest=np.ones(40, np.int64)))
    np.testing.assert_array_equal(accumulator.result(), 2 * expected + 1)
    other.add(indices, values)
    np.testing.assert_array_equal(before.accumulators, expected)  # which later additions leave as it is
    for given, error, message in (
        ("some", ValueError, "devices: expected 'all'"),
        (3, TypeError, "devices: expected 'all'"),
        ([], ValueError, "devices: expected at least one"),
        ([3], TypeError, "devices: expected pyopencl.Device"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            MultiAccumulator(SUM, 40, devices=given)
    with pytest.raises(TypeError, match=r"^devices: expected none beside queues, got 'all'$"):
        MultiAccumulator(SUM, 40, devices="all", queues=queues)
    assert repr(accumulator).startswith("<MultiAccumulator <Operator add on int64")


def test_several_devices_take_what_a_function_has_for_defaults(rng):
    x = rng.integers(0, 40, 5000)
    np.testing.assert_array_equal(clhist.bincount(x, devices="all"), np.bincount(x))
    np.testing.assert_array_equal(clhist.histogram(x, devices="all")[0], np.histogram(x)[0])


@pytest.mark.parametrize("on_device", [False, True])
def test_more_values_than_the_operator_takes_are_refused(on_device, queues):
    few = Operator(np.int8, "a + b", 0, "few", most_values=8)
    stream = MultiAccumulator(few, 4, queues=queues)

    def chunk(number, size):
        arrays = np.arange(size) % 4, np.ones(size, np.int8)
        return tuple(cl_array.to_device(queues[number], array) for array in arrays) if on_device else arrays

    stream.add(*chunk(0, 6))
    for number in (0, 1):
        with pytest.raises(OverflowError, match=r"^size: expected at most 8 values for few, got 9"):
            stream.add(*chunk(number, 3))
    assert stream.add(*chunk(1, 2)).result().tolist() == [3, 3, 1, 1]
    with pytest.raises(OverflowError, match="expected at most 8 values for few"):
        stream.extend(chunk(0, 1) for _ in range(5))
    assert stream.result().tolist() == [3, 3, 1, 1]


@pytest.mark.usefixtures("no_queue_does_all")
def test_pieces_that_exceed_the_limit_together(queues):
    """Pieces of an iterable are drawn before earlier ones are collected: only the sum of both devices is too large."""
    few = Operator(np.int8, "a + b", 0, "few", most_values=5)
    stream = MultiAccumulator(few, 4, queues=queues)
    with pytest.raises(OverflowError, match="expected at most 5 values for few"):
        stream.extend((np.arange(3), np.ones(3, np.int8)) for _ in range(2))
    assert stream.result().tolist() == [1, 1, 1, 0]
    assert stream.add(np.array([3, 3]), np.ones(2, np.int8)).result().tolist() == [1, 1, 1, 2]
