"""Fillers and fills that are repeated with device arrays alike: nothing of a call before stays in the next."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from repeats import N, given

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")

import clhist.hist  # noqa: E402
from clhist._core.runtime import launcher  # noqa: E402
from clhist.hist import Filler  # noqa: E402

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
    with pytest.raises(ValueError, match=r"^other: expected other entries.*allow_repeat=True"):
        Filler(empty(storage)).merge(filler).merge(pickle.loads(pickle.dumps(filler.partial())))
    assert_same(Filler(empty(storage)).merge(filler).merge(filler, allow_repeat=True).result(), expected + expected)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda each: each.__name__)
def test_filler_of_numpy_arrays_alike(queue, storage, rng):
    """Arrays are changed after each fill, and the content of those without dimensions counts."""
    filler, expected, room = Filler(empty(storage), queue=queue), empty(storage), np.empty((2, N))
    for n in range(12):
        room[:] = rng.random(room.shape)
        y = (room[1], np.array(n / 8), np.float64(n / 6))[n % 3]
        name = "sample" if storage is bh.storage.Mean else "weight"
        more = {name: (rng.integers(1, 9, N), np.array(n), 2)[n // 4]}
        filler.fill(room[0], y, **more)
        expected.fill(
            room[0], float(y) if np.ndim(y) == 0 else y, **{k: v if np.ndim(v) else int(v) for k, v in more.items()}
        )
        room[:] = -5
    assert_same(filler.result(), expected)


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


@pytest.mark.parametrize("storage", STORAGES, ids=lambda each: each.__name__)
def test_fills_of_numpy_arrays_alike(queue, storage, rng):
    found, expected, room = empty(storage), empty(storage), np.empty((2, N))
    for n in range(6):
        room[:] = rng.random(room.shape)
        more = {"sample": room[1]} if storage is bh.storage.Mean else {"weight": n}
        clhist.hist.fill(found, *room, queue=queue, **more)
        expected.fill(*room, **more)
    assert_same(found, expected)


def test_a_fill_is_enqueued_alone(queue, numbers, checks, monkeypatch):
    x, y, w, z = given(queue, np.nan_to_num(numbers, neginf=3))
    filler, expected = Filler(empty(bh.storage.Weight)), empty(bh.storage.Weight)
    for n in range(9):
        filler.fill((x, z)[n % 2], y, weight=w)
        expected.fill((x, z)[n % 2].get(), y.get(), weight=w.get())
    assert len(checks) <= 2  # the first, which has no sums to join, and one that joins them
    with monkeypatch.context() as patch:
        patch.setattr("clhist._core.runtime.launcher.OpenCLExecutable.run", _refuse)
        with pytest.raises(KeyboardInterrupt):
            filler.fill(x, y, weight=w)
    assert_same(filler.result(), expected)  # of what failed there is nothing


def test_a_fill_that_fails_before_its_first_launch_adds_nothing(queue, numbers, monkeypatch):
    """Sums of one array change in place: after a launch they may hold a part of the fill, and the filler refuses."""
    x, y, _, z = given(queue, np.nan_to_num(numbers, neginf=3))
    host, w = np.arange(len(numbers[0])) / 4, cl_array.to_device(queue, np.arange(len(numbers[0])) / 4)
    filler, expected = Filler(empty(bh.storage.Double), queue=queue), empty(bh.storage.Double)
    for n in range(5):
        filler.fill(y, z, weight=w)  # which the next one is joined to
        expected.fill(y.get(), z.get(), weight=host)
        with monkeypatch.context() as patch:
            patch.setattr("clhist._core.runtime.launcher.OpenCLExecutable.run", _refuse)
            with pytest.raises(KeyboardInterrupt):
                filler.fill((x, z)[n % 2], y, weight=w)
        assert_same(filler.fill(z, y, weight=w).result(), expected.fill(z.get(), y.get(), weight=host))
    filler.fill(x, y, weight=w)
    run = launcher._Command.run
    with monkeypatch.context() as patch:
        patch.setattr(launcher._Command, "run", lambda *args: _refuse(run(*args)))
        with pytest.raises(KeyboardInterrupt):
            filler.fill(x, y, weight=w)
    with pytest.raises(RuntimeError, match=r"^Filler: an exception, such as that of Ctrl-C, ended an earlier call"):
        filler.result()


def test_a_filler_counts_as_filled_once_it_is(queue, numbers):
    filler, other = Filler(empty(bh.storage.Int64)), Filler(empty(bh.storage.Int64))
    with pytest.raises(ValueError, match="compatible lengths"):
        filler.fill(numbers[0], numbers[1][:-1])
    assert other.merge(filler).merge(filler).result().sum(flow=True) == 0


def test_tables_of_a_filler_go_with_it(queue, uploaded):
    x = cl_array.to_device(queue, np.linspace(0, 1, 100))
    for n in range(70):
        ax = bh.axis.Variable(np.linspace(-n, 2, 1001) ** 3)
        filler = Filler(bh.Histogram(ax)).fill(x)
        assert filler.result().sum() == 100
    gc.collect()
    assert len(uploaded) >= 70
    assert len([each for each in uploaded if each() is not None]) <= 64 * len(uploaded) // 70


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


def test_nothing_of_a_fill_is_kept_alive(queue, numbers):
    x, w, *_ = given(queue, numbers)
    filler = Filler(bh.Histogram(bh.axis.Regular(10, 0, 1), storage=bh.storage.Weight()))
    for _ in range(4):
        filler.fill(x, weight=w)
    seen = [weakref.ref(each) for each in (x, w)]
    queue.finish()
    del x, w, _
    gc.collect()
    assert [each() for each in seen] == [None] * 2


def test_a_filler_says_what_can_be_pickled_instead():
    with pytest.raises(TypeError, match=r"^Filler: cannot be pickled, .*partial\(\) can be"):
        pickle.dumps(Filler(bh.Histogram(bh.axis.Regular(3, 0, 1))))
